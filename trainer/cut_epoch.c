/* The cut: when an epoch ends, and what of the owner's state goes into its stage
 * (docs/architecture.md, "One epoch's life").
 *
 * Sections staged here: announce, metrics, positions, trainer in every epoch (small);
 * dense/<parameter> with dense_state/<parameter>, dense_state and metrics/<task> in epochs during
 * which they changed; the store adds its own. The code that changes something counts the changes,
 * and the count is compared with that at the last epoch. An epoch with trained samples contains
 * everything that its samples changed, because recovery must end at exactly the cut; an epoch
 * without a trained sample contains none of it. An epoch that publishes the dense parameters
 * (export.dense_every) also repeats those changed since the last that did. A cut only copies, and
 * training continues as soon as the stage is handed over. The durable thread sorts, encodes and
 * syncs. Owner thread only. */
#include "trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"

static uint64_t ms_to_ns(int64_t ms)
{
    return (uint64_t)ms * 1000000u;
}

uint64_t fr_trainer_late_ns(const struct fr_conf *conf)
{
    return ms_to_ns(2 * conf->epoch_ms > FR_LATE_MS ? 2 * conf->epoch_ms : FR_LATE_MS);
}

/* An epoch without samples is of use to nobody now, and the journal would grow by it. */
static bool keeps_still(const struct fr_trainer *trainer)
{
    const atomic_bool *heartbeats = trainer->options.heartbeats;
    return trainer->waits || trainer->history.held || (heartbeats && !atomic_load(heartbeats));
}

int fr_trainer_epoch_wanted(const struct fr_trainer *trainer)
{
    const atomic_int *wanted = trainer->options.epoch_wanted;
    return wanted ? atomic_load(wanted) : FR_EPOCH_NOT_WANTED;
}

static bool is_due(const struct fr_trainer *trainer, uint64_t now_ns, bool consumed, uint64_t batches)
{
    const struct fr_conf *conf = trainer->conf;
    if (conf->ingest.lockstep) /* a function of the log, so that killed and whole runs cut alike */
        return consumed && batches > 0 && batches % conf->ingest.lockstep_epoch_batches == 0;
    if (trainer->epoch == 0 && !consumed)
        return false; /* no history yet: nothing to keep alive */
    uint64_t since_ns = now_ns - trainer->last_cut_ns;
    if (!consumed && keeps_still(trainer)) /* what ends the pause may need it */
        return trainer->waits && !trainer->history.held && since_ns >= ms_to_ns(conf->epoch_ms) &&
               fr_trainer_epoch_wanted(trainer) != FR_EPOCH_NOT_WANTED;
    if (consumed && since_ns >= ms_to_ns(conf->epoch_ms))
        return true;
    if (fr_trainer_dirty_bytes(trainer) >= conf->epoch_bytes_max || trainer->memory.cut_wanted)
        return true;
    return since_ns >= ms_to_ns(conf->heartbeat_ms);
}

bool fr_trainer_cut_due(const struct fr_trainer *trainer, uint64_t now_ns)
{
    return is_due(trainer, now_ns, trainer->consumed, trainer->history.batches);
}

bool fr_trainer_cut_follows(const struct fr_trainer *trainer, uint64_t now_ns)
{
    return is_due(trainer, now_ns, true, trainer->history.batches + 1);
}

bool fr_trainer_cut_late(struct fr_trainer *trainer, uint64_t now_ns, char *text, size_t size)
{
    if (!trainer->cut_due_ns || now_ns - trainer->cut_due_ns < fr_trainer_late_ns(trainer->conf))
        return false;
    const char *what = trainer->options.waits_for ? atomic_load(trainer->options.waits_for) : NULL;
    what = what ? what : "the disk under state_dir";
    snprintf(text, size, "epoch %" PRIu64 " cannot be cut: epochs before it are not durable and wait for %s",
             trainer->epoch + 1, what);
    if (!trainer->late_told)
        fr_log(FR_LOG_WARN, "trainer", "cut_late", "epoch=%" PRIu64 " waits_for=\"%s\" note=\"reading waits too\"",
               trainer->epoch + 1, what);
    trainer->late_told = true;
    return true;
}

/* A cut was taken, or none is due. */
static void in_time(struct fr_trainer *trainer, uint64_t now_ns)
{
    if (trainer->late_told)
        fr_log(FR_LOG_INFO, "trainer", "cut_in_time", "epoch=%" PRIu64 " late_seconds=%.1f", trainer->epoch,
               (double)(now_ns - trainer->cut_due_ns) / 1e9);
    trainer->late_told = false;
    trainer->cut_due_ns = 0;
}

/* In lockstep the open epoch is not counted: its cut does not depend on time, and may need batches
 * that a pause would hold back. */
void fr_trainer_measure_produced(struct fr_trainer *trainer)
{
    uint64_t open = 0;
    if (trainer->consumed && !trainer->conf->ingest.lockstep)
        open = fr_trainer_dirty_bytes(trainer) + trainer->section_bytes;
    atomic_store(&trainer->produced, trainer->cut_bytes + open);
}

void fr_trainer_allow(struct fr_trainer *trainer, uint64_t produced_bytes, enum fr_pause why, const char *text)
{
    pthread_mutex_lock(&trainer->lock);
    trainer->allowed = (struct fr_allowance){.bytes = produced_bytes, .why = why};
    snprintf(trainer->allowed.text, sizeof(trainer->allowed.text), "%s", text);
    pthread_mutex_unlock(&trainer->lock);
}

void fr_trainer_measure_batch(struct fr_trainer *trainer)
{
    uint64_t bytes = fr_trainer_dirty_bytes(trainer);
    if (bytes > trainer->dirty_begin + trainer->batch_bytes)
        trainer->batch_bytes = bytes - trainer->dirty_begin;
}

/* What the next batch may bring: as much as any before it, and the first one of an epoch also the
 * epoch's sections and what slices changed since the cut. At most half of what a fold makes room
 * for (2 x unfolded_max), so a batch always comes once all is folded. */
static uint64_t next_bytes(const struct fr_trainer *trainer)
{
    if (trainer->conf->ingest.lockstep)
        return 0;
    uint64_t bytes = trainer->batch_bytes;
    if (!trainer->consumed)
        bytes += trainer->section_bytes + fr_trainer_dirty_bytes(trainer);
    return bytes < trainer->conf->unfolded_max ? bytes : trainer->conf->unfolded_max;
}

/* Between epochs nothing that is cut will bring the journal to unfolded_max, so the fold is asked
 * for. */
bool fr_trainer_at_limit(const struct fr_trainer *trainer)
{
    uint64_t produced = atomic_load(&trainer->produced), allowed = trainer->allowed.bytes;
    if (produced < allowed && next_bytes(trainer) < allowed - produced)
        return false;
    if (!trainer->consumed && trainer->options.fold_wanted)
        atomic_store(trainer->options.fold_wanted, true);
    return true;
}

uint64_t fr_trainer_produced_bytes(const struct fr_trainer *trainer)
{
    return atomic_load(&trainer->produced);
}

static void announce(struct fr_trainer *trainer, struct fr_stage *stage, bool with_model, bool with_dense)
{
    struct fr_announcement *out = fr_alloc(1, sizeof(*out));
    bool lockstep = trainer->conf->ingest.lockstep;
    int64_t watermark_ms = trainer->history.watermark_ms == INT64_MIN ? 0 : trainer->history.watermark_ms;
    out->watermark_ms = watermark_ms;
    out->samples = trainer->history.samples;
    out->wall_ms = lockstep ? watermark_ms : fr_wall_ms(trainer->options.clock);
    out->publish_model = with_model;
    out->publish_dense = with_dense;
    out->n_tasks = trainer->conf->n_tasks;
    for (uint32_t i = 0; i < out->n_tasks; i++) {
        struct fr_auc_result result;
        fr_task_metrics_lifetime(trainer->metrics[i], &result);
        snprintf(out->tasks[i].task, sizeof(out->tasks[i].task), "%s", trainer->conf->tasks[i].name);
        out->tasks[i].auc = result.auc;
    }
    out->n_offsets = trainer->options.stream.offsets(trainer->options.stream.self, &out->offsets);
    if (trainer->options.stream.snapshot)
        trainer->options.stream.snapshot(trainer->options.stream.self, &out->snapshot);
    fr_announcement_encode(out, fr_stage_section(stage, "announce"));
    free(out);
}

/* Everything the newest epoch has of the dense parameters is published. */
static bool dense_published(const struct fr_trainer *trainer)
{
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < count; i++)
        if (trainer->published[i] != parameters[i].changes)
            return false;
    return true;
}

void fr_trainer_note_dense(struct fr_trainer *trainer)
{
    if (!trainer->history.dense_published)
        atomic_store(&trainer->dense_since, 0);
    else if (atomic_load(&trainer->dense_since) == 0)
        atomic_store(&trainer->dense_since, trainer->epoch);
}

uint64_t fr_trainer_dense_since(const struct fr_trainer *trainer)
{
    return atomic_load(&trainer->dense_since);
}

static bool dense_wanted(const struct fr_trainer *trainer)
{
    return trainer->options.dense_wanted && atomic_load(trainer->options.dense_wanted);
}

static void stage_parameter(const struct fr_trainer *trainer, size_t i, struct fr_stage *stage)
{
    const struct fr_parameter *parameter = &fr_graph_parameters(trainer->graph)[i];
    struct fr_dense_view view = {.n_dims = parameter->n_dims,
                                 .shape = {parameter->shape[0], parameter->shape[1]},
                                 .n_values = parameter->n_values,
                                 .values = parameter->published,
                                 .exact = parameter->exact};
    snprintf(view.name, sizeof(view.name), "%s", parameter->name);
    fr_dense_stage(stage, &view);
}

/* whole: what is published already too. */
static void stage_dense(struct fr_trainer *trainer, struct fr_stage *stage, bool publish, bool whole)
{
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < count; i++) {
        uint64_t changes = parameters[i].changes;
        bool changed = trainer->journaled[i] != changes;
        if (changed || (publish && (whole || trainer->published[i] != changes)))
            stage_parameter(trainer, i, stage);
        if (changed) {
            char name[FR_SECTION_NAME_MAX];
            snprintf(name, sizeof(name), FR_SECTION_DENSE_STATE "%s", parameters[i].name);
            fr_graph_save_parameter(trainer->graph, i, fr_stage_section(stage, name));
        }
        trainer->journaled[i] = changes;
        if (publish)
            trainer->published[i] = changes;
    }
    if (trainer->journaled_shared == fr_graph_shared_changes(trainer->graph))
        return;
    fr_graph_save_shared(trainer->graph, fr_stage_section(stage, "dense_state"));
    trainer->journaled_shared = fr_graph_shared_changes(trainer->graph);
}

void fr_trainer_carry(struct fr_trainer *trainer, const char *name, const struct fr_buffer *section)
{
    FR_CHECK(trainer->carried_name[0] == '\0' && strlen(name) < FR_SECTION_NAME_MAX);
    snprintf(trainer->carried_name, sizeof(trainer->carried_name), "%s", name);
    fr_buffer_append(&trainer->carried, section->data, section->size);
}

void fr_trainer_other_model(struct fr_trainer *trainer)
{
    trainer->other_model = true;
}

static void stage_carried(struct fr_trainer *trainer, struct fr_stage *stage)
{
    if (trainer->carried_name[0] == '\0')
        return;
    fr_buffer_append(fr_stage_section(stage, trainer->carried_name), trainer->carried.data, trainer->carried.size);
    trainer->carried_name[0] = '\0';
    fr_buffer_release(&trainer->carried);
}

enum fr_status fr_trainer_cut(struct fr_trainer *trainer, bool last, uint64_t wait_ns)
{
    void *item = NULL;
    enum fr_status popped = fr_ring_pop(trainer->options.free_stages, &item, wait_ns);
    if (popped != FR_OK) {
        if (trainer->consumed && !trainer->cut_due_ns)
            trainer->cut_due_ns = fr_mono_ns(trainer->options.clock);
        return popped;
    }
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    struct fr_stage *stage = item;
    fr_trainer_drop_ahead(trainer);
    if (fr_graph_settle(trainer->graph, NULL) != FR_OK)
        return FR_AGAIN; /* the next step says why; the stage is not needed any more */
    fr_stage_clear(stage);

    bool lockstep = trainer->conf->ingest.lockstep;
    bool with_model = trainer->epoch == 0 || trainer->other_model;
    bool dense_due = last || lockstep || dense_wanted(trainer) ||
                     begin_ns - trainer->last_dense_ns >= ms_to_ns(trainer->conf->export_.dense_every_ms);
    bool with_dense = with_model || (dense_due && !dense_published(trainer));
    trainer->epoch++;
    trainer->history.closed = last;
    stage->epoch = trainer->epoch;
    stage->timeline = 1; /* or the state's, which append knows */
    stage->dead_sequence = trainer->dead_sequence;
    if (!trainer->history.held)
        trainer->history.publishable = trainer->epoch;
    stage->publishable = trainer->history.publishable;
    stage->cut_mono_ns = begin_ns;
    stage->last = last;
    fr_store_cut(trainer->store, stage);
    announce(trainer, stage, with_model, with_dense);
    stage_dense(trainer, stage, with_dense, with_model);
    trainer->other_model = false;
    trainer->options.stream.stage(trainer->options.stream.self, fr_stage_section(stage, "positions"));
    fr_trainer_stage_metrics(trainer, stage);
    stage_carried(trainer, stage);
    trainer->history.dense_published = dense_published(trainer);
    fr_trainer_note_dense(trainer);
    fr_trainer_section_encode(&trainer->history, fr_stage_section(stage, FR_SECTION_TRAINER));
    uint64_t bytes = fr_stage_bytes(stage);
    uint64_t section_bytes = bytes - stage->image_bytes - (uint64_t)stage->n_images * FR_IMAGE_HEAD;
    if (trainer->consumed && section_bytes > trainer->section_bytes)
        trainer->section_bytes = section_bytes;
    trainer->cut_bytes += bytes;
    bool pushed = fr_ring_try_push(trainer->options.cut_stages, stage);
    FR_CHECK(pushed); /* as many places as stages */

    if (with_dense)
        trainer->last_dense_ns = begin_ns;
    trainer->last_cut_ns = begin_ns;
    trainer->consumed = false;
    in_time(trainer, begin_ns);
    fr_trainer_measure_produced(trainer);
    trainer->run.cuts++;
    uint64_t took_ns = fr_mono_ns(trainer->options.clock) - begin_ns;
    trainer->run.cut_ns += took_ns;
    fr_trace_end("cut", traced_ns);
    fr_timings_observe(trainer->options.timings, FR_TIMING_CUT, (double)took_ns / 1e9);
    fr_trainer_publish_status(trainer);
    return FR_OK;
}
