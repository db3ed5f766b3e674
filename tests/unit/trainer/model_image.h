/* What a trainer has learned, as bytes, for tests that compare two of them. */
#ifndef FR_TESTS_TRAINER_MODEL_IMAGE_H
#define FR_TESTS_TRAINER_MODEL_IMAGE_H

#include "trainer_fixture.h"

#include "../graph/whole_state.h"
#include "../../../trainer/trainer_private.h"

/* Parameters as trained and as published, their state, metrics and the watermark; not the store. */
static inline void model_image(const struct fr_trainer *trainer, struct fr_buffer *out)
{
    size_t n = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < n; i++)
        for (int published = 0; published < 2; published++)
            fr_buffer_append(out, published ? parameters[i].published : parameters[i].values,
                             parameters[i].n_values * sizeof(float));
    save_state(trainer->graph, out);
    for (uint32_t i = 0; i < trainer->conf->n_tasks; i++) {
        struct fr_metrics_section section = {0};
        fr_metrics_section_add(&section, trainer->conf->tasks[i].name, trainer->measuring.tasks[i]);
        fr_metrics_section_encode(&section, out);
        fr_task_metrics_encode(trainer->measuring.tasks[i], out);
    }
    fr_put_u64(out, (uint64_t)trainer->history.watermark_ms);
}

/* Releases both. */
static inline void assert_same_image(struct fr_buffer *x, struct fr_buffer *y)
{
    assert_int_equal(x->size, y->size);
    assert_memory_equal(x->data, y->data, x->size);
    fr_buffer_release(x);
    fr_buffer_release(y);
}

#endif
