/* The queue on the processor: memory is the heap's, so that AddressSanitizer sees every access
 * beyond an allocation; products are plain loops over ascending k. Fresh memory is NaN.
 *
 * A started operation is only recorded; it is executed as late as a card may execute it, by finish
 * or by a release of memory. So host memory that is read before a wait, or written before a copy
 * has read it, gives other numbers. The two streams drift apart as far as joins allow: alternately,
 * the copies of the second stream are executed at once, before anything that computes, or only when
 * a join waits for them. A missing join gives other numbers in one of the two orders.
 *
 * A download to memory that alloc_pinned did not give is done before the call returns, and counts
 * as a wait, as a driver copies to pageable memory (CUDA, "API synchronization behavior").
 *
 * Errors can be requested (fr_emulate_fail): no more memory, or a card that is lost at its n-th
 * call. As on a real card, the first error is kept, and nothing is executed after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "device.h"
#include "emulate/emulated.h"
#include "queue.h"
#include "recording.h"

enum { BLOCK = 256, BLOCKS_MAX = 48, PINNED_MAX = 256 };

struct pinned {
    const char *memory;
    size_t bytes;
};

struct fr_device_queue {
    void *workspace;
    const uint32_t *flag;
    /* the bytes of a join in `computes`: so many copies beside come before what follows */
    struct fr_recording computes, copies;
    size_t copies_done;
    struct fr_device_graphs graphs;
    struct pinned pinned[PINNED_MAX];
    size_t n_pinned;
    uint64_t turns;
    struct fr_emulated_counts counts;
    enum fr_status status;
    char text[128];
};

/* The failure that was ordered, for all queues, and the calls until it comes; 0 calls: none will
 * come. */
static struct {
    enum fr_emulated_failure kind;
    uint64_t calls;
} ordered;

void fr_emulate_fail(enum fr_emulated_failure kind, uint64_t calls)
{
    ordered.kind = kind;
    ordered.calls = calls;
}

/* Counts a call; returns true if this call is the one that fails. */
static bool fails(struct fr_device_queue *queue, enum fr_emulated_failure kind)
{
    if (ordered.kind != kind || ordered.calls == 0 || --ordered.calls > 0)
        return false;
    if (kind == FR_EMULATED_LOST && queue->status == FR_OK) {
        queue->status = FR_E_UNAVAILABLE;
        snprintf(queue->text, sizeof(queue->text), "card 0: the emulated card is lost");
    }
    if (kind == FR_EMULATED_NO_MEMORY)
        ordered.calls = 1; /* all later allocations fail, too */
    return true;
}

/* ---- what is written down ---- */

static bool starts(struct fr_device_queue *queue)
{
    (void)fails(queue, FR_EMULATED_LOST);
    return queue->status == FR_OK;
}

static void write_down(struct fr_recording *recording, const struct fr_started *started, const void *call)
{
    bool there = fr_device_record(recording, started, call);
    FR_CHECK(there);
}

static void start(struct fr_device_queue *queue, const struct fr_started *started, const void *call)
{
    if (starts(queue))
        write_down(queue->graphs.recording ? &queue->graphs.now : &queue->computes, started, call);
}

void fr_queue_launch(struct fr_device_queue *queue, const char *name, const void *kernel, const void *call,
                     size_t bytes, uint32_t blocks)
{
    const struct fr_started started = {
        .kind = FR_STARTED_KERNEL, .blocks = blocks, .name = name, .kernel = kernel, .call_bytes = bytes};
    start(queue, &started, call);
}

static void start_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        start(queue, &(struct fr_started){.kind = FR_STARTED_COPY, .to = to, .from = from, .bytes = bytes}, NULL);
}

/* ---- graphs ---- */

static void start_all(struct fr_device_queue *queue, const struct fr_recording *recording)
{
    for (size_t i = 0; i < recording->n; i++)
        write_down(&queue->computes, &recording->list[i], fr_device_recorded_call(recording, &recording->list[i]));
}

/* A graph of the emulated card holds nothing: what it starts is read from the recording. */
static void *make_graph(struct fr_device_queue *queue, const struct fr_recording *recording)
{
    (void)recording;
    return fails(queue, FR_EMULATED_NO_GRAPH) ? NULL : queue;
}

static void change_graph(struct fr_device_queue *queue, struct fr_device_graph *graph, size_t i)
{
    (void)queue, (void)graph, (void)i;
}

static void launch_graph(struct fr_device_queue *queue, const struct fr_device_graph *graph)
{
    start_all(queue, &graph->recording);
}

static void drop_graph(struct fr_device_queue *queue, void *made)
{
    (void)queue, (void)made;
}

static const struct fr_device_graph_calls graph_calls = {
    .start = start_all, .make = make_graph, .change = change_graph, .launch = launch_graph, .drop = drop_graph};

static void begin_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_begin(&queue->graphs);
}

static void cut_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_cut(&queue->graphs);
}

static void end_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_end(&queue->graphs, queue, &graph_calls);
}

static void count_graphs(const struct fr_device_queue *queue, struct fr_device_graph_counts *counts)
{
    *counts = queue->graphs.counts;
}

/* ---- what is done ---- */

/* To nearest, ties to even; subnormals become 0, NaN stays one: as the processor's bf16 units. */
static float to_bf16(float x)
{
    uint32_t bits = fr_f32_bits(x), exponent = bits & 0x7f800000u;
    if (exponent == 0)
        return fr_bits_f32(bits & 0x80000000u);
    if (x != x)
        return x;
    return fr_bits_f32((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

static void multiply(const struct fr_product *p)
{
    for (size_t i = 0; i < p->m; i++) {
        for (size_t j = 0; j < p->n; j++) {
            float sum = 0.0f;
            for (size_t k = 0; k < p->k; k++) {
                float a = p->left_transposed ? p->left[k * p->left_ld + i] : p->left[i * p->left_ld + k];
                float b = p->right_transposed ? p->right[j * p->right_ld + k] : p->right[k * p->right_ld + j];
                sum += p->bf16 ? to_bf16(a) * to_bf16(b) : a * b;
            }
            float *out = &p->out[i * p->out_ld + j];
            *out = p->accumulate ? *out + sum : sum;
        }
    }
}

static void do_copies(struct fr_device_queue *queue, size_t until)
{
    for (; queue->copies_done < until; queue->copies_done++) {
        const struct fr_started *copy = &queue->copies.list[queue->copies_done];
        memmove(copy->to, copy->from, copy->bytes);
    }
}

static void do_started(struct fr_device_queue *queue, const struct fr_started *started)
{
    switch (started->kind) {
    case FR_STARTED_KERNEL:
        fr_emulate_launch(started->name, (fr_emulated_kernel *)(uintptr_t)started->kernel,
                          fr_device_recorded_call(&queue->computes, started), started->blocks);
        return;
    case FR_STARTED_COPY:
        memmove(started->to, started->from, started->bytes);
        return;
    case FR_STARTED_ZERO:
        memset(started->to, 0, started->bytes);
        return;
    case FR_STARTED_PRODUCT:
        multiply(&started->product);
        return;
    case FR_STARTED_JOIN:
        do_copies(queue, started->bytes);
        return;
    }
}

/* Does all that was started. After an error nobody may count on any of it, so nothing is done. */
static void catch_up(struct fr_device_queue *queue)
{
    fr_device_graphs_flush(&queue->graphs, queue, &graph_calls);
    bool lost = queue->status != FR_OK;
    if (!lost && queue->turns++ % 2 == 1)
        do_copies(queue, queue->copies.n);
    for (size_t i = 0; i < queue->computes.n && !lost; i++)
        do_started(queue, &queue->computes.list[i]);
    if (!lost)
        do_copies(queue, queue->copies.n);
    queue->copies_done = 0;
    fr_device_recording_clear(&queue->computes);
    fr_device_recording_clear(&queue->copies);
}

/* ---- for launchers ---- */

void *fr_queue_workspace(const struct fr_device_queue *queue)
{
    return queue->workspace;
}

const uint32_t *fr_queue_flag(const struct fr_device_queue *queue)
{
    return queue->flag;
}

/* So few blocks that a kernel without a grid-stride loop fails its tests. */
uint32_t fr_queue_blocks(const struct fr_device_queue *queue, size_t threads)
{
    (void)queue;
    size_t blocks = (threads + BLOCK - 1) / BLOCK;
    return blocks < 1 ? 1 : blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

void fr_queue_zero(struct fr_device_queue *queue, void *device, size_t bytes)
{
    if (bytes > 0)
        start(queue, &(struct fr_started){.kind = FR_STARTED_ZERO, .to = device, .bytes = bytes}, NULL);
}

void fr_queue_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    start_copy(queue, to, from, bytes);
}

void fr_queue_multiply(struct fr_device_queue *queue, const struct fr_product *product)
{
    start(queue, &(struct fr_started){.kind = FR_STARTED_PRODUCT, .product = *product}, NULL);
}

/* ---- the interface ---- */

static uint32_t count(struct fr_err *err)
{
    (void)err;
    return 1;
}

static void *allocate(struct fr_device_queue *queue, size_t bytes)
{
    if (queue->status != FR_OK || fails(queue, FR_EMULATED_NO_MEMORY))
        return NULL;
    void *memory = malloc(bytes ? bytes : 1);
    if (memory)
        memset(memory, 0xff, bytes);
    return memory;
}

/* Waits first, as releasing the memory of a card does. */
static void release(struct fr_device_queue *queue, void *memory)
{
    if (memory) {
        queue->counts.waits++;
        catch_up(queue);
    }
    free(memory);
}

static void *allocate_pinned(struct fr_device_queue *queue, size_t bytes)
{
    void *memory = allocate(queue, bytes);
    FR_CHECK(queue->n_pinned < PINNED_MAX);
    if (memory)
        queue->pinned[queue->n_pinned++] = (struct pinned){memory, bytes};
    return memory;
}

static bool is_pinned(const struct fr_device_queue *queue, const void *memory, size_t bytes)
{
    const char *from = memory;
    for (size_t i = 0; i < queue->n_pinned; i++)
        if (from >= queue->pinned[i].memory && from + bytes <= queue->pinned[i].memory + queue->pinned[i].bytes)
            return true;
    return false;
}

static void release_pinned(struct fr_device_queue *queue, void *memory)
{
    for (size_t i = 0; i < queue->n_pinned; i++) {
        if (queue->pinned[i].memory != memory)
            continue;
        queue->pinned[i] = queue->pinned[--queue->n_pinned];
        break;
    }
    release(queue, memory);
}

static enum fr_status open_queue(uint32_t card, struct fr_device_queue **out, struct fr_err *err)
{
    if (card != 0)
        return fr_err_set(err, FR_E_NOT_FOUND, "there is no card %u: one is emulated", card);
    struct fr_device_queue *queue = fr_alloc(1, sizeof(*queue));
    if (fails(queue, FR_EMULATED_NO_CODE)) {
        free(queue);
        return fr_err_set(err, FR_E_UNAVAILABLE, "card 0 (emulated) has no code in the CUDA plug-in");
    }
    queue->workspace = fr_alloc(1, FR_WORKSPACE_BYTES);
    *out = queue;
    return FR_OK;
}

static void close_queue(struct fr_device_queue *queue)
{
    if (!queue)
        return;
    catch_up(queue);
    fr_device_graphs_release(&queue->graphs, queue, &graph_calls);
    fr_device_recording_release(&queue->computes);
    fr_device_recording_release(&queue->copies);
    free(queue->workspace);
    free(queue);
}

static void info(struct fr_device_queue *queue, struct fr_device_info *out)
{
    (void)queue;
    memset(out, 0, sizeof(*out));
    snprintf(out->name, sizeof(out->name), "emulated");
    out->processors = 1;
}

static void upload(struct fr_device_queue *queue, void *device, const void *host, size_t bytes)
{
    queue->counts.up += bytes > 0;
    queue->counts.up_bytes += bytes;
    start_copy(queue, device, host, bytes);
}

static void download(struct fr_device_queue *queue, void *host, const void *device, size_t bytes)
{
    queue->counts.down += bytes > 0;
    start_copy(queue, host, device, bytes);
    if (bytes > 0 && !queue->graphs.recording && !is_pinned(queue, host, bytes)) {
        queue->counts.waits++;
        catch_up(queue);
    }
}

static void upload_beside(struct fr_device_queue *queue, void *device, const void *host, size_t bytes)
{
    const struct fr_started copy = {.kind = FR_STARTED_COPY, .to = device, .from = host, .bytes = bytes};
    queue->counts.up += bytes > 0;
    queue->counts.up_bytes += bytes;
    if (bytes > 0 && starts(queue))
        write_down(&queue->copies, &copy, NULL);
}

static void join_beside(struct fr_device_queue *queue)
{
    const struct fr_started join = {.kind = FR_STARTED_JOIN, .bytes = queue->copies.n};
    if (starts(queue))
        write_down(&queue->computes, &join, NULL);
}

static enum fr_status finish(struct fr_device_queue *queue, struct fr_err *err)
{
    queue->counts.waits++;
    catch_up(queue);
    return queue->status == FR_OK ? FR_OK : fr_err_set(err, queue->status, "%s", queue->text);
}

static void mark(struct fr_device_queue *queue, uint32_t number)
{
    (void)queue, (void)number;
}

static double elapsed_ms(struct fr_device_queue *queue, uint32_t from, uint32_t to)
{
    (void)queue, (void)from, (void)to;
    return 0.0;
}

static void obey(struct fr_device_queue *queue, const uint32_t *flag)
{
    queue->flag = flag;
}

struct fr_emulated_counts fr_emulate_counts(const struct fr_device_queue *queue)
{
    return queue->counts;
}

const struct fr_device_api *fr_emulate_api(void)
{
    static const struct fr_device_api api = {
        .version = FR_DEVICE_API,
        .count = count,
        .open = open_queue,
        .close = close_queue,
        .info = info,
        .alloc = allocate,
        .release = release,
        .alloc_pinned = allocate_pinned,
        .release_pinned = release_pinned,
        .upload = upload,
        .download = download,
        .copy = fr_queue_copy,
        .zero = fr_queue_zero,
        .upload_beside = upload_beside,
        .join_beside = join_beside,
        .begin_graph = begin_graph,
        .cut_graph = cut_graph,
        .end_graph = end_graph,
        .count_graphs = count_graphs,
        .finish = finish,
        .mark = mark,
        .elapsed_ms = elapsed_ms,
        .obey = obey,
        .ops = &fr_device_table,
    };
    return &api;
}
