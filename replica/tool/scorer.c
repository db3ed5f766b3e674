/* Lines of samples in, lines of probabilities out, in the file's order. Labels and times are not needed and not looked
 * at. Thread: the replica's. Does not: skip a line it cannot read; a score that belongs to no sample helps nobody. */
#include "scorer.h"

#include <zlib.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "number.h"

enum { LINE_MAX_BYTES = 64 << 20, READ_BYTES = 1 << 16, SAMPLES_MAX = 1 << 16 };

struct scoring {
    struct freshet_replica *replica;
    uint32_t n_tasks;
    float *scores; /* [SAMPLES_MAX * n_tasks] */
    struct fr_buffer lines;
    FILE *out;
};

/* FR_EOF at the end of the file. The line has no newline. */
static enum fr_status read_line(gzFile file, struct fr_buffer *line, const char *path, struct fr_err *err)
{
    fr_buffer_clear(line);
    for (;;) {
        char *to = (char *)fr_buffer_reserve(line, READ_BYTES);
        if (!gzgets(file, to, READ_BYTES)) {
            int code;
            const char *text = gzerror(file, &code);
            if (code != Z_OK && code != Z_STREAM_END)
                return fr_err_set(err, FR_E_IO, "reading %s: %s", path, code == Z_ERRNO ? strerror(errno) : text);
            return line->size > 0 ? FR_OK : FR_EOF;
        }
        line->size += strlen(to);
        if (line->size > 0 && line->data[line->size - 1] == '\n') {
            line->size--;
            return FR_OK;
        }
        if (line->size > LINE_MAX_BYTES)
            return fr_err_set(err, FR_E_LIMIT, "%s: a line is longer than %d bytes", path, LINE_MAX_BYTES);
    }
}

static void put_scores(struct scoring *scoring, uint32_t n_samples)
{
    for (uint32_t i = 0; i < n_samples; i++) {
        for (uint32_t t = 0; t < scoring->n_tasks; t++) {
            fr_buffer_printf(&scoring->lines, "%s\"%s\":", t ? "," : "{",
                             freshet_replica_task_name(scoring->replica, t));
            fr_put_number(&scoring->lines, scoring->scores[(size_t)i * scoring->n_tasks + t]);
        }
        fr_buffer_append(&scoring->lines, "}\n", 2);
    }
}

static bool is_empty(const struct fr_buffer *line)
{
    for (size_t i = 0; i < line->size; i++)
        if (!memchr(" \t\r", line->data[i], 3))
            return false;
    return true;
}

static enum fr_status score_line(struct scoring *scoring, const struct fr_buffer *line, const char *where,
                                 struct fr_err *err)
{
    uint32_t n_samples = SAMPLES_MAX;
    int scored =
        freshet_replica_score_json(scoring->replica, (const char *)line->data, line->size, scoring->scores, &n_samples);
    if (scored != FRESHET_OK)
        return fr_err_set(err, FR_E_INVALID, "%s: not a sample that this model can score (%s)", where,
                          fr_status_name((enum fr_status)scored));
    put_scores(scoring, n_samples);
    if (fwrite(scoring->lines.data, 1, scoring->lines.size, scoring->out) != scoring->lines.size)
        return fr_err_set(err, FR_E_IO, "writing scores: %s", strerror(errno));
    fr_buffer_clear(&scoring->lines);
    return FR_OK;
}

enum fr_status fr_score_file(struct freshet_replica *replica, const char *path, FILE *out, struct fr_err *err)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    if (!info.scorable)
        return fr_err_set(err, FR_E_NOT_FOUND,
                          "the replica cannot score at epoch %" PRIu64 ": the model or a dense parameter is missing",
                          info.epoch);
    gzFile file = gzopen(path, "r");
    if (!file)
        return fr_err_set(err, FR_E_NOT_FOUND, "opening %s: %s", path, strerror(errno));
    struct scoring scoring = {.replica = replica, .n_tasks = freshet_replica_tasks(replica), .out = out};
    scoring.scores = fr_alloc((size_t)SAMPLES_MAX * (scoring.n_tasks ? scoring.n_tasks : 1), sizeof(float));
    struct fr_buffer line = {0};
    enum fr_status status;
    char where[512];
    for (uint64_t number = 0; (status = read_line(file, &line, path, err)) == FR_OK; number++) {
        if (is_empty(&line))
            continue;
        snprintf(where, sizeof(where), "%s, line %" PRIu64 " (from 0)", path, number);
        status = score_line(&scoring, &line, where, err);
        if (status != FR_OK)
            break;
    }
    (void)gzclose(file); /* only read */
    fr_buffer_release(&line);
    fr_buffer_release(&scoring.lines);
    free(scoring.scores);
    if (status == FR_EOF && fflush(out) != 0)
        return fr_err_set(err, FR_E_IO, "writing scores: %s", strerror(errno));
    return status == FR_EOF ? FR_OK : status;
}
