/* A small valid configuration and ways to load variants of it. */
#ifndef FR_TESTS_CONF_FIXTURE_H
#define FR_TESTS_CONF_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "conf/conf.h"

static const char base_text[] = "version: 1\n"                                                              /* 1 */
                                "model: ctr\n"                                                              /* 2 */
                                "state_dir: /tmp/ctr\n"                                                     /* 3 */
                                "ingest:\n"                                                                 /* 4 */
                                "  brokers: \"localhost:9092\"\n"                                           /* 5 */
                                "  topic: samples\n"                                                        /* 6 */
                                "  batch_size: 256\n"                                                       /* 7 */
                                "tables:\n"                                                                 /* 8 */
                                "  user: {dim: 8}\n"                                                        /* 9 */
                                "  item:\n"                                                                 /* 10 */
                                "    parts: {w: {dim: 1, optimizer: ftrl}, v: {dim: 8}}\n"                  /* 11 */
                                "slots:\n"                                                                  /* 12 */
                                "  user_id: {table: user}\n"                                                /* 13 */
                                "  item_id: {table: item}\n"                                                /* 14 */
                                "  history: {table: item, kind: sequence}\n"                                /* 15 */
                                "  price: {kind: dense, dim: 2}\n"                                          /* 16 */
                                "labels: {click: {}}\n"                                                     /* 17 */
                                "network:\n"                                                                /* 18 */
                                "  layers:\n"                                                               /* 19 */
                                "    - {name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}\n" /* 20 */
                                "    - {name: h, mlp: x, units: [16, 8]}\n"                                 /* 21 */
                                "    - {name: out, dense: h, units: 1}\n"                                   /* 22 */
                                "tasks:\n"                                                                  /* 23 */
                                "  - {name: click, label: click, logit: out}\n";                            /* 24 */

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

#endif
