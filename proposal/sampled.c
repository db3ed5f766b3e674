/* Records in memory, and those of a file of JSON lines.
 *
 * Owner: the caller's thread. The number of records, their bytes and the time of reading are
 * limited (sampled.h). */
#include "sampled.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ingest/lines.h"

enum { LINE_MAX_BYTES = 64 << 20 /* the largest value of ingest.record_max */ };

void fr_sampled_add(struct fr_sampled *sampled, const struct fr_sampled_record *record, const void *value)
{
    if (!value || record->size == 0) {
        sampled->without_value++;
        return;
    }
    if (sampled->n == sampled->capacity) {
        sampled->capacity = sampled->capacity ? 2 * sampled->capacity : 1024;
        sampled->records = fr_realloc(sampled->records, sampled->capacity, sizeof(*sampled->records));
    }
    struct fr_sampled_record *added = &sampled->records[sampled->n++];
    *added = *record;
    added->at = sampled->bytes.size;
    fr_buffer_append(&sampled->bytes, value, record->size);
    sampled->cut |= sampled->bytes.size >= FR_SAMPLED_BYTES_MAX;
}

void fr_sampled_release(struct fr_sampled *sampled)
{
    fr_buffer_release(&sampled->bytes);
    free(sampled->records);
    *sampled = (struct fr_sampled){0};
}

enum fr_status fr_sampled_file(const struct fr_proposal_options *options, struct fr_sampled *out, struct fr_err *err)
{
    int file = open(options->file, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return fr_err_set(err, errno == ENOENT ? FR_E_NOT_FOUND : FR_E_IO, "--file %s: %s", options->file,
                          strerror(errno));
    struct fr_lines *lines = fr_lines_new(file, LINE_MAX_BYTES, 0, true);
    struct fr_line line;
    enum fr_status status = FR_OK;
    const struct fr_clock *clock = fr_clock_system();
    uint64_t end_ns = fr_mono_ns(clock) + FR_SAMPLED_S * UINT64_C(1000000000);
    while (status >= 0 && status != FR_EOF && out->n < options->records && !out->cut) {
        status = fr_lines_next(lines, &line, err);
        if (status == FR_OK)
            fr_sampled_add(out, &(struct fr_sampled_record){.size = line.size, .offset = line.number}, line.value);
        out->cut |= fr_mono_ns(clock) >= end_ns;
    }
    fr_lines_free(lines);
    return status < 0 ? fr_err_wrap(err, "%s cannot be read", options->file) : FR_OK;
}
