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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"

void fr_trainer_cuts_init(struct fr_trainer *trainer)
{
    struct fr_cuts *cuts = &trainer->cuts;
    size_t n_parameters = fr_graph_parameter_count(trainer->graph);
    cuts->journaled = fr_alloc(n_parameters + 1, sizeof(*cuts->journaled));
    cuts->published = fr_alloc(n_parameters + 1, sizeof(*cuts->published));
    for (size_t i = 0; i < n_parameters; i++)
        cuts->journaled[i] = cuts->published[i] = FR_NEVER;
    cuts->journaled_shared = FR_NEVER;
    cuts->last_ns = fr_mono_ns(trainer->options.clock);
}

void fr_trainer_cuts_release(struct fr_trainer *trainer)
{
    free(trainer->cuts.journaled);
    free(trainer->cuts.published);
    fr_buffer_release(&trainer->cuts.carried);
}

static uint64_t ms_to_ns(int64_t ms)
{
    return (uint64_t)ms * 1000000u;
}

uint64_t fr_trainer_late_ns(const struct fr_conf *conf)
{
    return ms_to_ns(2 * conf->epoch_ms > FR_LATE_MS ? 2 * conf->epoch_ms : FR_LATE_MS);
}

/* ---- when a cut is due ---- */

/* Whether an epoch without samples would only make the journal grow. */
static bool skips_heartbeats(const struct fr_trainer *trainer)
{
    const atomic_bool *heartbeats = trainer->options.heartbeats;
    return trainer->board.status.pause != FR_PAUSE_NONE || trainer->history.held ||
           (heartbeats && !atomic_load(heartbeats));
}

enum fr_epoch_wanted fr_trainer_epoch_wanted(const struct fr_trainer *trainer)
{
    const atomic_int *wanted = trainer->options.epoch_wanted;
    return wanted ? (enum fr_epoch_wanted)atomic_load(wanted) : FR_EPOCH_NOT_WANTED;
}

bool fr_trainer_cut_due(const struct fr_trainer *trainer, uint64_t now_ns, bool after_batch)
{
    const struct fr_conf *conf = trainer->conf;
    bool consumed = trainer->cuts.consumed || after_batch;
    uint64_t batches = trainer->history.batches + after_batch;
    if (conf->ingest.lockstep) /* a function of the log, also after a kill */
        return consumed && batches > 0 && batches % conf->ingest.lockstep_epoch_batches == 0;
    if (trainer->epoch == 0 && !consumed)
        return false; /* without an epoch there is no topic to keep alive */
    uint64_t since_ns = now_ns - trainer->cuts.last_ns;
    if (!consumed && skips_heartbeats(trainer)) /* the end of a pause may need an epoch */
        return trainer->board.status.pause != FR_PAUSE_NONE && !trainer->history.held &&
               since_ns >= ms_to_ns(conf->epoch_ms) && fr_trainer_epoch_wanted(trainer) != FR_EPOCH_NOT_WANTED;
    if (consumed && since_ns >= ms_to_ns(conf->epoch_ms))
        return true;
    if (fr_pipeline_dirty_bytes(trainer) >= conf->epoch_bytes_max || trainer->memory.cut_wanted)
        return true;
    return since_ns >= ms_to_ns(conf->heartbeat_ms);
}

bool fr_trainer_cut_late(struct fr_trainer *trainer, uint64_t now_ns, char *text, size_t size)
{
    struct fr_cuts *cuts = &trainer->cuts;
    if (!cuts->due_ns || now_ns - cuts->due_ns < fr_trainer_late_ns(trainer->conf))
        return false;
    const char *what = trainer->options.waits_for ? atomic_load(trainer->options.waits_for) : NULL;
    what = what ? what : "the disk under state_dir";
    snprintf(text, size, "epoch %" PRIu64 " cannot be cut: epochs before it are not durable and wait for %s",
             trainer->epoch + 1, what);
    if (!cuts->late_reported)
        fr_log(FR_LOG_WARN, "trainer", "cut_late", "epoch=%" PRIu64 " waits_for=\"%s\" note=\"reading waits too\"",
               trainer->epoch + 1, what);
    cuts->late_reported = true;
    return true;
}

/* Called after a cut: no cut is late any more. */
static void end_lateness(struct fr_trainer *trainer, uint64_t now_ns)
{
    struct fr_cuts *cuts = &trainer->cuts;
    if (cuts->late_reported)
        fr_log(FR_LOG_INFO, "trainer", "cut_in_time", "epoch=%" PRIu64 " late_seconds=%.1f", trainer->epoch,
               (double)(now_ns - cuts->due_ns) / 1e9);
    cuts->late_reported = false;
    cuts->due_ns = 0;
}

/* ---- how much is produced ---- */

/* In lockstep mode the open epoch is not counted, because its cut depends on batches and not on
 * time, and a pause would keep those batches from arriving. */
static void measure_produced(struct fr_trainer *trainer)
{
    struct fr_cuts *cuts = &trainer->cuts;
    uint64_t open = 0;
    if (cuts->consumed && !trainer->conf->ingest.lockstep)
        open = fr_pipeline_dirty_bytes(trainer) + cuts->section_bytes;
    atomic_store(&cuts->produced, cuts->bytes + open);
}

void fr_trainer_add_to_epoch(struct fr_trainer *trainer)
{
    struct fr_cuts *cuts = &trainer->cuts;
    uint64_t bytes = fr_pipeline_dirty_bytes(trainer), before = trainer->pipeline.begin.dirty_bytes;
    if (bytes > before + cuts->batch_bytes)
        cuts->batch_bytes = bytes - before;
    cuts->consumed = true;
    trainer->history.closed = false;
    measure_produced(trainer);
}

/* Returns how many bytes the next batch may add: as many as any batch before it, and as the first
 * batch of an epoch also the epoch's sections and what slices changed since the cut. The result is
 * at most half of what a fold makes room for (2 x unfolded_max), so that a batch always fits once
 * everything is folded. */
static uint64_t next_bytes(const struct fr_trainer *trainer)
{
    const struct fr_cuts *cuts = &trainer->cuts;
    if (trainer->conf->ingest.lockstep)
        return 0;
    uint64_t bytes = cuts->batch_bytes;
    if (!cuts->consumed)
        bytes += cuts->section_bytes + fr_pipeline_dirty_bytes(trainer);
    return bytes < trainer->conf->unfolded_max ? bytes : trainer->conf->unfolded_max;
}

/* A fold is requested if the open epoch has no batch, because then no cut will bring the journal to
 * unfolded_max, which starts a fold otherwise. */
bool fr_trainer_at_limit(const struct fr_trainer *trainer)
{
    uint64_t produced = atomic_load(&trainer->cuts.produced), allowed = trainer->board.allowed.bytes;
    if (produced < allowed && next_bytes(trainer) < allowed - produced)
        return false;
    if (!trainer->cuts.consumed && trainer->options.fold_wanted)
        atomic_store(trainer->options.fold_wanted, true);
    return true;
}

uint64_t fr_trainer_produced_bytes(const struct fr_trainer *trainer)
{
    return atomic_load(&trainer->cuts.produced);
}

/* ---- what goes into an epoch ---- */

/* Whether every change of a dense parameter is published. */
static bool dense_published(const struct fr_trainer *trainer)
{
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < count; i++)
        if (trainer->cuts.published[i] != parameters[i].changes)
            return false;
    return true;
}

void fr_trainer_update_dense_since(struct fr_trainer *trainer)
{
    _Atomic uint64_t *since = &trainer->cuts.dense_since;
    if (!trainer->history.dense_published)
        atomic_store(since, 0);
    else if (atomic_load(since) == 0)
        atomic_store(since, trainer->epoch);
}

uint64_t fr_trainer_dense_since(const struct fr_trainer *trainer)
{
    return atomic_load(&trainer->cuts.dense_since);
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

/* publish: also stages the changes that earlier epochs journaled without publishing them; whole:
 * all parameters, changed or not. */
static void stage_dense(struct fr_trainer *trainer, struct fr_stage *stage, bool publish, bool whole)
{
    struct fr_cuts *cuts = &trainer->cuts;
    size_t count = fr_graph_parameter_count(trainer->graph);
    const struct fr_parameter *parameters = fr_graph_parameters(trainer->graph);
    for (size_t i = 0; i < count; i++) {
        uint64_t changes = parameters[i].changes;
        bool changed = cuts->journaled[i] != changes;
        if (changed || (publish && (whole || cuts->published[i] != changes)))
            stage_parameter(trainer, i, stage);
        if (changed) {
            char name[FR_SECTION_NAME_MAX];
            snprintf(name, sizeof(name), FR_SECTION_DENSE_STATE "%s", parameters[i].name);
            fr_graph_save_parameter(trainer->graph, i, fr_stage_section(stage, name));
        }
        cuts->journaled[i] = changes;
        if (publish)
            cuts->published[i] = changes;
    }
    if (cuts->journaled_shared == fr_graph_shared_changes(trainer->graph))
        return;
    fr_graph_save_shared(trainer->graph, fr_stage_section(stage, "dense_state"));
    cuts->journaled_shared = fr_graph_shared_changes(trainer->graph);
}

void fr_trainer_carry(struct fr_trainer *trainer, const char *name, const struct fr_buffer *section)
{
    struct fr_cuts *cuts = &trainer->cuts;
    FR_CHECK(cuts->carried_name[0] == '\0' && strlen(name) < FR_SECTION_NAME_MAX);
    snprintf(cuts->carried_name, sizeof(cuts->carried_name), "%s", name);
    fr_buffer_append(&cuts->carried, section->data, section->size);
}

void fr_trainer_other_model(struct fr_trainer *trainer)
{
    trainer->cuts.other_model = true;
}

static void stage_carried(struct fr_cuts *cuts, struct fr_stage *stage)
{
    if (cuts->carried_name[0] == '\0')
        return;
    fr_buffer_append(fr_stage_section(stage, cuts->carried_name), cuts->carried.data, cuts->carried.size);
    cuts->carried_name[0] = '\0';
    fr_buffer_release(&cuts->carried);
}

enum fr_status fr_trainer_reserve_stage(struct fr_trainer *trainer, uint64_t wait_ns)
{
    struct fr_cuts *cuts = &trainer->cuts;
    void *item = NULL;
    if (cuts->stage)
        return FR_OK;
    enum fr_status popped = fr_ring_pop(trainer->options.free_stages, &item, wait_ns);
    if (popped == FR_OK)
        cuts->stage = item;
    else if (cuts->consumed && !cuts->due_ns)
        cuts->due_ns = fr_mono_ns(trainer->options.clock);
    return popped;
}

/* Whether the epoch that is cut publishes the model and the parameters. */
static void choose_published(const struct fr_trainer *trainer, bool last, uint64_t now_ns, struct fr_announcement *out)
{
    const struct fr_cuts *cuts = &trainer->cuts;
    bool due = last || trainer->conf->ingest.lockstep || dense_wanted(trainer) ||
               now_ns - cuts->last_dense_ns >= ms_to_ns(trainer->conf->export_.dense_every_ms);
    out->publish_model = trainer->epoch == 0 || cuts->other_model;
    out->publish_dense = out->publish_model || (due && !dense_published(trainer));
}

enum fr_status fr_trainer_cut(struct fr_trainer *trainer, bool last)
{
    struct fr_cuts *cuts = &trainer->cuts;
    uint64_t begin_ns = fr_mono_ns(trainer->options.clock), traced_ns = fr_trace_begin();
    struct fr_stage *stage = cuts->stage;
    FR_CHECK(stage);
    cuts->stage = NULL;
    fr_pipeline_move(trainer, FR_MOVE_INTERRUPT);
    struct fr_announcement *announced = fr_alloc(1, sizeof(*announced));
    choose_published(trainer, last, begin_ns, announced);
    if (trainer->provider->fetch(trainer) != FR_OK || fr_trainer_announce(trainer, announced) != FR_OK) {
        free(announced);
        return FR_AGAIN; /* the next step reports the failure; nothing needs the stage any more */
    }
    bool with_model = announced->publish_model, with_dense = announced->publish_dense;
    fr_stage_clear(stage);

    trainer->epoch++;
    trainer->history.closed = last;
    stage->epoch = trainer->epoch;
    stage->timeline = 1; /* fr_durable_append replaces it with the state's */
    stage->dead_sequence = trainer->dead_sequence;
    if (!trainer->history.held)
        trainer->history.publishable = trainer->epoch;
    stage->publishable = trainer->history.publishable;
    stage->cut_mono_ns = begin_ns;
    stage->last = last;
    trainer->provider->cut(trainer, stage);
    fr_announcement_encode(announced, fr_stage_section(stage, "announce"));
    free(announced);
    stage_dense(trainer, stage, with_dense, with_model);
    cuts->other_model = false;
    trainer->options.stream.stage(trainer->options.stream.self, fr_stage_section(stage, "positions"));
    fr_trainer_stage_metrics(trainer, stage);
    stage_carried(cuts, stage);
    trainer->history.dense_published = dense_published(trainer);
    fr_trainer_update_dense_since(trainer);
    fr_trainer_section_encode(&trainer->history, fr_stage_section(stage, FR_SECTION_TRAINER));
    uint64_t bytes = fr_stage_bytes(stage);
    uint64_t section_bytes = bytes - stage->image_bytes - (uint64_t)stage->n_images * FR_IMAGE_HEAD;
    if (cuts->consumed && section_bytes > cuts->section_bytes)
        cuts->section_bytes = section_bytes;
    cuts->bytes += bytes;
    bool pushed = fr_ring_try_push(trainer->options.cut_stages, stage);
    FR_CHECK(pushed); /* the ring has as many places as there are stages */

    if (with_dense)
        cuts->last_dense_ns = begin_ns;
    cuts->last_ns = begin_ns;
    cuts->consumed = false;
    end_lateness(trainer, begin_ns);
    measure_produced(trainer);
    trainer->run.cuts++;
    uint64_t took_ns = fr_mono_ns(trainer->options.clock) - begin_ns;
    trainer->run.cut_ns += took_ns;
    fr_trace_end("cut", traced_ns);
    fr_timings_observe(trainer->options.timings, FR_TIMING_CUT, (double)took_ns / 1e9);
    fr_trainer_publish_status(trainer);
    return FR_OK;
}
