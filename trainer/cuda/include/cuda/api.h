/* The plug-in's C interface: what libfreshet_cuda.so gives, and how it is loaded.
 *
 * A device queue is one card's stream with its handles and workspace, and a second stream for
 * copies beside it. Every operation of ops/ops.h
 * is a member of the same name: it is given the same argument struct, whose pointers, also those in
 * arrays it points to, are device memory, and only starts work. A call is copied when it is given;
 * the arrays must stay until the queue has come past it. What the table returns as a number goes to
 * a device word instead: a double is written, bits are joined by their maximum (set them to 0
 * first). So nothing but fr_device_finish waits.
 *
 * Chunks are the processor's; a device gets whole batches. Sums are taken in blocks of fixed size
 * and in fixed order, with no float atomics: two runs give the same bits, whatever the grid.
 * Tolerance classes are the table's.
 *
 * Thread: a queue has one owner. Errors: a failed call of the driver is kept by the queue, later
 * calls do nothing, and fr_device_finish gives it (FR_E_NO_MEMORY, or FR_E_UNAVAILABLE for a lost
 * card or a fault in a kernel): nothing of the step may be taken then. */
#ifndef FR_CUDA_API_H
#define FR_CUDA_API_H

#include "base/status.h"
#include "ops/ops.h"
#include "vocabulary/init.h"

/* Plug-in and program are built from one tree: this counts with every change here. */
enum { FR_DEVICE_API = 5 };

struct fr_device_queue;

struct fr_device_info {
    char name[128]; /* "NVIDIA H200" */
    uint32_t major, minor;
    uint32_t processors; /* multiprocessors */
    uint64_t memory_bytes, free_bytes;
    uint32_t driver, runtime; /* 13000: 13.0 */
};

struct fr_device_graph_counts {
    uint64_t made, launched;
};

/* A recurrence over a batch. The processor's loop finds at each time which entries have a step; a
 * device is told. */
struct fr_device_gru {
    struct fr_gru call; /* workspace: fr_device_gru_floats */
    uint32_t longest;   /* steps of the longest entry */
    /* host: [longest + 1] entries that have a step t, ascending, are entries[begin[t]] ..
     * entries[begin[t + 1]] */
    const uint32_t *begin;
    const uint32_t *entries; /* device */
};
static inline size_t fr_device_gru_floats(uint32_t entries, uint32_t units)
{
    return 5 * (size_t)entries * units;
}

/* The first layer of an attention over a batch: the host's numbers of `call.steps`, which are
 * device memory. */
struct fr_device_attention {
    struct fr_attention_dense call; /* workspace: fr_device_attention_floats */
    uint32_t first, rows;           /* begin[entry_begin], and the steps from there */
};
static inline size_t fr_device_attention_floats(uint32_t entries, uint32_t rows, uint32_t width, uint32_t units)
{
    uint32_t larger = rows > entries ? rows : entries;
    return 4 * (size_t)width * units + ((size_t)rows + larger) * width + (size_t)entries * units;
}

/* Keys with more than FR_OCCURRENCE_BLOCK occurrences: their gradients are summed block by block,
 * one warp a block, before the rows are updated. Made in plan, from occ_begin alone. */
struct fr_device_long_keys {
    uint32_t n_blocks;
    /* device, [n_blocks]: a block's unique key, and its first place in occ; a key's blocks follow
     * each other */
    const uint32_t *unique, *begin;
    /* device, [unique keys]: its first block, FR_DEVICE_SHORT for others */
    const uint32_t *first_block;
    float *sums;      /* device, [n_blocks, sum over parts of dim] */
    uint32_t *counts; /* device, [n_blocks, n_parts]; with FR_DEVICE_REACHED where a part is */
};
#define FR_DEVICE_SHORT UINT32_MAX
#define FR_DEVICE_REACHED 0x80000000u

/* First values of rows, by base/random_math.h: the bits of numerics' fr_first_values. */
struct fr_device_part_init {
    uint32_t value_offset, dim, state_offset, state_floats;
    float state_initial;
    enum fr_init_kind kind;
    double scale; /* standard deviation, half width, or the constant */
};
struct fr_device_row_init {
    uint32_t n; /* rows, FR_DEVICE_ROWS_MAX at most */
    float *const *rows;
    const uint64_t *keys;
    const struct fr_device_part_init *parts;
    uint32_t n_parts;
    uint64_t seed, stream;
};

/* Rows between where they live and one staging block, row after row of `floats`. */
struct fr_device_rows {
    uint32_t n;
    float *const *rows;
    float *staging;
    uint32_t floats;
};

/* *flag |= reason when *bits > bound. Updates of a queue that obeys a flag change nothing once it
 * is not 0. */
struct fr_device_judge {
    const uint32_t *bits;
    uint32_t bound, reason;
    uint32_t *flag;
};

/* *flag |= reason when one of the sums is not finite. */
struct fr_device_judge_sums {
    const double *sums;
    uint32_t n, reason;
    uint32_t *flag;
};

/* What clip_norm and clip_global_norm leave of the gradients of n parameters. */
struct fr_device_clip {
    uint32_t n;
    const double *squares;    /* [n] sum of squares of a gradient; of one that does not move 0 */
    const float *mean_scales; /* [n] its pace's */
    const float *clip_norms;  /* [n] 0: none */
    float clip_global_norm;   /* 0: none */
    float *factors;           /* [n, 2] out: of the pace's mean_scale, and of its scale */
};

/* average += share (values - average); share 1: average = values. */
struct fr_device_average {
    size_t n;
    float *average;
    const float *values;
    float share;
};

#define FR_DEVICE_OUT_void
#define FR_DEVICE_OUT_double , double *sum
#define FR_DEVICE_OUT_uint32_t , uint32_t *bits
#define FR_DEVICE_ARGUMENTS(...) , __VA_ARGS__
/* A member is no expression. NOLINTBEGIN(bugprone-macro-parentheses) */
#define FR_DEVICE_MEMBER(result, name, arguments)                                                                      \
    void (*name)(struct fr_device_queue * queue FR_DEVICE_OUT_##result FR_DEVICE_ARGUMENTS arguments);
/* NOLINTEND(bugprone-macro-parentheses) */

struct fr_device_ops {
    FR_OPS_SHARED(FR_DEVICE_MEMBER)
    /* f32 with TF32 off; with `bf16` both factors are rounded to bf16 and sums stay f32. */
    void (*multiply)(struct fr_device_queue *queue, const struct fr_multiply *product, bool bf16);
    void (*gru)(struct fr_device_queue *queue, const struct fr_device_gru *call);
    void (*gru_backward)(struct fr_device_queue *queue, const struct fr_device_gru *call);
    void (*attention_dense)(struct fr_device_queue *queue, const struct fr_device_attention *call);
    void (*attention_dense_backward)(struct fr_device_queue *queue, const struct fr_device_attention *call);
    /* update_rows and check_rows with their long keys; NULL: keys are taken as they come, whatever
     * their length, with the same bits */
    void (*update_rows_long)(struct fr_device_queue *queue, const struct fr_row_update *update,
                             const struct fr_device_long_keys *keys);
    /* update_dense with the two factors of its parameter that clip_norms gave; NULL: 1. */
    void (*update_dense_clipped)(struct fr_device_queue *queue, const struct fr_dense_update *update,
                                 const float *factors);
    void (*clip_norms)(struct fr_device_queue *queue, const struct fr_device_clip *call);
    /* Obeys the queue's flag, as updates do. */
    void (*average)(struct fr_device_queue *queue, const struct fr_device_average *call);
    void (*init_rows)(struct fr_device_queue *queue, const struct fr_device_row_init *call);
    /* Into staging; out of it. */
    void (*gather_rows)(struct fr_device_queue *queue, const struct fr_device_rows *call);
    void (*scatter_rows)(struct fr_device_queue *queue, const struct fr_device_rows *call);
    void (*judge)(struct fr_device_queue *queue, const struct fr_device_judge *call);
    void (*judge_sums)(struct fr_device_queue *queue, const struct fr_device_judge_sums *call);
};

struct fr_device_api {
    uint32_t version; /* FR_DEVICE_API */
    /* Number of cards, 0 with the reason in err where there is no driver or no card. */
    uint32_t (*count)(struct fr_err *err);
    enum fr_status (*open)(uint32_t card, struct fr_device_queue **queue, struct fr_err *err);
    void (*close)(struct fr_device_queue *queue);
    void (*info)(struct fr_device_queue *queue, struct fr_device_info *info);
    /* Memory: of the card, or pinned on the host. NULL: there is no more of it. */
    void *(*alloc)(struct fr_device_queue *queue, size_t bytes);
    void (*release)(struct fr_device_queue *queue, void *memory);
    void *(*alloc_pinned)(struct fr_device_queue *queue, size_t bytes);
    void (*release_pinned)(struct fr_device_queue *queue, void *memory);
    /* Started on the queue; the host's memory must stay until it has come past. copy: both are the
     * card's. */
    void (*upload)(struct fr_device_queue *queue, void *device, const void *host, size_t bytes);
    void (*download)(struct fr_device_queue *queue, void *host, const void *device, size_t bytes);
    void (*copy)(struct fr_device_queue *queue, void *to, const void *from, size_t bytes);
    void (*zero)(struct fr_device_queue *queue, void *device, size_t bytes);
    /* The same on a stream of its own, beside what the queue computes, which must not be using that
     * memory. What is started after a join comes after all that was started beside before it. */
    void (*upload_beside)(struct fr_device_queue *queue, void *device, const void *host, size_t bytes);
    void (*join_beside)(struct fr_device_queue *queue);
    /* What is started from begin to end is one piece: it starts at its end, as a CUDA graph when
     * steps before were of the same shape, else call by call. So what it reads may be sent until
     * then. Whoever waits or measures within it ends it. Between cuts it is a graph of its own. */
    void (*begin_graph)(struct fr_device_queue *queue);
    void (*cut_graph)(struct fr_device_queue *queue);
    void (*end_graph)(struct fr_device_queue *queue);
    void (*count_graphs)(const struct fr_device_queue *queue, struct fr_device_graph_counts *counts);
    /* Waits for everything started. */
    enum fr_status (*finish)(struct fr_device_queue *queue, struct fr_err *err);
    /* Device milliseconds between two marks, 0 to FR_DEVICE_MARKS - 1, after finish. */
    void (*mark)(struct fr_device_queue *queue, uint32_t mark);
    double (*elapsed_ms)(struct fr_device_queue *queue, uint32_t from, uint32_t to);
    /* Updates obey this word; NULL: none. */
    void (*obey)(struct fr_device_queue *queue, const uint32_t *flag);
    const struct fr_device_ops *ops;
};
enum { FR_DEVICE_MARKS = 8, FR_DEVICE_ROWS_MAX = 1 << 30 };

/* The plug-in's one exported function. */
typedef const struct fr_device_api *fr_device_plugin_function(void);
#define FR_DEVICE_PLUGIN "fr_device_plugin"

/* Loads the plug-in: `path`, or where that is NULL libfreshet_cuda.so beside the program, in its
 * ../lib, or where the linker looks. FR_E_NOT_FOUND: no such file, or a library it needs is
 * missing; FR_E_MISMATCH: built from another tree. */
enum fr_status fr_cuda_load(const char *path, const struct fr_device_api **api, struct fr_err *err) FR_MUST_CHECK;
/* The one loaded last goes, with cuBLAS (150 MB of memory): for a machine without a card. No queue
 * was opened. */
void fr_cuda_unload(void);

#endif
