/* Savepoints: a state as of its folded epoch, as a directory of its own.
 *
 * A savepoint is a state directory without a journal: cold store, mark and small files. Sorted
 * files are links to those of the state where the file system is the same, so it is made in
 * milliseconds and takes room only as the two move apart. It appears under its name whole and
 * synced, or not at all; what a crash leaves ends with ".part", and is removed when the state is
 * opened by a writer. `freshet state` and `freshet dump` read it like any state.
 *
 * A new state begins from a savepoint in a new timeline (docs/architecture.md, "Savepoint"), never
 * in place. */
#ifndef FR_DURABLE_SAVEPOINT_H
#define FR_DURABLE_SAVEPOINT_H

#include <limits.h>
#include <stdbool.h>

#include "durable/durable.h"

struct fr_savepoint {
    uint64_t timeline, epoch;
    struct fr_sha256 digest;
    uint64_t bytes; /* of its files, linked ones too */
};

/* Writes what is folded to `path`, which must not exist; its parent is made. Folding before is the
 * caller's. Thread: the fold thread. FR_E_STATE: nothing is folded yet; FR_E_EXISTS; FR_E_NO_SPACE,
 * FR_E_DENIED, FR_E_IO: no savepoint, and the state is as it was. */
enum fr_status fr_durable_savepoint(struct fr_durable *durable, const char *path, struct fr_savepoint *out,
                                    struct fr_err *err) FR_MUST_CHECK;

/* Looks at a savepoint's mark and cold store as open does. FR_E_NOT_FOUND: no state there;
 * FR_E_STATE: a state with a journal, which is no savepoint; FR_E_CORRUPT; FR_E_MISMATCH. */
enum fr_status fr_savepoint_look(const char *path, struct fr_savepoint *out, struct fr_err *err) FR_MUST_CHECK;

/* What another model has of its own beside the savepoint's rows: the head of journal files, and
 * a small file, which take the place of the savepoint's. */
struct fr_savepoint_own {
    const void *head;
    size_t head_size;
    const char *name; /* of the small file */
    const void *bytes;
    size_t size;
};

/* Makes the state directory `dir` from the savepoint at `path`: its epoch in timeline + 1, all
 * of it acknowledged. dir must be missing or without state (FR_E_EXISTS); what an interrupted
 * call left there is taken away first. disk NULL: the system's; own NULL: the same model. */
enum fr_status fr_savepoint_restore(const char *path, const char *dir, const struct fr_disk *disk,
                                    const struct fr_savepoint_own *own, struct fr_savepoint *out,
                                    struct fr_err *err) FR_MUST_CHECK;

/* Removes a savepoint: first it loses its name, so that no half of it is ever found under it. */
enum fr_status fr_savepoint_remove(const char *path, struct fr_err *err) FR_MUST_CHECK;

/* ---- the folder of a state's savepoints ---- */

/* state_dir/savepoints. Any process asks for one by a file NAME.request, which the daemon turns
 * into a savepoint NAME or a file NAME.failed that says why not. Names match [A-Za-z0-9_-]{1,64};
 * those the daemon gives by its own policy begin with "auto-". Functions take the state directory.
 * Any thread. */

enum { FR_SAVEPOINT_NAME_MAX = 65 };

/* FR_E_INVALID (name), FR_E_EXISTS, FR_E_LIMIT (path). */
enum fr_status fr_savepoint_ask(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* What became of it: FR_OK there is a savepoint; FR_AGAIN not yet; FR_E_STATE with the reason. */
enum fr_status fr_savepoint_answered(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* The first name that is asked for; false: none. */
bool fr_savepoint_next_request(const char *dir, char name[FR_SAVEPOINT_NAME_MAX]);
/* Ends a request; reason NULL: the savepoint is there. */
enum fr_status fr_savepoint_answer(const char *dir, const char *name, const char *reason,
                                   struct fr_err *err) FR_MUST_CHECK;
/* FR_E_INVALID, FR_E_LIMIT. */
enum fr_status fr_savepoint_path(const char *dir, const char *name, char out[PATH_MAX],
                                 struct fr_err *err) FR_MUST_CHECK;
/* Names of the savepoints that are whole, ascending; *out is released by free. */
enum fr_status fr_savepoint_names(const char *dir, char (**out)[FR_SAVEPOINT_NAME_MAX], size_t *n,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Removes what a crash left of savepoints that were made or removed there. By whoever holds the
 * state, before it takes or removes one. */
enum fr_status fr_savepoint_sweep(const struct fr_disk *disk, const char *dir, struct fr_err *err) FR_MUST_CHECK;

#endif
