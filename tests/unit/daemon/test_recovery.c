/* A signal during recovery: the start ends within moments, and reports that nothing was lost. The
 * restoring module is scripted: it continues until it is requested to stop. */
#include "case.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "fake_clock.h"
#include "service.h"
#include "signals.h"

enum fr_status __wrap_fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable,
                                         const struct fr_trainer_restore_options *options, struct fr_err *err);

static int signal_to_send;
static pthread_t main_thread;

/* Sends the signal to the thread that waits for it; in a thread of a library it would end the
 * program. */
static void send_signal(void)
{
    assert_int_equal(pthread_kill(main_thread, signal_to_send), 0);
}

static bool is_pending(void)
{
    unsigned long long pending = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r"); /* of the main thread */
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        (void)sscanf(line, "SigPnd: %llx", &pending);
    (void)fclose(file);
    return pending >> (signal_to_send - 1) & 1;
}

/* The signal comes while the state is restored; if no thread takes the signal, this never ends. */
enum fr_status __wrap_fr_trainer_restore(struct fr_trainer *trainer, struct fr_durable *durable,
                                         const struct fr_trainer_restore_options *options, struct fr_err *err)
{
    (void)trainer;
    (void)durable;
    send_signal();
    while (!atomic_load(options->stop))
        usleep(1000);
    /* The same signal comes once more, as `timeout` sends it to a process and to its group: it does
     * not count as a second signal. */
    send_signal();
    while (is_pending())
        usleep(1000);
    return fr_err_set(err, FR_E_CANCELLED, "ended");
}

static void check_signal(int number)
{
    char dir[] = "/tmp/fr_recovery_XXXXXX", state[64], remove[80];
    assert_non_null(mkdtemp(dir));
    snprintf(state, sizeof(state), "state_dir=%s", dir);
    const char *sets[] = {state, "metrics.listen=127.0.0.1:0"};
    struct fr_conf_load_options load = {
        .path = FR_SOURCE_DIR "/tests/integration/operating.yaml", .sets = sets, .n_sets = 2};
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    if (fr_conf_load(&load, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    struct fr_service *service = fr_alloc(1, sizeof(*service));
    service->conf = conf;
    service->clock = fr_clock_system();
    struct fr_err err = {0};
    signal_to_send = number;
    assert_int_equal(fr_service_open(service, &err), FR_E_CANCELLED);
    assert_int_equal(fr_exit_code(FR_E_CANCELLED), FR_EXIT_RETRY);
    assert_string_equal(err.text, "ended");
    fr_service_close(service);
    free(service);
    fr_conf_free(conf);
    fr_buffer_release(&problems);
    snprintf(remove, sizeof(remove), "rm -r %s", dir);
    assert_int_equal(system(remove), 0);
}

FR_CASE(sigterm_ends_a_recovery)
{
    check_signal(SIGTERM);
}

FR_CASE(sigint_ends_a_recovery)
{
    check_signal(SIGINT);
}

/* Runs in a child, because the signals may end it; they come one after the other, apart_ms
 * apart. */
static int status_after(const int *signals, size_t n, int64_t apart_ms)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        static struct fr_service service;
        struct fr_clock_fake fake;
        fr_clock_fake_init(&fake, 0);
        service.clock = &fake.clock;
        for (size_t i = 0; i < n; i++) {
            if (pthread_kill(pthread_self(), signals[i]) != 0 || !fr_service_stops(&service, fr_signals_wait(100)))
                _exit(99);
            fr_clock_fake_advance_ms(&fake, apart_ms);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

FR_CASE(a_second_term_or_int_ends_the_process_and_no_other_signal)
{
    static const int again[] = {SIGXCPU, SIGXCPU, SIGQUIT, SIGTERM, SIGXCPU, SIGQUIT}, twice[] = {SIGINT, SIGTERM};
    assert_int_equal(status_after(again, FR_ARRAY_LEN(again), 1000), 0);
    assert_int_equal(status_after(twice, FR_ARRAY_LEN(twice), 999), 0);
    assert_int_equal(status_after(twice, FR_ARRAY_LEN(twice), 1000), FR_EXIT_RETRY);
}

FR_CASE(only_what_a_restart_can_cure_says_try_again)
{
    static const enum fr_status again[] = {FR_E_BUSY, FR_E_NO_SPACE, FR_E_NO_MEMORY, FR_E_UNAVAILABLE, FR_E_CANCELLED};
    static const enum fr_status operator[] = {FR_E_DENIED, FR_E_LIMIT, FR_E_NO_DESCRIPTORS, FR_E_MISMATCH,
                                              FR_E_NOT_FOUND};
    for (size_t i = 0; i < FR_ARRAY_LEN(again); i++)
        assert_int_equal(fr_exit_code(again[i]), FR_EXIT_RETRY);
    for (size_t i = 0; i < FR_ARRAY_LEN(operator); i++)
        assert_int_equal(fr_exit_code(operator[i]), FR_EXIT_OPERATOR);
    assert_int_equal(fr_exit_code(FR_E_INVALID), FR_EXIT_CONFIG);
}

int main(void)
{
    sigset_t set; /* as the daemon's main does */
    main_thread = pthread_self();
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGXCPU);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sigterm_ends_a_recovery),
        cmocka_unit_test(sigint_ends_a_recovery),
        cmocka_unit_test(a_second_term_or_int_ends_the_process_and_no_other_signal),
        cmocka_unit_test(only_what_a_restart_can_cure_says_try_again),
    };
    return cmocka_run_group_tests_name("daemon recovery", tests, NULL, NULL);
}
