/* A log in memory behind the source table, a dead-letter sink that remembers, and a service around
 * them that writes down every batch. */
#ifndef FR_TESTS_INGEST_FIXTURE_H
#define FR_TESTS_INGEST_FIXTURE_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/cursor.h"
#include "ingest/ingest.h"

#define T0 1700000000000LL

#ifndef FR_TEST_LOG_PARTITIONS
#define FR_TEST_LOG_PARTITIONS 4
#define FR_TEST_LOG_RECORDS 4096 /* of each */
#endif

enum {
    LOG_PARTITIONS = FR_TEST_LOG_PARTITIONS,
    FILES = 4,
    LOG_RECORDS = FR_TEST_LOG_RECORDS,
    LETTERS = 256,
    RING = 4,
};

struct log_record {
    int64_t offset, timestamp_ms;
    char *value;
    size_t size; /* 0: the value is a text */
};

struct log_partition {
    uint32_t n, available; /* records; of them, what a poll may give now */
    struct log_record records[LOG_RECORDS];
    int64_t low, high; /* high may lie beyond the last record: markers */
    int64_t begun;     /* offset asked last; -1: not read */
    uint32_t next;     /* index of the next record to give */
    uint32_t fetched;  /* records that the reader has, whatever the log lost since */
    bool end_told, reset_told, gone, denied;
    bool absent;       /* with `gone`: its topic */
    int64_t open_from; /* first offset of an open transaction; 0: there is none */
};

struct fake_log {
    uint32_t n_partitions, turn;
    char cluster_id[FR_CLUSTER_ID_MAX];
    struct fr_source_partition names[LOG_PARTITIONS];
    struct log_partition partitions[LOG_PARTITIONS];
    bool absent, down;
    bool of_broker;             /* the timestamps */
    uint32_t duplicates;        /* give so many records below the offset that was asked */
    uint32_t n_held;            /* events not released */
    uint32_t questions, checks; /* of offsets and marks; of all that is read */
    int64_t committed;
    uint64_t made; /* records appended, the number of the next one's event time */
};

struct fake_dead {
    uint32_t n;
    bool full;
    bool withheld;
    bool forget; /* there may be more than LETTERS: the last one is kept */
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
    struct service *next; /* made before it in this case */
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
    uint32_t n_batches, sizes[LOG_RECORDS];
    struct fr_batch_position last[LOG_PARTITIONS + FILES];
    int64_t until_ms, epoch_wall_ms;
    struct fr_ingest_skip skips[FR_SKIPS_MAX + 1]; /* asked for */
    size_t n_skips;
    char dir[32]; /* of files; empty: none */
    bool end_of_stream;
    struct fr_err err;
};

/* ---- the log ---- */

/* A record of n samples with event times T0 + number; n = 0: an empty array; n < 0: malformed. */
static inline void append(struct fake_log *log, uint32_t partition, int n)
{
    struct log_partition *p = &log->partitions[partition];
    struct fr_buffer text = {0};
    if (n < 0)
        fr_buffer_printf(&text, "{\"broken\":%llu}", (unsigned long long)log->made);
    else
        fr_buffer_printf(&text, "[");
    for (int i = 0; i < n; i++, log->made++)
        fr_buffer_printf(&text, "%s{\"t\":%llu,\"f\":{\"user_id\":%llu},\"y\":{\"click\":1}}", i ? "," : "",
                         (unsigned long long)(T0 + (long long)log->made), (unsigned long long)log->made);
    if (n >= 0)
        fr_buffer_printf(&text, "]");
    fr_put_u8(&text, 0);
    assert_true(p->n < LOG_RECORDS);
    p->records[p->n++] =
        (struct log_record){.offset = p->high++, .timestamp_ms = T0 + p->high, .value = (char *)text.data};
    p->available = p->n;
    p->end_told = false;
}

/* Offsets taken by transaction markers or compaction. */
static inline void skip_offsets(struct fake_log *log, uint32_t partition, int64_t n)
{
    log->partitions[partition].high += n;
    log->partitions[partition].end_told = false;
}

static inline void delete_before(struct fake_log *log, uint32_t partition, int64_t low)
{
    log->partitions[partition].low = low;
    if (log->partitions[partition].high < low)
        log->partitions[partition].high = low;
}

static inline enum fr_status log_discover(void *self, struct fr_source_layout *out, struct fr_err *err)
{
    struct fake_log *log = self;
    if (log->absent)
        return fr_err_set(err, FR_E_UNAVAILABLE, "topic samples does not exist");
    memcpy(out->cluster_id, log->cluster_id, sizeof(out->cluster_id));
    out->n_partitions = log->n_partitions;
    out->partitions = log->names;
    return FR_OK;
}

static inline int64_t log_offset_at(const struct log_partition *p, int64_t timestamp_ms)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->records[i].timestamp_ms >= timestamp_ms && p->records[i].offset >= p->low)
            return p->records[i].offset;
    return -1;
}

static inline int64_t stable_end(const struct log_partition *p)
{
    return p->open_from ? p->open_from : p->high;
}

static inline enum fr_status log_offsets(void *self, int64_t when, struct fr_source_answer *answers, uint32_t n,
                                         struct fr_err *err)
{
    struct fake_log *log = self;
    log->questions++;
    if (log->down)
        return fr_err_set(err, FR_E_UNAVAILABLE, "no offsets");
    for (uint32_t i = 0; i < n; i++) {
        const struct log_partition *p = &log->partitions[answers[i].partition];
        answers[i].why = p->gone ? "no leader" : "no right to describe";
        answers[i].offset = when == FR_SOURCE_EARLIEST ? p->low
                            : when == FR_SOURCE_LATEST ? p->high
                            : when == FR_SOURCE_STABLE ? stable_end(p)
                                                       : log_offset_at(p, when);
        answers[i].status = p->absent               ? FR_E_NOT_FOUND
                            : p->gone               ? FR_E_UNAVAILABLE
                            : p->denied             ? FR_E_DENIED
                            : answers[i].offset < 0 ? FR_EOF
                                                    : FR_OK;
    }
    return FR_OK;
}

static inline void log_give(struct fake_log *log, uint32_t partition, const struct log_record *record,
                            struct fr_source_event *out)
{
    log->n_held++;
    /* A copy that ends with the release, so that a late reader is seen by the address sanitizer. */
    size_t size = record->size ? record->size : strlen(record->value);
    char *value = memcpy(fr_alloc(1, size + 1), record->value, size);
    *out = (struct fr_source_event){
        .kind = FR_SOURCE_RECORD,
        .partition = partition,
        .offset = record->offset,
        .timestamp_ms = record->timestamp_ms,
        .of_broker = log->of_broker,
        .value = value,
        .size = size,
        .handle = value,
    };
}

static inline enum fr_status log_marks(void *self, struct fr_source_answer *answers, uint32_t n, struct fr_err *err)
{
    struct fake_log *log = self;
    (void)err;
    log->questions++;
    for (uint32_t i = 0; i < n; i++) {
        const struct log_partition *p = &log->partitions[answers[i].partition];
        answers[i].status = FR_EOF;
        for (uint32_t k = 0; k < p->n; k++)
            if (p->records[k].offset == answers[i].offset) {
                answers[i].status = FR_OK;
                answers[i].timestamp_ms = p->records[k].timestamp_ms;
                answers[i].crc32c = fr_crc32c(0, p->records[k].value, strlen(p->records[k].value));
            }
    }
    return FR_OK;
}

static inline void log_checked(void *self, bool all)
{
    ((struct fake_log *)self)->checks += all;
}

static inline enum fr_status log_begin(void *self, uint32_t partition, int64_t offset, struct fr_err *err)
{
    struct fake_log *log = self;
    struct log_partition *p = &log->partitions[partition];
    (void)err;
    assert_int_equal(p->begun, -1);
    p->begun = offset;
    p->next = 0;
    while (p->next < p->n && p->records[p->next].offset < offset)
        p->next++;
    p->next -= p->next < log->duplicates ? p->next : log->duplicates;
    p->end_told = p->reset_told = false;
    return FR_OK;
}

static inline void log_halt(void *self, uint32_t partition)
{
    struct fake_log *log = self;
    log->partitions[partition].begun = -1;
}

static inline bool log_poll_one(struct fake_log *log, uint32_t partition, struct fr_source_event *out)
{
    struct log_partition *p = &log->partitions[partition];
    if (p->begun < 0 || log->down)
        return false;
    *out = (struct fr_source_event){.partition = partition};
    if (p->gone && !p->reset_told) {
        p->reset_told = true;
        out->kind = FR_SOURCE_BROKEN;
        snprintf(out->text, sizeof(out->text), "unknown topic");
        return true;
    }
    if (p->denied && !p->reset_told) {
        p->reset_told = true;
        out->kind = FR_SOURCE_BROKEN;
        snprintf(out->text, sizeof(out->text), "no right to read");
        return true;
    }
    bool outside = p->next < p->n ? p->records[p->next].offset < p->low : p->begun < p->low && p->n == 0;
    if (outside && p->next >= p->fetched && !p->reset_told) {
        p->reset_told = true;
        out->kind = FR_SOURCE_RESET;
        return true;
    }
    if (p->reset_told)
        return false;
    if (p->next < p->available && p->records[p->next].offset < stable_end(p)) {
        log_give(log, partition, &p->records[p->next++], out);
        return true;
    }
    if ((p->available < p->n && !p->open_from) || p->end_told || p->begun > stable_end(p))
        return false;
    p->end_told = true;
    out->kind = FR_SOURCE_END;
    out->offset = stable_end(p);
    return true;
}

static inline enum fr_status log_poll(void *self, int64_t partition, int wait_ms, struct fr_source_event *out,
                                      struct fr_err *err)
{
    struct fake_log *log = self;
    (void)wait_ms;
    (void)err;
    if (partition >= 0)
        return log_poll_one(log, (uint32_t)partition, out) ? FR_OK : FR_AGAIN;
    for (uint32_t i = 0; i < log->n_partitions; i++)
        if (log_poll_one(log, log->turn++ % log->n_partitions, out))
            return FR_OK;
    return FR_AGAIN;
}

static inline void log_release(void *self, struct fr_source_event *event)
{
    struct fake_log *log = self;
    if (!event->handle)
        return;
    free(event->handle);
    event->handle = NULL;
    log->n_held--;
}

static inline size_t log_headers(void *self, const struct fr_source_event *event, struct fr_record_header *out,
                                 size_t capacity)
{
    (void)self;
    (void)event;
    assert_true(capacity >= 1);
    out[0] = (struct fr_record_header){"trace", "7", 1};
    return 1;
}

static inline void log_commit(void *self, const struct fr_positions *positions)
{
    struct fake_log *log = self;
    log->committed = positions->partitions[0].offset;
}

static inline int64_t log_high(void *self, uint32_t partition)
{
    struct fake_log *log = self;
    return log->partitions[partition].high;
}

static inline bool log_connected(void *self, char *problem, size_t size)
{
    struct fake_log *log = self;
    if (log->down)
        snprintf(problem, size, "brokers are down");
    return !log->down;
}

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

/* Those of the case that runs; its teardown, drop_services, frees them. */
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

/* From the owner's positions, as after a restart. */
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
    /* Whatever was in the rings is lost with the process; the batches are made anew. */
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
    s->sizes[s->n_batches++] = batch->n_samples;
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
