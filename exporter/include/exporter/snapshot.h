/* Snapshots: all that is served of a state as of its folded epoch, as a directory of delta records
 * (docs/formats/snapshots.md), and the folder that holds them.
 *
 * One is written from the cold store while folds and training go on, with a small share of the
 * processors while they keep them busy (snapshot_pace.h). It appears under its name whole and
 * synced, or not at all; what a crash leaves ends with ".part" and is taken away by
 * fr_snapshot_sweep. The file CURRENT names the newest one that replicas may begin with.
 *
 * Thread: one writer of a folder; any may read. */
#ifndef FR_EXPORTER_SNAPSHOT_H
#define FR_EXPORTER_SNAPSHOT_H

#include <limits.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "codec/codec.h"
#include "codec/manifest.h"
#include "durable/durable.h"

struct fr_snapshot {
    char name[FR_MANIFEST_NAME_MAX];
    char model[128];
    uint64_t timeline, epoch, digest;
    uint64_t rows, bytes, files; /* bytes: of all files, without the manifest */
    uint64_t t_ms;               /* wall time of its epoch's cut; 0: not known */
    uint64_t manifest_bytes;
    struct fr_sha256 sha256; /* of the manifest */
    bool summed;             /* the manifest has a sum of its own */
    /* Of fr_snapshot_list alone: FR_OK, or why the manifest of a directory with a snapshot's name
     * does not read; then nothing but name, timeline and epoch is known of it. */
    enum fr_status unread;
    char problem[512];
};

struct fr_snapshot_options {
    struct fr_durable *durable;
    const struct fr_clock *clock;
    const char *dir;   /* the folder; made when missing */
    const char *topic; /* of the deltas */
    /* NULL: those of the state's deltas */
    const enum fr_codec_quantize *quantize;
    uint64_t rate; /* bytes a second at most; 0: no limit */
    bool awaited;  /* publishing waits for it: no limit by snapshot_pace.h */
    /* [np]; NULL: not known. Offsets of the delta topic before everything later than what is
     * folded. */
    const uint64_t *delta_offsets;
    uint32_t n_delta_offsets;
    const atomic_bool *stop;     /* ends it with FR_E_CANCELLED; NULL: never */
    void (*goes_on)(void *self); /* at least every 100 ms or 8 MiB; NULL: nobody asks */
    void *self;
};
/* Folding before is the caller's. FR_E_EXISTS: there is one of that epoch, which *out describes;
 * FR_E_NOT_FOUND: nothing is folded yet; FR_E_STATE: what was written does not read back;
 * FR_E_NO_SPACE, FR_E_DENIED, FR_E_IO, FR_E_CORRUPT: no
 * snapshot, and everything is as it was. Memory: as fr_export_full. */
enum fr_status fr_snapshot_write(const struct fr_snapshot_options *options, struct fr_snapshot *out,
                                 struct fr_err *err) FR_MUST_CHECK;

/* Reads every record of a snapshot: sums, sizes, pieces in order, one epoch, rows as the manifest
 * counts them, a commit of every partition. FR_E_CORRUPT and what reading gives. */
enum fr_status fr_snapshot_check(const char *path, struct fr_snapshot *out, struct fr_err *err) FR_MUST_CHECK;
/* From the manifest alone. */
enum fr_status fr_snapshot_look(const char *path, struct fr_snapshot *out, struct fr_err *err) FR_MUST_CHECK;

/* ---- the folder ---- */

/* By ascending (timeline, epoch); *out is released by free. A missing folder has none. Directories
 * that have a snapshot's name and do not read are among them (`unread`). */
enum fr_status fr_snapshot_list(const char *dir, struct fr_snapshot **out, size_t *n, struct fr_err *err) FR_MUST_CHECK;
/* What CURRENT names; false: nothing that is there. */
bool fr_snapshot_current(const char *dir, char name[FR_MANIFEST_NAME_MAX]);
/* FR_E_MISMATCH, with what to do, where CURRENT names a snapshot of another model: each would take
 * CURRENT from the other, and replicas of one would begin with the other. */
enum fr_status fr_snapshot_check_model(const char *dir, const char *model, struct fr_err *err) FR_MUST_CHECK;
/* Moves CURRENT, durably, to one that reads and is of the model that CURRENT names; what
 * fr_snapshot_look and fr_snapshot_check_model give, and CURRENT stays. */
enum fr_status fr_snapshot_point(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* First it loses its name, so that no half of it is ever found under it. */
enum fr_status fr_snapshot_remove(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* FR_E_MISMATCH: dir is a state directory, or lies in a part of one that holds other files: a
 * snapshot's CURRENT would replace one of them. A dir that is not there yet is fine. */
enum fr_status fr_snapshot_place(const char *dir, struct fr_err *err) FR_MUST_CHECK;
/* Removes what an interrupted write or removal left, and answers that nobody took. */
enum fr_status fr_snapshot_sweep(const char *dir, struct fr_err *err) FR_MUST_CHECK;

/* ---- asking a daemon ---- */

/* state_dir/snapshots, wherever snapshots are: any process asks by a file ID.request, which the
 * daemon turns into a file ID.answer, the snapshot's directory or why there is none. Functions take
 * the state directory. Any thread. */

enum { FR_SNAPSHOT_ID_MAX = 48 };

/* IDs match [A-Za-z0-9_-]; one that nobody else takes, as by process and time, is the caller's. */
enum fr_status fr_snapshot_ask(const char *state_dir, const char *id, struct fr_err *err) FR_MUST_CHECK;
/* FR_AGAIN: not yet; FR_E_STATE with the reason. An answer is given once. */
enum fr_status fr_snapshot_answered(const char *state_dir, const char *id, char path[PATH_MAX],
                                    struct fr_err *err) FR_MUST_CHECK;
/* The first that is asked for; false: none. */
bool fr_snapshot_next_request(const char *state_dir, char id[FR_SNAPSHOT_ID_MAX]);
/* Ends a request; path NULL: `reason` says why there is none. */
enum fr_status fr_snapshot_answer(const char *state_dir, const char *id, const char *path, const char *reason,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
