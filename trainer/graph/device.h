/* A device in the processor's place: memory, arenas, the rows it keeps, its answer. Private to the
 * module.
 *
 * The network, its nodes and the calls they make are the processor's (nodes.c, forward.c ..): a
 * call goes to the device's queue with device pointers, a chunk is the whole batch, and what the
 * host has to know comes back in one block, the answer, when everything of a step was started.
 *
 * Parameters live on the device; the host's copy follows when it is asked for (fr_graph_settle).
 * Rows live in the store, and those in use on the device too, where steps change them: row_cache.
 *
 * Owner thread: the graph's. */
#ifndef FR_GRAPH_DEVICE_H
#define FR_GRAPH_DEVICE_H

#include "cuda/api.h"
#include "network.h"

/* Words of the answer; the first is the flag that updates obey. */
enum fr_device_word {
    FR_DEVICE_REFUSED,
    FR_DEVICE_LOGITS, /* from here on: largest |x|, as bits */
    FR_DEVICE_OUTPUTS,
    FR_DEVICE_PARAMETERS,
    FR_DEVICE_LEAVES,
    FR_DEVICE_SQUARED, /* what statistics square */
    FR_DEVICE_ROWS,
    FR_DEVICE_WORDS = 16, /* one line of memory */
};
/* Bits of the first. */
enum fr_device_refusal {
    FR_REFUSED_LOGIT = 1,
    FR_REFUSED_LOSS = 2,
    FR_REFUSED_GRADIENT = 4,
    FR_REFUSED_STATISTIC = 8,
    /* No refusal yet: the leaves' gradients are so large that rows' have to be looked at. */
    FR_REFUSED_UNSURE = 16,
};

/* Pinned memory and as much of the device's, in blocks: filled by the host, copied at once. */
struct arena_block {
    uint8_t *host, *device;
    size_t capacity, used, sent;
};
struct arena {
    struct arena_block *blocks;
    uint32_t n, capacity;
    bool optional, failed; /* no room in it is no error now; there was none */
};

/* Rows of one table on the device, by key; see device_rows.c. A row has a number. */
struct row_cache {
    uint32_t floats; /* of a row */
    uint32_t n_parts;
    const struct fr_device_part_init *parts; /* device, [n_parts]; NULL: first values are sent */
    uint32_t log2_chunk;                     /* rows of a chunk */
    uint32_t n, capacity;                    /* rows, and room in chunks */
    uint32_t n_chunks, capacity_chunks, hand;
    float **chunks;          /* device */
    uint64_t *keys;          /* [capacity] */
    bool *dirty;             /* [capacity] newer than the store's */
    struct row_place *index; /* [1 << log2_index] */
    uint32_t log2_index;
    uint32_t *changed; /* numbers of rows that may be dirty */
    size_t n_changed, capacity_changed;
};
#define FR_NO_ROW UINT32_MAX
/* All that a look-up of a key reads and writes. */
struct row_place {
    uint64_t key;
    uint32_t number : 31; /* + 1; 0: no row is here */
    uint32_t first : 1;   /* the row has first values, for the next batch that makes it */
    uint32_t turn;        /* of the arrival that used the row last */
};

/* Some of a table's unique keys, ascending. */
struct key_list {
    uint32_t *of;
    uint32_t *counts; /* of the parts it was joined from */
    uint32_t n;
};

/* Of a table of an arrival, besides its rows: where the device has them. */
struct device_plan {
    struct fr_device_long_keys keys;
    /* [unique keys] */
    uint32_t *numbers;      /* of rows; FR_NO_ROW */
    float **rows, **served; /* their addresses, as in fr_table_rows */
    struct key_list listed; /* whose rows are absent, made, or have first values */
    struct key_list longs;  /* with more than a block of occurrences */
    size_t capacity;        /* of these */
    uint32_t first_part;    /* of all tables' parts (device_index.c) */
    bool sent;              /* rows and served are in the arena as they are */
};

/* A batch as the device has it, in an arena of its own. */
struct arrival {
    struct arena arena;
    const struct fr_batch *of_batch; /* sent ahead; NULL: it was not */
    const struct fr_rows *of_rows;
    uint32_t turn; /* marks the rows it uses; 0: they may go */
    /* with pointers of the device */
    struct fr_batch batch;
    struct fr_column *columns; /* its own */
    struct fr_rows rows;
    struct device_plan *plans; /* [tables] */
};
enum { FR_ARRIVALS = 2 }; /* that at hand, and the one after it */

/* A row on its way. */
struct row_move {
    float *device;
    float *host; /* NULL: it begins with the first values of its key */
    uint64_t key;
};
/* Rows of a table that come: their values in the arena, or their keys. */
struct row_arrivals {
    struct fr_device_rows sent;
    struct fr_device_row_init made;
};

/* From the host to an arena's pinned memory. */
struct arena_copy {
    void *to;
    const void *from;
    size_t bytes;
};

struct graph_device {
    const struct fr_graph *graph;
    const struct fr_device_api *api;
    const struct fr_device_ops *ops; /* the api's */
    struct fr_device_queue *queue;
    bool bf16;
    bool waiting;          /* something was started since the last finish */
    bool stepping;         /* updates were, and nobody asked what became of them */
    bool of_steps;         /* what is started now has rows per step */
    enum fr_status status; /* final; the text is in err */
    struct fr_err err;

    struct arrival arrivals[FR_ARRIVALS];
    struct arrival *now, *next;
    struct arena *arena;       /* that is filled: of one of them */
    size_t arena_bytes;        /* of its first block */
    uint64_t sends;            /* so far */
    struct arena_copy *copies; /* to do before the arena is sent */
    size_t n_copies, capacity_copies;
    size_t *copy_groups; /* a task's first copy */
    size_t n_copy_groups, capacity_copy_groups;
    size_t group_bytes; /* of the last group */
    uint8_t *trained;
    uint32_t *step_counts; /* [capacity_counts] */
    uint32_t capacity_counts;

    /* words, then sums of losses, of pairs' groups, of dices: on the device and in pinned memory */
    uint8_t *answer, *answered;
    size_t answer_capacity, answer_bytes;
    size_t sums_at, pairs_at, dices_at; /* bytes from its begin */
    uint32_t n_groups;                  /* of pairs' sums */

    struct parameter_state *states_before; /* [parameters] */
    float *factors;                        /* [2 parameters] of clipped gradients */
    double *squares;                       /* [parameters] */

    struct row_cache *tables;        /* [tables] */
    uint32_t turn;                   /* the last arrival's */
    size_t row_bytes, row_bytes_max; /* of all chunks */
    fr_graph_row_of *row_of;
    void *row_of_self;
    struct fr_value_place *first_places; /* [tables], or NULL */
    struct row_move *moves;
    size_t n_moves, capacity_moves;
    struct loan *loans; /* pointers whose memory is borrowed (device_step.c) */
    size_t n_loans;
    struct row_arrivals *arriving; /* [tables] */
    uint8_t *staging;              /* of rows that go back; pinned */
    float *at_staging;
    size_t staging_bytes;
    uint64_t brought; /* rows that came beside a step, so far */
};

struct graph_device *fr_graph_device_new(struct fr_graph *graph, const struct fr_graph_device *options);
void fr_graph_device_free(struct fr_graph *graph);
/* Copies of parameters and states, once they are made. */
void fr_graph_device_places(struct fr_graph *graph);
/* Parameters the host wrote go there, with the piece that is begun; those that steps moved come
 * back, once what was started is done. */
void fr_graph_device_push(struct fr_graph *graph);
void fr_graph_device_fetch(struct fr_graph *graph, size_t parameter);
/* Keeps the first error. */
void fr_graph_device_fail(struct graph_device *device, enum fr_status status, const char *text);
/* Waits for everything started; an error is kept too. */
enum fr_status fr_graph_device_wait(struct graph_device *device);

/* Room in the arena: *host to be filled, the result is where the device has it once it is sent. */
void *fr_graph_device_room(struct graph_device *device, size_t bytes, void **host);
/* The last room's end: what is behind it is given back. */
void fr_graph_device_trim(struct graph_device *device, const void *host_end);
const void *fr_graph_device_put(struct graph_device *device, const void *array, size_t bytes);
/* The same for arrays that stay as they are until the arena is sent: only then are they copied, by
 * the pool. */
void fr_graph_device_copy_later(struct graph_device *device, void *to, const void *from, size_t bytes);
const void *fr_graph_device_put_later(struct graph_device *device, const void *array, size_t bytes);
void fr_graph_device_send(struct graph_device *device);
/* An arena that nothing on its way reads is empty again. */
void fr_graph_device_begin_arena(struct graph_device *device, struct arena *arena);
/* What is started from begin to end starts at its end, with all it reads. */
void fr_graph_device_begin_piece(struct graph_device *device);
void fr_graph_device_end_piece(struct graph_device *device);
/* It goes on with this node; NULL: with what has no steps. Nodes that read or write a row for each
 * step of a sequence have graphs of their own: how many rows those are differs from batch to batch,
 * and what is between them is the same graph each time. Nothing on the processor. */
void fr_graph_device_turn_to(const struct fr_graph *graph, const struct node *node);

uint32_t *fr_graph_device_bits(struct graph_device *device, enum fr_device_word word);
double *fr_graph_device_sum(struct graph_device *device, uint32_t loss);
double *fr_graph_device_pair_sum(struct graph_device *device, uint32_t task, uint32_t group);

/* device_index.c: the place of a key's row, NULL: the device does not have it; places hold until
 * the next insertion. A row that is inserted is clean. */
struct row_place *fr_graph_device_find_row(const struct row_cache *cache, uint64_t key);
void fr_graph_device_insert_row(struct row_cache *cache, uint64_t key, uint32_t number, uint32_t turn);
void fr_graph_device_erase_row(struct row_cache *cache, uint64_t key);
/* Fills the plans of an arrival that has its turn: numbers, addresses, lists. */
void fr_graph_device_find_keys(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows);
/* Its rows are newer than the store's. */
void fr_graph_device_mark_rows(const struct fr_graph *graph, struct arrival *arrival, const struct fr_rows *rows);

static inline float *fr_graph_device_row_at(const struct row_cache *cache, uint32_t number)
{
    size_t at = number & (((uint32_t)1 << cache->log2_chunk) - 1);
    return cache->chunks[number >> cache->log2_chunk] + at * cache->floats;
}

/* This very batch made the row. */
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

/* device_batch.c: a batch and its plan's lists; what the variant adds; what trains. */
void fr_graph_device_take_batch(const struct fr_graph *graph, struct arrival *to, const struct fr_batch *batch,
                                const struct fr_rows *rows);
void fr_graph_device_take_steps(struct graph_run *run);
void fr_graph_device_take_plan(struct graph_run *run);
/* device_rows.c: FR_E_NO_MEMORY when the batch's rows do not fit. */
enum fr_status fr_graph_device_take_rows(struct graph_run *run) FR_MUST_CHECK;
void fr_graph_device_trained_rows(const struct graph_run *run);
enum fr_status fr_graph_device_settle_rows(struct graph_device *device, uint32_t n_tables) FR_MUST_CHECK;
void fr_graph_device_free_rows(struct graph_device *device, uint32_t n_tables);

/* device_nodes.c: what a device is called with otherwise. */
size_t fr_graph_device_workspace(const struct fr_graph *graph, const struct variant *v, const struct node *node);
void fr_graph_device_gru(const struct fr_graph *graph, const struct fr_gru *call, uint32_t space, bool backward);
void fr_graph_device_attention(const struct fr_graph *graph, const struct fr_attention_dense *call, uint32_t space,
                               bool backward);
void fr_graph_device_parameter_gradients(struct graph_run *run);
/* What first values of a table's rows are made of, in the device's memory; NULL: it failed. */
const struct fr_device_part_init *fr_graph_device_row_parts(const struct fr_graph *graph, uint32_t t);

/* device_step.c */
void fr_graph_device_forward(struct graph_run *run);
void fr_graph_device_begin(struct graph_run *run);
enum fr_status fr_graph_device_finish(struct graph_run *run, double *loss) FR_MUST_CHECK;
/* After a refusal: nodes' values and gradients, outputs' gradients and the like are copies on the
 * host until they are returned. */
void fr_graph_device_borrow(const struct fr_graph *graph);
void fr_graph_device_return(const struct fr_graph *graph);

#endif
