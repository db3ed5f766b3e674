/* The list of outgoing records (publisher_outgoing.h). Each record has memory of its own, which
 * librdkafka takes over and frees, so that nothing is copied twice.
 *
 * Thread: the publisher thread. */
#include "publisher_outgoing.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

struct fr_outgoing_record *fr_publisher_append(struct fr_outgoing *out, const char *topic, uint32_t partition,
                                               const void *bytes, size_t size)
{
    if (out->n == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 64;
        out->records = fr_realloc(out->records, out->capacity, sizeof(*out->records));
    }
    uint8_t *own = fr_realloc(NULL, size, 1);
    memcpy(own, bytes, size);
    out->records[out->n] = (struct fr_outgoing_record){topic, partition, false, size, own};
    return &out->records[out->n++];
}

void fr_publisher_clear_outgoing(struct fr_outgoing *out)
{
    for (size_t i = 0; i < out->n; i++)
        free(out->records[i].bytes);
    out->n = out->next = 0;
    out->hps_rows = out->hps_drops = 0;
}

void fr_publisher_release_outgoing(struct fr_outgoing *out)
{
    fr_publisher_clear_outgoing(out);
    free(out->records);
}
