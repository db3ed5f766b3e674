/* A worker pool for fork-join loops. It runs task(context, index) for index 0..count-1 on `workers`
 * threads (the caller is one of them) and returns when all are done. Which worker runs an index is
 * not defined, and results must not depend on it (docs/architecture.md, "Exactness").
 *
 * Thread: one caller at a time, the owner loop. */
#ifndef FR_BASE_POOL_H
#define FR_BASE_POOL_H

#include <stddef.h>

struct fr_pool;

/* workers >= 1; 1 runs everything in the caller and starts no thread. If the system refuses
 * threads, the pool has fewer workers, at least the caller. */
struct fr_pool *fr_pool_new(size_t workers);
void fr_pool_free(struct fr_pool *pool);
size_t fr_pool_workers(const struct fr_pool *pool);
/* `worker` (0..workers-1) lets a task choose its own scratch memory. */
typedef void fr_pool_task(void *context, size_t index, size_t worker);
void fr_pool_run(struct fr_pool *pool, size_t count, fr_pool_task *task, void *context);

#endif
