/* `freshet decode`: what the daemon makes of sample records, or why it refuses them. No Kafka is
 * needed, and nothing is trained.
 *
 * For authors of producers: one record per line, as JSON or as the hexadecimal text of MessagePack.
 * For each record the command prints one JSON line: its samples as trained (keys, weights,
 * transformed numbers, labels with derived ones), or the reason that its dead letter would carry.
 * Shared values are printed with every sample of their group.
 *
 * Thread: the caller's. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "decode/decoder.h"
#include "input.h"
#include "tool.h"

static const char usage[] =
    "freshet decode --config FILE --file F [--format json|msgpack] [--timestamp MS]\n"
    "\n"
    "Prints what each record of the file decodes to with that configuration, or why it is malformed; exit 1 if any "
    "is.\n"
    "\n"
    "  --file F          a record a line (plain, gzip or zstd): JSON, or MessagePack as hexadecimal digits\n"
    "  --format FORMAT   default: the configuration's ingest.format\n"
    "  --timestamp MS    Kafka timestamp of the records (none: `t` is needed, and future_max does not apply)\n"
    "  --set path=value  changes the configuration (many)\n";

/* ---- output ---- */

static void put_ids(const struct fr_column *column, const char *name, uint32_t entry, struct fr_json *json)
{
    uint32_t begin = column->begin[entry], end = column->begin[entry + 1];
    if (column->weights)
        fr_json_object(json, name);
    fr_json_array(json, column->weights ? "i" : name);
    for (uint32_t p = begin; p < end; p++)
        fr_json_id(json, NULL, column->keys[p]);
    fr_json_end(json);
    if (!column->weights)
        return;
    fr_json_floats(json, "w", column->weights + begin, end - begin);
    fr_json_end(json);
}

static void put_slots(const struct fr_conf *conf, const struct fr_batch *batch, uint32_t sample, struct fr_json *json)
{
    fr_json_object(json, "f");
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_column *column = &batch->columns[s];
        uint32_t entry = column->shared ? batch->group_of[sample] : sample;
        if (fr_slot_has_rows(conf->slots[s].kind))
            put_ids(column, conf->slots[s].name, entry, json);
        else
            fr_json_floats(json, conf->slots[s].name, column->dense + (size_t)entry * column->dim, column->dim);
    }
    fr_json_end(json);
}

static void put_labels(const struct fr_conf *conf, const char *name, const float *values, size_t stride,
                       struct fr_json *json)
{
    fr_json_object(json, name);
    for (uint32_t l = 0; l < conf->n_labels; l++)
        fr_json_number(json, conf->labels[l].name, (double)values[l * stride]);
    fr_json_end(json);
}

static void put_sample(const struct fr_conf *conf, const struct fr_batch *batch, uint32_t i, struct fr_json *json)
{
    static const char *const roles[FR_ROLES] = {"train", "metrics_only", "masked", "quarantined"};
    fr_json_object(json, NULL);
    fr_json_i64(json, "t", batch->t_ms[i]);
    fr_json_u64(json, "u", batch->use[i]);
    fr_json_text(json, "role", roles[batch->role[i]]);
    fr_json_number(json, "s", (double)batch->keep[i]);
    put_labels(conf, "y", batch->labels + i, batch->capacity_samples, json);
    put_labels(conf, "w", batch->weights + i, batch->capacity_samples, json);
    fr_json_object(json, "p");
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        fr_json_number(json, conf->tasks[t].name,
                       batch->served ? (double)batch->served[(size_t)t * batch->capacity_samples + i] : (double)NAN);
    fr_json_end(json);
    put_slots(conf, batch, i, json);
    fr_json_end(json);
}

/* Prints the names in the record that the configuration does not have, and how often each
 * occurred. */
static void put_unknown(const struct fr_unknown_names *before, const struct fr_unknown_names *after, const char *what,
                        struct fr_json *json)
{
    fr_json_object(json, what);
    for (uint32_t i = 0; i < after->n; i++)
        if (after->counts[i] != before->counts[i])
            fr_json_u64(json, after->names[i], after->counts[i] - before->counts[i]);
    uint64_t others = after->counts[FR_UNKNOWN_OTHERS] - before->counts[FR_UNKNOWN_OTHERS];
    if (others > 0)
        fr_json_u64(json, "", others);
    fr_json_end(json);
}

static void put_batch(const struct fr_conf *conf, const struct fr_batch *batch, const struct fr_unknown unknown[2],
                      struct fr_json *json)
{
    fr_json_array(json, "groups");
    for (uint32_t g = 0; g < batch->n_groups; g++)
        fr_json_u64(json, NULL, batch->group_begin[g + 1] - batch->group_begin[g]);
    fr_json_end(json);
    fr_json_array(json, "shared");
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (batch->columns[s].shared)
            fr_json_text(json, NULL, conf->slots[s].name);
    fr_json_end(json);
    fr_json_u64(json, "unknown_slots", batch->unknown_slots);
    fr_json_u64(json, "unknown_keys", batch->unknown_keys);
    fr_json_u64(json, "excess_ids", batch->excess_ids);
    if (batch->unknown_slots > 0)
        put_unknown(&unknown[0].slots, &unknown[1].slots, "slots", json);
    if (batch->unknown_keys > 0)
        put_unknown(&unknown[0].keys, &unknown[1].keys, "keys", json);
    fr_json_array(json, "samples");
    for (uint32_t i = 0; i < batch->n_samples; i++)
        put_sample(conf, batch, i, json);
    fr_json_end(json);
}

/* ---- input ---- */

static int digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static enum fr_status unhex(const char *text, size_t size, struct fr_buffer *out, struct fr_err *err)
{
    fr_buffer_clear(out);
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a byte-order mark */
        text += 3;
        size -= 3;
    }
    for (size_t i = 0; i + 1 < size + size % 2; i += 2) {
        int high = digit(text[i]), low = i + 1 < size ? digit(text[i + 1]) : -1;
        if (high < 0 || low < 0)
            return fr_err_set(err, FR_E_INVALID, "not pairs of hexadecimal digits (column %zu)", i + 1);
        fr_put_u8(out, (uint8_t)(high << 4 | low));
    }
    return FR_OK;
}

struct decoding {
    const struct fr_conf *conf;
    struct fr_decoder *decoder;
    struct fr_batch *batch;
    int64_t timestamp_ms;
    struct fr_buffer bytes, out;
    uint64_t malformed;
};

static void decode_line(struct decoding *d, const void *value, size_t size)
{
    struct fr_record record = {.value = value, .size = size, .timestamp_ms = d->timestamp_ms};
    uint32_t n = 0;
    const char *reason = "";
    struct fr_unknown unknown[2] = {*fr_decoder_unknown(d->decoder)};
    struct fr_json json = {.out = &d->out};
    fr_buffer_clear(&d->out);
    fr_json_object(&json, NULL);
    if (fr_decode_record(d->decoder, &record, &n, &reason) != FR_OK) {
        d->malformed++;
        fr_json_text(&json, "malformed", reason);
    } else {
        fr_batch_clear(d->batch);
        fr_decode_append(d->decoder, 0, n, d->batch);
        fr_decode_effective(d->decoder);
        unknown[1] = *fr_decoder_unknown(d->decoder);
        put_batch(d->conf, d->batch, unknown, &json);
    }
    fr_json_end(&json);
    fr_put_u8(&d->out, '\n');
    fwrite(d->out.data, 1, d->out.size, stdout);
}

static enum fr_status decode_file(struct decoding *d, const char *path, struct fr_err *err)
{
    struct fr_lines *lines = NULL;
    enum fr_status status = fr_tool_lines_open(path, &lines, err);
    struct fr_line line;
    while (status == FR_OK && (status = fr_tool_lines_next(lines, path, &line, err)) == FR_OK) {
        const void *value = line.value;
        size_t size = line.size;
        if (d->conf->ingest.format == FR_FORMAT_MSGPACK) {
            status = unhex(line.value, size, &d->bytes, err);
            value = d->bytes.data;
            size = d->bytes.size;
        }
        if (status == FR_OK)
            decode_line(d, value, size);
        else
            status = fr_err_wrap(err, "%s, line %" PRId64 " (from 0)", path, line.number);
    }
    fr_lines_free(lines);
    return status == FR_EOF ? FR_OK : status;
}

static int decode_with(const struct fr_conf *conf, const char *path, int64_t timestamp_ms)
{
    struct fr_err err = {0};
    struct decoding d = {.conf = conf, .timestamp_ms = timestamp_ms};
    d.decoder = fr_decoder_new(conf);
    d.batch = fr_batch_new(conf);
    enum fr_status status = decode_file(&d, path, &err);
    if (fflush(stdout) != 0 && status == FR_OK)
        status = fr_err_set(&err, FR_E_IO, "stdout cannot be written");
    if (status != FR_OK)
        (void)fr_tool_fail("decode", &err);
    fr_batch_free(d.batch);
    fr_decoder_free(d.decoder);
    fr_buffer_release(&d.bytes);
    fr_buffer_release(&d.out);
    return status == FR_OK && d.malformed == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
}

int fr_tool_decode(int argc, char **argv)
{
    const char *file = NULL, *format = NULL, *sets[FR_TOOL_SETS_MAX + 1]; /* and one of --format */
    struct fr_conf_load_options load = {.sets = sets};
    uint64_t timestamp_ms = 0;
    const struct fr_tool_option options[] = {
        {.name = "--config", .value = &load.path, .required = true},
        {.name = "--set", .many = sets, .n_many = &load.n_sets, .many_max = FR_TOOL_SETS_MAX},
        {.name = "--file", .value = &file, .required = true},
        {.name = "--format", .value = &format},
        {.name = "--timestamp", .number = &timestamp_ms, .min = 1, .max = INT64_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    char format_set[64];
    if (format) {
        snprintf(format_set, sizeof(format_set), "ingest.format=%s", format);
        sets[load.n_sets++] = format_set;
    }
    struct fr_conf *conf = NULL;
    int code = fr_tool_load_conf(&load, &conf);
    if (code == FR_TOOL_OK)
        code = decode_with(conf, file, (int64_t)timestamp_ms);
    fr_conf_free(conf);
    return code;
}
