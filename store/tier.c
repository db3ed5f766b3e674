/* The tier below memory: keys without an entry, whose newest image is in the cold store.
 *
 * The rule (docs/architecture.md, "The store"): the newest image of a key leaves memory only when
 * the epoch of its last change is folded. So the newest image of a key without an entry is in the
 * cold store, or there is none. Reading an image back therefore needs no synchronisation with
 * folds: it gives the same result at any time between the key's eviction and its next change.
 * Whether a key is in memory never changes a number.
 *
 * Eviction: a hand goes round the dense arrays (CLOCK: Corbato 1968; with a small count instead of
 * one bit, so that frequent keys survive more than one round: GCLOCK, Smith 1978). A batch that
 * trains a row raises the row's count, the hand lowers it, and at zero a clean entry is evicted.
 * Pending keys have no count. The use for which a row is read back does not raise the count,
 * because most such rows are not used again soon (simulated with Zipf 1.05 and a tenth of the rows
 * in memory: 4 % fewer reads, and half the distance that the hand moves). Each shard evicts its
 * share of the bytes. The hand skips entries that are dirty, dead or not folded, and the range of
 * hashes that the next slice has read ahead (scan.h).
 *
 * A shard with no key in the cold store only (`evicted` is 0) never asks the cold store, so a state
 * that fits in memory has no cost from this tier.
 *
 * Thread: fr_tier_fetch by the thread that looks ahead or by the shard's worker; the rest by the
 * shard's worker. */
#include "scan.h"
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    FETCHED_MIN = 64,
    LOOK_AHEAD = 8, /* keys between prefetch and use, for group and entry */
    /* of the hand, at most: after that only unfolded entries are left */
    ROUNDS = FR_RECENT_MAX + 1,
    SLACK_SHARE = 64, /* 1/64 of the limit is freed in addition to what must be */
};

/* ---- reading back ---- */

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

struct fetching {
    const struct fr_table *table;
    struct plan_fetched *fetched;
};

bool fr_tier_fits(const struct fr_table *table, const struct fr_image *image)
{
    return image->kind == FR_IMAGE_ROW ? image->size == table->image_size
                                       : image->kind == FR_IMAGE_PENDING && image->size == FR_PENDING_IMAGE_SIZE;
}

static enum fr_status take_image(void *self, size_t index, uint64_t hash, const struct fr_image *image)
{
    (void)index;
    const struct fetching *fetching = self;
    struct plan_fetched *fetched = fetching->fetched;
    if (!image)
        return FR_OK;
    if (!fr_tier_fits(fetching->table, image))
        return FR_E_CORRUPT;
    if (fetched->n == fetched->capacity) {
        fetched->capacity = fetched->capacity ? 2 * fetched->capacity : FETCHED_MIN;
        fetched->images = fr_realloc(fetched->images, fetched->capacity, sizeof(*fetched->images));
    }
    fetched->images[fetched->n++] = (struct plan_image){.hash = hash, .at = fetched->bytes.size, .kind = image->kind};
    fr_buffer_append(&fetched->bytes, image->bytes, image->size);
    return FR_OK;
}

/* Asks the cold store for the keys listed as missing. */
static void fetch_missing(struct fr_plan *plan, const struct fr_table *table, struct plan_fetched *fetched, size_t n)
{
    struct fr_err err = {.status = FR_OK};
    struct fetching fetching = {.table = table, .fetched = fetched};
    struct fr_durable_reader reader = {&fetching, take_image};
    qsort(fetched->missing, n, sizeof(*fetched->missing), compare_hashes);
    if (fr_durable_fetch(plan->store->durable, table->number, fetched->missing, n, &reader, &err) != FR_OK)
        fr_tier_fail(plan->store, &err);
}

/* Lists the keys that have no entry and were not asked for yet. */
static size_t list_missing(struct fr_plan *plan, uint32_t t, uint32_t p, bool ahead)
{
    struct plan_place *place = &plan->tables[t].places[p];
    struct plan_fetched *fetched = &place->fetched;
    struct plan_key *keys = plan->tables[t].keys + place->begin;
    const struct fr_shard *shard = fr_plan_shard(plan, t, p);
    uint32_t n_keys = place->n_unique;
    size_t n = 0;
    if (n_keys > fetched->capacity_missing) {
        fetched->capacity_missing = n_keys + n_keys / 2;
        free(fetched->missing);
        fetched->missing = fr_alloc(fetched->capacity_missing, sizeof(*fetched->missing));
    }
    for (uint32_t u = 0; u < n_keys; u++) {
        if (n_keys - u > 2 * LOOK_AHEAD)
            fr_index_prefetch(&shard->index, keys[u + 2 * LOOK_AHEAD].hash);
        if (n_keys - u > LOOK_AHEAD)
            fr_index_prefetch_entry(&shard->index, &shard->entries, keys[u + LOOK_AHEAD].hash);
        if (keys[u].asked || fr_shard_find(shard, keys[u].hash) != FR_NO_ENTRY)
            continue;
        keys[u].asked = ahead;
        fetched->missing[n++] = keys[u].hash;
    }
    return n;
}

void fr_tier_fetch(struct fr_plan *plan, uint32_t t, uint32_t p)
{
    struct plan_fetched *fetched = &plan->tables[t].places[p].fetched;
    fetched->n = 0;
    fr_buffer_clear(&fetched->bytes);
    if (fr_plan_shard(plan, t, p)->evicted == 0)
        return;
    size_t n = list_missing(plan, t, p, true);
    if (n > 0)
        fetch_missing(plan, fr_plan_subtable(plan, t, p), fetched, n);
}

void fr_tier_enter(const struct fr_table *table, struct fr_shard *shard, uint64_t hash, uint8_t kind,
                   const uint8_t *bytes)
{
    struct fr_store_counts counts = shard->counts;
    if (kind == FR_IMAGE_ROW) {
        uint32_t number = fr_entry_make_live(shard, hash, FR_NO_ENTRY);
        struct fr_live_entry *live = fr_entries_live(&shard->entries, number);
        live->entry.recent = FR_RECENT_BACK;
        live->entry.flags = FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED;
        memcpy(fr_entries_image(&shard->entries, number), bytes, table->image_size);
    } else {
        uint32_t number = fr_entry_make_pending(shard, hash, FR_NO_ENTRY);
        struct fr_light_entry *light = fr_entries_light(&shard->entries, number);
        light->entry.flags = FR_ENTRY_IN_EPOCH;
        fr_pending_load(bytes, &light->seen_ms, &light->count);
    }
    shard->counts = counts; /* counts do not depend on where a key is */
    shard->evicted--;
}

/* Checks that the state counts a key in the cold store only. The state comes from disk, so this is
 * never asserted. */
static bool is_counted(struct fr_store *store, const struct fr_shard *shard)
{
    struct fr_err err = {.status = FR_OK};
    if (shard->evicted > 0)
        return true;
    (void)fr_err_set(&err, FR_E_CORRUPT, "the cold store holds more keys than the state counts");
    fr_tier_fail(store, &err);
    return false;
}

void fr_tier_remove(struct fr_store *store, struct fr_shard *shard, const struct fr_tier_victim *victim)
{
    if (!is_counted(store, shard))
        return;
    struct fr_store_counts counts = shard->counts;
    uint32_t number = fr_entry_make_pending(shard, victim->hash, FR_NO_ENTRY);
    shard->counts = counts;
    struct fr_entry *entry = fr_shard_entry(shard, number);
    entry->flags = victim->kind == FR_IMAGE_ROW ? FR_ENTRY_IN_EPOCH | FR_ENTRY_PUBLISHED : FR_ENTRY_IN_EPOCH;
    /* fr_entry_remove will subtract a pending key */
    if (victim->kind == FR_IMAGE_ROW) {
        shard->counts.rows--;
        shard->counts.pending++;
    }
    fr_entry_remove(shard, number, victim->reason);
    shard->evicted--;
}

static void enter_fetched(struct fr_plan *plan, uint32_t t, uint32_t p)
{
    const struct fr_table *table = fr_plan_subtable(plan, t, p);
    struct fr_shard *shard = fr_plan_shard(plan, t, p);
    struct plan_fetched *fetched = &plan->tables[t].places[p].fetched;
    for (size_t i = 0; i < fetched->n; i++) {
        const struct plan_image *image = &fetched->images[i];
        /* the key may have expired since the look: then it has a dead entry */
        if (fr_shard_find(shard, image->hash) != FR_NO_ENTRY)
            continue;
        if (is_counted(plan->store, shard))
            fr_tier_enter(table, shard, image->hash, image->kind, fetched->bytes.data + image->at);
    }
    fetched->n = 0;
    fr_buffer_clear(&fetched->bytes);
}

void fr_tier_take(struct fr_plan *plan, uint32_t t, uint32_t p)
{
    enter_fetched(plan, t, p);
    if (fr_plan_shard(plan, t, p)->evicted == 0)
        return;
    size_t n = list_missing(plan, t, p, false);
    if (n == 0)
        return;
    fetch_missing(plan, fr_plan_subtable(plan, t, p), &plan->tables[t].places[p].fetched, n);
    enter_fetched(plan, t, p);
}

void fr_tier_fail(struct fr_store *store, const struct fr_err *err)
{
    pthread_mutex_lock(&store->lock);
    if (store->failure.status == FR_OK)
        store->failure = *err;
    pthread_mutex_unlock(&store->lock);
}

enum fr_status fr_store_failure(struct fr_store *store, struct fr_err *err)
{
    pthread_mutex_lock(&store->lock);
    enum fr_status status = store->failure.status;
    if (status != FR_OK && err)
        *err = store->failure;
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* ---- leaving ---- */

/* Bytes of the entries and rows of a shard, without the spare room of arrays. */
static uint64_t used_bytes(const struct fr_shard *shard)
{
    const struct fr_entries *entries = &shard->entries;
    return shard->index.bytes + (uint64_t)entries->live.n * entries->live.stride +
           (uint64_t)entries->light.n * entries->light.stride;
}

static bool may_leave(const struct fr_entry *entry, uint64_t folded)
{
    return entry->state != FR_ENTRY_DEAD && !(entry->flags & (FR_ENTRY_DIRTY | FR_ENTRY_BURIED)) &&
           entry->changed <= folded;
}

/* Moves the hand over one array, for one or more rounds, until `want` bytes are free. */
static void turn_hand(const struct fr_table *table, struct fr_shard *shard, uint32_t kind, uint64_t want,
                      uint64_t folded)
{
    const struct fr_entries *entries = &shard->entries;
    const struct fr_array *array = kind ? &entries->light : &entries->live;
    uint32_t *hand = kind ? &shard->light_hand : &shard->hand;
    uint64_t freed = 0;
    for (uint64_t looks = (uint64_t)array->n * ROUNDS; freed < want && looks > 0 && array->n > 0; looks--) {
        if (*hand >= array->n)
            *hand = 0;
        struct fr_entry *entry = fr_shard_entry(shard, *hand | kind);
        if (!may_leave(entry, folded) || fr_scan_covers(table, entry->hash)) {
            ++*hand;
        } else if (entry->recent > 0 && entry->recent != FR_RECENT_BACK) {
            entry->recent--;
            ++*hand;
        } else {
            struct fr_store_counts counts = shard->counts;
            fr_entry_drop(shard, *hand | kind); /* the array's last entry moves into its place */
            shard->counts = counts;
            shard->evicted++;
            shard->evictions++;
            freed += array->stride;
        }
    }
}

struct relief {
    struct fr_store *store;
    uint64_t used, excess, folded, forgettable;
};

static void relieve_shard(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct relief *relief = context;
    const struct fr_table *table = &relief->store->tables[index / FR_SHARDS];
    struct fr_shard *shard = &table->shards[index % FR_SHARDS];
    const struct fr_entries *entries = &shard->entries;
    fr_shard_exhume(table, shard, relief->forgettable, SIZE_MAX);
    uint64_t live = (uint64_t)entries->live.n * entries->live.stride;
    uint64_t light = (uint64_t)entries->light.n * entries->light.stride;
    double share = (double)relief->excess / (double)relief->used;
    /* The index gives no memory back for single entries, so more entries must go to make up for
     * it. */
    double whole = live + light > 0 ? (double)used_bytes(shard) / (double)(live + light) : 0;
    turn_hand(table, shard, 0, (uint64_t)(share * whole * (double)live), relief->folded);
    turn_hand(table, shard, FR_LIGHT, (uint64_t)(share * whole * (double)light), relief->folded);
    fr_shard_trim(shard);
}

static uint64_t store_used(const struct fr_store *store)
{
    uint64_t used = 0;
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            used += used_bytes(&store->tables[t].shards[s]);
    return used;
}

void fr_store_limit(struct fr_store *store, uint64_t bytes)
{
    store->limit = bytes;
}

uint64_t fr_store_forgettable(const struct fr_store *store)
{
    uint64_t folded = fr_store_folded(store);
    return store->looked && store->looked_folded < folded ? store->looked_folded : folded;
}

/* Drops the look if dead entries wait for it, because their memory is worth more than the look. */
static bool drop_look(struct fr_store *store)
{
    uint64_t folded = fr_store_folded(store);
    if (!store->looked || store->looked_folded >= folded)
        return false;
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++) {
            const struct fr_shard *shard = &store->tables[t].shards[s];
            if (shard->buried_begin < shard->buried_end && shard->buried[shard->buried_begin].epoch <= folded) {
                store->looked = NULL;
                return true;
            }
        }
    return false;
}

static uint64_t relieve(struct fr_store *store, uint64_t used)
{
    struct relief relief = {.store = store,
                            .used = used,
                            .excess = used - store->limit + store->limit / SLACK_SHARE,
                            .folded = fr_store_folded(store),
                            .forgettable = fr_store_forgettable(store)};
    fr_pool_run(store->pool, (size_t)store->n_tables * FR_SHARDS, relieve_shard, &relief);
    return store_used(store);
}

static bool is_over(const struct fr_store *store, uint64_t used)
{
    return store->limit > 0 && used > store->limit && store->durable;
}

bool fr_store_over_limit(const struct fr_store *store)
{
    return is_over(store, store_used(store));
}

uint64_t fr_store_relieve(struct fr_store *store)
{
    uint64_t used = store_used(store);
    if (!is_over(store, used))
        return 0;
    store->undoable = 0;
    used = relieve(store, used);
    if (used > store->limit && drop_look(store))
        used = relieve(store, used);
    return used > store->limit ? used - store->limit : 0;
}

bool fr_store_tiered(const struct fr_store *store)
{
    for (uint32_t t = 0; t < store->n_tables; t++)
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            if (store->tables[t].shards[s].evicted > 0)
                return true;
    return false;
}
