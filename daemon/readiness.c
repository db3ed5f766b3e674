/* Which problems there are, and which of them block readiness (readiness.h).
 *
 * Causes come before their consequences: a delta topic that refuses records comes before the
 * journal that is full because of it, and absent brokers come before the growing lag. /readyz
 * gives the first problem as its reason. All problems are listed, because a problem that stays
 * hidden until another one is solved costs an operator a second round.
 *
 * Reasons of /healthz that repeat a text of the list (such as a pause of reading) are left out.
 * /healthz cuts its texts to 255 bytes, so only that many bytes are compared. */
#include "readiness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service.h"

enum { HEALTH_TEXT_MAX = 255 };

static const struct fr_readiness_problem *find(const struct fr_readiness *readiness, const char *where)
{
    for (size_t i = 0; i < readiness->n; i++)
        if (strcmp(readiness->problems[i].where, where) == 0)
            return &readiness->problems[i];
    return NULL;
}

/* Adds a problem that does not block readiness. text "": there is none. */
static void add(struct fr_readiness *readiness, const char *where, const char *text)
{
    if (!text[0] || readiness->n == FR_READINESS_PROBLEMS_MAX)
        return;
    struct fr_readiness_problem *problem = &readiness->problems[readiness->n++];
    snprintf(problem->where, sizeof(problem->where), "%s", where);
    snprintf(problem->text, sizeof(problem->text), "%s", text);
}

/* Adds a problem that blocks readiness; the reason is `prefix` and its text. */
static void block(struct fr_readiness *readiness, const char *where, const char *text, const char *prefix)
{
    if (text[0] && !readiness->reason[0])
        snprintf(readiness->reason, sizeof(readiness->reason), "%s%s", prefix, text);
    add(readiness, where, text);
}

/* ---- problems that block readiness ---- */

static void check_phase(struct fr_readiness *now, struct fr_service *service)
{
    char text[FR_READINESS_TEXT_MAX];
    int phase = atomic_load(&service->life.phase);
    if (phase == FR_PHASE_RUNNING && atomic_load(&service->loops.ingest.shared.started))
        return;
    fr_lifecycle_get_starting(&service->life, text, sizeof(text));
    block(now, "service",
          phase == FR_PHASE_RECOVERING ? "recovering"
          : phase == FR_PHASE_DRAINING ? "draining"
          : text[0]                    ? text
                                       : "starting",
          "");
}

static void check_lag(struct fr_readiness *now, const struct fr_conf *conf, const struct fr_ingest_status *ingest)
{
    char text[64];
    if (ingest->lag_ms <= conf->ingest.ready_lag_ms)
        return;
    snprintf(text, sizeof(text), "lag of %" PRId64 " ms is over ready_lag", ingest->lag_ms);
    if (!now->reason[0]) /* the reason includes the likely cause */
        snprintf(now->reason, sizeof(now->reason), "%s%s%s", text, ingest->problem[0] ? ": " : "", ingest->problem);
    add(now, "lag", text);
}

static void check_reading(struct fr_readiness *now, struct fr_service *service, const struct fr_service_status *s)
{
    char text[FR_READINESS_TEXT_MAX] = "";
    block(now, "publisher", s->publisher.refused, "publisher: ");
    block(now, "trainer", s->trainer.paused, "paused: ");
    const struct fr_ingest_status *ingest = &s->ingest;
    const char *first = fr_ingest_problems[ingest->first];
    bool paused = ingest->pause != FR_INGEST_READS;
    if (paused)
        block(now, first, ingest->problem, "paused: ");
    if (fr_shared_durable_late(&service->loops.durable.shared, service->conf, service->clock, text, sizeof(text)))
        block(now, "durable", text, "");
    if (!paused && (!ingest->connected || ingest->stands)) /* nothing can be read */
        block(now, first, ingest->problem, "ingest: ");
    check_lag(now, service->conf, ingest);
    for (int kind = 0; kind < FR_INGEST_PROBLEM_KINDS; kind++)
        if (!find(now, fr_ingest_problems[kind]))
            add(now, fr_ingest_problems[kind], ingest->problems[kind]);
}

/* ---- other problems ---- */

static void add_reason(void *self, const char *source, const char *text)
{
    struct fr_readiness *now = self;
    for (size_t i = 0; i < now->n; i++)
        if (strncmp(now->problems[i].text, text, HEALTH_TEXT_MAX) == 0)
            return;
    add(now, source, text);
}

void fr_readiness_update(struct fr_readiness *readiness, struct fr_service *service, const struct fr_service_status *s)
{
    struct fr_readiness *now = fr_alloc(1, sizeof(*now));
    int64_t now_ms = fr_wall_ms(service->clock);
    check_phase(now, service);
    /* Before reading has started, the problem of the start itself is the one to report. */
    if (atomic_load(&service->loops.ingest.shared.started))
        check_reading(now, service, s);
    if (!find(now, "publisher"))
        add(now, "publisher", s->publisher.problem);
    fr_http_visit_problems(service->http, add_reason, now);
    for (size_t i = 0; i < now->n; i++) {
        const struct fr_readiness_problem *before = find(readiness, now->problems[i].where);
        now->problems[i].since_ms = before ? before->since_ms : now_ms;
    }
    *readiness = *now;
    free(now);
}
