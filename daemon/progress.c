/* The log lines of a healthy run: its start, a line a minute about its progress, the pauses of
 * reading, and its end. Problems are logged where they are found.
 *
 * A model that is short of memory may pause after every fold. Therefore at most one pause a minute
 * is logged, with its end; the others are counted in the line of the minute. A pause is known from
 * the trainer's status, which is renewed at least once a second.
 *
 * Owner: main thread. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "progress.h"
#include "service.h"

static const uint64_t LINE_NS = UINT64_C(60000000000); /* between two lines about progress */

static uint64_t rows_of(const struct fr_trainer_status *trainer)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < trainer->n_tables; i++)
        rows += trainer->tables[i].stats.counts.rows;
    return rows;
}

void fr_progress_start(const struct fr_service *service)
{
    const struct fr_conf *conf = service->conf;
    char config[600], state[600];
    fr_log(FR_LOG_INFO, "daemon", "start",
           "version=%s config=%s state_dir=%s threads=%zu memory_limit=%" PRIu64 " kernel=\"%s\" librdkafka=%s",
           FR_VERSION, fr_log_quote(config, sizeof(config), service->options.config),
           fr_log_quote(state, sizeof(state), conf->state_dir), fr_pool_workers(service->pool), conf->memory_limit,
           fr_trainer_kernel(service->trainer), fr_ingest_kafka_version());
}

/* ---- pauses ---- */

static void log_pause(struct fr_progress *progress, const char *reason, uint64_t now_ns)
{
    bool paused = reason[0] != '\0';
    if (paused && !progress->paused_ns) {
        char quoted[600];
        progress->paused_ns = progress->pause_counted_ns = now_ns;
        progress->pauses++;
        progress->pause_logged = fr_log_due(&progress->pause_logged_ns, now_ns, LINE_NS);
        if (progress->pause_logged)
            fr_log(FR_LOG_WARN, "daemon", "paused", "reason=%s", fr_log_quote(quoted, sizeof(quoted), reason));
    } else if (!paused && progress->paused_ns) {
        if (progress->pause_logged)
            fr_log(FR_LOG_INFO, "daemon", "resumed", "after_seconds=%.1f",
                   (double)(now_ns - progress->paused_ns) / 1e9);
        progress->pause_total_ns += now_ns - progress->pause_counted_ns;
        progress->paused_ns = 0;
    }
}

/* ---- the line of the minute ---- */

static void put_auc(const struct fr_trainer_status *trainer, struct fr_buffer *out)
{
    for (uint32_t t = 0; t < trainer->history.n_tasks; t++) {
        const struct fr_task_result *result = &trainer->tasks[t].result;
        if (!result->regression && result->n_half_lives > 0 && isfinite(result->decayed[0].auc))
            fr_buffer_printf(out, " auc_%s=%.4f", trainer->history.tasks[t].name, result->decayed[0].auc);
    }
}

static void log_minute(struct fr_progress *progress, struct fr_service *service,
                       const struct fr_trainer_status *trainer, uint64_t now_ns)
{
    struct fr_ingest_status ingest = {0};
    struct fr_publisher_status publisher;
    struct fr_buffer text = {0};
    fr_ingest_get_status(service->ingest, &ingest);
    fr_publisher_get_status(service->publisher, &publisher);
    double seconds = (double)(now_ns - progress->logged_ns) / 1e9;
    uint64_t open_ns = progress->paused_ns ? now_ns - progress->pause_counted_ns : 0;
    fr_buffer_printf(&text, "samples=%" PRIu64 " rate=%.0f lag_ms=%" PRId64 " rows=%" PRIu64, trainer->history.samples,
                     (double)(trainer->history.samples - progress->samples) / seconds, ingest.lag_ms, rows_of(trainer));
    put_auc(trainer, &text);
    fr_buffer_printf(&text, " epoch=%" PRIu64 " durable=%" PRIu64 " published=%" PRIu64, trainer->epoch,
                     atomic_load(&service->loops.durable.shared.epoch), publisher.acked);
    if (progress->pauses > 0 || open_ns > 0)
        fr_buffer_printf(&text, " pauses=%" PRIu32 " paused_seconds=%.1f", progress->pauses,
                         (double)(progress->pause_total_ns + open_ns) / 1e9);
    fr_log(FR_LOG_INFO, "daemon", "progress", "%.*s", (int)text.size, (const char *)text.data);
    progress->logged_ns = now_ns;
    progress->samples = trainer->history.samples;
    progress->pauses = 0;
    progress->pause_total_ns = 0;
    progress->pause_counted_ns = now_ns; /* the rest of an open pause is counted in the next line */
    fr_ingest_status_release(&ingest);
    fr_buffer_release(&text);
}

void fr_progress_log(struct fr_progress *progress, struct fr_service *service)
{
    struct fr_trainer_status *trainer = fr_alloc(1, sizeof(*trainer));
    uint64_t now_ns = fr_mono_ns(service->clock);
    fr_trainer_get_status(service->trainer, trainer);
    log_pause(progress, trainer->paused, now_ns);
    if (progress->logged_ns == 0) { /* samples that were restored are no progress */
        progress->logged_ns = now_ns;
        progress->samples = trainer->history.samples;
    } else if (now_ns - progress->logged_ns >= LINE_NS) {
        log_minute(progress, service, trainer, now_ns);
    }
    free(trainer);
}

void fr_progress_end(struct fr_service *service, char *out, size_t size)
{
    struct fr_trainer_status *trainer = fr_alloc(1, sizeof(*trainer));
    fr_trainer_get_status(service->trainer, trainer);
    snprintf(out, size, "epoch=%" PRIu64 " samples=%" PRIu64 " rows=%" PRIu64,
             atomic_load(&service->loops.durable.shared.epoch), trainer->history.samples, rows_of(trainer));
    free(trainer);
}
