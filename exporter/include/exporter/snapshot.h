/* Snapshots, and the folder that holds them. A snapshot is a directory of delta records
 * (docs/formats/snapshots.md) with everything that is served of a state as of its folded epoch.
 *
 * A snapshot is written from the cold store while folds and training continue. While these keep the
 * processors busy, writing takes only a small share of them (snapshot_pace.h). A snapshot appears
 * under its name whole and synced, or not at all. The name of an unfinished one that a crash left
 * ends with ".part"; fr_snapshot_sweep removes it. The file CURRENT names the newest snapshot from
 * which replicas may begin.
 *
 * Thread: one thread writes a folder; any thread may read it. */
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
    uint64_t rows, bytes, files; /* bytes: of all files except the manifest */
    uint64_t t_ms;               /* wall time (Unix ms) of the epoch's cut; 0: unknown */
    uint64_t manifest_bytes;
    struct fr_sha256 sha256; /* of the manifest */
    bool summed;             /* the manifest contains its own checksum */
    /* Set by fr_snapshot_list only: FR_OK, or why the manifest of a directory with a snapshot's
     * name cannot be read. In the latter case only name, timeline and epoch are valid. */
    enum fr_status unread;
    char problem[512];
};

struct fr_snapshot_options {
    struct fr_durable *durable;
    const struct fr_clock *clock;
    const char *dir;   /* the folder; created if it is missing */
    const char *topic; /* the delta topic */
    /* NULL: the quantization of the state's deltas */
    const enum fr_codec_quantize *quantize;
    uint64_t rate; /* at most this many bytes a second; 0: no limit */
    bool awaited;  /* publishing waits for the snapshot, so snapshot_pace.h does not slow it */
    /* [np] offsets of the delta topic before which nothing is later than the folded epoch; NULL:
     * unknown. */
    const uint64_t *delta_offsets;
    uint32_t n_delta_offsets;
    const atomic_bool *stop;      /* when true, writing ends with FR_E_CANCELLED; NULL: never */
    void (*progress)(void *self); /* called at least every 100 ms or 8 MiB; NULL: not called */
    void *self;
};
/* Writes a snapshot as of the folded epoch; the caller folds before, if needed. FR_E_EXISTS: a
 * snapshot of that epoch exists, and *out describes it. FR_E_NOT_FOUND: nothing has been folded
 * yet. FR_E_STATE: the written snapshot does not read back. FR_E_NO_SPACE, FR_E_DENIED, FR_E_IO,
 * FR_E_CORRUPT: no snapshot was made, and the folder is as before. Memory: as fr_export_full. */
enum fr_status fr_snapshot_write(const struct fr_snapshot_options *options, struct fr_snapshot *out,
                                 struct fr_err *err) FR_MUST_CHECK;

/* Reads every record of a snapshot and checks sums, sizes, the order of pieces, that there is one
 * epoch, that the numbers of rows agree with the manifest, and that every partition has a commit.
 * Errors: FR_E_CORRUPT, and those of reading. */
enum fr_status fr_snapshot_check(const char *path, struct fr_snapshot *out, struct fr_err *err) FR_MUST_CHECK;
/* Describes a snapshot from its manifest alone. */
enum fr_status fr_snapshot_read(const char *path, struct fr_snapshot *out, struct fr_err *err) FR_MUST_CHECK;

/* ---- the folder ---- */

/* Lists the snapshots by ascending (timeline, epoch). The caller releases *out with free. A missing
 * folder gives an empty list. Directories that have a snapshot's name but cannot be read are listed
 * too (`unread`). */
enum fr_status fr_snapshot_list(const char *dir, struct fr_snapshot **out, size_t *n, struct fr_err *err) FR_MUST_CHECK;
/* Writes the name that CURRENT contains; false: CURRENT names no existing snapshot. */
bool fr_snapshot_current(const char *dir, char name[FR_MANIFEST_NAME_MAX]);
/* FR_E_MISMATCH, with the remedy, if CURRENT names a snapshot of another model. Otherwise two
 * models would overwrite each other's CURRENT, and replicas of one would begin with the other. */
enum fr_status fr_snapshot_check_model(const char *dir, const char *model, struct fr_err *err) FR_MUST_CHECK;
/* Moves CURRENT, durably, to a snapshot that can be read and belongs to the model that CURRENT
 * names. Errors: those of fr_snapshot_read and fr_snapshot_check_model; CURRENT then stays. */
enum fr_status fr_snapshot_set_current(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* Removes a snapshot. The directory is renamed first, so that a half-removed snapshot is never
 * found under its name. */
enum fr_status fr_snapshot_remove(const char *dir, const char *name, struct fr_err *err) FR_MUST_CHECK;
/* Checks where a folder lies. FR_E_MISMATCH: dir is a state directory or is inside a part of one
 * that holds other files, one of which CURRENT would replace. A dir that does not exist yet is
 * accepted. */
enum fr_status fr_snapshot_check_place(const char *dir, struct fr_err *err) FR_MUST_CHECK;
/* Removes the remains of an interrupted write or removal, and answers that were never fetched. */
enum fr_status fr_snapshot_sweep(const char *dir, struct fr_err *err) FR_MUST_CHECK;

/* ---- asking a daemon ---- */

/* Requests are files in state_dir/snapshots, wherever the snapshots themselves are. Any process
 * requests a snapshot by creating a file ID.request, which the daemon replaces with a file
 * ID.answer that holds the snapshot's directory or the reason why there is none. The functions take
 * the state directory. Any thread may call them. */

enum { FR_SNAPSHOT_ID_MAX = 48 };

/* Requests a snapshot. IDs match [A-Za-z0-9_-]. The caller chooses an id that no other process
 * uses, for example from process number and time. */
enum fr_status fr_snapshot_ask(const char *state_dir, const char *id, struct fr_err *err) FR_MUST_CHECK;
/* Fetches the answer, once. FR_AGAIN: there is none yet. FR_E_STATE: there is no snapshot; err has
 * the reason. */
enum fr_status fr_snapshot_answered(const char *state_dir, const char *id, char path[PATH_MAX],
                                    struct fr_err *err) FR_MUST_CHECK;
/* Writes the id of the first request; false: there is none. */
bool fr_snapshot_next_request(const char *state_dir, char id[FR_SNAPSHOT_ID_MAX]);
/* Answers a request. path NULL: there is no snapshot, and `reason` explains why. */
enum fr_status fr_snapshot_answer(const char *state_dir, const char *id, const char *path, const char *reason,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
