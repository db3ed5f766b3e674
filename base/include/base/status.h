/* Status codes and error texts shared by every module.
 *
 * A function that can fail returns enum fr_status. A call at a boundary (open, load, parse) also
 * fills a struct fr_err with a text that an operator can act on: what failed, where, and what to do
 * next. Hot paths return the status only. */
#ifndef FR_BASE_STATUS_H
#define FR_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

enum fr_status {
    FR_OK = 0,
    FR_EOF = 1,   /* positive: not an error; nothing more to read */
    FR_AGAIN = 2, /* positive: not an error; nothing now, call again */
    /* bad input from outside (config, record, argument): drop or report, never retry */
    FR_E_INVALID = -1,
    FR_E_LIMIT = -2,     /* a named limit was hit */
    FR_E_NO_MEMORY = -3, /* memory or a thread refused: fatal on the data path */
    FR_E_IO = -4,        /* storage error: fatal, never retried (P6) */
    FR_E_NO_SPACE = -5,  /* disk full: fatal for the epoch, exit 75 */
    FR_E_CORRUPT = -6,   /* stored bytes fail their check: an operator must decide (exit 3) */
    FR_E_NOT_FOUND = -7,
    FR_E_EXISTS = -8,
    FR_E_BUSY = -9,         /* lock held by another process */
    FR_E_UNAVAILABLE = -10, /* peer not reachable now: retry */
    FR_E_DENIED = -11,      /* not authorised */
    /* model, format, timeline or topic is not ours, or the path is used by something else: an
     * operator must decide (exit 3) */
    FR_E_MISMATCH = -12,
    FR_E_NONFINITE = -13,      /* a number that must be finite is not */
    FR_E_LOST = -14,           /* the log itself lost records (P8) */
    FR_E_STATE = -15,          /* call out of order; a bug in the caller */
    FR_E_UNSUPPORTED = -16,    /* valid, but not in this version */
    FR_E_CANCELLED = -17,      /* the end was requested: nothing is wrong, try again */
    FR_E_NO_DESCRIPTORS = -18, /* the process or the system cannot open another file */
};

#define FR_MUST_CHECK __attribute__((warn_unused_result))

/* The text is cut at the end of the array, never overrun. The caller owns it. */
struct fr_err {
    enum fr_status status;
    char text[1024];
};

const char *fr_status_name(enum fr_status status);

/* Fills err (may be NULL) and returns status, so that `return fr_err_set(err, FR_E_IO, "..")` reads
 * well. */
enum fr_status fr_err_set(struct fr_err *err, enum fr_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "text: " in front of err's text. */
enum fr_status fr_err_wrap(struct fr_err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
