/* The thread that follows: see freshet/follow.h.
 *
 * The replica is made at the start, so that readers can be made at once. The thread opens the
 * topic, and tries again while brokers are away. After each step that changed something, the thread
 * copies the state under a mutex. Only callers of a wait function wait for the thread.
 *
 * Owner: its own thread; the mutex guards `state`, `stopping` and the fields of the waiting
 * calls. */
#include "freshet/follow.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "follow/acknowledger.h"
#include "follow/follower.h"

enum { STEP_MS = 50, RETRY_MS = 500 };
/* The request for the end of the topic: the longest time that it may hold the thread up, and the
 * pause after a request without an answer. */
enum { REFRESH_MS = 500, REFRESH_RETRY_MS = 1000 };

struct freshet_follow {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stopping;
    bool scorable;
    struct freshet_follow_state state;
    struct fr_follower *follower;
    struct fr_acknowledger *acknowledger; /* NULL: nothing is acknowledged */
    /* Calls of freshet_follow_wait_caught_up are numbered. All calls up to `asked` wait. The ends
     * of the topic that were requested after them cover the calls up to `refreshed` (used by the
     * thread only), and what is served covers those up to `caught_up`. */
    uint64_t asked, caught_up;
    uint64_t refreshed, refresh_ns;
};

/* ---- time ---- */

static struct timespec after_ms(int ms)
{
    struct timespec at;
    FR_CHECK(clock_gettime(CLOCK_MONOTONIC, &at) == 0);
    at.tv_sec += ms / 1000;
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec += 1;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

/* ---- the thread ---- */

static void publish_state(struct freshet_follow *follow, const char *problem, bool ended)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(fr_follower_replica(follow->follower), &info);
    pthread_mutex_lock(&follow->mutex);
    struct freshet_follow_state *state = &follow->state;
    if (problem || info.epoch != state->epoch || info.timeline != state->timeline)
        snprintf(state->problem, sizeof(state->problem), "%s", problem ? problem : "");
    state->ended = ended;
    state->timeline = info.timeline;
    state->epoch = info.epoch;
    state->reloads = info.reloads;
    state->lag_records = fr_follower_lag(follow->follower);
    follow->scorable = info.scorable;
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->mutex);
}

/* Pauses; false: a stop was requested. */
static bool pause_thread(struct freshet_follow *follow, int ms)
{
    struct timespec until = after_ms(ms);
    pthread_mutex_lock(&follow->mutex);
    int status = 0;
    while (!follow->stopping && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&follow->changed, &follow->mutex, &until);
    bool stopping = follow->stopping;
    pthread_mutex_unlock(&follow->mutex);
    return !stopping;
}

static bool is_stopping(struct freshet_follow *follow)
{
    pthread_mutex_lock(&follow->mutex);
    bool stopping = follow->stopping;
    pthread_mutex_unlock(&follow->mutex);
    return stopping;
}

/* Takes one step; false: the following has ended. */
static bool step(struct freshet_follow *follow)
{
    struct fr_err err = {0};
    struct fr_followed followed = {0};
    switch (fr_follower_step(follow->follower, STEP_MS, &followed, &err)) {
    case FR_OK:
        if (followed.applied || followed.refused || followed.reloaded)
            publish_state(follow, followed.refused ? followed.problem : NULL, false);
        return !followed.starved || pause_thread(follow, RETRY_MS);
    case FR_AGAIN:
        publish_state(follow, fr_follower_waits(follow->follower, &err) ? err.text : NULL, false);
        return true;
    case FR_E_UNAVAILABLE:
    case FR_E_NOT_FOUND:
    case FR_E_DENIED:
    case FR_E_LOST:
        publish_state(follow, err.text, false);
        fr_follower_reopen(follow->follower);
        return pause_thread(follow, RETRY_MS);
    default:
        publish_state(follow, err.text, true);
        return false;
    }
}

/* Requests the ends by which the newest waiting call is measured. */
static void refresh(struct freshet_follow *follow)
{
    struct fr_err err = {0};
    pthread_mutex_lock(&follow->mutex);
    uint64_t asked = follow->asked;
    pthread_mutex_unlock(&follow->mutex);
    uint64_t now_ns = fr_mono_ns(fr_clock_system());
    if (asked == follow->refreshed || now_ns < follow->refresh_ns)
        return;
    switch (fr_follower_refresh(follow->follower, REFRESH_MS, &err)) {
    case FR_OK:
        follow->refreshed = asked;
        break;
    case FR_AGAIN: /* the topic is not open; the next step opens it */
        break;
    default:
        publish_state(follow, err.text, false);
        follow->refresh_ns = fr_mono_ns(fr_clock_system()) + REFRESH_RETRY_MS * UINT64_C(1000000);
    }
}

static void answer_waiting(struct freshet_follow *follow)
{
    if (follow->caught_up == follow->refreshed || !fr_follower_caught_up(follow->follower))
        return;
    /* the lag comes first, so that a caller that returns sees it */
    publish_state(follow, NULL, false);
    pthread_mutex_lock(&follow->mutex);
    follow->state.problem[0] = '\0'; /* nothing is missing */
    follow->caught_up = follow->refreshed;
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->mutex);
}

/* Says what is served. This thread alone writes the problem, so it needs no lock to read it. */
static void acknowledge(struct freshet_follow *follow)
{
    if (!follow->acknowledger)
        return;
    fr_acknowledger_step(follow->acknowledger, fr_follower_replica(follow->follower), follow->state.problem);
    pthread_mutex_lock(&follow->mutex);
    follow->state.acknowledged_epoch = fr_acknowledger_epoch(follow->acknowledger);
    pthread_mutex_unlock(&follow->mutex);
}

static void *run(void *self)
{
    struct freshet_follow *follow = self;
    publish_state(follow, NULL, false);
    bool follows = true;
    while (follows && !is_stopping(follow)) {
        refresh(follow);
        follows = step(follow);
        if (follows)
            answer_waiting(follow);
        acknowledge(follow);
    }
    /* The replica serves what it has after the following has ended. */
    while (follow->acknowledger && pause_thread(follow, RETRY_MS))
        acknowledge(follow);
    return NULL;
}

/* ---- the interface ---- */

static bool init_waiting(struct freshet_follow *follow)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(&follow->changed, &attributes) == 0;
    (void)pthread_condattr_destroy(&attributes);
    return made && pthread_mutex_init(&follow->mutex, NULL) == 0;
}

static int answer(char *problem, size_t room, int status, const char *text)
{
    if (room > 0)
        snprintf(problem, room, "%s", text);
    return status;
}

int freshet_follow_start(const struct freshet_follow_options *options, struct freshet_follow **out, char *problem,
                         size_t room)
{
    struct fr_err err = {0};
    if (!options->brokers || !options->brokers[0] || !options->topic || !options->topic[0])
        return answer(problem, room, FRESHET_E_INVALID, "name brokers and a topic");
    struct freshet_follow *follow = calloc(1, sizeof(*follow));
    if (!follow || !init_waiting(follow)) {
        free(follow);
        return answer(problem, room, FRESHET_E_NO_MEMORY, "memory was refused");
    }
    follow->state.lag_records = UINT64_MAX;
    fr_log_set_level(FR_LOG_ERROR); /* this library's own log: stderr belongs to the host process */
    struct fr_follower_options follower = {.topic = {.brokers = options->brokers,
                                                     .topic = options->topic,
                                                     .partitions = options->partitions,
                                                     .n_partitions = options->n_partitions,
                                                     .kafka_file = options->kafka_file,
                                                     .properties = options->properties,
                                                     .n_properties = options->n_properties},
                                           .model = options->model,
                                           .snapshots = options->snapshots,
                                           .memory_max = options->memory_max,
                                           .patient = true};
    struct fr_acknowledger_options acknowledger = {
        .name = options->acknowledge, .topic = options->acknowledgement_topic, .from = &follower.topic};
    bool made = fr_follower_open(&follower, &follow->follower, &err) == FR_OK &&
                fr_acknowledger_open(&acknowledger, &follow->acknowledger, &err) == FR_OK &&
                fr_thread_start(&follow->thread, "freshet-follow", run, follow);
    if (!made) {
        fr_acknowledger_close(follow->acknowledger);
        fr_follower_close(follow->follower);
        free(follow);
        return answer(problem, room, FRESHET_E_INVALID, err.text[0] ? err.text : FR_THREADS_SHORT);
    }
    *out = follow;
    return answer(problem, room, FRESHET_OK, "");
}

void freshet_follow_stop(struct freshet_follow *follow)
{
    if (!follow)
        return;
    pthread_mutex_lock(&follow->mutex);
    follow->stopping = true;
    pthread_cond_broadcast(&follow->changed);
    pthread_mutex_unlock(&follow->mutex);
    FR_CHECK(pthread_join(follow->thread, NULL) == 0);
    fr_acknowledger_close(follow->acknowledger);
    fr_follower_close(follow->follower);
    (void)pthread_cond_destroy(&follow->changed);
    (void)pthread_mutex_destroy(&follow->mutex);
    free(follow);
}

int freshet_follow_wait(struct freshet_follow *follow, uint64_t epoch, int timeout_ms)
{
    struct timespec until = after_ms(timeout_ms < 0 ? 0 : timeout_ms);
    int status = 0;
    pthread_mutex_lock(&follow->mutex);
    const struct freshet_follow_state *state = &follow->state;
    while ((state->epoch < epoch || !follow->scorable) && !state->ended && status != ETIMEDOUT)
        status = timeout_ms < 0 ? pthread_cond_wait(&follow->changed, &follow->mutex)
                                : pthread_cond_timedwait(&follow->changed, &follow->mutex, &until);
    bool served = state->epoch >= epoch && follow->scorable;
    int result = served ? FRESHET_OK : state->ended ? FRESHET_E_MISMATCH : FRESHET_AGAIN;
    pthread_mutex_unlock(&follow->mutex);
    return result;
}

int freshet_follow_wait_caught_up(struct freshet_follow *follow, int timeout_ms)
{
    struct timespec until = after_ms(timeout_ms < 0 ? 0 : timeout_ms);
    int status = 0;
    pthread_mutex_lock(&follow->mutex);
    uint64_t mine = ++follow->asked;
    while (follow->caught_up < mine && !follow->state.ended && status != ETIMEDOUT)
        status = timeout_ms < 0 ? pthread_cond_wait(&follow->changed, &follow->mutex)
                                : pthread_cond_timedwait(&follow->changed, &follow->mutex, &until);
    int result = follow->caught_up >= mine ? FRESHET_OK : follow->state.ended ? FRESHET_E_MISMATCH : FRESHET_AGAIN;
    pthread_mutex_unlock(&follow->mutex);
    return result;
}

void freshet_follow_get_state(struct freshet_follow *follow, struct freshet_follow_state *state)
{
    struct freshet_reader *reader = NULL;
    struct freshet_replica_info info = {0};
    /* memory and freshness as of now */
    if (freshet_reader_new(fr_follower_replica(follow->follower), &reader) == FRESHET_OK)
        freshet_reader_get_info(reader, &info);
    freshet_reader_free(reader);
    pthread_mutex_lock(&follow->mutex);
    *state = follow->state;
    pthread_mutex_unlock(&follow->mutex);
    state->freshness_ms = info.freshness_ms;
    state->memory_bytes = info.memory_bytes;
}

struct freshet_replica *freshet_follow_replica(struct freshet_follow *follow)
{
    return fr_follower_replica(follow->follower);
}
