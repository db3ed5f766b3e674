/* Recovery: visits the sections, then the cold store, then the unfolded epochs.
 *
 * Images are absolute, so visiting epochs in ascending order is enough: the visitor lets a later
 * image replace an earlier one. The newest value of each section is visited once, before all
 * images, so that the visitor knows how many rows to make room for, or can decline the cold store's
 * images.
 *
 * Work is divided by shards, the top 4 bits of the hash. Each lane has every threads-th shard of
 * each table: first in the cold store, where a shard is a range of keys, then in the epochs, which
 * all lanes read in full (the hash of an image gives its lane). Several epochs are loaded at the
 * same time, as many as fit into EPOCHS_BYTES. Each is checked again, CRC and structure, because a
 * tool may walk hours after it opened; the digest was compared at open.
 *
 * Thread: the caller's and those of a pool, before the first append and fold of this object, or on
 * a read-only object. The mutex guards the first error and the order of progress reports. Nothing
 * is written. */
#include "durable_internal.h"
#include "epoch_layout.h"
#include "section_set.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/pool.h"

enum { SHARD_BITS = 4, SHARDS = 1 << SHARD_BITS, LOOK_IMAGES = 4096, EPOCHS_BYTES = 64 << 20, EPOCHS_MAX = 1024 };

struct loaded {
    uint64_t number;
    struct fr_buffer bytes;
    struct fr_epoch epoch;
};

struct walk {
    struct fr_durable *durable;
    const struct fr_restore_visitor *visitor;
    struct fr_pool *pool;
    size_t threads;
    uint64_t folded, newest; /* epoch numbers */
    struct fr_section_set sections;
    uint64_t section_epoch; /* the epoch whose sections are being visited */
    uint32_t *tables;       /* tables that the cold store has images of */
    size_t n_tables;
    struct loaded *loaded; /* epochs that are loaded */
    size_t n_loaded;

    _Atomic uint64_t done_bytes;
    uint64_t total_bytes;
    atomic_bool ended; /* an error happened: every lane stops */
    pthread_mutex_t mutex;
    uint64_t told_bytes;
    enum fr_status status; /* the first error */
    struct fr_err err;     /* its text; status FR_OK if the error is the visitor's */
};

/* A lane's position in the cold store or in an epoch. */
struct lane {
    struct walk *walk;
    size_t thread;
    uint64_t images;
    uint64_t bytes, reported; /* bytes of this range; how many of them were reported */
};

/* ---- ends and progress ---- */

static void record_error(struct walk *walk, enum fr_status status, const struct fr_err *err)
{
    pthread_mutex_lock(&walk->mutex);
    if (walk->status == FR_OK) {
        walk->status = status;
        if (err)
            walk->err = *err;
    }
    pthread_mutex_unlock(&walk->mutex);
    atomic_store(&walk->ended, true);
}

static bool is_stopped(const struct walk *walk)
{
    return walk->visitor->stop && atomic_load(walk->visitor->stop);
}

static void report(struct walk *walk, uint64_t more)
{
    uint64_t done = atomic_fetch_add(&walk->done_bytes, more) + more;
    if (!walk->visitor->progress)
        return;
    pthread_mutex_lock(&walk->mutex);
    if (done > walk->total_bytes) /* the size that RocksDB reports is approximate */
        done = walk->total_bytes;
    if (done >= walk->told_bytes) {
        walk->told_bytes = done;
        walk->visitor->progress(walk->visitor->self, done, walk->total_bytes);
    }
    pthread_mutex_unlock(&walk->mutex);
}

/* Called after every image. FR_E_CANCELLED: this lane must stop. */
static enum fr_status check_progress(struct lane *lane, uint64_t bytes)
{
    lane->bytes = bytes;
    if (++lane->images % LOOK_IMAGES != 0)
        return FR_OK;
    report(lane->walk, bytes - lane->reported);
    lane->reported = bytes;
    return is_stopped(lane->walk) || atomic_load(&lane->walk->ended) ? FR_E_CANCELLED : FR_OK;
}

static enum fr_status visit(struct lane *lane, const struct fr_image *image)
{
    const struct fr_restore_visitor *visitor = lane->walk->visitor;
    enum fr_status status = visitor->image(visitor->self, lane->thread, image);
    if (status != FR_OK)
        record_error(lane->walk, status, NULL);
    return status;
}

/* ---- cold store ---- */

static enum fr_status visit_cold(void *self, const struct fr_image *image, uint64_t done_bytes)
{
    struct lane *lane = self;
    enum fr_status status = visit(lane, image);
    return status == FR_OK ? check_progress(lane, done_bytes) : status;
}

static enum fr_status walk_range(struct walk *walk, struct lane *lane, const struct fr_cold_range *range)
{
    struct fr_err err = {.status = FR_OK};
    lane->bytes = lane->reported = 0;
    enum fr_status status = fr_cold_walk(walk->durable->cold, range, visit_cold, lane, &err);
    report(walk, lane->bytes - lane->reported);
    if (status != FR_OK && err.status != FR_OK)
        /* otherwise it is the end, or the visitor's error, which is recorded already */
        record_error(walk, status, &err);
    return status;
}

static void walk_cold_lane(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct walk *walk = context;
    struct lane lane = {.walk = walk, .thread = index};
    enum fr_status status = FR_OK;
    if (walk->threads == 1) {
        (void)walk_range(walk, &lane, NULL);
        return;
    }
    for (size_t t = 0; t < walk->n_tables && status == FR_OK; t++)
        for (uint64_t shard = index; shard < SHARDS && status == FR_OK; shard += walk->threads) {
            uint64_t first = shard << (64 - SHARD_BITS);
            struct fr_cold_range range = {walk->tables[t], first, first | UINT64_MAX >> SHARD_BITS, NULL};
            status = walk_range(walk, &lane, &range);
        }
}

static enum fr_status find_tables(struct walk *walk)
{
    struct fr_err err = {.status = FR_OK};
    uint32_t table = 0;
    enum fr_status status = FR_OK;
    while (status == FR_OK) {
        status = fr_cold_next_table(walk->durable->cold, table, NULL, &table, &err);
        if (status != FR_OK)
            break;
        walk->tables = fr_realloc(walk->tables, walk->n_tables + 1, sizeof(*walk->tables));
        walk->tables[walk->n_tables++] = table++;
    }
    if (status != FR_EOF)
        record_error(walk, status, &err);
    return status == FR_EOF ? FR_OK : status;
}

static void walk_cold(struct walk *walk)
{
    const struct fr_restore_visitor *visitor = walk->visitor;
    if (!walk->durable->cold || !visitor->image || (visitor->wants_cold && !visitor->wants_cold(visitor->self)))
        return;
    if (find_tables(walk) == FR_OK)
        fr_pool_run(walk->pool, walk->threads, walk_cold_lane, walk);
}

/* ---- sections ---- */

static enum fr_status keep_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct walk *walk = self;
    struct fr_buffer *out = fr_section_set_put(&walk->sections, name, walk->section_epoch);
    if (out)
        fr_buffer_append(out, bytes, size);
    return FR_OK;
}

/* Reads an epoch's head and sections and makes an epoch without images of them. */
static enum fr_status load_sections(struct walk *walk, uint64_t number, struct fr_buffer *bytes, struct fr_err *err)
{
    struct fr_durable *durable = walk->durable;
    struct fr_journal_epoch entry;
    struct fr_epoch_head head;
    struct fr_journal_file *file = fr_durable_acquire(durable, number, &entry);
    if (!file)
        return fr_err_set(err, FR_E_NOT_FOUND, "epoch %" PRIu64 " is not in the journal of %s", number, durable->dir);
    fr_buffer_clear(bytes);
    uint8_t *at = fr_buffer_reserve(bytes, EPOCH_HEAD);
    enum fr_status status = fr_journal_pread(&durable->journal, file, at, EPOCH_HEAD, entry.offset, err);
    if (status == FR_OK && fr_epoch_head_check(at, entry.size, &head) != FR_OK)
        status = fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " in the journal of %s changed since it was checked",
                            number, durable->dir);
    if (status == FR_OK) {
        uint64_t images = head.images_size;
        head.n_images = head.images_size = 0;
        bytes->size = EPOCH_HEAD;
        at = fr_buffer_reserve(bytes, (size_t)head.sections_size);
        memcpy(bytes->data, &head, EPOCH_HEAD);
        status = fr_journal_pread(&durable->journal, file, at, (size_t)head.sections_size,
                                  entry.offset + EPOCH_HEAD + images, err);
        bytes->size += (size_t)head.sections_size;
    }
    fr_durable_release(durable, file);
    return status;
}

static enum fr_status keep_sections(struct walk *walk, uint64_t number, struct fr_buffer *bytes, struct fr_err *err)
{
    struct fr_epoch epoch;
    enum fr_status status = load_sections(walk, number, bytes, err);
    if (status != FR_OK)
        return status;
    if (fr_epoch_view(bytes->data, bytes->size, &epoch) != FR_OK || epoch.epoch != number)
        return fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " in the journal of %s changed since it was checked",
                          number, walk->durable->dir);
    const uint8_t *at = NULL, *section;
    char name[FR_SECTION_NAME_MAX];
    size_t size;
    walk->section_epoch = number;
    while (fr_epoch_next_section(&epoch, &at, name, &section, &size) == FR_OK)
        (void)keep_section(walk, name, section, size);
    return FR_OK;
}

static enum fr_status visit_first(const struct walk *walk)
{
    const struct fr_restore_visitor *visitor = walk->visitor;
    for (size_t i = 0; i < walk->sections.n; i++) {
        const struct section_value *value = &walk->sections.values[i];
        if (strcmp(value->name, visitor->first) == 0)
            return visitor->section(visitor->self, value->name, value->bytes.data, value->bytes.size);
    }
    return visitor->section(visitor->self, visitor->first, NULL, 0);
}

static void visit_sections(struct walk *walk)
{
    struct fr_err err = {.status = FR_OK};
    struct fr_buffer bytes = {0};
    enum fr_status status = FR_OK;
    walk->section_epoch = walk->folded;
    if (walk->durable->cold)
        status = fr_cold_walk_sections(walk->durable->cold, NULL, keep_section, walk, &err);
    for (uint64_t e = walk->folded + 1; e <= walk->newest && status == FR_OK && !is_stopped(walk); e++)
        status = keep_sections(walk, e, &bytes, &err);
    fr_buffer_release(&bytes);
    if (walk->visitor->first && status == FR_OK && !is_stopped(walk))
        status = visit_first(walk);
    for (size_t i = 0; i < walk->sections.n && status == FR_OK && !is_stopped(walk); i++) {
        const struct section_value *value = &walk->sections.values[i];
        if (walk->visitor->first && strcmp(value->name, walk->visitor->first) == 0)
            continue;
        status = walk->visitor->section(walk->visitor->self, value->name, value->bytes.data, value->bytes.size);
    }
    if (status != FR_OK)
        record_error(walk, status, err.status != FR_OK ? &err : NULL);
}

/* ---- epochs ---- */

static void load_epoch(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct walk *walk = context;
    struct loaded *loaded = &walk->loaded[index];
    struct fr_err err = {.status = FR_OK};
    if (is_stopped(walk) || atomic_load(&walk->ended))
        return;
    fr_buffer_clear(&loaded->bytes);
    enum fr_status status = fr_durable_read_epoch(walk->durable, loaded->number, &loaded->bytes, NULL, &err);
    if (status == FR_OK && (fr_epoch_view(loaded->bytes.data, loaded->bytes.size, &loaded->epoch) != FR_OK ||
                            loaded->epoch.epoch != loaded->number))
        status = fr_err_set(&err, FR_E_CORRUPT, "epoch %" PRIu64 " in the journal of %s changed since it was checked",
                            loaded->number, walk->durable->dir);
    if (status != FR_OK)
        record_error(walk, status, &err);
}

static void walk_epochs_lane(void *context, size_t index, size_t worker)
{
    (void)worker;
    struct walk *walk = context;
    struct lane lane = {.walk = walk, .thread = index};
    struct fr_image image;
    for (size_t i = 0; i < walk->n_loaded; i++) {
        const uint8_t *at = NULL;
        while (fr_epoch_next(&walk->loaded[i].epoch, &at, &image) == FR_OK) {
            image.epoch = walk->loaded[i].epoch.epoch;
            uint64_t shard = fr_order_hash(&walk->durable->order, image.key) >> (64 - SHARD_BITS);
            if (shard % walk->threads == index && visit(&lane, &image) != FR_OK)
                return;
            if (check_progress(&lane, 0) != FR_OK)
                return;
        }
    }
}

/* Chooses the next epochs that fit. Returns their bytes. */
static uint64_t choose_epochs(struct walk *walk, uint64_t first)
{
    uint64_t bytes = 0;
    walk->n_loaded = 0;
    for (uint64_t e = first; e <= walk->newest && walk->n_loaded < EPOCHS_MAX; e++) {
        struct fr_journal_epoch entry = {0};
        struct fr_journal_file *file = fr_durable_acquire(walk->durable, e, &entry);
        if (file)
            fr_durable_release(walk->durable, file);
        if (walk->n_loaded > 0 && bytes + entry.size > EPOCHS_BYTES)
            break;
        bytes += entry.size;
        walk->loaded[walk->n_loaded++].number = e;
    }
    return bytes;
}

static void walk_epochs(struct walk *walk)
{
    walk->loaded = fr_alloc(EPOCHS_MAX, sizeof(*walk->loaded));
    for (uint64_t e = walk->folded + 1; e <= walk->newest && !atomic_load(&walk->ended) && !is_stopped(walk);
         e += walk->n_loaded) {
        uint64_t bytes = choose_epochs(walk, e);
        fr_pool_run(walk->pool, walk->n_loaded, load_epoch, walk);
        if (walk->visitor->image && !atomic_load(&walk->ended) && !is_stopped(walk))
            fr_pool_run(walk->pool, walk->threads, walk_epochs_lane, walk);
        report(walk, bytes);
    }
    for (size_t i = 0; i < EPOCHS_MAX; i++)
        fr_buffer_release(&walk->loaded[i].bytes);
    free(walk->loaded);
}

/* ---- the whole ---- */

static enum fr_status end_walk(struct walk *walk, struct fr_err *err)
{
    if (walk->status == FR_OK && is_stopped(walk))
        return fr_err_set(err, FR_E_CANCELLED, "restoring %s was ended: nothing is lost, start again",
                          walk->durable->dir);
    if (walk->status == FR_OK) {
        report(walk, walk->total_bytes);
        return FR_OK;
    }
    if (walk->err.status == FR_OK)
        return fr_err_set(err, walk->status, "restoring %s: the image or section was refused (%s)", walk->durable->dir,
                          fr_status_name(walk->status));
    if (err)
        *err = walk->err;
    return walk->status;
}

enum fr_status fr_durable_restore(struct fr_durable *durable, const struct fr_restore_visitor *visitor,
                                  struct fr_err *err)
{
    struct fr_durable_status now;
    enum fr_status status = fr_durable_check(durable, false, err);
    if (status != FR_OK)
        return status;
    fr_durable_get_status(durable, &now);
    struct walk walk = {.durable = durable,
                        .visitor = visitor,
                        .threads = visitor->threads < 1        ? 1
                                   : visitor->threads > SHARDS ? SHARDS
                                                               : visitor->threads,
                        .folded = now.folded,
                        .newest = now.epoch,
                        .total_bytes = (durable->cold ? fr_cold_bytes(durable->cold) : 0) + now.unfolded_bytes};
    FR_CHECK(pthread_mutex_init(&walk.mutex, NULL) == 0);
    walk.pool = fr_pool_new(walk.threads);
    if (visitor->section)
        visit_sections(&walk);
    if (!atomic_load(&walk.ended) && !is_stopped(&walk))
        walk_cold(&walk);
    if (!atomic_load(&walk.ended))
        walk_epochs(&walk);
    status = end_walk(&walk, err);
    fr_pool_free(walk.pool);
    fr_section_set_release(&walk.sections);
    free(walk.tables);
    pthread_mutex_destroy(&walk.mutex);
    return status;
}
