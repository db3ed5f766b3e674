/* Recovery from a durable state: first the sections, then the images, by shards on as many threads
 * as the pool has. Bytes that do not parse are FR_E_CORRUPT: a state is restored completely or not
 * at all. Rows that do not fit into memory stay in the cold store.
 *
 * Thread: the one that opens the state, before the owner's loop begins; restore_image runs on the
 * restore's own threads. */
#include "trainer_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static enum fr_status restore_history(struct fr_trainer *trainer, const uint8_t *bytes, size_t size)
{
    struct fr_trainer_history read, *own = &trainer->history;
    enum fr_status status = fr_trainer_section_parse(bytes, size, &read);
    if (status != FR_OK)
        return status;
    /* like metrics, the counts of a task that the state does not have begin at 0 */
    for (uint32_t t = 0; t < own->n_tasks; t++)
        for (uint32_t i = 0; i < read.n_tasks; i++)
            if (strcmp(read.tasks[i].name, own->tasks[t].name) == 0)
                own->tasks[t] = read.tasks[i];
    memcpy(read.tasks, own->tasks, sizeof(read.tasks));
    read.n_tasks = own->n_tasks;
    *own = read;
    return FR_OK;
}

enum { DENSE_VALUES = 1, DENSE_STATE = 2 };

struct restoring {
    struct fr_trainer *trainer;
    fr_section_restore *other;
    void *other_self;
    void (*progress)(void *self, uint64_t done, uint64_t total);
    uint8_t *dense;            /* [parameters] which of its sections were read: DENSE_* */
    bool own, shared, metrics; /* which of the other sections were read */
    enum fr_status begun;      /* the result of fr_store_restore_begin */
    struct fr_err err;
    struct fr_metrics_restore tasks;
};

/* FR_E_MISMATCH: the network has no such parameter. */
static enum fr_status find_parameter(const struct fr_trainer *trainer, const char *name, size_t *out)
{
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < count; i++)
        if (strcmp(parameters[i].name, name) == 0) {
            *out = i;
            return FR_OK;
        }
    return FR_E_MISMATCH;
}

static enum fr_status restore_values(struct restoring *restoring, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_dense_view view;
    size_t i;
    enum fr_status status = fr_dense_parse(name, bytes, size, &view);
    if (status == FR_OK)
        status = find_parameter(restoring->trainer, view.name, &i);
    if (status != FR_OK)
        return status;
    struct fr_parameter *parameter = &fr_graph_parameters(restoring->trainer->graph)[i];
    if (parameter->n_values != view.n_values)
        return FR_E_MISMATCH;
    /* Where an average is published, the trained values are in the parameter's state. */
    memcpy(parameter->published, view.values, view.n_values * sizeof(float));
    restoring->dense[i] |= DENSE_VALUES;
    return FR_OK;
}

static enum fr_status restore_state(struct restoring *restoring, const char *name, const uint8_t *bytes, size_t size)
{
    size_t i;
    enum fr_status status = find_parameter(restoring->trainer, name + sizeof(FR_SECTION_DENSE_STATE) - 1, &i);
    if (status == FR_OK)
        status = fr_graph_restore_parameter(restoring->trainer->graph, i, bytes, size);
    if (status == FR_OK)
        restoring->dense[i] |= DENSE_STATE;
    return status;
}

static enum fr_status restore_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)thread;
    struct restoring *restoring = self;
    return fr_store_restore_image(restoring->trainer->store, image);
}

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static enum fr_status restore_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct restoring *restoring = self;
    struct fr_trainer *trainer = restoring->trainer;
    enum fr_status stored = fr_store_restore_section(trainer->store, name, bytes, size);
    if (stored != FR_E_NOT_FOUND)
        return stored;
    if (strcmp(name, FR_SECTION_TRAINER) == 0) {
        restoring->own = true;
        return restore_history(trainer, bytes, size);
    }
    if (strcmp(name, FR_SECTION_METRICS) == 0 || begins_with(name, FR_SECTION_METRICS_TASK)) {
        restoring->metrics = true;
        return fr_trainer_restore_metrics(trainer, &restoring->tasks, name, bytes, size);
    }
    if (fr_is_dense_section(name))
        return restore_values(restoring, name, bytes, size);
    if (begins_with(name, FR_SECTION_DENSE_STATE))
        return restore_state(restoring, name, bytes, size);
    if (strcmp(name, "dense_state") == 0) {
        restoring->shared = true;
        return fr_graph_restore_shared(trainer->graph, bytes, size);
    }
    if (restoring->other)
        return restoring->other(restoring->other_self, name, bytes, size);
    return FR_OK;
}

/* Checks that every section was read, from whichever epoch. Until something that was read
 * changes, the next epochs need not contain it. */
static enum fr_status check_whole(const struct restoring *restoring, struct fr_err *err)
{
    struct fr_trainer *trainer = restoring->trainer;
    const char *missing = !restoring->own       ? "trainer"
                          : !restoring->metrics ? "metrics"
                          : !restoring->shared  ? "dense_state"
                                                : NULL;
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (uint32_t i = 0; i < trainer->conf->n_tasks && !missing; i++)
        if (!restoring->tasks.restored[i] &&
            fr_metrics_section_find(&restoring->tasks.section, trainer->conf->tasks[i].name))
            missing = FR_SECTION_METRICS_TASK "..";
    for (size_t i = 0; i < count && !missing; i++) {
        if (restoring->dense[i] != (DENSE_VALUES | DENSE_STATE))
            missing = parameters[i].name;
        trainer->cuts.journaled[i] = parameters[i].changes;
        if (trainer->history.dense_published)
            trainer->cuts.published[i] = parameters[i].changes;
    }
    trainer->cuts.journaled_shared = fr_graph_shared_changes(trainer->graph);
    if (missing)
        return fr_err_set(err, FR_E_CORRUPT, "no epoch holds the section of \"%s\"", missing);
    return FR_OK;
}

/* Called after the sections and before the images. */
static bool wants_cold(void *self)
{
    struct restoring *restoring = self;
    bool wants = true;
    restoring->begun = fr_store_restore_begin(restoring->trainer->store, &wants, &restoring->err);
    return wants;
}

static void restore_progress(void *self, uint64_t done, uint64_t total)
{
    struct restoring *restoring = self;
    if (restoring->progress)
        restoring->progress(restoring->other_self, done, total);
}

enum fr_status fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable,
                                  const struct fr_trainer_restore_options *options, struct fr_err *err)
{
    struct fr_durable_status durable_status;
    fr_durable_get_status(durable, &durable_status);
    fr_store_open_state(trainer->store, durable_status.salt, durable);
    fr_trainer_measure_memory(trainer, 0);
    if (durable_status.epoch == 0)
        return FR_OK;
    struct restoring restoring = {
        .trainer = trainer, .other = options->other, .other_self = options->self, .progress = options->progress};
    restoring.dense = fr_alloc(fr_graph_parameter_count(trainer->graph) + 1, 1);
    struct fr_restore_visitor visitor = {.self = &restoring,
                                         .first = options->first,
                                         .image = restore_image,
                                         .section = restore_section,
                                         .wants_cold = wants_cold,
                                         .progress = restore_progress,
                                         .stop = options->stop,
                                         .threads = fr_pool_workers(trainer->options.pool)};
    enum fr_status status = fr_durable_restore(durable, &visitor, err);
    if (restoring.begun != FR_OK) {
        status = restoring.begun;
        if (err)
            *err = restoring.err;
    }
    if (status == FR_OK)
        status = fr_store_restore_end(trainer->store, err);
    if (status == FR_OK)
        status = check_whole(&restoring, err);
    free(restoring.dense);
    if (status != FR_OK)
        return fr_err_wrap(err, "restoring the state of epoch %llu", (unsigned long long)durable_status.epoch);
    trainer->epoch = durable_status.epoch;
    fr_trainer_update_dense_since(trainer);
    fr_trainer_publish_status(trainer);
    return FR_OK;
}
