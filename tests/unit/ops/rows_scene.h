/* Entries, their ids and the rows they read, for the tests of poolings and of updates. */
#ifndef FR_TESTS_OPS_ROWS_SCENE_H
#define FR_TESTS_OPS_ROWS_SCENE_H

#include "backends.h"

enum { SAMPLES = 6, UNIQUE = 5, IDS = 12 };

/* 6 samples, 12 ids, 5 unique keys of which key 3 has no row; sample 4 has no ids. */
static const uint32_t id_begin[SAMPLES + 1] = {0, 1, 4, 6, 9, 9, 12};
static const uint32_t unique_of[IDS] = {0, 1, 0, 2, 3, 3, 4, 1, 0, 4, 3, 2};
static const float id_weights[IDS] = {1.0f, 2.0f, 0.5f, 0.25f, 1.0f, 3.0f, 1.5f, 1.0f, 0.125f, 2.0f, 4.0f, 1.0f};

static inline void make_row_pointers(float *memory, size_t row_floats, float **rows)
{
    for (size_t u = 0; u < UNIQUE; u++)
        rows[u] = u == 3 ? NULL : memory + u * row_floats;
}

enum { ENTRY_BITS = 9 };

static inline uint32_t from(uint32_t entry, uint32_t group)
{
    return group << ENTRY_BITS | entry;
}

#endif
