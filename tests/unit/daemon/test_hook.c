/* The operator's command: how it ends, what ends with it, and when the next one runs. Real
 * processes, a fake clock. */
#include "case.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "fake_clock.h"
#include "service.h"

enum { SHELL_FD = 9, TIMEOUT_MS = 5000 };

static struct fr_clock_fake fake;
static struct fr_err err;
static char reason_given[512];

void __wrap_fr_http_reason(struct fr_http *http, const char *source, const char *text);
void __wrap_fr_http_reason(struct fr_http *http, const char *source, const char *text)
{
    (void)http, (void)source;
    snprintf(reason_given, sizeof(reason_given), "%s", text ? text : "");
}

FR_FIXTURE(begin)
{
    fr_clock_fake_init(&fake, 1767225600000);
    fake.mono_ns = 1;
    err = (struct fr_err){0};
    return 0;
}

static enum fr_status start(struct fr_hook *hook, char *program, char *script, const char *last)
{
    char *arguments[] = {program, "-c", script};
    struct fr_hook_command command = {
        .arguments = arguments, .n = script ? 3 : 1, .last = last, .timeout_ms = TIMEOUT_MS};
    return fr_hook_start(hook, &command, &fake.clock, &err);
}

static enum fr_status ended(struct fr_hook *hook)
{
    enum fr_status status = FR_AGAIN;
    FR_UNTIL ((status = fr_hook_poll(hook, &fake.clock, &err)) != FR_AGAIN)
        (void)usleep(1000);
    assert_false(fr_hook_runs(hook));
    return status;
}

/* Makes a pipe whose writing end is inherited, as SHELL_FD, by all processes that are started; the
 * reading end sees the end of file when all of them are gone. */
static int pipe_of_all(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], SHELL_FD), SHELL_FD);
    close(ends[1]);
    return ends[0];
}

static size_t read_in_time(int from, char *out, size_t room)
{
    struct pollfd one = {.fd = from, .events = POLLIN};
    assert_int_equal(poll(&one, 1, FR_PATIENCE_S * 1000), 1);
    ssize_t size = read(from, out, room);
    assert_true(size >= 0);
    return (size_t)size;
}

FR_CASE(a_hook_ends_well_with_exit_status_0_only)
{
    struct fr_hook hook = {0};
    assert_int_equal(start(&hook, "/bin/sh", "test \"$0\" = 'one word'", "one word"), FR_OK);
    assert_true(fr_hook_runs(&hook));
    assert_int_equal(ended(&hook), FR_OK);
    assert_int_equal(start(&hook, "/bin/sh", "exit 7", ""), FR_OK);
    assert_int_equal(ended(&hook), FR_E_STATE);
    assert_non_null(strstr(err.text, "exit status 7"));
    assert_int_equal(start(&hook, "/bin/sh", "kill -TERM $$", ""), FR_OK);
    assert_int_equal(ended(&hook), FR_E_STATE);
    assert_non_null(strstr(err.text, "signal 15"));
}

FR_CASE(a_hook_has_no_blocked_signals_and_no_input)
{
    struct fr_hook hook = {0};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* as in the daemon's threads */
    assert_int_equal(start(&hook, "/bin/sh", "kill -TERM $$; exit 0", ""), FR_OK);
    assert_int_equal(ended(&hook), FR_E_STATE);
    assert_int_equal(start(&hook, "/bin/sh", "! read line", ""), FR_OK);
    assert_int_equal(ended(&hook), FR_OK);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

FR_CASE(a_hook_over_its_time_is_ended_with_all_that_it_started)
{
    char text[16];
    struct fr_hook hook = {0};
    int from = pipe_of_all();
    assert_int_equal(start(&hook, "/bin/sh", "sleep 600 & echo \"$0\" >&9; wait", "begun"), FR_OK);
    close(SHELL_FD);
    assert_int_equal(read_in_time(from, text, sizeof(text)), 6);
    assert_memory_equal(text, "begun\n", 6);
    fr_clock_fake_advance_ms(&fake, TIMEOUT_MS - 1);
    assert_int_equal(fr_hook_poll(&hook, &fake.clock, &err), FR_AGAIN);
    fr_clock_fake_advance_ms(&fake, 1);
    assert_int_equal(fr_hook_poll(&hook, &fake.clock, &err), FR_E_UNAVAILABLE);
    assert_non_null(strstr(err.text, "raise snapshot.hook_timeout"));
    assert_false(fr_hook_runs(&hook));
    assert_int_equal(read_in_time(from, text, sizeof(text)), 0);
    close(from);
}

FR_CASE(what_a_hook_leaves_behind_ends_with_it)
{
    char text[16];
    struct fr_hook hook = {0};
    int from = pipe_of_all();
    assert_int_equal(start(&hook, "/bin/sh", "sleep 600 & exit 0", ""), FR_OK);
    close(SHELL_FD);
    assert_int_equal(ended(&hook), FR_OK);
    assert_int_equal(read_in_time(from, text, sizeof(text)), 0);
    close(from);
}

FR_CASE(a_hook_that_runs_is_ended_on_demand)
{
    char text[16];
    struct fr_hook hook = {0};
    int from = pipe_of_all();
    fr_hook_end(&hook); /* none */
    assert_int_equal(start(&hook, "/bin/sh", "sleep 600", ""), FR_OK);
    close(SHELL_FD);
    fr_hook_end(&hook);
    assert_false(fr_hook_runs(&hook));
    assert_int_equal(read_in_time(from, text, sizeof(text)), 0);
    close(from);
}

FR_CASE(a_missing_program_is_reported_by_its_name)
{
    char path[] = "/tmp/freshet-hook-XXXXXX";
    struct fr_hook hook = {0};
    assert_int_equal(start(&hook, "/nothing/here", NULL, ""), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nothing/here did not start"));
    assert_false(fr_hook_runs(&hook));
    int file = mkstemp(path); /* not executable */
    assert_true(file >= 0);
    close(file);
    assert_int_equal(start(&hook, path, NULL, ""), FR_E_DENIED);
    assert_false(fr_hook_runs(&hook));
    assert_int_equal(unlink(path), 0);
}

/* ---- the snapshot thread's turns ---- */

static void step_after_a_second(struct fr_service *service)
{
    fr_clock_fake_advance_ms(&fake, 1000); /* the loop looks again */
    assert_int_equal(fr_step_snapshot(&service->loops.snapshot, &err), FR_AGAIN);
}

static char *fails[] = {"/bin/false"}, *missing[] = {"/nothing/here"}, *succeeds[] = {"/bin/true"};

/* CURRENT names a snapshot of epoch 8, and its hook has not run. */
static struct fr_service *service_new(char *folder)
{
    struct fr_service *service = fr_alloc(1, sizeof(*service));
    struct fr_conf *conf = fr_alloc(1, sizeof(*conf));
    assert_non_null(mkdtemp(folder));
    service->clock = &fake.clock;
    service->conf = conf;
    fr_service_wire(service);
    conf->state_dir = folder;
    conf->snapshot.n_hook = 1;
    conf->snapshot.hook = fails;
    conf->snapshot.hook_timeout_ms = INT64_MAX;
    snprintf(service->loops.snapshot.dir, sizeof(service->loops.snapshot.dir), "%s/snapshots", folder);
    snprintf(service->loops.snapshot.newest.name, sizeof(service->loops.snapshot.newest.name), "ctr-1-8");
    service->loops.snapshot.newest.epoch = 8;
    service->loops.snapshot.current = service->loops.snapshot.newest;
    atomic_store(&service->loops.durable.shared.epoch, 8);
    return service;
}

static void service_free(struct fr_service *service)
{
    fr_loops_release(&service->loops);
    fr_lifecycle_release(&service->life);
    (void)rmdir(service->conf->state_dir);
    free(service->conf);
    free(service);
}

FR_CASE(a_hook_that_fails_is_repeated_ever_later_until_it_succeeds)
{
    char folder[] = "/tmp/freshet-hook-XXXXXX";
    struct fr_service *service = service_new(folder);
    struct fr_conf *conf = service->conf;
    const struct fr_retry *retry = &service->loops.snapshot.hook_retry;
    uint32_t wait_ms = 1000;
    for (uint64_t failure = 1; failure <= 12; failure++) {
        conf->snapshot.hook = failure % 2 ? fails : missing;
        step_after_a_second(service);
        FR_UNTIL (!fr_hook_runs(&service->loops.snapshot.hook))
            step_after_a_second(service);
        assert_int_equal(atomic_load(&service->loops.snapshot.shared.hook_failures), failure);
        assert_non_null(strstr(reason_given, failure % 2 ? "exit status 1" : "did not start"));
        assert_int_equal(retry->wait_ms, wait_ms);
        fake.mono_ns = retry->next_ns - 1000000001; /* more than one second before the next try */
        step_after_a_second(service);
        assert_false(fr_hook_runs(&service->loops.snapshot.hook));
        assert_int_equal(atomic_load(&service->loops.snapshot.shared.hook_failures), failure);
        wait_ms = 2 * wait_ms < 300000 ? 2 * wait_ms : 300000;
    }
    assert_string_equal(service->loops.snapshot.shared.announced.name, "");
    conf->snapshot.hook = succeeds;
    step_after_a_second(service);
    FR_UNTIL (service->loops.snapshot.shared.announced.name[0])
        step_after_a_second(service);
    assert_string_equal(service->loops.snapshot.shared.announced.name, "ctr-1-8");
    assert_string_equal(reason_given, "");
    assert_int_equal(retry->wait_ms, 0);
    assert_int_equal(atomic_load(&service->loops.snapshot.shared.hook_failures), 12);
    step_after_a_second(service); /* an announced snapshot is not announced again */
    assert_false(fr_hook_runs(&service->loops.snapshot.hook));
    service_free(service);
}

/* One run of the hook, while the clock stands still. */
static void run_hook(struct fr_service *service)
{
    assert_int_equal(fr_step_snapshot(&service->loops.snapshot, &err), FR_AGAIN);
    assert_true(fr_hook_runs(&service->loops.snapshot.hook));
    FR_UNTIL (!fr_hook_runs(&service->loops.snapshot.hook))
        assert_int_equal(fr_step_snapshot(&service->loops.snapshot, &err), FR_AGAIN);
}

FR_CASE(a_drain_runs_a_hook_at_once_that_had_failed_for_long_and_repeats_it_soon)
{
    char folder[] = "/tmp/freshet-hook-XXXXXX";
    struct fr_service *service = service_new(folder);
    struct fr_retry *retry = &service->loops.snapshot.hook_retry;
    retry->wait_ms = 300000;
    retry->next_ns = fake.mono_ns + 300000u * UINT64_C(1000000);
    step_after_a_second(service);
    assert_false(fr_hook_runs(&service->loops.snapshot.hook));
    atomic_store(&service->loops.snapshot.shared.last, FR_LAST_WANTED);
    for (uint64_t failure = 1; failure <= 8; failure++) {
        run_hook(service);
        assert_int_equal(atomic_load(&service->loops.snapshot.shared.hook_failures), failure);
        assert_in_range(retry->wait_ms, FR_RETRY_MS_MIN, FR_RETRY_MS_MAX);
        fake.mono_ns = retry->next_ns;
    }
    service->conf->snapshot.hook = succeeds;
    run_hook(service);
    assert_int_equal(fr_step_snapshot(&service->loops.snapshot, &err), FR_AGAIN);
    assert_int_equal(atomic_load(&service->loops.snapshot.shared.last), FR_LAST_DONE);
    service_free(service);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_hook_ends_well_with_exit_status_0_only, begin),
        cmocka_unit_test_setup(a_hook_has_no_blocked_signals_and_no_input, begin),
        cmocka_unit_test_setup(a_hook_over_its_time_is_ended_with_all_that_it_started, begin),
        cmocka_unit_test_setup(what_a_hook_leaves_behind_ends_with_it, begin),
        cmocka_unit_test_setup(a_hook_that_runs_is_ended_on_demand, begin),
        cmocka_unit_test_setup(a_missing_program_is_reported_by_its_name, begin),
        cmocka_unit_test_setup(a_hook_that_fails_is_repeated_ever_later_until_it_succeeds, begin),
        cmocka_unit_test_setup(a_drain_runs_a_hook_at_once_that_had_failed_for_long_and_repeats_it_soon, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
