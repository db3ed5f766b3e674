/* Ranking tasks against brute force in double, with every pair by its definition. Beyond the
 * bound only the pairs are taken that the order of labels and fr_pair_partner give; their loss
 * is near that of all pairs. Each sample reads a row of its own, so that a step of sgd shows its
 * gradient. */
#include "fixture.h"
#include "networks.h"

enum { SAMPLES = 2600, ITEM = 1, BOUND = 65536 };

/* One sample, two, 40, 500 of two labels: all pairs. 700 of many labels and 1000 of two: beyond the
 * bound. */
static const uint32_t sizes[] = {1, 2, 40, 1, 500, 700, 3, 1000, 353};

static const char text[] = NX_HEAD "network: {layers: [{name: out, sum: [item_id.w]}]}\n"
                                   "tasks: [{name: click, label: click, logit: out, loss: pairwise, weight: 0.5}]\n";

static void make_world(struct fixture *fx)
{
    fx_load(fx, SAMPLES, text);
    for (uint32_t t = 0; t < fx->conf.n_tables; t++)
        for (uint32_t p = 0; p < fx->conf.tables[t].n_parts; p++)
            fx->conf.tables[t].parts[p].optimizer = fx_optimizer(FR_OPT_SGD, 0x1p-12f);
    fx_make_rows(fx, 2);
    fx_begin_batch(fx, SAMPLES, FR_ARRAY_LEN(sizes));
    struct fr_batch *b = &fx->batch;
    for (uint32_t g = 0, i = 0; g < FR_ARRAY_LEN(sizes); g++) {
        for (uint32_t k = 0; k < sizes[g]; k++)
            b->group_of[i++] = g;
        b->group_begin[g + 1] = i;
    }
    for (uint32_t s = 0; s < fx->conf.n_slots; s++)
        fx_make_column(fx, s, 1, false, 3);
    for (uint32_t i = 0; i < SAMPLES; i++)
        b->columns[ITEM].keys[i] = i;
    fx_make_labels(fx, 3);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        double u = fx_uniform(9, 1, i);
        b->labels[i] = b->group_of[i] == 5 ? (float)(u * u) : (float)(u < 0.3);
        b->weights[i] = i % 13 == 4 ? 0.0f : (float)(1 + i % 3);
        b->keep[i] = i % 3 == 0 ? 0.25f : 1.0f;
        if (i % 17 == 5)
            b->labels[i] = NAN;
        b->role[i] = i % 19 == 7 ? FR_ROLE_METRICS_ONLY : FR_ROLE_TRAIN;
    }
    fx_resolve(fx);
}

/* ---- brute force ---- */

struct expected {
    double loss, all_loss; /* sums; all: without the bound */
    uint32_t samples;
    uint64_t pairs;
    double gradient[SAMPLES];
};

static double effective(const struct fixture *fx, uint32_t i)
{
    double w = (double)fx->batch.weights[i];
    return fx->conf.ingest.sampling == FR_SAMPLING_ALL ? w / (double)fx->batch.keep[i] : w;
}

static bool counts(const struct fixture *fx, uint32_t i)
{
    return fx->batch.role[i] == FR_ROLE_TRAIN && !isnan(fx->batch.labels[i]) && fx->batch.weights[i] > 0.0f;
}

static uint32_t sorted(const struct fixture *fx, uint32_t g, uint32_t *order)
{
    uint32_t n = 0;
    for (uint32_t i = fx->batch.group_begin[g]; i < fx->batch.group_begin[g + 1]; i++) {
        uint32_t at = n;
        if (!counts(fx, i))
            continue;
        for (n++; at > 0 && fx->batch.labels[order[at - 1]] > fx->batch.labels[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

static double add_pair(const struct fixture *fx, const float *z, uint32_t i, uint32_t j, double factor,
                       double *gradient)
{
    double w = factor * effective(fx, i) * effective(fx, j), apart = (double)z[i] - (double)z[j];
    if (gradient) {
        gradient[i] -= 0.5 * w / (1.0 + exp(apart));
        gradient[j] += 0.5 * w / (1.0 + exp(apart));
    }
    return 0.5 * w * log1p(exp(-apart));
}

static void expect_group(const struct fixture *fx, const float *z, uint32_t g, struct expected *e)
{
    uint32_t order[SAMPLES], lower[SAMPLES], n = sorted(fx, g, order), higher = 0;
    uint64_t pairs = 0;
    double all = 0.0;
    for (uint32_t i = 0; i < n; i++) {
        lower[i] = 0;
        for (uint32_t j = 0; j < n; j++)
            lower[i] += fx->batch.labels[order[i]] > fx->batch.labels[order[j]];
        pairs += lower[i];
        higher += lower[i] > 0;
    }
    double scale = pairs ? (double)n / (double)pairs : 0.0;
    for (uint32_t i = 0; i < n && pairs > 0; i++) {
        uint32_t bound = pairs > BOUND ? BOUND / higher : n, count = lower[i] < bound ? lower[i] : bound;
        for (uint32_t turn = 0; turn < count; turn++) {
            uint32_t j = count < lower[i] ? fr_pair_partner(lower[i], count, i, turn) : turn;
            e->loss += add_pair(fx, z, order[i], order[j], scale * (double)lower[i] / (double)count, e->gradient);
        }
        for (uint32_t j = 0; j < lower[i]; j++)
            all += add_pair(fx, z, order[i], order[j], scale, NULL);
    }
    e->all_loss += all;
    e->pairs += pairs;
    e->samples += pairs > 0 ? n : 0;
}

static void expect(const struct fixture *fx, const float *z, struct expected *e)
{
    memset(e, 0, sizeof(*e));
    for (uint32_t g = 0; g < fx->batch.n_groups; g++)
        expect_group(fx, z, g, e);
}

/* ---- cases ---- */

FR_CASE(pairs_and_their_gradients_are_those_of_brute_force)
{
    for (int sampling = FR_SAMPLING_ALL; sampling <= FR_SAMPLING_METRICS; sampling++) {
        struct fixture fx;
        struct expected *e = fr_alloc(1, sizeof(*e));
        make_world(&fx);
        fx.conf.ingest.sampling = (enum fr_sampling)sampling;
        struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
        float before[SAMPLES];
        /* so that a step's rounding does not hide gradients */
        for (uint32_t i = 0; i < SAMPLES; i++)
            fx.row_memory[1][i * fx.layouts[1].row_floats] =
                0x1p-4f * roundf((float)(8.0 * fx_uniform(4, 4, i)) - 4.0f);
        for (uint32_t i = 0; i < SAMPLES; i++)
            before[i] = fx.row_memory[1][i * fx.layouts[1].row_floats];
        double loss = fx_step(&fx, graph);
        expect(&fx, fr_graph_logits(graph, 0), e);
        const struct fr_graph_loss *got = fr_graph_losses_of(graph);
        assert_true(got->pairs == e->pairs && got->samples == e->samples && e->pairs > 2 * BOUND);
        assert_true(fabs(got->sum - e->loss) <= 1e-6 * e->loss);
        assert_true(fabs(loss - e->loss / (double)e->samples) <= 1e-6 * loss);
        /* the pairs that are left out are like those that are taken */
        assert_true(fabs(e->loss - e->all_loss) <= 0.01 * e->all_loss);
        double error = 0.0, size = 0.0;
        for (uint32_t i = 0; i < SAMPLES; i++) {
            if (i % 7 == 3) /* no row */
                continue;
            /* sgd of rows: lr s / (1 + lr c / 4), c = 1 */
            double g =
                (1.0 + 0x1p-14) * ((double)before[i] - (double)fx.row_memory[1][i * fx.layouts[1].row_floats]) * 0x1p12;
            error += (g - e->gradient[i]) * (g - e->gradient[i]);
            size += e->gradient[i] * e->gradient[i];
        }
        assert_true(size > 1.0 && error < 1e-8 * size);
        fr_graph_free(graph);
        fx_release(&fx);
        free(e);
    }
}

FR_CASE(pairs_give_the_same_bits_with_any_number_of_workers)
{
    uint64_t hash[3];
    double losses[3];
    for (uint32_t workers = 0; workers < 3; workers++) {
        struct fixture fx;
        make_world(&fx);
        struct fr_pool *pool = workers ? fr_pool_new(workers + 1) : NULL;
        struct fr_graph *graph = fx_graph(&fx, NULL, pool);
        losses[workers] = fx_step(&fx, graph);
        hash[workers] = fx_hash(&fx, graph);
        fr_graph_free(graph);
        fr_pool_free(pool);
        fx_release(&fx);
        assert_true(hash[workers] == hash[0] && losses[workers] == losses[0]);
    }
}

/* Neither groups without pairs nor samples that are in no pair count. */
FR_CASE(only_samples_that_stand_in_a_pair_count)
{
    struct fixture fx;
    make_world(&fx);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        fx.batch.labels[i] = 0.0f;
        fx.batch.weights[i] = 1.0f;
        fx.batch.role[i] = FR_ROLE_TRAIN;
    }
    struct fr_graph *graph = fx_graph(&fx, NULL, NULL);
    (void)fx_step(&fx, graph);
    assert_true(fr_graph_losses_of(graph)->samples == 0 && fr_graph_losses_of(graph)->pairs == 0);
    fx.batch.labels[5] = 1.0f; /* of the group of 40 */
    fx.batch.weights[6] = 0.0f;
    (void)fx_step(&fx, graph);
    assert_true(fr_graph_losses_of(graph)->samples == 39 && fr_graph_losses_of(graph)->pairs == 38);
    fr_graph_free(graph);
    fx_release(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_and_their_gradients_are_those_of_brute_force),
        cmocka_unit_test(pairs_give_the_same_bits_with_any_number_of_workers),
        cmocka_unit_test(only_samples_that_stand_in_a_pair_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
