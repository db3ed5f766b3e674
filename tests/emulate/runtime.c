/* The queue on the processor: memory is the heap's, so that AddressSanitizer sees every access
 * beyond an allocation; copies are made at once; products are plain loops over ascending k. Fresh
 * memory is NaN. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/math.h"
#include "emulate/emulated.h"
#include "queue.h"

enum { BLOCK = 256, BLOCKS_MAX = 48 };

struct fr_device_queue {
    void *workspace;
    const uint32_t *flag;
};

bool fr_queue_ready(const struct fr_device_queue *queue)
{
    (void)queue;
    return true;
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

static void zero(struct fr_device_queue *queue, void *device, size_t bytes)
{
    (void)queue;
    memset(device, 0, bytes);
}

static void copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    memmove(to, from, bytes);
}

void fr_queue_zero(struct fr_device_queue *queue, void *device, size_t bytes)
{
    zero(queue, device, bytes);
}

void fr_queue_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    copy(queue, to, from, bytes);
}

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

void fr_queue_multiply(struct fr_device_queue *queue, const struct fr_product *p)
{
    (void)queue;
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

/* ---- the interface ---- */

static uint32_t count(struct fr_err *err)
{
    (void)err;
    return 1;
}

static void *allocate(struct fr_device_queue *queue, size_t bytes)
{
    (void)queue;
    void *memory = malloc(bytes ? bytes : 1);
    if (memory)
        memset(memory, 0xff, bytes);
    return memory;
}

static void release(struct fr_device_queue *queue, void *memory)
{
    (void)queue;
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

static enum fr_status finish(struct fr_device_queue *queue, struct fr_err *err)
{
    (void)queue, (void)err;
    return FR_OK;
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
        .upload = copy,
        .download = copy,
        .copy = copy,
        .zero = zero,
        .finish = finish,
        .mark = mark,
        .elapsed_ms = elapsed_ms,
        .obey = obey,
        .ops = &fr_device_table,
    };
    return &api;
}
