/* Log lines of a healthy run, by a fake clock: a line a minute, pauses and their ends, the start
 * and the end. The trainer and the brokers are scripted. */
#include "case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "progress.h"
#include "fake_clock.h"
#include "service.h"

struct world {
    struct fr_service service;
    struct fr_progress progress;
    struct fr_clock_fake clock;
    struct fr_conf conf;
    struct fr_trainer_status trainer;
    int saved, file;
    char log[8192];
};

static struct world *w;

void __wrap_fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out);
void __wrap_fr_trainer_get_status(struct fr_trainer *trainer, struct fr_trainer_status *out)
{
    (void)trainer;
    *out = w->trainer;
}

void __wrap_fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out);
void __wrap_fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out)
{
    (void)ingest;
    *out = (struct fr_ingest_status){.lag_ms = 140};
}

void __wrap_fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out);
void __wrap_fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    (void)publisher;
    *out = (struct fr_publisher_status){.acked = 58};
}

const char *__wrap_fr_trainer_kernel(const struct fr_trainer *trainer);
const char *__wrap_fr_trainer_kernel(const struct fr_trainer *trainer)
{
    (void)trainer;
    return "avx2";
}

FR_FIXTURE(open_world)
{
    w = fr_alloc(1, sizeof(*w));
    fr_clock_fake_init(&w->clock, 1767225600000);
    w->clock.mono_ns = 1;
    w->service.clock = &w->clock.clock;
    w->service.conf = &w->conf;
    w->service.options.config = "ctr.yaml";
    w->conf.state_dir = (char *)"/var/lib/ctr";
    w->conf.memory_limit = 4096;
    w->service.pool = fr_pool_new(2);
    w->trainer.n_tables = 2;
    w->trainer.tables[0].stats.counts.rows = 40;
    w->trainer.tables[1].stats.counts.rows = 2;
    w->trainer.history.samples = 1000; /* restored */
    w->trainer.history.n_tasks = 2;
    snprintf(w->trainer.history.tasks[0].name, sizeof(w->trainer.history.tasks[0].name), "click");
    snprintf(w->trainer.history.tasks[1].name, sizeof(w->trainer.history.tasks[1].name), "buy");
    for (int t = 0; t < 2; t++)
        w->trainer.tasks[t].result.n_half_lives = 1;
    w->trainer.tasks[0].result.decayed[0].auc = 0.75309;
    w->trainer.tasks[1].result.decayed[0].auc = NAN;
    w->trainer.epoch = 60;
    atomic_store(&w->service.loops.durable.shared.epoch, 59);
    FILE *file = tmpfile();
    assert_non_null(file);
    w->file = dup(fileno(file));
    (void)fclose(file);
    w->saved = dup(STDERR_FILENO);
    dup2(w->file, STDERR_FILENO);
    return 0;
}

FR_FIXTURE(close_world)
{
    dup2(w->saved, STDERR_FILENO);
    close(w->saved);
    close(w->file);
    fr_pool_free(w->service.pool);
    free(w);
    return 0;
}

static const char *log_text(void)
{
    ssize_t got = pread(w->file, w->log, sizeof(w->log) - 1, 0);
    assert_true(got >= 0);
    w->log[got] = '\0';
    return w->log;
}

static unsigned count(const char *text)
{
    unsigned n = 0;
    for (const char *at = log_text(); (at = strstr(at, text)); at++)
        n++;
    return n;
}

static void log_progress_after(int64_t ms)
{
    fr_clock_fake_advance_ms(&w->clock, ms);
    fr_progress_log(&w->progress, &w->service);
}

static void pause_by(const char *reason)
{
    snprintf(w->trainer.paused, sizeof(w->trainer.paused), "%s", reason);
}

FR_CASE(the_start_says_what_runs_and_on_what)
{
    fr_progress_start(&w->service);
    assert_non_null(strstr(log_text(), "event=start version=" FR_VERSION
                                       " config=\"ctr.yaml\" state_dir=\"/var/lib/ctr\" threads=2 memory_limit=4096 "
                                       "kernel=\"avx2\" librdkafka="));
}

FR_CASE(a_line_a_minute_says_how_far_and_how_fast)
{
    log_progress_after(200);
    w->trainer.history.samples = 61000;
    log_progress_after(59999);
    assert_int_equal(count("event=progress"), 0);
    log_progress_after(1);
    assert_non_null(strstr(log_text(), "event=progress samples=61000 rate=1000 lag_ms=140 rows=42 auc_click=0.7531 "
                                       "epoch=60 durable=59 published=58\n"));
    log_progress_after(59999);
    assert_int_equal(count("event=progress"), 1);
    log_progress_after(1);
    assert_int_equal(count("event=progress samples=61000 rate=0 "), 1);
}

FR_CASE(a_pause_is_logged_with_its_reason_and_its_end_with_its_duration)
{
    log_progress_after(200);
    pause_by("memory_limit: 12 bytes of changed rows wait to be folded");
    log_progress_after(200);
    assert_int_equal(count("level=warn component=daemon event=paused "
                           "reason=\"memory_limit: 12 bytes of changed rows wait to be folded\"\n"),
                     1);
    pause_by("memory_limit: 13 bytes of changed rows wait to be folded"); /* the same pause */
    log_progress_after(1200);
    assert_int_equal(count("event=paused"), 1);
    pause_by("");
    log_progress_after(800);
    assert_int_equal(count("event=resumed after_seconds=2.0\n"), 1);
}

FR_CASE(many_pauses_are_one_pair_of_lines_and_a_count)
{
    log_progress_after(200);
    for (int i = 0; i < 10; i++) {
        pause_by("unfolded_max: 5 journal bytes wait for a fold");
        log_progress_after(1000);
        pause_by("");
        log_progress_after(500);
    }
    assert_int_equal(count("event=paused"), 1);
    assert_int_equal(count("event=resumed"), 1);
    log_progress_after(45000);
    assert_int_equal(count("published=58 pauses=10 paused_seconds=5.0\n"), 1);
}

FR_CASE(a_pause_over_several_minutes_counts_in_each)
{
    log_progress_after(200);
    pause_by("journal_max: full");
    log_progress_after(30000);
    log_progress_after(30000);
    assert_int_equal(count(" pauses=1 paused_seconds=30.0\n"), 1);
    log_progress_after(60000);
    assert_int_equal(count(" pauses=0 paused_seconds=60.0\n"), 1);
    pause_by("");
    log_progress_after(1000);
    assert_int_equal(count("event=resumed after_seconds=91.0\n"), 1);
}

FR_CASE(the_end_has_epoch_samples_and_rows)
{
    char text[200];
    fr_progress_end(&w->service, text, sizeof(text));
    assert_string_equal(text, "epoch=59 samples=1000 rows=42");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(the_start_says_what_runs_and_on_what),
        CASE(a_line_a_minute_says_how_far_and_how_fast),
        CASE(a_pause_is_logged_with_its_reason_and_its_end_with_its_duration),
        CASE(many_pauses_are_one_pair_of_lines_and_a_count),
        CASE(a_pause_over_several_minutes_counts_in_each),
        CASE(the_end_has_epoch_samples_and_rows),
    };
    return cmocka_run_group_tests_name("daemon progress", tests, NULL, NULL);
}
