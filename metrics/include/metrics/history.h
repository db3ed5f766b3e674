/* The last day of a few numbers in memory, for GET /history and the page: each second a value of
 * each column, kept at three resolutions.
 *
 *     step    points   span
 *      1 s       600   10 minutes
 *     10 s       720   2 hours
 *     60 s      1440   1 day
 *
 * A point of a coarser step joins the seconds in it as its column says (enum fr_history_of). A
 * value that was not known, and a second in which nobody put values, is null. Nothing is stored on
 * disk: the history begins with the process.
 *
 * Seconds are those of the monotonic clock since fr_history_new, so a wall clock that is set does
 * not tear the history; the document has the wall time at which second 0 began, by the present
 * clock.
 *
 * Memory: 4 bytes a value, 2760 values a column; at most FR_HISTORY_COLUMNS_MAX columns, 1.4 MB.
 *
 * Thread: one thread at a time adds columns and puts values. Any thread may read; a mutex is held
 * while the document is written. */
#ifndef FR_METRICS_HISTORY_H
#define FR_METRICS_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/clock.h"

enum { FR_HISTORY_COLUMNS_MAX = 128, FR_HISTORY_NAME_MAX = 64, FR_HISTORY_RATE_SECONDS = 5 };

/* What a point says about the seconds in it. */
enum fr_history_of {
    FR_HISTORY_MEAN,
    FR_HISTORY_MAX,
    FR_HISTORY_LAST, /* the last value that was known */
    /* The values put are those of a counter; a second's value is the growth a second over the last
     * FR_HISTORY_RATE_SECONDS, and a point is the mean of its seconds. A counter that fell has no
     * rate. */
    FR_HISTORY_RATE,
};

struct fr_history_column {
    char name[FR_HISTORY_NAME_MAX];
    char task[FR_HISTORY_NAME_MAX];      /* "": of no task */
    char half_life[FR_HISTORY_NAME_MAX]; /* "": of none */
    enum fr_history_of of;
};

struct fr_history;

/* The clock is borrowed. */
struct fr_history *fr_history_new(const struct fr_clock *clock);
void fr_history_free(struct fr_history *history);

/* Adds a column, before the first values are put. False: there are FR_HISTORY_COLUMNS_MAX. */
bool fr_history_add(struct fr_history *history, const struct fr_history_column *column);
/* Whether the present second has no values yet. */
bool fr_history_due(const struct fr_history *history);
/* Puts the values of the present second, one a column in the order in which columns were added;
 * NaN: not known. In a second that has values already: does nothing. */
void fr_history_put(struct fr_history *history, const double *values);

/* Writes the document of GET /history (docs/http.md, "/history"). The query may have `step`, one
 * of the steps (1 without it), and `since`, a second, for points that end later.
 * Returns 200, or 400 with the reason if the query is anything else. The type is that of
 * fr_http_render. */
int fr_history_answer(void *history, const char *query, struct fr_buffer *out);

#endif
