/* The series of /metrics, set from snapshots on the main thread (docs/metrics.md, "Series"). They
 * are told to a Prometheus that knows nothing of us:
 *
 * What is not known is NaN, never the last value that was: during an outage lag and positions of
 * the log are not known.
 *
 * Counters of the history live as long as the model. They appear when it is recovered, and show
 * what is durable only: after a crash training goes on from there, and a counter that fell would
 * count from zero again. Counters of the process begin at zero with it.
 *
 * A new number is one line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "service.h"

/* ---- what may be shown ---- */

static void keep(struct fr_trainer_status **at, const struct fr_trainer_status *status)
{
    if (!*at)
        *at = fr_alloc(1, sizeof(**at));
    **at = *status;
}

/* What a status counts is durable with its epoch, or with the next one when that is open. */
static bool is_durable(const struct fr_trainer_status *status, uint64_t durable)
{
    return durable >= status->epoch + status->open;
}

const struct fr_trainer_status *fr_documents_settle(struct fr_settled *settled, const struct fr_trainer_status *now,
                                                    uint64_t durable)
{
    if (settled->waiting && is_durable(settled->waiting, durable)) {
        free(settled->shown);
        settled->shown = settled->waiting;
        settled->waiting = NULL;
    }
    if (is_durable(now, durable))
        keep(&settled->shown, now);
    else if (!settled->waiting) /* a later one would never become durable while data comes */
        keep(&settled->waiting, now);
    return settled->shown;
}

void fr_documents_settled_release(struct fr_settled *settled)
{
    free(settled->shown);
    free(settled->waiting);
    *settled = (struct fr_settled){0};
}

/* ---- state ---- */

static void series_paused(struct fr_registry *registry, enum fr_pause pause, enum fr_ingest_pause refused)
{
    static const char help[] = "1 while reading is paused for the reason; /status has the text.";
    for (int why = FR_PAUSE_NONE + 1; why < FR_PAUSE_KINDS; why++) {
        char labels[64] = "";
        fr_metric_label(labels, sizeof(labels), "reason", fr_trainer_pauses[why]);
        fr_gauge(registry, "freshet_paused", labels, help, why == (int)pause);
    }
    fr_gauge(registry, "freshet_paused", "reason=\"malformed\"", help, refused == FR_INGEST_PAUSED_RECORDS);
    fr_gauge(registry, "freshet_paused", "reason=\"clock\"", help, refused == FR_INGEST_PAUSED_CLOCK);
}

static void series_state(struct fr_service *service, const struct fr_snapshots *s)
{
    struct fr_registry *registry = service->registry;
    uint64_t total = atomic_load(&service->recover_bytes);
    double progress = total ? (double)atomic_load(&service->recovered_bytes) / (double)total : 0;
    bool started = atomic_load(&service->ingest_started);
    fr_gauge(registry, "freshet_ready", NULL, "1 while /readyz answers 200: recovered, and reading within ready_lag.",
             s->ready);
    fr_gauge(registry, "freshet_connected", NULL, "1 while a broker of the sample topics is connected.",
             started && s->ingest.connected);
    fr_gauge(registry, "freshet_recovery_progress", NULL, "Share of the state that this start has recovered.",
             s->recovered ? 1 : progress);
    fr_gauge(registry, "freshet_lag_seconds", NULL,
             "Wall time minus Kafka timestamp of the last record polled; 0 at the end of the log, NaN while no broker "
             "is connected.",
             started && s->ingest.connected ? (double)s->ingest.lag_ms / 1e3 : (double)NAN);
    series_paused(registry, s->trainer.pause, s->ingest.pause);
}

/* ---- the stream ---- */

static void series_unknown(struct fr_registry *registry, const char *of, const struct fr_unknown_names *names)
{
    for (uint32_t i = 0; i < names->n; i++) {
        char labels[2 * FR_UNKNOWN_NAME_MAX + 32] = "";
        fr_metric_label(labels, sizeof(labels), "of", of);
        fr_metric_label(labels, sizeof(labels), "name", names->names[i]);
        fr_counter(
            registry, "freshet_unknown_names_total", labels,
            "Values of names that the configuration does not have, ignored by this process: the first few names.",
            names->counts[i]);
    }
}

static void series_records(struct fr_registry *registry, const struct fr_snapshots *s)
{
    const struct fr_ingest_status *ingest = &s->ingest;
    fr_counter(registry, "freshet_records_total", NULL, "Records polled by this process.", ingest->records);
    fr_counter(registry, "freshet_record_bytes_total", NULL, "Bytes of records polled by this process.", ingest->bytes);
    for (int kind = 0; kind < FR_MALFORMED_KINDS; kind++) {
        char labels[64] = "";
        fr_metric_label(labels, sizeof(labels), "reason", fr_malformed_names[kind]);
        fr_counter(registry, "freshet_records_malformed_total", labels,
                   "Malformed records that became dead letters of this process, by reason.",
                   ingest->malformed_kinds[kind]);
    }
    series_unknown(registry, "slots", &ingest->unknown.slots);
    series_unknown(registry, "keys", &ingest->unknown.keys);
    fr_counter(registry, "freshet_records_future_total", "than=\"timestamp\"",
               "Records refused by this process because their event time lies further than future_max after the Kafka "
               "timestamp, or after the clock of this host.",
               ingest->future_timestamp);
    fr_counter(registry, "freshet_records_future_total", "than=\"clock\"", "", ingest->future_clock);
    fr_counter(registry, "freshet_records_repeated_total", NULL,
               "Records that the client library delivered to this process again, dropped.", ingest->dropped_duplicates);
    fr_counter(registry, "freshet_records_quarantined_total", NULL,
               "Records dead-lettered by this process for samples that were not finite.",
               s->trainer.run.quarantined_records);
    fr_counter(registry, "freshet_dead_letters_sent_total", NULL,
               "Dead letters of this process that their topic has acknowledged.", ingest->dead_sent);
    fr_counter(registry, "freshet_dead_letters_failed_total", NULL,
               "Refusals of dead letters of this process by their topic; each is sent again.", ingest->dead_failed);
    fr_counter(registry, "freshet_dead_letters_without_value_total", NULL,
               "Dead letters of this process that were too large for their topic and went without the record's bytes.",
               ingest->dead_without_value);
    fr_gauge(registry, "freshet_ingest_record_bytes", NULL, "Memory of batches for the bytes of their records.",
             (double)ingest->record_bytes);
    fr_counter_seconds(registry, "freshet_ring_full_seconds_total", NULL,
                       "How long this process kept from reading because training was behind.",
                       (double)ingest->ring_full_ns / 1e9);
}

static void series_slots(struct fr_registry *registry, const struct fr_conf *conf,
                         const struct fr_ingest_status *ingest)
{
    for (uint32_t slot = 0; slot < ingest->n_slots; slot++) {
        char labels[128] = "";
        fr_metric_label(labels, sizeof(labels), "slot", conf->slots[slot].name);
        fr_counter(registry, "freshet_slot_present_total", labels,
                   "Samples read by this process that carry a value of the slot, or have one computed.",
                   ingest->present[slot]);
    }
}

static void series_training(struct fr_registry *registry, const struct fr_snapshots *s)
{
    const struct fr_trainer_history *history = &s->trainer.history;
    fr_counter_seconds(registry, "freshet_step_seconds_total", NULL, "Time this process spent in training steps.",
                       (double)s->trainer.run.step_ns / 1e9);
    fr_counter(registry, "freshet_watermark_held_total", NULL,
               "Batches of this process that held later event times than the watermark rose to (watermark_step_max).",
               s->trainer.run.watermark_held);
    fr_counter(registry, "freshet_device_plans_total", NULL,
               "Batches of this process that were planned while the device computed the one before.",
               s->trainer.run.planned_beside);
    fr_counter(registry, "freshet_device_plans_undone_total", NULL,
               "Of them, those taken back because the batch before was refused or something came between.",
               s->trainer.run.planned_in_vain);
    fr_counter(registry, "freshet_device_slices_total", NULL,
               "Batches of this process whose slices of expiry ran while the device still computed them.",
               s->trainer.run.sliced_beside);
    fr_counter(registry, "freshet_device_rows_brought_total", NULL,
               "Rows that this process brought to the device from memory.", s->trainer.run.rows_brought);
    fr_gauge(registry, "freshet_watermark_timestamp_seconds", NULL, "Largest event time trained; NaN before the first.",
             history->watermark_ms != INT64_MIN ? (double)history->watermark_ms / 1e3 : (double)NAN);
    fr_gauge(registry, "freshet_loss", NULL, "Loss of the last batch; NaN before the first.", s->trainer.run.last_loss);
    fr_gauge(registry, "freshet_publishing_held", NULL,
             "1 while publishing is held because nothing of several batches in a row could train.", history->held);
}

const struct fr_ingest_partition *fr_documents_read_partition(const struct fr_ingest_status *ingest,
                                                              const struct fr_partition_position *position,
                                                              uint32_t *at)
{
    for (uint32_t n = 0; n < ingest->n_partitions; n++) {
        uint32_t i = (*at + n) % ingest->n_partitions;
        const struct fr_ingest_partition *read = &ingest->partitions[i];
        if (read->partition == position->partition && strcmp(read->topic, position->topic) == 0) {
            *at = i + 1;
            return read;
        }
    }
    return NULL;
}

void fr_documents_positions(struct fr_service *service, const struct fr_ingest_status *ingest, struct fr_positions *out)
{
    pthread_mutex_lock(&service->lock);
    fr_positions_copy(&service->durable_positions, out);
    pthread_mutex_unlock(&service->lock);
    for (uint32_t i = 0; i < ingest->n_partitions; i++)
        if (ingest->partitions[i].waits)
            (void)fr_positions_index(out, ingest->partitions[i].topic, ingest->partitions[i].partition);
}

static void series_partitions(struct fr_service *service, const struct fr_ingest_status *ingest)
{
    struct fr_positions positions = {0};
    fr_documents_positions(service, ingest, &positions);
    uint32_t at = 0;
    for (uint32_t i = 0; i < positions.count; i++) {
        const struct fr_partition_position *p = &positions.partitions[i];
        const struct fr_ingest_partition *read = fr_documents_read_partition(ingest, p, &at);
        char labels[2 * FR_TOPIC_MAX + 64] = "", number[16];
        snprintf(number, sizeof(number), "%d", p->partition);
        fr_metric_label(labels, sizeof(labels), "topic", p->topic);
        fr_metric_label(labels, sizeof(labels), "partition", number);
        bool known = read && read->high >= 0 && p->offset >= 0 && ingest->connected;
        int64_t lag = known && read->high > p->offset ? read->high - p->offset : 0;
        fr_gauge(service->registry, "freshet_partition_offset", labels,
                 "Offset of the first record of a partition that is not durably trained; NaN before the first.",
                 p->offset >= 0 ? (double)p->offset : (double)NAN);
        fr_gauge(service->registry, "freshet_partition_lag_records", labels,
                 "Records from that offset to the end of the partition; NaN while the end is not known.",
                 known ? (double)lag : (double)NAN);
        fr_gauge(
            service->registry, "freshet_partition_transaction_seconds", labels,
            "How long the next record of a partition has waited for a producer's open transaction; 0: it does not.",
            read ? (double)read->transaction_ms / 1e3 : 0.0);
    }
    fr_positions_release(&positions);
}

/* P2, summed over the partitions as of the last durable epoch. */
static void series_ledger(struct fr_service *service)
{
    uint64_t sum[FR_LEDGER_TERMS] = {0};
    pthread_mutex_lock(&service->lock);
    for (uint32_t i = 0; i < service->durable_positions.count; i++)
        for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
            sum[k] += service->durable_positions.partitions[i].ledger[k];
    pthread_mutex_unlock(&service->lock);
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        if (fr_positions_ledger[k].metric)
            fr_counter(service->registry, fr_positions_ledger[k].metric, NULL, fr_positions_ledger[k].help, sum[k]);
}

/* ---- epochs, disk, memory ---- */

static void series_snapshots(struct fr_service *service, const struct fr_snapshots *s)
{
    struct fr_registry *registry = service->registry;
    fr_counter(registry, "freshet_snapshots_total", NULL, "Snapshots taken by this process.",
               atomic_load(&service->snapshots.taken));
    fr_counter(registry, "freshet_snapshot_failures_total", NULL,
               "Snapshots that this process could not take; /healthz and the log say why.",
               atomic_load(&service->snapshots.failures));
    fr_counter(registry, "freshet_snapshot_hook_failures_total", NULL,
               "Runs of snapshot.hook that did not end with exit status 0; each is repeated.",
               atomic_load(&service->snapshots.hook_failures));
    fr_gauge(registry, "freshet_snapshots_kept", NULL, "Snapshots in snapshot.dir.",
             (double)atomic_load(&service->snapshots.kept));
    fr_gauge(registry, "freshet_snapshot_epoch", NULL, "Epoch of the snapshot that CURRENT names; 0: none.",
             (double)atomic_load(&service->snapshots.current_epoch));
    fr_gauge(registry, "freshet_snapshot_bytes", NULL, "Bytes of the last snapshot that this process took.",
             (double)atomic_load(&service->snapshots.bytes));
    fr_gauge(registry, "freshet_snapshot_seconds", NULL, "How long the last snapshot of this process took to write.",
             (double)atomic_load(&service->snapshots.millis) / 1e3);
    fr_counter(registry, "freshet_hps_rows_total", NULL, "Rows sent to topics of NVIDIA HPS, resends included.",
               s->publisher.hps.rows);
    fr_counter(registry, "freshet_hps_drops_untold_total", NULL,
               "Tombstones of which consumers of NVIDIA HPS cannot be told: they keep those rows.",
               s->publisher.hps.drops);
    fr_gauge(registry, "freshet_delta_retention_short", NULL,
             "1 while the delta topic keeps less than export.retention needs; the log says what to set.",
             s->publisher.topic.short_retention ? 1 : 0);
}

static void series_epochs(struct fr_service *service, const struct fr_snapshots *s)
{
    struct fr_registry *registry = service->registry;
    const struct fr_durable_status *durable = &s->durable;
    fr_gauge(registry, "freshet_epoch", "stage=\"cut\"", "Number of the newest epoch at each stage.",
             (double)s->trainer.epoch);
    fr_gauge(registry, "freshet_epoch", "stage=\"durable\"", "", (double)durable->epoch);
    fr_gauge(registry, "freshet_epoch", "stage=\"acknowledged\"", "", (double)s->publisher.acked);
    fr_gauge(registry, "freshet_epoch", "stage=\"folded\"", "", (double)durable->folded);
    fr_gauge(registry, "freshet_last_durable_timestamp_seconds", NULL,
             "When an epoch last became durable; before the first of this process when recovery ended.",
             (double)atomic_load(&service->durable_wall_ms) / 1e3);
    fr_gauge(registry, "freshet_last_published_timestamp_seconds", NULL,
             "When the delta topic last acknowledged an epoch; before the first of this process when recovery ended.",
             (double)atomic_load(&service->published_wall_ms) / 1e3);
    fr_counter(registry, "freshet_cold_reads_total", NULL, "Keys that this process asked the cold store for.",
               durable->cold_asked);
    fr_counter(registry, "freshet_cold_found_total", NULL, "Keys that this process found in the cold store.",
               durable->cold_found);
    fr_counter(registry, "freshet_savepoints_total", NULL, "Savepoints taken by this process.",
               atomic_load(&service->savepoints));
    fr_counter(registry, "freshet_savepoint_failures_total", NULL,
               "Savepoints that this process could not take; /healthz and the log say why.",
               atomic_load(&service->savepoint_failures));
    series_snapshots(service, s);
    fr_counter(registry, "freshet_delta_records_total", NULL, "Delta records produced by this process.",
               s->publisher.records);
    fr_counter(registry, "freshet_delta_bytes_total", NULL, "Delta bytes produced by this process.",
               s->publisher.bytes);
    fr_counter(registry, "freshet_delta_errors_total", NULL,
               "Delta records of this process that the delta topic did not take at once.", s->publisher.errors);
    fr_counter(registry, "freshet_delta_resent_epochs_total", NULL,
               "Epochs that this process sent to the delta topic again.", s->publisher.resent_epochs);
    fr_counter(registry, "freshet_delta_merged_epochs_total", NULL,
               "Epochs of a backlog that this process sent merged with others.", s->publisher.backlog.merged_epochs);
    fr_counter(registry, "freshet_delta_merges_total", NULL, "Merged epochs of a backlog that this process sent.",
               s->publisher.backlog.merges);
    fr_counter(registry, "freshet_delta_rebases_total", NULL,
               "Whole states that this process published, for a topic that did not hold one or for a backlog.",
               s->publisher.rebases);
    fr_counter(registry, "freshet_delta_rewinds_total", NULL,
               "Timelines that this process began with a rewind to a snapshot.", s->publisher.rewinds);
}

/* Values beside their limits. */
static void series_bytes(struct fr_service *service, const struct fr_snapshots *s)
{
    const struct fr_conf *conf = service->conf;
    uint64_t disk_free = 0;
    bool known = fr_disk_free_bytes(conf->state_dir, &disk_free, NULL) == FR_OK;
    const struct {
        const char *name, *help;
        double value;
    } series[] = {
        {"freshet_store_bytes", "Memory held by tables.", (double)s->trainer.store_bytes},
        {"freshet_memory_limit_bytes", "Memory that the process may have (memory_limit).", (double)conf->memory_limit},
        {"freshet_dirty_bytes", "Bytes of changes in the open epoch.", (double)s->trainer.dirty_bytes},
        {"freshet_epoch_max_bytes", "Bytes of changes at which an epoch is cut early (epoch_bytes_max).",
         (double)conf->epoch_bytes_max},
        {"freshet_journal_bytes", "Bytes of the journal.", (double)s->durable.journal_bytes},
        {"freshet_journal_max_bytes", "Bytes of the journal at which reading pauses (journal_max).",
         (double)conf->journal_max},
        {"freshet_unfolded_bytes", "Bytes of the journal that are not folded into the cold store yet.",
         (double)s->durable.unfolded_bytes},
        {"freshet_unfolded_max_bytes",
         "Unfolded bytes at which a fold begins (unfolded_max); at twice of it reading pauses.",
         (double)conf->unfolded_max},
        {"freshet_delta_in_flight_bytes", "Delta bytes that the delta topic has not acknowledged yet.",
         (double)s->publisher.in_flight_bytes},
        {"freshet_delta_waiting_bytes", "Bytes of the journal that wait for the delta topic.",
         (double)s->waiting_bytes},
        {"freshet_delta_backlog_max_bytes", "Waiting bytes beyond which epochs are merged (export.backlog_max).",
         (double)conf->export_.backlog_max},
        {"freshet_cold_bytes", "Bytes of the cold store on disk.", (double)s->durable.cold_bytes},
        {"freshet_disk_free_bytes", "Bytes that are free for us on the file system of state_dir.",
         known ? (double)disk_free : (double)NAN},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(series); i++)
        fr_gauge(service->registry, series[i].name, NULL, series[i].help, series[i].value);
}

/* ---- the history ---- */

static void series_tables(struct fr_registry *registry, const struct fr_trainer_status *trainer)
{
    for (uint32_t i = 0; i < trainer->n_tables; i++) {
        const struct fr_store_table_stats *stats = &trainer->tables[i].stats;
        char labels[256] = "";
        fr_metric_label(labels, sizeof(labels), "table", trainer->tables[i].name);
        fr_gauge(registry, "freshet_pending_keys", labels, "Keys that the gate counts, without a row yet.",
                 (double)stats->counts.pending);
        fr_gauge(registry, "freshet_rows_resident", labels, "Rows and pending keys in memory.",
                 (double)stats->resident);
        fr_counter(registry, "freshet_rows_evicted_total", labels,
                   "Rows and pending keys that left memory for the cold store, in this process.", stats->evictions);
        fr_metric_label(labels, sizeof(labels), "tier", "ram");
        fr_gauge(registry, "freshet_rows", labels, "Rows by table and tier.", (double)stats->counts.rows);
    }
}

static void history_tables(struct fr_registry *registry, const struct fr_trainer_status *durable)
{
    for (uint32_t i = 0; i < durable->n_tables; i++) {
        const struct fr_store_counts *counts = &durable->tables[i].stats.counts;
        char labels[256] = "";
        fr_metric_label(labels, sizeof(labels), "table", durable->tables[i].name);
        fr_counter(registry, "freshet_rows_admitted_total", labels, "Rows admitted in this history.", counts->admitted);
        fr_counter(registry, "freshet_occurrences_rejected_total", labels,
                   "Occurrences of keys without a row in this history.", counts->rejected);
        for (size_t r = 0; r < FR_EXPIRY_REASONS; r++) {
            char reasons[300];
            snprintf(reasons, sizeof(reasons), "%s", labels);
            fr_metric_label(reasons, sizeof(reasons), "reason", fr_documents_expiry[r].name);
            fr_counter(registry, "freshet_rows_expired_total", reasons, "Rows expired in this history.",
                       counts->expired[fr_documents_expiry[r].reason]);
        }
    }
}

static void history_counters(struct fr_registry *registry, const struct fr_trainer_status *durable)
{
    const struct fr_trainer_history *history = &durable->history;
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        fr_counter(registry, fr_trainer_counters[i].metric, NULL, fr_trainer_counters[i].help, history->counters[i]);
    for (uint32_t i = 0; i < history->n_tasks; i++) {
        const struct fr_trainer_task_counts *task = &history->tasks[i];
        char labels[256] = "";
        fr_metric_label(labels, sizeof(labels), "task", task->name);
        fr_counter(registry, "freshet_task_samples_total", labels,
                   "Samples that counted for the task's loss in this history; pairwise: that stand in a pair.",
                   task->samples);
        fr_counter(registry, "freshet_task_pairs_total", labels,
                   "Pairs of samples that a pairwise task found in this history.", task->pairs);
    }
}

/* prefix: "" for predictions of the trainer, "served_" for the scores that came with the
 * samples. */
static void series_result(struct fr_registry *registry, const char *prefix, const char *labels,
                          const struct fr_auc_result *result, bool regression)
{
    const struct {
        const char *name, *help;
        double value;
        bool given;
    } series[] = {
        {"auc", "AUC", result->auc, !regression},
        {"logloss", "Log loss", result->logloss, !regression},
        {"auc_outside", "Share of a class with logits beyond the range of AUC, which is NaN above 0.01,",
         result->outside, !regression},
        {"mse", "Mean squared error", result->mse, regression},
        {"calibration", "Mean prediction over mean label", result->calibration, true},
        {"positive_rate", "Mean label", result->positive_rate, true},
        {"prediction_mean", "Mean prediction", result->prediction_mean, true},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(series); i++) {
        char name[64], help[160];
        snprintf(name, sizeof(name), "freshet_%s%s", prefix, series[i].name);
        snprintf(help, sizeof(help), "%s of %s.", series[i].help,
                 prefix[0] ? "the scores that were served" : "predictions made before training");
        if (series[i].given)
            fr_gauge(registry, name, labels, help, series[i].value);
    }
}

static void series_gauc(struct fr_registry *registry, const char *labels, const struct fr_gauc_result *result)
{
    fr_gauge(registry, "freshet_gauc", labels, "AUC within groups of one gauc_by id, weighted by impressions.",
             result->auc);
    fr_gauge(registry, "freshet_gauc_error_max", labels, "Bound of the error of freshet_gauc for the groups kept.",
             result->error_max);
    fr_gauge(registry, "freshet_gauc_groups", labels, "Groups of freshet_gauc that are kept and have both classes.",
             (double)result->groups);
}

static void series_task(struct fr_registry *registry, const struct fr_conf *conf, const char *task,
                        const struct fr_task_result *result)
{
    char labels[256];
    for (uint32_t h = 0; h < result->n_half_lives; h++) {
        snprintf(labels, sizeof(labels), "task=\"%s\",half_life=\"%s\"", task, conf->metrics.half_life_name[h]);
        series_result(registry, "", labels, &result->decayed[h], result->regression);
        if (result->has_gauc)
            series_gauc(registry, labels, &result->gauc_decayed[h]);
    }
    snprintf(labels, sizeof(labels), "task=\"%s\",half_life=\"lifetime\"", task);
    series_result(registry, "", labels, &result->lifetime, result->regression);
    if (result->has_gauc)
        series_gauc(registry, labels, &result->gauc);
    snprintf(labels, sizeof(labels), "task=\"%s\"", task);
    if (result->served.weight > 0)
        series_result(registry, "served_", labels, &result->served, result->regression);
}

void fr_documents_series(struct fr_service *service, const struct fr_snapshots *s)
{
    struct fr_registry *registry = service->registry;
    series_state(service, s);
    series_records(registry, s);
    series_slots(registry, service->conf, &s->ingest);
    series_bytes(service, s);
    fr_documents_process(service);
    fr_documents_times(service, &s->trainer.run);
    if (!s->recovered)
        return;
    series_training(registry, s);
    series_partitions(service, &s->ingest);
    series_ledger(service);
    series_epochs(service, s);
    series_tables(registry, &s->trainer);
    for (uint32_t i = 0; i < s->trainer.history.n_tasks; i++)
        series_task(registry, service->conf, s->trainer.history.tasks[i].name, &s->trainer.tasks[i].result);
    const struct fr_trainer_status *durable = fr_documents_settle(&service->settled, &s->trainer, s->durable.epoch);
    if (durable) {
        history_counters(registry, durable);
        history_tables(registry, durable);
    }
}
