/* The stream of the reference model R16 (bench.h): ids by Zipf, dense values normal, a label that two of the slots
 * explain, so that gradients and AUC are those of a model that learns. Event time: 1 ms a sample from a fixed date.
 * Determinism: a function of the seed. */
#include <msgpack.h>

#include "base/math.h"
#include "base/random.h"
#include "bench.h"
#include "transcode.h"

enum { DRAW_ID, DRAW_DENSE, DRAW_LABEL, WEIGHT };

static const int64_t start_ms = INT64_C(1767225600000);

void fr_r16_init(struct fr_r16 *stream, uint64_t seed)
{
    *stream = (struct fr_r16){.seed = seed};
    fr_zipf_init(&stream->zipf, FR_R16_IDS, 1.05);
}

void fr_r16_release(struct fr_r16 *stream)
{
    fr_zipf_release(&stream->zipf);
}

void fr_r16_append(struct fr_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_pack_write);
    msgpack_pack_map(&packer, 3);
    msgpack_pack_str(&packer, 1);
    msgpack_pack_str_body(&packer, "f", 1);
    msgpack_pack_map(&packer, FR_R16_SLOTS + 1);
    float logit = -1.0f;
    for (uint32_t slot = 0; slot < FR_R16_SLOTS; slot++) {
        char name[3] = {'s', (char)('0' + slot / 10), (char)('0' + slot % 10)};
        uint32_t id = fr_zipf_rank(&stream->zipf, fr_random_u64(stream->seed, DRAW_ID, stream->index, slot));
        if (slot < 2)
            logit += (float)(2.0 * fr_random_uniform(stream->seed, WEIGHT, slot, id) - 1.0);
        msgpack_pack_str(&packer, sizeof(name));
        msgpack_pack_str_body(&packer, name, sizeof(name));
        msgpack_pack_uint32(&packer, id);
    }
    msgpack_pack_str(&packer, 5);
    msgpack_pack_str_body(&packer, "dense", 5);
    msgpack_pack_array(&packer, FR_R16_DENSE);
    for (uint32_t i = 0; i < FR_R16_DENSE; i++)
        msgpack_pack_float(&packer, (float)fr_random_uniform(stream->seed, DRAW_DENSE, stream->index, i) - 0.5f);
    msgpack_pack_str(&packer, 1);
    msgpack_pack_str_body(&packer, "y", 1);
    msgpack_pack_map(&packer, 1);
    msgpack_pack_str(&packer, 5);
    msgpack_pack_str_body(&packer, "click", 5);
    double coin = fr_random_uniform(stream->seed, DRAW_LABEL, stream->index, 0);
    msgpack_pack_uint8(&packer, coin < (double)fr_sigmoidf(logit));
    msgpack_pack_str(&packer, 1);
    msgpack_pack_str_body(&packer, "t", 1);
    msgpack_pack_int64(&packer, start_ms + (int64_t)stream->index);
    stream->index++;
}

void fr_r16_append_record(struct fr_r16 *stream, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_pack_write);
    msgpack_pack_array(&packer, FR_R16_PACK);
    for (uint32_t i = 0; i < FR_R16_PACK; i++)
        fr_r16_append(stream, out);
}
