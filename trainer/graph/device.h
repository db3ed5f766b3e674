/* A device that computes instead of the processor: its memory, arenas, rows and answer. Private to
 * the module.
 *
 * The network, its nodes and the calls they make are the same as on the processor (nodes.c,
 * forward.c and others). A call goes to the device's queue with device pointers, a chunk is the
 * whole batch, and everything that the host needs to know comes back in one block, the answer,
 * after the whole step was started.
 *
 * Parameters are kept on the device; the host's copy is updated on request (fr_graph_fetch). Rows
 * are kept in the store. The rows in use are also on the device (row_cache), where steps change
 * them.
 *
 * Owner thread: the graph's. */
#ifndef FR_GRAPH_DEVICE_H
#define FR_GRAPH_DEVICE_H

#include "cuda/api.h"
#include "network.h"

/* The words of the answer. The first is the flag that updates obey. */
enum fr_device_word {
    FR_DEVICE_REFUSED,
    FR_DEVICE_LOGITS, /* this word and the following ones: the largest |x|, as bits */
    FR_DEVICE_OUTPUTS,
    FR_DEVICE_PARAMETERS,
    FR_DEVICE_LEAVES,
    FR_DEVICE_SQUARED, /* the largest value that statistics square */
    FR_DEVICE_ROWS,
    FR_DEVICE_WORDS = 16, /* one cache line */
};
/* The bits of the first word. */
enum fr_device_refusal {
    FR_REFUSED_LOGIT = 1,
    FR_REFUSED_LOSS = 2,
    FR_REFUSED_GRADIENT = 4,
    FR_REFUSED_STATISTIC = 8,
    /* Not a refusal yet: the leaves' gradients are so large that the rows' gradients must be
     * checked. */
    FR_REFUSED_UNSURE = 16,
};

/* Pinned host memory and the same amount of device memory, in blocks. The host fills the pinned
 * memory, and all of it is copied at once. */
struct arena_block {
    uint8_t *host, *device;
    size_t capacity, used, sent;
};
struct arena {
    struct arena_block *blocks;
    uint32_t n, capacity;
    /* optional: a lack of room is not an error now; failed: there was no room */
    bool optional, failed;
};

/* The rows of one table on the device, by key (device_rows.c). Each row has a number. */
struct row_cache {
    uint32_t floats; /* floats of a row */
    uint32_t n_parts;
    const struct fr_device_part_init *parts; /* device, [n_parts]; NULL: first values are sent */
    uint32_t log2_chunk;                     /* log2 of the rows of a chunk */
    /* rows present, and rows that the chunks have room for */
    uint32_t n, capacity;
    uint32_t n_chunks, capacity_chunks, hand;
    float **chunks;          /* device memory */
    uint64_t *keys;          /* [capacity] */
    bool *dirty;             /* [capacity] the row is newer than the store's */
    struct row_place *index; /* [1 << log2_index] */
    uint32_t log2_index;
    uint32_t *changed; /* the numbers of rows that may be dirty */
    size_t n_changed, capacity_changed;
};
#define FR_NO_ROW UINT32_MAX
/* Everything that a look-up of a key reads and writes. */
struct row_place {
    uint64_t key;
    uint32_t number : 31; /* the row's number + 1; 0: the place is free */
    uint32_t first : 1;   /* the row holds first values, for the next batch that creates it */
    uint32_t turn;        /* turn of the arrival that used the row last */
};

/* Some of a table's unique keys, ascending. */
struct key_list {
    uint32_t *of;
    uint32_t *counts; /* lengths of the parts that the list was joined from */
    uint32_t n;
};

/* What an arrival has for each table in addition to the rows: where the rows are on the device. */
struct device_plan {
    struct fr_device_long_keys keys;
    /* [unique keys] */
    uint32_t *numbers;      /* numbers of rows; FR_NO_ROW: the device does not have the row */
    float **rows, **served; /* device addresses of rows, as in fr_table_rows */
    /* keys whose rows are absent, are created by the batch, or hold first values */
    struct key_list listed;
    struct key_list longs; /* keys with more than one block of occurrences */
    size_t capacity;       /* capacity of the arrays above */
    /* the table's first part in the list of all tables' parts (device_index.c) */
    uint32_t first_part;
    bool sent; /* the arena already has the present contents of rows and served */
};

/* A batch on the device, in its own arena. */
struct arrival {
    struct arena arena;
    const struct fr_batch *of_batch; /* the batch that was sent early; NULL: none was */
    const struct fr_rows *of_rows;
    uint32_t turn; /* marks the rows that the arrival uses; 0: these rows may be evicted */
    /* the batch with device pointers */
    struct fr_batch batch;
    struct fr_column *columns; /* owned */
    struct fr_rows rows;
    struct device_plan *plans; /* [tables] */
};
enum { FR_ARRIVALS = 2 }; /* the current one and the next one */

/* A row being transferred. */
struct row_move {
    float *device;
    float *host; /* NULL: the row begins with the first values of its key */
    uint64_t key;
};
/* The rows of a table that are transferred to the device: their values in the arena, or their
 * keys. */
struct row_arrivals {
    struct fr_device_rows sent;
    struct fr_device_row_init made;
};

/* A copy from the host to an arena's pinned memory. */
struct arena_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct graph_device {
    const struct fr_graph *graph;
    const struct fr_device_api *api;
    const struct fr_device_ops *ops; /* the operations of `api` */
    struct fr_device_queue *queue;
    bool bf16;
    bool waiting;          /* something was started since the last finish */
    bool stepping;         /* updates were started, and their result has not been read yet */
    bool of_steps;         /* the nodes being started have rows per step */
    enum fr_status status; /* final; the text is in err */
    struct fr_err err;

    struct arrival arrivals[FR_ARRIVALS];
    struct arrival *now, *next;
    struct arena *arena;       /* the arena being filled: that of `now` or of `next` */
    size_t arena_bytes;        /* size of an arena's first block */
    uint64_t sends;            /* total sends so far */
    struct arena_copy *copies; /* copies to make before the arena is sent */
    size_t n_copies, capacity_copies;
    size_t *copy_groups; /* index of the first copy of each task */
    size_t n_copy_groups, capacity_copy_groups;
    size_t group_bytes; /* bytes of the last group */
    uint8_t *trained;
    uint32_t *step_counts; /* [capacity_counts] */
    uint32_t capacity_counts;

    /* The answer on the device and its copy in pinned memory: the words, then the sums of losses,
     * of groups of pairs, and of dices. */
    uint8_t *answer, *answered;
    size_t answer_capacity, answer_bytes;
    size_t sums_at, pairs_at, dices_at; /* byte offsets in the answer */
    uint32_t n_groups;                  /* groups of pairs with a sum */

    struct parameter_state *states_before; /* [parameters] */
    float *factors;                        /* [2 parameters] factors of clipped gradients */
    double *squares;                       /* [parameters] */

    struct row_cache *tables;        /* [tables] */
    uint32_t turn;                   /* turn of the last arrival */
    size_t row_bytes, row_bytes_max; /* bytes of all chunks, and their limit */
    fr_graph_row_of *row_of;
    void *row_of_self;
    struct fr_value_place *first_places; /* [tables], or NULL */
    struct row_move *moves;
    size_t n_moves, capacity_moves;
    struct loan *loans; /* pointers whose memory is lent to the host (device_step.c) */
    size_t n_loans;
    struct row_arrivals *arriving; /* [tables] */
    uint8_t *staging;              /* pinned memory for rows that are copied to the host */
    float *at_staging;
    size_t staging_bytes;
    uint64_t brought; /* rows transferred during a step, total so far */
};

struct graph_device *fr_graph_device_new(struct fr_graph *graph, const struct fr_graph_device *options);
void fr_graph_device_free(struct fr_graph *graph);
/* Makes the device's copies of parameters and states, after these are made. */
void fr_graph_device_places(struct fr_graph *graph);
/* push: copies parameters that the host wrote to the device, with the current piece. fetch: copies
 * a parameter that steps moved to the host, after everything started has finished. */
void fr_graph_device_push(struct fr_graph *graph);
void fr_graph_device_fetch(struct fr_graph *graph, size_t parameter);
/* Records an error, unless there is an earlier one. */
void fr_graph_device_fail(struct graph_device *device, enum fr_status status, const char *text);
/* Waits for everything started and records an error, as fr_graph_device_fail does. */
enum fr_status fr_graph_device_wait(struct graph_device *device);

/* Reserves room in the arena. The caller fills *host; the result is the address on the device,
 * valid once the arena is sent. */
void *fr_graph_device_room(struct graph_device *device, size_t bytes, void **host);
/* Ends the last reservation at host_end and returns the rest of it to the arena. */
void fr_graph_device_trim(struct graph_device *device, const void *host_end);
const void *fr_graph_device_put(struct graph_device *device, const void *array, size_t bytes);
/* The same for arrays that do not change until the arena is sent. The pool copies them only
 * then. */
void fr_graph_device_copy_later(struct graph_device *device, void *to, const void *from, size_t bytes);
const void *fr_graph_device_put_later(struct graph_device *device, const void *array, size_t bytes);
void fr_graph_device_send(struct graph_device *device);
/* Empties an arena that nothing started still reads. */
void fr_graph_device_begin_arena(struct graph_device *device, struct arena *arena);
/* Everything started between begin and end actually starts at the end, with all the data it
 * reads. */
void fr_graph_device_begin_piece(struct graph_device *device);
void fr_graph_device_end_piece(struct graph_device *device);
/* The calls that follow belong to this node; NULL: to work without steps. Nodes that read or write
 * a row for each step of a sequence get graphs of their own, because their number of rows differs
 * from batch to batch; the work between them is then the same graph each time. On the processor
 * this does nothing. */
void fr_graph_device_enter_node(const struct fr_graph *graph, const struct node *node);

uint32_t *fr_graph_device_bits(struct graph_device *device, enum fr_device_word word);
double *fr_graph_device_sum(struct graph_device *device, uint32_t loss);
double *fr_graph_device_pair_sum(struct graph_device *device, uint32_t task, uint32_t group);

/* device_index.c: returns the place of a key's row; NULL: the device does not have the row. A place
 * is valid until the next insertion. An inserted row is clean. */
struct row_place *fr_graph_device_find_row(const struct row_cache *cache, uint64_t key);
void fr_graph_device_insert_row(struct row_cache *cache, uint64_t key, uint32_t number, uint32_t turn);
void fr_graph_device_erase_row(struct row_cache *cache, uint64_t key);
/* Fills the plans of an arrival whose turn it is: numbers, addresses, lists. */
void fr_graph_device_find_keys(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows);
/* Marks the arrival's rows as newer than the store's. */
void fr_graph_device_mark_rows(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows);

static inline float *fr_graph_device_row_at(const struct row_cache *cache, uint32_t number)
{
    size_t at = number & (((uint32_t)1 << cache->log2_chunk) - 1);
    return cache->chunks[number >> cache->log2_chunk] + at * cache->floats;
}

/* Whether the current batch created the row. */
static inline bool fr_graph_device_is_made(const struct fr_table_rows *rows, uint32_t u)
{
    return rows->rows[u] && rows->served && !rows->served[u];
}

static inline void fr_graph_device_set_address(const struct row_cache *cache, struct device_plan *plan,
                                               const struct fr_table_rows *rows, uint32_t u)
{
    uint32_t number = plan->numbers[u];
    plan->rows[u] = number == FR_NO_ROW ? NULL : fr_graph_device_row_at(cache, number);
    plan->served[u] = fr_graph_device_is_made(rows, u) ? NULL : plan->rows[u];
}

/* device_batch.c: transfer a batch with the lists of its plan, the data that the variant adds, and
 * the data that training adds. */
void fr_graph_device_send_batch(const struct fr_graph *graph, struct arrival *to, const struct fr_batch *batch,
                                const struct fr_rows *rows);
void fr_graph_device_send_steps(struct graph_run *run);
void fr_graph_device_send_training(struct graph_run *run);
/* device_rows.c. FR_E_NO_MEMORY: the batch's rows do not fit. */
enum fr_status fr_graph_device_send_rows(struct graph_run *run) FR_MUST_CHECK;
void fr_graph_device_trained_rows(const struct graph_run *run);
enum fr_status fr_graph_device_bring_back_rows(struct graph_device *device, uint32_t n_tables) FR_MUST_CHECK;
void fr_graph_device_free_rows(struct graph_device *device, uint32_t n_tables);

/* device_nodes.c: calls that take other arguments on a device. */
size_t fr_graph_device_workspace(const struct fr_graph *graph, const struct variant *v, const struct node *node);
void fr_graph_device_gru(const struct fr_graph *graph, const struct fr_gru *call, uint32_t space, bool backward);
void fr_graph_device_attention(const struct fr_graph *graph, const struct fr_attention_dense *call, uint32_t space,
                               bool backward);
void fr_graph_device_parameter_gradients(struct graph_run *run);
/* Returns the description, in device memory, from which first values of a table's rows are
 * computed; NULL: it failed. */
const struct fr_device_part_init *fr_graph_device_row_parts(const struct fr_graph *graph, uint32_t t);

/* device_step.c */
void fr_graph_device_forward(struct graph_run *run);
void fr_graph_device_begin(struct graph_run *run);
enum fr_status fr_graph_device_finish(struct graph_run *run, double *loss) FR_MUST_CHECK;
/* After a refusal: borrow replaces the device's values and gradients of nodes, gradients of outputs
 * and similar arrays with copies on the host; return undoes this. */
void fr_graph_device_borrow(const struct fr_graph *graph);
void fr_graph_device_return(const struct fr_graph *graph);

#endif
