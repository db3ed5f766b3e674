/* A log of samples in memory, reached through the table of a sample source.
 * It has partitions with a beginning, an end, markers
 * and transactions, which a case makes, cuts and makes again. */
#ifndef FR_TESTS_INGEST_FAKE_LOG_H
#define FR_TESTS_INGEST_FAKE_LOG_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "ingest/ingest.h"

#define T0 1700000000000LL

#ifndef FR_TEST_LOG_PARTITIONS
#define FR_TEST_LOG_PARTITIONS 4
#define FR_TEST_LOG_RECORDS 4096 /* of each */
#endif

enum { LOG_PARTITIONS = FR_TEST_LOG_PARTITIONS, LOG_RECORDS = FR_TEST_LOG_RECORDS };

struct log_record {
    int64_t offset, timestamp_ms;
    char *value;
    size_t size; /* 0: the value is a text */
};

struct log_partition {
    uint32_t n, available; /* records; available: how many of them a poll may give now */
    struct log_record records[LOG_RECORDS];
    int64_t low, high; /* high may lie beyond the last record: markers */
    int64_t begun;     /* offset asked last; -1: not read */
    uint32_t next;     /* index of the next record to give */
    uint32_t fetched;  /* records that the reader has, even if the log lost them since */
    bool end_reported, reset_told, gone, denied;
    bool absent;       /* with `gone`: its topic is gone, too */
    int64_t open_from; /* first offset of an open transaction; 0: there is none */
};

struct fake_log {
    uint32_t n_partitions, turn;
    char cluster_id[FR_CLUSTER_ID_MAX];
    struct fr_source_partition names[LOG_PARTITIONS];
    struct log_partition partitions[LOG_PARTITIONS];
    bool absent, down;
    bool of_broker;             /* the timestamps */
    uint32_t duplicates;        /* number of records to give that lie before the requested offset */
    uint32_t n_held;            /* events not released */
    uint32_t questions, checks; /* of offsets and marks; of all that is read */
    int64_t committed;
    uint64_t made; /* records appended, the number of the next one's event time */
};

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
    p->end_reported = false;
}

/* Offsets taken by transaction markers or compaction. */
static inline void skip_offsets(struct fake_log *log, uint32_t partition, int64_t n)
{
    log->partitions[partition].high += n;
    log->partitions[partition].end_reported = false;
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
    /* The record is a copy that is freed at its release, so that the address sanitizer finds a late
     * reader. */
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
    p->end_reported = p->reset_told = false;
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
    if ((p->available < p->n && !p->open_from) || p->end_reported || p->begun > stable_end(p))
        return false;
    p->end_reported = true;
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

#endif
