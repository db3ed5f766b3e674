/* Reads lines of samples and writes lines of probabilities, in the file's order. Labels and
 * times are not needed and are ignored.
 *
 * Thread: the replica's. A line that cannot be read ends the command: if it were skipped, scores
 * could not be assigned to samples. */
#include "score/served.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "input.h"

enum { SAMPLES_MAX = 1 << 16 };

struct scoring {
    struct freshet_replica *replica;
    uint32_t n_tasks;
    float *scores; /* [SAMPLES_MAX * n_tasks] */
    struct fr_buffer lines;
    FILE *out;
    uint64_t ignored; /* values under names of slots that the model does not have */
};

static void put_scores(struct scoring *scoring, uint32_t n_samples)
{
    for (uint32_t i = 0; i < n_samples; i++) {
        const float *scores = scoring->scores + (size_t)i * scoring->n_tasks;
        struct fr_json json = {.out = &scoring->lines};
        fr_json_object(&json, NULL);
        for (uint32_t t = 0; t < scoring->n_tasks; t++)
            fr_json_number(&json, freshet_replica_task_name(scoring->replica, t), (double)scores[t]);
        fr_json_end(&json);
        fr_put_u8(&scoring->lines, '\n');
    }
}

static enum fr_status score_line(struct scoring *scoring, const char *line, size_t size, struct fr_err *err)
{
    uint32_t n_samples = SAMPLES_MAX;
    if (freshet_replica_score_json(scoring->replica, line, size, scoring->scores, &n_samples) != FRESHET_OK)
        return fr_err_set(err, FR_E_INVALID, "not a sample that this model can score: %s",
                          freshet_replica_score_problem(scoring->replica));
    scoring->ignored += freshet_replica_score_ignored(scoring->replica, NULL, 0);
    put_scores(scoring, n_samples);
    if (fwrite(scoring->lines.data, 1, scoring->lines.size, scoring->out) != scoring->lines.size)
        return fr_err_set(err, FR_E_IO, "writing scores: %s", strerror(errno));
    fr_buffer_clear(&scoring->lines);
    return FR_OK;
}

static enum fr_status score_lines(struct scoring *scoring, struct fr_lines *lines, const char *path, struct fr_err *err)
{
    enum fr_status status;
    struct fr_line line;
    while ((status = fr_tool_lines_next(lines, path, &line, err)) == FR_OK) {
        if (!fr_lines_blank(&line))
            status = score_line(scoring, line.value, line.size, err);
        if (status != FR_OK)
            return fr_err_wrap(err, "%s, line %" PRId64 " (from 0)", path, line.number);
    }
    if (status != FR_EOF)
        return status;
    return fflush(scoring->out) == 0 ? FR_OK : fr_err_set(err, FR_E_IO, "writing scores: %s", strerror(errno));
}

enum fr_status fr_tool_score_file(struct freshet_replica *replica, const char *path, FILE *out, struct fr_err *err)
{
    struct fr_lines *lines = NULL;
    enum fr_status status = fr_tool_lines_open(path, &lines, err);
    if (status != FR_OK)
        return status;
    struct scoring scoring = {.replica = replica, .n_tasks = freshet_replica_tasks(replica), .out = out};
    scoring.scores = fr_alloc((size_t)SAMPLES_MAX * (scoring.n_tasks ? scoring.n_tasks : 1), sizeof(float));
    status = score_lines(&scoring, lines, path, err);
    char names[512], quoted[1040];
    if (scoring.ignored) {
        (void)freshet_replica_score_ignored(replica, names, sizeof(names));
        fr_log(FR_LOG_WARN, "score", "ignored",
               "values=%" PRIu64 " slots=%s note=\"the model has no slots of these names: they score as absent\"",
               scoring.ignored, fr_log_quote(quoted, sizeof(quoted), names));
    }
    fr_lines_free(lines);
    fr_buffer_release(&scoring.lines);
    free(scoring.scores);
    return status;
}
