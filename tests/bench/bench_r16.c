/* The stream of the reference model R16 (bench.h): ids by Zipf, dense values normal, a label that
 * two of the slots explain, so that gradients and AUC are those of a model that learns. Event time:
 * 1 ms a sample from a fixed date.
 *
 * Determinism: a function of the seed. */
#include <msgpack.h>
#include <string.h>

#include "base/math.h"
#include "base/random.h"
#include "bench.h"
#include "samples/transcode.h"

enum { DRAW_ID, DRAW_DENSE, DRAW_LABEL, WEIGHT };

static const int64_t start_ms = INT64_C(1767225600000);

void fr_bench_r16_init(struct fr_bench_r16 *stream, uint64_t seed, uint32_t ids)
{
    *stream = (struct fr_bench_r16){.seed = seed};
    fr_tool_zipf_init(&stream->zipf, ids, 1.05);
}

void fr_bench_r16_release(struct fr_bench_r16 *stream)
{
    fr_tool_zipf_release(&stream->zipf);
}

/* ---- one sample's draws ---- */

static uint32_t draw_id(const struct fr_bench_r16 *stream, uint32_t slot)
{
    return fr_zipf_rank(&stream->zipf, fr_random_u64(stream->seed, DRAW_ID, stream->index, slot));
}

static float draw_dense(const struct fr_bench_r16 *stream, uint32_t i)
{
    return (float)fr_random_uniform(stream->seed, DRAW_DENSE, stream->index, i) - 0.5f;
}

static bool draw_label(const struct fr_bench_r16 *stream)
{
    float logit = -1.0f;
    for (uint32_t slot = 0; slot < 2; slot++)
        logit += (float)(2.0 * fr_random_uniform(stream->seed, WEIGHT, slot, draw_id(stream, slot)) - 1.0);
    return fr_random_uniform(stream->seed, DRAW_LABEL, stream->index, 0) < (double)fr_sigmoidf(logit);
}

/* ---- records ---- */

static void put_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static void put_slot_name(msgpack_packer *packer, uint32_t slot)
{
    const char name[4] = {'s', (char)('0' + slot / 10), (char)('0' + slot % 10), 0};
    put_text(packer, name);
}

/* A map of id slots [from, to) and, with_dense, the dense ones. */
static void put_slots(const struct fr_bench_r16 *stream, msgpack_packer *packer, const uint32_t slots[2],
                      bool with_dense)
{
    msgpack_pack_map(packer, slots[1] - slots[0] + with_dense);
    for (uint32_t slot = slots[0]; slot < slots[1]; slot++) {
        put_slot_name(packer, slot);
        msgpack_pack_uint32(packer, draw_id(stream, slot));
    }
    if (!with_dense)
        return;
    put_text(packer, "dense");
    msgpack_pack_array(packer, FR_R16_DENSE);
    for (uint32_t i = 0; i < FR_R16_DENSE; i++)
        msgpack_pack_float(packer, draw_dense(stream, i));
}

static void put_sample(struct fr_bench_r16 *stream, msgpack_packer *packer, uint32_t first_slot, bool with_time)
{
    msgpack_pack_map(packer, 2 + with_time);
    put_text(packer, "f");
    put_slots(stream, packer, (uint32_t[2]){first_slot, FR_R16_SLOTS}, true);
    put_text(packer, "y");
    msgpack_pack_map(packer, 1);
    put_text(packer, "click");
    msgpack_pack_uint8(packer, draw_label(stream));
    if (with_time) {
        put_text(packer, "t");
        msgpack_pack_int64(packer, start_ms + (int64_t)stream->index);
    }
    stream->index++;
}

void fr_bench_r16_append(struct fr_bench_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    put_sample(stream, &packer, 0, true);
}

void fr_bench_r16_append_record(struct fr_bench_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_array(&packer, FR_R16_PACK);
    for (uint32_t i = 0; i < FR_R16_PACK; i++)
        fr_bench_r16_append(stream, out);
}

void fr_bench_r16_append_groups(struct fr_bench_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_array(&packer, FR_R16_PACK / FR_R16_GROUP);
    for (uint32_t g = 0; g < FR_R16_PACK / FR_R16_GROUP; g++) {
        msgpack_pack_map(&packer, 3);
        put_text(&packer, "shared");
        put_slots(stream, &packer, (uint32_t[2]){0, FR_R16_SLOTS / 2}, false);
        put_text(&packer, "t");
        msgpack_pack_int64(&packer, start_ms + (int64_t)stream->index);
        put_text(&packer, "items");
        msgpack_pack_array(&packer, FR_R16_GROUP);
        for (uint32_t i = 0; i < FR_R16_GROUP; i++)
            put_sample(stream, &packer, FR_R16_SLOTS / 2, false);
    }
}

/* {"b": bytes}, and the bytes are used up. */
static void put_packed(msgpack_packer *packer, struct fr_buffer *bytes)
{
    msgpack_pack_map(packer, 1);
    put_text(packer, "b");
    msgpack_pack_bin(packer, bytes->size);
    msgpack_pack_bin_body(packer, bytes->data, bytes->size);
    fr_buffer_clear(bytes);
}

static void put_float(struct fr_buffer *out, float v)
{
    fr_buffer_append(out, &v, sizeof(v));
}

void fr_bench_r16_append_block(struct fr_bench_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    struct fr_buffer column = {0};
    uint64_t first = stream->index, end = first + FR_R16_BLOCK;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    msgpack_pack_map(&packer, 4);
    put_text(&packer, "n");
    msgpack_pack_uint32(&packer, FR_R16_BLOCK);
    put_text(&packer, "cols");
    msgpack_pack_map(&packer, FR_R16_SLOTS + 1);
    for (uint32_t slot = 0; slot < FR_R16_SLOTS; slot++) {
        for (stream->index = first; stream->index < end; stream->index++)
            fr_put_u64(&column, draw_id(stream, slot));
        put_slot_name(&packer, slot);
        put_packed(&packer, &column);
    }
    for (stream->index = first; stream->index < end; stream->index++)
        for (uint32_t i = 0; i < FR_R16_DENSE; i++)
            put_float(&column, draw_dense(stream, i));
    put_text(&packer, "dense");
    put_packed(&packer, &column);
    for (stream->index = first; stream->index < end; stream->index++)
        put_float(&column, draw_label(stream));
    put_text(&packer, "y");
    msgpack_pack_map(&packer, 1);
    put_text(&packer, "click");
    put_packed(&packer, &column);
    for (stream->index = first; stream->index < end; stream->index++)
        fr_put_u64(&column, (uint64_t)start_ms + stream->index);
    put_text(&packer, "t");
    put_packed(&packer, &column);
    fr_buffer_release(&column);
}
