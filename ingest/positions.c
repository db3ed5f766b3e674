/* Positions: applying batches, the P2 equations, the stored form (section "positions" of an epoch).
 *
 * Stored form, little-endian: u32 form number; cluster id; u32 count; per partition topic, i32
 * partition, the offsets, the fingerprint and the ledger, every field in the order of the struct;
 * texts as (u8 length, bytes). Form 2, written if there is a skipped range, has after each
 * partition's ledger a u32 count and (i64 first, i64 last) of its ranges.
 *
 * Invariants: at most FR_PARTITIONS_MAX partitions, no topic-partition twice; an index never
 * changes.
 *
 * Owner: the owner loop thread (each copy has one). This file does not depend on Kafka. */
#include "ingest/positions.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"

enum { FORM_PLAIN = 1, FORM_SKIPS = 2 };

#define TERM(name, metric, help) {#name, metric, help},
const struct fr_ledger_term fr_positions_ledger[] = {FR_LEDGER(TERM)};

void fr_positions_release(struct fr_positions *positions)
{
    free(positions->partitions);
    *positions = (struct fr_positions){0};
}

static void reserve(struct fr_positions *positions, uint32_t count)
{
    FR_CHECK(count <= FR_PARTITIONS_MAX);
    if (count <= positions->capacity)
        return;
    uint32_t capacity = count < 8 ? 8 : count * 2;
    positions->partitions = fr_realloc(positions->partitions, capacity, sizeof(*positions->partitions));
    positions->capacity = capacity;
}

void fr_positions_copy(const struct fr_positions *from, struct fr_positions *to)
{
    reserve(to, from->count);
    memcpy(to->cluster_id, from->cluster_id, sizeof(to->cluster_id));
    if (from->count)
        memcpy(to->partitions, from->partitions, from->count * sizeof(*from->partitions));
    to->count = from->count;
}

bool fr_positions_find(const struct fr_positions *positions, const char *topic, int32_t partition, uint32_t *index)
{
    for (uint32_t i = 0; i < positions->count; i++) {
        const struct fr_partition_position *p = &positions->partitions[i];
        if (p->partition == partition && strcmp(p->topic, topic) == 0) {
            *index = i;
            return true;
        }
    }
    return false;
}

uint32_t fr_positions_index(struct fr_positions *positions, const char *topic, int32_t partition)
{
    uint32_t index;
    if (fr_positions_find(positions, topic, partition, &index))
        return index;
    FR_CHECK(strlen(topic) < FR_TOPIC_MAX);
    reserve(positions, positions->count + 1);
    struct fr_partition_position *p = &positions->partitions[positions->count];
    *p = (struct fr_partition_position){.partition = partition, .offset = -1, .fingerprint_offset = -1};
    memcpy(p->topic, topic, strlen(topic) + 1);
    return positions->count++;
}

void fr_positions_apply(struct fr_positions *positions, const struct fr_batch *batch)
{
    for (uint32_t i = 0; i < batch->n_positions; i++) {
        const struct fr_batch_position *b = &batch->positions[i];
        FR_CHECK(b->stream_index < positions->count);
        struct fr_partition_position *p = &positions->partitions[b->stream_index];
        p->offset = b->offset;
        p->item = b->item;
        p->fingerprint_offset = b->fingerprint.offset;
        p->fingerprint_timestamp_ms = b->fingerprint.timestamp_ms;
        p->fingerprint_crc32c = b->fingerprint.crc32c;
        p->delivered += b->delivered;
        p->decoded += b->decoded;
        p->dead_lettered += b->dead_lettered;
        p->lost += b->lost;
        p->samples += b->samples;
        p->trained += b->roles[FR_ROLE_TRAIN];
        p->metrics_only += b->roles[FR_ROLE_METRICS_ONLY];
        p->masked += b->roles[FR_ROLE_MASKED];
        p->quarantined += b->roles[FR_ROLE_QUARANTINED];
        p->skipped += b->skipped;
    }
}

bool fr_positions_balanced(const struct fr_positions *positions, struct fr_err *err)
{
    for (uint32_t i = 0; i < positions->count; i++) {
        const struct fr_partition_position *p = &positions->partitions[i];
        if (p->decoded + p->dead_lettered != p->delivered) {
            (void)fr_err_set(err, FR_E_STATE,
                             "%s/%" PRId32 ": %" PRIu64 " decoded + %" PRIu64
                             " dead-lettered records are not the %" PRIu64 " delivered",
                             p->topic, p->partition, p->decoded, p->dead_lettered, p->delivered);
            return false;
        }
        if (p->trained + p->metrics_only + p->masked + p->quarantined + p->skipped != p->samples) {
            (void)fr_err_set(
                err, FR_E_STATE,
                "%s/%" PRId32 ": %" PRIu64 " trained + %" PRIu64 " metrics-only + %" PRIu64 " masked + %" PRIu64
                " quarantined + %" PRIu64 " skipped samples are not the %" PRIu64 " decoded",
                p->topic, p->partition, p->trained, p->metrics_only, p->masked, p->quarantined, p->skipped, p->samples);
            return false;
        }
    }
    return true;
}

void fr_positions_put_ledger(const struct fr_partition_position *position, struct fr_buffer *out)
{
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        fr_buffer_printf(out, ",\"%s\":%" PRIu64, fr_positions_ledger[k].name, position->ledger[k]);
}

/* ---- stored form ---- */

static void put_text(struct fr_buffer *out, const char *text)
{
    size_t size = strlen(text);
    FR_CHECK(size <= UINT8_MAX);
    fr_put_u8(out, (uint8_t)size);
    fr_buffer_append(out, text, size);
}

static void read_text(struct fr_reader *in, char *out, size_t capacity)
{
    uint8_t size = fr_take_u8(in);
    const uint8_t *bytes = fr_take(in, size);
    if (!bytes || size >= capacity || memchr(bytes, 0, size)) {
        in->failed = 1;
        return;
    }
    memcpy(out, bytes, size);
    out[size] = 0;
}

static uint32_t form_of(const struct fr_positions *positions)
{
    for (uint32_t i = 0; i < positions->count; i++)
        if (positions->partitions[i].n_skips)
            return FORM_SKIPS;
    return FORM_PLAIN;
}

static void put_skips(struct fr_buffer *out, const struct fr_partition_position *p)
{
    fr_put_u32(out, p->n_skips);
    for (uint32_t i = 0; i < p->n_skips; i++) {
        fr_put_u64(out, (uint64_t)p->skips[i].first);
        fr_put_u64(out, (uint64_t)p->skips[i].last);
    }
}

void fr_positions_encode(const struct fr_positions *positions, struct fr_buffer *out)
{
    uint32_t form = form_of(positions);
    fr_put_u32(out, form);
    put_text(out, positions->cluster_id);
    fr_put_u32(out, positions->count);
    for (uint32_t i = 0; i < positions->count; i++) {
        const struct fr_partition_position *p = &positions->partitions[i];
        put_text(out, p->topic);
        fr_put_u32(out, (uint32_t)p->partition);
        fr_put_u64(out, (uint64_t)p->offset);
        fr_put_u32(out, p->item);
        fr_put_u64(out, (uint64_t)p->fingerprint_offset);
        fr_put_u64(out, (uint64_t)p->fingerprint_timestamp_ms);
        fr_put_u32(out, p->fingerprint_crc32c);
        for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
            fr_put_u64(out, p->ledger[k]);
        if (form == FORM_SKIPS)
            put_skips(out, p);
    }
}

static void read_skips(struct fr_reader *in, struct fr_partition_position *p)
{
    p->n_skips = fr_take_u32(in);
    if (p->n_skips > FR_SKIPS_MAX) {
        p->n_skips = 0;
        in->failed = 1;
    }
    for (uint32_t i = 0; i < p->n_skips; i++) {
        p->skips[i].first = (int64_t)fr_take_u64(in);
        p->skips[i].last = (int64_t)fr_take_u64(in);
        if (p->skips[i].first < 0 || p->skips[i].last < p->skips[i].first)
            in->failed = 1;
    }
}

static void read_partition(struct fr_reader *in, struct fr_partition_position *p)
{
    read_text(in, p->topic, sizeof(p->topic));
    p->partition = (int32_t)fr_take_u32(in);
    p->offset = (int64_t)fr_take_u64(in);
    p->item = fr_take_u32(in);
    p->fingerprint_offset = (int64_t)fr_take_u64(in);
    p->fingerprint_timestamp_ms = (int64_t)fr_take_u64(in);
    p->fingerprint_crc32c = fr_take_u32(in);
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        p->ledger[k] = fr_take_u64(in);
    if (p->partition < 0 || p->offset < -1 || p->fingerprint_offset < -1 || p->topic[0] == 0)
        in->failed = 1;
}

enum fr_status fr_positions_parse(const uint8_t *bytes, size_t size, struct fr_positions *out)
{
    struct fr_reader in = {bytes, bytes + size, 0};
    struct fr_positions parsed = {0};
    enum fr_status status = FR_E_CORRUPT;
    uint32_t form = fr_take_u32(&in);
    read_text(&in, parsed.cluster_id, sizeof(parsed.cluster_id));
    uint32_t count = fr_take_u32(&in);
    if (in.failed || form < FORM_PLAIN || form > FORM_SKIPS || count > FR_PARTITIONS_MAX)
        goto out;
    for (uint32_t i = 0; i < count; i++) {
        struct fr_partition_position p = {0};
        uint32_t index;
        read_partition(&in, &p);
        if (form == FORM_SKIPS)
            read_skips(&in, &p);
        if (in.failed || fr_positions_find(&parsed, p.topic, p.partition, &index))
            goto out;
        reserve(&parsed, i + 1);
        parsed.partitions[i] = p;
        parsed.count = i + 1;
    }
    if (in.at != in.end || form != form_of(&parsed))
        goto out;
    fr_positions_release(out);
    *out = parsed;
    return FR_OK;
out:
    fr_positions_release(&parsed);
    return status;
}
