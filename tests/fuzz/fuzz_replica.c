/* Fuzz target of the delta format's reader and the replica: any records in any order end in an
 * answer, and what is served can be dumped, looked at and scored. The input is a list of records
 * without their crc: u16 size, u8 partition, bytes. Each gets a crc that fits, and the fingerprint
 * of the newest model's cfg, since otherwise nothing would come behind these checks. An odd first
 * byte of the input limits the memory of the handle. Seeds are histories by our own writer
 * (seeds.c). */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "codec/codec.h"
#include "freshet/replica.h"
#include "fuzz.h"

enum { SEAL = 9, FP_WITHIN = 64, SCORES = 64, LIMIT = 1 << 21, SEAL_KEY = 5 };

static int discard(void *self, const void *bytes, size_t size)
{
    (void)self;
    fuzz_read(bytes, size);
    return 0;
}

static void seal(uint8_t *record, size_t size)
{
    memcpy(record + size,
           "\xa3"
           "crc\xce",
           SEAL_KEY);
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, record, size));
    memcpy(record + size + SEAL_KEY, &crc, sizeof(crc));
}

/* size bytes become a record that fits *fp, which a model record sets. */
static void make_whole(uint8_t *record, size_t size, uint64_t *fp)
{
    static const uint8_t key[4] = {0xa2, 'f', 'p', 0xcf};
    struct fr_delta_record read;
    seal(record, size);
    uint8_t *at = memmem(record, size < FP_WITHIN ? size : FP_WITHIN, key, sizeof(key));
    if (!at || (size_t)(at - record) + sizeof(key) + sizeof(*fp) > size)
        return;
    if (fr_delta_read(record, size + SEAL, &read, NULL) == FR_OK && read.kind == FR_DELTA_MODEL) {
        struct fr_sha256 sha = fr_sha256(read.model_record.cfg.bytes, read.model_record.cfg.size);
        *fp = fr_sha256_u64(&sha);
    }
    if (*fp == 0)
        return;
    uint64_t big_endian = __builtin_bswap64(*fp);
    memcpy(at + sizeof(key), &big_endian, sizeof(big_endian));
    seal(record, size);
}

static void look(struct freshet_replica *replica)
{
    static const char line[] = "{\"f\":{\"user_id\":1,\"item_id\":[1,2,3,\"x\"],\"history\":[7,8],\"price\":2.5}}";
    float scores[SCORES], values[4096];
    struct freshet_replica_info info;
    uint64_t hash;
    freshet_replica_get_info(replica, &info);
    (void)freshet_replica_dump(replica, discard, NULL, &hash);
    uint32_t tasks = freshet_replica_tasks(replica), n = tasks ? SCORES / tasks : 1;
    if (info.scorable)
        (void)freshet_replica_score_json(replica, line, sizeof(line) - 1, scores, &n);
    for (uint32_t t = 0; t < freshet_replica_tables(replica); t++)
        for (uint32_t p = 0; p < freshet_replica_parts(replica, t); p++) {
            uint32_t dim = 4096;
            (void)freshet_replica_row(replica, freshet_replica_table_name(replica, t),
                                      freshet_replica_part_name(replica, t, p), 1, values, &dim);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct freshet_replica *replica = NULL;
    uint64_t fp = 0;
    FR_CHECK(freshet_replica_new(&(struct freshet_replica_options){.staging_max = 1 << 20}, &replica) == FRESHET_OK);
    if (size > 0 && data[0] & 1)
        freshet_replica_limit_memory(replica, LIMIT);
    for (size_t at = 1; at + 3 <= size;) {
        size_t n = data[at] | (size_t)data[at + 1] << 8;
        uint32_t partition = data[at + 2];
        at += 3;
        n = n < size - at ? n : size - at;
        uint8_t *record = fuzz_copy(data + at, n, SEAL);
        at += n;
        make_whole(record, n, &fp);
        struct freshet_event event;
        (void)freshet_replica_feed(replica, partition, record, n + SEAL, &event);
        free(record);
    }
    look(replica);
    freshet_replica_free(replica);
    return 0;
}
