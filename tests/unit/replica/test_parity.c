/* P12 for every layer: a replica that got rows and parameters as delta records scores what the
 * trainer computes. */
#include <math.h>
#include <stdbool.h>

#include "../graph/networks.h"
#include "base/math.h"
#include "ops/ops.h"
#include "trained.h"

enum { BATCHES = 12, NETWORKS = sizeof(nx_networks) / sizeof(nx_networks[0]) };

/* Everything in one network, with optimizers that keep state, and an mse task. */
static const char whole[] =
    "version: 1\n"
    "model: whole\n"
    "state_dir: nowhere\n"
    "ingest: {brokers: 'localhost:9092', topic: t}\n"
    "tables:\n"
    "  user: {dim: 4, optimizer: {adagrad: {lr: 0.05}}}\n"
    "  item:\n"
    "    parts: {w: {dim: 1, optimizer: {ftrl: {l1: 0.0001}}}, v: {dim: 4, optimizer: {adam: {lr: 0.01}}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  item_id: {table: item}\n"
    "  history: {table: item, kind: sequence, max_len: 5}\n"
    "  clicks: {table: item, kind: sequence}\n"
    "  noise: {table: item, kind: sequence}\n"
    "  price: {kind: dense, dim: 2}\n"
    "  age: {kind: dense, dim: 2, transform: standardize}\n"
    "  hour: {kind: dense, dim: 1, transform: {bucketize: [-0.5, 0.0, 0.4]}}\n"
    "  copy: {kind: dense, dim: 4}\n"
    "labels: {click: {}, buy: {}, bought: {of: buy, given: click}}\n"
    "network:\n"
    "  layers:\n"
    "    - {name: side, mlp: [user_id, {mean: history.v}, age], units: [8], activation: relu}\n"
    "    - {name: interest, attention: {query: item_id.v, keys: history.v}, units: [6], activation: dice}\n"
    "    - {name: steps, gru: [history.v], units: 4}\n"
    "    - {name: evolved, augru: {query: [item_id.v], keys: steps}}\n"
    "    - {name: fm, fm: [user_id, item_id.v, {sum: history.v}]}\n"
    "    - {name: pair, multiply: [user_id, item_id.v, copy]}\n"
    "    - {name: dots, dot_interaction: [user_id, item_id.v, interest]}\n"
    "    - {name: x, concat: [side, interest, evolved, pair, dots, price, hour]}\n"
    "    - {name: full, cross: x, depth: 2}\n"
    "    - {name: low, cross: x, depth: 1, rank: 3}\n"
    "    - {name: n, layer_norm: [full, low]}\n"
    "    - {name: d, dropout: n, rate: 0.3}\n"
    "    - {name: e, experts: d, count: 3, units: [6], activation: prelu}\n"
    "    - {name: ma, mixture: {gate: x, experts: e}}\n"
    "    - {name: mb, mixture: {gate: user_id, experts: e}}\n"
    "    - {name: g, dense: ma, units: 5, activation: gelu}\n"
    "    - {name: wide, sum: [item_id.w, {sum: history.w}]}\n"
    "    - {name: z, dense: [g, fm], units: 1}\n"
    "    - {name: out, add: [z, wide]}\n"
    "    - {name: next, dense: mb, units: 1}\n"
    "    - {name: value, dense: [mb, side], units: 1}\n"
    "  optimizer: {adam: {lr: 0.01}}\n"
    "tasks:\n"
    "  - {name: click, label: click, logit: out}\n"
    "  - {name: cvr, label: bought, logit: next, loss: none}\n"
    "  - {name: buy, label: buy, prob: [click, cvr]}\n"
    "  - {name: amount, label: buy, logit: value, loss: mse}\n";

static const char *network_text(size_t i)
{
    return i < NETWORKS ? nx_networks[i].text : whole;
}

static const char *network_name(size_t i)
{
    return i < NETWORKS ? nx_networks[i].name : "whole";
}

/* The replica's scores of the record are those of the trainer's logits for the same record, bit by
 * bit. */
static void assert_scores(struct trained *trained, struct freshet_replica *replica, const struct fr_buffer *record,
                          const char *name)
{
    static float scores[SAMPLES * FR_TASKS_MAX];
    uint32_t n = SAMPLES, tasks = trained->conf->n_tasks;
    forward(trained, record);
    if (freshet_replica_score_json(replica, (const char *)record->data, record->size, scores, &n) != FRESHET_OK)
        fail_msg("%s: %s", name, freshet_replica_score_problem(replica));
    assert_int_equal(n, trained->batch->n_samples);
    assert_int_equal(freshet_replica_tasks(replica), tasks);
    for (uint32_t k = 0; k < tasks; k++)
        for (uint32_t i = 0; i < n; i++) {
            float logit = fr_graph_logits(trained->graph, k)[i], score = scores[i * tasks + k];
            bool value = fr_loss_prediction(trained->conf->tasks[k].loss) == FR_PREDICTS_VALUE;
            float expected = value ? logit : fr_sigmoidf(logit);
            if (fr_f32_bits(score) != fr_f32_bits(expected))
                fail_msg("%s, task %s, sample %u: %.9g served, %.9g trained", name, trained->conf->tasks[k].name, i,
                         (double)score, (double)expected);
        }
}

static void assert_forms(struct trained *trained, struct freshet_replica *replica, const char *name)
{
    struct fr_buffer record = {0};
    for (int form = 0; form < FORMS; form++) {
        /* not trained: also ids without a row */
        put_record(&record, (enum form)form, 1000, GROUPS);
        assert_scores(trained, replica, &record, name);
        put_record(&record, (enum form)form, 3, 1);
        assert_scores(trained, replica, &record, name);
    }
    fr_buffer_release(&record);
}

FR_CASE(every_network_serves_in_every_form_what_it_learned)
{
    for (size_t i = 0; i <= NETWORKS; i++) {
        struct trained *trained = trained_new(network_text(i), "export.quantize=f32");
        train(trained, BATCHES);
        struct freshet_replica *replica = serve(trained);
        assert_string_equal(freshet_replica_trained_kernel(replica), freshet_replica_scoring_kernel(replica));
        assert_forms(trained, replica, network_name(i));
        freshet_replica_free(replica);
        trained_free(trained);
    }
}

#define ONE_MORE(name, ...) +1
enum {
    OPERATIONS = 0 FR_LAYER_OPS(ONE_MORE),
    ACTIVATIONS = 0 FR_ACTIVATIONS(ONE_MORE),
    LOSSES = 0 FR_TASK_LOSSES(ONE_MORE),
    POOLINGS = 0 FR_ROW_POOLINGS(ONE_MORE),
};

FR_CASE(the_networks_hold_every_operation_pooling_activation_and_loss)
{
    bool operations[OPERATIONS] = {false}, activations[ACTIVATIONS] = {false}, losses[LOSSES] = {false},
         poolings[POOLINGS] = {false};
    for (size_t i = 0; i <= NETWORKS; i++) {
        struct trained *trained = trained_new(network_text(i), "export.quantize=f32");
        for (uint32_t l = 0; l < trained->conf->n_layers; l++) {
            const struct fr_conf_layer *layer = &trained->conf->layers[l];
            operations[layer->op] = true;
            activations[layer->activation] = true;
            for (uint32_t r = 0; r < layer->n_refs; r++)
                poolings[layer->refs[r].pooling] |= layer->refs[r].kind == FR_REF_POOLED;
        }
        for (uint32_t k = 0; k < trained->conf->n_tasks; k++)
            losses[trained->conf->tasks[k].loss] = true;
        trained_free(trained);
    }
    for (size_t op = 0; op < sizeof(operations); op++)
        if (!operations[op])
            fail_msg("no network has operation %zu of enum fr_layer_op", op);
    for (size_t a = 0; a < sizeof(activations); a++)
        if (!activations[a])
            fail_msg("no network has activation %zu of enum fr_activation", a);
    for (size_t p = 0; p < sizeof(poolings); p++)
        if (!poolings[p])
            fail_msg("no network pools rows by %s", fr_pooling_text((enum fr_pooling)p));
    for (size_t k = 0; k < sizeof(losses); k++)
        if (!losses[k])
            fail_msg("no network has a task of loss %s", fr_task_loss_text((enum fr_task_loss)k));
}

/* ---- what scores mean ---- */

enum { HALVES = 300 };
static const float HALF = 0.5f, NEAR_HALF = 0.05f;

/* One task of the loss, all of whose labels are one half. */
static struct trained *trained_on_halves(enum fr_task_loss loss)
{
    char text[4096];
    struct fr_buffer record = {0};
    snprintf(text, sizeof(text),
             NX_HEAD "network:\n  optimizer: {adam: {lr: 0.02}}\n  layers:\n"
                     "    - {name: out, dense: [user_id, price], units: 1, init: zeros}\n"
                     "tasks: [{name: half, label: click, logit: out, loss: %s}]\n",
             fr_task_loss_text(loss));
    struct trained *trained = trained_new(text, "export.quantize=f32");
    trained->conf->tasks[0].focal_alpha = 0.5f; /* a half is where both classes weigh the same */
    for (int b = 0; b < HALVES; b++) {
        double mean = 0;
        put_record(&record, FORM_SAMPLES, (uint64_t)b % 4 * GROUPS, GROUPS);
        forward(trained, &record);
        for (uint32_t i = 0; i < trained->batch->n_samples; i++)
            trained->batch->labels[i] = HALF;
        assert_int_equal(fr_graph_train(trained->graph, trained->batch, &trained->rows, &mean), FR_OK);
    }
    fr_buffer_release(&record);
    return trained;
}

/* Whatever a row of the vocabulary says of a loss, training knows what its output means: on halves
 * it learns what makes a half, and a half is what replicas have to serve. */
FR_CASE(a_model_of_any_loss_that_learned_halves_serves_halves)
{
    for (int loss = 0; loss < LOSSES; loss++) {
        static float scores[SAMPLES];
        struct trained *trained = trained_on_halves((enum fr_task_loss)loss);
        struct freshet_replica *replica = serve(trained);
        struct fr_buffer record = {0};
        uint32_t n = SAMPLES;
        put_record(&record, FORM_SAMPLES, 0, GROUPS);
        assert_int_equal(freshet_replica_score_json(replica, (const char *)record.data, record.size, scores, &n),
                         FRESHET_OK);
        double mean = 0.0;
        for (uint32_t i = 0; i < n; i++)
            mean += (double)scores[i] / (double)n;
        if (!(fabs(mean - (double)HALF) < (double)NEAR_HALF))
            fail_msg("%s: %g served on average, %g learned", fr_task_loss_text((enum fr_task_loss)loss), mean,
                     (double)HALF);
        fr_buffer_release(&record);
        freshet_replica_free(replica);
        trained_free(trained);
    }
}

FR_CASE(groups_score_as_their_plain_samples_within_1e_5_in_the_logit)
{
    for (size_t i = 0; i <= NETWORKS; i++) {
        struct trained *trained = trained_new(network_text(i), "export.quantize=f32");
        struct fr_buffer record = {0};
        float plain[FR_TASKS_MAX][SAMPLES] = {{0}}; /* the first form fills it */
        train(trained, BATCHES);
        for (int form = 0; form < FORMS; form++) {
            put_record(&record, (enum form)form, 500, GROUPS);
            forward(trained, &record);
            assert_int_equal(trained->batch->n_groups, form == FORM_SAMPLES ? SAMPLES : GROUPS);
            for (uint32_t k = 0; k < trained->conf->n_tasks; k++) {
                const float *logits = fr_graph_logits(trained->graph, k);
                if (form == FORM_SAMPLES)
                    memcpy(plain[k], logits, sizeof(plain[k]));
                for (uint32_t s = 0; s < SAMPLES; s++)
                    if (!(fabsf(logits[s] - plain[k][s]) <= 1e-5f))
                        fail_msg("%s, sample %u: logit %.9g in form %d, %.9g plain", network_name(i), s,
                                 (double)logits[s], form, (double)plain[k][s]);
            }
        }
        fr_buffer_release(&record);
        trained_free(trained);
    }
}

FR_CASE(a_sample_scores_alone_as_among_others)
{
    if (!fr_ops_cpu()->rows_independent)
        skip(); /* without FMA the bits depend on the place in the chunk */
    for (size_t i = 0; i <= NETWORKS; i++) {
        struct trained *trained = trained_new(network_text(i), "export.quantize=f32");
        train(trained, BATCHES);
        struct freshet_replica *replica = serve(trained);
        struct fr_buffer record = {0};
        static float all[SAMPLES * FR_TASKS_MAX], one[FR_TASKS_MAX];
        uint32_t tasks = trained->conf->n_tasks, n = SAMPLES;
        put_record(&record, FORM_SAMPLES, 700, GROUPS);
        assert_int_equal(freshet_replica_score_json(replica, (const char *)record.data, record.size, all, &n),
                         FRESHET_OK);
        for (uint32_t s = 0; s < SAMPLES; s += 7) {
            record.size = 0;
            put_sample(&record, true, 700 * GROUP + s);
            n = 1;
            assert_int_equal(freshet_replica_score_json(replica, (const char *)record.data, record.size, one, &n),
                             FRESHET_OK);
            assert_memory_equal(one, all + s * tasks, tasks * sizeof(float));
        }
        fr_buffer_release(&record);
        freshet_replica_free(replica);
        trained_free(trained);
    }
}

/* What f16 leaves of the trained values; returns how many exact values it would have changed. */
static size_t quantize(struct trained *trained)
{
    size_t n = fr_graph_parameter_count(trained->graph), spared = 0;
    struct fr_parameter *parameters = fr_graph_parameters(trained->graph);
    for (uint32_t t = 0; t < trained->conf->n_tables; t++)
        for (uint32_t r = 0; r < trained->tables[t].n; r++)
            for (uint32_t i = 0; i < trained->tables[t].layout.value_floats; i++) {
                float *value = trained->tables[t].rows + (size_t)r * trained->tables[t].layout.row_floats + i;
                *value = fr_quantized(*value, FR_CODEC_F16);
            }
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < parameters[p].n_values; i++) {
            float half = fr_quantized(parameters[p].values[i], FR_CODEC_F16);
            spared += parameters[p].exact && half != parameters[p].values[i];
            if (!parameters[p].exact)
                parameters[p].values[i] = half;
        }
    return spared;
}

FR_CASE(under_f16_rows_and_parameters_are_halves_and_statistics_exact)
{
    size_t spared = 0;
    for (size_t i = 0; i <= NETWORKS; i++) {
        struct trained *trained = trained_new(network_text(i), "export.quantize=f16");
        train(trained, BATCHES);
        struct freshet_replica *replica = serve(trained);
        assert_int_equal(trained->saturated, 0);
        spared += quantize(trained);
        assert_forms(trained, replica, network_name(i));
        freshet_replica_free(replica);
        trained_free(trained);
    }
    assert_true(spared > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_network_serves_in_every_form_what_it_learned),
        cmocka_unit_test(the_networks_hold_every_operation_pooling_activation_and_loss),
        cmocka_unit_test(a_model_of_any_loss_that_learned_halves_serves_halves),
        cmocka_unit_test(groups_score_as_their_plain_samples_within_1e_5_in_the_logit),
        cmocka_unit_test(a_sample_scores_alone_as_among_others),
        cmocka_unit_test(under_f16_rows_and_parameters_are_halves_and_statistics_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
