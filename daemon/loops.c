/* Thread mains: each a loop around one module's step, with a heartbeat and one way out on failure.
 * Who owns what: service.h. No thread here sleeps while it holds a lock. */
#include "service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

static void nap_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL); /* waiting for the outside world: brokers, disks */
}

/* Threads that may run late yield to training: on few cores a fork-join loop waits for its slowest
 * worker, and a worker that loses its core to a fold holds up all of them. Per thread on Linux;
 * best effort. */
static void yield_to_training(void)
{
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), FR_BACKGROUND_NICE);
}

static void set_starting(struct fr_service *service, const char *text)
{
    pthread_mutex_lock(&service->lock);
    snprintf(service->starting, sizeof(service->starting), "%s", text);
    pthread_mutex_unlock(&service->lock);
}

static void fail(struct fr_service *service, enum fr_status status, struct fr_err *err, const char *what)
{
    if (err->text[0] == '\0')
        (void)fr_err_set(err, status, "%s", fr_status_name(status));
    (void)fr_err_wrap(err, "%s", what);
    fr_service_fail(service, err);
}

/* Repeats check until it succeeds, fails for good (reported) or `stop` is set; says why it
 * waits. */
static bool retry_until_ready(struct fr_service *service, const atomic_bool *stop, int beat, const char *what,
                              enum fr_status (*check)(struct fr_service *service, struct fr_err *err))
{
    long wait_ms = FR_RETRY_MS_MIN;
    while (!atomic_load(stop)) {
        struct fr_err err = {0};
        fr_http_beat(service->http, beat);
        enum fr_status status = check(service, &err);
        if (status == FR_OK) {
            set_starting(service, "");
            fr_http_reason(service->http, what, NULL);
            return true;
        }
        if (status != FR_E_UNAVAILABLE && status != FR_E_DENIED && status != FR_AGAIN) {
            fail(service, status, &err, what);
            return false;
        }
        if (status != FR_AGAIN) {
            char quoted[1100];
            set_starting(service, err.text);
            fr_http_reason(service->http, what, err.text);
            fr_log(FR_LOG_WARN, what, "retry", "in_ms=%ld reason=%s", wait_ms,
                   fr_log_quote(quoted, sizeof(quoted), err.text));
        }
        for (long waited = 0; waited < wait_ms && !atomic_load(stop); waited += 50)
            nap_ms(50);
        wait_ms = wait_ms * 2 > FR_RETRY_MS_MAX ? FR_RETRY_MS_MAX : wait_ms * 2;
    }
    return false;
}

static enum fr_status check_delta(struct fr_service *service, struct fr_err *err)
{
    return fr_publisher_check(service->publisher, err);
}

static enum fr_status start_ingest(struct fr_service *service, struct fr_err *err)
{
    return fr_ingest_start(service->ingest, err);
}

void *fr_ingest_main(void *self)
{
    struct fr_service *service = self;
    int beat = fr_http_watch(service->http, "ingest", FR_WATCHDOG_MS);
    /* Nothing is consumed before the delta topic is known to be ours (DESIGN section 5,
     * Recovery). */
    while (!atomic_load(&service->delta_checked) && !atomic_load(&service->stop_ingest)) {
        fr_http_beat(service->http, beat);
        nap_ms(20);
    }
    if (retry_until_ready(service, &service->stop_ingest, beat, "ingest", start_ingest)) {
        atomic_store(&service->ingest_started, true);
        enum fr_status status = FR_OK;
        struct fr_err err = {0};
        while (!atomic_load(&service->stop_ingest) && status >= 0 && status != FR_EOF) {
            fr_http_beat(service->http, beat);
            status = fr_ingest_step(service->ingest, 50, &err);
        }
        if (status < 0)
            fail(service, status, &err, "ingest");
        /* Dead letters and group commits are served until the durable thread has had its last
         * epoch. */
        while (!atomic_load(&service->durable_done) && !atomic_load(&service->abandon) && status >= 0) {
            fr_http_beat(service->http, beat);
            if (fr_ingest_step(service->ingest, 20, &err) == FR_EOF)
                nap_ms(20);
        }
    }
    fr_http_unwatch(service->http, beat);
    atomic_store(&service->ingest_done, true);
    return NULL;
}

void *fr_trainer_main(void *self)
{
    struct fr_service *service = self;
    int beat = fr_http_watch(service->http, "trainer", FR_WATCHDOG_MS);
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    while (status >= 0 && status != FR_EOF && !atomic_load(&service->abandon)) {
        fr_http_beat(service->http, beat);
        status = fr_trainer_step(service->trainer, &err);
    }
    if (status < 0)
        fail(service, status, &err, "trainer");
    else if (status == FR_EOF)
        /* the durable thread ends after the stages that are in it */
        fr_ring_close(service->cut_stages);
    fr_http_unwatch(service->http, beat);
    atomic_store(&service->trainer_done, true);
    return NULL;
}

/* Dead letters of the records before the cut must be acknowledged first (DESIGN section 4). */
static bool wait_dead_letters(struct fr_service *service, const struct fr_stage *stage, int beat)
{
    uint64_t told_ns = 0;
    while (fr_ingest_dead_acknowledged(service->ingest) < stage->dead_sequence) {
        if (atomic_load(&service->abandon))
            return false;
        fr_http_beat(service->http, beat);
        unsigned long long last = told_ns;
        if (fr_log_due(&last, fr_mono_ns(service->clock), 5000000000ULL)) {
            fr_log(FR_LOG_WARN, "durable", "waiting_for_dead_letters",
                   "epoch=%" PRIu64 " acknowledged=%" PRIu64 " needed=%" PRIu64, stage->epoch,
                   fr_ingest_dead_acknowledged(service->ingest), stage->dead_sequence);
            fr_http_reason(service->http, "dead_letters",
                           "the dead-letter topic does not acknowledge; epochs wait for it");
        }
        told_ns = last;
        nap_ms(2);
    }
    if (told_ns)
        fr_http_reason(service->http, "dead_letters", NULL);
    return true;
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
    uint64_t image_bytes = stage->image_bytes;
    size_t images = stage->n_images;
    enum fr_status status = fr_durable_append(service->durable, stage, NULL, &digest, err);
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
    pthread_mutex_lock(&service->lock);
    service->durable_cut_to_sync_ns = end_ns - stage->cut_mono_ns;
    pthread_mutex_unlock(&service->lock);
    remember_positions(service, stage);
    fr_log(FR_LOG_DEBUG, "durable", "epoch",
           "epoch=%" PRIu64 " images=%zu image_bytes=%" PRIu64 " digest=%016" PRIx64 " ms=%.1f", stage->epoch, images,
           image_bytes, fr_sha256_u64(&digest), (double)(end_ns - stage->cut_mono_ns) / 1e6);
    return FR_OK;
}

void *fr_durable_main(void *self)
{
    struct fr_service *service = self;
    int beat = fr_http_watch(service->http, "durable", FR_WATCHDOG_MS);
    yield_to_training();
    for (;;) {
        void *item = NULL;
        fr_http_beat(service->http, beat);
        enum fr_status popped = fr_ring_pop(service->cut_stages, &item, 200000000ULL);
        if (popped == FR_EOF)
            break;
        if (popped != FR_OK) {
            if (atomic_load(&service->abandon))
                break;
            continue;
        }
        struct fr_stage *stage = item;
        struct fr_err err = {0};
        if (!wait_dead_letters(service, stage, beat))
            break; /* given up: the epoch was never durable, its records are read again */
        enum fr_status status = make_durable(service, stage, &err);
        if (status != FR_OK) {
            fail(service, status, &err, "journal");
            break;
        }
        fr_stage_clear(stage);
        if (!fr_ring_try_push(service->free_stages, stage))
            break; /* closing down */
    }
    fr_http_unwatch(service->http, beat);
    atomic_store(&service->durable_done, true);
    return NULL;
}

/* Once a turn of at most 20 ms: the precision of the stage `published`. */
static void note_published(struct fr_service *service)
{
    struct fr_publisher_status publisher;
    fr_publisher_get_status(service->publisher, &publisher);
    fr_freshness_published(service->freshness, publisher.acked, fr_wall_ms(service->clock));
}

void *fr_publisher_main(void *self)
{
    struct fr_service *service = self;
    int beat = fr_http_watch(service->http, "publisher", FR_WATCHDOG_MS);
    yield_to_training();
    if (retry_until_ready(service, &service->stop_publisher, beat, "publisher", check_delta)) {
        atomic_store(&service->delta_checked, true);
        fr_publisher_offer(service->publisher, atomic_load(&service->publishable));
        bool troubled = false;
        while (!atomic_load(&service->stop_publisher)) {
            struct fr_err err = {0};
            fr_http_beat(service->http, beat);
            enum fr_status status = fr_publisher_step(service->publisher, 20, &err);
            note_published(service);
            if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED) {
                if (!troubled)
                    fr_http_reason(service->http, "publisher", err.text);
                troubled = true;
                nap_ms(100);
            } else if (status < 0) {
                fail(service, status, &err, "publisher");
                break;
            } else if (troubled) {
                troubled = false;
                fr_http_reason(service->http, "publisher", NULL);
            }
        }
    }
    fr_http_unwatch(service->http, beat);
    return NULL;
}

/* Why reading has to wait, or NULL. */
static const char *pressure(const struct fr_service *service, const struct fr_durable_status *durable, char *text,
                            size_t size)
{
    const struct fr_conf *conf = service->conf;
    /* With everything acknowledged no pause can shorten the journal; what waits for a fold has its
     * own limit. */
    bool full = durable->journal_bytes >= conf->journal_max && durable->acked < durable->epoch;
    if (full && fr_trainer_held(service->trainer))
        snprintf(text, size,
                 "journal_max: the journal holds %" PRIu64 " bytes, because publishing is held after non-finite "
                 "numbers; mend the model or the stream and restart with a larger journal_max",
                 durable->journal_bytes);
    else if (full)
        snprintf(text, size,
                 "journal_max: the journal holds %" PRIu64 " bytes; epochs up to %" PRIu64 " of %" PRIu64
                 " are acknowledged. Look at the delta topic",
                 durable->journal_bytes, durable->acked, durable->epoch);
    else if (durable->unfolded_bytes >= 2 * conf->unfolded_max)
        snprintf(text, size,
                 "unfolded_max: %" PRIu64 " journal bytes wait for a fold; the disk under state_dir is the bottleneck",
                 durable->unfolded_bytes);
    else if (durable->level0_files >= FR_LEVEL0_FILES_MAX)
        snprintf(text, size,
                 "the cold store has %" PRIu64 " files to compact; the disk under state_dir is the bottleneck",
                 durable->level0_files);
    else
        return NULL;
    return text;
}

/* Publishing is held or goes on again: said once. */
static void tell_hold(struct fr_service *service, bool *told)
{
    bool held = fr_trainer_held(service->trainer);
    if (held == *told)
        return;
    *told = held;
    char text[256];
    snprintf(
        text, sizeof(text),
        "publishing is held: %d batches in a row gave non-finite numbers and nothing of them could train; lower the "
        "learning rates or look for broken dense values. It goes on after %d good batches in a row",
        FR_QUARANTINE_STREAK_MAX, FR_QUARANTINE_STREAK_MAX);
    fr_http_reason(service->http, "numbers", held ? text : NULL);
}

void *fr_fold_main(void *self)
{
    struct fr_service *service = self;
    uint64_t told = 0;
    bool told_hold = false;
    yield_to_training();
    while (!atomic_load(&service->stop_fold)) {
        struct fr_err err = {0};
        struct fr_durable_status durable;
        struct fr_publisher_status publisher;
        fr_publisher_get_status(service->publisher, &publisher);
        enum fr_status status = FR_OK;
        if (publisher.acked > told) {
            told = publisher.acked;
            status = fr_durable_acknowledge(service->durable, told, &err);
        }
        fr_durable_get_status(service->durable, &durable);
        tell_hold(service, &told_hold);
        char text[256];
        fr_trainer_pause(service->trainer, pressure(service, &durable, text, sizeof(text)));
        if (status == FR_OK && durable.unfolded_bytes >= service->conf->unfolded_max) {
            uint64_t begin_ns = fr_mono_ns(service->clock);
            fr_log(FR_LOG_INFO, "fold", "begin", "from=%" PRIu64 " to=%" PRIu64 " bytes=%" PRIu64, durable.folded + 1,
                   durable.epoch, durable.unfolded_bytes);
            status = fr_durable_fold(service->durable, &err);
            fr_durable_get_status(service->durable, &durable);
            fr_log(FR_LOG_INFO, "fold", "end", "folded=%" PRIu64 " seconds=%.3f", durable.folded,
                   (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9);
        }
        if (status != FR_OK) {
            fail(service, status, &err, "fold");
            break;
        }
        nap_ms(20);
    }
    return NULL;
}
