/* The epoch behind tests/golden/delta_epoch.jsonl; tests/golden/README.md describes it in words for
 * readers in other languages. */
#ifndef GOLDEN_EPOCH_H
#define GOLDEN_EPOCH_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "codec/codec.h"

enum { GOLDEN_ROWS = 60, GOLDEN_DROPS = 12, GOLDEN_KERNEL = 3 * 80, GOLDEN_BIAS = 80 };

struct golden {
    struct fr_codec_settings settings;
    struct fr_codec_table tables[2];
    struct fr_delta_epoch epoch;
    struct fr_delta_row rows[GOLDEN_ROWS + GOLDEN_DROPS];
    float values[GOLDEN_ROWS][4];
    float kernel[GOLDEN_KERNEL], bias[GOLDEN_BIAS];
    struct fr_delta_dense dense[2];
    struct fr_delta_auc auc[2];
    struct fr_delta_offset offsets[3];
    struct fr_delta_rewind rewind;
};

static const char golden_cfg[] = "{\"layers\":[],\"tables\":[{\"name\":\"user\"},{\"name\":\"item\"}]}";

static int golden_order(const void *a, const void *b)
{
    const struct fr_delta_row *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

static inline void golden_settings(struct golden *g)
{
    g->tables[0] = (struct fr_codec_table){.name = "user", .n_parts = 1, .value_floats = 2};
    strcpy(g->tables[0].parts[0].name, "v");
    g->tables[0].parts[0].dim = 2;
    g->tables[1] = (struct fr_codec_table){.name = "item", .n_parts = 2, .value_floats = 4};
    strcpy(g->tables[1].parts[0].name, "w");
    g->tables[1].parts[0].dim = 1;
    strcpy(g->tables[1].parts[1].name, "v");
    g->tables[1].parts[1].dim = 3;
    struct fr_sha256 sha = fr_sha256(golden_cfg, strlen(golden_cfg));
    g->settings = (struct fr_codec_settings){.revision = FR_CODEC_REVISION,
                                             .np = 2,
                                             .quantize = FR_CODEC_F16,
                                             .piece_max = 400,
                                             .fp = fr_sha256_u64(&sha),
                                             .model = "golden",
                                             .kernel = "reference 1 none",
                                             .cfg = (char *)(uintptr_t)golden_cfg,
                                             .cfg_size = strlen(golden_cfg),
                                             .n_tables = 2,
                                             .tables = g->tables};
}

static inline void golden_rows(struct golden *g)
{
    for (int j = 0; j < GOLDEN_ROWS; j++) {
        for (int d = 0; d < 4; d++)
            g->values[j][d] = (float)((j * 7 + d * 3) % 64 - 32) / 8.0f;
        g->rows[j] =
            (struct fr_delta_row){.key = fr_fmix64((uint64_t)j + 1), .table = j % 3 != 0, .values = g->values[j]};
    }
    g->values[1][0] = 65520.0f;               /* saturates */
    g->values[1][1] = -1e-8f;                 /* rounds to -0 */
    g->values[2][2] = 1.00048828125f;         /* 1 + 2^-11: ties to even */
    g->values[3][1] = 5.9604644775390625e-8f; /* 2^-24: smallest subnormal */
    for (int j = 0; j < GOLDEN_DROPS; j++)
        g->rows[GOLDEN_ROWS + j] = (struct fr_delta_row){
            .key = fr_fmix64((uint64_t)j + 1001), .table = j % 2 != 0, .why = (uint8_t)(1 + j % 5)};
    qsort(g->rows, GOLDEN_ROWS + GOLDEN_DROPS, sizeof(g->rows[0]), golden_order);
}

static inline void golden_init(struct golden *g)
{
    memset(g, 0, sizeof(*g));
    golden_settings(g);
    golden_rows(g);
    for (int i = 0; i < GOLDEN_KERNEL; i++)
        g->kernel[i] = (float)(i % 17 - 8) / 16.0f;
    for (int i = 0; i < GOLDEN_BIAS; i++)
        g->bias[i] = (float)i / 64.0f;
    g->dense[0] = (struct fr_delta_dense){"h/kernel", 2, {3, 80}, GOLDEN_KERNEL, g->kernel, false};
    g->dense[1] = (struct fr_delta_dense){"h/bias", 1, {80}, GOLDEN_BIAS, g->bias, false};
    g->auc[0] = (struct fr_delta_auc){"click", 0.75};
    g->auc[1] = (struct fr_delta_auc){"buy", NAN};
    g->offsets[0] = (struct fr_delta_offset){"samples", 0, 5};
    g->offsets[1] = (struct fr_delta_offset){"samples", 1, INT64_C(1) << 33};
    g->offsets[2] = (struct fr_delta_offset){"zeta", 3, 0};
    g->rewind = (struct fr_delta_rewind){6, "golden-1-6"};
    g->epoch = (struct fr_delta_epoch){.timeline = 2,
                                       .epoch = 7,
                                       .from = 7,
                                       .digest = 0x0123456789abcdefu,
                                       .previous = 0xfedcba9876543210u,
                                       .with_model = true,
                                       .rewind = &g->rewind,
                                       .rows = g->rows,
                                       .n_rows = GOLDEN_ROWS + GOLDEN_DROPS,
                                       .dense = g->dense,
                                       .n_dense = 2,
                                       .commit = {.wm_ms = 1700000000000,
                                                  .samples = 123456789,
                                                  .t_ms = 1700000001234,
                                                  .n_auc = 2,
                                                  .auc = g->auc,
                                                  .n_offsets = 3,
                                                  .offsets = g->offsets}};
}

#endif
