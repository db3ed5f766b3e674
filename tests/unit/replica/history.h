/* A small trainer for the replica's tests: makes epochs over a model of two tables, keeps what a
 * replica must then hold, and the records as they would lie on the topic. */
#ifndef REPLICA_HISTORY_H
#define REPLICA_HISTORY_H

#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "freshet/replica.h"

enum { PARTITIONS = 3, KEYS = 400, RECORDS_MAX = 20000, KERNEL = 7 };

static char model_cfg[] =
    "{\"chunk_rows\":128,\"labels\":[{\"name\":\"click\"}],\"layers\":[{\"concat\":[{\"sum\":\"user_id.v\"},{\"sum\":"
    "\"item_id.v\"},{\"mean\":\"history.v\"},\"price\"],\"name\":\"x\"},{\"activation\":\"none\",\"dense\":[\"x\"],"
    "\"name\":\"z\",\"units\":[1]},{\"name\":\"wide\",\"sum\":[{\"sum\":\"item_id.w\"}]},{\"add\":[\"z\",\"wide\"],"
    "\"name\":\"out\"}],\"quantize\":\"f16\",\"slots\":[{\"id\":\"auto\",\"kind\":\"sparse\",\"max_ids\":1024,\"name\":"
    "\"user_id\",\"namespace\":\"user\",\"table\":\"user\"},{\"id\":\"auto\",\"kind\":\"sparse\",\"max_ids\":1024,"
    "\"name\":\"item_id\",\"namespace\":\"item\",\"table\":\"item\"},{\"id\":\"auto\",\"kind\":\"sequence\",\"max_"
    "len\":"
    "5,\"name\":\"history\",\"namespace\":\"item\",\"table\":\"item\"},{\"default\":0,\"dim\":1,\"indicator\":false,"
    "\"kind\":\"dense\","
    "\"name\":\"price\",\"transform\":\"none\"}],\"tables\":[{\"name\":\"user\",\"parts\":[{\"dim\":2,\"name\":\"v\"}]}"
    ",{\"name\":\"item\",\"parts\":[{\"dim\":1,\"name\":\"w\"},{\"dim\":2,\"name\":\"v\"}]}],\"tasks\":[{\"label\":"
    "\"click\",\"logit\":\"out\",\"loss\":\"logloss\",\"name\":\"click\"}],\"version\":1}";

struct topic_record {
    uint32_t partition;
    uint64_t epoch;
    size_t size;
    uint8_t *bytes;
};

struct history {
    struct fr_codec_settings settings;
    struct fr_codec_table tables[2];
    uint64_t timeline, epoch, digest;
    uint64_t salt; /* another writer's epochs have other digests */
    uint64_t random;
    bool present[2][KEYS];
    float values[2][KEYS][3];
    float kernel[KERNEL], bias[1];
    struct fr_delta_row rows[2 * KEYS];
    size_t n_rows;
    struct topic_record *topic;
    size_t n_topic;
};

static inline uint64_t key_of(int table, int k)
{
    return fr_fmix64((uint64_t)table * 100000 + (uint64_t)k + 1);
}

static inline uint64_t draw(struct history *h)
{
    h->random = h->random * 6364136223846793005u + 1442695040888963407u;
    return h->random >> 33;
}

static inline void history_cfg(struct history *h, char *cfg)
{
    struct fr_sha256 sha = fr_sha256(cfg, strlen(cfg));
    h->settings.cfg = cfg;
    h->settings.cfg_size = strlen(cfg);
    h->settings.fp = fr_sha256_u64(&sha);
}

static inline struct history *history_new(uint64_t salt)
{
    struct history *h = calloc(1, sizeof(*h));
    h->timeline = 1;
    h->salt = salt;
    h->random = 12345 + salt;
    h->tables[0] = (struct fr_codec_table){.name = "user", .n_parts = 1, .value_floats = 2};
    h->tables[0].parts[0].dim = 2;
    strcpy(h->tables[0].parts[0].name, "v");
    h->tables[1] = (struct fr_codec_table){.name = "item", .n_parts = 2, .value_floats = 3};
    h->tables[1].parts[0].dim = 1;
    strcpy(h->tables[1].parts[0].name, "w");
    h->tables[1].parts[1].dim = 2;
    strcpy(h->tables[1].parts[1].name, "v");
    h->settings = (struct fr_codec_settings){.revision = 1,
                                             .np = PARTITIONS,
                                             .quantize = FR_CODEC_F16,
                                             .piece_max = 1500,
                                             .model = "ctr",
                                             .kernel = "some kernel",
                                             .n_tables = 2,
                                             .tables = h->tables};
    history_cfg(h, model_cfg);
    h->topic = calloc(RECORDS_MAX, sizeof(*h->topic));
    return h;
}

static inline void history_free(struct history *h)
{
    for (size_t i = 0; i < h->n_topic; i++)
        free(h->topic[i].bytes);
    free(h->topic);
    free(h);
}

static inline enum fr_status keep_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct history *h = self;
    (void)piece;
    assert_true(h->n_topic < RECORDS_MAX);
    uint8_t *copy = malloc(size);
    memcpy(copy, bytes, size);
    h->topic[h->n_topic++] = (struct topic_record){partition, h->epoch, size, copy};
    return FR_OK;
}

/* Changes about `changes` rows, drops some. */
static inline void history_change(struct history *h, int changes)
{
    bool touched[2][KEYS] = {{false}};
    for (int i = 0; i < changes; i++) {
        int t = (int)(draw(h) % 2), k = (int)(draw(h) % KEYS);
        touched[t][k] = true;
        h->present[t][k] = draw(h) % 4 != 0;
        for (int d = 0; d < 3; d++)
            h->values[t][k][d] = (float)((double)(draw(h) % 20001) / 10000.0 - 1.0);
    }
    h->n_rows = 0;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++)
            if (touched[t][k])
                h->rows[h->n_rows++] = (struct fr_delta_row){.key = key_of(t, k),
                                                             .table = (uint32_t)t,
                                                             .why = h->present[t][k] ? 0 : 1,
                                                             .values = h->present[t][k] ? h->values[t][k] : NULL};
    for (int i = 0; i < KERNEL; i++)
        h->kernel[i] = (float)((double)(draw(h) % 20001) / 10000.0 - 1.0);
    h->bias[0] = (float)((double)(draw(h) % 20001) / 10000.0 - 1.0);
}

static inline int row_order(const void *a, const void *b)
{
    const struct fr_delta_row *x = a, *y = b;
    if (x->table != y->table)
        return x->table < y->table ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

struct write_options {
    bool model, no_dense;
    const struct fr_delta_rewind *rewind;
    uint64_t from;     /* 0: the epoch */
    uint64_t previous; /* used when set_previous */
    bool set_previous;
};

static inline void history_write(struct history *h, const struct write_options *options)
{
    qsort(h->rows, h->n_rows, sizeof(h->rows[0]), row_order);
    uint64_t previous = options->set_previous ? options->previous : h->digest, saturated = 0;
    h->epoch += 1;
    h->digest = fr_fmix64(h->digest ^ fr_fmix64(h->epoch + h->salt * 1000003u));
    struct fr_delta_dense dense[2] = {{"z/kernel", 2, {KERNEL, 1}, KERNEL, h->kernel, false},
                                      {"z/bias", 1, {1, 0}, 1, h->bias, false}};
    struct fr_delta_offset offset = {"samples", 0, (int64_t)h->epoch * 10};
    struct fr_delta_epoch epoch = {.timeline = h->timeline,
                                   .epoch = h->epoch,
                                   .from = options->from ? options->from : h->epoch,
                                   .digest = h->digest,
                                   .previous = previous,
                                   .with_model = options->model,
                                   .rewind = options->rewind,
                                   .rows = h->rows,
                                   .n_rows = h->n_rows,
                                   .dense = dense,
                                   .n_dense = options->no_dense ? 0 : 2,
                                   .commit = {.wm_ms = 1700000000000 + (int64_t)h->epoch,
                                              .samples = h->epoch * 100,
                                              .t_ms = 1700000005000 + (int64_t)h->epoch,
                                              .n_offsets = 1,
                                              .offsets = &offset}};
    assert_int_equal(fr_delta_write(&h->settings, &epoch, keep_record, h, &saturated), FR_OK);
}

static inline void history_epoch(struct history *h, int changes)
{
    history_change(h, changes);
    history_write(h, &(struct write_options){.model = h->epoch == 0});
}

/* Epochs 1 .. n. */
static inline struct history *history_of(int n, int changes)
{
    struct history *h = history_new(0);
    for (int i = 0; i < n; i++)
        history_epoch(h, changes);
    return h;
}

static inline struct freshet_replica *replica_new(void)
{
    struct freshet_replica *replica = NULL;
    assert_int_equal(freshet_replica_new(&(struct freshet_replica_options){0}, &replica), FRESHET_OK);
    return replica;
}

static inline int feed(struct freshet_replica *replica, const struct topic_record *record, struct freshet_event *event)
{
    return freshet_replica_feed(replica, record->partition, record->bytes, record->size, event);
}

static inline void feed_ok(struct freshet_replica *replica, const struct history *h, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        struct freshet_event event;
        int status = feed(replica, &h->topic[i], &event);
        if (status != FRESHET_OK)
            print_error("record %zu: %s\n", i, event.problem);
        assert_int_equal(status, FRESHET_OK);
    }
}

static inline int discard(void *self, const void *bytes, size_t size)
{
    (void)self, (void)bytes, (void)size;
    return 0;
}

static inline uint64_t dump_hash(const struct freshet_replica *replica)
{
    uint64_t hash = 0;
    assert_int_equal(freshet_replica_dump(replica, discard, NULL, &hash), FRESHET_OK);
    return hash;
}

/* Of all records of the topic; releases both. */
static inline void ends_like_one_that_never_stopped(struct freshet_replica *replica, struct history *h)
{
    struct freshet_replica *whole = replica_new();
    feed_ok(whole, h, 0, h->n_topic);
    assert_int_equal(dump_hash(replica), dump_hash(whole));
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

static inline struct freshet_replica_info info_of(const struct freshet_replica *replica)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    return info;
}

/* The crc after a change of the record's bytes. */
static inline void fit_crc(struct topic_record *record)
{
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, record->bytes, record->size - 9));
    memcpy(record->bytes + record->size - 4, &crc, 4);
}

/* Returns whether a new replica can begin with this record; without such a record the partition is
 * passed over. */
static inline bool begins(const struct topic_record *at)
{
    struct fr_delta_record record;
    assert_int_equal(fr_delta_read(at->bytes, at->size, &record, NULL), FR_OK);
    return record.from == 1 && record.piece == 0;
}

#endif
