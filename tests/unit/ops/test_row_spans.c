/* The update of rows over ranks, in two halves: what ranks sum over their own lanes and a home
 * joins gives the rows and the check of update_rows and check_rows with all lanes, bit for bit. */
#include "rows_scene.h"

#include "base/ranks.h"

enum { KEYS = 64, PARTS = 3, OCCURRENCES = 6000, RANKS_MAX = 6, BITS = 20, DIM_MAX = 16 };

enum readers {
    READ_PLAIN,  /* one part, each occurrence adds its entry's gradient */
    READ_PAIRED, /* the same with pairs */
    READ_SCALED, /* one part, with weights; some entries are not trained */
    READ_PARTS,  /* several parts, each reached in some lanes only; one of them twice */
    READERS,
};

/* Occurrences of one rank, or of all. Occurrence o is entry o of one slot or, if it is odd, of
 * another one; its numbers are those of `all`. */
struct occurrences {
    uint32_t n_keys, key[KEYS]; /* keys that have an occurrence */
    uint32_t begin[KEYS + 1], n;
    uint32_t occ[OCCURRENCES], from[OCCURRENCES];
    uint8_t lane[OCCURRENCES];
    float *rows[KEYS], *served[KEYS];
};

struct world {
    enum readers readers;
    uint32_t dim, lanes;
    struct occurrences all;
    float *gradients, *pairs, *sums, *weights; /* [OCCURRENCES, DIM_MAX]; weights: [OCCURRENCES] */
    uint32_t trained[2][OCCURRENCES], counted[OCCURRENCES], ones[OCCURRENCES];
    uint32_t source_begin[3], n_groups;
    struct fr_row_source sources[5];
    uint32_t n_parts, row_floats;
    struct fr_row_part parts[PARTS];
    float *memory, *joined; /* [KEYS, row_floats] of one rank; of ranks */
    float *scratch;
};

static float number(uint64_t set, uint64_t i)
{
    double u = fr_random_uniform(8, 1, set, i);
    return u < 0.1 ? -0.0f : (float)((u - 0.5) * pow(2.0, 20.0 * fr_random_uniform(8, 2, set, i)));
}

static void make_occurrences(struct world *w)
{
    struct occurrences *all = &w->all;
    all->n_keys = KEYS;
    for (uint32_t u = 0; u < KEYS; u++) {
        uint32_t size = u % 5 == 0 ? 1 : 1 + (uint32_t)(90.0 * fr_random_uniform(8, 3, u, 0)), first = all->n;
        if (u % 13 == 7)
            size = 200; /* several blocks in a lane */
        all->key[u] = u;
        for (uint32_t i = 0; i < size; i++, all->n++) {
            uint32_t o = all->n;
            double at = (double)i / size, bend = 0.3 + 3.0 * fr_random_uniform(8, 4, u, 0);
            all->occ[o] = o;
            all->from[o] = from(o, 0);
            /* very different numbers of occurrences in a lane; some lanes have none */
            all->lane[o] = (uint8_t)(pow(at, bend) * w->lanes * fr_random_uniform(8, 5, u, 0) +
                                     w->lanes * (1.0 - fr_random_uniform(8, 5, u, 0)) * (u % 3) / 2.0);
            assert_true(all->lane[o] < w->lanes && (o == first || all->lane[o] >= all->lane[o - 1]));
        }
        all->begin[u + 1] = all->n;
        all->rows[u] = u % 7 == 3 ? NULL : w->memory + (size_t)u * w->row_floats;
        all->served[u] = u % 4 == 1 ? NULL : all->rows[u];
    }
    assert_true(all->n <= OCCURRENCES);
    for (uint32_t o = 0; o < all->n; o++)
        all->from[o] = o | (w->n_groups > 1 ? o % 2 : 0) << BITS;
}

/* Numbers are drawn once, because that takes longer than all else. */
static void draw(struct world *w)
{
    static float numbers[3][OCCURRENCES * DIM_MAX];
    static bool drawn;
    float *const to[] = {w->gradients, w->pairs, w->sums};
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t k = 0; k < OCCURRENCES * DIM_MAX && !drawn; k++)
            numbers[i][k] = number(i, k);
        memcpy(to[i], numbers[i], sizeof(numbers[i]));
    }
    drawn = true;
}

static void make_sources(struct world *w)
{
    draw(w);
    for (uint32_t u = 6; u < KEYS; u += 8) /* of these keys nothing is left but minus zero */
        for (uint32_t i = w->all.begin[u] * DIM_MAX; i < w->all.begin[u + 1] * DIM_MAX; i++)
            w->gradients[i] = w->pairs[i] = -0.0f;
    for (uint32_t o = 0; o < w->all.n; o++) {
        w->weights[o] = ldexpf(1.0f, (int)(o % 3));
        w->ones[o] = 1;
        w->counted[o] = 1 + o % 3;
        /* part 1 is not reached in every second lane, and part 2 in few */
        w->trained[0][o] = w->all.lane[o] % 2 == 0 && o % 5 != 2 ? w->counted[o] : 0;
        w->trained[1][o] = w->all.lane[o] % 5 == 1 ? w->counted[o] : 0;
    }
    struct fr_row_source plain = {
        .gradient = {w->gradients, DIM_MAX}, .trained = w->ones, .counted = w->ones, .whole = true};
    w->n_groups = w->readers == READ_PARTS ? 2 : 1;
    w->sources[0] = plain;
    w->source_begin[1] = 1;
    if (w->readers == READ_PAIRED) {
        w->sources[0].pairs = (struct fr_view){w->pairs, DIM_MAX};
        w->sources[0].sum = (struct fr_view){w->sums, DIM_MAX};
    }
    if (w->readers == READ_SCALED) {
        w->sources[0].weights = w->weights;
        w->sources[0].trained = w->trained[0];
        w->sources[0].counted = w->counted;
        w->sources[0].whole = false;
    }
    if (w->readers == READ_PARTS) {
        struct fr_row_source *s = w->sources;
        for (uint32_t i = 1; i < 5; i++)
            s[i] = plain;
        s[1].part = 1;
        s[1].trained = w->trained[0];
        s[1].counted = w->counted;
        s[2].gradient.values = w->pairs;
        w->source_begin[1] = 3;
        s[3].part = 2;
        s[3].trained = w->trained[1];
        s[3].counted = w->counted;
        s[4].part = 1;
        s[4].weights = w->weights;
        w->source_begin[2] = 5;
    }
}

static float *floats(size_t n)
{
    return fr_alloc_aligned(64, n * sizeof(float));
}

static void make_world(struct world *w, enum readers readers, uint32_t dim, uint32_t lanes, struct fr_optimizer o)
{
    memset(w, 0, sizeof(*w));
    w->readers = readers;
    w->dim = dim;
    w->lanes = lanes;
    w->n_parts = readers == READ_PARTS ? PARTS : 1;
    w->n_groups = readers == READ_PARTS ? 2 : 1;
    for (uint32_t p = 0; p < w->n_parts; p++) {
        w->parts[p] = (struct fr_row_part){w->row_floats, p == 1 ? 1 + dim / 2 : dim, 0, o};
        w->row_floats += w->parts[p].dim;
    }
    for (uint32_t p = 0; p < w->n_parts; p++) {
        w->parts[p].state_offset = w->row_floats;
        w->row_floats += fr_row_state_floats(o.kind, w->parts[p].dim);
    }
    w->memory = floats((size_t)KEYS * w->row_floats);
    w->joined = floats((size_t)KEYS * w->row_floats);
    for (uint32_t i = 0; i < KEYS * w->row_floats; i++)
        w->memory[i] = o.kind == FR_OPT_SGD ? -0.0f : 0.0f;
    memcpy(w->joined, w->memory, (size_t)KEYS * w->row_floats * sizeof(float));
    w->scratch = floats((size_t)FR_ROW_SCRATCH_LANES * DIM_MAX * PARTS);
    w->gradients = floats(OCCURRENCES * DIM_MAX);
    w->pairs = floats(OCCURRENCES * DIM_MAX);
    w->sums = floats(OCCURRENCES * DIM_MAX);
    w->weights = floats(OCCURRENCES);
    make_occurrences(w);
    make_sources(w);
}

static void release_world(struct world *w)
{
    float *all[] = {w->memory, w->joined, w->scratch, w->gradients, w->pairs, w->sums, w->weights};
    for (size_t i = 0; i < FR_ARRAY_LEN(all); i++)
        free(all[i]);
}

static struct fr_row_update update_of(const struct world *w, const struct occurrences *o)
{
    return (struct fr_row_update){.rows = o->rows,
                                  .served = o->served,
                                  .occ_begin = o->begin,
                                  .occ = o->occ,
                                  .occ_from = o->from,
                                  .occ_lane = o->lane,
                                  .entry_bits = BITS,
                                  .n_groups = w->n_groups,
                                  .source_begin = w->source_begin,
                                  .sources = w->sources,
                                  .parts = w->parts,
                                  .n_parts = w->n_parts,
                                  .end = o->n_keys,
                                  .scratch = w->scratch};
}

/* Takes the occurrences in some lanes; rows are those of the ranks. */
static void take_lanes(const struct world *w, struct fr_domains lanes, struct occurrences *out)
{
    memset(out, 0, sizeof(*out));
    for (uint32_t u = 0; u < KEYS; u++) {
        uint32_t before = out->n;
        for (uint32_t o = w->all.begin[u]; o < w->all.begin[u + 1]; o++) {
            if (w->all.lane[o] < lanes.first || w->all.lane[o] >= lanes.end)
                continue;
            out->occ[out->n] = w->all.occ[o];
            out->from[out->n] = w->all.from[o];
            out->lane[out->n++] = w->all.lane[o];
        }
        if (out->n == before)
            continue;
        ptrdiff_t offset = w->joined - w->memory;
        out->key[out->n_keys] = u;
        out->rows[out->n_keys] = w->all.rows[u] ? w->all.rows[u] + offset : NULL;
        out->served[out->n_keys] = w->all.served[u] ? w->all.served[u] + offset : NULL;
        out->begin[++out->n_keys] = out->n;
    }
}

/* What a rank sends, in memory of exactly the size that is asked for. */
struct rank {
    struct fr_lane_span spans[FR_LANE_SPANS_MAX];
    uint32_t lanes[FR_LANE_SPANS_MAX], *counts;
    uint16_t *reached;
    float *sums;
    size_t *begin;
    struct occurrences occurrences;
    struct fr_row_sent sent;
};

static uint32_t spans_with_occurrences(const struct rank *rank, uint32_t n_spans, uint32_t k)
{
    const struct occurrences *o = &rank->occurrences;
    uint32_t n = 0;
    for (uint32_t s = 0; s < n_spans; s++) {
        bool any = false;
        for (uint32_t i = o->begin[k]; i < o->begin[k + 1]; i++)
            any |= o->lane[i] >= rank->spans[s].first && o->lane[i] < rank->spans[s].end;
        n += any;
    }
    return n;
}

static void sum_rank(const struct world *w, struct fr_domains lanes, struct rank *rank)
{
    take_lanes(w, lanes, &rank->occurrences);
    uint32_t n = rank->occurrences.n_keys, all_dims = 0;
    uint32_t n_spans = fr_lane_spans(lanes.first, lanes.end, w->lanes, rank->spans);
    for (uint32_t p = 0; p < w->n_parts; p++)
        all_dims += w->parts[p].dim;
    rank->reached = fr_alloc((size_t)n * n_spans + 1, sizeof(*rank->reached));
    rank->counts = fr_alloc((size_t)n * w->n_parts + 1, sizeof(*rank->counts));
    rank->begin = fr_alloc(n + 1, sizeof(*rank->begin));
    uint32_t cuts[] = {0, n / 3, n}, room = 0;
    for (uint32_t k = 0; k < n; k++)
        room += spans_with_occurrences(rank, n_spans, k) * all_dims;
    rank->sums = fr_alloc(room + 1, sizeof(*rank->sums));
    size_t at = 0;
    for (uint32_t c = 0; c < 2; c++) {
        struct fr_row_spans call = {.update = update_of(w, &rank->occurrences),
                                    .n_spans = n_spans,
                                    .spans = rank->spans,
                                    .reached = rank->reached + (size_t)cuts[c] * n_spans,
                                    .counts = rank->counts + (size_t)cuts[c] * w->n_parts,
                                    .sums = rank->sums + at};
        call.update.begin = cuts[c];
        call.update.end = cuts[c + 1];
        at += fr_ops_cpu()->sum_spans(&call);
    }
    size_t sum = 0;
    for (uint32_t k = 0; k < n; k++) {
        rank->begin[k] = sum;
        for (uint32_t i = k * n_spans; i < (k + 1) * n_spans; i++)
            for (uint32_t p = 0; p < w->n_parts; p++)
                sum += rank->reached[i] >> p & 1 ? w->parts[p].dim : 0;
    }
    assert_int_equal(sum, at);
    for (uint32_t s = 0; s < n_spans; s++)
        rank->lanes[s] = rank->spans[s].first;
    rank->sent = (struct fr_row_sent){n_spans, rank->lanes, rank->reached, rank->counts, rank->sums, rank->begin};
}

static void release_rank(struct rank *rank)
{
    free(rank->reached);
    free(rank->counts);
    free(rank->sums);
    free(rank->begin);
}

/* One step of all keys over n ranks; returns the check's bits, made before the step. */
static uint32_t step_ranks(const struct world *w, uint32_t n, struct rank *ranks)
{
    struct fr_row_sent sent[RANKS_MAX];
    struct fr_row_place places[KEYS * RANKS_MAX];
    uint32_t places_begin[KEYS + 1] = {0}, n_places = 0, bits = 0;
    float *rows[KEYS];
    for (uint32_t r = 0; r < n; r++) {
        sum_rank(w, fr_rank_domains(r, n, w->lanes), &ranks[r]);
        sent[r] = ranks[r].sent;
    }
    for (uint32_t u = 0; u < KEYS; u++) {
        rows[u] = w->all.rows[u] ? w->joined + (size_t)u * w->row_floats : NULL;
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t k = 0; k < ranks[r].occurrences.n_keys; k++)
                if (ranks[r].occurrences.key[k] == u)
                    places[n_places++] = (struct fr_row_place){r, k};
        places_begin[u + 1] = n_places;
    }
    for (uint32_t pass = 0; pass < 4; pass++) { /* checks, then steps, in two blocks each */
        struct fr_row_join call = {.sent = sent,
                                   .rows = rows,
                                   .places_begin = places_begin,
                                   .places = places,
                                   .parts = w->parts,
                                   .n_parts = w->n_parts,
                                   .begin = pass % 2 ? 21 : 0,
                                   .end = pass % 2 ? KEYS : 21,
                                   .scratch = w->scratch,
                                   .checks = pass < 2};
        uint32_t block = fr_ops_cpu()->join_spans(&call);
        bits = block > bits ? block : bits;
    }
    for (uint32_t r = 0; r < n; r++)
        release_rank(&ranks[r]);
    return bits;
}

static void compare(enum readers readers, uint32_t dim, uint32_t lanes, uint32_t n, struct fr_optimizer o)
{
    static struct world w;
    static struct rank ranks[RANKS_MAX];
    make_world(&w, readers, dim, lanes, o);
    for (int step = 0; step < 2; step++) {
        struct fr_row_update update = update_of(&w, &w.all);
        uint32_t bits = fr_ops_cpu()->check_rows(&update);
        fr_ops_cpu()->update_rows(&update);
        assert_int_equal(step_ranks(&w, n, ranks), bits);
        for (uint32_t i = 0; i < KEYS * w.row_floats; i++)
            if (memcmp(&w.memory[i], &w.joined[i], sizeof(float)) != 0)
                fail_msg("readers %d, dim %u, %u lanes, %u ranks, optimizer %d, key %u, float %u: %a, expected %a",
                         (int)readers, dim, lanes, n, (int)o.kind, i / w.row_floats, i % w.row_floats,
                         (double)w.joined[i], (double)w.memory[i]);
    }
    release_world(&w);
}

#define ROW_KIND(name, text, number, where, ...) FR_ROWS_##where(name, )
static const enum fr_optimizer_kind row_kinds[] = {FR_OPTIMIZERS(ROW_KIND)};

static void compare_ranks(uint32_t lanes, const uint32_t *sizes, size_t n_sizes)
{
    static const uint32_t dims[] = {1, 3, 8, 16};
    /* steps from -0 with a rate that is a power of two and undamped show every bit of a gradient */
    struct fr_optimizer plain = {.kind = FR_OPT_SGD, .lr = 0x1p-60f};
    for (size_t i = 0; i < n_sizes; i++)
        for (size_t d = 0; d < FR_ARRAY_LEN(dims); d++)
            for (enum readers readers = 0; readers < READERS; readers++) {
                compare(readers, dims[d], lanes, sizes[i], plain);
                for (size_t k = 0; k < FR_ARRAY_LEN(row_kinds) && i == n_sizes / 2; k++) {
                    struct fr_optimizer shaped = test_optimizer(row_kinds[k]), simple = shaped;
                    shaped.clip_norm = 0.5f;
                    simple.l2 = 0.0f;
                    compare(readers, dims[d], lanes, sizes[i], shaped);
                    compare(readers, dims[d], lanes, sizes[i], simple);
                }
            }
}

FR_CASE(sums_of_ranks_join_to_the_update_of_one)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 6};
    compare_ranks(12, sizes, FR_ARRAY_LEN(sizes));
}

FR_CASE(lanes_need_not_be_a_power_of_two)
{
    static const uint32_t sizes[] = {1, 2, 3, 5};
    compare_ranks(5, sizes, FR_ARRAY_LEN(sizes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_ranks_join_to_the_update_of_one),
        cmocka_unit_test(lanes_need_not_be_a_power_of_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
