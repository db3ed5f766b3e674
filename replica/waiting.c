/* Epochs that wait: see waiting.h. A sorted array with a moving beginning: entries are added and
 * removed at its ends, because every partition delivers epochs in ascending order.
 *
 * Memory is allocated before anything changes, so a refusal leaves everything as it was. This file
 * does not judge records. */
#include "waiting.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static void free_entry(struct fr_waiting *waiting, struct fr_waiting_epoch *entry)
{
    waiting->bytes -= sizeof(*entry) + entry->np * sizeof(entry->partitions[0]);
    for (uint32_t p = 0; p < entry->np; p++) {
        struct fr_waiting_partition *partition = &entry->partitions[p];
        for (uint32_t i = 0; i < partition->capacity; i++) {
            waiting->bytes -= partition->pieces[i].size;
            free(partition->pieces[i].bytes);
        }
        waiting->bytes -= (uint64_t)partition->capacity * sizeof(struct fr_piece);
        free(partition->pieces);
    }
    free(entry);
}

void fr_waiting_clear(struct fr_waiting *waiting)
{
    for (size_t i = 0; i < waiting->n; i++)
        free_entry(waiting, fr_waiting_at(waiting, i));
    waiting->begin = waiting->n = 0;
    FR_CHECK(waiting->bytes == 0);
}

void fr_waiting_free(struct fr_waiting *waiting)
{
    fr_waiting_clear(waiting);
    free(waiting->list);
    *waiting = (struct fr_waiting){0};
}

struct fr_waiting_epoch *fr_waiting_at(const struct fr_waiting *waiting, size_t i)
{
    return waiting->list[waiting->begin + i];
}

/* Returns the number of entries before (epoch, from). */
static size_t rank(const struct fr_waiting *waiting, uint64_t epoch, uint64_t from)
{
    size_t low = 0, high = waiting->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct fr_waiting_epoch *entry = fr_waiting_at(waiting, middle);
        if (entry->epoch < epoch || (entry->epoch == epoch && entry->from < from))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct fr_waiting_epoch *fr_waiting_find(const struct fr_waiting *waiting, uint64_t epoch, uint64_t from,
                                         struct fr_waiting_epoch **other)
{
    size_t first = rank(waiting, epoch, 0);
    *other = first < waiting->n && fr_waiting_at(waiting, first)->epoch == epoch ? fr_waiting_at(waiting, first) : NULL;
    size_t at = rank(waiting, epoch, from);
    if (at == waiting->n)
        return NULL;
    struct fr_waiting_epoch *entry = fr_waiting_at(waiting, at);
    return entry->epoch == epoch && entry->from == from ? entry : NULL;
}

static void reserve_entry(struct fr_waiting *waiting)
{
    if (waiting->begin + waiting->n < waiting->capacity)
        return;
    /* there are as many free places in front as entries, which pays for the move */
    if (waiting->begin > waiting->n) {
        memmove(waiting->list, waiting->list + waiting->begin, waiting->n * sizeof(struct fr_waiting_epoch *));
        waiting->begin = 0;
        return;
    }
    size_t capacity = waiting->capacity ? waiting->capacity * 2 : 16;
    waiting->list = fr_realloc(waiting->list, capacity, sizeof(struct fr_waiting_epoch *));
    waiting->capacity = capacity;
}

struct fr_waiting_epoch *fr_waiting_add(struct fr_waiting *waiting, const struct fr_delta_record *record)
{
    size_t size = sizeof(struct fr_waiting_epoch) + record->np * sizeof(struct fr_waiting_partition);
    reserve_entry(waiting);
    struct fr_waiting_epoch *entry = fr_alloc(1, size);
    waiting->bytes += size;
    entry->epoch = record->epoch;
    entry->from = record->from;
    entry->digest = record->digest;
    entry->fp = record->fp;
    entry->np = record->np;
    size_t at = rank(waiting, record->epoch, record->from);
    struct fr_waiting_epoch **place = waiting->list + waiting->begin + at;
    memmove(place + 1, place, (waiting->n - at) * sizeof(struct fr_waiting_epoch *));
    *place = entry;
    waiting->n += 1;
    return entry;
}

bool fr_waiting_put(struct fr_waiting *waiting, struct fr_waiting_epoch *entry, const struct fr_delta_record *record,
                    const void *bytes, size_t size)
{
    struct fr_waiting_partition *partition = &entry->partitions[record->partition];
    uint32_t piece = record->piece;
    FR_CHECK(piece < FR_PIECES_MAX);
    if (piece < partition->capacity && partition->pieces[piece].bytes)
        return false;
    if (piece >= partition->capacity) {
        uint32_t capacity = partition->capacity ? partition->capacity : 4;
        while (capacity <= piece)
            capacity *= 2;
        partition->pieces = fr_realloc(partition->pieces, capacity, sizeof(struct fr_piece));
        memset(partition->pieces + partition->capacity, 0, (capacity - partition->capacity) * sizeof(struct fr_piece));
        waiting->bytes += (uint64_t)(capacity - partition->capacity) * sizeof(struct fr_piece);
        partition->capacity = capacity;
    }
    uint8_t *copy = fr_alloc(size, 1);
    memcpy(copy, bytes, size);
    partition->pieces[piece] = (struct fr_piece){copy, size};
    partition->n_pieces += 1;
    partition->n_rows += record->kind == FR_DELTA_ROWS ? record->rows.n_rows : 0;
    partition->n_drops += record->kind == FR_DELTA_DROP ? record->drop.n_rows : 0;
    waiting->bytes += size;
    return true;
}

void fr_waiting_drop(struct fr_waiting *waiting, uint64_t applied)
{
    while (waiting->n > 0 && fr_waiting_at(waiting, 0)->epoch <= applied) {
        free_entry(waiting, fr_waiting_at(waiting, 0));
        waiting->begin += 1;
        waiting->n -= 1;
    }
    if (waiting->n == 0)
        waiting->begin = 0;
}
