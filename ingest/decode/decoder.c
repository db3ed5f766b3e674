/* Decodes a record: from its bytes come staged samples or the reason of a refusal
 * (docs/formats/samples.md).
 *
 * The record is read once, from front to back, into the staging. The first fault ends the
 * decoding, and nothing of the record stays.
 *
 * Invariants: the staging holds the whole record after FR_OK and nothing after a fault. Nothing
 * is allocated once the arrays have grown to their size.
 *
 * The decoder does not count decoded and malformed records, keep positions, or use Kafka (ingest
 * does). */
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    RECORD_MAX_DEFAULT = 1 << 20,
    /* staging counts are 32 bits wide; Kafka's own sizes are int32 too */
    RECORD_MAX_CEILING = INT32_MAX,
    GROUP_MAX_DEFAULT = 4096,
};

static struct fr_decoder *decoder_new(const struct fr_conf *conf, enum fr_format format, bool scoring)
{
    struct fr_decoder *d = fr_alloc(1, sizeof(*d));
    d->conf = conf;
    d->format = format;
    d->scoring = scoring;
    uint64_t record_max = conf->ingest.record_max ? conf->ingest.record_max : RECORD_MAX_DEFAULT;
    d->record_max = record_max < RECORD_MAX_CEILING ? (size_t)record_max : RECORD_MAX_CEILING;
    d->group_max = conf->ingest.group_max ? conf->ingest.group_max : GROUP_MAX_DEFAULT;
    fr_decode_labels_init(d);
    fr_staging_init(&d->staging, conf);
    fr_decode_names_init(&d->names, conf);
    d->flat = conf->ingest.envelope && !scoring ? fr_decode_flat_new(conf) : NULL;
    fr_decode_computed_init(d);
    fr_decode_dense_init(d);
    fr_decode_weights_init(d);
    return d;
}

struct fr_decoder *fr_decoder_new(const struct fr_conf *conf)
{
    return decoder_new(conf, (enum fr_format)conf->ingest.format, false);
}

struct fr_decoder *fr_decoder_new_scoring(const struct fr_conf *conf, enum fr_format format)
{
    return decoder_new(conf, format, true);
}

void fr_decoder_free(struct fr_decoder *d)
{
    if (!d)
        return;
    fr_staging_release(&d->staging);
    fr_decode_names_release(&d->names);
    fr_decode_flat_free(d->flat);
    fr_key_set_release(&d->sample_keys);
    fr_key_set_release(&d->group_keys);
    fr_key_set_release(&d->member_keys);
    fr_buffer_release(&d->scratch);
    fr_buffer_release(&d->reason);
    free(d->required);
    free(d->computed);
    free(d->loose);
    free(d);
}

/* ---- the record ---- */

static enum fr_status parse_array(struct fr_decoder *d)
{
    struct fr_token token;
    enum fr_status status;
    for (d->path.item = 0;; d->path.item++) {
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if (token.kind == FR_TOKEN_END) {
            d->path.item = -1;
            return FR_OK;
        }
        if (token.kind == FR_TOKEN_ARRAY)
            return fr_decode_fail(d, FR_E_INVALID, "arrays of samples do not nest");
        if (token.kind != FR_TOKEN_MAP)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a sample or group was expected", fr_decode_kind(&token));
        if ((status = fr_decode_map(d)) != FR_OK)
            return status;
    }
}

static enum fr_status parse_record(struct fr_decoder *d)
{
    struct fr_token token;
    enum fr_status status = fr_decode_next(d, &token);
    if (status != FR_OK)
        return status;
    if (token.kind == FR_TOKEN_MAP)
        status = fr_decode_map(d);
    else if (token.kind == FR_TOKEN_ARRAY)
        status = parse_array(d);
    else
        return fr_decode_fail(d, FR_E_INVALID, "%s; a record is a map or an array", fr_decode_kind(&token));
    if (status != FR_OK)
        return status;
    status = fr_cursor_next(&d->cursor, &token);
    if (status == FR_EOF)
        return FR_OK;
    FR_CHECK(status < 0); /* the cursor yields one value, so this is an error */
    return fr_decode_refused(d, status);
}

enum fr_status fr_decode_record(struct fr_decoder *d, const struct fr_record *record, uint32_t *n_samples,
                                const char **reason)
{
    fr_staging_clear(&d->staging);
    fr_buffer_clear(&d->scratch);
    d->kafka_ms = record->timestamp_ms;
    d->timestamp_ms = fr_decode_timestamp(record->timestamp_ms);
    d->received_ms = record->received_ms;
    d->future = FR_FUTURE_NONE;
    d->path = (struct fr_decode_path){.item = -1, .sub = -1, .entry = -1, .index = -1};
    enum fr_status status;
    if (record->size == 0) {
        status = fr_decode_fail(d, FR_E_INVALID, "the record is empty");
        d->malformed = FR_MALFORMED_EMPTY;
    } else if (record->size > d->record_max) {
        status = fr_decode_fail(d, FR_E_LIMIT, "the record has %zu bytes, more than ingest.record_max (%zu)",
                                record->size, d->record_max);
    } else {
        fr_cursor_init(&d->cursor, d->format, record->value, record->size, &d->scratch);
        status = parse_record(d);
        if (status == FR_OK && d->n_computed)
            status = fr_decode_computed(d);
    }
    if (status != FR_OK) {
        fr_staging_clear(&d->staging);
        *reason = (const char *)d->reason.data;
        return status;
    }
    fr_decode_unknown_total(d);
    *n_samples = d->staging.n_samples;
    return FR_OK;
}

uint32_t fr_decode_take(const struct fr_decoder *d, uint32_t from, uint32_t room)
{
    const struct fr_staging *staging = &d->staging;
    FR_CHECK(from <= staging->n_samples && room > 0);
    if (staging->n_samples - from <= room)
        return staging->n_samples - from;
    /* find the first group that ends at or after from + room */
    uint32_t low = 1, high = staging->n_groups;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (staging->group_begin[middle] < from + room)
            low = middle + 1;
        else
            high = middle;
    }
    return staging->group_begin[low] - from;
}

uint32_t fr_decode_fit(const struct fr_decoder *d, uint32_t from, uint32_t count, const struct fr_decode_room *room)
{
    const struct fr_staging *staging = &d->staging;
    uint64_t per_batch = (uint64_t)d->conf->ingest.batch_size * FR_IDS_PER_SAMPLE;
    uint64_t ids_max = per_batch < FR_BATCH_IDS_MIN ? FR_BATCH_IDS_MIN : per_batch, ids = room->ids;
    ids_max = (ids_max + room->shares - 1) / room->shares;
    if (ids + fr_staging_ids(staging, 0, staging->n_samples) <= ids_max)
        return count;
    uint32_t taken = 0;
    while (taken < count) {
        uint32_t size = fr_decode_take(d, from + taken, 1); /* the size of one group */
        ids += fr_staging_ids(staging, from + taken, size);
        if (ids > ids_max && room->samples + taken > 0)
            break;
        taken += size;
    }
    return taken;
}

void fr_decode_append(struct fr_decoder *d, uint32_t from, uint32_t count, struct fr_batch *batch)
{
    fr_staging_append(&d->staging, from, count, batch);
}

enum fr_future fr_decoder_refused_future(const struct fr_decoder *d)
{
    return d->future;
}

int64_t fr_decoder_refused_time(const struct fr_decoder *d)
{
    return d->future_t_ms;
}

enum fr_malformed fr_decoder_malformed(const struct fr_decoder *d)
{
    return d->malformed;
}

const struct fr_unknown *fr_decoder_unknown(const struct fr_decoder *d)
{
    return &d->unknown;
}

void fr_decode_present(const struct fr_decoder *d, uint32_t from, uint32_t count, uint64_t *present)
{
    for (uint32_t s = 0; s < d->staging.n_slots; s++)
        present[s] += fr_staging_present(&d->staging, &d->staging.columns[s], from, count);
}
