/* Bounded queue of pointers: a circular array, one mutex, two condition variables.
 *
 * Invariants: count <= capacity; first in, first out; after close nothing enters, but items inside
 * can still be popped. Waits use CLOCK_MONOTONIC, so a change of the wall clock neither shortens
 * nor prolongs them.
 *
 * Thread: any number on each side. The ring does not own the items: drain it before it is freed, or
 * they are lost. */
#include "base/ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

struct fr_ring {
    pthread_mutex_t mutex;
    pthread_cond_t not_empty;
    pthread_cond_t not_full;
    void **items; /* owned array of `capacity` */
    size_t capacity;
    size_t head; /* index of the next item to pop */
    size_t count;
    bool closed;
};

struct fr_ring *fr_ring_new(size_t capacity)
{
    FR_CHECK(capacity >= 1);
    struct fr_ring *ring = fr_alloc(1, sizeof(*ring));
    ring->items = fr_alloc(capacity, sizeof(void *));
    ring->capacity = capacity;
    pthread_condattr_t monotonic;
    int rc = pthread_condattr_init(&monotonic);
    rc |= pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    rc |= pthread_mutex_init(&ring->mutex, NULL);
    rc |= pthread_cond_init(&ring->not_empty, &monotonic);
    rc |= pthread_cond_init(&ring->not_full, &monotonic);
    rc |= pthread_condattr_destroy(&monotonic);
    FR_CHECK(rc == 0);
    return ring;
}

void fr_ring_free(struct fr_ring *ring)
{
    if (!ring)
        return;
    pthread_cond_destroy(&ring->not_full);
    pthread_cond_destroy(&ring->not_empty);
    pthread_mutex_destroy(&ring->mutex);
    free(ring->items);
    free(ring);
}

static void lock(struct fr_ring *ring)
{
    int rc = pthread_mutex_lock(&ring->mutex);
    FR_CHECK(rc == 0);
}

static void unlock(struct fr_ring *ring)
{
    int rc = pthread_mutex_unlock(&ring->mutex);
    FR_CHECK(rc == 0);
}

/* Waits once; false when the deadline has passed. */
static bool wait_until(struct fr_ring *ring, pthread_cond_t *condition, const struct timespec *deadline)
{
    int rc = pthread_cond_timedwait(condition, &ring->mutex, deadline);
    FR_CHECK(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

static void push_locked(struct fr_ring *ring, void *item)
{
    size_t tail = ring->head + ring->count;
    if (tail >= ring->capacity)
        tail -= ring->capacity;
    ring->items[tail] = item;
    ring->count += 1;
    pthread_cond_signal(&ring->not_empty);
}

bool fr_ring_try_push(struct fr_ring *ring, void *item)
{
    return fr_ring_push(ring, item, 0) == FR_OK;
}

enum fr_status fr_ring_push(struct fr_ring *ring, void *item, uint64_t timeout_ns)
{
    lock(ring);
    if (!ring->closed && ring->count == ring->capacity && timeout_ns > 0) {
        struct timespec deadline = fr_clock_deadline(timeout_ns);
        while (!ring->closed && ring->count == ring->capacity && wait_until(ring, &ring->not_full, &deadline)) {
        }
    }
    enum fr_status status = FR_OK;
    if (ring->closed)
        status = FR_EOF;
    else if (ring->count == ring->capacity)
        status = FR_AGAIN;
    else
        push_locked(ring, item);
    unlock(ring);
    return status;
}

enum fr_status fr_ring_pop(struct fr_ring *ring, void **item, uint64_t timeout_ns)
{
    lock(ring);
    if (!ring->closed && ring->count == 0 && timeout_ns > 0) {
        struct timespec deadline = fr_clock_deadline(timeout_ns);
        while (!ring->closed && ring->count == 0 && wait_until(ring, &ring->not_empty, &deadline)) {
        }
    }
    enum fr_status status = FR_OK;
    if (ring->count == 0) {
        status = ring->closed ? FR_EOF : FR_AGAIN;
    } else {
        *item = ring->items[ring->head];
        ring->head = ring->head + 1 == ring->capacity ? 0 : ring->head + 1;
        ring->count -= 1;
        pthread_cond_signal(&ring->not_full);
    }
    unlock(ring);
    return status;
}

void fr_ring_close(struct fr_ring *ring)
{
    lock(ring);
    ring->closed = true;
    pthread_cond_broadcast(&ring->not_empty);
    pthread_cond_broadcast(&ring->not_full);
    unlock(ring);
}

size_t fr_ring_count(struct fr_ring *ring)
{
    lock(ring);
    size_t count = ring->count;
    unlock(ring);
    return count;
}
