/* GET / and the numbers of GET /history (page_documents.h; the page itself: page/).
 *
 * One function lists the columns of the history with their values: it is walked once to add the
 * columns and then every second to put the values, so that a new column is one line. */
#include "page_documents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "documents.h"
#include "model_document.h"
#include "page/page.h"
#include "service.h"

/* ---- the history ---- */

struct columns {
    struct fr_history *add_to; /* NULL: values are gathered */
    size_t n;
    double values[FR_HISTORY_COLUMNS_MAX];
};

static void column_of(struct columns *columns, const struct fr_history_column *column, double value)
{
    if (columns->add_to)
        (void)fr_history_add(columns->add_to, column); /* false: no room */
    else if (columns->n < FR_HISTORY_COLUMNS_MAX)
        columns->values[columns->n++] = value;
}

static void column(struct columns *columns, const char *name, enum fr_history_of of, double value)
{
    struct fr_history_column added = {.of = of};
    snprintf(added.name, sizeof(added.name), "%s", name);
    column_of(columns, &added, value);
}

/* Standard error of an AUC from its classes' sizes (Hanley & McNeil 1982, equation 1). The decayed
 * weights stand for the sizes; where samples weigh 1, the effective sizes are up to twice as large,
 * so the error is rather too large than too small. */
static double auc_error(const struct fr_auc_result *result)
{
    double a = result->auc, positives = result->weight * result->positive_rate, negatives = result->weight - positives;
    if (!(positives >= 1 && negatives >= 1))
        return (double)NAN;
    double q1 = a / (2 - a), q2 = 2 * a * a / (1 + a);
    return sqrt((a * (1 - a) + (positives - 1) * (q1 - a * a) + (negatives - 1) * (q2 - a * a)) /
                (positives * negatives));
}

static void columns_task(struct columns *columns, const struct fr_conf *conf, uint32_t task, uint32_t half_life,
                         const struct fr_auc_result *result)
{
    struct fr_history_column of = {.of = FR_HISTORY_LAST};
    const struct {
        const char *name;
        double value;
    } values[] = {{"auc", result->auc},
                  {"auc_error", auc_error(result)},
                  {"logloss", result->logloss},
                  {"mse", result->mse},
                  {"calibration", result->calibration}};
    size_t n = half_life == 0 ? FR_ARRAY_LEN(values) : 1; /* of longer half-lives the AUC alone */
    snprintf(of.task, sizeof(of.task), "%s", conf->tasks[task].name);
    snprintf(of.half_life, sizeof(of.half_life), "%s", conf->metrics.half_life_name[half_life]);
    for (size_t i = 0; i < n; i++) {
        snprintf(of.name, sizeof(of.name), "%s", values[i].name);
        column_of(columns, &of, values[i].value);
    }
}

static void columns_tasks(struct columns *columns, const struct fr_conf *conf, const struct fr_service_status *s)
{
    static const struct fr_auc_result unknown = {
        .auc = NAN, .logloss = NAN, .calibration = NAN, .mse = NAN, .positive_rate = NAN};
    for (uint32_t h = 0; h < conf->metrics.n_half_lives; h++)
        for (uint32_t i = 0; i < conf->n_tasks; i++)
            columns_task(columns, conf, i, h,
                         i < s->trainer.history.n_tasks ? &s->trainer.tasks[i].result.decayed[h] : &unknown);
}

static void columns_freshness(struct columns *columns, struct fr_service *service)
{
    static const struct {
        const char *name;
        enum fr_freshness_series series;
        double q;
    } ages[] = {{"trained_p50", FR_FRESH_TRAINED, 0.5},
                {"trained_p99", FR_FRESH_TRAINED, 0.99},
                {"published_p50", FR_FRESH_PUBLISHED, 0.5},
                {"published_p99", FR_FRESH_PUBLISHED, 0.99},
                {"arrival_trained_p50", FR_FRESH_ARRIVAL_TRAINED, 0.5},
                {"arrival_trained_p99", FR_FRESH_ARRIVAL_TRAINED, 0.99},
                {"arrival_published_p50", FR_FRESH_ARRIVAL_PUBLISHED, 0.5},
                {"arrival_published_p99", FR_FRESH_ARRIVAL_PUBLISHED, 0.99}};
    fr_freshness_window_move(service->documents->page.window, service->freshness, fr_mono_ns(service->clock));
    for (size_t i = 0; i < FR_ARRAY_LEN(ages); i++)
        column(columns, ages[i].name, FR_HISTORY_LAST,
               fr_freshness_window_quantile(service->documents->page.window, service->freshness, ages[i].series,
                                            ages[i].q));
}

static void columns_tables(struct columns *columns, const struct fr_trainer_status *trainer, bool known)
{
    double rows = 0, pending = 0, admitted = 0, expired = 0;
    for (uint32_t i = 0; i < trainer->n_tables; i++) {
        const struct fr_store_counts *counts = &trainer->tables[i].stats.counts;
        rows += (double)counts->rows;
        pending += (double)counts->pending;
        admitted += (double)counts->admitted;
        for (size_t r = 0; r < FR_EXPIRY_RULES; r++)
            expired += (double)counts->expired[fr_documents_expiry[r].reason];
    }
    column(columns, "rows", FR_HISTORY_LAST, known ? rows : (double)NAN);
    column(columns, "pending", FR_HISTORY_LAST, known ? pending : (double)NAN);
    column(columns, "admitted_per_second", FR_HISTORY_RATE, known ? admitted : (double)NAN);
    column(columns, "expired_per_second", FR_HISTORY_RATE, known ? expired : (double)NAN);
}

static void columns_bytes(struct columns *columns, const struct fr_service *service, const struct fr_service_status *s)
{
    uint64_t free_bytes = 0;
    bool known = !columns->add_to && fr_disk_free_bytes(service->conf->state_dir, &free_bytes, NULL) == FR_OK;
    column(columns, "resident_bytes", FR_HISTORY_MAX, service->documents->process.resident_bytes);
    column(columns, "store_bytes", FR_HISTORY_MAX, (double)s->trainer.store_bytes);
    column(columns, "journal_bytes", FR_HISTORY_MAX, (double)s->durable.journal_bytes);
    column(columns, "unfolded_bytes", FR_HISTORY_MAX, (double)s->durable.unfolded_bytes);
    column(columns, "cold_bytes", FR_HISTORY_LAST, (double)s->durable.cold_bytes);
    column(columns, "disk_free_bytes", FR_HISTORY_LAST, known ? (double)free_bytes : (double)NAN);
    column(columns, "outbox_bytes", FR_HISTORY_MAX, (double)s->waiting_bytes);
}

static void columns_of(struct columns *columns, struct fr_service *service, const struct fr_service_status *s)
{
    const struct fr_trainer_history *history = &s->trainer.history;
    bool known = s->recovered, lags = known && s->ingest.connected;
    uint64_t durable = s->durable.epoch, acked = s->publisher.acked;
    column(columns, "ready", FR_HISTORY_LAST, s->ready);
    column(columns, "problems", FR_HISTORY_MAX, (double)service->documents->readiness.n);
    column(columns, "samples_per_second", FR_HISTORY_RATE, known ? (double)history->samples : (double)NAN);
    column(columns, "lag_seconds", FR_HISTORY_MAX, lags ? (double)s->ingest.lag_ms / 1e3 : (double)NAN);
    columns_freshness(columns, service);
    columns_tables(columns, &s->trainer, known);
    columns_bytes(columns, service, s);
    column(columns, "epochs_cut", FR_HISTORY_LAST, (double)s->trainer.epoch);
    column(columns, "epochs_durable", FR_HISTORY_LAST, (double)durable);
    column(columns, "epochs_acked", FR_HISTORY_LAST, (double)acked);
    column(columns, "outbox_epochs", FR_HISTORY_MAX, durable > acked ? (double)(durable - acked) : 0);
    column(columns, "paused", FR_HISTORY_MAX, s->trainer.pause != FR_PAUSE_NONE || s->ingest.pause != FR_INGEST_READS);
    column(columns, "held", FR_HISTORY_MAX, history->held);
    columns_tasks(columns, service->conf, s);
}

/* ---- the page ---- */

static void describe_state(const struct fr_service *service, const struct fr_service_status *s, char *out, size_t size)
{
    const struct fr_recovery *recovery = &service->recovery;
    uint64_t total = atomic_load(&recovery->total_bytes), done = atomic_load(&recovery->done_bytes);
    switch (atomic_load(&service->life.phase)) {
    case FR_PHASE_RECOVERING:
        snprintf(out, size, "Recovering: %.0f %% of the state is loaded.",
                 total ? 100.0 * (double)done / (double)total : 0.0);
        return;
    case FR_PHASE_DRAINING:
        snprintf(out, size, "Draining: the last epoch is made durable and published, then the daemon ends.");
        return;
    default:
        snprintf(out, size, "%s%s", s->ready ? "Running, ready" : "Running, not ready",
                 service->documents->readiness.n > 0 ? ", with problems." : ".");
    }
}

static void publish_page(struct fr_service *service, const struct fr_service_status *s)
{
    const struct fr_readiness *readiness = &service->documents->readiness;
    struct fr_page_problem problems[FR_READINESS_PROBLEMS_MAX];
    char state[128];
    struct fr_buffer body = {0};
    for (size_t i = 0; i < readiness->n; i++)
        problems[i] = (struct fr_page_problem){readiness->problems[i].where, readiness->problems[i].text};
    describe_state(service, s, state, sizeof(state));
    struct fr_page_head head = {.model = service->conf->model,
                                .version = FR_VERSION,
                                .state = state,
                                .n_problems = readiness->n,
                                .problems = problems};
    fr_page_document(&head, &body);
    fr_http_publish(service->http, "/", 200, "text/html; charset=utf-8", body.data, body.size);
    fr_buffer_release(&body);
}

void fr_documents_page_open(struct fr_service *service)
{
    struct fr_page_documents *page = &service->documents->page;
    static const struct fr_service_status nothing;
    page->history = fr_history_new(service->clock);
    page->window = fr_freshness_window_new();
    struct columns columns = {.add_to = page->history};
    columns_of(&columns, service, &nothing);
    fr_http_serve(service->http, "/history", fr_history_answer, page->history);
    fr_documents_model(service);
}

void fr_documents_page(struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_page_documents *page = &service->documents->page;
    if (!page->history)
        return;
    publish_page(service, s);
    if (!fr_history_due(page->history))
        return;
    struct columns columns = {0};
    columns_of(&columns, service, s);
    fr_history_put(page->history, columns.values);
}

void fr_documents_page_release(struct fr_page_documents *page)
{
    fr_history_free(page->history);
    fr_freshness_window_free(page->window);
    *page = (struct fr_page_documents){0};
}
