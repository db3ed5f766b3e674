/* The last day of a few numbers (contract: metrics/history.h).
 *
 * A resolution is a ring of points, each a value of every column. The newest point is open: it is
 * written again each second from what its seconds gave so far, so a reader sees it grow and no
 * point is lost when the process ends. Points between the last second that had values and the
 * present one are set to NaN when the next values come; what comes after the newest second is not
 * part of the document. */
#include "metrics/history.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"

enum { RESOLUTIONS = 3, COUNTS = FR_HISTORY_RATE_SECONDS + 1 };

static const struct {
    uint32_t step_s, points;
} shapes[RESOLUTIONS] = {{1, 600}, {10, 720}, {60, 1440}};

static const char *const of_names[] = {
    [FR_HISTORY_MEAN] = "mean", [FR_HISTORY_MAX] = "max", [FR_HISTORY_LAST] = "last", [FR_HISTORY_RATE] = "mean"};

/* What the seconds of the open point gave. */
struct open {
    double value; /* sum, maximum or last */
    uint32_t count;
};

struct ring {
    float *values; /* [points][columns] */
    struct open open[FR_HISTORY_COLUMNS_MAX];
    int64_t newest; /* number of the open point: its first second / step */
};

/* The values of counters at one second. */
struct counted {
    uint64_t at_ns;
    double values[FR_HISTORY_COLUMNS_MAX];
};

struct fr_history {
    const struct fr_clock *clock;
    uint64_t begin_ns;
    /* Columns do not change after the first values. */
    struct fr_history_column columns[FR_HISTORY_COLUMNS_MAX];
    size_t n_columns;

    pthread_mutex_t lock; /* all below */
    int64_t first, last;  /* seconds with values; last -1: none */
    struct ring rings[RESOLUTIONS];
    struct counted counted[COUNTS]; /* of second s at s % COUNTS; at_ns 0: none */
};

struct fr_history *fr_history_new(const struct fr_clock *clock)
{
    struct fr_history *history = fr_alloc(1, sizeof(*history));
    history->clock = clock;
    history->begin_ns = fr_mono_ns(clock);
    history->last = -1;
    pthread_mutex_init(&history->lock, NULL);
    return history;
}

void fr_history_free(struct fr_history *history)
{
    if (!history)
        return;
    for (size_t r = 0; r < RESOLUTIONS; r++)
        free(history->rings[r].values);
    pthread_mutex_destroy(&history->lock);
    free(history);
}

bool fr_history_add(struct fr_history *history, const struct fr_history_column *column)
{
    FR_CHECK(history->last < 0);
    if (history->n_columns == FR_HISTORY_COLUMNS_MAX)
        return false;
    history->columns[history->n_columns++] = *column;
    return true;
}

static int64_t present_second(const struct fr_history *history)
{
    return (int64_t)((fr_mono_ns(history->clock) - history->begin_ns) / 1000000000u);
}

bool fr_history_due(const struct fr_history *history)
{
    return present_second(history) > history->last;
}

/* ---- values ---- */

/* Growth a second since the oldest second within FR_HISTORY_RATE_SECONDS whose count is known. */
static double rate(const struct fr_history *history, size_t column, int64_t second, uint64_t now_ns, double count)
{
    for (int64_t s = second - FR_HISTORY_RATE_SECONDS; s < second; s++) {
        const struct counted *before = &history->counted[(s + COUNTS) % COUNTS];
        if (s < 0 || before->at_ns == 0 || isnan(before->values[column]))
            continue;
        return count < before->values[column]
                   ? (double)NAN
                   : (count - before->values[column]) * 1e9 / (double)(now_ns - before->at_ns);
    }
    return (double)NAN;
}

/* Replaces the counters by their rates. */
static void take_rates(struct fr_history *history, int64_t second, double *values)
{
    uint64_t now_ns = fr_mono_ns(history->clock);
    for (int64_t s = history->last + 1; s < second && s <= history->last + COUNTS; s++)
        history->counted[s % COUNTS].at_ns = 0; /* seconds without values */
    struct counted *now = &history->counted[second % COUNTS];
    *now = (struct counted){.at_ns = now_ns};
    memcpy(now->values, values, history->n_columns * sizeof(*values));
    for (size_t c = 0; c < history->n_columns; c++)
        if (history->columns[c].of == FR_HISTORY_RATE)
            values[c] = rate(history, c, second, now_ns, values[c]);
}

static void join(struct open *open, enum fr_history_of of, double value)
{
    if (isnan(value))
        return;
    bool first = open->count++ == 0;
    if (of == FR_HISTORY_LAST || first)
        open->value = value;
    else if (of == FR_HISTORY_MAX)
        open->value = value > open->value ? value : open->value;
    else
        open->value += value;
}

static float point_of(const struct open *open, enum fr_history_of of)
{
    if (open->count == 0)
        return NAN;
    bool summed = of == FR_HISTORY_MEAN || of == FR_HISTORY_RATE;
    return (float)(summed ? open->value / open->count : open->value);
}

static void ring_put(struct fr_history *history, size_t r, int64_t second, const double *values)
{
    struct ring *ring = &history->rings[r];
    const int64_t points = shapes[r].points, point = second / shapes[r].step_s;
    const size_t columns = history->n_columns;
    if (history->last < 0)
        ring->values = fr_alloc((size_t)points * columns + 1, sizeof(*ring->values));
    if (history->last < 0 || point != ring->newest) {
        /* points in between, of which the ring holds so many at most */
        int64_t from = history->last < 0 ? point : ring->newest + 1;
        for (int64_t p = from > point - points ? from : point - points + 1; p <= point; p++)
            for (size_t c = 0; c < columns; c++)
                ring->values[(size_t)(p % points) * columns + c] = NAN;
        memset(ring->open, 0, sizeof(ring->open));
        ring->newest = point;
    }
    for (size_t c = 0; c < columns; c++) {
        join(&ring->open[c], history->columns[c].of, values[c]);
        ring->values[(size_t)(point % points) * columns + c] = point_of(&ring->open[c], history->columns[c].of);
    }
}

void fr_history_put(struct fr_history *history, const double *values)
{
    double taken[FR_HISTORY_COLUMNS_MAX];
    int64_t second = present_second(history);
    if (second <= history->last)
        return;
    memcpy(taken, values, history->n_columns * sizeof(*taken));
    pthread_mutex_lock(&history->lock);
    take_rates(history, second, taken);
    for (size_t r = 0; r < RESOLUTIONS; r++)
        ring_put(history, r, second, taken);
    if (history->last < 0)
        history->first = second;
    history->last = second;
    pthread_mutex_unlock(&history->lock);
}

/* ---- the document ---- */

struct asked {
    int64_t since; /* a point is wanted if its last second is not before */
    int64_t step;
};

/* A number that is the value of `name`, with the '&' that may follow. */
static bool parse_pair(const char **query, const char *name, int64_t *out)
{
    size_t length = strlen(name);
    if (strncmp(*query, name, length) != 0)
        return false;
    const char *digits = *query + length;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 15 || (digits[n] && digits[n] != '&'))
        return false;
    *out = strtoll(digits, NULL, 10);
    *query = digits + n + (digits[n] == '&');
    return true;
}

/* Returns the number of the resolution that is asked for; RESOLUTIONS: the query is refused. */
static size_t parse(const char *query, struct asked *asked)
{
    size_t r = 0;
    while (*query)
        if (!parse_pair(&query, "since=", &asked->since) && !parse_pair(&query, "step=", &asked->step))
            return RESOLUTIONS;
    while (r < RESOLUTIONS && asked->step != shapes[r].step_s)
        r++;
    return r;
}

static void put_columns(const struct fr_history *history, struct fr_json *json)
{
    fr_json_array(json, "columns");
    for (size_t c = 0; c < history->n_columns; c++) {
        const struct fr_history_column *column = &history->columns[c];
        fr_json_object(json, NULL);
        fr_json_text(json, "name", column->name);
        if (column->task[0])
            fr_json_text(json, "task", column->task);
        if (column->half_life[0])
            fr_json_text(json, "half_life", column->half_life);
        fr_json_text(json, "of", of_names[column->of]);
        fr_json_end(json);
    }
    fr_json_end(json);
}

/* Numbers are written without the JSON writer, which knows doubles only: a float of seven digits
 * takes half the room. */
static void put_column(const struct ring *ring, size_t r, size_t column, size_t columns, int64_t from,
                       struct fr_buffer *out)
{
    for (int64_t p = from; p <= ring->newest; p++) {
        float value = ring->values[(size_t)(p % shapes[r].points) * columns + column];
        if (p > from)
            fr_put_u8(out, ',');
        if (isfinite(value))
            fr_buffer_printf(out, "%.7g", (double)value);
        else
            fr_buffer_append(out, "null", 4);
    }
}

static void put_resolution(const struct fr_history *history, size_t r, int64_t since, struct fr_json *json)
{
    const struct ring *ring = &history->rings[r];
    const int64_t step = shapes[r].step_s, oldest = ring->newest - shapes[r].points + 1;
    int64_t from = history->first / step;
    from = from > oldest ? from : oldest;
    from = since / step > from ? since / step : from;
    if (history->last < 0)
        from = 0;
    fr_json_i64(json, "step", step);
    fr_json_i64(json, "first", from * step);
    fr_json_array(json, "values");
    for (size_t c = 0; c < history->n_columns; c++) {
        fr_json_array(json, NULL);
        if (history->last >= 0)
            put_column(ring, r, c, history->n_columns, from, json->out);
        fr_json_end(json);
    }
    fr_json_end(json);
}

int fr_history_answer(void *self, const char *query, struct fr_buffer *out)
{
    struct fr_history *history = self;
    struct asked asked = {.step = shapes[0].step_s};
    struct fr_json json = {.out = out};
    size_t r = parse(query, &asked);
    if (r == RESOLUTIONS) {
        fr_buffer_printf(out, "{\"error\":\"the query may have since=SECOND and step=1, 10 or 60\"}\n");
        return 400;
    }
    pthread_mutex_lock(&history->lock);
    fr_json_object(&json, NULL);
    fr_json_i64(&json, "begin_ms",
                fr_wall_ms(history->clock) - (int64_t)((fr_mono_ns(history->clock) - history->begin_ns) / 1000000u));
    fr_json_i64(&json, "second", history->last);
    put_columns(history, &json);
    put_resolution(history, r, asked.since, &json);
    fr_json_end(&json);
    pthread_mutex_unlock(&history->lock);
    fr_put_u8(out, '\n');
    return 200;
}
