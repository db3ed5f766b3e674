/* Savepoints: a copy of a state as of its folded epoch, as a directory of its own.
 *
 * A savepoint is a state directory without a journal: cold store, mark and small files. On the same
 * file system, its sorted files are links to those of the state, so a savepoint is made in
 * milliseconds and takes disk space only as the state changes. It appears under its name complete
 * and synced, or not at all. What a crash leaves has a name that ends with ".part" and is removed
 * when a writer opens the state. `freshet state` and `freshet dump` read a savepoint like any
 * state.
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
    uint64_t bytes; /* of all its files, linked ones included */
};

/* Writes the folded state to `path`, which must not exist; its parent directory is created. The
 * caller folds first if the savepoint should have the newest epoch. Thread: the fold thread.
 * FR_E_STATE: nothing has been folded yet. FR_E_EXISTS, FR_E_NO_SPACE, FR_E_DENIED, FR_E_IO. After
 * an error there is no savepoint, and the state is unchanged. */
enum fr_status fr_durable_savepoint(struct fr_durable *durable, const char *path, struct fr_savepoint *out,
                                    struct fr_err *err) FR_MUST_CHECK;

/* Checks a savepoint's mark and cold store as opening a state does. FR_E_NOT_FOUND: there is no
 * state at `path`. FR_E_STATE: the state has a journal, so it is no savepoint. FR_E_CORRUPT.
 * FR_E_MISMATCH. */
enum fr_status fr_savepoint_look(const char *path, struct fr_savepoint *out, struct fr_err *err) FR_MUST_CHECK;

/* For a new state whose model differs from the savepoint's: the head of journal files and the small
 * file that replace those of the savepoint. */
struct fr_savepoint_own {
    const void *head;
    size_t head_size;
    const char *name; /* name of the small file */
    const void *bytes;
    size_t size;
};

/* Creates the state directory `dir` from the savepoint at `path`: the savepoint's epoch in timeline
 * + 1, acknowledged. `dir` must be missing or contain no state (FR_E_EXISTS); what an interrupted
 * call left there is removed first. disk NULL: the system's functions. own NULL: the model is the
 * same. */
enum fr_status fr_savepoint_restore(const char *path, const char *dir, const struct fr_disk *disk,
                                    const struct fr_savepoint_own *own, struct fr_savepoint *out,
                                    struct fr_err *err) FR_MUST_CHECK;

/* Removes a savepoint. The savepoint is renamed first, so that its name never refers to half a
 * savepoint. */
enum fr_status fr_savepoint_remove(const char *path, struct fr_err *err) FR_MUST_CHECK;

/* ---- the folder of a state's savepoints ---- */

/* The folder is state_dir/savepoints. Any process requests a savepoint with a file NAME.request;
 * the daemon answers with a savepoint NAME or with a file NAME.failed that contains the reason.
 * Names match [A-Za-z0-9_-]{1,64}; savepoints that the daemon makes by its own schedule begin with
 * "auto-". The functions take the state directory. Thread: any. */

enum { FR_SAVEPOINT_NAME_MAX = 65 };

/* Requests a savepoint. FR_E_INVALID (name), FR_E_EXISTS, FR_E_LIMIT (path). */
enum fr_status fr_savepoint_ask(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* The result of a request. FR_OK: the savepoint is there. FR_AGAIN: not yet. FR_E_STATE: the
 * request failed; err has the reason. */
enum fr_status fr_savepoint_answered(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* The first name that is requested; false: there is no request. */
bool fr_savepoint_next_request(const char *dir, char name[FR_SAVEPOINT_NAME_MAX]);
/* Ends a request. reason NULL: the savepoint is there. */
enum fr_status fr_savepoint_answer(const char *dir, const char *name, const char *reason,
                                   struct fr_err *err) FR_MUST_CHECK;
/* Writes the path of the savepoint of this name. FR_E_INVALID, FR_E_LIMIT. */
enum fr_status fr_savepoint_path(const char *dir, const char *name, char out[PATH_MAX],
                                 struct fr_err *err) FR_MUST_CHECK;
/* Names of the complete savepoints, ascending. The caller frees *out. */
enum fr_status fr_savepoint_names(const char *dir, char (**out)[FR_SAVEPOINT_NAME_MAX], size_t *n,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Removes what a crash left of savepoints that were being made or removed. The process that holds
 * the state's lock calls this before it makes or removes a savepoint. */
enum fr_status fr_savepoint_sweep(const struct fr_disk *disk, const char *dir, struct fr_err *err) FR_MUST_CHECK;

#endif
