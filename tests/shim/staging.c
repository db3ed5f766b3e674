/* Spans of a call's memory: what overlaps is one span, and one allocation on the device. */
#include "staging.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "emulate/emulated.h"

static _Noreturn void give_up(const char *what, const struct fr_err *err)
{
    fprintf(stderr, "shim: %s: %s\n", what, err->text);
    exit(1);
}

const struct fr_device_api *fr_shim_api(void)
{
    static const struct fr_device_api *api;
    const char *path = getenv("FRESHET_DEVICE");
    struct fr_err err = {0};
    if (!api && !path)
        api = fr_emulate_api();
    else if (!api && fr_cuda_load(path, &api, &err) != FR_OK)
        give_up(path, &err);
    return api;
}

struct fr_device_queue *fr_shim_queue(void)
{
    static struct fr_device_queue *queue; /* until the process ends */
    struct fr_err err = {0};
    if (!queue && fr_shim_api()->open(0, &queue, &err) != FR_OK)
        give_up("card 0", &err);
    return queue;
}

static void finish(void)
{
    struct fr_err err = {0};
    if (fr_shim_api()->finish(fr_shim_queue(), &err) != FR_OK)
        give_up("the device", &err);
}

static void *device_alloc(size_t bytes)
{
    void *memory = fr_shim_api()->alloc(fr_shim_queue(), bytes);
    FR_CHECK(memory != NULL);
    return memory;
}

/* ---- what a call names ---- */

void fr_shim_memory(struct shim_staging *s, void *slot, size_t bytes, enum shim_use use)
{
    const char *pointer;
    memcpy(&pointer, slot, sizeof(void *));
    if (!pointer || bytes == 0)
        return;
    if (s->n_references == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 32;
        s->references = fr_realloc(s->references, s->capacity, sizeof(*s->references));
    }
    s->references[s->n_references++] = (struct shim_reference){slot, bytes, use == SHIM_WRITTEN};
}

void fr_shim_view(struct shim_staging *s, struct fr_view *view, size_t rows, size_t columns, enum shim_use use)
{
    if (rows > 0)
        fr_shim_memory(s, &view->values, ((rows - 1) * view->ld + columns) * sizeof(float), use);
}

void *fr_shim_array(struct shim_staging *s, void *slot, size_t bytes)
{
    void *from, *copy = fr_alloc(bytes ? bytes : 1, 1);
    memcpy(&from, slot, sizeof(void *));
    if (bytes)
        memcpy(copy, from, bytes);
    memcpy(slot, &copy, sizeof(void *));
    s->owned = fr_realloc(s->owned, s->n_owned + 1, sizeof(*s->owned));
    s->owned[s->n_owned++] = copy;
    fr_shim_memory(s, slot, bytes, SHIM_READ);
    return copy;
}

void fr_shim_rows(struct shim_staging *s, void *slot, size_t n, size_t floats, enum shim_use use)
{
    float **rows = fr_shim_array(s, slot, n * sizeof(*rows));
    for (size_t i = 0; i < n; i++)
        fr_shim_memory(s, &rows[i], floats * sizeof(float), use);
}

void fr_shim_views(struct shim_staging *s, void *slot, size_t n, size_t rows, size_t columns, enum shim_use use)
{
    struct fr_view *views = fr_shim_array(s, slot, n * sizeof(*views));
    for (size_t i = 0; i < n; i++)
        fr_shim_view(s, &views[i], rows, columns, use);
}

/* ---- there and back ---- */

static int by_begin(const void *a, const void *b)
{
    const struct shim_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static void join_spans(struct shim_staging *s)
{
    s->spans = fr_alloc(s->n_references ? s->n_references : 1, sizeof(*s->spans));
    for (size_t i = 0; i < s->n_references; i++) {
        const struct shim_reference *r = &s->references[i];
        struct shim_span *span = &s->spans[i];
        memcpy(&span->begin, r->slot, sizeof(void *));
        span->end = span->begin + r->bytes;
        span->written = r->written;
    }
    qsort(s->spans, s->n_references, sizeof(*s->spans), by_begin);
    for (size_t i = 0; i < s->n_references; i++) {
        struct shim_span *last = s->n_spans > 0 ? &s->spans[s->n_spans - 1] : NULL;
        struct shim_span next = s->spans[i];
        if (!last || next.begin >= last->end) {
            s->spans[s->n_spans++] = next;
            continue;
        }
        last->end = next.end > last->end ? next.end : last->end;
        last->written |= next.written;
    }
}

static const struct shim_span *span_of(const struct shim_staging *s, const char *pointer)
{
    size_t low = 0, high = s->n_spans;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(pointer < s->spans[middle].begin ? &high : &low) = middle;
    }
    return &s->spans[low];
}

void fr_shim_enter(struct shim_staging *s)
{
    const struct fr_device_api *api = fr_shim_api();
    join_spans(s);
    for (size_t i = 0; i < s->n_spans; i++)
        s->spans[i].device = device_alloc((size_t)(s->spans[i].end - s->spans[i].begin));
    for (size_t i = 0; i < s->n_references; i++) {
        const char *pointer;
        memcpy(&pointer, s->references[i].slot, sizeof(void *));
        const struct shim_span *span = span_of(s, pointer);
        const char *there = span->device + (pointer - span->begin);
        memcpy(s->references[i].slot, &there, sizeof(void *));
    }
    for (size_t i = 0; i < s->n_spans; i++) /* now that the pointers in arrays are turned */
        api->upload(fr_shim_queue(), s->spans[i].device, s->spans[i].begin,
                    (size_t)(s->spans[i].end - s->spans[i].begin));
}

void fr_shim_leave(struct shim_staging *s)
{
    const struct fr_device_api *api = fr_shim_api();
    for (size_t i = 0; i < s->n_spans; i++)
        if (s->spans[i].written)
            api->download(fr_shim_queue(), (char *)(uintptr_t)s->spans[i].begin, s->spans[i].device,
                          (size_t)(s->spans[i].end - s->spans[i].begin));
    finish();
    for (size_t i = 0; i < s->n_spans; i++)
        api->release(fr_shim_queue(), s->spans[i].device);
    for (size_t i = 0; i < s->n_owned; i++)
        free(s->owned[i]);
    free(s->owned);
    free(s->spans);
    free(s->references);
}

/* ---- numbers ---- */

double *fr_shim_sum(void)
{
    static double *sum;
    if (!sum)
        sum = device_alloc(sizeof(*sum));
    return sum;
}

double fr_shim_sum_of(void)
{
    double sum;
    fr_shim_api()->download(fr_shim_queue(), &sum, fr_shim_sum(), sizeof(sum));
    finish();
    return sum;
}

static uint32_t *bits_word(void)
{
    static uint32_t *bits;
    if (!bits)
        bits = device_alloc(sizeof(*bits));
    return bits;
}

uint32_t *fr_shim_bits(void)
{
    fr_shim_api()->zero(fr_shim_queue(), bits_word(), sizeof(uint32_t));
    return bits_word();
}

uint32_t fr_shim_bits_of(void)
{
    uint32_t bits;
    fr_shim_api()->download(fr_shim_queue(), &bits, bits_word(), sizeof(bits));
    finish();
    return bits;
}
