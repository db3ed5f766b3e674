/* The public dump of a state directory, which equals byte for byte what a complete replica of the
 * same epoch writes (codec/dump.h). The writer applies the timeline's quantization to rows; dense
 * parameters are those last published.
 *
 * Thread: one. */
#include "state/state_reader.h"

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

static enum fr_status dump_rows(const struct fr_tool_state *state, struct fr_dump *dump)
{
    struct fr_dump_segment segments[FR_CODEC_PARTS_MAX];
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < state->n_keys && status == FR_OK; i++) {
        const struct fr_tool_state_key *key = &state->keys[i];
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

static enum fr_status dump_dense(const struct fr_tool_state *state, struct fr_dump *dump)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < state->n_published && status == FR_OK; i++) {
        const struct fr_tool_state_section *section = &state->published[i];
        struct fr_dense_view view;
        status = fr_dense_parse(section->name, section->bytes.data, section->bytes.size, &view);
        struct fr_delta_dense dense = {.name = view.name,
                                       .n_dims = view.n_dims,
                                       .shape = {view.shape[0], view.shape[1]},
                                       .n_values = view.n_values,
                                       .values = view.values,
                                       .exact = view.exact};
        if (status == FR_OK)
            status = fr_dump_dense(dump, &dense);
    }
    return status;
}

enum fr_status fr_tool_state_dump_public(const struct fr_tool_state *state,
                                         int (*write)(void *self, const void *bytes, size_t size), void *self,
                                         struct fr_tool_state_summary *summary, struct fr_err *err)
{
    FR_CHECK(state->depth == FR_STATE_PUBLIC);
    if (!state->published_found)
        return fr_err_set(err, FR_E_NOT_FOUND,
                          "the journal no longer holds the dense parameters as they were last published: drain the "
                          "daemon (its last epoch publishes them), then ask again");
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
        *summary = (struct fr_tool_state_summary){.n_dense = dump.n_dense, .hash = hash};
    fr_dump_release(&dump);
    return status == FR_OK || status == FR_E_IO
               ? status
               : fr_err_set(err, status, "the state of epoch %" PRIu64 " cannot be dumped: %s", state->status.epoch,
                            fr_status_name(status));
}
