/* Staged epochs: see held.h. A sorted array with a moving begin: entries come and go at its ends,
 * since every partition delivers epochs in ascending order. Does not: judge records. */
#include "held.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static void free_staged(struct fr_held *held, struct fr_staged *staged)
{
    held->bytes -= sizeof(*staged) + staged->np * sizeof(staged->partitions[0]);
    for (uint32_t p = 0; p < staged->np; p++) {
        struct fr_staged_partition *partition = &staged->partitions[p];
        for (uint32_t i = 0; i < partition->capacity; i++) {
            held->bytes -= partition->pieces[i].size;
            free(partition->pieces[i].bytes);
        }
        held->bytes -= (uint64_t)partition->capacity * sizeof(struct fr_piece);
        free(partition->pieces);
    }
    free(staged);
}

void fr_held_clear(struct fr_held *held)
{
    for (size_t i = 0; i < held->n; i++)
        free_staged(held, fr_held_at(held, i));
    held->begin = held->n = 0;
    FR_CHECK(held->bytes == 0);
}

void fr_held_free(struct fr_held *held)
{
    fr_held_clear(held);
    free(held->list);
    *held = (struct fr_held){0};
}

struct fr_staged *fr_held_at(const struct fr_held *held, size_t i)
{
    return held->list[held->begin + i];
}

/* Number of entries before (epoch, from). */
static size_t rank(const struct fr_held *held, uint64_t epoch, uint64_t from)
{
    size_t low = 0, high = held->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct fr_staged *staged = fr_held_at(held, middle);
        if (staged->epoch < epoch || (staged->epoch == epoch && staged->from < from))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct fr_staged *fr_held_find(const struct fr_held *held, uint64_t epoch, uint64_t from, struct fr_staged **other)
{
    size_t first = rank(held, epoch, 0);
    *other = first < held->n && fr_held_at(held, first)->epoch == epoch ? fr_held_at(held, first) : NULL;
    size_t at = rank(held, epoch, from);
    if (at == held->n)
        return NULL;
    struct fr_staged *staged = fr_held_at(held, at);
    return staged->epoch == epoch && staged->from == from ? staged : NULL;
}

struct fr_staged *fr_held_add(struct fr_held *held, const struct fr_delta_record *record)
{
    size_t size = sizeof(struct fr_staged) + record->np * sizeof(struct fr_staged_partition);
    struct fr_staged *staged = fr_alloc(1, size);
    held->bytes += size;
    staged->epoch = record->epoch;
    staged->from = record->from;
    staged->digest = record->digest;
    staged->fp = record->fp;
    staged->np = record->np;
    if (held->begin + held->n == held->capacity) {
        /* as many free places in front as entries: the move is paid for */
        if (held->begin > held->n) {
            memmove(held->list, held->list + held->begin, held->n * sizeof(struct fr_staged *));
            held->begin = 0;
        } else {
            held->capacity = held->capacity ? held->capacity * 2 : 16;
            held->list = fr_realloc(held->list, held->capacity, sizeof(struct fr_staged *));
        }
    }
    size_t at = rank(held, record->epoch, record->from);
    struct fr_staged **place = held->list + held->begin + at;
    memmove(place + 1, place, (held->n - at) * sizeof(struct fr_staged *));
    *place = staged;
    held->n += 1;
    return staged;
}

bool fr_held_hold(struct fr_held *held, struct fr_staged *staged, const struct fr_delta_record *record,
                  const void *bytes, size_t size)
{
    struct fr_staged_partition *partition = &staged->partitions[record->partition];
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
        held->bytes += (uint64_t)(capacity - partition->capacity) * sizeof(struct fr_piece);
        partition->capacity = capacity;
    }
    uint8_t *copy = fr_alloc(size, 1);
    memcpy(copy, bytes, size);
    partition->pieces[piece] = (struct fr_piece){copy, size};
    partition->n_held += 1;
    partition->n_rows += record->kind == FR_DELTA_ROWS ? record->rows.n_rows : 0;
    partition->n_drops += record->kind == FR_DELTA_DROP ? record->drop.n_rows : 0;
    held->bytes += size;
    return true;
}

void fr_held_drop(struct fr_held *held, uint64_t applied)
{
    while (held->n > 0 && fr_held_at(held, 0)->epoch <= applied) {
        free_staged(held, fr_held_at(held, 0));
        held->begin += 1;
        held->n -= 1;
    }
    if (held->n == 0)
        held->begin = 0;
}
