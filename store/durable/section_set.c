/* See section_set.h.
 *
 * A section that an epoch does not hold keeps its value, so fold and recovery need the newest value
 * of each name over several epochs. The set is an ordered array: every epoch gives its names in
 * order, and after the first epoch there are few new names to insert.
 *
 * Owner: one walk or one fold. */
#include "section_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { FIRST_VALUES = 64 };

/* The place of the name, or where it would be inserted. */
static size_t place_of(const struct fr_section_set *set, const char *name, bool *found)
{
    size_t begin = 0, end = set->n;
    *found = false;
    if (set->n > 0 && strcmp(set->values[set->n - 1].name, name) < 0)
        return set->n; /* the usual case while the set is being filled */
    while (begin < end && !*found) {
        size_t middle = begin + (end - begin) / 2;
        int order = strcmp(set->values[middle].name, name);
        *found = order == 0;
        if (order < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return *found ? end : begin;
}

struct fr_buffer *fr_section_set_put(struct fr_section_set *set, const char *name, uint64_t epoch)
{
    FR_CHECK(strlen(name) < FR_SECTION_NAME_MAX);
    bool found;
    size_t place = place_of(set, name, &found);
    if (!found) {
        if (set->n == set->capacity) {
            set->capacity = set->capacity ? 2 * set->capacity : FIRST_VALUES;
            set->values = fr_realloc(set->values, set->capacity, sizeof(*set->values));
        }
        memmove(&set->values[place + 1], &set->values[place], (set->n - place) * sizeof(*set->values));
        set->values[place] = (struct section_value){.epoch = 0};
        memcpy(set->values[place].name, name, strlen(name));
        set->n++;
    } else if (set->values[place].epoch >= epoch) {
        return NULL;
    }
    set->values[place].epoch = epoch;
    fr_buffer_clear(&set->values[place].bytes);
    return &set->values[place].bytes;
}

void fr_section_set_release(struct fr_section_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        fr_buffer_release(&set->values[i].bytes);
    free(set->values);
    *set = (struct fr_section_set){.n = 0};
}
