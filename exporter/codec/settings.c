/* Codec settings as bytes: the head of a journal file (docs/formats/state.md, "Head of a journal
 * file"): everything except the epoch that its delta records depend on, so that a resend years
 * later is byte-identical under any configuration.
 *
 * Layout (little-endian; text = u32 length, bytes): u32 revision, u32 np, u32 quantize, u64
 * piece_max, u64 fp, text model, text kernel, text cfg, u32 tables, per table: text name, u32
 * parts, per part: text name, u32 dim; last a u32 CRC32C of all bytes before it. The same settings
 * give the same bytes: another head rotates the journal file.
 *
 * Thread: any, no state. The content of cfg is not read. */
#include "codec/codec.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/crc32c.h"

enum { TABLES_MAX = 4096, DIM_MAX = 1 << 20, VALUE_FLOATS_MAX = 1 << 24 };

static void put_text(struct fr_buffer *out, const char *text, size_t size)
{
    FR_CHECK(size <= UINT32_MAX);
    fr_put_u32(out, (uint32_t)size);
    fr_buffer_append(out, text, size);
}

void fr_codec_settings_encode(const struct fr_codec_settings *settings, struct fr_buffer *out)
{
    size_t begin = out->size;
    fr_put_u32(out, settings->revision);
    fr_put_u32(out, settings->np);
    fr_put_u32(out, (uint32_t)settings->quantize);
    fr_put_u64(out, settings->piece_max);
    fr_put_u64(out, settings->fp);
    put_text(out, settings->model, strlen(settings->model));
    put_text(out, settings->kernel, strlen(settings->kernel));
    put_text(out, settings->cfg, settings->cfg_size);
    fr_put_u32(out, settings->n_tables);
    for (uint32_t t = 0; t < settings->n_tables; t++) {
        const struct fr_codec_table *table = &settings->tables[t];
        put_text(out, table->name, strlen(table->name));
        FR_CHECK(table->n_parts <= FR_CODEC_PARTS_MAX);
        fr_put_u32(out, table->n_parts);
        for (uint32_t p = 0; p < table->n_parts; p++) {
            put_text(out, table->parts[p].name, strlen(table->parts[p].name));
            fr_put_u32(out, table->parts[p].dim);
        }
    }
    fr_put_u32(out, fr_crc32c(0, out->data + begin, out->size - begin));
}

/* Reads a text into a fixed array and terminates it. A text that is too long or holds a NUL fails
 * the reader. */
static void read_name(struct fr_reader *reader, char *out, size_t room)
{
    uint32_t size = fr_take_u32(reader);
    const uint8_t *bytes = size < room ? fr_take(reader, size) : NULL;
    if (!bytes || memchr(bytes, 0, size)) {
        reader->failed = 1;
        return;
    }
    memcpy(out, bytes, size);
    out[size] = '\0';
}

static void read_table(struct fr_reader *reader, struct fr_codec_table *table)
{
    read_name(reader, table->name, sizeof(table->name));
    table->n_parts = fr_take_u32(reader);
    if (table->n_parts == 0 || table->n_parts > FR_CODEC_PARTS_MAX)
        reader->failed = 1;
    for (uint32_t p = 0; p < table->n_parts && !reader->failed; p++) {
        read_name(reader, table->parts[p].name, sizeof(table->parts[p].name));
        table->parts[p].dim = fr_take_u32(reader);
        if (table->parts[p].dim == 0 || table->parts[p].dim > DIM_MAX)
            reader->failed = 1;
        else
            table->value_floats += table->parts[p].dim;
    }
    if (table->value_floats > VALUE_FLOATS_MAX)
        reader->failed = 1;
}

static void read_fields(struct fr_reader *reader, struct fr_codec_settings *settings)
{
    settings->np = fr_take_u32(reader);
    uint32_t quantize = fr_take_u32(reader);
    settings->piece_max = fr_take_u64(reader);
    settings->fp = fr_take_u64(reader);
    read_name(reader, settings->model, sizeof(settings->model));
    read_name(reader, settings->kernel, sizeof(settings->kernel));
    uint32_t cfg_size = fr_take_u32(reader);
    const uint8_t *cfg = fr_take(reader, cfg_size);
    uint32_t n_tables = fr_take_u32(reader);
    if (reader->failed || settings->np == 0 || settings->np > FR_DELTA_PARTITIONS_MAX || quantize > FR_CODEC_I8 ||
        n_tables > TABLES_MAX) {
        reader->failed = 1;
        return;
    }
    settings->quantize = (enum fr_codec_quantize)quantize;
    settings->cfg = fr_alloc((size_t)cfg_size + 1, 1);
    memcpy(settings->cfg, cfg, cfg_size);
    settings->cfg_size = cfg_size;
    settings->tables = fr_alloc(n_tables ? n_tables : 1, sizeof(*settings->tables));
    settings->n_tables = n_tables;
    for (uint32_t t = 0; t < n_tables && !reader->failed; t++)
        read_table(reader, &settings->tables[t]);
}

enum fr_status fr_codec_settings_parse(const void *bytes, size_t size, struct fr_codec_settings *out)
{
    const uint8_t *data = bytes;
    if (size < 8 || fr_load_u32(data + size - 4) != fr_crc32c(0, data, size - 4))
        return FR_E_CORRUPT;
    struct fr_reader reader = {.at = data, .end = data + size - 4};
    struct fr_codec_settings settings = {.revision = fr_take_u32(&reader)};
    if (settings.revision != FR_CODEC_REVISION)
        return FR_E_UNSUPPORTED;
    read_fields(&reader, &settings);
    if (reader.failed || reader.at != reader.end) {
        fr_codec_settings_release(&settings);
        return FR_E_CORRUPT;
    }
    *out = settings;
    return FR_OK;
}

void fr_codec_settings_release(struct fr_codec_settings *settings)
{
    if (!settings)
        return;
    free(settings->cfg);
    free(settings->tables);
    *settings = (struct fr_codec_settings){0};
}
