/* Every series of /metrics: its name and the help that Prometheus shows (docs/metrics.md,
 * "Series"). The module that has a number sets its series; a new series is a row here and a line
 * in docs/metrics.md.
 *
 * Two lists of counters have a series in each row and stand with what they count: the ledger of
 * a partition (ingest/positions.h, FR_LEDGER) and the trainer's history (trainer/section.h,
 * FR_TRAINER_COUNTERS). A histogram's bounds stand where it is registered (timings.c,
 * freshness.c).
 *
 * Thread: any. */
#ifndef FR_METRICS_SERIES_H
#define FR_METRICS_SERIES_H

#include "metrics/registry.h"

enum fr_series_kind {
    FR_SERIES_COUNTER, /* whole numbers */
    FR_SERIES_SECONDS, /* a counter of seconds */
    FR_SERIES_GAUGE,
    FR_SERIES_HISTOGRAM,
};

/* enumerator, kind, name, help */
#define FR_SERIES(X)                                                                                                   \
    X(PAUSED, GAUGE, "freshet_paused", "1 while reading is paused for the reason; /status has the text.")              \
    X(READY, GAUGE, "freshet_ready", "1 while /readyz answers 200: recovered, and reading within ready_lag.")          \
    X(CONNECTED, GAUGE, "freshet_connected", "1 while a broker of the sample topics is connected.")                    \
    X(RECOVERY_PROGRESS, GAUGE, "freshet_recovery_progress", "Share of the state that this start has recovered.")      \
    X(LAG_SECONDS, GAUGE, "freshet_lag_seconds",                                                                       \
      "Wall time minus Kafka timestamp of the last record polled; 0 at the end of the log, NaN while no "              \
      "broker is connected.")                                                                                          \
    X(UNKNOWN_NAMES_TOTAL, COUNTER, "freshet_unknown_names_total",                                                     \
      "Values of names that the configuration does not have, ignored by this process: the first few names.")           \
    X(RECORDS_TOTAL, COUNTER, "freshet_records_total", "Records polled by this process.")                              \
    X(RECORD_BYTES_TOTAL, COUNTER, "freshet_record_bytes_total", "Bytes of records polled by this process.")           \
    X(RECORDS_MALFORMED_TOTAL, COUNTER, "freshet_records_malformed_total",                                             \
      "Malformed records that became dead letters of this process, by reason.")                                        \
    X(RECORDS_FUTURE_TOTAL, COUNTER, "freshet_records_future_total",                                                   \
      "Records refused by this process because their event time lies further than future_max after the "               \
      "Kafka timestamp, or after the clock of this host.")                                                             \
    X(RECORDS_REPEATED_TOTAL, COUNTER, "freshet_records_repeated_total",                                               \
      "Records that the client library delivered to this process again, dropped.")                                     \
    X(RECORDS_QUARANTINED_TOTAL, COUNTER, "freshet_records_quarantined_total",                                         \
      "Records dead-lettered by this process for samples that were not finite.")                                       \
    X(DEAD_LETTERS_SENT_TOTAL, COUNTER, "freshet_dead_letters_sent_total",                                             \
      "Dead letters of this process that their topic has acknowledged.")                                               \
    X(DEAD_LETTERS_FAILED_TOTAL, COUNTER, "freshet_dead_letters_failed_total",                                         \
      "Refusals of dead letters of this process by their topic; each is sent again.")                                  \
    X(DEAD_LETTERS_WITHOUT_VALUE_TOTAL, COUNTER, "freshet_dead_letters_without_value_total",                           \
      "Dead letters of this process that were too large for their topic and went without the record's "                \
      "bytes.")                                                                                                        \
    X(INGEST_RECORD_BYTES, GAUGE, "freshet_ingest_record_bytes", "Memory of batches for the bytes of their records.")  \
    X(RING_FULL_SECONDS_TOTAL, SECONDS, "freshet_ring_full_seconds_total",                                             \
      "How long this process kept from reading because training was behind.")                                          \
    X(SLOT_PRESENT_TOTAL, COUNTER, "freshet_slot_present_total",                                                       \
      "Samples read by this process that carry a value of the slot, or have one computed.")                            \
    X(STEP_SECONDS_TOTAL, SECONDS, "freshet_step_seconds_total", "Time this process spent in training steps.")         \
    X(EXCHANGE_WAIT_SECONDS_TOTAL, SECONDS, "freshet_exchange_wait_seconds_total",                                     \
      "Time that this rank of a job waited for messages of the others; the rank that waits least is the slowest.")     \
    X(WATERMARK_HELD_TOTAL, COUNTER, "freshet_watermark_held_total",                                                   \
      "Batches of this process that held later event times than the watermark rose to (watermark_step_max).")          \
    X(DEVICE_PLANS_TOTAL, COUNTER, "freshet_device_plans_total",                                                       \
      "Batches of this process that were planned while the device computed the one before.")                           \
    X(DEVICE_PLANS_UNDONE_TOTAL, COUNTER, "freshet_device_plans_undone_total",                                         \
      "Of them, those taken back because the batch before was refused or something came between.")                     \
    X(DEVICE_SLICES_TOTAL, COUNTER, "freshet_device_slices_total",                                                     \
      "Batches of this process whose slices of expiry ran while the device still computed them.")                      \
    X(DEVICE_ROWS_BROUGHT_TOTAL, COUNTER, "freshet_device_rows_brought_total",                                         \
      "Rows that this process brought to the device from memory.")                                                     \
    X(WATERMARK_TIMESTAMP_SECONDS, GAUGE, "freshet_watermark_timestamp_seconds",                                       \
      "Largest event time trained; NaN before the first.")                                                             \
    X(LOSS, GAUGE, "freshet_loss", "Loss of the last batch; NaN before the first.")                                    \
    X(PUBLISHING_HELD, GAUGE, "freshet_publishing_held",                                                               \
      "1 while publishing is held because nothing of several batches in a row could train.")                           \
    X(PARTITION_OFFSET, GAUGE, "freshet_partition_offset",                                                             \
      "Offset of the first record of a partition that is not durably trained; NaN before the first.")                  \
    X(PARTITION_LAG_RECORDS, GAUGE, "freshet_partition_lag_records",                                                   \
      "Records from that offset to the end of the partition; NaN while the end is not known.")                         \
    X(PARTITION_TRANSACTION_SECONDS, GAUGE, "freshet_partition_transaction_seconds",                                   \
      "How long the next record of a partition has waited for a producer's open transaction; 0: it does "              \
      "not.")                                                                                                          \
    X(SNAPSHOTS_TOTAL, COUNTER, "freshet_snapshots_total", "Snapshots taken by this process.")                         \
    X(SNAPSHOT_FAILURES_TOTAL, COUNTER, "freshet_snapshot_failures_total",                                             \
      "Snapshots that this process could not take; /healthz and the log say why.")                                     \
    X(SNAPSHOT_HOOK_FAILURES_TOTAL, COUNTER, "freshet_snapshot_hook_failures_total",                                   \
      "Runs of snapshot.hook that did not end with exit status 0; each is repeated.")                                  \
    X(SNAPSHOTS_KEPT, GAUGE, "freshet_snapshots_kept", "Snapshots in snapshot.dir.")                                   \
    X(SNAPSHOT_EPOCH, GAUGE, "freshet_snapshot_epoch", "Epoch of the snapshot that CURRENT names; 0: none.")           \
    X(SNAPSHOT_BYTES, GAUGE, "freshet_snapshot_bytes", "Bytes of the last snapshot that this process took.")           \
    X(SNAPSHOT_SECONDS, GAUGE, "freshet_snapshot_seconds",                                                             \
      "How long the last snapshot of this process took to write.")                                                     \
    X(HPS_ROWS_TOTAL, COUNTER, "freshet_hps_rows_total", "Rows sent to topics of NVIDIA HPS, resends included.")       \
    X(HPS_DROPS_UNTOLD_TOTAL, COUNTER, "freshet_hps_drops_untold_total",                                               \
      "Tombstones that topics of NVIDIA HPS cannot express: its consumers keep those rows.")                           \
    X(DELTA_RETENTION_SHORT, GAUGE, "freshet_delta_retention_short",                                                   \
      "1 while the delta topic keeps less than export.retention needs; the log says what to set.")                     \
    X(EPOCH, GAUGE, "freshet_epoch", "Number of the newest epoch at each stage.")                                      \
    X(LAST_DURABLE_TIMESTAMP_SECONDS, GAUGE, "freshet_last_durable_timestamp_seconds",                                 \
      "When an epoch last became durable; before the first of this process when recovery ended.")                      \
    X(LAST_PUBLISHED_TIMESTAMP_SECONDS, GAUGE, "freshet_last_published_timestamp_seconds",                             \
      "When the delta topic last acknowledged an epoch; before the first of this process when recovery "               \
      "ended.")                                                                                                        \
    X(COLD_READS_TOTAL, COUNTER, "freshet_cold_reads_total", "Keys that this process asked the cold store for.")       \
    X(COLD_FOUND_TOTAL, COUNTER, "freshet_cold_found_total", "Keys that this process found in the cold store.")        \
    X(SAVEPOINTS_TOTAL, COUNTER, "freshet_savepoints_total", "Savepoints taken by this process.")                      \
    X(SAVEPOINT_FAILURES_TOTAL, COUNTER, "freshet_savepoint_failures_total",                                           \
      "Savepoints that this process could not take; /healthz and the log say why.")                                    \
    X(DELTA_RECORDS_TOTAL, COUNTER, "freshet_delta_records_total", "Delta records produced by this process.")          \
    X(DELTA_BYTES_TOTAL, COUNTER, "freshet_delta_bytes_total", "Delta bytes produced by this process.")                \
    X(DELTA_ERRORS_TOTAL, COUNTER, "freshet_delta_errors_total",                                                       \
      "Delta records of this process that the delta topic did not take at once.")                                      \
    X(DELTA_RESENT_EPOCHS_TOTAL, COUNTER, "freshet_delta_resent_epochs_total",                                         \
      "Epochs that this process sent to the delta topic again.")                                                       \
    X(DELTA_MERGED_EPOCHS_TOTAL, COUNTER, "freshet_delta_merged_epochs_total",                                         \
      "Epochs of a backlog that this process sent merged with others.")                                                \
    X(DELTA_MERGES_TOTAL, COUNTER, "freshet_delta_merges_total", "Merged epochs of a backlog that this process sent.") \
    X(DELTA_REBASES_TOTAL, COUNTER, "freshet_delta_rebases_total",                                                     \
      "Whole states that this process published, for a topic that did not hold one or for a backlog.")                 \
    X(DELTA_REWINDS_TOTAL, COUNTER, "freshet_delta_rewinds_total",                                                     \
      "Timelines that this process began with a rewind to a snapshot.")                                                \
    X(REPLICAS, GAUGE, "freshet_replicas", "Replicas that acknowledge epochs, silent ones included.")                  \
    X(REPLICAS_SILENT, GAUGE, "freshet_replicas_silent", "Of them, those that wrote nothing for 30 s.")                \
    X(REPLICAS_STARTING, GAUGE, "freshet_replicas_starting", "Of them, those that serve no epoch yet.")                \
    X(REPLICA_SLOWEST_EPOCHS_BEHIND, GAUGE, "freshet_replica_slowest_epochs_behind",                                   \
      "Published epochs that the slowest replica does not serve; NaN in an older timeline, or if no replica serves.")  \
    X(REPLICA_SLOWEST_FRESHNESS_SECONDS, GAUGE, "freshet_replica_slowest_freshness_seconds",                           \
      "Wall time minus event time of the newest sample that the slowest replica serves.")                              \
    X(REPLICA_SLOWEST_CUT_AGE_SECONDS, GAUGE, "freshet_replica_slowest_cut_age_seconds",                               \
      "Time since the epoch that the slowest replica serves was cut.")                                                 \
    X(REPLICA_ACKNOWLEDGEMENTS_TOTAL, COUNTER, "freshet_replica_acknowledgements_total",                               \
      "Records of the acknowledgement topic that this process read.")                                                  \
    X(REPLICA_ACKNOWLEDGEMENTS_DROPPED_TOTAL, COUNTER, "freshet_replica_acknowledgements_dropped_total",               \
      "Of them, those of further replicas while 1024 were known.")                                                     \
    X(REPLICA_ACKNOWLEDGEMENTS_IGNORED_TOTAL, COUNTER, "freshet_replica_acknowledgements_ignored_total",               \
      "Of them, those that had no effect, by reason.")                                                                 \
    X(PENDING_KEYS, GAUGE, "freshet_pending_keys", "Keys that the gate counts, without a row yet.")                    \
    X(ROWS_RESIDENT, GAUGE, "freshet_rows_resident", "Rows and pending keys in memory.")                               \
    X(ROWS_EVICTED_TOTAL, COUNTER, "freshet_rows_evicted_total",                                                       \
      "Rows and pending keys that left memory for the cold store, in this process.")                                   \
    X(ROWS, GAUGE, "freshet_rows", "Rows by table and tier.")                                                          \
    X(ROWS_ADMITTED_TOTAL, COUNTER, "freshet_rows_admitted_total", "Rows admitted in this history.")                   \
    X(OCCURRENCES_REJECTED_TOTAL, COUNTER, "freshet_occurrences_rejected_total",                                       \
      "Occurrences of keys without a row in this history.")                                                            \
    X(ROWS_EXPIRED_TOTAL, COUNTER, "freshet_rows_expired_total", "Rows expired in this history.")                      \
    X(TASK_SAMPLES_TOTAL, COUNTER, "freshet_task_samples_total",                                                       \
      "Samples that counted for the task's loss in this history; pairwise: that stand in a pair.")                     \
    X(TASK_PAIRS_TOTAL, COUNTER, "freshet_task_pairs_total",                                                           \
      "Pairs of samples that a pairwise task found in this history.")                                                  \
    X(GAUC, GAUGE, "freshet_gauc", "AUC within groups of one gauc_by id, weighted by impressions.")                    \
    X(GAUC_ERROR_MAX, GAUGE, "freshet_gauc_error_max", "Bound of the error of freshet_gauc for the groups kept.")      \
    X(GAUC_GROUPS, GAUGE, "freshet_gauc_groups", "Groups of freshet_gauc that are kept and have both classes.")        \
    X(STORE_BYTES, GAUGE, "freshet_store_bytes", "Memory held by tables.")                                             \
    X(MEMORY_LIMIT_BYTES, GAUGE, "freshet_memory_limit_bytes", "Memory that the process may have (memory_limit).")     \
    X(DIRTY_BYTES, GAUGE, "freshet_dirty_bytes", "Bytes of changes in the open epoch.")                                \
    X(EPOCH_MAX_BYTES, GAUGE, "freshet_epoch_max_bytes",                                                               \
      "Bytes of changes at which an epoch is cut early (epoch_bytes_max).")                                            \
    X(JOURNAL_BYTES, GAUGE, "freshet_journal_bytes", "Bytes of the journal.")                                          \
    X(JOURNAL_MAX_BYTES, GAUGE, "freshet_journal_max_bytes",                                                           \
      "Bytes of the journal at which reading pauses (journal_max).")                                                   \
    X(UNFOLDED_BYTES, GAUGE, "freshet_unfolded_bytes",                                                                 \
      "Bytes of the journal that are not folded into the cold store yet.")                                             \
    X(UNFOLDED_MAX_BYTES, GAUGE, "freshet_unfolded_max_bytes",                                                         \
      "Unfolded bytes at which a fold begins (unfolded_max); at twice of it reading pauses.")                          \
    X(DELTA_IN_FLIGHT_BYTES, GAUGE, "freshet_delta_in_flight_bytes",                                                   \
      "Delta bytes that the delta topic has not acknowledged yet.")                                                    \
    X(DELTA_WAITING_BYTES, GAUGE, "freshet_delta_waiting_bytes",                                                       \
      "Bytes of the journal that wait for the delta topic.")                                                           \
    X(DELTA_BACKLOG_MAX_BYTES, GAUGE, "freshet_delta_backlog_max_bytes",                                               \
      "Waiting bytes beyond which epochs are merged (export.backlog_max).")                                            \
    X(COLD_BYTES, GAUGE, "freshet_cold_bytes", "Bytes of the cold store on disk.")                                     \
    X(DISK_FREE_BYTES, GAUGE, "freshet_disk_free_bytes",                                                               \
      "Bytes that are free for us on the file system of state_dir.")                                                   \
    X(AUC, GAUGE, "freshet_auc", "AUC of predictions made before training.")                                           \
    X(LOGLOSS, GAUGE, "freshet_logloss", "Log loss of predictions made before training.")                              \
    X(AUC_OUTSIDE, GAUGE, "freshet_auc_outside",                                                                       \
      "Share of a class with logits beyond the range of AUC, which is NaN above 0.01, of predictions "                 \
      "made before training.")                                                                                         \
    X(MSE, GAUGE, "freshet_mse", "Mean squared error of predictions made before training.")                            \
    X(CALIBRATION, GAUGE, "freshet_calibration",                                                                       \
      "Mean prediction over mean label of predictions made before training.")                                          \
    X(POSITIVE_RATE, GAUGE, "freshet_positive_rate", "Mean label of predictions made before training.")                \
    X(PREDICTION_MEAN, GAUGE, "freshet_prediction_mean", "Mean prediction of predictions made before training.")       \
    X(SERVED_AUC, GAUGE, "freshet_served_auc", "AUC of the scores that were served.")                                  \
    X(SERVED_LOGLOSS, GAUGE, "freshet_served_logloss", "Log loss of the scores that were served.")                     \
    X(SERVED_AUC_OUTSIDE, GAUGE, "freshet_served_auc_outside",                                                         \
      "Share of a class with logits beyond the range of AUC, which is NaN above 0.01, of the scores "                  \
      "that were served.")                                                                                             \
    X(SERVED_MSE, GAUGE, "freshet_served_mse", "Mean squared error of the scores that were served.")                   \
    X(SERVED_CALIBRATION, GAUGE, "freshet_served_calibration",                                                         \
      "Mean prediction over mean label of the scores that were served.")                                               \
    X(SERVED_POSITIVE_RATE, GAUGE, "freshet_served_positive_rate", "Mean label of the scores that were served.")       \
    X(SERVED_PREDICTION_MEAN, GAUGE, "freshet_served_prediction_mean",                                                 \
      "Mean prediction of the scores that were served.")                                                               \
    X(BUILD_INFO, GAUGE, "freshet_build_info",                                                                         \
      "Always 1; the version, the kernel of products and the fingerprint of the model are labels.")                    \
    X(DEVICE_INFO, GAUGE, "freshet_device_info",                                                                       \
      "Always 1; the device that computes the network, and what a card's driver calls it, are labels.")                \
    X(LOG_LINES_LOST_TOTAL, COUNTER, "freshet_log_lines_lost_total",                                                   \
      "Lines of the log that standard error did not take.")                                                            \
    X(PROCESS_CPU_SECONDS_TOTAL, SECONDS, "process_cpu_seconds_total",                                                 \
      "Processor time of the process, user and system.")                                                               \
    X(PROCESS_RESIDENT_MEMORY_BYTES, GAUGE, "process_resident_memory_bytes",                                           \
      "Memory of the process that is resident.")                                                                       \
    X(PROCESS_OPEN_FDS, GAUGE, "process_open_fds", "Descriptors that the process has open.")                           \
    X(PROCESS_MAX_FDS, GAUGE, "process_max_fds", "Descriptors that the process may have open.")                        \
    X(PROCESS_START_TIME_SECONDS, GAUGE, "process_start_time_seconds", "When the process began, Unix time.")           \
    X(THREAD_CPU_SECONDS_TOTAL, SECONDS, "freshet_thread_cpu_seconds_total",                                           \
      "Processor time of this process by thread; worker: those of the pool together.")                                 \
    X(PHASE_SECONDS_TOTAL, SECONDS, "freshet_phase_seconds_total",                                                     \
      "Seconds that the owner loop spent by phase since the start; the pool works with it.")                           \
    X(LIVE, GAUGE, "freshet_live", "0 while a loop is stuck and only a restart helps: /healthz answers 503.")          \
    X(DEGRADED, GAUGE, "freshet_degraded",                                                                             \
      "1 while the source gives /healthz a reason to be degraded; the reason is there.")                               \
    X(HTTP_CONNECTIONS, GAUGE, "freshet_http_connections", "HTTP connections that are open.")                          \
    X(HTTP_CONNECTIONS_MAX, GAUGE, "freshet_http_connections_max",                                                     \
      "HTTP connections that may be open; a further one takes the place of the one that is idle longest.")             \
    X(HTTP_CONNECTIONS_CLOSED_TOTAL, COUNTER, "freshet_http_connections_closed_total",                                 \
      "HTTP connections that the server closed: for the place, or because their time was over.")                       \
    X(HTTP_ACCEPT_ERRORS_TOTAL, COUNTER, "freshet_http_accept_errors_total",                                           \
      "HTTP connections that could not be accepted for want of descriptors or memory; tried again.")                   \
    X(BATCH_SAMPLES, HISTOGRAM, "freshet_batch_samples", "Samples of the batches that were trained.")                  \
    X(STEP_DURATION_SECONDS, HISTOGRAM, "freshet_step_duration_seconds",                                               \
      "How long one batch took the owner loop, plan to update.")                                                       \
    X(CUT_DURATION_SECONDS, HISTOGRAM, "freshet_cut_duration_seconds", "How long a cut held up training.")             \
    X(APPEND_DURATION_SECONDS, HISTOGRAM, "freshet_append_duration_seconds",                                           \
      "How long the journal took to write and sync an epoch and its high-water mark.")                                 \
    X(DURABLE_DELAY_SECONDS, HISTOGRAM, "freshet_durable_delay_seconds",                                               \
      "Time from the cut of an epoch until it was durable.")                                                           \
    X(PUBLISH_DELAY_SECONDS, HISTOGRAM, "freshet_publish_delay_seconds",                                               \
      "Time from an epoch with samples being durable until the delta topic had acknowledged it.")                      \
    X(FOLD_DURATION_SECONDS, HISTOGRAM, "freshet_fold_duration_seconds",                                               \
      "How long a fold of the journal into the cold store took.")                                                      \
    X(FRESHNESS_SECONDS, HISTOGRAM, "freshet_freshness_seconds",                                                       \
      "Wall time minus event time of trained samples when they reached the stage.")                                    \
    X(ARRIVAL_AGE_SECONDS, HISTOGRAM, "freshet_arrival_age_seconds",                                                   \
      "Wall time minus Kafka timestamp of trained samples when they reached the stage.")                               \
    X(INGEST_LAG_SECONDS, HISTOGRAM, "freshet_ingest_lag_seconds",                                                     \
      "Wall time minus the newest Kafka timestamp of a batch when it was trained.")

enum fr_series {
#define FR_SERIES_ENUMERATOR(id, kind, name, help) FR_SERIES_##id,
    FR_SERIES(FR_SERIES_ENUMERATOR)
#undef FR_SERIES_ENUMERATOR
        FR_SERIES_COUNT
};

struct fr_series_row {
    enum fr_series_kind kind;
    const char *name, *help;
};
extern const struct fr_series_row fr_series_rows[FR_SERIES_COUNT];

/* labels as in registry.h; NULL: none. A series of another kind ends the process (FR_CHECK). */
void fr_series_count(struct fr_registry *registry, enum fr_series series, const char *labels, uint64_t total);
void fr_series_set(struct fr_registry *registry, enum fr_series series, const char *labels, double value);
struct fr_metric *fr_series_histogram(struct fr_registry *registry, enum fr_series series, const char *labels,
                                      const double *bounds, size_t n_bounds);

#endif
