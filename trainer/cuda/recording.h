/* CUDA graphs. Everything that a step starts is recorded. If an earlier step started the same work
 * with other arguments, the recording is launched as one graph, in which the changed kernels get
 * their new arguments.
 *
 * Two recordings have the same shape if they start the same kernels in the same order and
 * everything else is equal: products, copies, zeroed memory. Steps of batches of one size have the
 * same shape, except the pieces with a row for each step of a sequence. A recording with the shape
 * of one of the last FR_DEVICE_SHAPES recordings is made into a graph. FR_DEVICE_GRAPHS graphs are
 * kept; the least recently used one is dropped. All other work is started call by call, with the
 * same bits.
 *
 * The queue's implementation (runtime.cu, tests/emulate/runtime.c) provides the five functions that
 * differ. Private to the module. Thread: the queue's owner. */
#ifndef FR_CUDA_RECORDING_H
#define FR_CUDA_RECORDING_H

#include "queue.h"

#ifdef __cplusplus
extern "C" {
#endif

/* After FR_DEVICE_PIECES pieces, further work belongs to the last one. */
enum { FR_DEVICE_GRAPHS = 16, FR_DEVICE_SHAPES = 32, FR_DEVICE_PIECES = 32 };

/* A join is never part of a graph, because the copies it waits for were started before the
 * graph. */
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
    const char *name; /* name of a kernel */
    const void *kernel;
    size_t call_at, call_bytes; /* the kernel's argument, in the recording's `calls` */
    void *to;
    const void *from;
    size_t bytes;
    uint32_t direction; /* of a copy: a constant of the queue's implementation */
    struct fr_product product;
};

struct fr_recording {
    struct fr_started *list;
    uint8_t *calls;
    size_t n, capacity, calls_bytes, calls_capacity;
};

/* Adds one call to the recording. False: there is no memory. */
bool fr_device_record(struct fr_recording *recording, const struct fr_started *started, const void *call);
void fr_device_recording_clear(struct fr_recording *recording);
void fr_device_recording_release(struct fr_recording *recording);
static inline void *fr_device_recorded_call(const struct fr_recording *recording, const struct fr_started *started)
{
    return recording->calls + started->call_at;
}

struct fr_device_graph {
    /* the recording with the arguments with which the graph starts */
    struct fr_recording recording;
    void *made; /* the graph object of the queue; NULL: none */
    uint64_t used;
};

struct fr_device_graphs {
    bool recording, off;                             /* off: no further graph is made */
    struct fr_recording now, seen[FR_DEVICE_SHAPES]; /* `seen` is overwritten cyclically */
    struct fr_recording pieces[FR_DEVICE_PIECES];    /* pieces before `now` that wait for the end */
    uint32_t n_pieces;
    uint32_t turn;
    struct fr_device_graph kept[FR_DEVICE_GRAPHS];
    struct fr_device_graph_counts counts;
};

struct fr_device_graph_calls {
    /* Starts the recording call by call. */
    void (*start)(struct fr_device_queue *queue, const struct fr_recording *recording);
    /* Makes a graph of the recording without starting anything. NULL: no graph can be made, and
     * none is tried again. */
    void *(*make)(struct fr_device_queue *queue, const struct fr_recording *recording);
    /* Gives kernel `i` of the graph the blocks and the argument it now has in the recording. */
    void (*change)(struct fr_device_queue *queue, struct fr_device_graph *graph, size_t i);
    void (*launch)(struct fr_device_queue *queue, const struct fr_device_graph *graph);
    void (*drop)(struct fr_device_queue *queue, void *made);
};

/* Begins a recording: work started from here on is recorded in graphs->now and starts at
 * fr_device_graphs_end. */
void fr_device_graphs_begin(struct fr_device_graphs *graphs);
/* Ends the present graph; the work that follows is another one. */
void fr_device_graphs_cut(struct fr_device_graphs *graphs);
void fr_device_graphs_end(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                          const struct fr_device_graph_calls *calls);
/* Starts what was recorded so far, call by call, and stops recording. Used by calls that have to
 * wait. */
void fr_device_graphs_flush(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                            const struct fr_device_graph_calls *calls);
/* Drops all graphs, because memory that they may refer to was freed. */
void fr_device_graphs_forget(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                             const struct fr_device_graph_calls *calls);
void fr_device_graphs_release(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                              const struct fr_device_graph_calls *calls);

#ifdef __cplusplus
}
#endif

#endif
