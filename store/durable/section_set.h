/* The newest value of every section over several epochs, which may come in any order.
 * Module-internal. */
#ifndef FR_DURABLE_SECTION_SET_H
#define FR_DURABLE_SECTION_SET_H

#include "durable/epoch.h"

struct section_value {
    char name[FR_SECTION_NAME_MAX];
    uint64_t epoch; /* the epoch that holds this value */
    struct fr_buffer bytes;
};

struct fr_section_set {
    struct section_value *values; /* by ascending name */
    size_t n, capacity;
};

/* Returns an empty buffer for the bytes of this section, or NULL if the set has a value of `epoch`
 * or a later one. The buffer is valid until the next call. */
struct fr_buffer *fr_section_set_put(struct fr_section_set *set, const char *name, uint64_t epoch);
void fr_section_set_release(struct fr_section_set *set);

#endif
