/* Sends the rows also to topics hps_et.MODEL.TABLE, for consumers of NVIDIA HPS (export.format:
 * hps).
 *
 * A message has no Kafka key. Its value is the bytes `HCTR`, the size of a row's values in bytes
 * (u32), and then pairs of a key (i64, the bits of ours) and f32 values, little-endian throughout:
 * HugeCTR 4.3.1, HugeCTR/src/hps/kafka_message.cpp. The consumer reads pairs without checking
 * bounds, so a message has whole pairs only and is at most as long as the consumer's buffer.
 *
 * The values are those of the delta record, so a consumer of HPS has the same values as replicas.
 * Messages are in the partition of their delta record, so each key has one partition and its values
 * arrive in the order of epochs. A row is sent again when its epoch is sent again. Neither the
 * layout nor the consumer has tombstones (which are counted here), dense parameters or epochs.
 *
 * An epoch is acknowledged when its messages for HPS are acknowledged too. A commit on the delta
 * topic does not show that they are, so sending resumes after the epoch that the journal notes as
 * acknowledged.
 *
 * Thread: the publisher thread. */
#include "publisher_outgoing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

enum { HPS_HEAD = 8 };

struct hps_table {
    char name[64];
    char topic[250];
    /* the empty topic was logged already, because an inspection without an answer is repeated */
    bool late;
};

struct fr_publisher_hps {
    uint32_t n_tables;
    struct hps_table *tables;
    struct fr_buffer message;
};

struct fr_publisher_hps *fr_publisher_hps_new(const struct fr_publisher_options *options)
{
    if (options->n_hps_tables == 0)
        return NULL;
    struct fr_publisher_hps *hps = fr_alloc(1, sizeof(*hps));
    hps->n_tables = options->n_hps_tables;
    hps->tables = fr_alloc(hps->n_tables, sizeof(*hps->tables));
    for (uint32_t t = 0; t < hps->n_tables; t++) {
        struct hps_table *table = &hps->tables[t];
        snprintf(table->name, sizeof(table->name), "%s", options->hps_tables[t]);
        snprintf(table->topic, sizeof(table->topic), "hps_et.%s.%s", options->model, table->name);
    }
    return hps;
}

void fr_publisher_hps_free(struct fr_publisher_hps *hps)
{
    if (!hps)
        return;
    fr_buffer_release(&hps->message);
    free(hps->tables);
    free(hps);
}

/* ---- topics ---- */

static enum fr_status is_empty(const struct fr_publisher_board *board, rd_kafka_t *client, const char *topic,
                               bool *empty, struct fr_err *err)
{
    *empty = true;
    for (uint32_t p = board->options.first_partition; p < board->options.end_partition && *empty; p++) {
        int64_t low = 0, high = 0;
        rd_kafka_resp_err_t error =
            rd_kafka_query_watermark_offsets(client, topic, (int32_t)p, &low, &high, BROKER_TIMEOUT_MS);
        if (error)
            return fr_err_set(err, fr_kafka_status(error), "topic %s partition %u: %s", topic, p,
                              rd_kafka_err2str(error));
        *empty = high == 0;
    }
    return FR_OK;
}

/* Warns once of a topic that is empty although epochs were acknowledged, whose rows it lacks. */
static enum fr_status warn_of_empty(struct hps_table *table, const struct fr_publisher_board *board, rd_kafka_t *client,
                                    uint64_t acked, struct fr_err *err)
{
    bool empty = false;
    enum fr_status status = is_empty(board, client, table->topic, &empty, err);
    if (status != FR_OK || !empty || table->late)
        return status;
    table->late = true;
    fr_log(FR_LOG_WARN, "publisher", "hps_topic_begins_late",
           "topic=%s acked=%" PRIu64
           " problem=\"it is empty, and gets rows that change from now on; a state that begins from "
           "a savepoint of this one (freshetd --restore) publishes all of its rows\"",
           table->topic, acked);
    return FR_OK;
}

enum fr_status fr_publisher_hps_check(struct fr_publisher_hps *hps, struct fr_publisher_board *board,
                                      rd_kafka_t *client, const uint64_t *acked, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (uint32_t t = 0; hps && t < hps->n_tables && status == FR_OK; t++) {
        struct hps_table *table = &hps->tables[t];
        struct fr_kafka_topic found;
        status = fr_publisher_find_topic(board, client, table->topic, &found, err);
        if (status == FR_OK && acked && found.administrable)
            status = fr_publisher_check_size(client, table->topic, "export.format: hps", HPS_MESSAGE_MAX, err);
        if (status == FR_OK && acked && *acked > 0)
            status = warn_of_empty(table, board, client, *acked, err);
    }
    return status;
}

/* ---- messages ---- */

static const struct hps_table *find_table(const struct fr_publisher_hps *hps, struct fr_delta_text name)
{
    for (uint32_t t = 0; t < hps->n_tables; t++)
        if (strlen(hps->tables[t].name) == name.size && memcmp(hps->tables[t].name, name.bytes, name.size) == 0)
            return &hps->tables[t];
    return NULL;
}

static void put_row(struct fr_buffer *message, const struct fr_delta_record *record, uint32_t row)
{
    fr_buffer_append(message, record->rows.keys + (size_t)row * sizeof(uint64_t), sizeof(uint64_t));
    for (uint32_t s = 0; s < record->rows.n_segments; s++) {
        size_t size = record->rows.segments[s].dim * sizeof(float);
        fr_delta_segment_row(record, s, row, (float *)(void *)fr_buffer_reserve(message, size));
        message->size += size;
    }
}

static void add_rows(struct fr_outgoing *out, const struct hps_table *table, const struct fr_delta_record *record)
{
    struct fr_buffer *message = &out->hps->message;
    uint32_t floats = 0;
    for (uint32_t s = 0; s < record->rows.n_segments; s++)
        floats += record->rows.segments[s].dim;
    uint32_t value_bytes = floats * (uint32_t)sizeof(float);
    size_t pair = sizeof(uint64_t) + value_bytes, fit = (HPS_MESSAGE_MAX - HPS_HEAD) / pair;
    uint32_t most = fit > 0 ? (uint32_t)fit : 1; /* a row that is too wide is sent alone */
    for (uint32_t at = 0; at < record->rows.n_rows;) {
        uint32_t end = record->rows.n_rows - at > most ? at + most : record->rows.n_rows;
        fr_buffer_clear(message);
        fr_buffer_append(message, "HCTR", 4);
        fr_put_u32(message, value_bytes);
        for (; at < end; at++)
            put_row(message, record, at);
        fr_publisher_append(out, table->topic, record->partition, message->data, message->size);
    }
    out->hps_rows += record->rows.n_rows;
}

enum fr_status fr_publisher_hps_add(struct fr_outgoing *out, const void *bytes, size_t size)
{
    struct fr_delta_record record;
    enum fr_status status = fr_delta_read(bytes, size, &record, NULL);
    if (status != FR_OK)
        return status;
    if (record.kind == FR_DELTA_DROP)
        out->hps_drops += record.drop.n_rows;
    if (record.kind != FR_DELTA_ROWS)
        return FR_OK;
    const struct hps_table *table = find_table(out->hps, record.rows.table);
    if (!table)
        return FR_E_CORRUPT; /* the journal file has other tables than the model */
    add_rows(out, table, &record);
    return FR_OK;
}
