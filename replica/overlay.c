/* Changes of a table: see overlay.h. Open addressing with linear probing over one byte of each
 * key's hash, so that the lookup of an absent key costs one access to a small array.
 *
 * Views are managed in view.c. */
#include "overlay.h"

#include <stdlib.h>

#include "base/check.h"

enum { CAPACITY_BITS_MIN = 3 };

struct fr_overlay *fr_overlay_new(struct fr_row_table *rows, uint64_t room, struct fr_replica_memory *memory)
{
    unsigned bits = CAPACITY_BITS_MIN;
    if (room > FR_ROWS_MAX / 2)
        return NULL;
    while ((uint64_t)1 << bits < 2 * room)
        bits++;
    const size_t capacity = (size_t)1 << bits;
    size_t size = sizeof(struct fr_overlay) + capacity * (sizeof(uint64_t) + sizeof(uint32_t) + 1) +
                  (size_t)room * sizeof(uint32_t);
    struct fr_overlay *overlay = fr_replica_memory_try(memory, 16, size);
    if (!overlay)
        return NULL;
    overlay->rows = rows;
    overlay->room = (uint32_t)room;
    overlay->capacity = (uint32_t)capacity;
    overlay->shift = 64 - bits;
    overlay->keys = (uint64_t *)(overlay + 1);
    overlay->slots = (uint32_t *)(overlay->keys + capacity);
    overlay->replaced = overlay->slots + capacity;
    overlay->tags = (uint8_t *)(overlay->replaced + room);
    return overlay;
}

void fr_overlay_abandon(struct fr_overlay *overlay)
{
    if (!overlay)
        return;
    for (uint32_t at = 0; at < overlay->capacity; at++)
        if (overlay->tags[at] != 0 && overlay->slots[at] != FR_NO_SLOT)
            fr_row_give(overlay->rows, overlay->slots[at]);
    free(overlay);
}

static void release_overlay(struct fr_retired *self)
{
    struct fr_overlay *overlay = (struct fr_overlay *)self;
    for (uint32_t i = 0; i < overlay->n_replaced; i++)
        fr_row_give(overlay->rows, overlay->replaced[i]);
    free(overlay);
}

void fr_overlay_retire(struct fr_overlay *overlay, struct fr_retirement *retirement)
{
    fr_retired_add(retirement, &overlay->retired, release_overlay);
}

static uint8_t overlay_tag(uint64_t hash)
{
    return (uint8_t)hash | 1;
}

/* Returns the place of the key, or the empty place where it belongs. */
static uint32_t place_of(const struct fr_overlay *overlay, uint64_t hash, uint64_t key)
{
    uint32_t at = (uint32_t)(hash >> overlay->shift);
    while (overlay->tags[at] != 0 && (overlay->tags[at] != overlay_tag(hash) || overlay->keys[at] != key))
        at = (at + 1) & (overlay->capacity - 1);
    return at;
}

uint32_t *fr_overlay_put(struct fr_overlay *overlay, uint64_t key)
{
    uint64_t hash = fr_row_hash(overlay->rows, key);
    uint32_t at = place_of(overlay, hash, key);
    if (overlay->tags[at] == 0) {
        FR_CHECK(overlay->n < overlay->room);
        overlay->n += 1;
        overlay->tags[at] = overlay_tag(hash);
        overlay->keys[at] = key;
        overlay->slots[at] = FR_NO_SLOT;
    }
    return &overlay->slots[at];
}

bool fr_overlay_find(const struct fr_overlay *overlay, uint64_t hash, uint64_t key, uint32_t *slot)
{
    uint32_t at = place_of(overlay, hash, key);
    if (overlay->tags[at] == 0)
        return false;
    *slot = overlay->slots[at];
    return true;
}

void fr_overlay_prefetch(const struct fr_overlay *overlay, uint64_t hash)
{
    __builtin_prefetch(&overlay->tags[hash >> overlay->shift]);
}

void fr_overlay_absorb(struct fr_overlay *overlay, struct fr_overlay *older)
{
    FR_CHECK(older->merged == 0 && older->n_replaced == 0);
    for (uint32_t at = 0; at < older->capacity; at++) {
        uint32_t slot;
        if (older->tags[at] == 0)
            continue;
        if (!fr_overlay_find(overlay, fr_row_hash(overlay->rows, older->keys[at]), older->keys[at], &slot))
            *fr_overlay_put(overlay, older->keys[at]) = older->slots[at];
        else if (older->slots[at] != FR_NO_SLOT)
            older->replaced[older->n_replaced++] = older->slots[at];
    }
}

bool fr_overlay_merge(struct fr_overlay *overlay)
{
    for (; overlay->merged < overlay->capacity; overlay->merged++) {
        const uint32_t at = overlay->merged;
        uint32_t old = FR_NO_SLOT;
        if (overlay->tags[at] == 0)
            continue;
        if (overlay->slots[at] == FR_NO_SLOT)
            old = fr_row_unset(overlay->rows, overlay->keys[at]);
        else if (!fr_row_set(overlay->rows, overlay->keys[at], overlay->slots[at], &old))
            return false;
        if (old != FR_NO_SLOT)
            overlay->replaced[overlay->n_replaced++] = old;
    }
    return true;
}
