/* The model of test_model.c: how a store with a state directory must behave, written with an array
 * of keys and nothing clever. The model has no index, no tiers and no files.
 *
 * A table's keys come from a small universe and are numbered. For each key the model has the row or
 * the count, what followers and earlier epochs know of the key, and its newest image. Gates, expiry
 * and the order of slices are implemented here a second time. */
#ifndef FR_TESTS_STORE_MODEL_H
#define FR_TESTS_STORE_MODEL_H

#include "store/section.h"
#include "store_state.h"

enum { MODEL_TABLES = 3, MODEL_UNIVERSE = 1500, MODEL_PLACES = 4096, MODEL_DOMAINS = 3 };

enum model_state { MODEL_ABSENT, MODEL_PENDING, MODEL_LIVE };

struct model_key {
    uint8_t state;
    bool dirty;     /* changed in the open epoch */
    bool in_epoch;  /* the newest epoch with the key has a row or a count of it */
    bool published; /* followers have a row of it */
    uint8_t reason; /* why the published row went, in the open epoch */
    uint32_t count; /* pending */
    int64_t seen_ms;
    uint64_t show;
    double click;
    float row[TEST_ROW_FLOATS];
};

/* The newest image of a key in the epochs so far. */
struct model_image {
    uint8_t kind, reason;
    bool known; /* some epoch has an image of the key */
    uint32_t size;
    uint8_t bytes[FR_ROW_IMAGE_HEAD + TEST_ROW_FLOATS * sizeof(float)];
};

struct model {
    struct model_key keys[MODEL_TABLES][MODEL_UNIVERSE];
    struct model_image images[MODEL_TABLES][MODEL_UNIVERSE];
    struct fr_store_counts counts[MODEL_TABLES]; /* without rows and pending */
    uint32_t n_domains;
    struct model_domain {
        uint64_t pending[FR_SHARDS];
        uint64_t rows;
        uint32_t slice_bits;
        uint64_t slices; /* done in the current sweep */
    } of[MODEL_TABLES][MODEL_DOMAINS];
    uint64_t batch_number, epoch;
    int64_t watermark_ms;
};

/* What is the same in every run, and is kept when the model restarts. */
struct model_fixed {
    /* the first values of each row, as they were the first time: a function of seed, table and
     * key */
    float first[MODEL_TABLES][MODEL_UNIVERSE][TEST_ROW_FLOATS];
    bool first_known[MODEL_TABLES][MODEL_UNIVERSE];
    uint16_t places[MODEL_PLACES]; /* hash table: key -> number + 1 */
};

/* ---- keys ---- */

static inline uint64_t model_hash(uint64_t key)
{
    struct fr_order order = fr_order_of(STATE_SALT);
    return fr_order_hash(&order, key);
}

static inline uint32_t model_shard(uint32_t number)
{
    return (uint32_t)(model_hash(test_key(number)) >> 60);
}

static inline void model_fix(struct model_fixed *fixed)
{
    for (uint32_t i = 0; i < MODEL_UNIVERSE; i++) {
        uint64_t at = test_key(i) * 0x9e3779b97f4a7c15ULL >> 52;
        while (fixed->places[at])
            at = (at + 1) % MODEL_PLACES;
        fixed->places[at] = (uint16_t)(i + 1);
    }
}

static inline uint32_t model_number(const struct model_fixed *fixed, uint64_t key)
{
    uint64_t at = key * 0x9e3779b97f4a7c15ULL >> 52;
    while (fixed->places[at] && test_key(fixed->places[at] - 1u) != key)
        at = (at + 1) % MODEL_PLACES;
    if (!fixed->places[at])
        fail_msg("a key that no batch had");
    return fixed->places[at] - 1u;
}

static inline uint64_t model_pending(const struct model_domain *of)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < FR_SHARDS; s++)
        sum += of->pending[s];
    return sum;
}

/* ---- domains: the keys of a third, by the top 32 bits ---- */

static inline uint32_t model_domain_of(const struct model *m, uint32_t number)
{
    return (uint32_t)((test_key(number) >> 32) * m->n_domains >> 32);
}

static inline uint64_t model_share(const struct model *m, uint64_t limit, uint32_t domain)
{
    return limit / m->n_domains + (domain < limit % m->n_domains);
}

static inline struct fr_store_counts model_counts(const struct model *m, uint32_t t)
{
    struct fr_store_counts counts = m->counts[t];
    counts.rows = counts.pending = 0;
    for (uint32_t d = 0; d < m->n_domains; d++) {
        counts.rows += m->of[t][d].rows;
        counts.pending += model_pending(&m->of[t][d]);
    }
    return counts;
}

/* ---- rules ---- */

static inline bool model_admits(const struct world *w, uint32_t t, uint32_t count)
{
    return count >= w->gates[t].count;
}

static inline bool model_forgets(const struct world *w, uint32_t t, const struct model_key *key, int64_t watermark_ms)
{
    return w->gates[t].idle_ms > 0 && watermark_ms - key->seen_ms > w->gates[t].idle_ms;
}

/* Returns the reason for which the row expires, or FR_ABSENT_SILENT if it stays. */
static inline uint8_t model_expires(const struct world *w, uint32_t t, const struct model_key *key,
                                    int64_t watermark_ms)
{
    bool idle = w->idles[t].idle_ms > 0 && watermark_ms - key->seen_ms > w->idles[t].idle_ms;
    return idle ? FR_ABSENT_IDLE : FR_ABSENT_SILENT;
}

/* Returns whether the shard has room for another pending key: each domain has an equal share of
 * pending_max, and each shard has one of that. */
static inline bool model_remembers(const struct model *m, const struct world *w, uint32_t t, uint32_t number)
{
    uint32_t domain = model_domain_of(m, number), shard = model_shard(number);
    uint64_t most = model_share(m, w->tables[t].pending_max, domain);
    return m->of[t][domain].pending[shard] < most / FR_SHARDS + (shard < most % FR_SHARDS);
}

static inline bool model_in_slice(uint32_t number, uint32_t bits, uint64_t slice)
{
    return bits == 0 || model_hash(test_key(number)) << 4 >> (64 - bits) == slice;
}

/* ---- plan and step ---- */

struct model_sum {
    uint32_t stamp; /* of the batch that the sums are of */
    uint32_t counted, touched, occurrences;
    bool trained;
    double clicks;
};

struct model_batch { /* the distinct keys of each table, in order of first occurrence */
    uint32_t stamp;
    uint32_t n_keys[MODEL_TABLES], numbers[MODEL_TABLES][MODEL_UNIVERSE];
    struct model_sum sums[MODEL_TABLES][MODEL_UNIVERSE];
    bool made[MODEL_TABLES][MODEL_UNIVERSE]; /* by the last plan */
};

static inline void model_add(struct model_batch *mb, const struct world *w, const struct test_batch *b, uint32_t s,
                             uint32_t sample, uint32_t number)
{
    uint32_t t = (uint32_t)w->slots[s].table;
    struct model_sum *sum = &mb->sums[t][number];
    if (sum->stamp != mb->stamp) {
        *sum = (struct model_sum){.stamp = mb->stamp};
        mb->numbers[t][mb->n_keys[t]++] = number;
    }
    sum->occurrences++;
    if (b->role[sample] != FR_ROLE_TRAIN)
        return;
    sum->trained = true;
    sum->counted += w->slots[s].admit;
    sum->touched += w->slots[s].touch;
    if (w->slots[s].touch && b->labels[sample] > 0)
        sum->clicks += (double)b->labels[sample];
}

static inline void model_read(const struct model_fixed *fixed, struct model_batch *mb, const struct world *w,
                              const struct test_batch *b)
{
    mb->stamp++;
    memset(mb->n_keys, 0, sizeof(mb->n_keys));
    for (uint32_t s = 0; s < w->conf.n_slots; s++)
        for (uint32_t i = 0; w->slots[s].table >= 0 && i < b->batch.n_samples; i++)
            for (uint32_t o = b->begin[s][i]; o < b->begin[s][i + 1]; o++)
                model_add(mb, w, b, s, i, model_number(fixed, b->keys[s][o]));
}

/* Makes the key live. If the row's first values are not known yet, the caller fills them in. */
static inline void model_admit(struct model *m, const struct model_fixed *fixed, uint32_t t, uint32_t number)
{
    struct model_key *key = &m->keys[t][number];
    struct model_domain *of = &m->of[t][model_domain_of(m, number)];
    if (key->state == MODEL_PENDING)
        of->pending[model_shard(number)]--;
    key->state = MODEL_LIVE;
    key->dirty = true;
    key->count = 0;
    key->show = 0;
    key->click = 0;
    key->seen_ms = m->watermark_ms;
    memcpy(key->row, fixed->first[t][number], sizeof(key->row));
    of->rows++;
    m->counts[t].admitted++;
}

static inline void model_count(struct model *m, const struct model_fixed *fixed, const struct world *w, uint32_t t,
                               uint32_t number, uint32_t counted)
{
    struct model_key *key = &m->keys[t][number];
    uint32_t count = (key->state == MODEL_PENDING ? key->count : 0) + counted;
    if (model_admits(w, t, count)) {
        model_admit(m, fixed, t, number);
        return;
    }
    m->counts[t].rejected += counted;
    if (key->state == MODEL_ABSENT && !model_remembers(m, w, t, number)) {
        m->counts[t].unremembered++;
        return;
    }
    if (key->state == MODEL_ABSENT)
        m->of[t][model_domain_of(m, number)].pending[model_shard(number)]++;
    key->state = MODEL_PENDING;
    key->count = count;
    key->seen_ms = m->watermark_ms;
    key->dirty = true;
}

static inline void model_plan(struct model *m, const struct model_fixed *fixed, struct model_batch *mb,
                              const struct world *w)
{
    for (uint32_t t = 0; t < w->n_tables; t++) {
        for (uint32_t i = 0; i < mb->n_keys[t]; i++) {
            uint32_t number = mb->numbers[t][i];
            const struct model_sum *sum = &mb->sums[t][number];
            struct model_key *key = &m->keys[t][number];
            bool live = key->state == MODEL_LIVE;
            if (!live && sum->counted > 0)
                model_count(m, fixed, w, t, number, sum->counted);
            mb->made[t][number] = !live && key->state == MODEL_LIVE;
            if (key->state != MODEL_LIVE)
                continue;
            key->dirty = key->dirty || sum->trained;
            if (sum->touched > 0) {
                key->seen_ms = m->watermark_ms;
                key->show += sum->touched;
                key->click += sum->clicks;
            }
        }
    }
}

/* Changes the rows as step_rows does: by a sum that depends on the order of occurrences. */
static inline void model_step(struct model *m, const struct model_fixed *fixed, const struct world *w,
                              const struct test_batch *b)
{
    uint32_t base[MODEL_TABLES] = {0};
    for (uint32_t s = 0; s < w->conf.n_slots; s++) {
        if (w->slots[s].table < 0)
            continue;
        uint32_t t = (uint32_t)w->slots[s].table;
        for (uint32_t i = 0; i < b->batch.n_samples; i++) {
            for (uint32_t o = b->begin[s][i]; b->role[i] == FR_ROLE_TRAIN && o < b->begin[s][i + 1]; o++) {
                struct model_key *key = &m->keys[t][model_number(fixed, b->keys[s][o])];
                for (uint32_t j = 0; key->state == MODEL_LIVE && j < TEST_ROW_FLOATS; j++)
                    key->row[j] = key->row[j] * 0.9f + (float)(base[t] + o + j) * 0.01f;
            }
        }
        base[t] += b->begin[s][b->batch.n_samples];
    }
}

/* ---- slices ---- */

static inline void model_remove(struct model *m, uint32_t t, uint32_t number, uint8_t reason)
{
    struct model_key *key = &m->keys[t][number];
    struct model_domain *of = &m->of[t][model_domain_of(m, number)];
    if (key->state == MODEL_LIVE) {
        of->rows--;
        m->counts[t].expired[reason]++;
    } else {
        of->pending[model_shard(number)]--;
        m->counts[t].forgotten++;
    }
    if (!key->in_epoch) {
        *key = (struct model_key){0};
        return;
    }
    uint8_t why = key->published && reason != FR_ABSENT_SILENT ? reason : key->reason;
    *key = (struct model_key){.dirty = true, .in_epoch = true, .published = key->published, .reason = why};
}

/* A sweep keeps its division; a new one takes the division that fits. */
static inline uint64_t model_next_slice(struct model_domain *of, uint64_t entries, uint64_t most)
{
    uint32_t bits = of->slice_bits;
    while (entries >> bits > most)
        bits++;
    while (bits > 0 && entries >> (bits - 1) <= most / 2)
        bits--;
    if (of->slices == 0)
        of->slice_bits = bits;
    uint64_t slice = of->slices;
    of->slices = (slice + 1) % ((uint64_t)1 << of->slice_bits);
    return slice;
}

static inline void model_slice_table(struct model *m, const struct world *w, uint32_t t, uint32_t domain)
{
    const struct fr_store_table *spec = &w->tables[t];
    struct model_domain *of = &m->of[t][domain];
    uint64_t pending = model_pending(of), most = model_share(m, spec->expire_slice_rows, domain);
    if (pending == 0 && (of->rows == 0 || spec->n_expiries == 0))
        return;
    uint64_t slice =
        model_next_slice(of, of->rows + pending, most > spec->expire_every ? most / spec->expire_every : 1);
    for (uint32_t i = 0; i < MODEL_UNIVERSE; i++) {
        const struct model_key *key = &m->keys[t][i];
        if (key->state == MODEL_ABSENT || model_domain_of(m, i) != domain || !model_in_slice(i, of->slice_bits, slice))
            continue;
        if (key->state == MODEL_PENDING && model_forgets(w, t, key, m->watermark_ms))
            model_remove(m, t, i, FR_ABSENT_SILENT);
        else if (key->state == MODEL_LIVE && model_expires(w, t, key, m->watermark_ms) != FR_ABSENT_SILENT)
            model_remove(m, t, i, model_expires(w, t, key, m->watermark_ms));
    }
}

static inline void model_slice(struct model *m, const struct world *w)
{
    m->batch_number++;
    for (uint32_t t = 0; t < w->n_tables; t++)
        for (uint32_t d = 0; d < m->n_domains; d++) {
            uint32_t turns = w->tables[t].expire_every; /* batches from one slice to the next */
            for (uint32_t i = 0; i < m->of[t][d].slice_bits && turns > 1; i++)
                turns /= 2;
            if (m->batch_number % turns == 0)
                model_slice_table(m, w, t, d);
        }
}

/* ---- epochs ---- */

/* Returns whether the open epoch has an image of the key, which is then the newest. *carried: the
 * key's count is carried in the section. */
static inline bool model_cut_key(struct model *m, uint32_t t, uint32_t number, bool *carried)
{
    struct model_key *key = &m->keys[t][number];
    struct model_image *image = &m->images[t][number];
    if (!key->dirty)
        return false;
    uint8_t reason = key->published ? key->reason : FR_ABSENT_SILENT;
    *carried = key->state == MODEL_PENDING && reason != FR_ABSENT_SILENT;
    *image = (struct model_image){.known = true, .kind = FR_IMAGE_ABSENT, .reason = reason};
    if (key->state == MODEL_LIVE) {
        struct fr_row_head head = {.seen_ms = key->seen_ms, .show = key->show, .click = key->click};
        *image = (struct model_image){.known = true, .kind = FR_IMAGE_ROW, .size = sizeof(image->bytes)};
        memcpy(image->bytes, &head, sizeof(head));
        memcpy(image->bytes + sizeof(head), key->row, sizeof(key->row));
    } else if (key->state == MODEL_PENDING && !*carried) {
        *image = (struct model_image){.known = true, .kind = FR_IMAGE_PENDING, .size = FR_PENDING_IMAGE_SIZE};
        fr_pending_store(image->bytes, key->seen_ms, key->count);
    }
    if (key->state == MODEL_ABSENT) {
        *key = (struct model_key){0};
        return true;
    }
    key->dirty = *carried;
    key->in_epoch = true;
    key->published = key->state == MODEL_LIVE;
    key->reason = FR_ABSENT_SILENT;
    return true;
}

static inline void model_image_is(const struct model_image *want, const struct fr_image *image)
{
    assert_true(want->known);
    assert_int_equal(image->kind, want->kind);
    assert_int_equal(image->size, want->size);
    if (want->size > 0)
        assert_memory_equal(image->bytes, want->bytes, want->size);
}

#endif
