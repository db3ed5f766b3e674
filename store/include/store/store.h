/* Tables of rows: entries, gate state, expiry, dirty tracking, cut, and what memory has no room for
 * (docs/architecture.md, "The store"). The one rule: the newest image of a key leaves memory only
 * when the epoch of its last change <= folded; so a key without entry has its newest image in the
 * cold store, or none, and where a key is changes no number.
 *
 * Entry: live (a row), pending (count and seen) or dead (its absence is not folded yet). Row
 * floats: all parts' values, then all parts' optimizer state (offsets fixed by the caller). Beside
 * them the store keeps seen, show, click. Addresses of rows hold from a plan to the next call but
 * fr_store_look; they are aligned as floats are. Thread: all calls by the owner loop (looking
 * ahead and restored images: as they say); work inside is split over the pool by table and by
 * shard; results do not depend on the pool's size. Determinism: every order that reaches numbers or
 * bytes is fixed by keys, salt or batch, never by the index's layout. */
#ifndef FR_STORE_STORE_H
#define FR_STORE_STORE_H

#include "base/pool.h"
#include "batch/batch.h"
#include "batch/rows.h"
#include "conf/conf.h"
#include "durable/durable.h"
#include "numerics/first_values.h"
#include "policy/policy.h"

enum { FR_SHARDS = 16 };

struct fr_store_table {
    char name[FR_NAME_MAX];
    struct fr_row_layout layout;
    struct fr_gate_policy gate;
    /* exact gate: entries kept at most, an equal share per shard; above it new keys are counted as
     * rejected and not remembered */
    uint64_t pending_max;
    uint32_t n_expiries; /* rules in the order in which they are asked; 0: rows stay */
    struct fr_expiry_policy expiries[FR_EXPIRY_RULES];
    /* in so many turns about so many rows are looked at, in one slice or in many */
    uint32_t expire_every;      /* 0: 16 */
    uint32_t expire_slice_rows; /* 0: 65536 */
    uint64_t initial_capacity;  /* keys that indexes have room for before they come, and keep */
};

struct fr_store_options {
    uint32_t n_tables;
    const struct fr_store_table *tables; /* copied */
    uint64_t seed;
    struct fr_pool *pool;       /* borrowed */
    const struct fr_conf *conf; /* slots: which table, admit, touch; borrowed */
};

struct fr_store;

/* FR_E_UNSUPPORTED: this machine has no memory for conf->memory_reserve, which fr_store_new would
 * take all the same. */
enum fr_status fr_store_check_machine(const struct fr_conf *conf, struct fr_err *err) FR_MUST_CHECK;
struct fr_store *fr_store_new(const struct fr_store_options *options);
void fr_store_free(struct fr_store *store);

/* Before the first image or batch: the salt of the state's keyed order (base/order.h), and the
 * state whose cold store holds what has no room in memory (borrowed; NULL: every row stays). */
void fr_store_open_state(struct fr_store *store, uint64_t salt, struct fr_durable *durable);

struct fr_rows *fr_store_rows_new(const struct fr_store *store);
void fr_store_rows_free(struct fr_rows *rows);

/* Key plane of one batch: per table, count occurrences of trained samples (before dedup, the whole
 * batch first; an occurrence in a shared column once per trained sample of its group), admit,
 * create rows, deduplicate, resolve, touch (seen = watermark_ms, show += occurrences, click += sum
 * of label 0 of those samples where it is > 0), mark dirty in the open epoch. Samples whose role is
 * not FR_ROLE_TRAIN look rows up without counting, admitting or touching. Slots with admit false
 * neither count nor admit. */
void fr_store_plan(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows);

/* The same for the batch after the one that was planned last, whose plan can still be undone
 * afterwards: two undos take both back, this one first. Nothing but that plan came before, or was
 * undone since; its rows' addresses are void, their values are not. */
void fr_store_plan_next(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms,
                        struct fr_rows *rows);

/* The first half of the plan of the batch that is planned next: which keys it has, and the
 * images of those that are in the cold store only. Changes nothing that fr_store_plan or
 * fr_store_undo of another batch would notice. Any one thread, beside whoever reads and writes
 * rows of the last plan; no other call of the store meanwhile. */
void fr_store_look(struct fr_store *store, const struct fr_batch *batch);
/* The same by the owner loop with its pool, while a device is busy. */
void fr_store_look_pooled(struct fr_store *store, const struct fr_batch *batch);
/* After a plan or a slice: an error of the cold store, FR_OK when there was none. It is final: what
 * the plan gave is void. */
enum fr_status fr_store_failure(struct fr_store *store, struct fr_err *err) FR_MUST_CHECK;

/* What indexes, entries and rows may take; 0: no limit. */
void fr_store_limit(struct fr_store *store, uint64_t bytes);
/* What the limit is for, as it lies in memory: all that is kept but sketches and sweeps. */
uint64_t fr_store_limited_bytes(const struct fr_store *store);
/* Bytes of memory_reserve that are nobody's yet: resident, and no one's need. Any thread. */
uint64_t fr_store_idle_bytes(void);
/* Between batches: clean entries leave until the limit holds. Returns how many bytes it is still
 * over: those are of epochs that are not folded, of the open one, or indexes. */
uint64_t fr_store_relieve(struct fr_store *store);
/* It would have something to do. */
bool fr_store_over_limit(const struct fr_store *store);
/* Epochs up to here are folded: what they hold may leave memory. */
uint64_t fr_store_folded(const struct fr_store *store);
/* Some keys are in the cold store only: looking ahead pays. */
bool fr_store_tiered(const struct fr_store *store);

/* The floats of a key's row in memory, NULL when it has none there. Holds as long as a plan's. */
float *fr_store_row_of(const struct fr_store *store, uint32_t table, uint64_t key);
/* Where first values of a table's rows are drawn: seed and stream; key, part and fans are the
 * row's. */
struct fr_value_place fr_store_first_place(const struct fr_store *store, uint32_t table);

/* Takes the last plan back, because its batch was quarantined: entries, rows, counts, seen, show
 * and click, counters and what is dirty are as if it had not been. Only between fr_store_plan and
 * the next plan, slice, cut or relief; the rows it resolved are void afterwards. */
void fr_store_undo(struct fr_store *store);

/* Expiry and forgetting of pending keys: the next slice of every table whose turn it is at
 * `batch_number` (full batches of trained samples in this history), in memory and in the cold store
 * alike. Which slice that is survives restarts (sections "store" and "expiry"). Between batches
 * only: rows that a plan resolved may go. */
void fr_store_slice(struct fr_store *store, uint64_t batch_number, int64_t watermark_ms);

/* The same of numbers first to last, while the step of the batch that was planned last can still be
 * refused: fr_store_undo_slices takes all of them back, after the plan that followed them and
 * before that batch's own. No rule may look at values: a device may have newer ones. */
void fr_store_slices_beside(struct fr_store *store, uint64_t first, uint64_t last, int64_t watermark_ms);
void fr_store_undo_slices(struct fr_store *store);

/* Whether that slice would look at anything: without one it changes nothing. */
bool fr_store_slice_due(const struct fr_store *store, uint64_t batch_number);

/* What falls due in expire_every turns, of every table whose rows were not all looked at with this
 * watermark: while nothing is trained. Returns whether there was one. What it does depends on when
 * it is called: not in lockstep. */
bool fr_store_slice_idle(struct fr_store *store, int64_t watermark_ms);
/* Reads a piece of what the next slices look at in the cold store; false: there is none. Any one
 * thread, at any time. */
bool fr_store_scan_ahead(struct fr_store *store);

/* Copies every dirty image into the stage (and the store's own section "store") and begins a new
 * epoch. Costs time in proportion to the dirty set. A key that lost a published row in this epoch
 * and is pending again gets the tombstone as its image; its count travels in the section, and its
 * pending image in the next epoch. */
void fr_store_cut(struct fr_store *store, struct fr_stage *stage);
/* Memory that the open epoch takes until it is durable, from above: of every changed key, also of
 * pending and dead ones, its image with head and what lists and sorts it. */
uint64_t fr_store_dirty_bytes(const struct fr_store *store);
/* What is kept, and scratch of plans and cuts. */
uint64_t fr_store_bytes(const struct fr_store *store);
/* Indexes, entries, rows, sketches and lists of keys. Scratch grows to the largest batch and stays:
 * it is part of what the process needs elsewhere. */
uint64_t fr_store_kept_bytes(const struct fr_store *store);

/* Recovery begins with the section "store", which says how many images there are: room is made for
 * them, or, when they are more than the limit allows, *wants_cold is false: then only images of
 * unfolded epochs are restored, and rows follow on demand. */
enum fr_status fr_store_restore_begin(struct fr_store *store, const uint8_t *bytes, size_t size, bool *wants_cold,
                                      struct fr_err *err) FR_MUST_CHECK;
/* Recovery, before the first batch: a visitor for fr_durable_restore, on its threads; FR_E_CORRUPT
 * when an image's size does not fit the table. The section "store" is applied after all images;
 * FR_E_CORRUPT also when it names fewer rows and pending keys than the images gave, or, with all
 * images asked for, more; FR_E_MISMATCH on another version or number of tables. After an error the
 * store is only good for fr_store_free. */
enum fr_status fr_store_restore_image(struct fr_store *store, const struct fr_image *image) FR_MUST_CHECK;
enum fr_status fr_store_restore_section(struct fr_store *store, const uint8_t *bytes, size_t size) FR_MUST_CHECK;
/* Section "expiry", whenever it comes; a state without one begins new sweeps. FR_E_CORRUPT,
 * FR_E_MISMATCH as above. */
enum fr_status fr_store_restore_expiry(struct fr_store *store, const uint8_t *bytes, size_t size) FR_MUST_CHECK;

/* Numbers of a table, in the order in which section "store" and tools have them (store/section.h).
 * From `admitted` on: since the history began. */
enum { FR_STORE_COUNTS = 6 + FR_ABSENT_REASONS };
struct fr_store_counts {
    union {
        struct {
            uint64_t rows, pending;
            uint64_t admitted; /* rows made */
            /* trained occurrences, in slots that admit, of keys that had no row after their
             * batch */
            uint64_t rejected;
            uint64_t forgotten;    /* pending keys */
            uint64_t unremembered; /* keys over pending_max, once per batch */
            uint64_t expired[FR_ABSENT_REASONS];
        };
        uint64_t of[FR_STORE_COUNTS];
    };
};
_Static_assert(sizeof(struct fr_store_counts) == FR_STORE_COUNTS * sizeof(uint64_t), "one number a name");

struct fr_store_table_stats {
    struct fr_store_counts counts;
    uint64_t resident;  /* of rows and pending keys: those in memory */
    uint64_t evictions; /* in this run */
    uint64_t bytes;
};
void fr_store_stats(const struct fr_store *store, uint32_t table, struct fr_store_table_stats *out);

#endif
