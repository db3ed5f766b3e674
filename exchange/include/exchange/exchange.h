/* How the ranks of one model move bytes to each other: a collective gather, and collective
 * all-to-all exchanges on two channels, of which each may have one in flight. Nothing is summed on
 * the way, so no number depends on an engine.
 *
 * All ranks make the same calls of a channel in the same order. Calls of different channels have no
 * order between ranks. A back end (self, threads, MPI) is chosen when a rank's exchange is made; no
 * type of an engine is in this header.
 *
 * Errors are final: the first one that a rank meets is returned by all its later calls. The state
 * on disk is then that of the last durable epoch.
 *   FR_E_UNAVAILABLE  a rank did not send before this rank's deadline; the text names that rank
 *                     and the call. Other ranks get FR_E_CANCELLED, with code 75.
 *   FR_E_CANCELLED    a rank ended the job, by fr_exchange_stop or by its deadline; the text has
 *                     its number and the code.
 *   FR_E_LIMIT        a part is larger than FR_EXCHANGE_PART_MAX.
 *   FR_E_MISMATCH     a rank gathers another number of bytes: it runs another version.
 *
 * Thread: one owner at a time makes all calls, and another one at a time all fr_exchange_vote, also
 * at once; fr_exchange_stop from any thread. */
#ifndef FR_EXCHANGE_EXCHANGE_H
#define FR_EXCHANGE_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/status.h"

enum {
    FR_RANKS_MAX = 64,                 /* at least one domain a rank */
    FR_EXCHANGE_PART_MAX = 0x7fffffff, /* bytes; engines count in int */
    FR_EXCHANGE_ALIGNED = 8,           /* bytes, if the sender's own parts are aligned so */
};

/* The roll call has a channel of its own, so that it can be made beside both exchanges, and so do
 * the votes about epochs, which another thread makes. */
#define FR_CHANNEL_LIST(CHANNEL)                                                                                       \
    CHANNEL(KEYS, "keys"), CHANNEL(VALUES, "values"), CHANNEL(ROLL, "roll call"), CHANNEL(VOTES, "votes")
#define FR_CHANNEL(name, text) FR_CHANNEL_##name
enum fr_channel { FR_CHANNEL_LIST(FR_CHANNEL), FR_CHANNELS };
#undef FR_CHANNEL
const char *fr_channel_name(enum fr_channel channel);

struct fr_exchange;

/* N = 1: no other rank, no copy, no wait. */
struct fr_exchange *fr_exchange_self_new(void);
void fr_exchange_free(struct fr_exchange *exchange);

uint32_t fr_exchange_rank(const struct fr_exchange *exchange);
uint32_t fr_exchange_size(const struct fr_exchange *exchange);

/* Gives out[r] to rank r, for all ranks r, this one included; data may be NULL if size is 0. The
 * parts are borrowed until fr_exchange_receive of the same channel returns, and this rank's own
 * part until the next fr_exchange_send of the channel, because it is not copied. Not
 * FR_CHANNEL_ROLL or FR_CHANNEL_VOTES. */
enum fr_status fr_exchange_send(struct fr_exchange *exchange, enum fr_channel channel, const struct fr_bytes *out,
                                struct fr_err *err) FR_MUST_CHECK;
/* Waits for what all ranks sent with the call of the same number: in[r] is from rank r. The bytes
 * stay valid until the next fr_exchange_send of the channel, and begin at a multiple of
 * FR_EXCHANGE_ALIGNED. */
enum fr_status fr_exchange_receive(struct fr_exchange *exchange, enum fr_channel channel, struct fr_bytes *in,
                                   struct fr_err *err) FR_MUST_CHECK;
/* Gives `size` bytes to every rank, and returns those of all in `all` [ranks * size], in the order
 * of ranks. The size is the same on all ranks. */
enum fr_status fr_exchange_gather(struct fr_exchange *exchange, const void *mine, size_t size, void *all,
                                  struct fr_err *err) FR_MUST_CHECK;
/* The same on FR_CHANNEL_VOTES. */
enum fr_status fr_exchange_vote(struct fr_exchange *exchange, const void *mine, size_t size, void *all,
                                struct fr_err *err) FR_MUST_CHECK;
/* Ends the job for all ranks, with an exit code. The first call counts. */
void fr_exchange_stop(struct fr_exchange *exchange, int code);

/* The time that this rank has waited for others on a channel. The rank that waits least is the one
 * that the others wait for. */
uint64_t fr_exchange_waited_ns(const struct fr_exchange *exchange, enum fr_channel channel);

#endif
