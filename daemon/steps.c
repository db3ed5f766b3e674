/* What each thread of the service does in one turn, and what is decided there: when a check of the
 * outside world is tried again, what an epoch waits for before it becomes durable. Limits and folds
 * are in upkeep.c.
 *
 * A step does one thing and returns: FR_OK: again at once; FR_AGAIN: there is nothing to do for a
 * moment; FR_EOF: the loop is over; negative: the service has failed. No step sleeps on its own and
 * time is the service's clock, so that a test calls steps in any order with a fake clock. A step is
 * called by its loop's thread only (service.h). */
#include "service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/trace.h"

enum { LETTERS_TOLD_MS = 5000, RETRY_TOLD_AGAIN_MS = 60000, POP_MS = 200, NS_PER_MS = 1000000 };

static bool is_trouble(enum fr_status status)
{
    return status == FR_E_UNAVAILABLE || status == FR_E_DENIED || status == FR_E_NO_SPACE;
}

static void set_starting(struct fr_service *service, const char *text)
{
    pthread_mutex_lock(&service->lock);
    snprintf(service->starting, sizeof(service->starting), "%s", text);
    pthread_mutex_unlock(&service->lock);
}

void fr_service_wait_longer(struct fr_retry *retry, const struct fr_clock *clock, uint32_t least_ms, uint32_t most_ms)
{
    retry->wait_ms = retry->wait_ms == 0 ? least_ms : 2 * retry->wait_ms;
    if (retry->wait_ms > most_ms)
        retry->wait_ms = most_ms;
    retry->next_ns = fr_mono_ns(clock) + (uint64_t)retry->wait_ms * NS_PER_MS;
}

static void wait_longer(const struct fr_service *service, struct fr_retry *retry)
{
    fr_service_wait_longer(retry, service->clock, FR_RETRY_MS_MIN, FR_RETRY_MS_MAX);
}

/* In the log when the reason is another one, and once a minute. */
static void tell_retry(struct fr_service *service, struct fr_retry *retry, const char *source, const struct fr_err *err,
                       bool trouble)
{
    char quoted[1100];
    if (trouble)
        fr_http_reason(service->http, source, err->text);
    uint64_t text = fr_xxh3(err->text, strlen(err->text));
    bool due = fr_log_due(&retry->told_ns, fr_mono_ns(service->clock), (uint64_t)RETRY_TOLD_AGAIN_MS * NS_PER_MS);
    if (!due && text == retry->told_text)
        return;
    retry->told_text = text;
    fr_log(trouble ? FR_LOG_WARN : FR_LOG_INFO, source, "retry", "in_ms=%" PRIu32 " reason=%s", retry->wait_ms,
           fr_log_quote(quoted, sizeof(quoted), err->text));
}

void fr_service_retry_later(struct fr_service *service, struct fr_retry *retry, const char *source,
                            const struct fr_err *err)
{
    wait_longer(service, retry);
    tell_retry(service, retry, source, err, true);
}

void fr_service_retry_good(struct fr_service *service, struct fr_retry *retry, const char *source)
{
    if (retry->wait_ms == 0)
        return;
    *retry = (struct fr_retry){0};
    fr_http_reason(service->http, source, NULL);
    fr_log(FR_LOG_INFO, source, "goes_on", "after=retries");
}

/* Why the start waits, and for how long: a broker that hangs says nothing new by itself. */
static void say_starting(struct fr_service *service, const struct fr_retry *retry, const char *why)
{
    char text[sizeof(service->starting)];
    uint64_t seconds = (fr_mono_ns(service->clock) - retry->since_ns) / 1000000000u;
    if (seconds == 0)
        snprintf(text, sizeof(text), "%s", why);
    else
        snprintf(text, sizeof(text), "%.900s (tried again for %" PRIu64 " s)", why, seconds);
    set_starting(service, text);
}

/* The status of `check`, repeated until it is good; FR_AGAIN meanwhile. Why it waits is in /readyz
 * and the log at once. It is trouble when the waits, or the tries (a question that nobody answers
 * takes seconds), have reached FR_RETRY_TOLD_MS. */
static enum fr_status try_again(struct fr_service *service, struct fr_retry *retry, const char *what,
                                enum fr_status (*check)(struct fr_service *service, struct fr_err *err),
                                struct fr_err *err)
{
    if (fr_mono_ns(service->clock) < retry->next_ns)
        return FR_AGAIN;
    uint64_t begin_ns = fr_mono_ns(service->clock);
    enum fr_status status = check(service, err);
    if (status == FR_OK) {
        set_starting(service, "");
        fr_http_reason(service->http, what, NULL);
    }
    if (status != FR_AGAIN && !is_trouble(status))
        return status;
    wait_longer(service, retry);
    if (status == FR_AGAIN)
        return FR_AGAIN;
    if (!retry->since_ns)
        retry->since_ns = begin_ns ? begin_ns : 1;
    uint64_t tried_ms = (fr_mono_ns(service->clock) - retry->since_ns) / NS_PER_MS;
    say_starting(service, retry, err->text);
    tell_retry(service, retry, what, err, retry->wait_ms >= FR_RETRY_TOLD_MS || tried_ms >= FR_RETRY_TOLD_MS);
    return FR_AGAIN;
}

static enum fr_status start_ingest(struct fr_service *service, struct fr_err *err)
{
    return fr_ingest_start(service->ingest, err);
}

enum fr_status fr_step_ingest(struct fr_service *service, struct fr_err *err)
{
    bool stop = atomic_load(&service->stop_ingest);
    if (!atomic_load(&service->ingest_started)) {
        /* Nothing is consumed before the delta topic is known to be ours (docs/architecture.md,
         * "Publishing"). */
        if (stop || !atomic_load(&service->delta_checked))
            return stop ? FR_EOF : FR_AGAIN;
        enum fr_status status = try_again(service, &service->ingest_retry, "ingest", start_ingest, err);
        atomic_store(&service->ingest_started, status == FR_OK);
        return status;
    }
    if (!stop && !service->stream_ended) {
        enum fr_status status = fr_ingest_step(service->ingest, 50, err);
        service->stream_ended = status == FR_EOF;
        return status < 0 ? status : FR_OK;
    }
    /* Dead letters and group commits are served until the durable thread has had its last epoch;
     * what the stream would still give is the next start's. */
    if (atomic_load(&service->loops[FR_LOOP_DURABLE].done) || atomic_load(&service->abandon))
        return FR_EOF;
    fr_ingest_serve(service->ingest);
    return FR_AGAIN;
}

enum fr_status fr_step_trainer(struct fr_service *service, struct fr_err *err)
{
    if (atomic_load(&service->abandon))
        return FR_EOF;
    enum fr_status status = fr_trainer_step(service->trainer, err);
    if (status == FR_EOF) /* the durable thread ends after the stages that are in it */
        fr_ring_close(service->cut_stages);
    return status;
}

/* ---- durable ---- */

/* Dead letters of the records before the cut must be acknowledged first (docs/architecture.md,
 * "Dead letters"). */
static bool letters_acknowledged(struct fr_service *service, const struct fr_stage *stage)
{
    uint64_t acknowledged = fr_ingest_dead_acknowledged(service->ingest);
    if (acknowledged >= stage->dead_sequence) {
        if (service->letters_told_ns)
            fr_http_reason(service->http, "dead_letters", NULL);
        service->letters_told_ns = 0;
        return true;
    }
    if (fr_log_due(&service->letters_told_ns, fr_mono_ns(service->clock), (uint64_t)LETTERS_TOLD_MS * NS_PER_MS)) {
        fr_log(FR_LOG_WARN, "durable", "waiting_for_dead_letters",
               "epoch=%" PRIu64 " acknowledged=%" PRIu64 " needed=%" PRIu64, stage->epoch, acknowledged,
               stage->dead_sequence);
        fr_http_reason(service->http, "dead_letters", "dead letters are not acknowledged; epochs wait for them");
    }
    return false;
}

static void remember_positions(struct fr_service *service, const struct fr_stage *stage)
{
    for (size_t i = 0; i < stage->n_sections; i++) {
        if (strcmp(stage->sections[i].name, "positions") != 0)
            continue;
        struct fr_positions positions = {0};
        enum fr_status parsed =
            fr_positions_parse(stage->sections[i].bytes.data, stage->sections[i].bytes.size, &positions);
        FR_CHECK(parsed == FR_OK); /* our own bytes of a moment ago */
        fr_ingest_commit(service->ingest, &positions);
        pthread_mutex_lock(&service->lock);
        fr_positions_copy(&positions, &service->durable_positions);
        pthread_mutex_unlock(&service->lock);
        fr_positions_release(&positions);
    }
}

static enum fr_status make_durable(struct fr_service *service, struct fr_stage *stage, struct fr_err *err)
{
    uint64_t begin_ns = fr_mono_ns(service->clock);
    struct fr_sha256 digest;
    uint64_t image_bytes = stage->image_bytes, bytes = fr_stage_bytes(stage);
    size_t images = stage->n_images;
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_durable_append(service->durable, stage, NULL, &digest, err);
    fr_trace_end("append", traced_ns);
    if (status != FR_OK)
        return status;
    uint64_t end_ns = fr_mono_ns(service->clock);
    fr_freshness_durable(service->freshness, stage->epoch, fr_wall_ms(service->clock));
    atomic_store(&service->durable_epoch, stage->epoch);
    atomic_store(&service->publishable, stage->publishable);
    fr_publisher_offer(service->publisher, stage->publishable);
    atomic_fetch_add(&service->append_ns, end_ns - begin_ns);
    atomic_fetch_add(&service->appends, 1);
    atomic_fetch_add(&service->epoch_bytes, image_bytes);
    atomic_fetch_add(&service->appended_bytes, bytes);
    atomic_store(&service->cut_to_durable_ns, end_ns - stage->cut_mono_ns);
    atomic_store(&service->durable_wall_ms, fr_wall_ms(service->clock));
    fr_timings_observe(&service->timings, FR_TIMING_APPEND, (double)(end_ns - begin_ns) / 1e9);
    fr_timings_observe(&service->timings, FR_TIMING_DURABLE, (double)(end_ns - stage->cut_mono_ns) / 1e9);
    remember_positions(service, stage);
    fr_log(FR_LOG_DEBUG, "durable", "epoch",
           "epoch=%" PRIu64 " images=%zu image_bytes=%" PRIu64 " digest=%016" PRIx64 " ms=%.1f", stage->epoch, images,
           image_bytes, fr_sha256_u64(&digest), (double)(end_ns - stage->cut_mono_ns) / 1e6);
    return FR_OK;
}

/* What was written is cut off again; the epoch waits here, and reading soon after, until there is
 * room. */
static enum fr_status append(struct fr_service *service, struct fr_stage *stage, struct fr_err *err)
{
    if (fr_mono_ns(service->clock) < service->append_retry.next_ns)
        return FR_AGAIN;
    atomic_store(&service->waits_for, NULL); /* the disk */
    enum fr_status status = make_durable(service, stage, err);
    if (status == FR_E_NO_SPACE) {
        atomic_store(&service->waits_for, "room on the disk under state_dir");
        (void)fr_err_wrap(err, "make room under %s, then it goes on by itself", service->conf->state_dir);
        fr_service_retry_later(service, &service->append_retry, "journal", err);
        return FR_AGAIN;
    }
    if (status == FR_OK)
        fr_service_retry_good(service, &service->append_retry, "journal");
    return status;
}

enum fr_status fr_step_durable(struct fr_service *service, struct fr_err *err)
{
    if (!service->stage) {
        void *item = NULL;
        enum fr_status popped = fr_ring_pop(service->cut_stages, &item, (uint64_t)POP_MS * NS_PER_MS);
        if (popped != FR_OK)
            return popped == FR_EOF || atomic_load(&service->abandon) ? FR_EOF : FR_OK;
        service->stage = item;
        atomic_store(&service->waiting_cut_ns, service->stage->cut_mono_ns);
    }
    struct fr_stage *stage = service->stage;
    enum fr_status status = FR_AGAIN;
    if (letters_acknowledged(service, stage))
        status = append(service, stage, err);
    else
        atomic_store(&service->waits_for, "dead letters to be acknowledged");
    if (status == FR_AGAIN) /* given up: the epoch was never durable, its records are read again */
        return atomic_load(&service->abandon) ? FR_EOF : FR_AGAIN;
    if (status != FR_OK)
        return status;
    service->stage = NULL;
    atomic_store(&service->waiting_cut_ns, 0);
    fr_stage_clear(stage);
    return fr_ring_try_push(service->free_stages, stage) ? FR_OK : FR_EOF; /* closing down */
}

/* ---- publish ---- */

static enum fr_status check_delta(struct fr_service *service, struct fr_err *err)
{
    return fr_publisher_check(service->publisher, err);
}

static void look_at_publisher(struct fr_service *service, struct fr_publisher_status *out)
{
    fr_publisher_get_status(service->publisher, out);
    atomic_store(&service->epoch_wanted, out->epoch_wanted   ? FR_EPOCH_WANTED
                                         : out->rewind_waits ? FR_EPOCH_WANTED_WHILE_PAUSED
                                                             : FR_EPOCH_NOT_WANTED);
}

enum fr_status fr_step_publish(struct fr_service *service, struct fr_err *err)
{
    if (atomic_load(&service->abandon))
        return FR_EOF;
    struct fr_publisher_status publisher;
    if (!atomic_load(&service->delta_checked)) {
        enum fr_status status = try_again(service, &service->delta_retry, "publisher", check_delta, err);
        look_at_publisher(service, &publisher); /* before the stream can end */
        atomic_store(&service->delta_checked, status == FR_OK);
        if (status == FR_OK)
            fr_publisher_offer(service->publisher, atomic_load(&service->publishable));
        return status;
    }
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = fr_publisher_step(service->publisher, 20, err);
    /* after each turn of at most 20 ms: the precision of the stage `published` */
    look_at_publisher(service, &publisher);
    fr_freshness_published(service->freshness, publisher.acked, fr_wall_ms(service->clock));
    if (publisher.acked > service->published) {
        fr_trace_end("acknowledged", traced_ns); /* this turn of the publisher */
        service->published = publisher.acked;
        atomic_store(&service->published_wall_ms, fr_wall_ms(service->clock));
    }
    if (status < 0 && !is_trouble(status))
        return status;
    if (is_trouble(status) != service->publish_troubled)
        fr_http_reason(service->http, "publisher", is_trouble(status) ? err->text : NULL);
    service->publish_troubled = is_trouble(status);
    return service->publish_troubled ? FR_AGAIN : FR_OK;
}
