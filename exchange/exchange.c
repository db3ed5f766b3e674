/* The part of the exchange that all back ends share: arguments are checked, the first error is
 * final, waits are measured. A gather or vote is an exchange of a channel of its own in which all
 * parts are the same. */
#include "exchange/exchange.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/check.h"

const char *fr_channel_name(enum fr_channel channel)
{
#define FR_CHANNEL(name, text) text
    static const char *const names[FR_CHANNELS] = {FR_CHANNEL_LIST(FR_CHANNEL)};
#undef FR_CHANNEL
    return names[channel];
}

enum fr_status fr_exchange_missed(uint64_t ranks, enum fr_channel channel, uint64_t call, uint64_t waited_ns,
                                  struct fr_err *err)
{
    struct fr_buffer names = {0};
    bool several = (ranks & (ranks - 1)) != 0;
    for (uint32_t r = 0; r < FR_RANKS_MAX; r++)
        if (ranks >> r & 1)
            fr_buffer_printf(&names, "%s%" PRIu32, names.size > 0 ? ", " : several ? "ranks " : "rank ", r);
    fr_buffer_terminate(&names);
    fr_err_set(err, FR_E_UNAVAILABLE,
               "%s %s not come to exchange %" PRIu64 " of %s for %" PRIu64
               " ms: a rank hangs, is slower than the deadline, or is cut off; look at its log, then start again",
               (const char *)names.data, several ? "have" : "has", call, fr_channel_name(channel), waited_ns / 1000000);
    fr_buffer_release(&names);
    return FR_E_UNAVAILABLE;
}

enum fr_status fr_exchange_stopped(uint32_t rank, int code, struct fr_err *err)
{
    return fr_err_set(err, FR_E_CANCELLED, "rank %" PRIu32 " ended the job with code %d", rank, code);
}

uint32_t fr_exchange_rank(const struct fr_exchange *exchange)
{
    return exchange->rank;
}

uint32_t fr_exchange_size(const struct fr_exchange *exchange)
{
    return exchange->size;
}

uint64_t fr_exchange_waited_ns(const struct fr_exchange *exchange, enum fr_channel channel)
{
    return exchange->waited_ns[channel];
}

void fr_exchange_free(struct fr_exchange *exchange)
{
    if (!exchange)
        return;
    exchange->backend->release(exchange->self);
    free(exchange);
}

/* Guards the first error of each exchange, which two threads may meet. */
static pthread_mutex_t failures = PTHREAD_MUTEX_INITIALIZER;

/* Keeps the first error, and returns it from then on. */
static enum fr_status conclude(struct fr_exchange *exchange, enum fr_status status, struct fr_err *err)
{
    if (status == FR_OK && !atomic_load(&exchange->failed))
        return FR_OK;
    pthread_mutex_lock(&failures);
    if (!atomic_load(&exchange->failed))
        exchange->failure = *err;
    atomic_store(&exchange->failed, true);
    *err = exchange->failure;
    pthread_mutex_unlock(&failures);
    return err->status;
}

enum fr_status fr_exchange_send(struct fr_exchange *exchange, enum fr_channel channel, const struct fr_bytes *out,
                                struct fr_err *err)
{
    if (atomic_load(&exchange->failed))
        return conclude(exchange, FR_OK, err);
    FR_CHECK(!exchange->in_flight[channel]);
    for (uint32_t r = 0; r < exchange->size; r++)
        if (out[r].size > FR_EXCHANGE_PART_MAX)
            return conclude(exchange,
                            fr_err_set(err, FR_E_LIMIT,
                                       "%zu bytes for rank %" PRIu32
                                       " in one exchange of %s, more than %d; lower ingest.batch_size",
                                       out[r].size, r, fr_channel_name(channel), FR_EXCHANGE_PART_MAX),
                            err);
    exchange->in_flight[channel] = true;
    return conclude(exchange, exchange->backend->send(exchange->self, channel, out, err), err);
}

enum fr_status fr_exchange_receive(struct fr_exchange *exchange, enum fr_channel channel, struct fr_bytes *in,
                                   struct fr_err *err)
{
    if (atomic_load(&exchange->failed))
        return conclude(exchange, FR_OK, err);
    FR_CHECK(exchange->in_flight[channel]);
    uint64_t begin_ns = fr_mono_ns(fr_clock_system());
    enum fr_status status = exchange->backend->receive(exchange->self, channel, in, err);
    exchange->waited_ns[channel] += fr_mono_ns(fr_clock_system()) - begin_ns;
    exchange->in_flight[channel] = false;
    return conclude(exchange, status, err);
}

static enum fr_status gather(struct fr_exchange *exchange, enum fr_channel channel, const void *mine, size_t size,
                             void *all, struct fr_err *err)
{
    struct fr_bytes parts[FR_RANKS_MAX] = {{0}};
    FR_CHECK(size > 0);
    for (uint32_t r = 0; r < exchange->size; r++)
        parts[r] = (struct fr_bytes){mine, size};
    enum fr_status status = fr_exchange_send(exchange, channel, parts, err);
    if (status == FR_OK)
        status = fr_exchange_receive(exchange, channel, parts, err);
    for (uint32_t r = 0; status == FR_OK && r < exchange->size; r++) {
        if (parts[r].size != size)
            return conclude(exchange,
                            fr_err_set(err, FR_E_MISMATCH,
                                       "rank %" PRIu32
                                       " gives %zu bytes to the exchange of %s, this rank %zu: the ranks run different "
                                       "versions of the program; start all of them with the same one",
                                       r, parts[r].size, fr_channel_name(channel), size),
                            err);
        memcpy((uint8_t *)all + r * size, parts[r].data, size);
    }
    return status;
}

enum fr_status fr_exchange_gather(struct fr_exchange *exchange, const void *mine, size_t size, void *all,
                                  struct fr_err *err)
{
    return gather(exchange, FR_CHANNEL_ROLL, mine, size, all, err);
}

enum fr_status fr_exchange_vote(struct fr_exchange *exchange, const void *mine, size_t size, void *all,
                                struct fr_err *err)
{
    return gather(exchange, FR_CHANNEL_VOTES, mine, size, all, err);
}

void fr_exchange_stop(struct fr_exchange *exchange, int code)
{
    exchange->backend->stop(exchange->self, code);
}
