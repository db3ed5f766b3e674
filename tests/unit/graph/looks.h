/* The examinations of a refused batch, one after another, as the trainer makes them. */
#ifndef FR_TESTS_GRAPH_LOOKS_H
#define FR_TESTS_GRAPH_LOOKS_H

#include "graph/graph.h"

static inline uint32_t find_suspects(const struct fr_graph *graph, const struct fr_batch *batch,
                                     const struct fr_rows *rows, struct fr_suspect *found)
{
    uint32_t n = 0;
    for (enum fr_suspect_look look = 0; look < FR_SUSPECT_LOOKS && n == 0; look++)
        n = fr_graph_suspects(graph, batch, rows, look, found);
    return n;
}

#endif
