/* The writer of delta records (docs/formats/deltas.md) turns one epoch's public content into the
 * records of every partition.
 *
 * Keys come exactly in the order that docs/formats/deltas.md ("Records") lists, integers
 * unsigned and shortest (msgpack-c's packer chooses), columns are bin and little-endian. A piece
 * gets as many rows as are sure to fit: the bound counts the longest header of every column. The
 * number of rows in a piece therefore depends only on the settings, the table and the length of
 * the piece's own envelope. The same input gives the same bytes: a resend is byte-identical.
 *
 * A record that is whole by itself (rewind, model, commit) is parsed by the reader's code before it
 * is passed on, and in builds with FR_READ_BACK every record is: a record that readers would refuse
 * is never published.
 *
 * Thread: any, no state. The input is sorted by table and key. Values are not judged, and
 * records are not sent here. */
#include "codec/codec.h"

#include <math.h>
#include <stdlib.h>

#include <msgpack.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "value_columns.h"

enum {
    ENVELOPE_FIELDS = 11,
    CRC_FIELD_SIZE = 9,
    BIN_HEAD_MAX = 5,
    KEY_SIZE = 8,
    SCALE_SIZE = 4,
    /* {"part": name, "dim": u32, "q": "bf16", "vals": bin, "sc": bin} without the name's bytes */
    SEGMENT_HEAD_MAX = 40,
    SCALES_HEAD = 3 + BIN_HEAD_MAX,
};

struct writer {
    const struct fr_codec_settings *settings;
    const struct fr_delta_epoch *epoch;
    fr_delta_sink *sink;
    void *self;
    uint64_t *saturated;
    struct fr_buffer record;
    msgpack_packer packer;
    uint32_t partition, piece;
    uint64_t n_rows, n_drops; /* rows and drops of this partition so far */
    size_t *at, *end;         /* [n_tables] this partition's rows and drops */
    size_t *stop;             /* [n_tables] index after the last row of the table */
    bool any_drops;
    bool whole; /* the present record is the only one of its kind in the partition */
    const struct fr_delta_row **picked;
    size_t picked_capacity;
};

static int append_packed(void *self, const char *bytes, size_t size)
{
    fr_buffer_append(self, bytes, size);
    return 0;
}

/* Packing into a buffer that grows or ends the process cannot fail, so the packer's return values
 * are ignored. */
static void put_text(struct writer *w, const char *text, size_t size)
{
    FR_CHECK(size <= UINT32_MAX);
    msgpack_pack_str(&w->packer, size);
    msgpack_pack_str_body(&w->packer, text, size);
}

static void put_name(struct writer *w, const char *text)
{
    put_text(w, text, strlen(text));
}

static void put_uint(struct writer *w, const char *key, uint64_t value)
{
    put_name(w, key);
    msgpack_pack_uint64(&w->packer, value);
}

/* Times and offsets are unsigned in the format; an unknown one (negative) is written as 0. */
static void put_time(struct writer *w, const char *key, int64_t value)
{
    put_uint(w, key, value < 0 ? 0 : (uint64_t)value);
}

static void begin_record(struct writer *w, const char *kind, uint32_t n_fields)
{
    const struct fr_delta_epoch *epoch = w->epoch;
    fr_buffer_clear(&w->record);
    msgpack_pack_map(&w->packer, ENVELOPE_FIELDS + n_fields + 1);
    put_uint(w, "v", FR_DELTA_VERSION);
    put_name(w, "k");
    put_name(w, kind);
    put_name(w, "m");
    put_name(w, w->settings->model);
    put_uint(w, "fp", w->settings->fp);
    put_uint(w, "tl", epoch->timeline);
    put_uint(w, "e", epoch->epoch);
    put_uint(w, "from", epoch->from);
    put_uint(w, "dig", epoch->digest);
    put_uint(w, "p", w->partition);
    put_uint(w, "np", w->settings->np);
    put_uint(w, "i", w->piece);
}

#ifdef FR_READ_BACK
enum { READS_ALL_BACK = 1 };
#else
enum { READS_ALL_BACK = 0 };
#endif

static enum fr_status read_back(const struct writer *w)
{
    struct fr_delta_record record;
    enum fr_status status = fr_delta_read(w->record.data, w->record.size, &record, NULL);
    bool same = status == FR_OK && record.partition == w->partition && record.piece == w->piece &&
                record.epoch == w->epoch->epoch && record.from == w->epoch->from && record.fp == w->settings->fp;
    return same ? FR_OK : FR_E_STATE;
}

static enum fr_status finish_record(struct writer *w)
{
    static const uint8_t head[5] = {0xa3, 'c', 'r', 'c', 0xce};
    fr_buffer_append(&w->record, head, sizeof(head));
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, w->record.data, w->record.size - sizeof(head)));
    fr_buffer_append(&w->record, &crc, sizeof(crc));
    if (w->record.size > w->settings->piece_max)
        return FR_E_LIMIT;
    if ((w->whole || READS_ALL_BACK) && read_back(w) != FR_OK)
        return FR_E_STATE;
    w->whole = false;
    enum fr_status status = w->sink(w->self, w->partition, w->piece, w->record.data, w->record.size);
    w->piece += 1;
    return status;
}

/* Returns how many elements of `size` bytes fit into the record after `reserved` bytes of heads. */
static size_t room_for(const struct writer *w, size_t reserved, size_t size)
{
    size_t used = w->record.size + reserved + CRC_FIELD_SIZE;
    return used >= w->settings->piece_max ? 0 : (size_t)(w->settings->piece_max - used) / size;
}

static void put_keys(struct writer *w, size_t count)
{
    put_name(w, "keys");
    msgpack_pack_bin(&w->packer, count * KEY_SIZE);
    uint8_t *out = fr_buffer_reserve(&w->record, count * KEY_SIZE);
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * KEY_SIZE, &w->picked[i]->key, KEY_SIZE);
    w->record.size += count * KEY_SIZE;
}

/* Picks the next rows (or drops) of the table in this partition, at most `limit`, and moves
 * *from past them. */
static size_t pick(struct writer *w, uint32_t table, bool drops, size_t limit, size_t *from)
{
    size_t count = 0;
    while (*from < w->end[table] && count < limit) {
        const struct fr_delta_row *row = &w->epoch->rows[(*from)++];
        if ((row->values == NULL) != drops)
            continue;
        if (count == w->picked_capacity) {
            w->picked_capacity = w->picked_capacity ? w->picked_capacity * 2 : 1024;
            w->picked = fr_realloc(w->picked, w->picked_capacity, sizeof(*w->picked));
        }
        w->picked[count++] = row;
    }
    return count;
}

static bool any_left(const struct writer *w, uint32_t table, bool drops, size_t from)
{
    for (; from < w->end[table]; from++)
        if ((w->epoch->rows[from].values == NULL) == drops)
            return true;
    return false;
}

static void put_segment(struct writer *w, const struct fr_codec_table *table, uint32_t part, uint32_t offset,
                        size_t count)
{
    enum fr_codec_quantize quantize = w->settings->quantize;
    uint32_t dim = table->parts[part].dim;
    msgpack_pack_map(&w->packer, quantize == FR_CODEC_I8 ? 5 : 4);
    put_name(w, "part");
    put_name(w, table->parts[part].name);
    put_uint(w, "dim", dim);
    put_name(w, "q");
    put_name(w, fr_codec_quantize_name(quantize));
    put_name(w, "vals");
    msgpack_pack_bin(&w->packer, count * dim * fr_codec_width(quantize));
    fr_codec_put_rows(&w->record, w->picked, count, &(struct fr_codec_span){offset, dim, quantize}, w->saturated);
    if (quantize != FR_CODEC_I8)
        return;
    put_name(w, "sc");
    msgpack_pack_bin(&w->packer, count * SCALE_SIZE);
    fr_codec_put_scales(&w->record, w->picked, count, offset, dim);
}

static enum fr_status write_rows(struct writer *w, uint32_t t)
{
    const struct fr_codec_table *table = &w->settings->tables[t];
    enum fr_codec_quantize quantize = w->settings->quantize;
    size_t width = fr_codec_width(quantize), scales = quantize == FR_CODEC_I8 ? SCALE_SIZE : 0;
    size_t heads = 5 + BIN_HEAD_MAX + 4 + 1; /* "keys", "seg", array of at most 8 */
    for (uint32_t p = 0; p < table->n_parts; p++)
        heads += SEGMENT_HEAD_MAX + strlen(table->parts[p].name) + (scales ? SCALES_HEAD : 0);
    size_t from = w->at[t], row_size = KEY_SIZE + table->value_floats * width + table->n_parts * scales;
    while (any_left(w, t, false, from)) {
        begin_record(w, "rows", 3);
        put_name(w, "tb");
        put_name(w, table->name);
        size_t count = pick(w, t, false, room_for(w, heads, row_size), &from);
        if (count == 0)
            return FR_E_LIMIT; /* not even one row fits piece_max */
        put_keys(w, count);
        put_name(w, "seg");
        msgpack_pack_array(&w->packer, table->n_parts);
        uint32_t offset = 0;
        for (uint32_t p = 0; p < table->n_parts; p++) {
            put_segment(w, table, p, offset, count);
            offset += table->parts[p].dim;
        }
        w->n_rows += count;
        enum fr_status status = finish_record(w);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

static enum fr_status write_drops(struct writer *w, uint32_t t)
{
    size_t from = w->at[t];
    while (w->any_drops && any_left(w, t, true, from)) {
        begin_record(w, "drop", 3);
        put_name(w, "tb");
        put_name(w, w->settings->tables[t].name);
        size_t count = pick(w, t, true, room_for(w, 5 + BIN_HEAD_MAX + 4 + BIN_HEAD_MAX, KEY_SIZE + 1), &from);
        if (count == 0)
            return FR_E_LIMIT;
        put_keys(w, count);
        put_name(w, "why");
        msgpack_pack_bin(&w->packer, count);
        for (size_t i = 0; i < count; i++)
            fr_put_u8(&w->record, w->picked[i]->why);
        w->n_drops += count;
        enum fr_status status = finish_record(w);
        if (status != FR_OK)
            return status;
    }
    return FR_OK;
}

static enum fr_status write_dense(struct writer *w, const struct fr_delta_dense *dense)
{
    enum fr_codec_quantize quantize = fr_delta_dense_quantize(dense, w->settings->quantize);
    size_t width = fr_codec_width(quantize);
    uint64_t offset = 0;
    do { /* a parameter without values is one record without values */
        begin_record(w, "dense", 5);
        put_name(w, "name");
        put_name(w, dense->name);
        put_name(w, "shape");
        msgpack_pack_array(&w->packer, dense->n_dims);
        for (uint32_t d = 0; d < dense->n_dims; d++)
            msgpack_pack_uint32(&w->packer, dense->shape[d]);
        put_name(w, "q");
        put_name(w, fr_codec_quantize_name(quantize));
        put_uint(w, "off", offset);
        uint64_t count = room_for(w, 5 + BIN_HEAD_MAX, width);
        if (count > dense->n_values - offset)
            count = dense->n_values - offset;
        if (count == 0 && dense->n_values > 0)
            return FR_E_LIMIT;
        put_name(w, "vals");
        msgpack_pack_bin(&w->packer, count * width);
        fr_codec_put_values(&w->record, (const uint8_t *)dense->values + offset * 4, count, quantize, w->saturated);
        offset += count;
        enum fr_status status = finish_record(w);
        if (status != FR_OK)
            return status;
    } while (offset < dense->n_values);
    return FR_OK;
}

static enum fr_status write_model(struct writer *w)
{
    begin_record(w, "model", 2);
    w->whole = true;
    put_name(w, "cfg");
    put_text(w, w->settings->cfg, w->settings->cfg_size);
    put_name(w, "kernel");
    put_name(w, w->settings->kernel);
    return finish_record(w);
}

static enum fr_status write_rewind(struct writer *w)
{
    begin_record(w, "rewind", 2);
    w->whole = true;
    put_uint(w, "to", w->epoch->rewind->to);
    put_name(w, "snap");
    put_name(w, w->epoch->rewind->snap);
    return finish_record(w);
}

static uint32_t topic_run(const struct fr_delta_commit *commit, uint32_t from)
{
    uint32_t end = from + 1;
    while (end < commit->n_offsets && strcmp(commit->offsets[end].topic, commit->offsets[from].topic) == 0)
        end++;
    return end - from;
}

static void put_offsets(struct writer *w)
{
    const struct fr_delta_commit *commit = &w->epoch->commit;
    uint32_t n_topics = 0;
    for (uint32_t i = 0; i < commit->n_offsets; i += topic_run(commit, i))
        n_topics += 1;
    put_name(w, "off");
    msgpack_pack_map(&w->packer, n_topics);
    for (uint32_t i = 0; i < commit->n_offsets;) {
        uint32_t run = topic_run(commit, i);
        put_name(w, commit->offsets[i].topic);
        msgpack_pack_map(&w->packer, run);
        for (uint32_t end = i + run; i < end; i++) {
            int64_t next = commit->offsets[i].next_offset;
            msgpack_pack_uint32(&w->packer, (uint32_t)commit->offsets[i].partition);
            msgpack_pack_uint64(&w->packer, next < 0 ? 0 : (uint64_t)next);
        }
    }
}

static enum fr_status write_commit(struct writer *w)
{
    const struct fr_delta_commit *commit = &w->epoch->commit;
    begin_record(w, "commit", 10);
    w->whole = true;
    put_uint(w, "n", w->piece);
    put_uint(w, "rows", w->n_rows);
    put_uint(w, "drops", w->n_drops);
    put_uint(w, "prev", w->epoch->previous);
    put_time(w, "wm", commit->wm_ms);
    put_uint(w, "samples", commit->samples);
    put_name(w, "auc");
    msgpack_pack_map(&w->packer, commit->n_auc);
    for (uint32_t i = 0; i < commit->n_auc; i++) {
        put_name(w, commit->auc[i].task);
        if (isnan(commit->auc[i].auc))
            msgpack_pack_nil(&w->packer);
        else
            msgpack_pack_double(&w->packer, commit->auc[i].auc);
    }
    put_offsets(w);
    put_time(w, "t", commit->t_ms);
    put_name(w, "snap");
    if (!commit->snap.name) {
        msgpack_pack_nil(&w->packer);
    } else {
        msgpack_pack_map(&w->packer, 3);
        put_name(w, "name");
        put_name(w, commit->snap.name);
        put_uint(w, "bytes", commit->snap.bytes);
        put_name(w, "sha256");
        msgpack_pack_bin(&w->packer, sizeof(commit->snap.sha256));
        msgpack_pack_bin_body(&w->packer, commit->snap.sha256, sizeof(commit->snap.sha256));
    }
    return finish_record(w);
}

static enum fr_status write_partition(struct writer *w)
{
    enum fr_status status = FR_OK;
    w->piece = 0;
    w->n_rows = w->n_drops = 0;
    if (w->epoch->rewind)
        status = write_rewind(w);
    if (status == FR_OK && w->partition == 0 && w->epoch->with_model)
        status = write_model(w);
    for (uint32_t t = 0; t < w->settings->n_tables && status == FR_OK; t++)
        status = write_rows(w, t);
    for (uint32_t t = 0; t < w->settings->n_tables && status == FR_OK; t++)
        status = write_drops(w, t);
    for (size_t d = 0; w->partition == 0 && d < w->epoch->n_dense && status == FR_OK; d++)
        status = write_dense(w, &w->epoch->dense[d]);
    return status == FR_OK ? write_commit(w) : status;
}

static enum fr_status check_dense(const struct fr_delta_epoch *epoch)
{
    for (size_t d = 0; d < epoch->n_dense; d++) {
        const struct fr_delta_dense *dense = &epoch->dense[d];
        if (dense->n_dims < 1 || dense->n_dims > 2 ||
            (uint64_t)dense->shape[0] * (dense->n_dims == 2 ? dense->shape[1] : 1) != dense->n_values)
            return FR_E_INVALID;
    }
    return FR_OK;
}

/* Checks order and range of the input, and notes where each table's rows begin. */
static enum fr_status check_epoch(struct writer *w)
{
    const struct fr_codec_settings *settings = w->settings;
    const struct fr_delta_epoch *epoch = w->epoch;
    if (settings->np == 0 || settings->np > FR_DELTA_PARTITIONS_MAX || epoch->from == 0 || epoch->from > epoch->epoch)
        return FR_E_INVALID;
    size_t i = 0;
    w->any_drops = false;
    for (uint32_t t = 0; t < settings->n_tables; t++) {
        w->at[t] = w->end[t] = i;
        for (; i < epoch->n_rows && epoch->rows[i].table == t; i++) {
            if (i > w->at[t] && epoch->rows[i].key <= epoch->rows[i - 1].key)
                return FR_E_INVALID;
            w->any_drops |= epoch->rows[i].values == NULL;
        }
        w->stop[t] = i;
    }
    return i == epoch->n_rows ? check_dense(epoch) : FR_E_INVALID;
}

/* Notes which of the epoch's rows are in the partition. Within a table these rows follow one
 * another, because the number of the partition grows with the key. */
static void begin_partition(struct writer *w, uint32_t partition)
{
    const struct fr_delta_row *rows = w->epoch->rows;
    for (uint32_t t = 0; t < w->settings->n_tables; t++) {
        size_t low = w->end[t], high = w->stop[t]; /* a later partition begins between */
        w->at[t] = low;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (fr_delta_partition(rows[middle].key, w->settings->np) <= partition)
                low = middle + 1;
            else
                high = middle;
        }
        w->end[t] = low;
    }
    w->partition = partition;
}

static void open_writer(struct writer *w)
{
    w->at = fr_alloc(w->settings->n_tables + 1u, sizeof(*w->at));
    w->end = fr_alloc(w->settings->n_tables + 1u, sizeof(*w->end));
    w->stop = fr_alloc(w->settings->n_tables + 1u, sizeof(*w->stop));
    msgpack_packer_init(&w->packer, &w->record, append_packed);
}

static void close_writer(struct writer *w)
{
    fr_buffer_release(&w->record);
    free(w->picked);
    free(w->at);
    free(w->end);
    free(w->stop);
}

enum fr_status fr_delta_write(const struct fr_codec_settings *settings, const struct fr_delta_epoch *epoch,
                              fr_delta_sink *sink, void *self, uint64_t *saturated)
{
    struct writer w = {.settings = settings, .epoch = epoch, .sink = sink, .self = self, .saturated = saturated};
    open_writer(&w);
    enum fr_status status = check_epoch(&w);
    for (uint32_t p = 0; p < settings->np && status == FR_OK; p++) {
        begin_partition(&w, p);
        status = write_partition(&w);
    }
    close_writer(&w);
    return status;
}

/* ---- an epoch in parts ---- */

struct fr_delta_stream {
    struct writer writer;
    struct fr_delta_epoch epoch;
    uint64_t saturated;
    struct {
        uint32_t piece;
        uint64_t n_rows;
    } partitions[FR_DELTA_PARTITIONS_MAX];
};

struct fr_delta_stream *fr_delta_stream_new(const struct fr_codec_settings *settings, const struct fr_delta_epoch *head,
                                            fr_delta_sink *sink, void *self)
{
    struct fr_delta_stream *stream = fr_alloc(1, sizeof(*stream));
    FR_CHECK(settings->np > 0 && settings->np <= FR_DELTA_PARTITIONS_MAX);
    stream->epoch = *head;
    stream->writer = (struct writer){.settings = settings, .epoch = &stream->epoch, .sink = sink, .self = self};
    stream->writer.saturated = &stream->saturated;
    open_writer(&stream->writer);
    return stream;
}

void fr_delta_stream_free(struct fr_delta_stream *stream)
{
    if (!stream)
        return;
    close_writer(&stream->writer);
    free(stream);
}

void fr_delta_stream_to(struct fr_delta_stream *stream, fr_delta_sink *sink, void *self, uint64_t *saturated)
{
    stream->writer.sink = sink;
    stream->writer.self = self;
    stream->writer.saturated = saturated;
}

/* Writes a part of a partition. The counts of pieces and rows continue from the parts before. */
static enum fr_status write_part(struct fr_delta_stream *stream, uint32_t partition,
                                 enum fr_status (*write)(struct writer *w, const void *part), const void *part)
{
    struct writer *w = &stream->writer;
    w->partition = partition;
    w->piece = stream->partitions[partition].piece;
    w->n_rows = stream->partitions[partition].n_rows;
    enum fr_status status = write(w, part);
    stream->partitions[partition].piece = w->piece;
    stream->partitions[partition].n_rows = w->n_rows;
    return status;
}

/* Writes piece 0 and the model. */
static enum fr_status part_begin(struct writer *w, const void *part)
{
    (void)part;
    enum fr_status status = w->epoch->rewind ? write_rewind(w) : FR_OK;
    return status == FR_OK && w->partition == 0 ? write_model(w) : status;
}

static enum fr_status part_rows(struct writer *w, const void *part)
{
    (void)part;
    enum fr_status status = FR_OK;
    for (uint32_t t = 0; t < w->settings->n_tables && status == FR_OK; t++)
        status = write_rows(w, t);
    return status;
}

static enum fr_status part_dense(struct writer *w, const void *part)
{
    return write_dense(w, part);
}

static enum fr_status part_commit(struct writer *w, const void *part)
{
    (void)part;
    return write_commit(w);
}

enum fr_status fr_delta_stream_model(struct fr_delta_stream *stream)
{
    enum fr_status status = FR_OK;
    for (uint32_t p = 0; p < stream->writer.settings->np && status == FR_OK; p++)
        status = write_part(stream, p, part_begin, NULL);
    return status;
}

enum fr_status fr_delta_stream_rows(struct fr_delta_stream *stream, const struct fr_delta_row *rows, size_t n)
{
    struct writer *w = &stream->writer;
    stream->epoch.rows = rows;
    stream->epoch.n_rows = n;
    stream->epoch.n_dense = 0;
    enum fr_status status = check_epoch(w);
    for (size_t i = 0; i < n && status == FR_OK;) {
        uint32_t partition = fr_delta_partition(rows[i].key, w->settings->np);
        begin_partition(w, partition);
        status = write_part(stream, partition, part_rows, NULL);
        while (i < n && fr_delta_partition(rows[i].key, w->settings->np) == partition)
            i++;
    }
    stream->epoch.rows = NULL;
    stream->epoch.n_rows = 0;
    return status;
}

enum fr_status fr_delta_stream_dense(struct fr_delta_stream *stream, const struct fr_delta_dense *dense)
{
    const struct fr_delta_epoch alone = {.dense = dense, .n_dense = 1};
    enum fr_status status = check_dense(&alone);
    return status == FR_OK ? write_part(stream, 0, part_dense, dense) : status;
}

enum fr_status fr_delta_stream_commit(struct fr_delta_stream *stream, const struct fr_delta_commit *commit)
{
    enum fr_status status = FR_OK;
    stream->epoch.commit = *commit;
    for (uint32_t p = 0; p < stream->writer.settings->np && status == FR_OK; p++)
        status = write_part(stream, p, part_commit, NULL);
    return status;
}
