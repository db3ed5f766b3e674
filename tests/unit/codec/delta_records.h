/* Delta records that the writer made, each kept as an allocation of its exact size. */
#ifndef DELTA_RECORDS_H
#define DELTA_RECORDS_H

#include "case.h"

#include "golden_epoch.h"

enum { RECORDS_MAX = 4096 };

struct records {
    size_t count;
    struct {
        uint32_t partition, piece;
        size_t size;
        uint8_t *bytes; /* an exact allocation, so that a read past its end shows */
    } list[RECORDS_MAX];
};

static inline enum fr_status keep(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct records *records = self;
    if (records->count == RECORDS_MAX)
        return FR_E_LIMIT;
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    records->list[records->count].partition = partition;
    records->list[records->count].piece = piece;
    records->list[records->count].size = size;
    records->list[records->count++].bytes = copy;
    return FR_OK;
}

static inline void drop_records(struct records *records)
{
    for (size_t i = 0; i < records->count; i++)
        free(records->list[i].bytes);
    records->count = 0;
}

static struct records all;

static inline void write_golden(struct golden *g)
{
    uint64_t saturated = 0;
    drop_records(&all);
    assert_int_equal(fr_delta_write(&g->settings, &g->epoch, keep, &all, &saturated), FR_OK);
}

static inline struct fr_delta_record read_ok(size_t i)
{
    struct fr_delta_record record;
    struct fr_err err = {0};
    enum fr_status status = fr_delta_read(all.list[i].bytes, all.list[i].size, &record, &err);
    if (status != FR_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, FR_OK);
    return record;
}

FR_FIXTURE(release_all)
{
    drop_records(&all);
    return 0;
}

#endif
