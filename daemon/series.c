/* The series of /metrics, set from copies of the modules' statuses (docs/metrics.md, "Series").
 * Rules for a Prometheus that knows nothing of Freshet:
 *
 * An unknown value is NaN, never the last known value: during an outage, lag and positions of the
 * log are unknown.
 *
 * Counters of the history live as long as the model. They appear when the state is recovered, and
 * count only what is durable. After a crash, training continues from the durable state, and
 * Prometheus would mistake a counter that fell for one that restarted at zero. Counters of the
 * process begin at zero with the process.
 *
 * To add a number, write one line here and its row in metrics/series.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/log.h"
#include "documents.h"
#include "metrics/series.h"
#include "replica_documents.h"
#include "service.h"

/* ---- history that may be shown ---- */

static void keep(struct fr_trainer_status **at, const struct fr_trainer_status *status)
{
    if (!*at)
        *at = fr_alloc(1, sizeof(**at));
    **at = *status;
}

/* Whether everything that a status counts is durable: its epoch, and the next one if that is
 * open. */
static bool is_durable(const struct fr_trainer_status *status, uint64_t durable)
{
    return durable >= status->epoch + status->open;
}

const struct fr_trainer_status *fr_documents_shown_history(struct fr_shown_history *history,
                                                           const struct fr_trainer_status *now, uint64_t durable)
{
    if (history->waiting && is_durable(history->waiting, durable)) {
        free(history->shown);
        history->shown = history->waiting;
        history->waiting = NULL;
    }
    if (is_durable(now, durable))
        keep(&history->shown, now);
    /* a status that is replaced again and again would never become durable */
    else if (!history->waiting)
        keep(&history->waiting, now);
    return history->shown;
}

void fr_documents_shown_release(struct fr_shown_history *history)
{
    free(history->shown);
    free(history->waiting);
    *history = (struct fr_shown_history){0};
}

#define EXPIRY(name, text, ...) {text, name},
const struct fr_expiry_reason fr_documents_expiry[FR_EXPIRY_RULES] = {FR_EXPIRIES(EXPIRY)};

/* ---- state ---- */

/* Sets a series, of any kind, with one label. */
static void set_labelled(struct fr_registry *registry, enum fr_series series, const char *label, const char *value,
                         double number)
{
    char labels[256] = "";
    fr_metric_label(labels, sizeof(labels), label, value);
    if (fr_series_rows[series].kind == FR_SERIES_COUNTER)
        fr_series_count(registry, series, labels, (uint64_t)number);
    else
        fr_series_set(registry, series, labels, number);
}

static void series_paused(struct fr_registry *registry, enum fr_pause pause, enum fr_ingest_pause refused)
{
    for (int why = FR_PAUSE_NONE + 1; why < FR_PAUSE_KINDS; why++)
        set_labelled(registry, FR_SERIES_PAUSED, "reason", fr_trainer_pauses[why], why == (int)pause);
    set_labelled(registry, FR_SERIES_PAUSED, "reason", "malformed", refused == FR_INGEST_PAUSED_RECORDS);
    set_labelled(registry, FR_SERIES_PAUSED, "reason", "clock", refused == FR_INGEST_PAUSED_CLOCK);
}

static void series_state(struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_registry *registry = service->registry;
    uint64_t total = atomic_load(&service->recovery.total_bytes);
    double progress = total ? (double)atomic_load(&service->recovery.done_bytes) / (double)total : 0;
    bool started = atomic_load(&service->loops.ingest.shared.started);
    fr_series_set(registry, FR_SERIES_READY, NULL, s->ready);
    fr_series_set(registry, FR_SERIES_CONNECTED, NULL, started && s->ingest.connected);
    fr_series_set(registry, FR_SERIES_RECOVERY_PROGRESS, NULL, s->recovered ? 1 : progress);
    fr_series_set(registry, FR_SERIES_LAG_SECONDS, NULL,
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
        fr_series_count(registry, FR_SERIES_UNKNOWN_NAMES_TOTAL, labels, names->counts[i]);
    }
}

static void series_records(struct fr_registry *registry, const struct fr_service_status *s)
{
    const struct fr_ingest_status *ingest = &s->ingest;
    fr_series_count(registry, FR_SERIES_RECORDS_TOTAL, NULL, ingest->records);
    fr_series_count(registry, FR_SERIES_RECORD_BYTES_TOTAL, NULL, ingest->bytes);
    for (int kind = 0; kind < FR_MALFORMED_KINDS; kind++)
        set_labelled(registry, FR_SERIES_RECORDS_MALFORMED_TOTAL, "reason", fr_malformed_names[kind],
                     (double)ingest->malformed_kinds[kind]);
    series_unknown(registry, "slots", &ingest->unknown.slots);
    series_unknown(registry, "keys", &ingest->unknown.keys);
    fr_series_count(registry, FR_SERIES_RECORDS_FUTURE_TOTAL, "than=\"timestamp\"", ingest->future_timestamp);
    fr_series_count(registry, FR_SERIES_RECORDS_FUTURE_TOTAL, "than=\"clock\"", ingest->future_clock);
    fr_series_count(registry, FR_SERIES_RECORDS_REPEATED_TOTAL, NULL, ingest->dropped_duplicates);
    fr_series_count(registry, FR_SERIES_RECORDS_QUARANTINED_TOTAL, NULL, s->trainer.run.quarantined_records);
    fr_series_count(registry, FR_SERIES_DEAD_LETTERS_SENT_TOTAL, NULL, ingest->dead_sent);
    fr_series_count(registry, FR_SERIES_DEAD_LETTERS_FAILED_TOTAL, NULL, ingest->dead_failed);
    fr_series_count(registry, FR_SERIES_DEAD_LETTERS_WITHOUT_VALUE_TOTAL, NULL, ingest->dead_without_value);
    fr_series_set(registry, FR_SERIES_INGEST_RECORD_BYTES, NULL, (double)ingest->record_bytes);
    fr_series_set(registry, FR_SERIES_RING_FULL_SECONDS_TOTAL, NULL, (double)ingest->ring_full_ns / 1e9);
}

static void series_slots(struct fr_registry *registry, const struct fr_conf *conf,
                         const struct fr_ingest_status *ingest)
{
    for (uint32_t slot = 0; slot < ingest->n_slots; slot++)
        set_labelled(registry, FR_SERIES_SLOT_PRESENT_TOTAL, "slot", conf->slots[slot].name,
                     (double)ingest->present[slot]);
}

static void series_training(struct fr_registry *registry, const struct fr_service_status *s)
{
    const struct fr_trainer_history *history = &s->trainer.history;
    fr_series_set(registry, FR_SERIES_STEP_SECONDS_TOTAL, NULL, (double)s->trainer.run.step_ns / 1e9);
    fr_series_count(registry, FR_SERIES_WATERMARK_HELD_TOTAL, NULL, s->trainer.run.watermark_held);
    fr_series_count(registry, FR_SERIES_DEVICE_PLANS_TOTAL, NULL, s->trainer.run.planned_early);
    fr_series_count(registry, FR_SERIES_DEVICE_PLANS_UNDONE_TOTAL, NULL, s->trainer.run.early_plans_undone);
    fr_series_count(registry, FR_SERIES_DEVICE_SLICES_TOTAL, NULL, s->trainer.run.sliced_early);
    fr_series_count(registry, FR_SERIES_DEVICE_ROWS_BROUGHT_TOTAL, NULL, s->trainer.run.rows_brought);
    fr_series_set(registry, FR_SERIES_WATERMARK_TIMESTAMP_SECONDS, NULL,
                  history->watermark_ms != INT64_MIN ? (double)history->watermark_ms / 1e3 : (double)NAN);
    fr_series_set(registry, FR_SERIES_LOSS, NULL, s->trainer.run.last_loss);
    fr_series_set(registry, FR_SERIES_PUBLISHING_HELD, NULL, history->held);
}

/* A job of one rank waits for no other one. */
static void series_exchange(struct fr_service *service, const struct fr_service_status *s)
{
    const struct fr_exchange *exchange = service->options.exchange;
    for (int channel = 0; exchange && fr_exchange_size(exchange) > 1 && channel < FR_CHANNELS; channel++)
        set_labelled(service->registry, FR_SERIES_EXCHANGE_WAIT_SECONDS_TOTAL, "channel", fr_channel_name(channel),
                     (double)s->trainer.run.exchange_wait_ns[channel] / 1e9);
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
    fr_shared_durable_get_positions(&service->loops.durable.shared, out);
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
        fr_series_set(service->registry, FR_SERIES_PARTITION_OFFSET, labels,
                      p->offset >= 0 ? (double)p->offset : (double)NAN);
        fr_series_set(service->registry, FR_SERIES_PARTITION_LAG_RECORDS, labels, known ? (double)lag : (double)NAN);
        fr_series_set(service->registry, FR_SERIES_PARTITION_TRANSACTION_SECONDS, labels,
                      read ? (double)read->transaction_ms / 1e3 : 0.0);
    }
    fr_positions_release(&positions);
}

/* The ledger of P2, summed over the partitions, as of the last durable epoch. */
static void series_ledger(struct fr_service *service)
{
    uint64_t sum[FR_LEDGER_TERMS] = {0};
    struct fr_positions positions = {0};
    fr_shared_durable_get_positions(&service->loops.durable.shared, &positions);
    for (uint32_t i = 0; i < positions.count; i++)
        for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
            sum[k] += positions.partitions[i].ledger[k];
    fr_positions_release(&positions);
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        if (fr_positions_ledger[k].metric)
            fr_counter(service->registry, fr_positions_ledger[k].metric, NULL, fr_positions_ledger[k].help, sum[k]);
}

/* ---- epochs, disk, memory ---- */

static void series_snapshots(struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_shared_snapshots *snapshots = &service->loops.snapshot.shared;
    struct fr_registry *registry = service->registry;
    fr_series_count(registry, FR_SERIES_SNAPSHOTS_TOTAL, NULL, atomic_load(&snapshots->taken));
    fr_series_count(registry, FR_SERIES_SNAPSHOT_FAILURES_TOTAL, NULL, atomic_load(&snapshots->failures));
    fr_series_count(registry, FR_SERIES_SNAPSHOT_HOOK_FAILURES_TOTAL, NULL, atomic_load(&snapshots->hook_failures));
    fr_series_set(registry, FR_SERIES_SNAPSHOTS_KEPT, NULL, (double)atomic_load(&snapshots->kept));
    fr_series_set(registry, FR_SERIES_SNAPSHOT_EPOCH, NULL, (double)atomic_load(&snapshots->current_epoch));
    fr_series_set(registry, FR_SERIES_SNAPSHOT_BYTES, NULL, (double)atomic_load(&snapshots->bytes));
    fr_series_set(registry, FR_SERIES_SNAPSHOT_SECONDS, NULL, (double)atomic_load(&snapshots->millis) / 1e3);
    fr_series_count(registry, FR_SERIES_HPS_ROWS_TOTAL, NULL, s->publisher.hps.rows);
    fr_series_count(registry, FR_SERIES_HPS_DROPS_UNTOLD_TOTAL, NULL, s->publisher.hps.drops);
    fr_series_set(registry, FR_SERIES_DELTA_RETENTION_SHORT, NULL, s->publisher.topic.short_retention ? 1 : 0);
}

static void series_epochs(struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_registry *registry = service->registry;
    const struct fr_durable_status *durable = &s->durable;
    fr_series_set(registry, FR_SERIES_EPOCH, "stage=\"cut\"", (double)s->trainer.epoch);
    fr_series_set(registry, FR_SERIES_EPOCH, "stage=\"durable\"", (double)durable->epoch);
    fr_series_set(registry, FR_SERIES_EPOCH, "stage=\"acknowledged\"", (double)s->publisher.acked);
    fr_series_set(registry, FR_SERIES_EPOCH, "stage=\"folded\"", (double)durable->folded);
    fr_series_set(registry, FR_SERIES_LAST_DURABLE_TIMESTAMP_SECONDS, NULL,
                  (double)atomic_load(&service->loops.durable.shared.wall_ms) / 1e3);
    fr_series_set(registry, FR_SERIES_LAST_PUBLISHED_TIMESTAMP_SECONDS, NULL,
                  (double)atomic_load(&service->loops.publish.shared.published_wall_ms) / 1e3);
    fr_series_count(registry, FR_SERIES_COLD_READS_TOTAL, NULL, durable->cold_asked);
    fr_series_count(registry, FR_SERIES_COLD_FOUND_TOTAL, NULL, durable->cold_found);
    fr_series_count(registry, FR_SERIES_SAVEPOINTS_TOTAL, NULL, atomic_load(&service->loops.fold.shared.savepoints));
    fr_series_count(registry, FR_SERIES_SAVEPOINT_FAILURES_TOTAL, NULL,
                    atomic_load(&service->loops.fold.shared.savepoint_failures));
    series_snapshots(service, s);
    fr_series_count(registry, FR_SERIES_DELTA_RECORDS_TOTAL, NULL, s->publisher.records);
    fr_series_count(registry, FR_SERIES_DELTA_BYTES_TOTAL, NULL, s->publisher.bytes);
    fr_series_count(registry, FR_SERIES_DELTA_ERRORS_TOTAL, NULL, s->publisher.errors);
    fr_series_count(registry, FR_SERIES_DELTA_RESENT_EPOCHS_TOTAL, NULL, s->publisher.resent_epochs);
    fr_series_count(registry, FR_SERIES_DELTA_MERGED_EPOCHS_TOTAL, NULL, s->publisher.backlog.merged_epochs);
    fr_series_count(registry, FR_SERIES_DELTA_MERGES_TOTAL, NULL, s->publisher.backlog.merges);
    fr_series_count(registry, FR_SERIES_DELTA_REBASES_TOTAL, NULL, s->publisher.rebases);
    fr_series_count(registry, FR_SERIES_DELTA_REWINDS_TOTAL, NULL, s->publisher.rewinds);
}

/* Bytes and their limits. */
static void series_bytes(struct fr_service *service, const struct fr_service_status *s)
{
    const struct fr_conf *conf = service->conf;
    uint64_t disk_free = 0;
    bool known = fr_disk_free_bytes(conf->state_dir, &disk_free, NULL) == FR_OK;
    const struct {
        enum fr_series series;
        double value;
    } values[] = {
        {FR_SERIES_STORE_BYTES, (double)s->trainer.store_bytes},
        {FR_SERIES_MEMORY_LIMIT_BYTES, (double)conf->memory_limit},
        {FR_SERIES_DIRTY_BYTES, (double)s->trainer.dirty_bytes},
        {FR_SERIES_EPOCH_MAX_BYTES, (double)conf->epoch_bytes_max},
        {FR_SERIES_JOURNAL_BYTES, (double)s->durable.journal_bytes},
        {FR_SERIES_JOURNAL_MAX_BYTES, (double)conf->journal_max},
        {FR_SERIES_UNFOLDED_BYTES, (double)s->durable.unfolded_bytes},
        {FR_SERIES_UNFOLDED_MAX_BYTES, (double)conf->unfolded_max},
        {FR_SERIES_DELTA_IN_FLIGHT_BYTES, (double)s->publisher.in_flight_bytes},
        {FR_SERIES_DELTA_WAITING_BYTES, (double)s->waiting_bytes},
        {FR_SERIES_DELTA_BACKLOG_MAX_BYTES, (double)conf->export_.backlog_max},
        {FR_SERIES_COLD_BYTES, (double)s->durable.cold_bytes},
        {FR_SERIES_DISK_FREE_BYTES, known ? (double)disk_free : (double)NAN},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(values); i++)
        fr_series_set(service->registry, values[i].series, NULL, values[i].value);
}

/* ---- the history ---- */

static void series_tables(struct fr_registry *registry, const struct fr_trainer_status *trainer)
{
    for (uint32_t i = 0; i < trainer->n_tables; i++) {
        const struct fr_store_table_stats *stats = &trainer->tables[i].stats;
        char labels[256] = "";
        fr_metric_label(labels, sizeof(labels), "table", trainer->tables[i].name);
        fr_series_set(registry, FR_SERIES_PENDING_KEYS, labels, (double)stats->counts.pending);
        fr_series_set(registry, FR_SERIES_ROWS_RESIDENT, labels, (double)stats->resident);
        fr_series_count(registry, FR_SERIES_ROWS_EVICTED_TOTAL, labels, stats->evictions);
        fr_metric_label(labels, sizeof(labels), "tier", "ram");
        fr_series_set(registry, FR_SERIES_ROWS, labels, (double)stats->counts.rows);
    }
}

static void history_tables(struct fr_registry *registry, const struct fr_trainer_status *durable)
{
    for (uint32_t i = 0; i < durable->n_tables; i++) {
        const struct fr_store_counts *counts = &durable->tables[i].stats.counts;
        char labels[256] = "";
        fr_metric_label(labels, sizeof(labels), "table", durable->tables[i].name);
        fr_series_count(registry, FR_SERIES_ROWS_ADMITTED_TOTAL, labels, counts->admitted);
        fr_series_count(registry, FR_SERIES_OCCURRENCES_REJECTED_TOTAL, labels, counts->rejected);
        for (size_t r = 0; r < FR_EXPIRY_RULES; r++) {
            char reasons[300];
            snprintf(reasons, sizeof(reasons), "%s", labels);
            fr_metric_label(reasons, sizeof(reasons), "reason", fr_documents_expiry[r].name);
            fr_series_count(registry, FR_SERIES_ROWS_EXPIRED_TOTAL, reasons,
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
        set_labelled(registry, FR_SERIES_TASK_SAMPLES_TOTAL, "task", task->name, (double)task->samples);
        set_labelled(registry, FR_SERIES_TASK_PAIRS_TOTAL, "task", task->name, (double)task->pairs);
    }
}

/* Metrics of the trainer's predictions or, if `served`, of the scores that the samples carry. */
static void series_result(struct fr_registry *registry, bool served, const char *labels,
                          const struct fr_auc_result *result, bool regression)
{
    const struct {
        enum fr_series predicted, served;
        double value;
        bool given;
    } values[] = {{FR_SERIES_AUC, FR_SERIES_SERVED_AUC, result->auc, !regression},
                  {FR_SERIES_LOGLOSS, FR_SERIES_SERVED_LOGLOSS, result->logloss, !regression},
                  {FR_SERIES_AUC_OUTSIDE, FR_SERIES_SERVED_AUC_OUTSIDE, result->outside, !regression},
                  {FR_SERIES_MSE, FR_SERIES_SERVED_MSE, result->mse, regression},
                  {FR_SERIES_CALIBRATION, FR_SERIES_SERVED_CALIBRATION, result->calibration, true},
                  {FR_SERIES_POSITIVE_RATE, FR_SERIES_SERVED_POSITIVE_RATE, result->positive_rate, true},
                  {FR_SERIES_PREDICTION_MEAN, FR_SERIES_SERVED_PREDICTION_MEAN, result->prediction_mean, true}};
    for (size_t i = 0; i < FR_ARRAY_LEN(values); i++)
        if (values[i].given)
            fr_series_set(registry, served ? values[i].served : values[i].predicted, labels, values[i].value);
}

static void series_gauc(struct fr_registry *registry, const char *labels, const struct fr_gauc_result *result)
{
    fr_series_set(registry, FR_SERIES_GAUC, labels, result->auc);
    fr_series_set(registry, FR_SERIES_GAUC_ERROR_MAX, labels, result->error_max);
    fr_series_set(registry, FR_SERIES_GAUC_GROUPS, labels, (double)result->groups);
}

static void series_task(struct fr_registry *registry, const struct fr_conf *conf, const char *task,
                        const struct fr_task_result *result)
{
    char labels[256];
    for (uint32_t h = 0; h < result->n_half_lives; h++) {
        snprintf(labels, sizeof(labels), "task=\"%s\",half_life=\"%s\"", task, conf->metrics.half_life_name[h]);
        series_result(registry, false, labels, &result->decayed[h], result->regression);
        if (result->has_gauc)
            series_gauc(registry, labels, &result->gauc_decayed[h]);
    }
    snprintf(labels, sizeof(labels), "task=\"%s\",half_life=\"lifetime\"", task);
    series_result(registry, false, labels, &result->lifetime, result->regression);
    if (result->has_gauc)
        series_gauc(registry, labels, &result->gauc);
    snprintf(labels, sizeof(labels), "task=\"%s\"", task);
    if (result->served.weight > 0)
        series_result(registry, true, labels, &result->served, result->regression);
}

/* ---- the process ---- */

static void series_build(struct fr_service *service)
{
    char labels[512] = "", fingerprint[32];
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, fr_conf_fingerprint(service->conf));
    fr_metric_label(labels, sizeof(labels), "version", FR_VERSION);
    fr_metric_label(labels, sizeof(labels), "kernel", fr_trainer_kernel(service->trainer));
    fr_metric_label(labels, sizeof(labels), "fp", fingerprint);
    fr_series_set(service->registry, FR_SERIES_BUILD_INFO, labels, 1);
}

static void series_device(struct fr_service *service)
{
    char labels[256] = "";
    fr_metric_label(labels, sizeof(labels), "device", service->device.name);
    fr_metric_label(labels, sizeof(labels), "card", service->device.card);
    fr_series_set(service->registry, FR_SERIES_DEVICE_INFO, labels, 1);
}

/* Lost lines of the log are reported by /healthz and /metrics, because the log cannot report
 * them. */
static void report_lost_lines(struct fr_service *service)
{
    char text[200] = "";
    uint64_t unsaid = 0, lost = fr_log_lost(&unsaid);
    fr_series_count(service->registry, FR_SERIES_LOG_LINES_LOST_TOTAL, NULL, lost);
    if (unsaid > 0)
        snprintf(text, sizeof(text),
                 "%" PRIu64 " lines of the log are lost because standard error does not accept them: check the pipe, "
                 "the disk or the collector that takes them",
                 unsaid);
    fr_http_reason(service->http, "log", text);
}

static void series_phases(struct fr_registry *registry, const struct fr_trainer_run *run)
{
    const struct {
        const char *phase;
        uint64_t ns;
    } phases[] = {{"plan", run->plan_ns},     {"forward", run->forward_ns}, {"backward", run->backward_ns},
                  {"update", run->update_ns}, {"metrics", run->metrics_ns}, {"cut", run->cut_ns},
                  {"wait", run->wait_ns}};
    for (size_t i = 0; i < FR_ARRAY_LEN(phases); i++)
        set_labelled(registry, FR_SERIES_PHASE_SECONDS_TOTAL, "phase", phases[i].phase, (double)phases[i].ns / 1e9);
}

static void series_process(struct fr_service *service, const struct fr_trainer_run *run)
{
    if (fr_series_of_process(&service->documents->process, service->registry, service->clock)) {
        if (service->trainer)
            series_build(service);
        if (service->device.name[0])
            series_device(service);
        report_lost_lines(service);
    }
    series_phases(service->registry, run);
    fr_series_of_threads(&service->documents->times, service->registry, service->clock);
}

void fr_documents_series(struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_registry *registry = service->registry;
    series_state(service, s);
    series_records(registry, s);
    series_slots(registry, service->conf, &s->ingest);
    series_bytes(service, s);
    series_process(service, &s->trainer.run);
    if (!s->recovered)
        return;
    series_training(registry, s);
    series_exchange(service, s);
    series_partitions(service, &s->ingest);
    series_ledger(service);
    series_epochs(service, s);
    fr_documents_replica_series(service, s);
    series_tables(registry, &s->trainer);
    for (uint32_t i = 0; i < s->trainer.history.n_tasks; i++)
        series_task(registry, service->conf, s->trainer.history.tasks[i].name, &s->trainer.tasks[i].result);
    const struct fr_trainer_status *durable =
        fr_documents_shown_history(&service->documents->history, &s->trainer, s->durable.epoch);
    if (durable) {
        history_counters(registry, durable);
        history_tables(registry, durable);
    }
}
