/* See job.h. */
#include "job.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exchange/mpi.h"
#include "process_limits.h"

enum { PORT_MAX = 65535 };

enum fr_status fr_job_join(const struct fr_conf *conf, struct fr_exchange **out, struct fr_err *err)
{
    const struct fr_exchange_mpi_options options = {.deadline_ns = (uint64_t)conf->rank_deadline_ms * 1000000,
                                                    .workers = (uint32_t)fr_limits_workers(conf)};
    enum fr_status status = fr_exchange_mpi_open(&options, out, err);
    if (status != FR_OK || fr_exchange_size(*out) == conf->ranks)
        return status;
    return fr_err_set(err, FR_E_INVALID,
                      "scale.ranks is %" PRIu32 ", and the launcher has started %" PRIu32
                      " processes: start as many by `mpirun -n %" PRIu32 " freshetd ...`, or change scale.ranks",
                      conf->ranks, fr_exchange_size(*out), conf->ranks);
}

bool fr_job_sets(const struct fr_conf *conf, uint32_t rank, char sets[FR_JOB_SETS][FR_JOB_SET_BYTES],
                 struct fr_buffer *problem)
{
    bool ipv6 = strchr(conf->metrics.listen_host, ':') != NULL;
    uint32_t port = conf->metrics.listen_port > 0 ? conf->metrics.listen_port + rank : 0;
    int lengths[FR_JOB_SETS] = {
        snprintf(sets[0], FR_JOB_SET_BYTES, "state_dir=%s/rank-%" PRIu32 "of%" PRIu32, conf->state_dir, rank,
                 conf->ranks),
        snprintf(sets[1], FR_JOB_SET_BYTES, "metrics.listen=\"%s%s%s:%" PRIu32 "\"", ipv6 ? "[" : "",
                 conf->metrics.listen_host, ipv6 ? "]" : "", port),
    };
    bool fits = port <= PORT_MAX;
    for (size_t i = 0; i < FR_JOB_SETS; i++)
        fits &= lengths[i] >= 0 && lengths[i] < FR_JOB_SET_BYTES;
    if (!fits)
        fr_buffer_printf(problem,
                         "freshetd: rank %" PRIu32 " would have %.200s and %.100s; choose a shorter state_dir, or a "
                         "smaller port\n",
                         rank, sets[0], sets[1]);
    return fits;
}

/* Returns N of a name rank-RofN; 0: it is another name. */
static uint32_t ranks_of_name(const char *name)
{
    char *end;
    if (strncmp(name, "rank-", 5) != 0)
        return 0;
    (void)strtoul(name + 5, &end, 10);
    if (strncmp(end, "of", 2) != 0)
        return 0;
    unsigned long ranks = strtoul(end + 2, &end, 10);
    return *end == '\0' && ranks <= FR_RANKS_MAX ? (uint32_t)ranks : 0;
}

/* Finds a directory rank-RofN with another N. Returns N; 0: there is none, or nothing can be
 * listed, of which the open of the state tells more. */
static uint32_t find_other_ranks(const char *state_dir, uint32_t ranks)
{
    uint32_t found = 0;
    DIR *dir = opendir(state_dir);
    if (!dir)
        return 0;
    for (const struct dirent *entry; found == 0 && (entry = readdir(dir)) != NULL;) {
        uint32_t n = ranks_of_name(entry->d_name);
        found = n != ranks ? n : 0;
    }
    closedir(dir);
    return found;
}

enum fr_status fr_job_check_directory(const char *state_dir, uint32_t ranks, struct fr_err *err)
{
    char path[PATH_MAX];
    uint32_t other = find_other_ranks(state_dir, ranks);
    if (other > 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "%s holds the state of a job of %" PRIu32 " ranks, and scale.ranks is %" PRIu32
                          ": this version cannot divide a state another way; start %" PRIu32
                          " ranks, or give another state_dir",
                          state_dir, other, ranks, other);
    snprintf(path, sizeof(path), "%s/hwm", state_dir);
    if (ranks > 1 && access(path, F_OK) == 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "%s holds the state of one rank, and scale.ranks is %" PRIu32
                          ": this version cannot divide a state; leave scale.ranks out, or give another state_dir",
                          state_dir, ranks);
    return FR_OK;
}
