/* The newest value of every section over a run of epochs, whatever order they are looked at in.
 * Module-internal. */
#ifndef FR_DURABLE_SECTION_SET_H
#define FR_DURABLE_SECTION_SET_H

#include "durable/epoch.h"

struct section_value {
    char name[FR_SECTION_NAME_MAX];
    uint64_t epoch; /* that gave it */
    struct fr_buffer bytes;
};

struct fr_section_set {
    struct section_value *values; /* ascending names */
    size_t n, capacity;
};

/* Where the bytes of this section go, empty; NULL when the set has them of `epoch` or a later one.
 * The buffer is valid until the next call. */
struct fr_buffer *fr_section_set_put(struct fr_section_set *set, const char *name, uint64_t epoch);
void fr_section_set_release(struct fr_section_set *set);

#endif
