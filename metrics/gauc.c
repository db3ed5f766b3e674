/* AUC within groups, bounded (see metrics/gauc.h for the contract).
 *
 * Groups: a bottom-k sample. h(key) = fmix64(key xor salt) is a bijection, so a group is known by its hash alone and no
 * two collide. `bound` is the smallest hash ever refused or pushed out; a group at or above it never comes (back) in,
 * so every kept group has all of its samples. Places are an array sorted by hash: a lookup is a binary search, an
 * insertion a memmove, and after n groups only about k / n of new ones are inserted.
 *
 * One group: spans [low, high] of scores that never overlap, ascending, each with the weight of its positives and
 * negatives. A score inside a span is added to it; otherwise it becomes a span of its own. Pairs of different spans are
 * therefore always ordered right; pairs within a span that is wider than a point are counted one half, which is off by
 * at most half of them: the bound of the error is known exactly. Merging the neighbours of least joint weight keeps
 * spans about equally deep, as in equi-depth histograms. Owner thread: the trainer's loop. Not here: decay. */
#include "metrics/gauc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/math.h"

enum { FR_GAUC_FORMAT = 1 };

struct span {
    float low, high;
    double positive, negative;
};

struct group {
    uint32_t n_spans;
    struct span spans[FR_GAUC_SPANS + 1]; /* one more than stays, while a sample is added */
};

struct place {
    uint64_t hash;
    uint32_t group;
};

struct fr_gauc {
    struct fr_gauc_options options;
    uint64_t bound;
    uint32_t n_groups;
    struct place *places; /* [groups_max], n_groups in use, ascending by hash */
    struct group *groups; /* [groups_max], those below n_groups in use */
};

struct fr_gauc *fr_gauc_new(const struct fr_gauc_options *options)
{
    FR_CHECK(options->groups_max > 0);
    struct fr_gauc *gauc = fr_alloc(1, sizeof(*gauc));
    gauc->options = *options;
    gauc->bound = UINT64_MAX;
    gauc->places = fr_alloc(options->groups_max, sizeof(*gauc->places));
    gauc->groups = fr_alloc(options->groups_max, sizeof(*gauc->groups));
    return gauc;
}

void fr_gauc_free(struct fr_gauc *gauc)
{
    if (!gauc)
        return;
    free(gauc->places);
    free(gauc->groups);
    free(gauc);
}

/* First place whose hash is not below this one. */
static uint32_t lower_bound(const struct fr_gauc *gauc, uint64_t hash)
{
    uint32_t low = 0, high = gauc->n_groups;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (gauc->places[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The group of a hash, new or not; NULL: it is outside the sample. */
static struct group *find_group(struct fr_gauc *gauc, uint64_t hash)
{
    if (hash >= gauc->bound)
        return NULL;
    uint32_t at = lower_bound(gauc, hash);
    if (at < gauc->n_groups && gauc->places[at].hash == hash)
        return &gauc->groups[gauc->places[at].group];
    uint32_t free_group = gauc->n_groups;
    if (gauc->n_groups == gauc->options.groups_max) {
        if (at == gauc->n_groups) {
            gauc->bound = hash;
            return NULL;
        }
        gauc->n_groups--;
        gauc->bound = gauc->places[gauc->n_groups].hash;
        free_group = gauc->places[gauc->n_groups].group;
    }
    memmove(&gauc->places[at + 1], &gauc->places[at], (gauc->n_groups - at) * sizeof(*gauc->places));
    gauc->places[at] = (struct place){hash, free_group};
    gauc->n_groups++;
    gauc->groups[free_group].n_spans = 0;
    return &gauc->groups[free_group];
}

static double joint_weight(const struct span *a, const struct span *b)
{
    return (a->positive + a->negative) + (b->positive + b->negative);
}

/* One span less: the neighbours of least joint weight, the first of equals. */
static void merge_lightest(struct group *group)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i + 1 < group->n_spans; i++)
        if (joint_weight(&group->spans[i], &group->spans[i + 1]) <
            joint_weight(&group->spans[best], &group->spans[best + 1]))
            best = i;
    struct span *into = &group->spans[best];
    into->high = into[1].high;
    into->positive += into[1].positive;
    into->negative += into[1].negative;
    group->n_spans--;
    memmove(into + 1, into + 2, (group->n_spans - best - 1) * sizeof(*into));
}

void fr_gauc_add(struct fr_gauc *gauc, uint64_t key, float score, float label, double weight)
{
    struct group *group = find_group(gauc, fr_fmix64(key ^ gauc->options.salt));
    if (!group)
        return;
    uint32_t i = 0;
    while (i < group->n_spans && group->spans[i].high < score)
        i++;
    struct span *span = &group->spans[i];
    if (i == group->n_spans || score < span->low) {
        memmove(span + 1, span, (group->n_spans - i) * sizeof(*span));
        *span = (struct span){.low = score, .high = score};
        group->n_spans++;
    }
    span->positive += weight * (double)label;
    span->negative += weight * (1.0 - (double)label);
    if (group->n_spans > FR_GAUC_SPANS)
        merge_lightest(group);
}

void fr_gauc_result(const struct fr_gauc *gauc, struct fr_gauc_result *out)
{
    double sum = 0, weight_sum = 0, error = 0;
    uint64_t groups = 0;
    for (uint32_t g = 0; g < gauc->n_groups; g++) {
        const struct group *group = &gauc->groups[gauc->places[g].group];
        double area = 0, below = 0, positives = 0, unsure = 0;
        for (uint32_t i = 0; i < group->n_spans; i++) {
            const struct span *span = &group->spans[i];
            area += span->positive * (below + 0.5 * span->negative);
            if (span->low < span->high)
                unsure += 0.5 * span->positive * span->negative;
            below += span->negative;
            positives += span->positive;
        }
        double pairs = positives * below;
        if (!(pairs > 0))
            continue;
        double weight = positives + below;
        sum += weight * (area / pairs);
        error += weight * (unsure / pairs);
        weight_sum += weight;
        groups++;
    }
    out->auc = groups ? sum / weight_sum : (double)NAN;
    out->error_max = groups ? error / weight_sum : 0;
    out->groups = groups;
    out->weight = weight_sum;
}

/* ---- image: u32 format, u64 salt, u64 bound, u32 groups; per group by hash: u64 hash, u8 spans, per span u8 SPAN_*,
 * f32 low, then what its bits say: f32 high (WIDE); weights of the classes it has, positives first: none (UNIT: each is
 * 1), f64 (LONG) or f32, whichever is the shortest that is exact ---- */

enum { SPAN_WIDE = 1, SPAN_POSITIVE = 2, SPAN_NEGATIVE = 4, SPAN_UNIT = 8, SPAN_LONG = 16, SPAN_BITS = 31 };

static void put_weight(struct fr_buffer *out, uint8_t bits, double weight)
{
    if (bits & SPAN_LONG)
        fr_put_f64(out, weight);
    else if (!(bits & SPAN_UNIT))
        fr_put_u32(out, fr_f32_bits((float)weight));
}

static void encode_span(const struct span *span, struct fr_buffer *out)
{
    bool p = span->positive > 0, n = span->negative > 0;
    bool unit = (!p || span->positive == 1) && (!n || span->negative == 1);
    bool is_f32 = (double)(float)span->positive == span->positive && (double)(float)span->negative == span->negative;
    uint8_t bits =
        (uint8_t)((span->low < span->high ? SPAN_WIDE : 0) | (p ? SPAN_POSITIVE : 0) | (n ? SPAN_NEGATIVE : 0) |
                  (unit     ? SPAN_UNIT
                   : is_f32 ? 0
                            : SPAN_LONG));
    fr_put_u8(out, bits);
    fr_put_u32(out, fr_f32_bits(span->low));
    if (bits & SPAN_WIDE)
        fr_put_u32(out, fr_f32_bits(span->high));
    if (p)
        put_weight(out, bits, span->positive);
    if (n)
        put_weight(out, bits, span->negative);
}

void fr_gauc_encode(const struct fr_gauc *gauc, struct fr_buffer *out)
{
    fr_put_u32(out, FR_GAUC_FORMAT);
    fr_put_u64(out, gauc->options.salt);
    fr_put_u64(out, gauc->bound);
    fr_put_u32(out, gauc->n_groups);
    for (uint32_t g = 0; g < gauc->n_groups; g++) {
        const struct group *group = &gauc->groups[gauc->places[g].group];
        fr_put_u64(out, gauc->places[g].hash);
        fr_put_u8(out, (uint8_t)group->n_spans);
        for (uint32_t i = 0; i < group->n_spans; i++)
            encode_span(&group->spans[i], out);
    }
}

static double take_weight(struct fr_reader *reader, uint8_t bits)
{
    if (bits & SPAN_LONG)
        return fr_take_f64(reader);
    return bits & SPAN_UNIT ? 1.0 : (double)fr_bits_f32(fr_take_u32(reader));
}

static bool is_weight(double weight)
{
    return weight >= 0 && isfinite(weight);
}

static bool parse_span(struct fr_reader *reader, struct span *out)
{
    uint8_t bits = fr_take_u8(reader);
    out->low = out->high = fr_bits_f32(fr_take_u32(reader));
    if (bits & SPAN_WIDE)
        out->high = fr_bits_f32(fr_take_u32(reader));
    out->positive = bits & SPAN_POSITIVE ? take_weight(reader, bits) : 0;
    out->negative = bits & SPAN_NEGATIVE ? take_weight(reader, bits) : 0;
    return !reader->failed && bits <= SPAN_BITS && isfinite(out->low) && isfinite(out->high) &&
           (bits & SPAN_WIDE ? out->low < out->high : true) && is_weight(out->positive) && is_weight(out->negative);
}

static bool parse_group(struct fr_reader *reader, struct group *out)
{
    out->n_spans = fr_take_u8(reader);
    if (reader->failed || out->n_spans == 0 || out->n_spans > FR_GAUC_SPANS)
        return false;
    for (uint32_t i = 0; i < out->n_spans; i++)
        if (!parse_span(reader, &out->spans[i]) || (i > 0 && !(out->spans[i - 1].high < out->spans[i].low)))
            return false;
    return true;
}

static bool parse_head(struct fr_reader *reader, uint64_t *salt, uint64_t *bound, uint32_t *n_groups)
{
    if (fr_take_u32(reader) != FR_GAUC_FORMAT)
        return false;
    *salt = fr_take_u64(reader);
    *bound = fr_take_u64(reader);
    *n_groups = fr_take_u32(reader);
    return !reader->failed;
}

enum fr_status fr_gauc_image_options(const uint8_t *bytes, size_t size, struct fr_gauc_options *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint64_t salt, bound;
    uint32_t n_groups;
    if (!parse_head(&reader, &salt, &bound, &n_groups) || n_groups > (size_t)(reader.end - reader.at))
        return FR_E_CORRUPT;
    *out = (struct fr_gauc_options){.salt = salt, .groups_max = n_groups ? n_groups : 1};
    return FR_OK;
}

enum fr_status fr_gauc_parse(struct fr_gauc *gauc, const uint8_t *bytes, size_t size)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint64_t salt, bound, before = 0;
    uint32_t n_groups;
    gauc->n_groups = 0;
    gauc->bound = UINT64_MAX;
    if (!parse_head(&reader, &salt, &bound, &n_groups))
        return FR_E_CORRUPT;
    if (salt != gauc->options.salt)
        return FR_E_MISMATCH;
    gauc->bound = bound;
    for (uint32_t g = 0; g < n_groups; g++) {
        struct group passed_over;
        bool kept = g < gauc->options.groups_max;
        uint64_t hash = fr_take_u64(&reader);
        if (reader.failed || hash >= bound || (g > 0 && hash <= before))
            return FR_E_CORRUPT;
        if (!parse_group(&reader, kept ? &gauc->groups[g] : &passed_over))
            return FR_E_CORRUPT;
        if (kept)
            gauc->places[gauc->n_groups++] = (struct place){hash, g};
        else if (g == gauc->options.groups_max)
            gauc->bound = hash;
        before = hash;
    }
    return reader.at == reader.end ? FR_OK : FR_E_CORRUPT;
}
