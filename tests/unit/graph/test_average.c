/* Moving averages that are published in place of the layers' values (export.average). */
#include "fixture.h"

#include "networks.h"

enum { BUY = 1, STEPS = 25, VALUES_MAX = 512 };

static const char towers[] =
    NX_HEAD "network:\n"
            "  layers:\n"
            "    - {name: h, dense: [user_id, price, age], units: 5, activation: dice}\n"
            "    - {name: a, dense: h, units: 1}\n"
            "    - {name: b, dense: [h, item_id.v], units: 1}\n"
            "    - {name: spare, dense: h, units: 2}\n"
            "tasks: [{name: click, label: click, logit: a}, {name: buy, label: buy, logit: b}]\n";

static struct fr_graph *make_graph(struct fixture *fx, uint64_t half_life)
{
    fx_load(fx, 30, towers);
    fx->conf.export_.average_half_life = half_life;
    fx->conf.dense_optimizer = fx_optimizer(FR_OPT_ADAM, 0.05f);
    fx->conf.ingest.batch_size = 32;
    fx_make_rows(fx, 3);
    return fx_graph(fx, NULL, NULL);
}

static uint32_t make_samples(struct fixture *fx, uint64_t i)
{
    uint32_t trained = 0;
    fx_make_batch(fx, 3 + (uint32_t)(i * 37 % 60), 1, false, 40 + i);
    fx_vary_roles(fx);
    for (uint32_t s = 0; s < fx->batch.n_samples; s++)
        trained += fx->batch.role[s] == FR_ROLE_TRAIN;
    return trained;
}

/* By the definition: values after each step, weighted by the samples of the step and halved in a
 * half-life. */
FR_CASE(an_average_is_that_of_the_values_by_trained_samples)
{
    enum { HALF_LIFE = 120 };
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, HALF_LIFE);
    const struct fr_parameter *kernel = fx_parameter(graph, "h/kernel");
    double sum[VALUES_MAX] = {0}, weight = 0.0, apart = 0.0;
    assert_true(kernel->published != kernel->values);
    /* first values */
    assert_memory_equal(kernel->published, kernel->values, kernel->n_values * sizeof(float));
    for (uint64_t i = 0; i < STEPS; i++) {
        double keep = pow(0.5, (double)make_samples(&fx, i) / HALF_LIFE);
        uint64_t changes = kernel->changes;
        fx_step(&fx, graph);
        assert_true(kernel->changes > changes);
        weight = keep * weight + 1.0 - keep;
        for (size_t j = 0; j < kernel->n_values; j++) {
            sum[j] = keep * sum[j] + (1.0 - keep) * (double)kernel->values[j];
            if (!(fabs((double)kernel->published[j] - sum[j] / weight) < 1e-6))
                fail_msg("step %u, value %zu: %.9g, expected %.9g", (unsigned)i, j, (double)kernel->published[j],
                         sum[j] / weight);
            apart = fmax(apart, fabs((double)kernel->published[j] - (double)kernel->values[j]));
        }
        if (i == 0) /* unbiased: nothing is left of the first values */
            assert_memory_equal(kernel->published, kernel->values, kernel->n_values * sizeof(float));
    }
    assert_true(apart > 0.01);
    fr_graph_free(graph);
    fx_release(&fx);
}

/* The steps of training use the values: an average changes only what is published. */
FR_CASE(training_does_not_see_the_average)
{
    uint64_t hashes[2];
    for (int with = 0; with < 2; with++) {
        struct fixture fx;
        struct fr_graph *graph = make_graph(&fx, with ? 100 : 0);
        struct fr_buffer bytes = {0};
        for (uint64_t i = 0; i < 6; i++) {
            make_samples(&fx, i);
            fx_step(&fx, graph);
        }
        for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
            const struct fr_parameter *q = &fr_graph_parameters(graph)[p];
            fr_buffer_append(&bytes, q->values, q->n_values * sizeof(float));
            bool averaged = with && (q->name[0] == 'h' || q->name[1] == '/') && q->trained;
            /* statistics, and layers that no loss reaches, have no average */
            if ((q->published != q->values) != averaged)
                fail_msg("%s", q->name);
        }
        hashes[with] = fr_xxh3(bytes.data, bytes.size);
        fr_buffer_release(&bytes);
        fr_graph_free(graph);
        fx_release(&fx);
    }
    assert_true(hashes[0] == hashes[1]);
}

FR_CASE(a_task_without_labels_leaves_its_averages)
{
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, 100);
    const struct fr_parameter *b = fx_parameter(graph, "b/kernel"), *h = fx_parameter(graph, "h/kernel");
    float before[2][8];
    for (uint64_t i = 0; i < 5; i++) {
        make_samples(&fx, i);
        if (i == 4)
            for (uint32_t s = 0; s < fx.batch.n_samples; s++)
                fx.batch.labels[BUY * fx.batch.capacity_samples + s] = NAN;
        memcpy(before[0], b->published, sizeof(before[0]));
        memcpy(before[1], h->published, sizeof(before[1]));
        fx_step(&fx, graph);
    }
    assert_memory_equal(before[0], b->published, sizeof(before[0]));
    assert_memory_not_equal(before[1], h->published, sizeof(before[1]));
    fr_graph_free(graph);
    fx_release(&fx);
}

/* With so long a half-life and so few samples a step, the change by one step alone would be lost to
 * rounding. */
FR_CASE(small_steps_add_up)
{
    enum { HALF_LIFE = 2000000 };
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, HALF_LIFE);
    struct fr_parameter *a = fx_parameter(graph, "a/bias");
    fx.conf.dense_optimizer.lr = 1e-30f;
    uint64_t samples = 0;
    double sum = 0.0, weight = 0.0;
    fx_make_batch(&fx, 4, 1, false, 7);
    fr_graph_forward(graph, &fx.batch, &fx.rows);
    for (uint32_t i = 0; i < 60000; i++) { /* the value is 1, and 1.01 from the middle on */
        a->values[0] = i < 30000 ? 1.0f : 1.01f;
        assert_int_equal(fr_graph_train(graph, &fx.batch, &fx.rows, NULL), FR_OK);
        double keep = pow(0.5, 4.0 / HALF_LIFE);
        weight = keep * weight + 1.0 - keep;
        sum = keep * sum + (1.0 - keep) * (double)a->values[0];
        samples += 4;
    }
    if (!(fabs((double)a->published[0] - sum / weight) < 2e-5))
        fail_msg("%.9g after %u samples, expected %.9g", (double)a->published[0], (unsigned)samples, sum / weight);
    fr_graph_free(graph);
    fx_release(&fx);
}

static uint64_t run_of(uint64_t restart_at)
{
    struct fixture fx;
    struct fr_graph *graph = make_graph(&fx, 200000);
    fx.conf.tasks[0].bias_from_labels = true;
    fr_graph_free(graph);
    graph = fx_graph(&fx, NULL, NULL);
    for (uint64_t i = 0; i < 12; i++) {
        if (i == restart_at) {
            struct fr_graph *from = graph;
            struct fr_buffer bytes = {0};
            graph = fx_graph(&fx, NULL, NULL);
            /* as an epoch has it: what is published */
            for (size_t p = 0; p < fr_graph_parameter_count(graph); p++) {
                const struct fr_parameter *q = &fr_graph_parameters(from)[p];
                memcpy(fr_graph_parameters(graph)[p].published, q->published, q->n_values * sizeof(float));
            }
            save_state(from, &bytes);
            assert_int_equal(restore_state(graph, bytes.data, bytes.size), FR_OK);
            fr_buffer_clear(&bytes);
            size_t kernel = (size_t)(fx_parameter(from, "h/kernel") - fr_graph_parameters(from));
            const struct fr_parameter *q = &fr_graph_parameters(from)[kernel];
            fr_graph_save_parameter(from, kernel, &bytes);
            assert_memory_equal(fr_graph_trained_values(bytes.data, bytes.size, q->n_values), q->values,
                                q->n_values * sizeof(float));
            assert_null(fr_graph_trained_values(bytes.data, bytes.size, q->n_values + 1));
            assert_null(fr_graph_trained_values(bytes.data, 60, q->n_values));
            fr_buffer_release(&bytes);
            fr_graph_free(from);
        }
        make_samples(&fx, i);
        fx_step(&fx, graph);
    }
    uint64_t hash = fx_hash(&fx, graph);
    for (size_t p = 0; p < fr_graph_parameter_count(graph); p++)
        hash = hash * 31 +
               fr_xxh3(fr_graph_parameters(graph)[p].published, fr_graph_parameters(graph)[p].n_values * sizeof(float));
    fr_graph_free(graph);
    fx_release(&fx);
    return hash;
}

FR_CASE(a_restored_average_continues_to_the_same_bits)
{
    uint64_t whole = run_of(UINT64_MAX);
    for (uint64_t at = 0; at < 12; at += 4)
        assert_true(run_of(at) == whole);
}

FR_CASE(a_state_with_an_average_is_not_one_without)
{
    struct fixture fx, other;
    struct fr_graph *with = make_graph(&fx, 100), *without = make_graph(&other, 0);
    struct fr_buffer bytes = {0};
    save_state(with, &bytes);
    assert_int_equal(restore_state(without, bytes.data, bytes.size), FR_E_MISMATCH);
    fr_buffer_clear(&bytes);
    fr_graph_save_parameter(without, 0, &bytes);
    assert_null(fr_graph_trained_values(bytes.data, bytes.size, fr_graph_parameters(without)[0].n_values));
    fr_buffer_release(&bytes);
    fr_graph_free(with);
    fr_graph_free(without);
    fx_release(&fx);
    fx_release(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_average_is_that_of_the_values_by_trained_samples),
        cmocka_unit_test(training_does_not_see_the_average),
        cmocka_unit_test(a_task_without_labels_leaves_its_averages),
        cmocka_unit_test(small_steps_add_up),
        cmocka_unit_test(a_restored_average_continues_to_the_same_bits),
        cmocka_unit_test(a_state_with_an_average_is_not_one_without),
    };
    return cmocka_run_group_tests_name("average", tests, NULL, NULL);
}
