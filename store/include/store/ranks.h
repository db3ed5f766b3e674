/* A plan over several ranks. The rank that reads a sample is the source of the sample's keys; the
 * rank that owns a key's domain is the key's home. A plan then has these parts, between which the
 * messages travel (exchange/):
 *
 *   source  fr_store_gather      finds the keys of the rank's own lanes, with their sums
 *           fr_store_put_keys    writes the keys of each home
 *   home    fr_store_resolve     merges the keys of all sources, in the order of ranks, then
 *                                counts, admits, touches and marks them as fr_store_plan does
 *           fr_store_put_rows    writes for each source what its keys have: a row, its values
 *   source  fr_store_take_rows   makes struct fr_rows from what the homes wrote
 *
 * Ranks own contiguous ranges of lanes and of domains, both ascending. So the merged keys have the
 * order of first occurrence of one rank that reads all lanes (lane, slot, entry), sums over samples
 * are exact, and nothing depends on the number of ranks.
 *
 * A message is what its name says and is checked when it is read: FR_E_CORRUPT, never a crash,
 * whatever it holds. Numbers are in the byte order of the machine.
 *
 * Thread: as fr_store_plan. fr_store_undo undoes fr_store_resolve. */
#ifndef FR_STORE_RANKS_H
#define FR_STORE_RANKS_H

#include "base/ranks.h"
#include "store/store.h"

/* What one rank sends of one key. */
struct fr_key_wire {
    uint64_t key;
    uint64_t counted, touched; /* trained occurrences that count for the gate; that touch */
    int64_t clicks;            /* in parts of 2^-20 */
    uint32_t flags;            /* FR_KEY_WIRE_* */
    uint32_t zero;
};
_Static_assert(sizeof(struct fr_key_wire) == 40, "no padding: the struct is what travels");
enum {
    FR_KEY_WIRE_TRAINED = 1, /* some occurrence is trained */
    FR_KEY_WIRE_FELL = 2,    /* the coin of some occurrence admits the key */
};

/* Finds the distinct keys of the batch, and fills `rows` except for the rows themselves, which are
 * NULL. What was gathered stays until the next call. */
void fr_store_gather(struct fr_store *store, const struct fr_batch *batch, struct fr_rows *rows);
/* Appends the gathered keys of the domains. */
void fr_store_put_keys(const struct fr_store *store, struct fr_domains domains, struct fr_buffer *out);
/* The unique keys, for each table of the configuration, that fr_store_put_keys appends for the
 * domains. */
void fr_store_sent_ranges(const struct fr_store *store, struct fr_domains domains, struct fr_unique_range *ranges);
/* Plans the keys that all ranks sent, for the domains of this rank. After an error nothing has
 * changed. */
enum fr_status fr_store_resolve(struct fr_store *store, struct fr_domains domains, const struct fr_bytes *in,
                                uint32_t n_ranks, int64_t watermark_ms, struct fr_err *err) FR_MUST_CHECK;
/* Appends what the keys of one source have after fr_store_resolve. */
void fr_store_put_rows(const struct fr_store *store, uint32_t source, struct fr_buffer *out);
/* Returns the keys that fr_store_resolve merged, with their rows, whose values and state the
 * caller may change. Call it while the messages of keys are still there. Valid, like rows of
 * fr_store_plan, until the plan is undone or another one is made. */
const struct fr_home_rows *fr_store_home_rows(struct fr_store *store);
/* Sets rows and served of the gathered keys of a home's domains. The values stay in the message,
 * which must outlive the batch, be aligned to a float, and is not written to. A row that has no
 * values yet, because this batch made it, is not NULL in rows->rows, but nothing can be read
 * there. */
enum fr_status fr_store_take_rows(const struct fr_store *store, struct fr_domains domains, struct fr_bytes in,
                                  struct fr_rows *rows, struct fr_err *err) FR_MUST_CHECK;

#endif
