/* The C interface of the plug-in libfreshet_cuda.so, and the function that loads it.
 *
 * A device queue is one card's stream with its handles and workspace, and a second stream for
 * simultaneous copies. Every operation of ops/ops.h is a member of the same name. The member takes
 * the same argument struct, in which all pointers, including those in arrays it points to, are
 * device memory, and it only starts the work. The struct is copied by the call; the arrays must
 * stay valid until the queue has executed the call. A number that the processor's operation returns
 * goes to a device word instead: a double is overwritten, bits are joined by maximum (the caller
 * sets them to 0 first). Therefore only `finish` waits.
 *
 * Chunks exist only on the processor; a device gets whole batches. Sums are taken in blocks of
 * fixed size and in fixed order, with no float atomics: two runs give the same bits, whatever the
 * grid. Tolerance classes are the table's.
 *
 * Thread: a queue has one owner. Errors: the queue records the first failed call of the driver, and
 * later calls do nothing. `finish` returns the error (FR_E_NO_MEMORY, or FR_E_UNAVAILABLE for a
 * lost card or a fault in a kernel); no result of the step may then be used. */
#ifndef FR_CUDA_API_H
#define FR_CUDA_API_H

#include "base/status.h"
#include "ops/ops.h"
#include "vocabulary/init.h"

/* The version of this interface, increased with every change of this header. Plug-in and program
 * must be built from the same tree. */
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

/* A recurrence over a batch. The processor's loop determines for each time which entries have a
 * step; on a device the lists are arguments. */
struct fr_device_gru {
    struct fr_gru call; /* workspace: fr_device_gru_floats */
    uint32_t longest;   /* number of steps of the longest entry */
    /* host: [longest + 1] the entries that have a step t, ascending, are entries[begin[t]] ..
     * entries[begin[t + 1]] */
    const uint32_t *begin;
    const uint32_t *entries; /* device */
};
static inline size_t fr_device_gru_floats(uint32_t entries, uint32_t units)
{
    return 5 * (size_t)entries * units;
}

/* The first layer of an attention over a batch, with the numbers that the host needs from
 * `call.steps`, which is device memory. */
struct fr_device_attention {
    struct fr_attention_dense call; /* workspace: fr_device_attention_floats */
    uint32_t first, rows;           /* begin[entry_begin], and the number of steps from there */
};
static inline size_t fr_device_attention_floats(uint32_t entries, uint32_t rows, uint32_t width, uint32_t units)
{
    uint32_t larger = rows > entries ? rows : entries;
    return 4 * (size_t)width * units + ((size_t)rows + larger) * width + (size_t)entries * units;
}

/* Keys with more than FR_OCCURRENCE_BLOCK occurrences. Their gradients are summed block by block,
 * one warp per block, before the rows are updated. The plan computes this struct from occ_begin
 * alone. */
struct fr_device_long_keys {
    uint32_t n_blocks;
    /* device, [n_blocks]: a block's unique key, and its first index in occ. The blocks of a key are
     * adjacent. */
    const uint32_t *unique, *begin;
    /* device, [unique keys]: the key's first block; FR_DEVICE_SHORT for other keys */
    const uint32_t *first_block;
    float *sums; /* device, [n_blocks, sum over parts of dim] */
    /* device, [n_blocks, n_parts]; FR_DEVICE_REACHED is set if the block reaches the part */
    uint32_t *counts;
};
#define FR_DEVICE_SHORT UINT32_MAX
#define FR_DEVICE_REACHED 0x80000000u

/* First values of rows by base/random_math.h, with the same bits as fr_first_values of numerics. */
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

/* Rows to copy between their addresses and one staging block, which has them one after another,
 * each of `floats` floats. */
struct fr_device_rows {
    uint32_t n;
    float *const *rows;
    float *staging;
    uint32_t floats;
};

/* *flag |= reason if *bits > bound. In a queue that obeys a flag, updates change nothing once the
 * flag is not 0. */
struct fr_device_judge {
    const uint32_t *bits;
    uint32_t bound, reason;
    uint32_t *flag;
};

/* *flag |= reason if one of the sums is not finite. */
struct fr_device_judge_sums {
    const double *sums;
    uint32_t n, reason;
    uint32_t *flag;
};

/* The factors by which clip_norm and clip_global_norm scale the gradients of n parameters. */
struct fr_device_clip {
    uint32_t n;
    /* [n] sum of squares of each gradient; 0 for a parameter that does not move */
    const double *squares;
    const float *mean_scales; /* [n] mean_scale of each parameter's pace */
    const float *clip_norms;  /* [n] 0: none */
    float clip_global_norm;   /* 0: none */
    /* [n, 2] out: the factors of the pace's mean_scale and of its scale */
    float *factors;
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
    /* Computes in f32 with TF32 off. With `bf16` both factors are rounded to bf16, and sums stay
     * f32. */
    void (*multiply)(struct fr_device_queue *queue, const struct fr_multiply *product, bool bf16);
    void (*gru)(struct fr_device_queue *queue, const struct fr_device_gru *call);
    void (*gru_backward)(struct fr_device_queue *queue, const struct fr_device_gru *call);
    void (*attention_dense)(struct fr_device_queue *queue, const struct fr_device_attention *call);
    void (*attention_dense_backward)(struct fr_device_queue *queue, const struct fr_device_attention *call);
    /* update_rows with the table of long keys. NULL: every key is processed in the same way
     * whatever its length, with the same bits. */
    void (*update_rows_long)(struct fr_device_queue *queue, const struct fr_row_update *update,
                             const struct fr_device_long_keys *keys);
    /* update_dense with the two factors that clip_norms computed for the parameter; NULL: 1. */
    void (*update_dense_clipped)(struct fr_device_queue *queue, const struct fr_dense_update *update,
                                 const float *factors);
    void (*clip_norms)(struct fr_device_queue *queue, const struct fr_device_clip *call);
    /* Obeys the queue's flag, like updates. */
    void (*average)(struct fr_device_queue *queue, const struct fr_device_average *call);
    void (*init_rows)(struct fr_device_queue *queue, const struct fr_device_row_init *call);
    /* Copy rows into staging, and out of staging. */
    void (*gather_rows)(struct fr_device_queue *queue, const struct fr_device_rows *call);
    void (*scatter_rows)(struct fr_device_queue *queue, const struct fr_device_rows *call);
    void (*judge)(struct fr_device_queue *queue, const struct fr_device_judge *call);
    void (*judge_sums)(struct fr_device_queue *queue, const struct fr_device_judge_sums *call);
};

struct fr_device_api {
    uint32_t version; /* FR_DEVICE_API */
    /* Returns the number of cards; 0, with the reason in err, if there is no driver or no card. */
    uint32_t (*count)(struct fr_err *err);
    enum fr_status (*open)(uint32_t card, struct fr_device_queue **queue, struct fr_err *err);
    void (*close)(struct fr_device_queue *queue);
    void (*info)(struct fr_device_queue *queue, struct fr_device_info *info);
    /* Memory of the card, and pinned memory of the host. NULL: no more is available. */
    void *(*alloc)(struct fr_device_queue *queue, size_t bytes);
    void (*release)(struct fr_device_queue *queue, void *memory);
    void *(*alloc_pinned)(struct fr_device_queue *queue, size_t bytes);
    void (*release_pinned)(struct fr_device_queue *queue, void *memory);
    /* Copies started on the queue. The host's memory must stay valid until the queue has executed
     * the copy. copy: both addresses are on the card. */
    void (*upload)(struct fr_device_queue *queue, void *device, const void *host, size_t bytes);
    void (*download)(struct fr_device_queue *queue, void *host, const void *device, size_t bytes);
    void (*copy)(struct fr_device_queue *queue, void *to, const void *from, size_t bytes);
    void (*zero)(struct fr_device_queue *queue, void *device, size_t bytes);
    /* The same on a second stream, at the same time as the queue computes. The queue must not be
     * using that memory. Work started after a join runs after all copies that were started on the
     * second stream before the join. */
    void (*upload_beside)(struct fr_device_queue *queue, void *device, const void *host, size_t bytes);
    void (*join_beside)(struct fr_device_queue *queue);
    /* Everything started between begin and end is one piece, which actually starts at the end: as a
     * CUDA graph if earlier steps had the same shape, otherwise call by call. Data that the piece
     * reads may therefore be sent until the end. A call that waits or measures within the piece
     * ends it. cut_graph divides a piece into several graphs. */
    void (*begin_graph)(struct fr_device_queue *queue);
    void (*cut_graph)(struct fr_device_queue *queue);
    void (*end_graph)(struct fr_device_queue *queue);
    void (*count_graphs)(const struct fr_device_queue *queue, struct fr_device_graph_counts *counts);
    /* Waits for everything started. */
    enum fr_status (*finish)(struct fr_device_queue *queue, struct fr_err *err);
    /* Device milliseconds between two marks, 0 to FR_DEVICE_MARKS - 1, after finish. */
    void (*mark)(struct fr_device_queue *queue, uint32_t mark);
    double (*elapsed_ms)(struct fr_device_queue *queue, uint32_t from, uint32_t to);
    /* Sets the word that updates obey; NULL: none. */
    void (*obey)(struct fr_device_queue *queue, const uint32_t *flag);
    const struct fr_device_ops *ops;
};
enum { FR_DEVICE_MARKS = 8, FR_DEVICE_ROWS_MAX = 1 << 30 };

/* The plug-in's one exported function (base/plugin.h), which returns a struct fr_device_api. */
#define FR_DEVICE_PLUGIN "fr_device_plugin"

/* Loads the plug-in from `path`, or, if that is NULL, libfreshet_cuda.so from the program's folder,
 * its ../lib, or the linker's search path. FR_E_NOT_FOUND: there is no such file, or a library it
 * needs is missing. FR_E_MISMATCH: the plug-in was built from another tree. */
enum fr_status fr_cuda_load(const char *path, const struct fr_device_api **api, struct fr_err *err) FR_MUST_CHECK;
/* Unloads the plug-in loaded last, with cuBLAS (150 MB of memory). Used on a machine without a
 * card; no queue may have been opened. */
void fr_cuda_unload(void);

#endif
