/* Two graphs of one network, one on the processor and one on the emulated card, that are given the
 * same batches: the result of each, and how far the results are apart. */
#ifndef FR_TESTS_DEVICE_TWINS_H
#define FR_TESTS_DEVICE_TWINS_H

#include "emulate/emulated.h"
#include "graph/fixture.h"

/* A world and its graph. */
struct twin {
    struct fixture fx;
    struct fr_graph *graph;
    struct fr_device_queue *queue; /* NULL: the processor's */
};

static inline float *tw_row_of(void *self, uint32_t table, uint64_t key)
{
    const struct fixture *fx = self;
    return fx->row_memory[table] + key * fx->layouts[table].row_floats;
}

/* The places of first values for the next tw_open; NULL: the host sends the rows that a batch
 * makes. */
static const struct fr_value_place *tw_places;

/* Makes the graph of a twin whose fixture is made. `row_bytes_max` 0: all rows may stay on the
 * device. */
static inline void tw_open(struct twin *twin, bool device, size_t row_bytes_max)
{
    struct fr_err err = {0};
    struct fr_graph_device options = {
        .row_of = tw_row_of, .self = &twin->fx, .row_bytes_max = row_bytes_max, .first_places = tw_places};
    if (device)
        assert_int_equal(fr_emulate_api()->open(0, &twin->queue, &err), FR_OK);
    options.api = fr_emulate_api();
    options.queue = twin->queue;
    assert_true(twin->fx.loaded);
    twin->graph = fr_graph_new(&(struct fr_graph_options){.conf = &twin->fx.conf, .device = device ? &options : NULL});
    fx_count_enough(twin->graph);
}

static inline void tw_close(struct twin *twin)
{
    fr_graph_free(twin->graph);
    fr_emulate_api()->close(twin->queue);
    fx_release(&twin->fx);
    memset(twin, 0, sizeof(*twin));
}

static inline void tw_fetch(struct twin *twin)
{
    struct fr_err err = {0};
    if (fr_graph_fetch(twin->graph, &err) != FR_OK)
        fail_msg("%s", err.text);
}

static inline uint64_t tw_hash(struct twin *twin)
{
    tw_fetch(twin);
    return fx_hash(&twin->fx, twin->graph);
}

static inline double tw_step(struct twin *twin)
{
    return fx_step(&twin->fx, twin->graph);
}

/* Sums of squared differences and of squares. */
struct distance {
    double difference, size;
};

static inline void tw_add(struct distance *d, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        d->difference += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        d->size += (double)x[i] * (double)x[i];
        if (isnan(x[i]) != isnan(y[i]))
            d->difference = INFINITY;
    }
}

static inline void tw_near(const char *network, const char *what, struct distance d, double limit)
{
    if (!(d.difference <= limit * (d.size + 1e-12)))
        fail_msg("%s: %s: %g of %g", network, what, d.difference, d.size);
}

/* Expects that parameters, rows and the logits of the last batch differ by at most `limit`. */
static inline void tw_compare(const char *network, struct twin *a, struct twin *b, double limit)
{
    struct distance logits = {0}, rows = {0};
    tw_fetch(a);
    tw_fetch(b);
    for (uint32_t t = 0; t < a->fx.conf.n_tasks; t++)
        tw_add(&logits, fr_graph_logits(a->graph, t), fr_graph_logits(b->graph, t), a->fx.batch.n_samples);
    tw_near(network, "logits", logits, limit);
    for (size_t p = 0; p < fr_graph_parameter_count(a->graph); p++) {
        struct fr_parameter *x = &fr_graph_parameters(a->graph)[p], *y = &fr_graph_parameters(b->graph)[p];
        struct distance values = {0}, published = {0};
        tw_add(&values, x->values, y->values, x->n_values);
        tw_near(network, x->name, values, limit);
        tw_add(&published, x->published, y->published, x->n_values);
        tw_near(network, x->name, published, limit);
        assert_int_equal(x->changes, y->changes);
    }
    for (uint32_t t = 0; t < a->fx.conf.n_tables; t++)
        tw_add(&rows, a->fx.row_memory[t], b->fx.row_memory[t], (size_t)a->fx.vocabulary * a->fx.layouts[t].row_floats);
    tw_near(network, "rows", rows, limit);
}

#endif
