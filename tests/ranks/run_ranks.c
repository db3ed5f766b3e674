/* run_ranks: the N ranks of a job, each a whole service with its own state directory, ingest, loops
 * and HTTP address: as threads of one process, or, with --engine mpi, this one as one of N
 * processes that mpirun starts. The ranks reach each other by the threads back end of the exchange,
 * which can delay what they send, and let a rank hang in a vote about an epoch. A test program:
 * nothing of it is installed.
 *
 * Rank r has the options of the configuration, with state_dir STATE_DIR/rank-r and a free port, and
 * sends its partitions of the delta topic. A signal is received by one rank, and the roll call
 * gives its stop to the others. The first error of a rank ends the job for all, and gives the exit
 * code.
 *
 * Threads: each rank's service belongs to the thread of the rank. The main thread passes on the
 * signals that threads of a library give to it (signals.c). */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/thread.h"
#include "exchange/mpi.h"
#include "exchange/threads.h"
#include "process_limits.h"
#include "progress.h"
#include "service.h"
#include "signals.h"

enum { SETS_MAX = 64, OWN_SETS = 2, SET_BYTES = 1200, SIGNAL_LOOK_MS = 20 };
/* The longest wait for a rank, also while others recover; only a failing test reaches it. */
enum { DEADLINE_MS = 120000 };

struct arguments {
    const char *config;
    const char *sets[SETS_MAX + OWN_SETS]; /* the last ones are a rank's */
    size_t n_sets;
    uint64_t ranks, delay_us, seed, deadline_ms;
    uint64_t hang_rank, hang_call; /* of the calls of votes; 0: none hangs */
    bool until_end, verbose, mpi;
};

struct rank {
    uint32_t number;
    struct fr_conf *conf;
    struct fr_service service;
    pthread_t thread;
    struct job *job;
};

/* What the ranks share. */
struct job {
    atomic_int first_code; /* exit code of the first error of any rank; FR_EXIT_OK: none */
    atomic_uint n_ended;   /* ranks that have ended */
};

static const char usage[] =
    "run_ranks --config FILE --ranks N [--set path=value]... [--until end] [--delay-us MOST] [--seed N] [--log LEVEL]\n"
    "          [--deadline-ms N] [--hang-rank R --hang-vote CALL] [--engine threads|mpi]\n";

static bool parse(int argc, char **argv, struct arguments *out)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--config") == 0)
            out->config = value;
        else if (strcmp(name, "--ranks") == 0)
            out->ranks = strtoull(value, NULL, 10);
        else if (strcmp(name, "--delay-us") == 0)
            out->delay_us = strtoull(value, NULL, 10);
        else if (strcmp(name, "--seed") == 0)
            out->seed = strtoull(value, NULL, 10);
        else if (strcmp(name, "--deadline-ms") == 0)
            out->deadline_ms = strtoull(value, NULL, 10);
        else if (strcmp(name, "--hang-rank") == 0)
            out->hang_rank = strtoull(value, NULL, 10);
        else if (strcmp(name, "--hang-vote") == 0)
            out->hang_call = strtoull(value, NULL, 10);
        else if (strcmp(name, "--engine") == 0)
            out->mpi = strcmp(value, "mpi") == 0;
        else if (strcmp(name, "--until") == 0 && strcmp(value, "end") == 0)
            out->until_end = true;
        else if (strcmp(name, "--log") == 0)
            out->verbose = strcmp(value, "debug") == 0;
        else if (strcmp(name, "--set") == 0 && out->n_sets < SETS_MAX)
            out->sets[out->n_sets++] = value;
        else
            return false;
    }
    return argc % 2 == 1 && out->config && out->ranks > 0 && out->ranks <= FR_RANKS_MAX;
}

static struct fr_conf *load(const struct arguments *arguments, size_t n_sets)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    struct fr_conf_load_options options = {.path = arguments->config, .sets = arguments->sets, .n_sets = n_sets};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fr_log_text((const char *)problems.data, problems.size);
    fr_buffer_release(&problems);
    return conf;
}

/* Loads the configuration of a rank from `common`, that of the job. */
static struct fr_conf *load_rank(struct arguments *arguments, const struct fr_conf *common, uint32_t rank)
{
    char own[OWN_SETS][SET_BYTES];
    size_t n = arguments->n_sets;
    snprintf(own[0], SET_BYTES, "state_dir=%s/rank-%u", common->state_dir, rank);
    snprintf(own[1], SET_BYTES, "metrics.listen=127.0.0.1:0");
    for (size_t i = 0; i < OWN_SETS; i++)
        arguments->sets[n + i] = own[i];
    return load(arguments, n + OWN_SETS);
}

/* The first error of a rank ends the job. */
static void fail(struct rank *rank, enum fr_status status, const struct fr_err *err)
{
    char quoted[2200];
    int code = fr_exit_code(status), none = FR_EXIT_OK;
    bool first = atomic_compare_exchange_strong(&rank->job->first_code, &none, code);
    fr_log(first ? FR_LOG_ERROR : FR_LOG_INFO, "ranks", "stopped", "rank=%u first=%d code=%d status=%s reason=%s",
           rank->number, first, code, fr_status_name(status), fr_log_quote(quoted, sizeof(quoted), err->text));
    fr_log_flush(); /* MPI may end the process at once */
    fr_exchange_stop(rank->service.options.exchange, code);
}

static void log_drained(struct rank *rank)
{
    char text[2200] = "";
    struct fr_trainer_status *status = fr_alloc(1, sizeof(*status));
    fr_progress_end(&rank->service, text, sizeof(text));
    fr_trainer_get_status(rank->service.trainer, status);
    fr_log(FR_LOG_INFO, "ranks", "rank_drained", "rank=%u %s batches=%" PRIu64 " planned_early=%" PRIu64, rank->number,
           text, status->history.batches, status->run.planned_early);
    free(status);
}

static void *rank_main(void *self)
{
    struct rank *rank = self;
    struct fr_service *service = &rank->service;
    struct fr_err err = {0};
    enum fr_status status = fr_service_open(service, &err);
    if (status == FR_OK)
        status = fr_service_run(service, &err);
    if (status == FR_OK)
        log_drained(rank);
    else
        fail(rank, status, &err);
    fr_service_close(service);
    atomic_fetch_add(&rank->job->n_ended, 1);
    return NULL;
}

static void prepare_rank(struct rank *rank, uint32_t number, struct job *job, const struct arguments *arguments,
                         struct fr_exchange *exchange)
{
    rank->number = number;
    rank->job = job;
    rank->service.conf = rank->conf;
    rank->service.clock = fr_clock_system();
    rank->service.options.config = arguments->config;
    rank->service.options.until_end = arguments->until_end;
    rank->service.options.exchange = exchange;
}

/* Runs this process's rank to its end. Returns the exit code. */
static int run_mpi(struct arguments *arguments, const struct fr_conf *common)
{
    const struct fr_exchange_mpi_options options = {.deadline_ns = arguments->deadline_ms * 1000000, .workers = 1};
    struct job job = {.first_code = FR_EXIT_OK};
    struct rank rank = {0};
    struct fr_exchange *exchange = NULL;
    struct fr_err err = {0};
    enum fr_status status = fr_exchange_mpi_open(&options, &exchange, &err);
    if (status == FR_OK && fr_exchange_size(exchange) != arguments->ranks)
        status = fr_err_set(&err, FR_E_INVALID, "mpirun has started %" PRIu32 " ranks", fr_exchange_size(exchange));
    if (status != FR_OK) {
        fr_log(FR_LOG_ERROR, "ranks", "no_job", "reason=\"%s\"", err.text);
        return fr_exit_code(status);
    }
    if (!(rank.conf = load_rank(arguments, common, fr_exchange_rank(exchange))))
        return FR_EXIT_CONFIG;
    prepare_rank(&rank, fr_exchange_rank(exchange), &job, arguments, exchange);
    fr_log(FR_LOG_INFO, "ranks", "process", "rank=%" PRIu32 " pid=%d", rank.number, (int)getpid());
    rank_main(&rank);
    fr_exchange_free(exchange); /* does not return after an error */
    fr_conf_free(rank.conf);
    return atomic_load(&job.first_code);
}

/* Runs all ranks to their ends. Returns the exit code. */
static int run(struct rank *ranks, const struct arguments *arguments)
{
    const struct fr_exchange_group_options options = {.ranks = (uint32_t)arguments->ranks,
                                                      .deadline_ns = arguments->deadline_ms * 1000000,
                                                      .delay_max_ns = arguments->delay_us * 1000,
                                                      .seed = arguments->seed,
                                                      .fault_rank = (uint32_t)arguments->hang_rank,
                                                      .fault_votes = true,
                                                      .fault_at = arguments->hang_call};
    struct fr_exchange_group *group = fr_exchange_group_new(&options);
    struct job job = {.first_code = FR_EXIT_OK};
    for (uint32_t r = 0; r < options.ranks; r++) {
        struct rank *rank = &ranks[r];
        prepare_rank(rank, r, &job, arguments, fr_exchange_group_rank(group, r));
        FR_CHECK(fr_thread_start(&rank->thread, "rank", rank_main, rank));
    }
    while (atomic_load(&job.n_ended) < options.ranks) {
        int signal_number = fr_signals_wait(SIGNAL_LOOK_MS);
        if (signal_number) /* a rank that has ended is not joined yet, and ignores it */
            (void)pthread_kill(ranks[options.ranks - 1].thread, signal_number);
    }
    for (uint32_t r = 0; r < options.ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    fr_exchange_group_free(group);
    return atomic_load(&job.first_code);
}

/* The services have as many descriptors as their processes would have together. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.deadline_ms = DEADLINE_MS};
    int code = FR_EXIT_CONFIG;
    (void)fr_log_start();
    if (!parse(argc, argv, &arguments)) {
        fr_log_text(usage, sizeof(usage) - 1);
        fr_log_flush();
        return code;
    }
    fr_log_set_level(arguments.verbose ? FR_LOG_DEBUG : FR_LOG_INFO);
    umask(077); /* as freshetd */
    raise_file_limit();
    fr_signals_install();
    struct rank *ranks = fr_alloc(arguments.ranks, sizeof(*ranks));
    struct fr_conf *common = load(&arguments, arguments.n_sets);
    bool loaded = common != NULL;
    if (loaded)
        (void)mkdir(common->state_dir, 0700); /* the services make their own below */
    for (uint32_t r = 0; loaded && !arguments.mpi && r < arguments.ranks; r++)
        loaded = (ranks[r].conf = load_rank(&arguments, common, r)) != NULL;
    if (loaded)
        code = arguments.mpi ? run_mpi(&arguments, common) : run(ranks, &arguments);
    for (uint32_t r = 0; r < arguments.ranks; r++)
        fr_conf_free(ranks[r].conf);
    fr_conf_free(common);
    free(ranks);
    fr_log_last(FR_LOG_INFO, "ranks", "ended", "ranks=%llu code=%d", (unsigned long long)arguments.ranks, code);
    fr_log_flush();
    return code;
}
