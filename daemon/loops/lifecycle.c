/* Sets and copies the texts of the service's life under the lock (lifecycle.h). */
#include "loops/lifecycle.h"

#include <stdio.h>

void fr_lifecycle_init(struct fr_lifecycle *life)
{
    pthread_mutex_init(&life->lock, NULL);
    atomic_store(&life->phase, FR_PHASE_RECOVERING);
}

void fr_lifecycle_release(struct fr_lifecycle *life)
{
    pthread_mutex_destroy(&life->lock);
}

void fr_lifecycle_fail(struct fr_lifecycle *life, const struct fr_err *err)
{
    pthread_mutex_lock(&life->lock);
    if (life->failure.status == FR_OK)
        life->failure = *err;
    pthread_mutex_unlock(&life->lock);
}

bool fr_lifecycle_failed(struct fr_lifecycle *life, struct fr_err *err)
{
    pthread_mutex_lock(&life->lock);
    bool failed = life->failure.status != FR_OK;
    if (failed)
        *err = life->failure;
    pthread_mutex_unlock(&life->lock);
    return failed;
}

void fr_lifecycle_set_starting(struct fr_lifecycle *life, const char *text)
{
    pthread_mutex_lock(&life->lock);
    snprintf(life->starting, sizeof(life->starting), "%s", text);
    pthread_mutex_unlock(&life->lock);
}

void fr_lifecycle_get_starting(struct fr_lifecycle *life, char *out, size_t size)
{
    pthread_mutex_lock(&life->lock);
    snprintf(out, size, "%s", life->starting);
    pthread_mutex_unlock(&life->lock);
}
