/* The public dump of a state directory: what a complete replica of the same epoch writes, byte for byte (codec/dump.h).
 * Rows pass through the timeline's quantization in the writer; dense parameters are those last published. Thread: one.
 */
#include "state_reader.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "codec/dump.h"
#include "store/store.h"

struct sink {
    int (*write)(void *self, const void *bytes, size_t size);
    void *self;
};

static enum fr_status pass_on(void *self, const void *bytes, size_t size)
{
    const struct sink *sink = self;
    return sink->write(sink->self, bytes, size) == 0 ? FR_OK : FR_E_IO;
}

static enum fr_status dump_rows(const struct fr_state *state, struct fr_dump *dump)
{
    struct fr_dump_segment segments[FR_CODEC_PARTS_MAX];
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < state->n_keys && status == FR_OK; i++) {
        const struct fr_state_key *key = &state->keys[i];
        if (key->kind != FR_IMAGE_ROW)
            continue;
        const struct fr_codec_table *table = &state->settings.tables[key->table];
        const uint8_t *values = key->bytes + FR_ROW_IMAGE_HEAD;
        for (uint32_t p = 0; p < table->n_parts; p++) {
            segments[p] =
                (struct fr_dump_segment){.part = table->parts[p].name, .dim = table->parts[p].dim, .values = values};
            values += (size_t)table->parts[p].dim * sizeof(float);
        }
        status = fr_dump_row(dump, table->name, key->key, segments, table->n_parts);
    }
    return status;
}

static int compare_views(const void *left, const void *right)
{
    const struct fr_dense_view *a = left, *b = right;
    return strcmp(a->name, b->name);
}

static enum fr_status dump_dense(const struct fr_state *state, struct fr_dump *dump)
{
    const struct fr_buffer *section = &state->published_dense;
    struct fr_dense_view *views = NULL;
    size_t n = 0, capacity = 0;
    const uint8_t *at = NULL;
    enum fr_status status;
    for (;;) {
        if (n == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            views = fr_realloc(views, capacity, sizeof(*views));
        }
        status = fr_dense_next(section->data, section->size, &at, &views[n]);
        if (status != FR_OK)
            break;
        n++;
    }
    if (n > 1)
        qsort(views, n, sizeof(*views), compare_views);
    if (status == FR_EOF)
        status = FR_OK;
    for (size_t i = 0; i < n && status == FR_OK; i++) {
        struct fr_delta_dense dense = {.name = views[i].name,
                                       .n_dims = views[i].n_dims,
                                       .shape = {views[i].shape[0], views[i].shape[1]},
                                       .n_values = views[i].n_values,
                                       .values = views[i].values,
                                       .exact = views[i].exact};
        status = fr_dump_dense(dump, &dense);
    }
    free(views);
    return status;
}

enum fr_status fr_state_dump_public(const struct fr_state *state,
                                    int (*write)(void *self, const void *bytes, size_t size), void *self,
                                    struct fr_state_summary *summary, struct fr_err *err)
{
    FR_CHECK(state->depth == FR_STATE_PUBLIC);
    if (state->published_dense_epoch == 0)
        return fr_err_set(err, FR_E_NOT_FOUND,
                          "no epoch left in the journal published dense parameters: drain the daemon (its last epoch "
                          "always does), then ask again");
    struct sink sink = {write, self};
    struct fr_dump dump;
    uint64_t hash = 0;
    fr_dump_init(&dump, state->settings.quantize, pass_on, &sink);
    enum fr_status status = dump_rows(state, &dump);
    if (status == FR_OK)
        status = dump_dense(state, &dump);
    struct fr_dump_end end = {.timeline = state->status.timeline,
                              .epoch = state->status.epoch,
                              .wm_ms = state->announcement.watermark_ms,
                              .samples = state->announcement.samples};
    if (status == FR_OK)
        status = fr_dump_end(&dump, &end, &hash);
    if (status == FR_OK && summary)
        *summary = (struct fr_state_summary){.n_dense = dump.n_dense, .hash = hash};
    fr_dump_release(&dump);
    return status == FR_OK || status == FR_E_IO
               ? status
               : fr_err_set(err, status, "the state of epoch %" PRIu64 " cannot be dumped: %s", state->status.epoch,
                            fr_status_name(status));
}
