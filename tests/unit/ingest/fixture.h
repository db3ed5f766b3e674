/* A log in memory behind the source table, a dead-letter sink that remembers, and a service around
 * them that writes down every batch. */
#ifndef FR_TESTS_INGEST_FIXTURE_H
#define FR_TESTS_INGEST_FIXTURE_H

#include "fake_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "fake_clock.h"
#include "ingest/ingest.h"

enum { FILES = 4, LETTERS = 256, RING = 4 };

struct fake_dead {
    uint32_t n;
    bool full;
    bool withheld;
    bool forget; /* there may be more than LETTERS letters, of which the last one is kept */
    uint64_t acknowledged, made;
    struct {
        char topic[FR_TOPIC_MAX];
        int32_t partition;
        int64_t offset;
        char reason[512], value[128], header[64]; /* the first header, "name=value" */
        bool has_value;
        size_t n_headers;
    } letters[LETTERS];
};

enum { LOG_ORIGINS = 64 };

struct service {
    struct service *next; /* the service made before this one in the case */
    struct fr_conf *conf;
    struct fake_log log;
    struct fake_dead dead;
    struct fr_source source;
    struct fr_dead_sink sink;
    struct fr_clock_fake clock;
    struct fr_ring *full, *empty;
    struct fr_ingest *ingest;
    struct fr_positions positions; /* the owner's */
    struct fr_buffer written;      /* every batch as text */
    uint64_t origins[LOG_ORIGINS]; /* of the samples, by the number of their event time */
    char *ends;
    uint32_t n_batches, sizes[LOG_RECORDS]; /* samples of the first LOG_RECORDS batches */
    struct fr_batch_position last[LOG_PARTITIONS + FILES];
    int64_t until_ms, epoch_wall_ms;
    struct fr_ingest_skip skips[FR_SKIPS_MAX + 1]; /* asked for */
    size_t n_skips;
    uint32_t lane_first, lane_end; /* those that are read; 0, 0: all */
    char dir[32];                  /* of files; empty: none */
    bool end_of_stream;
    struct fr_err err;
};

/* ---- the sink ---- */

static inline void dead_prepare(void *self)
{
    (void)self;
}

static inline enum fr_status dead_send(void *self, const struct fr_dead_letter *letter, uint64_t *number)
{
    struct fake_dead *dead = self;
    if (dead->full)
        return FR_AGAIN;
    if (dead->forget)
        dead->n = 0;
    assert_true(dead->n < LETTERS);
    snprintf(dead->letters[dead->n].topic, FR_TOPIC_MAX, "%s", letter->topic);
    dead->letters[dead->n].partition = letter->partition;
    dead->letters[dead->n].has_value = letter->parts.value != NULL;
    dead->letters[dead->n].header[0] = 0;
    if (letter->parts.n_headers)
        snprintf(dead->letters[dead->n].header, sizeof(dead->letters[dead->n].header), "%s=%.*s",
                 letter->parts.headers[0].name, (int)letter->parts.headers[0].size,
                 (const char *)letter->parts.headers[0].value);
    dead->letters[dead->n].offset = letter->offset;
    dead->letters[dead->n].n_headers = letter->parts.n_headers;
    snprintf(dead->letters[dead->n].reason, 512, "%s", letter->reason);
    snprintf(dead->letters[dead->n].value, 128, "%.*s", (int)letter->parts.size, (const char *)letter->parts.value);
    dead->n++;
    *number = ++dead->made;
    return FR_OK;
}

static inline uint64_t dead_acknowledged(void *self)
{
    return ((struct fake_dead *)self)->acknowledged;
}

static inline void dead_counts(void *self, struct fr_dead_counts *out)
{
    *out = (struct fr_dead_counts){.sent = ((struct fake_dead *)self)->acknowledged};
}

static inline bool dead_healthy(void *self, char *problem, size_t size)
{
    struct fake_dead *dead = self;
    if (dead->full)
        snprintf(problem, size, "letters wait");
    return !dead->full;
}

static inline void dead_withhold(void *self, bool on)
{
    ((struct fake_dead *)self)->withheld = on;
}

/* ---- the service ---- */

static inline struct fr_conf *conf_of(const char *ingest)
{
    struct fr_buffer text = {0}, problems = {0};
    struct fr_conf *conf = NULL;
    fr_buffer_printf(&text,
                     "version: 1\nmodel: ctr\nstate_dir: /tmp/ctr\n"
                     "ingest: {brokers: \"127.0.0.1:9\", topic: samples, format: json%s%s}\n"
                     "tables: {user: {dim: 2}}\nslots: {user_id: {table: user}}\nlabels: {click: {}}\n"
                     "network: {layers: [{name: out, dense: user_id, units: 1}]}\n"
                     "tasks: [{name: click, label: click, logit: out}]\n",
                     strstr(ingest, "batch_warmup") ? "" : ", batch_warmup: {first: 0}", ingest);
    fr_put_u8(&text, 0);
    struct fr_conf_load_options options = {.path = "test.yaml", .text = (const char *)text.data};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&text);
    fr_buffer_release(&problems);
    return conf;
}

/* The services of the case that runs; its teardown, drop_services, frees them. */
static struct service *services;

static inline struct service *service_new(const char *ingest, uint32_t n_partitions)
{
    struct service *s = calloc(1, sizeof(*s));
    s->next = services;
    services = s;
    s->conf = conf_of(ingest);
    s->log.n_partitions = n_partitions;
    snprintf(s->log.cluster_id, sizeof(s->log.cluster_id), "one");
    for (uint32_t i = 0; i < LOG_PARTITIONS; i++) {
        s->log.names[i].partition = (int32_t)i;
        snprintf(s->log.names[i].topic, FR_TOPIC_MAX, "samples");
        s->log.partitions[i].begun = -1;
    }
    s->source = (struct fr_source){
        .self = &s->log,
        .discover = log_discover,
        .offsets = log_offsets,
        .marks = log_marks,
        .checked = log_checked,
        .begin = log_begin,
        .halt = log_halt,
        .poll = log_poll,
        .release = log_release,
        .headers = log_headers,
        .commit = log_commit,
        .high = log_high,
        .connected = log_connected,
    };
    s->sink = (struct fr_dead_sink){&s->dead,    dead_prepare, dead_send, dead_acknowledged,
                                    dead_counts, dead_healthy, NULL,      dead_withhold};
    fr_clock_fake_init(&s->clock, T0 + 1000);
    s->full = fr_ring_new(RING);
    s->empty = fr_ring_new(RING);
    for (int i = 0; i < RING; i++)
        assert_true(fr_ring_try_push(s->empty, fr_batch_new(s->conf)));
    return s;
}

static inline enum fr_status keep_ends(void *self, const char *text, size_t size, struct fr_err *err)
{
    struct service *s = self;
    (void)err;
    assert_int_equal(size, strlen(text));
    free(s->ends);
    s->ends = fr_strdup(text);
    return FR_OK;
}

/* Starts from the owner's positions, as after a restart. */
static inline enum fr_status service_start(struct service *s, bool until_end)
{
    struct fr_ingest_options options = {
        .conf = s->conf,
        .clock = &s->clock.clock,
        .positions = &s->positions,
        .full = s->full,
        .empty = s->empty,
        .until_end = until_end,
        .until_ms = s->until_ms,
        .end_offsets = s->ends,
        .epoch_wall_ms = s->epoch_wall_ms,
        .fix_end = keep_ends,
        .fix_end_self = s,
        .skips = s->skips,
        .n_skips = s->n_skips,
        .lane_first = s->lane_first,
        .lane_end = s->lane_end,
        .source = &s->source,
        .dead_sink = &s->sink,
    };
    s->end_of_stream = false;
    assert_int_equal(fr_ingest_new(&options, &s->ingest, &s->err), FR_OK);
    return fr_ingest_start(s->ingest, &s->err);
}

static inline void service_kill(struct service *s)
{
    fr_ingest_free(s->ingest);
    s->ingest = NULL;
    assert_int_equal(s->log.n_held, 0);
    for (uint32_t i = 0; i < LOG_PARTITIONS; i++)
        s->log.partitions[i].begun = -1;
    /* The content of the rings is lost with the process; the batches are made again. */
    void *batch;
    while (fr_ring_pop(s->full, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    while (fr_ring_pop(s->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    for (int i = 0; i < RING; i++)
        assert_true(fr_ring_try_push(s->empty, fr_batch_new(s->conf)));
}

static inline void service_free(struct service *s)
{
    struct service **link = &services;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    service_kill(s);
    void *batch;
    while (fr_ring_pop(s->empty, &batch, 0) == FR_OK)
        fr_batch_free(batch);
    fr_ring_free(s->full);
    fr_ring_free(s->empty);
    fr_positions_release(&s->positions);
    fr_buffer_release(&s->written);
    for (uint32_t i = 0; i < LOG_PARTITIONS; i++)
        for (uint32_t k = 0; k < s->log.partitions[i].n; k++)
            free(s->log.partitions[i].records[k].value);
    free(s->ends);
    fr_conf_free(s->conf);
    free(s);
}

FR_FIXTURE(drop_services)
{
    while (services)
        service_free(services);
    return 0;
}

#define SERVICE_CASE(name) cmocka_unit_test_teardown(name, drop_services)

/* The owner's part: applies one batch and writes it down. */
static inline void service_apply(struct service *s, const struct fr_batch *batch)
{
    fr_buffer_printf(&s->written, "batch %u%s:", batch->n_samples, batch->end_of_stream ? " end" : "");
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        int64_t number = batch->t_ms[i] - T0;
        fr_buffer_printf(&s->written, " %lld", (long long)number);
        if (number >= 0 && number < LOG_ORIGINS)
            s->origins[number] = batch->origin[i];
    }
    fr_buffer_printf(&s->written, ";");
    for (uint32_t i = 0; i < batch->n_positions; i++) {
        const struct fr_batch_position *p = &batch->positions[i];
        fr_buffer_printf(&s->written, " %u@%lld.%u", p->stream_index, (long long)p->offset, p->item);
        s->last[p->stream_index] = *p;
    }
    fr_buffer_printf(&s->written, "\n");
    fr_ingest_adopt(s->ingest, &s->positions);
    fr_positions_apply(&s->positions, batch);
    if (!fr_positions_balanced(&s->positions, &s->err))
        fail_msg("%s", s->err.text);
    if (s->n_batches < LOG_RECORDS)
        s->sizes[s->n_batches] = batch->n_samples;
    s->n_batches++;
    s->end_of_stream |= batch->end_of_stream;
}

/* One step of ingest, then up to `most` batches applied. */
static inline enum fr_status service_step(struct service *s, uint32_t most)
{
    enum fr_status status = fr_ingest_step(s->ingest, 0, &s->err);
    void *batch;
    while (most-- && fr_ring_pop(s->full, &batch, 0) == FR_OK) {
        service_apply(s, batch);
        assert_true(fr_ring_try_push(s->empty, batch));
    }
    return status;
}

/* Steps until the end of the stream, or, without one, until nothing comes. */
static inline void service_run(struct service *s)
{
    enum fr_status status = FR_OK;
    for (int quiet = 0, i = 0; status != FR_EOF && quiet < 3; i++) {
        assert_true(i < 100000);
        status = service_step(s, RING);
        if (status < 0)
            fail_msg("%s", s->err.text);
        quiet = status == FR_AGAIN ? quiet + 1 : 0;
    }
}

/* Starts and reads what there is. */
static inline void service_serve(struct service *s)
{
    assert_int_equal(service_start(s, false), FR_OK);
    service_run(s);
}

static inline const char *written(struct service *s)
{
    fr_put_u8(&s->written, 0);
    s->written.size--;
    return (const char *)s->written.data;
}

#endif
