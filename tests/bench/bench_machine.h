/* What the owner loop does with a batch, in this process and without Kafka, for benchmarks: plan,
 * forward, AUC, backward, updates, insight, expiry slice. Cuts and publishing are not in it. Rows
 * are all admitted. Private to tests/bench. Thread: the caller's, and a pool of its own. */
#ifndef FR_BENCH_MACHINE_H
#define FR_BENCH_MACHINE_H

#include "base/pool.h"
#include "bench.h"
#include "graph/graph.h"
#include "insight/insight.h"
#include "metrics/auc.h"
#include "store/store.h"

enum { FR_MACHINE_PLAN, FR_MACHINE_FORWARD, FR_MACHINE_METRICS, FR_MACHINE_UPDATE, FR_MACHINE_PHASES };

struct fr_bench_machine {
    const struct fr_conf *conf; /* borrowed */
    struct fr_pool *pool;
    struct fr_graph *graph;
    struct fr_store *store;
    struct fr_rows *rows;
    struct fr_auc *auc;
    struct fr_insight *insight;        /* NULL: insight.interval is 0 */
    uint64_t n_trained;                /* batches */
    uint64_t step_ns;                  /* all batches */
    double seconds[FR_MACHINE_PHASES]; /* of all threads, by phase */
};

void fr_bench_machine_init(struct fr_bench_machine *machine, const struct fr_conf *conf, uint32_t threads);
void fr_bench_machine_release(struct fr_bench_machine *machine);
/* All batches once; *rate: samples a second. FR_TOOL_FAILED: a step was not finite. */
int fr_bench_machine_round(struct fr_bench_machine *machine, struct fr_batch *const *batches, uint32_t n, double *rate);

#endif
