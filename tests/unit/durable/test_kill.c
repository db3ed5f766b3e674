/* Kill loop: a child appends, folds and acknowledges until SIGKILL takes it at a random moment;
 * another child opens what it left. Threads of RocksDB do not survive a fork, so this program's
 * parent never opens a state itself. */
#include "scene.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#if defined(__SANITIZE_THREAD__)
enum { ROUNDS = 8 };
#else
enum { ROUNDS = 25 };
#endif
enum { KEYS = 200 };

static void *fold_for_ever(void *self)
{
    struct fr_err err = {0};
    while (fr_durable_fold(self, &err) == FR_OK)
        ;
    return NULL;
}

/* Reports each durable epoch through the pipe; never returns. */
static void write_until_killed(const struct scene *scene, int fd)
{
    struct fr_durable_options options = {.dir = scene->dir, .journal_file_max = 20000, .head = "h", .head_size = 1};
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    pthread_t folder;
    if (fr_durable_open(&options, &durable, &err) != FR_OK ||
        pthread_create(&folder, NULL, fold_for_ever, durable) != 0)
        _exit(1);
    struct fr_durable_status status;
    fr_durable_get_status(durable, &status);
    for (uint64_t e = status.epoch + 1;; e++) {
        if (scene_append(scene, durable, e, &err) != FR_OK || write(fd, &e, sizeof(e)) != sizeof(e) ||
            (e > 3 && fr_durable_acknowledge(durable, e - 3, &err) != FR_OK))
            _exit(1);
    }
}

/* Exit 0: the state is exactly that of one epoch, at least `reported`. The epoch goes through the
 * pipe. */
static void verify(const struct scene *scene, uint64_t reported, int fd)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (scene_try_open(scene, NULL, false, &durable, &err) != FR_OK) {
        fprintf(stderr, "does not open: %s\n", err.text);
        _exit(2);
    }
    uint64_t epoch = scene_status(durable).epoch;
    if (epoch < reported || epoch > reported + 1 || !scene_state_is(scene, durable, epoch))
        _exit(3);
    fr_durable_close(durable);
    _exit(write(fd, &epoch, sizeof(epoch)) == sizeof(epoch) ? 0 : 4);
}

static uint64_t last_of_pipe(int fd, uint64_t last)
{
    uint64_t epoch;
    while (read(fd, &epoch, sizeof(epoch)) == sizeof(epoch))
        last = epoch;
    return last;
}

static uint64_t verified_epoch(const struct scene *scene, uint64_t reported)
{
    int fds[2], status;
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        verify(scene, reported, fds[1]);
    close(fds[1]);
    uint64_t epoch = last_of_pipe(fds[0], 0);
    close(fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return epoch;
}

FR_CASE(kills_at_random_moments_lose_no_durable_epoch)
{
    struct scene scene = scene_make(81);
    scene.keys = KEYS;
    uint64_t durable_epoch = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        int fds[2], status;
        uint64_t first = 0;
        assert_int_equal(pipe(fds), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            write_until_killed(&scene, fds[1]);
        close(fds[1]);
        /* the child has begun to write */
        assert_int_equal(read(fds[0], &first, sizeof(first)), sizeof(first));
        struct timespec wait = {0, (long)(fr_random_u64(81, round, 0, 0) % 60000000)};
        nanosleep(&wait, NULL); /* the random moment, not a synchronisation */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status)); /* a child that ends by itself had a failed call */
        uint64_t reported = last_of_pipe(fds[0], first);
        close(fds[0]);
        durable_epoch = verified_epoch(&scene, reported);
    }
    print_message("%d kills, %llu epochs\n", ROUNDS, (unsigned long long)durable_epoch);
    assert_true(durable_epoch >= ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(kills_at_random_moments_lose_no_durable_epoch),
    };
    return cmocka_run_group_tests_name("durable kill", tests, NULL, NULL);
}
