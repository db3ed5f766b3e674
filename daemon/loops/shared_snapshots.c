/* Setting and copying the shared state of snapshots under its lock (shared_snapshots.h). */
#include "loops/shared_snapshots.h"

#include <stdio.h>
#include <stdlib.h>

void fr_shared_snapshots_init(struct fr_shared_snapshots *shared)
{
    pthread_mutex_init(&shared->lock, NULL);
}

void fr_shared_snapshots_release(struct fr_shared_snapshots *shared)
{
    free(shared->offsets);
    shared->offsets = NULL;
    pthread_mutex_destroy(&shared->lock);
}

void fr_shared_snapshots_announce(struct fr_shared_snapshots *shared, const struct fr_announced_snapshot *announced)
{
    pthread_mutex_lock(&shared->lock);
    shared->announced = *announced;
    pthread_mutex_unlock(&shared->lock);
}

void fr_shared_snapshots_announced(struct fr_shared_snapshots *shared, struct fr_announced_snapshot *out)
{
    pthread_mutex_lock(&shared->lock);
    *out = shared->announced;
    pthread_mutex_unlock(&shared->lock);
}

void fr_shared_snapshots_set_current(struct fr_shared_snapshots *shared, const char *name, uint64_t epoch)
{
    pthread_mutex_lock(&shared->lock);
    snprintf(shared->current, sizeof(shared->current), "%s", name);
    pthread_mutex_unlock(&shared->lock);
    atomic_store(&shared->current_epoch, epoch);
}

void fr_shared_snapshots_set_problem(struct fr_shared_snapshots *shared, const char *text)
{
    pthread_mutex_lock(&shared->lock);
    snprintf(shared->problem, sizeof(shared->problem), "%s", text);
    pthread_mutex_unlock(&shared->lock);
}

void fr_shared_snapshots_get_texts(struct fr_shared_snapshots *shared, char current[FR_MANIFEST_NAME_MAX],
                                   char problem[FR_SNAPSHOT_PROBLEM_MAX])
{
    pthread_mutex_lock(&shared->lock);
    snprintf(current, FR_MANIFEST_NAME_MAX, "%s", shared->current);
    snprintf(problem, FR_SNAPSHOT_PROBLEM_MAX, "%s", shared->problem);
    pthread_mutex_unlock(&shared->lock);
}

void fr_shared_snapshots_set_offsets(struct fr_shared_snapshots *shared, uint64_t *offsets, uint32_t n)
{
    pthread_mutex_lock(&shared->lock);
    free(shared->offsets);
    shared->offsets = offsets;
    shared->n_offsets = offsets ? n : 0;
    pthread_mutex_unlock(&shared->lock);
}
