/* The queue on the processor: memory is the heap's, so that AddressSanitizer sees every access
 * beyond an allocation; products are plain loops over ascending k. Fresh memory is NaN.
 *
 * What is started is only written down, as late as a card may take it up: finish, or a release of
 * memory, does it. So host memory that is read before a wait, or written before a copy came past,
 * gives other numbers. The two streams are made to drift apart as far as joins allow: in turns the
 * copies beside come at once, before anything that computes, or not before somebody waits for them.
 * A missing join gives other numbers in one of the turns.
 *
 * Errors can be ordered (fr_emulate_fail): no more memory, or a card that is lost at its n-th call.
 * As with a real one the first is kept, and nothing is done after it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "device.h"
#include "emulate/emulated.h"
#include "queue.h"

enum { BLOCK = 256, BLOCKS_MAX = 48 };

enum work_kind { WORK_KERNEL, WORK_COPY, WORK_ZERO, WORK_PRODUCT, WORK_JOIN };

/* Something that was started. */
struct work {
    enum work_kind kind;
    const char *name;
    fr_emulated_kernel *kernel;
    void *call; /* a kernel's, owned */
    uint32_t blocks;
    void *to;
    const void *from;
    size_t n; /* bytes; join: copies beside that come before what follows */
    struct fr_product product;
};
struct works {
    struct work *list;
    size_t n, capacity, done;
};

struct fr_device_queue {
    void *workspace;
    const uint32_t *flag;
    struct works computes, copies;
    uint64_t turns;
    enum fr_status status;
    char text[128];
};

/* Of all queues: calls until the failure; 0: there is none to come. */
static struct {
    enum fr_emulated_failure kind;
    uint64_t calls;
} ordered;

void fr_emulate_fail(enum fr_emulated_failure kind, uint64_t calls)
{
    ordered.kind = kind;
    ordered.calls = calls;
}

/* Counts a call; true: it is the one that fails. */
static bool fails(struct fr_device_queue *queue, enum fr_emulated_failure kind)
{
    if (ordered.kind != kind || ordered.calls == 0 || --ordered.calls > 0)
        return false;
    if (kind == FR_EMULATED_LOST && queue->status == FR_OK) {
        queue->status = FR_E_UNAVAILABLE;
        snprintf(queue->text, sizeof(queue->text), "card 0: the emulated card is lost");
    }
    if (kind == FR_EMULATED_NO_MEMORY)
        ordered.calls = 1; /* and there is none from here on */
    return true;
}

/* ---- what is written down ---- */

static struct work *add(struct fr_device_queue *queue, struct works *works, enum work_kind kind)
{
    if (works->n == works->capacity) {
        works->capacity = works->capacity ? 2 * works->capacity : 64;
        works->list = fr_realloc(works->list, works->capacity, sizeof(*works->list));
    }
    (void)queue;
    works->list[works->n] = (struct work){.kind = kind};
    return &works->list[works->n++];
}

static bool starts(struct fr_device_queue *queue)
{
    (void)fails(queue, FR_EMULATED_LOST);
    return queue->status == FR_OK;
}

void fr_emulate_start(struct fr_device_queue *queue, const char *name, fr_emulated_kernel *kernel, const void *call,
                      size_t bytes, uint32_t blocks)
{
    if (!starts(queue))
        return;
    struct work *work = add(queue, &queue->computes, WORK_KERNEL);
    work->name = name;
    work->kernel = kernel;
    work->call = fr_alloc(1, bytes);
    memcpy(work->call, call, bytes);
    work->blocks = blocks;
}

static void start_copy(struct fr_device_queue *queue, struct works *works, void *to, const void *from, size_t bytes)
{
    if (bytes == 0 || !starts(queue))
        return;
    struct work *work = add(queue, works, WORK_COPY);
    work->to = to;
    work->from = from;
    work->n = bytes;
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

static void do_copies(struct fr_device_queue *queue, size_t until);

static void do_work(struct fr_device_queue *queue, struct work *work)
{
    switch (work->kind) {
    case WORK_KERNEL:
        fr_emulate_launch(work->name, work->kernel, work->call, work->blocks);
        free(work->call);
        return;
    case WORK_COPY:
        memmove(work->to, work->from, work->n);
        return;
    case WORK_ZERO:
        memset(work->to, 0, work->n);
        return;
    case WORK_PRODUCT:
        multiply(&work->product);
        return;
    case WORK_JOIN:
        do_copies(queue, work->n);
        return;
    }
}

static void do_copies(struct fr_device_queue *queue, size_t until)
{
    while (queue->copies.done < until)
        do_work(queue, &queue->copies.list[queue->copies.done++]);
}

/* All that was started. After an error nothing of it is known to have been done: none is. */
static void catch_up(struct fr_device_queue *queue)
{
    bool lost = queue->status != FR_OK;
    if (!lost && queue->turns++ % 2 == 1)
        do_copies(queue, queue->copies.n);
    for (size_t i = 0; i < queue->computes.n; i++) {
        if (!lost)
            do_work(queue, &queue->computes.list[i]);
        else if (queue->computes.list[i].kind == WORK_KERNEL)
            free(queue->computes.list[i].call);
    }
    if (!lost)
        do_copies(queue, queue->copies.n);
    queue->computes.n = queue->copies.n = queue->copies.done = 0;
}

/* ---- for launchers ---- */

bool fr_queue_ready(const struct fr_device_queue *queue)
{
    return queue->status == FR_OK;
}

void *fr_queue_stream(const struct fr_device_queue *queue)
{
    (void)queue;
    return NULL;
}

void fr_queue_started(struct fr_device_queue *queue, const char *kernel)
{
    (void)queue, (void)kernel;
}

void *fr_queue_workspace(const struct fr_device_queue *queue)
{
    return queue->workspace;
}

const uint32_t *fr_queue_flag(const struct fr_device_queue *queue)
{
    return queue->flag;
}

/* Few: loops must be grid-stride, and the tests see that they are. */
uint32_t fr_queue_blocks(const struct fr_device_queue *queue, size_t threads)
{
    (void)queue;
    size_t blocks = (threads + BLOCK - 1) / BLOCK;
    return blocks < 1 ? 1 : blocks < BLOCKS_MAX ? (uint32_t)blocks : BLOCKS_MAX;
}

void fr_queue_zero(struct fr_device_queue *queue, void *device, size_t bytes)
{
    if (bytes == 0 || !starts(queue))
        return;
    struct work *work = add(queue, &queue->computes, WORK_ZERO);
    work->to = device;
    work->n = bytes;
}

void fr_queue_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    start_copy(queue, &queue->computes, to, from, bytes);
}

void fr_queue_multiply(struct fr_device_queue *queue, const struct fr_product *product)
{
    if (starts(queue))
        add(queue, &queue->computes, WORK_PRODUCT)->product = *product;
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

/* Waits, as a card's does. */
static void release(struct fr_device_queue *queue, void *memory)
{
    if (memory)
        catch_up(queue);
    free(memory);
}

static enum fr_status open_queue(uint32_t card, struct fr_device_queue **out, struct fr_err *err)
{
    if (card != 0)
        return fr_err_set(err, FR_E_NOT_FOUND, "there is no card %u: one is emulated", card);
    struct fr_device_queue *queue = fr_alloc(1, sizeof(*queue));
    queue->workspace = fr_alloc(1, FR_WORKSPACE_BYTES);
    *out = queue;
    return FR_OK;
}

static void close_queue(struct fr_device_queue *queue)
{
    if (!queue)
        return;
    catch_up(queue);
    free(queue->computes.list);
    free(queue->copies.list);
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
    start_copy(queue, &queue->computes, device, host, bytes);
}

static void download(struct fr_device_queue *queue, void *host, const void *device, size_t bytes)
{
    start_copy(queue, &queue->computes, host, device, bytes);
}

static void upload_beside(struct fr_device_queue *queue, void *device, const void *host, size_t bytes)
{
    start_copy(queue, &queue->copies, device, host, bytes);
}

static void join_beside(struct fr_device_queue *queue)
{
    if (starts(queue))
        add(queue, &queue->computes, WORK_JOIN)->n = queue->copies.n;
}

static enum fr_status finish(struct fr_device_queue *queue, struct fr_err *err)
{
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
        .alloc_pinned = allocate,
        .release_pinned = release,
        .upload = upload,
        .download = download,
        .copy = fr_queue_copy,
        .zero = fr_queue_zero,
        .upload_beside = upload_beside,
        .join_beside = join_beside,
        .finish = finish,
        .mark = mark,
        .elapsed_ms = elapsed_ms,
        .obey = obey,
        .ops = &fr_device_table,
    };
    return &api;
}
