/* Creation and release of a device, its memory, and the copies in both directions: arenas, the
 * answer, parameters.
 *
 * The host fills a step's arena in pinned memory. The arena's device addresses are known from
 * the beginning, so pointers can be written before they are sent. The arena is sent while the
 * device computes: work started later waits for the transfer, work started earlier does not.
 * There are two arenas: that of the next batch is filled and sent while the step computes
 * (fr_graph_bring). Their first size follows from the configuration. A batch that needs more
 * room gets another block; for the next batch the arena is one block of the whole size.
 *
 * Errors: the first one is recorded (device.h). Later calls are still made but change nothing,
 * because the queue starts nothing after an error, and their results are not read.
 *
 * Owner thread: the graph's. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 64,
    ARENA_BYTES_MIN = 64 << 10,
    ARENA_BYTES_MAX = 256 << 20, /* limit of the first size of an arena */
    ID_BYTES = 48,               /* bytes that an id takes in an arena */
    PUSHED_FLOATS = 1 << 14,     /* larger parameters are copied separately */
    GROUP_BYTES = 256 << 10,     /* bytes that one task of the pool copies */
};

static void keep(struct graph_device *device, enum fr_status status, const char *text)
{
    if (device->status == FR_OK)
        device->status = fr_err_set(&device->err, status, "%s", text);
}

/* A lost card also refuses memory. The loss of the card is then reported instead. */
void fr_graph_device_fail(struct graph_device *device, enum fr_status status, const char *text)
{
    if (status == FR_E_NO_MEMORY)
        (void)fr_graph_device_wait(device);
    keep(device, status, text);
}

enum fr_status fr_graph_device_wait(struct graph_device *device)
{
    struct fr_err err = {0};
    enum fr_status status = device->api->finish(device->queue, &err);
    device->waiting = false;
    if (status != FR_OK)
        keep(device, status, err.text);
    return device->status;
}

enum fr_status fr_graph_failure(const struct fr_graph *graph, struct fr_err *err)
{
    if (!graph->device || graph->device->status == FR_OK)
        return FR_OK;
    if (err)
        *err = graph->device->err;
    return graph->device->status;
}

/* ---- arenas ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Returns the size for a full batch that has one id in each slot, and sequences of the greatest
 * length. */
static size_t first_size(const struct fr_conf *conf)
{
    size_t bytes = (size_t)conf->n_labels * 2 * sizeof(float);
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        size_t ids = fr_slot_has_steps(slot->kind) ? slot->max_len : 1;
        bytes += fr_slot_has_numbers(slot->kind) ? slot->dim * sizeof(float) : sizeof(uint32_t) + ids * ID_BYTES;
    }
    bytes *= conf->ingest.batch_size;
    return bytes < ARENA_BYTES_MIN ? ARENA_BYTES_MIN : bytes < ARENA_BYTES_MAX ? bytes : ARENA_BYTES_MAX;
}

static void release_blocks(struct graph_device *device, struct arena *arena)
{
    for (uint32_t i = 0; i < arena->n; i++) {
        device->api->release_pinned(device->queue, arena->blocks[i].host);
        device->api->release(device->queue, arena->blocks[i].device);
    }
    arena->n = 0;
}

static bool add_block(struct graph_device *device, size_t bytes)
{
    struct arena *arena = device->arena;
    if (arena->n == arena->capacity) {
        arena->capacity = arena->capacity ? 2 * arena->capacity : 4;
        arena->blocks = fr_realloc(arena->blocks, arena->capacity, sizeof(*arena->blocks));
    }
    struct arena_block block = {.capacity = bytes > device->arena_bytes ? bytes : device->arena_bytes};
    block.host = device->api->alloc_pinned(device->queue, block.capacity);
    block.device = device->api->alloc(device->queue, block.capacity);
    if (!block.host || !block.device) {
        device->api->release_pinned(device->queue, block.host);
        device->api->release(device->queue, block.device);
        arena->failed = true;
        if (!arena->optional)
            fr_graph_device_fail(device, FR_E_NO_MEMORY, "there is no memory for a batch on the device");
        return false;
    }
    FR_CHECK(arena->blocks && arena->n < arena->capacity);
    arena->blocks[arena->n++] = block;
    return true;
}

void fr_graph_device_begin_arena(struct graph_device *device, struct arena *arena)
{
    device->arena = arena;
    device->n_copies = device->n_copy_groups = device->group_bytes = 0;
    arena->failed = false;
    size_t bytes = 0;
    for (uint32_t i = 0; i < arena->n; i++) {
        bytes += arena->blocks[i].capacity;
        arena->blocks[i].used = arena->blocks[i].sent = 0;
    }
    if (arena->n < 2)
        return;
    release_blocks(device, arena);
    /* if this fails, smaller blocks are added one by one, and the error is reported then */
    (void)add_block(device, bytes);
}

void *fr_graph_device_room(struct graph_device *device, size_t bytes, void **host)
{
    const struct arena *arena = device->arena;
    struct arena_block *block = arena->n > 0 ? &arena->blocks[arena->n - 1] : NULL;
    *host = NULL;
    if ((!block || block->capacity - block->used < aligned(bytes)) && !add_block(device, aligned(bytes)))
        return NULL;
    FR_CHECK(arena->blocks && arena->n > 0);
    block = &arena->blocks[arena->n - 1];
    size_t at = block->used;
    block->used += aligned(bytes);
    *host = block->host + at;
    return block->device + at;
}

void fr_graph_device_trim(struct graph_device *device, const void *host_end)
{
    struct arena_block *block = &device->arena->blocks[device->arena->n - 1];
    block->used = aligned((size_t)((const uint8_t *)host_end - block->host));
}

const void *fr_graph_device_put(struct graph_device *device, const void *array, size_t bytes)
{
    void *host, *there = fr_graph_device_room(device, bytes, &host);
    if (host && bytes > 0)
        memcpy(host, array, bytes);
    return there;
}

/* ---- copies into an arena ---- */

static void begin_group(struct graph_device *device)
{
    if (device->n_copy_groups == device->capacity_copy_groups) {
        device->capacity_copy_groups = device->capacity_copy_groups ? 2 * device->capacity_copy_groups : 64;
        device->copy_groups =
            fr_realloc(device->copy_groups, device->capacity_copy_groups, sizeof(*device->copy_groups));
    }
    device->copy_groups[device->n_copy_groups++] = device->n_copies;
    device->group_bytes = 0;
}

void fr_graph_device_copy_later(struct graph_device *device, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        if (device->n_copies == 0 || device->group_bytes == GROUP_BYTES)
            begin_group(device);
        n = bytes - at < GROUP_BYTES - device->group_bytes ? bytes - at : GROUP_BYTES - device->group_bytes;
        if (device->n_copies == device->capacity_copies) {
            device->capacity_copies = device->capacity_copies ? 2 * device->capacity_copies : 256;
            device->copies = fr_realloc(device->copies, device->capacity_copies, sizeof(*device->copies));
        }
        device->copies[device->n_copies++] = (struct arena_copy){(uint8_t *)to + at, (const uint8_t *)from + at, n};
        device->group_bytes += n;
    }
}

const void *fr_graph_device_put_later(struct graph_device *device, const void *array, size_t bytes)
{
    void *host, *there = fr_graph_device_room(device, bytes, &host);
    if (host)
        fr_graph_device_copy_later(device, host, array, bytes);
    return there;
}

static void copy_group(void *context, size_t index, size_t worker)
{
    (void)worker;
    const struct graph_device *device = context;
    size_t end = index + 1 < device->n_copy_groups ? device->copy_groups[index + 1] : device->n_copies;
    for (size_t i = device->copy_groups[index]; i < end; i++)
        memcpy(device->copies[i].to, device->copies[i].from, device->copies[i].bytes);
}

void fr_graph_device_send(struct graph_device *device)
{
    bool any = false;
    fr_graph_run_tasks(device->graph, device->n_copy_groups, copy_group, device);
    device->n_copies = device->n_copy_groups = 0;
    for (uint32_t i = 0; i < device->arena->n; i++) {
        struct arena_block *block = &device->arena->blocks[i];
        if (block->used > block->sent) {
            device->api->upload_beside(device->queue, block->device + block->sent, block->host + block->sent,
                                       block->used - block->sent);
            any = true;
        }
        block->sent = block->used;
        device->waiting = true;
    }
    device->sends += any;
    if (any)
        device->api->join_beside(device->queue);
}

void fr_graph_device_begin_piece(struct graph_device *device)
{
    device->of_steps = false;
    device->api->begin_graph(device->queue);
}

static bool has_steps(const struct variant *v, const struct node *node)
{
    bool any = v->spaces[node->space].slot != FR_NO_INDEX;
    for (uint32_t i = 0; i < node->n_arguments; i++)
        any |= v->spaces[v->nodes[node->arguments[i].node].space].slot != FR_NO_INDEX;
    return any;
}

void fr_graph_device_enter_node(const struct fr_graph *graph, const struct node *node)
{
    struct graph_device *device = graph->device;
    bool of_steps = device && node && has_steps(graph->variant, node);
    if (!device || of_steps == device->of_steps)
        return;
    device->api->cut_graph(device->queue);
    device->of_steps = of_steps;
}

void fr_graph_device_end_piece(struct graph_device *device)
{
    fr_graph_device_send(device);
    device->api->end_graph(device->queue);
    device->waiting = true;
}

/* ---- the answer ---- */

uint32_t *fr_graph_device_bits(struct graph_device *device, enum fr_device_word word)
{
    return (uint32_t *)(void *)device->answer + word;
}

double *fr_graph_device_sum(struct graph_device *device, uint32_t loss)
{
    return (double *)(void *)(device->answer + device->sums_at) + loss;
}

double *fr_graph_device_pair_sum(struct graph_device *device, uint32_t task, uint32_t group)
{
    return (double *)(void *)(device->answer + device->pairs_at) + (size_t)task * device->n_groups + group;
}

/* ---- parameters ---- */

/* Copies a parameter. Statistics change with every step, so they are sent with its arena. */
static void copy_to(struct graph_device *device, float *there, const float *host, size_t n)
{
    if (!there || !host)
        return;
    if (n > PUSHED_FLOATS) {
        device->api->upload(device->queue, there, host, n * sizeof(float));
        return;
    }
    float *sent = (float *)(uintptr_t)fr_graph_device_put(device, host, n * sizeof(float));
    if (sent)
        device->ops->copy(device->queue, 1, (uint32_t)n, (struct fr_view){sent, n}, (struct fr_view){there, n});
}

static void copy_from(const struct graph_device *device, float *host, const float *there, size_t n)
{
    if (there && host)
        device->api->download(device->queue, host, there, n * sizeof(float));
}

void fr_graph_device_places(struct fr_graph *graph)
{
    for (size_t p = 0; p < graph->n_parameters; p++) {
        struct place *place = &graph->places[p];
        const struct parameter_state *state = &graph->parameter_states[p];
        size_t bytes = graph->parameters[p].n_values * sizeof(float);
        place->stale = true;
        if (!place->values)
            place->values = fr_graph_memory(graph, bytes);
        if (state->state0 && !place->state0)
            place->state0 = fr_graph_memory(graph, bytes);
        if (state->state1 && !place->state1)
            place->state1 = fr_graph_memory(graph, bytes);
        if (state->average && !place->average)
            place->average = fr_graph_memory(graph, bytes);
    }
}

/* Sends the parameters that the host has written. */
void fr_graph_device_push(struct fr_graph *graph)
{
    for (size_t p = 0; p < graph->n_parameters; p++) {
        struct place *place = &graph->places[p];
        const struct parameter_state *state = &graph->parameter_states[p];
        size_t n = graph->parameters[p].n_values;
        if (!place->stale)
            continue;
        copy_to(graph->device, place->values, graph->parameters[p].values, n);
        copy_to(graph->device, place->state0, state->state0, n);
        copy_to(graph->device, place->state1, state->state1, n);
        copy_to(graph->device, place->average, state->average, n);
        place->stale = false;
        graph->device->waiting = true;
    }
}

void fr_graph_device_fetch(struct fr_graph *graph, size_t p)
{
    struct place *place = &graph->places[p];
    const struct parameter_state *state = &graph->parameter_states[p];
    size_t n = graph->parameters[p].n_values;
    if (!place->ahead)
        return;
    copy_from(graph->device, graph->parameters[p].values, place->values, n);
    copy_from(graph->device, state->state0, place->state0, n);
    copy_from(graph->device, state->state1, place->state1, n);
    copy_from(graph->device, state->average, place->average, n);
    place->ahead = false;
}

enum fr_status fr_graph_fetch(struct fr_graph *graph, struct fr_err *err)
{
    struct graph_device *device = graph->device;
    if (!device)
        return FR_OK;
    for (size_t p = 0; p < graph->n_parameters; p++)
        fr_graph_device_fetch(graph, p);
    enum fr_status status = fr_graph_device_wait(device);
    if (status == FR_OK)
        status = fr_graph_device_bring_back_rows(device, graph->conf->n_tables);
    return status == FR_OK ? FR_OK : fr_graph_failure(graph, err);
}

/* ---- life ---- */

struct graph_device *fr_graph_device_new(struct fr_graph *graph, const struct fr_graph_device *options)
{
    struct graph_device *device = fr_alloc(1, sizeof(*device));
    device->graph = graph;
    device->api = options->api;
    device->ops = options->api->ops;
    device->queue = options->queue;
    device->bf16 = graph->conf->precision == FR_PRECISION_BF16;
    device->row_bytes_max = options->row_bytes_max ? options->row_bytes_max : SIZE_MAX;
    device->row_of = options->row_of;
    device->row_of_self = options->self;
    if (options->first_places) {
        size_t bytes = graph->conf->n_tables * sizeof(*device->first_places);
        device->first_places = fr_alloc(graph->conf->n_tables, sizeof(*device->first_places));
        memcpy(device->first_places, options->first_places, bytes);
    }
    device->arena_bytes = first_size(graph->conf);
    device->tables = fr_alloc(graph->conf->n_tables, sizeof(*device->tables));
    device->arriving = fr_alloc(graph->conf->n_tables, sizeof(*device->arriving));
    for (int i = 0; i < FR_ARRIVALS; i++) {
        struct arrival *arrival = &device->arrivals[i];
        arrival->plans = fr_alloc(graph->conf->n_tables, sizeof(*arrival->plans));
        arrival->columns = fr_alloc(graph->conf->n_slots, sizeof(*arrival->columns));
        arrival->rows.tables = fr_alloc(graph->conf->n_tables, sizeof(*arrival->rows.tables));
    }
    device->now = &device->arrivals[0];
    device->next = &device->arrivals[1];
    device->arena = &device->now->arena;
    return device;
}

static void free_plan(struct device_plan *plan)
{
    free(plan->numbers);
    free(plan->rows);
    free(plan->served);
    free(plan->listed.of);
    free(plan->listed.counts);
    free(plan->longs.of);
    free(plan->longs.counts);
}

static void free_arrival(struct graph_device *device, struct arrival *arrival)
{
    release_blocks(device, &arrival->arena);
    for (uint32_t t = 0; t < device->graph->conf->n_tables; t++)
        free_plan(&arrival->plans[t]);
    free(arrival->arena.blocks);
    free(arrival->plans);
    free(arrival->columns);
    free(arrival->rows.tables);
}

void fr_graph_device_free(struct fr_graph *graph)
{
    struct graph_device *device = graph->device;
    if (!device)
        return;
    (void)fr_graph_device_wait(device); /* afterwards no transfer is under way */
    for (size_t p = 0; graph->places && p < graph->n_parameters; p++) {
        fr_graph_release(graph, graph->places[p].values);
        fr_graph_release(graph, graph->places[p].state0);
        fr_graph_release(graph, graph->places[p].state1);
        fr_graph_release(graph, graph->places[p].average);
    }
    fr_graph_device_free_rows(device, graph->conf->n_tables);
    for (int i = 0; i < FR_ARRIVALS; i++)
        free_arrival(device, &device->arrivals[i]);
    device->api->obey(device->queue, NULL);
    device->api->release(device->queue, device->answer);
    device->api->release_pinned(device->queue, device->answered);
    device->api->release(device->queue, device->step_counts);
    device->api->release(device->queue, device->factors);
    device->api->release(device->queue, device->squares);
    free(device->copies);
    free(device->copy_groups);
    free(device->arriving);
    free(device->first_places);
    free(device->states_before);
    free(device);
    graph->device = NULL;
}
