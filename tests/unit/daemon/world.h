/* A service whose modules are scripted and whose clock is fake, for tests of single turns of its
 * loops. */
#ifndef FR_TEST_DAEMON_WORLD_H
#define FR_TEST_DAEMON_WORLD_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "fake_clock.h"
#include "service.h"

struct world {
    struct fr_service service;
    struct fr_clock_fake clock;
    struct fr_conf conf;
    struct fr_err err;
    struct fr_stage stage;
    /* what the modules answer */
    enum fr_status start, read, check, publish, append, train, fold;
    int64_t check_ms; /* how long a check of the delta topic takes */
    uint64_t produced, disk_free, least_timeline, all_acknowledged;
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    uint64_t letters;
    uint32_t letters_released; /* calls */
    bool held;
    /* the calls that they received */
    unsigned starts, reads, served, checks, folds, acknowledgements, commits, tellings;
    unsigned appends;
    uint64_t timeline;         /* of the epoch that was last appended */
    void (*beside_fold)(void); /* called in the middle of a fold */
    uint64_t acknowledged, offered, allowed;
    enum fr_pause why, limit;
    char pause[256], limit_text[256];
    char reasons[8][2][512]; /* source, text */
};

static struct world *w;

/* ---- the modules ---- */

#define WRAP(type, name, ...)                                                                                          \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

static inline enum fr_status answer(enum fr_status status, struct fr_err *err)
{
    return status < 0 ? fr_err_set(err, status, "as scripted") : status;
}

WRAP(enum fr_status, fr_ingest_start, struct fr_ingest *ingest, struct fr_err *err)
{
    (void)ingest;
    w->starts++;
    return answer(w->start, err);
}

WRAP(enum fr_status, fr_ingest_step, struct fr_ingest *ingest, int wait_ms, struct fr_err *err)
{
    (void)ingest, (void)wait_ms;
    w->reads++;
    return answer(w->read, err);
}

WRAP(void, fr_ingest_serve, struct fr_ingest *ingest)
{
    (void)ingest;
    w->served++;
}

WRAP(uint64_t, fr_ingest_dead_acknowledged, struct fr_ingest *ingest)
{
    (void)ingest;
    return w->letters;
}

WRAP(void, fr_ingest_release_letters, struct fr_ingest *ingest)
{
    (void)ingest;
    w->letters_released++;
}

WRAP(void, fr_ingest_commit, struct fr_ingest *ingest, const struct fr_positions *positions)
{
    (void)ingest;
    w->commits += positions->count;
}

WRAP(enum fr_status, fr_publisher_check, struct fr_publisher *publisher, struct fr_err *err)
{
    (void)publisher;
    w->checks++;
    fr_clock_fake_advance_ms(&w->clock, w->check_ms);
    return answer(w->check, err);
}

WRAP(enum fr_status, fr_publisher_step, struct fr_publisher *publisher, int wait_ms, struct fr_err *err)
{
    (void)publisher, (void)wait_ms;
    return answer(w->publish, err);
}

WRAP(void, fr_publisher_offer, struct fr_publisher *publisher, uint64_t epoch)
{
    (void)publisher;
    w->offered = epoch;
}

WRAP(uint64_t, fr_publisher_least_timeline, const struct fr_publisher *publisher)
{
    (void)publisher;
    return w->least_timeline;
}

WRAP(void, fr_publisher_get_status, struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    (void)publisher;
    *out = w->publisher;
}

WRAP(enum fr_status, fr_durable_append, struct fr_durable *durable, struct fr_stage *stage, struct fr_buffer *bytes,
     struct fr_sha256 *digest, struct fr_err *err)
{
    (void)durable, (void)bytes;
    *digest = (struct fr_sha256){{0}};
    w->appends++;
    w->timeline = stage->timeline;
    if (w->append == FR_OK)
        w->durable.epoch = stage->epoch;
    return answer(w->append, err);
}

WRAP(enum fr_status, fr_durable_acknowledge, struct fr_durable *durable, uint64_t acked, struct fr_err *err)
{
    (void)durable, (void)err;
    w->acknowledgements++;
    w->durable.acked = w->acknowledged = acked;
    return FR_OK;
}

WRAP(enum fr_status, fr_durable_fold, struct fr_durable *durable, struct fr_err *err)
{
    (void)durable;
    w->folds++;
    if (w->beside_fold)
        w->beside_fold();
    if (w->fold != FR_OK)
        return answer(w->fold, err);
    w->durable.folded = w->durable.epoch;
    w->durable.unfolded_bytes = 0;
    return FR_OK;
}

WRAP(void, fr_durable_get_status, struct fr_durable *durable, struct fr_durable_status *out)
{
    (void)durable;
    *out = w->durable;
}

WRAP(enum fr_status, fr_trainer_step, struct fr_trainer *trainer, struct fr_err *err)
{
    (void)trainer;
    return answer(w->train, err);
}

WRAP(uint64_t, fr_trainer_produced_bytes, const struct fr_trainer *trainer)
{
    (void)trainer;
    return w->produced;
}

WRAP(uint64_t, fr_trainer_acknowledged, const struct fr_trainer *trainer)
{
    (void)trainer;
    return w->all_acknowledged;
}

WRAP(void, fr_trainer_allow, struct fr_trainer *trainer, uint64_t produced_bytes, enum fr_pause why, const char *text)
{
    (void)trainer;
    w->allowed = produced_bytes;
    w->limit = why;
    snprintf(w->limit_text, sizeof(w->limit_text), "%s", text);
}

WRAP(enum fr_status, fr_disk_free_bytes, const char *path, uint64_t *bytes, struct fr_err *err)
{
    (void)err;
    assert_string_equal(path, "state");
    *bytes = w->disk_free;
    return FR_OK;
}

WRAP(bool, fr_trainer_held, struct fr_trainer *trainer)
{
    (void)trainer;
    return w->held;
}

WRAP(void, fr_trainer_pause, struct fr_trainer *trainer, enum fr_pause why, const char *text)
{
    (void)trainer;
    w->why = why;
    snprintf(w->pause, sizeof(w->pause), "%s", text);
}

static inline char *reason(const char *source)
{
    size_t i = 0;
    while (w->reasons[i][0][0] && strcmp(w->reasons[i][0], source) != 0)
        i++;
    snprintf(w->reasons[i][0], sizeof(w->reasons[i][0]), "%s", source);
    return w->reasons[i][1];
}

WRAP(void, fr_http_reason, struct fr_http *http, const char *source, const char *text)
{
    (void)http;
    w->tellings++;
    snprintf(reason(source), sizeof(w->reasons[0][1]), "%s", text ? text : "");
}

/* ---- the scene ---- */

FR_FIXTURE(open_world)
{
    w = fr_alloc(1, sizeof(*w));
    fr_clock_fake_init(&w->clock, 1000);
    w->clock.mono_ns = 1;
    w->conf.journal_max = 1000;
    w->conf.unfolded_max = 100;
    w->conf.epoch_ms = 1000;
    w->conf.state_dir = "state";
    w->disk_free = (uint64_t)1 << 40;
    struct fr_service *service = &w->service;
    service->conf = &w->conf;
    service->clock = &w->clock.clock;
    service->registry = fr_registry_new("m");
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    service->rings.cut_stages = fr_ring_new(FR_STAGES);
    service->rings.free_stages = fr_ring_new(FR_STAGES);
    fr_service_wire(service);
    fr_stage_init(&w->stage);
    return 0;
}

FR_FIXTURE(close_world)
{
    struct fr_service *service = &w->service;
    fr_stage_release(&w->stage);
    fr_ring_free(service->rings.cut_stages);
    fr_ring_free(service->rings.free_stages);
    fr_freshness_free(service->freshness);
    fr_registry_free(service->registry);
    fr_loops_release(&service->loops);
    fr_lifecycle_release(&service->life);
    free(w);
    return 0;
}

/* One turn of a loop: expect(publish, FR_AGAIN). */
#define expect(loop, expected) assert_int_equal(fr_step_##loop(&w->service.loops.loop, fresh_err()), expected)

static inline struct fr_err *fresh_err(void)
{
    w->err = (struct fr_err){0};
    return &w->err;
}

static inline void cut_epoch(uint64_t epoch, uint64_t letters)
{
    struct fr_positions positions = {0};
    (void)fr_positions_index(&positions, "samples", 0);
    fr_positions_encode(&positions, fr_stage_section(&w->stage, "positions"));
    fr_positions_release(&positions);
    w->stage.epoch = w->stage.publishable = epoch;
    w->stage.dead_sequence = letters;
    assert_true(fr_ring_try_push(w->service.rings.cut_stages, &w->stage));
}

#define FR_STEP_CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

#endif
