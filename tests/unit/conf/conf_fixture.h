/* A small valid configuration and ways to load variants of it. */
#ifndef FR_TESTS_CONF_FIXTURE_H
#define FR_TESTS_CONF_FIXTURE_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/cursor.h"
#include "conf/conf.h"

/* A model with slots of every kind, up to its layers: lines 1 to 18. */
#define EVERY_KIND_OF_SLOT                                                                                             \
    "version: 1\n"                                                                                                     \
    "model: m\n"                                                                                                       \
    "state_dir: /tmp/m\n"                                                                                              \
    "ingest: {brokers: b, topic: samples}\n"                                                                           \
    "tables:\n"                                                                                                        \
    "  user: {dim: 8}\n"                                                                                               \
    "  item: {parts: {w: {dim: 1, optimizer: ftrl}, v: {dim: 8}}}\n"                                                   \
    "slots:\n"                                                                                                         \
    "  user_id: {table: user}\n"                                                                                       \
    "  item_id: {table: item}\n"                                                                                       \
    "  history: {table: item, kind: sequence}\n"                                                                       \
    "  skipped: {table: item, kind: sequence}\n"                                                                       \
    "  seen: {table: user, kind: sequence}\n"                                                                          \
    "  price: {kind: dense, dim: 2}\n"                                                                                 \
    "  age: {kind: dense, dim: 2, transform: {bucketize: [18, 30.5, 65]}}\n"                                           \
    "labels: {click: {}}\n"                                                                                            \
    "network:\n"                                                                                                       \
    "  layers:\n"

/* 1 */
static const char base_text[] = "version: 1\n"
                                /* 2 */
                                "model: ctr\n"
                                /* 3 */
                                "state_dir: /tmp/ctr\n"
                                /* 4 */
                                "ingest:\n"
                                /* 5 */
                                "  brokers: \"localhost:9092\"\n"
                                /* 6 */
                                "  topic: samples\n"
                                /* 7 */
                                "  batch_size: 256\n"
                                /* 8 */
                                "tables:\n"
                                /* 9 */
                                "  user: {dim: 8}\n"
                                /* 10 */
                                "  item:\n"
                                /* 11 */
                                "    parts: {w: {dim: 1, optimizer: ftrl}, v: {dim: 8}}\n"
                                /* 12 */
                                "slots:\n"
                                /* 13 */
                                "  user_id: {table: user}\n"
                                /* 14 */
                                "  item_id: {table: item}\n"
                                /* 15 */
                                "  history: {table: item, kind: sequence}\n"
                                /* 16 */
                                "  price: {kind: dense, dim: 2}\n"
                                /* 17 */
                                "labels: {click: {}}\n"
                                /* 18 */
                                "network:\n"
                                /* 19 */
                                "  layers:\n"
                                /* 20 */
                                "    - {name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}\n"
                                /* 21 */
                                "    - {name: h, mlp: x, units: [16, 8]}\n"
                                /* 22 */
                                "    - {name: out, dense: h, units: 1}\n"
                                /* 23 */
                                "tasks:\n"
                                /* 24 */
                                "  - {name: click, label: click, logit: out}\n";

/* A configuration with something of every part of the grammar. */
static const char rich_text[] =
    "version: 1\n"
    "model: rich\n"
    "state_dir: /tmp/rich\n"
    "ingest: {brokers: b, topics: [a, b], files: [f.jsonl], start: 2026-01-02T03:04:05Z, sampling: none}\n"
    "tables:\n"
    "  user: {dim: 4, optimizer: {adam: {clip_norm: 1}}, init: xavier_normal}\n"
    "  item: {parts: {w: {dim: 1, optimizer: {group_ftrl: {l21: 0.1}}}, v: {dim: 4, optimizer: rmsprop}}}\n"
    "slots:\n"
    "  user_id: {table: user}\n"
    "  item_id: {table: item}\n"
    "  history: {table: item, kind: sequence}\n"
    "  user_x_item: {table: item, cross: [user_id, age_bucket, item_id], max_ids: 7}\n"
    "  price: {kind: dense, dim: 2, transform: standardize}\n"
    "  age: {kind: dense, transform: {bucketize: [18, 30.5]}}\n"
    "  age_bucket: {table: user, buckets: {of: age, boundaries: [18, 30.5]}}\n"
    "  height: {kind: dense, transform: [{clip: [-1.5, 1000]}, log1p, standardize], default: 3, indicator: true}\n"
    "  hour: {kind: dense, transform: time_of_day}\n"
    "labels: {click: {}, pay: {}, buy: {of: pay, given: click, min: 0.5}}\n"
    "network:\n"
    "  init: {truncated_normal: 0.1}\n"
    "  optimizer: {adamw: {warmup_samples: 100}}\n"
    "  layers:\n"
    "    - {name: states, gru: history.v, units: 4}\n"
    "    - {name: wide, sum: [item_id.w, {sqrtn: history.w}]}\n"
    "    - {name: interest, attention: {query: item_id.v, keys: history.v}, activation: dice, softmax: true}\n"
    "    - {name: later, augru: {query: item_id.v, keys: states}}\n"
    "    - {name: x, concat: [user_id, interest, {last: states}, price, age]}\n"
    "    - {name: crossed, cross: x, depth: 2, rank: 3, optimizer: momentum}\n"
    "    - {name: pairs, dot_interaction: [user_id, item_id.v, {mean: history.v}]}\n"
    "    - {name: some, dropout: [crossed, later], rate: 0.25}\n"
    "    - {name: many, experts: some, count: 2, units: [5, 3], activation: gelu, init: zeros}\n"
    "    - {name: mix, mixture: {gate: {layer_norm: x}, experts: many}}\n"
    "    - {name: z, dense: [mix, pairs], units: 1}\n"
    "    - {name: out, add: [z, wide, {fm: [user_id, item_id.v]}, {bias: z}]}\n"
    "tasks:\n"
    "  - {name: click, label: click, logit: out, loss: {focal: {gamma: 1}}}\n"
    "  - {name: buy, label: buy, logit: z, loss: none}\n"
    "  - {name: pay, label: pay, prob: [click, buy]}\n"
    "losses:\n"
    "  - {name: steps, next_step: {states: states, positives: history.v, negatives: history.v}, weight: 0.5}\n"
    "  - {name: near, mse: [user_id, {stop_gradient: item_id.v}]}\n"
    "metrics: {gauc_by: user_id}\n";

/* base_text with the first `from` replaced by `to`; freed by the caller. */
static inline char *variant(const char *from, const char *to)
{
    const char *at = strstr(base_text, from);
    assert_non_null(at);
    size_t room = sizeof(base_text) + strlen(to);
    char *text = calloc(1, room);
    assert_non_null(text);
    snprintf(text, room, "%.*s%s%s", (int)(at - base_text), base_text, to, at + strlen(from));
    return text;
}

static inline struct fr_conf *load_with(const char *text, const char *const *sets, size_t n_sets)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text, .sets = sets, .n_sets = n_sets};
    enum fr_status status = fr_conf_load(&options, &conf, &problems);
    if (status != FR_OK)
        fail_msg("%s", (const char *)problems.data);
    assert_int_equal(problems.size, 0);
    fr_buffer_release(&problems);
    return conf;
}

static inline struct fr_conf *load(const char *text)
{
    return load_with(text, NULL, 0);
}

/* The base with one replacement. */
static inline struct fr_conf *load_variant(const char *from, const char *to)
{
    char *text = variant(from, to);
    struct fr_conf *conf = load(text);
    free(text);
    return conf;
}

/* All problems of a text that must not load; freed by the caller. */
static inline char *problems_of(const char *text, const char *const *sets, size_t n_sets)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = (struct fr_conf *)(uintptr_t)1;
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text, .sets = sets, .n_sets = n_sets};
    assert_int_equal(fr_conf_load(&options, &conf, &problems), FR_E_INVALID);
    assert_ptr_equal(conf, (struct fr_conf *)(uintptr_t)1); /* written only on success */
    assert_true(problems.size > 0);
    return (char *)problems.data;
}

static inline void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("`%s` is not in:\n%s", part, text);
}

/* ---- what is said of a case: the words are on record in tests/golden ---- */

#define ON_RECORD FR_SOURCE_DIR "/tests/golden/diagnostics.txt"

static inline char *record_read(void)
{
    struct fr_buffer text = {0};
    char line[4096];
    FILE *file = fopen(ON_RECORD, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        fr_buffer_append(&text, line, strlen(line));
    fclose(file);
    fr_put_u8(&text, 0);
    return (char *)text.data;
}

/* Writes the text in place of the recorded one, or at the end of the record. */
static inline void record_write(const char *entry, const char *before, const char *after)
{
    FILE *file = fopen(ON_RECORD, "w");
    assert_non_null(file);
    fprintf(file, "%s%s%s", before, entry, after);
    fclose(file);
}

/* Expects the problems that are recorded for `name` of the group, to the letter. With FR_UPDATE=1
 * the problems are recorded instead: run one program at a time, and read the difference. */
static inline void assert_said(const char *group, const char *name, const char *problems)
{
    struct fr_buffer entry = {0};
    char *record = record_read(), title[160];
    size_t title_size = (size_t)snprintf(title, sizeof(title), "\n%s/%s\n", group, name);
    fr_buffer_append(&entry, title, title_size);
    for (const char *at = problems; *at; at += strcspn(at, "\n") + 1)
        fr_buffer_printf(&entry, "    %.*s\n", (int)strcspn(at, "\n"), at);
    fr_put_u8(&entry, 0);
    char *begin = strstr(record, title), *end = begin ? begin + title_size : NULL;
    while (end && strncmp(end, "    ", 4) == 0)
        end += strcspn(end, "\n") + 1;
    if (getenv("FR_UPDATE")) {
        if (begin)
            *begin = '\0';
        record_write((const char *)entry.data, record, end ? end : "");
    } else if (!begin) {
        fail_msg("%s has no %s/%s; what was said:\n%s", ON_RECORD, group, name, problems);
    } else {
        *end = '\0';
        assert_string_equal((const char *)entry.data, begin);
    }
    free(record);
    fr_buffer_release(&entry);
}

/* Expects that the record has this number of cases of the group, so that it has no case that no
 * test uses any more. */
static inline void assert_said_of(const char *group, size_t count)
{
    char *record = record_read(), title[64];
    size_t found = 0;
    snprintf(title, sizeof(title), "\n%s/", group);
    for (const char *at = record; (at = strstr(at, title)) != NULL; at++)
        found++;
    if (!getenv("FR_UPDATE"))
        assert_int_equal(found, count);
    free(record);
}

static inline char *printed(const struct fr_conf *conf)
{
    struct fr_buffer out = {0};
    fr_conf_print(conf, &out);
    return (char *)out.data;
}

static inline char *model_json(const struct fr_conf *conf)
{
    struct fr_buffer out = {0};
    fr_conf_model_json(conf, &out);
    return (char *)out.data;
}

static inline char *training_json(const struct fr_conf *conf)
{
    struct fr_buffer out = {0};
    fr_conf_training_json(conf, &out);
    return (char *)out.data;
}

static inline void assert_same(const struct fr_conf *a, const struct fr_conf *b)
{
    char *pa = printed(a), *pb = printed(b), *ma = model_json(a), *mb = model_json(b), *ta = training_json(a),
         *tb = training_json(b);
    assert_string_equal(pa, pb);
    assert_string_equal(ma, mb);
    assert_string_equal(ta, tb);
    assert_memory_equal(a->tables, b->tables, a->n_tables * sizeof(*a->tables));
    for (uint32_t i = 0; i < a->n_slots; i++) {
        struct fr_conf_slot x = a->slots[i], y = b->slots[i];
        assert_memory_equal(x.boundaries, y.boundaries, x.n_boundaries * sizeof(*x.boundaries));
        x.boundaries = y.boundaries = NULL;
        assert_true((x.key == NULL) == (y.key == NULL) && (!x.key || strcmp(x.key, y.key) == 0));
        x.key = y.key = NULL;
        assert_memory_equal(&x, &y, sizeof(x));
    }
    assert_memory_equal(a->labels, b->labels, a->n_labels * sizeof(*a->labels));
    assert_int_equal(a->n_losses, b->n_losses);
    assert_memory_equal(a->tasks, b->tasks, a->n_tasks * sizeof(*a->tasks));
    assert_memory_equal(&a->metrics.half_life_ms, &b->metrics.half_life_ms, sizeof(a->metrics.half_life_ms));
    assert_int_equal(a->journal_max, b->journal_max);
    assert_int_equal(a->epoch_bytes_max, b->epoch_bytes_max);
    free(pa);
    free(pb);
    free(ma);
    free(mb);
    free(ta);
    free(tb);
}

static inline void assert_prints_and_loads(const struct fr_conf *conf)
{
    char *text = printed(conf);
    struct fr_conf *again = load(text);
    assert_same(conf, again);
    fr_conf_free(again);
    free(text);
}

#endif
