/* Tables of rows: entries, gates, expiry, dirty tracking, cuts, and eviction to the cold store
 * (docs/architecture.md, "The store"). A table here is one of the configuration; inside, it has a
 * sub-table for each of conf->domains key ranges, with an equal share of the table's limits. There
 * is one rule: the newest image of a key leaves memory only when the epoch of its last change is
 * folded. So the newest image of a key without an entry is in the cold store, or there is none, and
 * no result depends on where a key is.
 *
 * An entry is live (it has a row), pending (it has a count and a seen time) or dead (removed, and
 * its absence is not folded yet). A row has the values of all its parts, then the optimizer state
 * of all parts, at offsets that the caller fixes; the store adds seen, shows and clicks. The
 * address of a row is valid from the plan that returned the row to the next call other than
 * fr_store_look; it is aligned to a float.
 *
 * Thread: the owner loop makes all calls, except where a function's comment names another thread. A
 * call splits its work over the pool by table and by shard; no result depends on the number of
 * workers.
 *
 * Determinism: every order that reaches numbers or bytes follows from keys, salt or batch, never
 * from the index's layout. */
#ifndef FR_STORE_STORE_H
#define FR_STORE_STORE_H

#include "base/pool.h"
#include "batch/batch.h"
#include "batch/rows.h"
#include "conf/conf.h"
#include "durable/durable.h"
#include "durable/image.h"
#include "numerics/first_values.h"
#include "policy/policy.h"

enum { FR_SHARDS = 16 };

struct fr_store_table {
    char name[FR_NAME_MAX];
    struct fr_row_layout layout;
    struct fr_gate_policy gate;
    /* exact gate: the largest number of pending entries, divided equally over the shards. A new key
     * beyond that number is counted as rejected and is not remembered. */
    uint64_t pending_max;
    /* number of rules, which are applied in this order; 0: rows never expire */
    uint32_t n_expiries;
    struct fr_expiry_policy expiries[FR_EXPIRY_RULES];
    /* Each expire_every batches, expiry examines about expire_slice_rows rows, in one slice or
     * several. */
    uint32_t expire_every;      /* batches; 0: 16 */
    uint32_t expire_slice_rows; /* rows; 0: 65536 */
    /* number of keys for which indexes have room from the start; that room is never given back */
    uint64_t initial_capacity;
};

struct fr_store_options {
    uint32_t n_tables;
    const struct fr_store_table *tables; /* copied */
    uint64_t seed;
    struct fr_pool *pool; /* borrowed */
    /* borrowed; gives each slot's table and whether the slot admits and touches, and the number of
     * domains (0: one) */
    const struct fr_conf *conf;
};

struct fr_store;

/* Checks that conf->memory_reserve is available, which fr_store_new assumes. FR_E_UNSUPPORTED: this
 * machine does not have that much memory. */
enum fr_status fr_store_check_machine(const struct fr_conf *conf, struct fr_err *err) FR_MUST_CHECK;
struct fr_store *fr_store_new(const struct fr_store_options *options);
void fr_store_free(struct fr_store *store);

/* Call before the first image or batch. salt is that of the state's keyed order (base/order.h);
 * durable is the state whose cold store holds the keys that memory has no room for (borrowed; NULL:
 * every row stays in memory). */
void fr_store_open_state(struct fr_store *store, uint64_t salt, struct fr_durable *durable);

struct fr_rows *fr_store_rows_new(const struct fr_store *store);
void fr_store_rows_free(struct fr_rows *rows);

/* The key work of one batch. For each table: count the occurrences of trained samples (for the
 * whole batch, before keys are deduplicated; an occurrence in a shared column counts once for each
 * trained sample of its group), admit keys, create rows, deduplicate, resolve keys to rows, touch
 * rows (seen = watermark_ms, show += occurrences, click += the sum of the positive first labels of
 * those samples; with several domains, of labels rounded to 2^-20 and cut to 2^20) and mark rows
 * dirty in the open epoch. Samples whose role is not FR_ROLE_TRAIN only look rows up: they do not
 * count, admit or touch. Slots with admit false neither count nor admit. */
void fr_store_plan(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms, struct fr_rows *rows);

/* Like fr_store_plan, for the batch after the one planned last, whose plan can still be undone: the
 * first fr_store_undo undoes this plan, the second one undoes the plan before it. Since that plan,
 * no call may have changed the store, except calls that were undone again. Row addresses of the
 * earlier plan become invalid; its rows' values do not. */
void fr_store_plan_next(struct fr_store *store, const struct fr_batch *batch, int64_t watermark_ms,
                        struct fr_rows *rows);

/* The first half of the next batch's plan: finds the batch's keys, and reads the images of those
 * that are in the cold store only. Changes nothing that fr_store_plan or fr_store_undo of another
 * batch could notice. Thread: any one thread. Other threads may read and write rows of the last
 * plan at the same time, but may not call the store. */
void fr_store_look(struct fr_store *store, const struct fr_batch *batch);
/* Like fr_store_look, by the owner loop with its pool, while a device computes. */
void fr_store_look_pooled(struct fr_store *store, const struct fr_batch *batch);
/* The error that the cold store met in a plan or a slice; FR_OK if there was none. The error is
 * final, and the result of the plan is invalid. */
enum fr_status fr_store_failure(struct fr_store *store, struct fr_err *err) FR_MUST_CHECK;

/* Limits the bytes of indexes, entries and rows; 0: no limit. */
void fr_store_limit(struct fr_store *store, uint64_t bytes);
/* The bytes that the limit applies to, as they are in memory: all of fr_store_kept_bytes except
 * sketches and sweeps. */
uint64_t fr_store_limited_bytes(const struct fr_store *store);
/* Bytes of memory_reserve that are resident but not handed out yet, so no part of the process needs
 * them. Thread: any. */
uint64_t fr_store_idle_bytes(void);
/* Between batches: evicts clean entries until the limit holds. Returns the number of bytes that are
 * still above the limit: indexes, and entries whose epoch is open or not folded. */
uint64_t fr_store_relieve(struct fr_store *store);
/* Whether fr_store_relieve would have anything to do. */
bool fr_store_over_limit(const struct fr_store *store);
/* The folded epoch as the store sees it: entries last changed in this epoch or before may leave
 * memory. */
uint64_t fr_store_folded(const struct fr_store *store);
/* Whether some keys are in the cold store only, so that looking ahead is worth its cost. */
bool fr_store_tiered(const struct fr_store *store);

/* The floats of a key's row in memory; NULL if the row is not in memory. The address is valid as
 * long as one from a plan. */
float *fr_store_row_of(const struct fr_store *store, uint32_t table, uint64_t key);
/* What the state has of a key, in memory or, if the key is not in memory, in the cold store. */
enum fr_store_key_state {
    FR_KEY_UNKNOWN, /* never counted, counted by a sketch only, or gone */
    FR_KEY_PENDING, /* counted by an exact gate: count, head.seen_ms */
    FR_KEY_ROW,     /* head, and the floats */
    FR_KEY_REMOVED, /* removed by an epoch that is not folded yet */
};
struct fr_store_key {
    enum fr_store_key_state state;
    bool resident; /* its newest image is in memory */
    struct fr_row_head head;
    uint32_t count;
};
/* Reads a key without changing anything; if the key has a row, copies the row's floats to `row`
 * [row floats]. Between batches. An error is that of the cold store. */
enum fr_status fr_store_read_key(const struct fr_store *store, uint32_t table, uint64_t key, struct fr_store_key *out,
                                 float *row, struct fr_err *err) FR_MUST_CHECK;
/* The seed and the stream from which first values of a table's rows are drawn. The caller fills in
 * key, part and fans of the row. */
struct fr_value_place fr_store_first_place(const struct fr_store *store, uint32_t table);

/* Undoes the last plan, because its batch was quarantined: entries, rows, pending counts, seen,
 * shows, clicks, counters and dirty keys become what they were before the plan. Allowed only
 * between fr_store_plan and the next plan, slice, cut or relief. The rows that the plan resolved
 * are invalid afterwards. */
void fr_store_undo(struct fr_store *store);

/* Expiry, and forgetting of pending keys: runs the next slice of each table for which one is due at
 * `batch_number` (the number of full batches of trained samples in this history), both in memory
 * and in the cold store. Which slice is next survives restarts (sections "store" and "expiry").
 * Call between batches only, because a row that a plan resolved may be removed. */
void fr_store_slice(struct fr_store *store, uint64_t batch_number, int64_t watermark_ms);

/* The slices of batch numbers first to last, run while the step of the last planned batch can still
 * be refused. fr_store_undo_slices undoes all of them; call it after undoing the plan that followed
 * the slices, and before undoing the batch's own plan. No rule of these tables may read values,
 * because a device may hold newer ones. */
void fr_store_slices_beside(struct fr_store *store, uint64_t first, uint64_t last, int64_t watermark_ms);
void fr_store_undo_slices(struct fr_store *store);

/* Whether fr_store_slice would examine anything at this batch number. If not, fr_store_slice
 * changes nothing. */
bool fr_store_slice_due(const struct fr_store *store, uint64_t batch_number);

/* While nothing is trained: runs the slices that would fall due in expire_every batches, for each
 * table whose rows were not all examined at this watermark. Returns whether there was such a table.
 * The result depends on the time of the call, so lockstep must not call it. */
bool fr_store_slice_idle(struct fr_store *store, int64_t watermark_ms);
/* Reads one part of the cold rows that the next slices will examine; false: nothing is left to
 * read. Thread: any one thread, at any time. */
bool fr_store_scan_ahead(struct fr_store *store);

/* Copies every dirty image and the store's own section "store" into the stage, and begins a new
 * epoch. The time is proportional to the number of dirty keys. If a key lost a published row in
 * this epoch and is pending again, its image is the tombstone; its count goes into the section, and
 * its pending image into the next epoch. */
void fr_store_cut(struct fr_store *store, struct fr_stage *stage);
/* Upper bound of the bytes that the open epoch takes until it is durable. For every changed key,
 * pending and dead ones included: the image with its head, and the memory to list and sort it. */
uint64_t fr_store_dirty_bytes(const struct fr_store *store);
/* fr_store_kept_bytes, and the scratch memory of plans and cuts. */
uint64_t fr_store_bytes(const struct fr_store *store);
/* Bytes of indexes, entries, rows, sketches and lists of keys. Scratch memory is not counted here:
 * it grows to the largest batch, stays, and belongs to what the process needs elsewhere. */
uint64_t fr_store_kept_bytes(const struct fr_store *store);

/* Recovery, before the first batch: sections, then begin, then images, then the end. After an error
 * only fr_store_free may be called.
 *
 * fr_store_restore_section takes the newest value of one of the store's sections (store/section.h).
 * FR_E_NOT_FOUND: the section is not the store's. FR_E_MISMATCH: it is of another version, of
 * another number of tables, or of a domain that the store does not have. FR_E_CORRUPT: it does not
 * parse. Without sections "expiry", new sweeps begin. */
enum fr_status fr_store_restore_section(struct fr_store *store, const char *name, const uint8_t *bytes,
                                        size_t size) FR_MUST_CHECK;
/* The sections "store" give the number of images. If all fit the limit, room is made for them and
 * *wants_cold is true. Otherwise *wants_cold is false: only images of unfolded epochs are restored,
 * and the other rows are read when a batch needs them. */
enum fr_status fr_store_restore_begin(struct fr_store *store, bool *wants_cold, struct fr_err *err) FR_MUST_CHECK;
/* A visitor for fr_durable_restore; runs on that function's threads. FR_E_CORRUPT: the image does
 * not fit a table, or its key is not of the domain that its number names. */
enum fr_status fr_store_restore_image(struct fr_store *store, const struct fr_image *image) FR_MUST_CHECK;
/* FR_E_CORRUPT: a section "store" is missing, or counts fewer rows and pending keys than the images
 * gave or, if all images were requested, more. FR_E_MISMATCH: as for fr_store_restore_section. */
enum fr_status fr_store_restore_end(struct fr_store *store, struct fr_err *err) FR_MUST_CHECK;

/* Numbers of a table, in the order in which section "store" and tools list them (store/section.h).
 * Those from `admitted` on count since the history began. */
enum { FR_STORE_COUNTS = 6 + FR_ABSENT_REASONS };
struct fr_store_counts {
    union {
        struct {
            uint64_t rows, pending;
            uint64_t admitted; /* rows created */
            /* trained occurrences, in slots that admit, of keys that had no row after the batch */
            uint64_t rejected;
            uint64_t forgotten;    /* pending keys forgotten */
            uint64_t unremembered; /* keys beyond pending_max, counted once per batch */
            uint64_t expired[FR_ABSENT_REASONS];
        };
        uint64_t of[FR_STORE_COUNTS];
    };
};
_Static_assert(sizeof(struct fr_store_counts) == FR_STORE_COUNTS * sizeof(uint64_t), "one number a name");

struct fr_store_table_stats {
    struct fr_store_counts counts;
    uint64_t resident;  /* rows and pending keys that are in memory */
    uint64_t evictions; /* since the process started */
    uint64_t bytes;
};
void fr_store_stats(const struct fr_store *store, uint32_t table, struct fr_store_table_stats *out);

#endif
