/* The public dump's writer: see codec/dump.h for the format. A line is built in one buffer, hashed
 * and handed to the sink; nothing else is kept, so a dump of any size needs the memory of its
 * longest line.
 *
 * The writer does not collect or sort. */
#include "codec/dump.h"

#include <inttypes.h>

enum { PHASE_ROWS, PHASE_DENSE, PHASE_ENDED };

void fr_dump_init(struct fr_dump *dump, enum fr_codec_quantize quantize, fr_dump_sink *sink, void *self)
{
    *dump = (struct fr_dump){.sink = sink, .self = self, .quantize = quantize, .hash = fr_xxh3_stream_new()};
}

void fr_dump_release(struct fr_dump *dump)
{
    if (!dump)
        return;
    fr_xxh3_stream_free(dump->hash);
    fr_buffer_release(&dump->line);
    fr_buffer_release(&dump->steps);
    *dump = (struct fr_dump){0};
}

/* Returns the values of a row as a replica holds them after i8. */
static const void *in_steps(struct fr_dump *dump, const void *values, uint64_t count)
{
    fr_buffer_clear(&dump->steps);
    int8_t *steps = (int8_t *)fr_buffer_reserve(&dump->steps, (size_t)count * (1 + sizeof(float)) + 1);
    float scale = fr_codec_i8(values, (size_t)count, steps, NULL);
    uint8_t *held = dump->steps.data + count;
    for (uint64_t i = 0; i < count; i++) {
        float value = (float)steps[i] * scale;
        memcpy(held + i * sizeof(value), &value, sizeof(value));
    }
    return held;
}

static void put_values(struct fr_dump *dump, const void *values, uint64_t count, enum fr_codec_quantize quantize)
{
    if (quantize == FR_CODEC_I8)
        values = in_steps(dump, values, count);
    fr_put_u8(&dump->line, '[');
    for (uint64_t i = 0; i < count; i++) {
        float value = fr_quantized(fr_load_f32((const uint8_t *)values + i * 4), quantize);
        if (i > 0)
            fr_put_u8(&dump->line, ',');
        fr_buffer_number(&dump->line, value);
    }
    fr_put_u8(&dump->line, ']');
}

enum fr_status fr_dump_line(struct fr_dump *dump)
{
    fr_xxh3_stream_update(dump->hash, dump->line.data, dump->line.size);
    int refused = dump->sink(dump->self, dump->line.data, dump->line.size);
    fr_buffer_clear(&dump->line);
    return refused == 0 ? FR_OK : FR_E_IO;
}

/* Whether the line keeps the order: names ascend, and keys ascend among the rows of one table. */
static bool in_order(struct fr_dump *dump, int phase, const char *name, uint64_t key)
{
    size_t size = strlen(name);
    if (phase < dump->phase || size >= sizeof(dump->last_name))
        return false;
    if (phase == dump->phase && dump->any) {
        int order = strcmp(dump->last_name, name);
        if (order > 0 || (order == 0 && (phase == PHASE_DENSE || key <= dump->last_key)))
            return false;
    }
    dump->phase = phase;
    dump->any = true;
    dump->last_key = key;
    memcpy(dump->last_name, name, size + 1);
    return true;
}

enum fr_status fr_dump_row(struct fr_dump *dump, const char *table, uint64_t key,
                           const struct fr_dump_segment *segments, uint32_t n_segments)
{
    if (!in_order(dump, PHASE_ROWS, table, key))
        return FR_E_STATE;
    fr_buffer_printf(&dump->line, "{\"table\":\"%s\",\"key\":\"%" PRIu64 "\",\"parts\":{", table, key);
    for (uint32_t s = 0; s < n_segments; s++) {
        fr_buffer_printf(&dump->line, "%s\"%s\":", s ? "," : "", segments[s].part);
        put_values(dump, segments[s].values, segments[s].dim, dump->quantize);
    }
    fr_buffer_append(&dump->line, "}}\n", 3);
    dump->n_rows += 1;
    return fr_dump_line(dump);
}

enum fr_status fr_dump_dense(struct fr_dump *dump, const struct fr_delta_dense *dense)
{
    if (!in_order(dump, PHASE_DENSE, dense->name, 0))
        return FR_E_STATE;
    fr_buffer_printf(&dump->line, "{\"dense\":\"%s\",\"shape\":[%" PRIu32, dense->name, dense->shape[0]);
    if (dense->n_dims > 1)
        fr_buffer_printf(&dump->line, ",%" PRIu32, dense->shape[1]);
    fr_buffer_printf(&dump->line, "],\"values\":");
    put_values(dump, dense->values, dense->n_values, fr_delta_dense_quantize(dense, dump->quantize));
    fr_buffer_append(&dump->line, "}\n", 2);
    dump->n_dense += 1;
    return fr_dump_line(dump);
}

enum fr_status fr_dump_end(struct fr_dump *dump, const struct fr_dump_end *end, uint64_t *hash)
{
    if (dump->phase == PHASE_ENDED)
        return FR_E_STATE;
    dump->phase = PHASE_ENDED;
    uint64_t digest = fr_xxh3_stream_digest(dump->hash);
    fr_buffer_printf(&dump->line,
                     "{\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64 ",\"wm\":%" PRId64 ",\"samples\":%" PRIu64
                     ",\"hash\":\"0x%016" PRIx64 "\"}\n",
                     end->timeline, end->epoch, end->wm_ms < 0 ? 0 : end->wm_ms, end->samples, digest);
    if (dump->sink(dump->self, dump->line.data, dump->line.size) != 0)
        return FR_E_IO;
    if (hash)
        *hash = digest;
    return FR_OK;
}
