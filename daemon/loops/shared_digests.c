/* See shared_digests.h. */
#include "loops/shared_digests.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* Dropped digests are moved over once there are so many, so that most calls of drop do nothing. */
enum { DROP_MIN = 1024 };

void fr_shared_digests_init(struct fr_shared_digests *digests)
{
    pthread_mutex_init(&digests->lock, NULL);
}

void fr_shared_digests_release(struct fr_shared_digests *digests)
{
    free(digests->of);
    digests->of = NULL;
    pthread_mutex_destroy(&digests->lock);
}

void fr_shared_digests_begin(struct fr_shared_digests *digests, uint64_t first)
{
    FR_CHECK(digests->n == 0);
    digests->first = first;
}

void fr_shared_digests_add(struct fr_shared_digests *digests, uint64_t epoch, const struct fr_sha256 *digest)
{
    pthread_mutex_lock(&digests->lock);
    FR_CHECK(epoch == digests->first + digests->n);
    if (digests->n == digests->capacity) {
        digests->capacity = digests->capacity ? 2 * digests->capacity : DROP_MIN;
        digests->of = fr_realloc(digests->of, digests->capacity, sizeof(*digests->of));
    }
    digests->of[digests->n++] = *digest;
    pthread_mutex_unlock(&digests->lock);
}

void fr_shared_digests_drop(struct fr_shared_digests *digests, uint64_t before)
{
    pthread_mutex_lock(&digests->lock);
    uint64_t first = digests->first;
    size_t n = before > first ? (size_t)(before - first) : 0;
    if (n > digests->n)
        n = digests->n;
    if (n >= DROP_MIN) {
        memmove(digests->of, digests->of + n, (digests->n - n) * sizeof(*digests->of));
        digests->first += n;
        digests->n -= n;
    }
    pthread_mutex_unlock(&digests->lock);
}

enum fr_status fr_shared_digests_get(void *self, uint64_t epoch, struct fr_sha256 *out)
{
    struct fr_shared_digests *digests = self;
    pthread_mutex_lock(&digests->lock);
    bool known = epoch >= digests->first && epoch - digests->first < digests->n;
    if (known)
        *out = digests->of[epoch - digests->first];
    pthread_mutex_unlock(&digests->lock);
    return known ? FR_OK : FR_E_NOT_FOUND;
}
