/* Views and the readers inside: see view.h. The argument is that of epoch-based reclamation: a
 * reader that announced n entered view n or a later one, and items retired with n or later are
 * kept.
 *
 * Records are applied in draft.c. */
#include "view.h"

#include <stdlib.h>

#include "base/check.h"
#include "replica_internal.h"

enum { AHEAD = 32 }; /* keys whose lines are prefetched before the first key is looked up */

void fr_views_init(struct fr_views *views, struct fr_replica_memory *memory)
{
    views->memory = memory;
    fr_retired_init(&views->retirement);
}

struct fr_served *fr_views_newest(const struct fr_views *views)
{
    return atomic_load_explicit(&views->newest, memory_order_relaxed);
}

struct fr_served *fr_served_new(struct fr_views *views, uint32_t n_tables, uint32_t n_parameters)
{
    struct fr_served *view = fr_replica_memory_try(
        views->memory, 16, sizeof(*view) + n_tables * sizeof(view->tables[0]) + n_parameters * sizeof(void *));
    if (!view)
        return NULL;
    view->n_tables = n_tables;
    view->n_parameters = n_parameters;
    view->tables = (struct fr_served_table *)(view + 1);
    view->parameters = (struct fr_served_dense **)(view->tables + n_tables);
    return view;
}

struct fr_served_dense *fr_served_dense_new(struct fr_views *views, uint64_t n)
{
    struct fr_served_dense *dense = fr_replica_memory_try(views->memory, 64, sizeof(*dense) + n * sizeof(float));
    if (!dense)
        return NULL;
    dense->serial = ++views->serial;
    dense->n = n;
    return dense;
}

/* ---- what the newest view no longer contains ---- */

static void release_rows(struct fr_retired *self)
{
    fr_row_table_free((struct fr_row_table *)self);
}

static const struct fr_served_table *table_of(const struct fr_served *view, const struct fr_row_table *rows)
{
    for (uint32_t t = 0; t < view->n_tables; t++)
        if (view->tables[t].rows == rows)
            return &view->tables[t];
    return NULL;
}

static bool has_overlay(const struct fr_served_table *table, const struct fr_overlay *overlay)
{
    for (uint32_t i = 0; table && i < table->n_overlays; i++)
        if (table->overlays[i] == overlay)
            return true;
    return false;
}

static bool has_dense(const struct fr_served *view, const struct fr_served_dense *dense, uint32_t at)
{
    return view->n_parameters > at && view->parameters[at] == dense;
}

/* Readers borrow a model beyond their visits, so a retired model waits in its own list. */
static void release_model(struct fr_retired *self)
{
    struct fr_served_model *model = (struct fr_served_model *)self;
    self->next = model->views->models;
    model->views->models = self;
}

static void retire_missing(struct fr_views *views, struct fr_served *old, const struct fr_served *view)
{
    struct fr_retirement *retirement = &views->retirement;
    for (uint32_t t = 0; t < old->n_tables; t++) {
        const struct fr_served_table *table = table_of(view, old->tables[t].rows);
        for (uint32_t i = 0; i < old->tables[t].n_overlays; i++)
            if (!has_overlay(table, old->tables[t].overlays[i]))
                fr_overlay_retire(old->tables[t].overlays[i], retirement);
        if (!table)
            fr_retired_add(retirement, &old->tables[t].rows->retired, release_rows);
    }
    for (uint32_t i = 0; i < old->n_parameters; i++)
        if (old->parameters[i] && !has_dense(view, old->parameters[i], i))
            fr_retired_add(retirement, &old->parameters[i]->retired, fr_retired_free);
    if (old->model != view->model)
        fr_retired_add(retirement, &old->model->retired, release_model);
    fr_retired_add(retirement, &old->retired, fr_retired_free);
}

void fr_served_publish(struct fr_views *views, struct fr_served *view)
{
    struct fr_served *old = fr_views_newest(views);
    view->number = views->retirement.number + 1;
    view->model->views = views;
    for (uint32_t t = 0; t < view->n_tables; t++) {
        view->tables[t].rows->retirement = &views->retirement;
        for (uint32_t i = 0; i < view->tables[t].n_overlays; i++)
            if (view->tables[t].overlays[i]->since == 0)
                view->tables[t].overlays[i]->since = view->number;
    }
    atomic_store(&views->newest, view);
    if (old)
        retire_missing(views, old, view);
    views->retirement.number = view->number;
    atomic_store(&views->number, view->number);
}

/* ---- settling ---- */

/* Returns the smallest number that a reader announces; the newest view's when no reader is
 * inside. */
static uint64_t oldest_inside(const struct fr_views *views)
{
    uint64_t oldest = views->retirement.number;
    uint32_t n = atomic_load(&views->n_readers);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t inside = atomic_load(&views->readers[i].inside);
        if (inside != 0 && inside < oldest)
            oldest = inside;
    }
    return oldest;
}

static bool is_borrowed(const struct fr_views *views, const struct fr_served_model *model)
{
    uint32_t n = atomic_load(&views->n_readers);
    for (uint32_t i = 0; i < n; i++)
        if (atomic_load(&views->readers[i].model) == model)
            return true;
    return false;
}

static void free_models(struct fr_views *views)
{
    struct fr_retired **at = &views->models;
    while (*at) {
        struct fr_served_model *model = (struct fr_served_model *)*at;
        if (is_borrowed(views, model)) {
            at = &(*at)->next;
            continue;
        }
        *at = (*at)->next;
        fr_served_model_free(model);
    }
}

static void release_old(struct fr_views *views, uint64_t oldest)
{
    fr_retired_release(&views->retirement, oldest);
    free_models(views);
}

/* Merges what can be merged, and returns how many overlays are merged completely. */
static uint32_t merge_tables(const struct fr_served *view, uint64_t oldest)
{
    uint32_t whole = 0;
    for (uint32_t t = 0; t < view->n_tables; t++)
        for (uint32_t i = 0; i < view->tables[t].n_overlays; i++) {
            struct fr_overlay *overlay = view->tables[t].overlays[i];
            if (overlay->since > oldest || !fr_overlay_merge(overlay))
                break;
            whole += 1;
        }
    return whole;
}

static void leave_merged(struct fr_served_table *table)
{
    uint32_t whole = 0;
    while (whole < table->n_overlays && table->overlays[whole]->merged == table->overlays[whole]->capacity)
        whole++;
    table->n_overlays -= whole;
    memmove(table->overlays, table->overlays + whole, table->n_overlays * sizeof(table->overlays[0]));
}

void fr_views_settle(struct fr_views *views)
{
    struct fr_served *newest = fr_views_newest(views);
    if (!newest)
        return;
    uint64_t oldest = oldest_inside(views);
    release_old(views, oldest);
    if (merge_tables(newest, oldest) == 0)
        return;
    struct fr_served *view = fr_served_new(views, newest->n_tables, newest->n_parameters);
    if (!view)
        return;
    view->info = newest->info;
    view->model = newest->model;
    memcpy(view->tables, newest->tables, view->n_tables * sizeof(view->tables[0]));
    memcpy(view->parameters, newest->parameters, view->n_parameters * sizeof(view->parameters[0]));
    for (uint32_t t = 0; t < view->n_tables; t++)
        leave_merged(&view->tables[t]);
    fr_served_publish(views, view);
    release_old(views, oldest_inside(views));
}

void fr_views_release(struct fr_views *views)
{
    struct fr_served *newest = fr_views_newest(views);
    release_old(views, UINT64_MAX);
    if (!newest)
        return;
    for (uint32_t t = 0; t < newest->n_tables; t++) {
        for (uint32_t i = 0; i < newest->tables[t].n_overlays; i++)
            free(newest->tables[t].overlays[i]);
        fr_row_table_free(newest->tables[t].rows);
    }
    for (uint32_t i = 0; i < newest->n_parameters; i++)
        free(newest->parameters[i]);
    fr_served_model_free(newest->model);
    free(newest);
    atomic_store_explicit(&views->newest, NULL, memory_order_relaxed);
}

/* ---- readers ---- */

struct fr_served_reader *fr_served_join(struct fr_views *views)
{
    for (uint32_t i = 0; i < FRESHET_READERS_MAX; i++) {
        int expected = 0;
        if (!atomic_compare_exchange_strong(&views->readers[i].taken, &expected, 1))
            continue;
        uint32_t n = atomic_load(&views->n_readers);
        while (n < i + 1 && !atomic_compare_exchange_weak(&views->n_readers, &n, i + 1)) {
        }
        return &views->readers[i];
    }
    return NULL;
}

void fr_served_quit(struct fr_served_reader *reader)
{
    atomic_store(&reader->inside, 0);
    atomic_store(&reader->model, NULL);
    atomic_store(&reader->taken, 0);
}

const struct fr_served *fr_served_enter(struct fr_views *views, struct fr_served_reader *reader)
{
    uint64_t number = atomic_load(&views->number);
    /* 0 would mean outside. The first view may not be visible yet; nothing was retired before
     * it. */
    atomic_store(&reader->inside, number ? number : 1);
    const struct fr_served *view = atomic_load(&views->newest);
    if (!view)
        fr_served_leave(reader);
    return view;
}

void fr_served_leave(struct fr_served_reader *reader)
{
    atomic_store_explicit(&reader->inside, 0, memory_order_release);
}

/* ---- rows ---- */

static float *find_row(const struct fr_served_table *table, uint64_t hash, uint64_t key)
{
    uint32_t slot = FR_NO_SLOT, i = table->n_overlays;
    while (i > 0 && !fr_overlay_find(table->overlays[i - 1], hash, key, &slot))
        i--;
    if (i == 0)
        slot = fr_row_find(table->rows, hash, key);
    return slot == FR_NO_SLOT ? NULL : fr_row_values(table->rows, slot);
}

float *fr_served_row(const struct fr_served_table *table, uint64_t key)
{
    return find_row(table, fr_row_hash(table->rows, key), key);
}

/* Prefetches the index lines first, then the slots; then both are in the cache. */
static void find_rows(const struct fr_served_table *table, const uint64_t *keys, size_t n, float **rows)
{
    uint64_t hashes[AHEAD];
    for (size_t i = 0; i < n; i++) {
        hashes[i] = fr_row_hash(table->rows, keys[i]);
        for (uint32_t o = 0; o < table->n_overlays; o++)
            fr_overlay_prefetch(table->overlays[o], hashes[i]);
        fr_row_prefetch(table->rows, hashes[i]);
    }
    for (size_t i = 0; i < n; i++)
        fr_row_prefetch_slot(table->rows, hashes[i]);
    for (size_t i = 0; i < n; i++)
        rows[i] = find_row(table, hashes[i], keys[i]);
}

void fr_served_rows(const struct fr_served_table *table, const uint64_t *keys, size_t n, float **rows)
{
    for (size_t i = 0; i < n; i += AHEAD)
        find_rows(table, keys + i, n - i < AHEAD ? n - i : AHEAD, rows + i);
}

/* ---- all keys ---- */

struct listing {
    const struct fr_served_table *table;
    uint64_t *keys;            /* either: receives the keys */
    struct fr_row_table *copy; /* or: receives the rows */
    bool refused;
    uint64_t n;
    uint32_t overlay; /* the overlay that the keys come from; n_overlays: the rows */
};

static bool copy_row(const struct listing *listing, uint64_t key)
{
    struct fr_row_table *copy = listing->copy;
    const float *from = fr_served_row(listing->table, key);
    uint32_t slot, old;
    if (!fr_row_take(copy, key, &slot))
        return false;
    memcpy(fr_row_values(copy, slot), from, copy->width * sizeof(*from));
    return fr_row_set(copy, key, slot, &old);
}

static void take_key(struct listing *listing, uint64_t key)
{
    FR_CHECK(listing->n < listing->table->n_rows);
    listing->n++;
    if (!listing->copy)
        listing->keys[listing->n - 1] = key;
    else if (!listing->refused)
        listing->refused = !copy_row(listing, key);
}

/* Lists a key of the rows unless an overlay contains it. */
static void list_row(void *self, uint64_t key)
{
    struct listing *listing = self;
    uint64_t hash = fr_row_hash(listing->table->rows, key);
    uint32_t slot;
    for (uint32_t i = 0; i < listing->table->n_overlays; i++)
        if (fr_overlay_find(listing->table->overlays[i], hash, key, &slot))
            return;
    take_key(listing, key);
}

static void list_overlay(struct listing *listing, uint32_t at)
{
    const struct fr_served_table *table = listing->table;
    const struct fr_overlay *overlay = table->overlays[at];
    for (uint32_t i = 0; i < overlay->capacity; i++) {
        uint32_t slot;
        bool newer = overlay->tags[i] == 0 || overlay->slots[i] == FR_NO_SLOT;
        for (uint32_t o = at + 1; o < table->n_overlays && !newer; o++)
            newer = fr_overlay_find(table->overlays[o], fr_row_hash(table->rows, overlay->keys[i]), overlay->keys[i],
                                    &slot);
        if (!newer)
            take_key(listing, overlay->keys[i]);
    }
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void list_all(struct listing *listing)
{
    fr_row_list(listing->table->rows, list_row, listing);
    for (uint32_t i = 0; i < listing->table->n_overlays; i++)
        list_overlay(listing, i);
    FR_CHECK(listing->n == listing->table->n_rows);
}

struct fr_row_table *fr_served_copy(const struct fr_served_table *table, struct fr_replica_memory *memory)
{
    struct listing listing = {.table = table, .copy = fr_row_table_new(table->rows->width, memory)};
    if (!listing.copy)
        return NULL;
    listing.refused = !fr_row_table_reserve(listing.copy, table->n_rows);
    list_all(&listing);
    if (!listing.refused)
        return listing.copy;
    fr_row_table_free(listing.copy);
    return NULL;
}

void fr_served_keys(const struct fr_served_table *table, uint64_t *keys)
{
    struct listing listing = {.table = table, .keys = keys};
    list_all(&listing);
    if (listing.n > 1)
        qsort(keys, listing.n, sizeof(*keys), ascending);
}
