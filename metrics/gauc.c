/* AUC within groups, bounded (see metrics/gauc.h for the contract).
 *
 * Groups are a bottom-k sample. h(key) = fmix64(key xor salt) is a bijection, so a group is known
 * by its hash alone and no two collide. `bound` is the smallest hash ever refused or pushed out; a
 * group at or above it does not come in. Over the lifetime the bound only falls, so every kept
 * group has all of its samples. Places are an array sorted by hash: a lookup is a binary search, an
 * insertion a memmove, and after n groups only about k / n of new ones are inserted.
 *
 * With decay, users come and go, and a sample of all that ever were soon holds few of those that
 * are there. So the sample is one of groups active of late, still by hash: whether a group is kept
 * depends on its hash and on when it was last seen, never on its scores, and groups of equal
 * activity are kept with equal chance whatever their size. Where the bound rises, groups refused
 * before come in with what follows; what they miss decays.
 *
 * Sampling groups in proportion to their decayed weight (priority sampling) was rejected: it needs
 * each group's chance in the average, and loses the history of every group near the threshold
 * whenever it pauses.
 *
 * Owner thread: the trainer's loop. Not here: one group's scores (spans.c), decay (decay.h). */
#include "metrics/gauc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "decay.h"
#include "spans.h"

enum { FR_GAUC_FORMAT = 2 };

struct group {
    int64_t last_ms; /* watermark of its last sample */
    struct fr_spans spans;
};

struct place {
    uint64_t hash;
    uint32_t group;
};

/* The groups of the lifetime or of one half-life. */
struct sampled {
    int64_t half_life_ms; /* 0: lifetime, where no time below is used */
    int64_t reference_ms; /* INT64_MIN: no sample yet (decay.h) */
    int64_t tended_ms;    /* when the half-life began in which tend() last ran */
    /* no kept group was last seen before this; INT64_MIN: not known. Not state, but derived */
    int64_t oldest_ms;
    uint64_t bound;
    uint32_t n_groups, groups_max;
    /* [groups_max]; n_groups in use, ascending by hash; the others hold the unused groups */
    struct place *places;
    struct group *groups; /* [groups_max] */
};

struct fr_gauc {
    struct fr_gauc_options options;
    int64_t as_of_ms; /* newest watermark; INT64_MIN: none */
    struct sampled decayed[FR_AUC_HALF_LIVES_MAX];
    struct sampled lifetime;
};

static void sampled_clear(struct sampled *s)
{
    s->reference_ms = s->tended_ms = s->oldest_ms = INT64_MIN;
    s->bound = UINT64_MAX;
    s->n_groups = 0;
    for (uint32_t i = 0; i < s->groups_max; i++)
        s->places[i].group = i;
}

static void sampled_init(struct sampled *s, uint32_t groups_max, int64_t half_life_ms)
{
    s->half_life_ms = half_life_ms;
    s->groups_max = groups_max;
    s->places = fr_alloc(groups_max, sizeof(*s->places));
    s->groups = fr_alloc(groups_max, sizeof(*s->groups));
    sampled_clear(s);
}

static void sampled_release(struct sampled *s)
{
    free(s->places);
    free(s->groups);
}

struct fr_gauc *fr_gauc_new(const struct fr_gauc_options *options)
{
    FR_CHECK(options->groups_max > 0);
    FR_CHECK(options->n_half_lives <= FR_AUC_HALF_LIVES_MAX);
    struct fr_gauc *gauc = fr_alloc(1, sizeof(*gauc));
    gauc->options = *options;
    gauc->as_of_ms = INT64_MIN;
    for (uint32_t h = 0; h < options->n_half_lives; h++) {
        FR_CHECK(options->half_life_ms[h] > 0);
        sampled_init(&gauc->decayed[h], options->groups_max, options->half_life_ms[h]);
    }
    sampled_init(&gauc->lifetime, options->groups_max, 0);
    return gauc;
}

void fr_gauc_free(struct fr_gauc *gauc)
{
    if (!gauc)
        return;
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        sampled_release(&gauc->decayed[h]);
    sampled_release(&gauc->lifetime);
    free(gauc);
}

/* ---- which groups are kept ---- */

static const struct group *group_at(const struct sampled *s, uint32_t place)
{
    return &s->groups[s->places[place].group];
}

/* Does not overflow, also for half-lives of years. */
static bool is_idle(const struct sampled *s, int64_t last_ms, int64_t as_of_ms, int half_lives)
{
    return (as_of_ms - last_ms) / s->half_life_ms >= half_lives;
}

/* Drops what `keep` refuses; the others stay in their order. */
static void drop_groups(struct sampled *s, int64_t as_of_ms,
                        bool (*keep)(const struct sampled *s, const struct group *group, int64_t as_of_ms))
{
    uint32_t kept = 0;
    s->oldest_ms = INT64_MAX;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const struct group *group = group_at(s, i);
        if (!keep(s, group, as_of_ms))
            continue;
        if (group->last_ms < s->oldest_ms)
            s->oldest_ms = group->last_ms;
        struct place place = s->places[i];
        s->places[i] = s->places[kept];
        s->places[kept++] = place;
    }
    s->n_groups = kept;
}

static bool is_active(const struct sampled *s, const struct group *group, int64_t as_of_ms)
{
    return !is_idle(s, group->last_ms, as_of_ms, FR_GAUC_IDLE);
}

static bool is_worth_keeping(const struct sampled *s, const struct group *group, int64_t as_of_ms)
{
    return !is_idle(s, group->last_ms, as_of_ms, FR_GAUC_FORGET);
}

/* Drops groups that have decayed, and doubles the bound if few groups are active, once in a
 * half-life of event time. */
static void tend(struct sampled *s, int64_t as_of_ms)
{
    if (s->tended_ms == INT64_MIN)
        s->tended_ms = as_of_ms;
    int64_t periods = (as_of_ms - s->tended_ms) / s->half_life_ms;
    if (periods <= 0)
        return;
    s->tended_ms += periods * s->half_life_ms;
    drop_groups(s, as_of_ms, is_worth_keeping);
    uint32_t active = 0;
    for (uint32_t i = 0; i < s->n_groups; i++)
        active += is_active(s, group_at(s, i), as_of_ms);
    if (active < s->groups_max - active)
        s->bound = s->bound > UINT64_MAX / 2 ? UINT64_MAX : s->bound * 2;
}

/* Finds the first place whose hash is not below this one. */
static uint32_t lower_bound(const struct sampled *s, uint64_t hash)
{
    uint32_t low = 0, high = s->n_groups;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->places[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* All places are taken: idle groups give way, else the one of largest hash, which may be the new
 * one. */
static void make_place(struct sampled *s, uint64_t hash, int64_t as_of_ms)
{
    if (s->half_life_ms > 0 && (s->oldest_ms == INT64_MIN || is_idle(s, s->oldest_ms, as_of_ms, FR_GAUC_IDLE)))
        drop_groups(s, as_of_ms, is_active);
    if (s->n_groups < s->groups_max)
        return;
    uint64_t largest = s->places[s->n_groups - 1].hash;
    s->bound = hash > largest ? hash : largest;
    if (hash < largest)
        s->n_groups--;
}

/* Returns the group of a hash, new or not, or NULL when it is outside the sample. */
static struct group *find_group(struct sampled *s, uint64_t hash, int64_t as_of_ms)
{
    if (hash >= s->bound)
        return NULL;
    uint32_t at = lower_bound(s, hash);
    if (at < s->n_groups && s->places[at].hash == hash)
        return &s->groups[s->places[at].group];
    if (s->n_groups == s->groups_max) {
        make_place(s, hash, as_of_ms);
        if (hash >= s->bound)
            return NULL;
        at = lower_bound(s, hash);
    }
    uint32_t unused = s->places[s->n_groups].group;
    memmove(&s->places[at + 1], &s->places[at], (s->n_groups - at) * sizeof(*s->places));
    s->places[at] = (struct place){hash, unused};
    s->n_groups++;
    fr_spans_clear(&s->groups[unused].spans);
    return &s->groups[unused];
}

/* ---- samples and results ---- */

void fr_gauc_advance(struct fr_gauc *gauc, int64_t watermark_ms)
{
    if (watermark_ms == INT64_MIN)
        return;
    gauc->as_of_ms = watermark_ms;
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++) {
        struct sampled *s = &gauc->decayed[h];
        tend(s, watermark_ms);
        int exponent = fr_decay_rebase(&s->reference_ms, s->half_life_ms, watermark_ms);
        for (uint32_t i = 0; exponent != 0 && i < s->n_groups; i++)
            fr_spans_scale(&s->groups[s->places[i].group].spans, exponent);
    }
}

static void add_to_group(struct group *group, const struct fr_gauc_sample *sample, double weight)
{
    fr_spans_add(&group->spans, sample->score, weight * (double)sample->label, weight * (1.0 - (double)sample->label));
}

static void add_decayed(struct sampled *s, uint64_t hash, const struct fr_gauc_sample *sample, int64_t as_of_ms)
{
    int64_t t_ms = sample->t_ms < as_of_ms ? sample->t_ms : as_of_ms;
    /* late samples: they weigh nothing */
    if (hash >= s->bound || is_idle(s, t_ms, as_of_ms, FR_GAUC_FORGET))
        return;
    struct group *group = find_group(s, hash, as_of_ms);
    if (!group)
        return;
    group->last_ms = as_of_ms;
    add_to_group(group, sample, sample->weight * fr_decay_factor(t_ms, s->reference_ms, s->half_life_ms));
}

void fr_gauc_add(struct fr_gauc *gauc, const struct fr_gauc_sample *sample)
{
    uint64_t hash = fr_fmix64(sample->key ^ gauc->options.salt);
    struct group *group = find_group(&gauc->lifetime, hash, 0);
    if (group)
        add_to_group(group, sample, sample->weight);
    for (uint32_t h = 0; gauc->as_of_ms != INT64_MIN && h < gauc->options.n_half_lives; h++)
        add_decayed(&gauc->decayed[h], hash, sample, gauc->as_of_ms);
}

void fr_gauc_result(const struct fr_gauc *gauc, int half_life, struct fr_gauc_result *out)
{
    FR_CHECK(half_life < (int)gauc->options.n_half_lives);
    const struct sampled *s = half_life < 0 ? &gauc->lifetime : &gauc->decayed[half_life];
    double sum = 0, weight = 0, error = 0;
    uint64_t groups = 0;
    for (uint32_t i = 0; i < s->n_groups; i++) {
        struct fr_spans_auc one;
        if (!fr_spans_auc(&group_at(s, i)->spans, &one))
            continue;
        sum += one.weight * one.auc;
        error += one.weight * one.error_max;
        weight += one.weight;
        groups++;
    }
    out->auc = groups ? sum / weight : (double)NAN;
    out->error_max = groups ? error / weight : 0;
    out->groups = groups;
    out->weight = weight;
    if (s->half_life_ms > 0 && s->reference_ms != INT64_MIN)
        out->weight *= fr_decay_since(gauc->as_of_ms, s->reference_ms, s->half_life_ms);
}

/* The image: u32 format, u64 salt, i64 as_of, u32 n, n i64 half_life_ms, n + 1 u32 groups, then n +
 * 1 samples of groups (half-lives in order, lifetime): u64 bound, of a half-life i64 reference and
 * i64 tended; per group by hash u64 hash, of a half-life i64 last, spans. */

static void encode_sampled(const struct sampled *s, struct fr_buffer *out)
{
    fr_put_u64(out, s->bound);
    if (s->half_life_ms > 0) {
        fr_put_u64(out, (uint64_t)s->reference_ms);
        fr_put_u64(out, (uint64_t)s->tended_ms);
    }
    for (uint32_t i = 0; i < s->n_groups; i++) {
        const struct group *group = group_at(s, i);
        fr_put_u64(out, s->places[i].hash);
        if (s->half_life_ms > 0)
            fr_put_u64(out, (uint64_t)group->last_ms);
        fr_spans_encode(&group->spans, out);
    }
}

void fr_gauc_encode(const struct fr_gauc *gauc, struct fr_buffer *out)
{
    fr_put_u32(out, FR_GAUC_FORMAT);
    fr_put_u64(out, gauc->options.salt);
    fr_put_u64(out, (uint64_t)gauc->as_of_ms);
    fr_put_u32(out, gauc->options.n_half_lives);
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        fr_put_u64(out, (uint64_t)gauc->options.half_life_ms[h]);
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        fr_put_u32(out, gauc->decayed[h].n_groups);
    fr_put_u32(out, gauc->lifetime.n_groups);
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        encode_sampled(&gauc->decayed[h], out);
    encode_sampled(&gauc->lifetime, out);
}

struct head {
    uint64_t salt;
    int64_t as_of_ms;
    uint32_t n_half_lives;
    int64_t half_life_ms[FR_AUC_HALF_LIVES_MAX];
    uint32_t n_groups[FR_AUC_HALF_LIVES_MAX + 1];
};

static bool parse_head(struct fr_reader *reader, struct head *out)
{
    if (fr_take_u32(reader) != FR_GAUC_FORMAT)
        return false;
    out->salt = fr_take_u64(reader);
    out->as_of_ms = (int64_t)fr_take_u64(reader);
    out->n_half_lives = fr_take_u32(reader);
    if (reader->failed || out->n_half_lives > FR_AUC_HALF_LIVES_MAX)
        return false;
    for (uint32_t h = 0; h < out->n_half_lives; h++) {
        out->half_life_ms[h] = (int64_t)fr_take_u64(reader);
        if (out->half_life_ms[h] <= 0)
            return false;
    }
    for (uint32_t h = 0; h <= out->n_half_lives; h++) {
        out->n_groups[h] = fr_take_u32(reader);
        if (out->n_groups[h] > (size_t)(reader->end - reader->at))
            return false;
    }
    return !reader->failed;
}

enum fr_status fr_gauc_image_options(const uint8_t *bytes, size_t size, struct fr_gauc_options *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct head head;
    if (!parse_head(&reader, &head))
        return FR_E_CORRUPT;
    *out = (struct fr_gauc_options){.salt = head.salt, .groups_max = 1, .n_half_lives = head.n_half_lives};
    memcpy(out->half_life_ms, head.half_life_ms, sizeof(out->half_life_ms));
    for (uint32_t h = 0; h <= head.n_half_lives; h++)
        if (head.n_groups[h] > out->groups_max)
            out->groups_max = head.n_groups[h];
    return FR_OK;
}

/* Of an image: a time whose differences do not overflow. */
/* `target` is NULL for a half-life that is no longer configured, which is skipped. */
static bool parse_sampled(struct fr_reader *reader, bool lifetime, uint32_t n_groups, struct sampled *target)
{
    uint64_t bound = fr_take_u64(reader), before = 0;
    int64_t reference_ms = lifetime ? INT64_MIN : (int64_t)fr_take_u64(reader);
    int64_t tended_ms = lifetime ? INT64_MIN : (int64_t)fr_take_u64(reader);
    bool timed = fr_decay_is_time(reference_ms) && fr_decay_is_time(tended_ms);
    if (!lifetime && !timed && (n_groups > 0 || reference_ms != INT64_MIN || tended_ms != INT64_MIN))
        return false;
    if (target) {
        target->bound = bound;
        target->reference_ms = reference_ms;
        target->tended_ms = tended_ms;
    }
    for (uint32_t g = 0; g < n_groups; g++) {
        struct group passed_over;
        bool kept = target && g < target->groups_max;
        struct group *group = kept ? &target->groups[g] : &passed_over;
        uint64_t hash = fr_take_u64(reader);
        group->last_ms = lifetime ? 0 : (int64_t)fr_take_u64(reader);
        if (reader->failed || hash >= bound || !fr_decay_is_time(group->last_ms) || (g > 0 && hash <= before) ||
            !fr_spans_parse(&group->spans, reader))
            return false;
        if (kept)
            target->places[target->n_groups++] = (struct place){hash, g};
        else if (target && g == target->groups_max)
            target->bound = hash;
        before = hash;
    }
    return !reader->failed;
}

static struct sampled *find_sampled(struct fr_gauc *gauc, int64_t half_life_ms)
{
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        if (gauc->options.half_life_ms[h] == half_life_ms)
            return &gauc->decayed[h];
    return NULL;
}

static void clear(struct fr_gauc *gauc)
{
    gauc->as_of_ms = INT64_MIN;
    for (uint32_t h = 0; h < gauc->options.n_half_lives; h++)
        sampled_clear(&gauc->decayed[h]);
    sampled_clear(&gauc->lifetime);
}

enum fr_status fr_gauc_parse(struct fr_gauc *gauc, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct head head;
    clear(gauc);
    if (!parse_head(&reader, &head))
        return FR_E_CORRUPT;
    if (head.salt != gauc->options.salt)
        return FR_E_MISMATCH;
    gauc->as_of_ms = head.as_of_ms;
    uint32_t found = 0;
    for (uint32_t h = 0; h <= head.n_half_lives; h++) {
        bool lifetime = h == head.n_half_lives;
        struct sampled *target = lifetime ? &gauc->lifetime : find_sampled(gauc, head.half_life_ms[h]);
        found += target && !lifetime;
        if (target && target->n_groups > 0) /* one half-life twice */
            return FR_E_CORRUPT;
        if (!parse_sampled(&reader, lifetime, head.n_groups[h], target))
            return FR_E_CORRUPT;
    }
    if (reader.at != reader.end)
        return FR_E_CORRUPT;
    return found == gauc->options.n_half_lives && head.n_half_lives == found ? FR_OK : FR_E_MISMATCH;
}
