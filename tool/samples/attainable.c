/* See attainable.h. Samples are added to the estimator in blocks. Before a value is read, the
 * open block is added. */
#include "samples/attainable.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "metrics/auc.h"
#include "output.h"

enum { BLOCK = 1024 };

static const struct {
    const char *name;
    int64_t ms;
} half_lives[] = {{"5m", 300000}, {"1h", 3600000}, {"1d", 86400000}};

struct fr_tool_attainable {
    struct fr_auc *auc;
    uint64_t samples;
    int64_t t_ms_last;
    size_t n;
    float logits[BLOCK], labels[BLOCK];
    int64_t t_ms[BLOCK];
};

struct fr_tool_attainable *fr_tool_attainable_new(void)
{
    struct fr_tool_attainable *a = fr_alloc(1, sizeof(*a));
    struct fr_auc_options options = {.n_half_lives = FR_ARRAY_LEN(half_lives)};
    for (size_t i = 0; i < FR_ARRAY_LEN(half_lives); i++)
        options.half_life_ms[i] = half_lives[i].ms;
    a->auc = fr_auc_new(&options);
    return a;
}

void fr_tool_attainable_free(struct fr_tool_attainable *attainable)
{
    if (!attainable)
        return;
    fr_auc_free(attainable->auc);
    free(attainable);
}

static void close_block(struct fr_tool_attainable *a)
{
    if (a->n == 0)
        return;
    struct fr_auc_samples samples = {
        .count = a->n, .scores = a->logits, .labels = a->labels, .t_ms = a->t_ms, .watermark_ms = a->t_ms_last};
    fr_auc_add(a->auc, &samples);
    a->n = 0;
}

void fr_tool_attainable_add(struct fr_tool_attainable *attainable, const struct fr_tool_synthetic_sample *sample)
{
    attainable->logits[attainable->n] = sample->logit;
    attainable->labels[attainable->n] = sample->label;
    attainable->t_ms[attainable->n] = sample->t_ms;
    attainable->t_ms_last = sample->t_ms;
    attainable->samples++;
    if (++attainable->n == BLOCK)
        close_block(attainable);
}

static double auc_of(const struct fr_tool_attainable *a, int half_life)
{
    struct fr_auc_result result;
    fr_auc_result(a->auc, half_life, &result);
    return result.auc;
}

void fr_tool_attainable_print(struct fr_tool_attainable *attainable, struct fr_buffer *out)
{
    close_block(attainable);
    fr_buffer_printf(out, " attainable_auc=%.5f", auc_of(attainable, -1));
    for (size_t i = 0; i < FR_ARRAY_LEN(half_lives); i++)
        fr_buffer_printf(out, " attainable_auc_%s=%.5f", half_lives[i].name, auc_of(attainable, (int)i));
}

static void put_number(struct fr_buffer *out, const char *name, double value, const char *after)
{
    if (isfinite(value))
        fr_buffer_printf(out, "\"%s\":%.6f%s", name, value, after);
    else
        fr_buffer_printf(out, "\"%s\":null%s", name, after);
}

/* Not synced: readers poll the file while the stream runs, and it is not needed after a power
 * cut. */
enum fr_status fr_tool_attainable_write(struct fr_tool_attainable *attainable, const char *path, struct fr_err *err)
{
    close_block(attainable);
    struct fr_tool_replaced file;
    enum fr_status status = fr_tool_replaced_open(path, &file, err);
    if (status != FR_OK)
        return status;
    struct fr_buffer text = {0};
    fr_buffer_printf(&text, "{\"samples\":%" PRIu64 ",\"t_ms\":%" PRId64 ",\"attainable\":{", attainable->samples,
                     attainable->t_ms_last);
    for (size_t i = 0; i < FR_ARRAY_LEN(half_lives); i++)
        put_number(&text, half_lives[i].name, auc_of(attainable, (int)i), ",");
    put_number(&text, "lifetime", auc_of(attainable, -1), "}}\n");
    (void)fr_tool_write_file(file.file, text.data, text.size); /* the commit reports a failure */
    fr_buffer_release(&text);
    return fr_tool_replaced_commit(&file, false, err);
}
