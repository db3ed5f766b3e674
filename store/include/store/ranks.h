/* A plan over several ranks. The rank that reads a sample is the source of the sample's keys; the
 * rank that owns a key's domain is the key's home. A plan then has these parts, between which the
 * messages travel (exchange/):
 *
 *   source  fr_store_gather      finds the keys of the rank's own lanes, with their sums
 *           fr_store_put_keys    writes the keys of each home
 *   home    fr_store_resolve     merges the keys of all sources, in the order of ranks, then
 *                                counts, admits, touches and marks them as fr_store_plan does
 *           fr_store_put_rows    writes for each source what its keys have: a row, its values
 *   source  fr_store_take_rows   makes struct fr_rows from what the homes wrote, and with
 *           fr_store_own_rows    what the rank has itself, as a home of its own keys
 *
 * A batch may be planned before the step of the batch before it (fr_store_resolve_next). Rows that
 * the step cannot change leave early, with fr_store_put_rows. Those that the step can change are
 * late: their values leave after it, with fr_store_put_late_rows. So a batch reads what all batches
 * before it have written.
 *
 * Ranks own contiguous ranges of lanes and of domains, both ascending. So the merged keys have the
 * order of first occurrence of one rank that reads all lanes (lane, slot, entry), sums over samples
 * are exact, and nothing depends on the number of ranks.
 *
 * A message is what its name says and is checked when it is read: FR_E_CORRUPT, never a crash,
 * whatever it holds. Numbers are in the byte order of the machine.
 *
 * Thread: as fr_store_plan. fr_store_undo undoes fr_store_resolve and fr_store_resolve_next. */
#ifndef FR_STORE_RANKS_H
#define FR_STORE_RANKS_H

#include "base/ranks.h"
#include "store/store.h"

/* What one rank sends of one key. Few keys have numbers that are too large for it (WIDE): theirs
 * are in a list at the end of the message, and `numbers` is where. */
struct fr_key_wire {
    uint64_t key;
    uint16_t counted, touched; /* trained occurrences that count for the gate; that touch */
    uint32_t numbers;          /* FR_KEY_WIRE_*, and above them clicks, in parts of 2^-20 */
};
struct fr_key_numbers {
    uint64_t counted, touched, clicks;
};
_Static_assert(sizeof(struct fr_key_wire) == 16 && sizeof(struct fr_key_numbers) == 24, "no padding: they travel");
enum {
    FR_KEY_WIRE_TRAINED = 1, /* some occurrence is trained */
    FR_KEY_WIRE_FELL = 2,    /* the coin of some occurrence admits the key */
    FR_KEY_WIRE_WIDE = 4,
    FR_KEY_WIRE_FLAG_BITS = 3,
};

/* Finds the distinct keys of the batch, and fills `rows` except for the rows themselves, which are
 * NULL. What was gathered stays until the next call. */
void fr_store_gather(struct fr_store *store, const struct fr_batch *batch, struct fr_rows *rows);
/* Appends the gathered keys of the domains. */
void fr_store_put_keys(const struct fr_store *store, struct fr_domains domains, struct fr_buffer *out);
/* The unique keys, for each table of the configuration, that fr_store_put_keys appends for the
 * domains. */
void fr_store_sent_ranges(const struct fr_store *store, struct fr_domains domains, struct fr_unique_range *ranges);
/* Plans the keys that all ranks sent, for the domains of this rank. The messages are borrowed until
 * the last fr_store_put_rows of the plan. After an error no entry has changed, but the plan before
 * cannot be undone. FR_E_CORRUPT: a message cannot be read. FR_E_LIMIT: the messages have more keys
 * than one plan can hold. */
enum fr_status fr_store_resolve(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err) FR_MUST_CHECK;
/* Plans, as fr_store_resolve does, the batch after the one planned last, which was not stepped yet.
 * Both plans can be undone, the later one first; after an error the earlier one. What
 * fr_store_home_rows returned for the earlier one stays valid. */
enum fr_status fr_store_resolve_next(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                     uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err) FR_MUST_CHECK;
/* Appends what the keys of one source have, without the values of late rows. Call it after
 * fr_store_home_rows, while the messages of keys are still there. */
void fr_store_put_rows(struct fr_store *store, uint32_t source, struct fr_buffer *out);
/* Appends the values of the late rows of one source, as they are now. Call it after the step,
 * before anything else is planned. */
void fr_store_put_late_rows(const struct fr_store *store, uint32_t source, struct fr_buffer *out);
/* Returns the keys that were merged last, with their rows, whose values and state the caller may
 * change. Call it while the messages of keys are still there. The store owns the list, which is
 * valid until its plan is undone, until the next fr_store_resolve, or until the second
 * fr_store_resolve_next after its plan. */
const struct fr_home_rows *fr_store_home_rows(struct fr_store *store);
/* Sets rows and served of the gathered keys of this rank's own domains, without a message, to the
 * rows themselves. Call it after fr_store_home_rows. `rank`: this one. */
void fr_store_own_rows(const struct fr_store *store, uint32_t rank, struct fr_rows *rows);
/* Sets rows and served of the gathered keys of a home's domains, from the home's message with rows
 * and from that with late rows, which is empty if there are none. The values stay in the messages,
 * which must outlive the batch, be aligned to a float, and are not written to. A row that has no
 * values yet, because this batch made it, is not NULL in rows->rows, but nothing can be read
 * there. FR_E_CORRUPT: `rows` is filled in part and must not be read. */
enum fr_status fr_store_take_rows(const struct fr_store *store, struct fr_domains domains, struct fr_bytes in,
                                  struct fr_bytes late, struct fr_rows *rows, struct fr_err *err) FR_MUST_CHECK;

#endif
