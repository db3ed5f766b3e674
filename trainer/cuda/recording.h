/* CUDA graphs: what a step starts is written down and, where the step before started the same with
 * other arguments, launched as one graph whose changed kernels get theirs.
 *
 * Two recordings have the same shape when they start the same kernels in the same order, and all
 * else is equal: products, copies, zeroed memory. Batches of a size give such steps, but for the
 * pieces that have a row for each step of a sequence. What has the shape of one of the last
 * FR_DEVICE_SHAPES is made a graph; FR_DEVICE_GRAPHS are kept, and the one used least recently
 * goes. What is not a graph's is started call by call, with the same bits.
 *
 * The queue's implementation (runtime.cu, tests/emulate/runtime.c) gives the five functions that
 * differ. Private to the module. Thread: the queue's owner. */
#ifndef FR_CUDA_RECORDING_H
#define FR_CUDA_RECORDING_H

#include "queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Beyond so many pieces what follows belongs to the last. */
enum { FR_DEVICE_GRAPHS = 16, FR_DEVICE_SHAPES = 32, FR_DEVICE_PIECES = 32 };

/* A join is never a graph's: what it waits for was started before the graph is. */
enum fr_started_kind {
    FR_STARTED_KERNEL,
    FR_STARTED_COPY,
    FR_STARTED_ZERO,
    FR_STARTED_PRODUCT,
    FR_STARTED_JOIN,
};

struct fr_started {
    enum fr_started_kind kind;
    uint32_t blocks;
    const char *name; /* of a kernel */
    const void *kernel;
    size_t call_at, call_bytes; /* its argument, in the recording's `calls` */
    void *to;
    const void *from;
    size_t bytes;
    uint32_t direction; /* of a copy: the queue's own word */
    struct fr_product product;
};

struct fr_recording {
    struct fr_started *list;
    uint8_t *calls;
    size_t n, capacity, calls_bytes, calls_capacity;
};

/* False: there is no memory for it. */
bool fr_device_record(struct fr_recording *recording, const struct fr_started *started, const void *call);
void fr_device_recording_clear(struct fr_recording *recording);
void fr_device_recording_release(struct fr_recording *recording);
static inline void *fr_device_recorded_call(const struct fr_recording *recording, const struct fr_started *started)
{
    return recording->calls + started->call_at;
}

struct fr_device_graph {
    struct fr_recording recording; /* as the graph starts it */
    void *made;                    /* the queue's; NULL: none */
    uint64_t used;
};

struct fr_device_graphs {
    bool recording, off;                             /* off: no graph is made any more */
    struct fr_recording now, seen[FR_DEVICE_SHAPES]; /* the latter in turns */
    struct fr_recording pieces[FR_DEVICE_PIECES];    /* before `now`, that wait for the end */
    uint32_t n_pieces;
    uint32_t turn;
    struct fr_device_graph kept[FR_DEVICE_GRAPHS];
    struct fr_device_graph_counts counts;
};

struct fr_device_graph_calls {
    /* Call by call. */
    void (*start)(struct fr_device_queue *queue, const struct fr_recording *recording);
    /* NULL: no graph can be made of it, and none will be tried again. Nothing is started. */
    void *(*make)(struct fr_device_queue *queue, const struct fr_recording *recording);
    /* Gives kernel `i` of the graph the blocks and the argument it now has in the recording. */
    void (*change)(struct fr_device_queue *queue, struct fr_device_graph *graph, size_t i);
    void (*launch)(struct fr_device_queue *queue, const struct fr_device_graph *graph);
    void (*drop)(struct fr_device_queue *queue, void *made);
};

/* What is started from here on is written down in graphs->now, and starts when it ends. */
void fr_device_graphs_begin(struct fr_device_graphs *graphs);
/* What follows is another graph. */
void fr_device_graphs_cut(struct fr_device_graphs *graphs);
void fr_device_graphs_end(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                          const struct fr_device_graph_calls *calls);
/* Starts what was written down so far, call by call, and writes no more: for whoever has to
 * wait. */
void fr_device_graphs_flush(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                            const struct fr_device_graph_calls *calls);
/* Memory that graphs may name is gone. */
void fr_device_graphs_forget(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                             const struct fr_device_graph_calls *calls);
void fr_device_graphs_release(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                              const struct fr_device_graph_calls *calls);

#ifdef __cplusplus
}
#endif

#endif
