/* The ingest module inside: lanes (topic-partitions being read), the batch being assembled, what
 * other threads see.
 *
 * Everything here belongs to the ingest thread, except `shared`, which its mutex guards. */
#ifndef FR_INGEST_INTERNAL_H
#define FR_INGEST_INTERNAL_H

#include <pthread.h>

#include "decode/decoder.h"
#include "batch/records.h"
#include "ingest/ingest.h"

enum {
    /* a round of huge records is cut here, or its batch would have no bound */
    FR_LOCKSTEP_SAMPLES_MAX = 65536,
    /* a turn ends after so many records, for status, commits and the watchdog */
    FR_STEP_RECORDS_MAX = 4096,
    FR_RECHECK_MS = 1000, /* between two looks at a partition that cannot be read */
    /* between two looks for partitions added to a topic, or less (discover_ms) */
    FR_DISCOVER_MS = 30000,
    FR_DISCOVER_MS_MIN = 100,
};

struct fr_mark {    /* the last delivered record of a partition */
    int64_t offset; /* -1: none */
    int64_t timestamp_ms;
    uint32_t crc32c;
};

/* A topic-partition or file as far as it has been put into batches. Its number is that of the
 * source's layout: files first, in the order of ingest.files. */
struct fr_lane {
    uint32_t slot;      /* in the positions */
    int64_t next;       /* first offset not fully in a batch; -1: the start policy decides */
    uint32_t item;      /* items of the record at `next` that are in batches */
    uint64_t delivered; /* records, in this history */
    struct fr_mark mark;
    int64_t end;   /* --until end, lockstep: first offset not read; -1: none */
    int64_t high;  /* end of the log when last asked; files: -1 */
    int64_t bytes; /* of a file, when last asked */
    /* offset from which the source goes on: `next`, or further when only markers followed */
    int64_t seen;
    int64_t touched; /* entry in the open batch; -1 none */
    uint64_t lost;   /* records that on_loss skipped, for the next entry */
    uint64_t retry_ns;
    bool moved; /* `next` or `lost` changed without a record: the next batch needs an entry */
    bool added; /* found on a topic that was read before: begins at its first record */
    bool reading, done, at_end;
    bool troubled;  /* was interrupted and has given nothing since */
    bool end_named; /* the fixed ends of the run name it */
    /* a file begun at its last delivered line, which must be the one that was noted */
    bool unverified;
    bool held_valid; /* lockstep: a record that the cut of a long round interrupted */
    struct fr_source_event held;
};

enum fr_pending { FR_PENDING_NONE, FR_PENDING_SAMPLES, FR_PENDING_LETTER };

struct fr_ingest_shared {
    pthread_mutex_t mutex;
    struct fr_positions known; /* slots; offsets of those that were new are where reading begins */
    uint32_t n_resolved;       /* of them: the first ones, which have an offset */
    struct fr_ingest_status status;
    uint32_t status_capacity;
    struct fr_positions commit;
    bool commit_due;
};

struct fr_ingest {
    const struct fr_conf *conf;
    const struct fr_clock *clock;
    struct fr_ring *full, *empty;
    bool lockstep, until_end;
    int64_t until_ms;
    char *end_offsets;
    enum fr_status (*fix_end)(void *self, const char *text, size_t size, struct fr_err *err);
    void *fix_end_self;
    struct fr_source source;
    struct fr_dead_sink sink;
    bool own_source, own_sink;

    /* a copy that reads JSON; borrows what `conf` borrows */
    struct fr_conf file_conf;
    /* of which `decoder` holds the pending record */
    struct fr_decoder *topic_decoder, *file_decoder;
    struct fr_decoder *decoder;
    uint32_t n_files, files_left; /* lanes of files; of them, not done */
    /* records of topics are in effect: files were read to their ends before */
    bool past_files;
    uint32_t n_lanes, capacity_lanes;
    struct fr_lane *lanes;
    uint32_t n_moved, n_stopped, n_done; /* lanes with `moved`; lanes neither reading nor done */
    bool started, finished, said_down;

    struct fr_batch *open, *ready; /* being filled; closed and not yet in the ring */
    uint32_t *touched;             /* [open->n_positions] lane of each entry */
    uint64_t open_since_ns;        /* first entry of the open batch */
    enum fr_pending pending;       /* what remains to be done with `event` before the next poll */
    struct fr_source_event event;
    uint32_t staged, staged_from;
    const char *reason;
    uint64_t history_samples; /* of all batches before the open one, in this history */
    uint64_t dead_sequence;   /* of the last letter of a malformed record */
    /* of the last record that was split between batches and is large; NULL: none */
    struct fr_record_image *image;
    uint32_t image_lane; /* which record that is */
    int64_t image_offset;
    int64_t *lettered; /* [n_lettered] by slot; the owner loop's (letters.c) */
    uint32_t n_lettered;
    uint32_t round_lane, round_taken; /* lockstep */

    struct fr_ingest_status tally; /* counters only */
    int64_t last_timestamp_ms, started_ms;
    uint64_t discover_ns;
    uint32_t discover_ms;
    char problem[256]; /* of lanes that are stopped or troubled; empty: none */
    struct fr_ingest_shared shared;
};

/* check.c */
enum fr_status fr_lanes_discover(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_lane_check(struct fr_ingest *ingest, uint32_t lane, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_lane_begin(struct fr_ingest *ingest, uint32_t lane, struct fr_err *err) FR_MUST_CHECK;
void fr_lane_stop(struct fr_ingest *ingest, uint32_t lane, const char *why);
void fr_lane_finish(struct fr_ingest *ingest, uint32_t lane);
/* Checks and begins stopped lanes whose time has come; FR_E_UNAVAILABLE is not an error here. */
enum fr_status fr_lanes_revive(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;
void fr_lane_moved(struct fr_ingest *ingest, struct fr_lane *lane);
/* Whether it may be read now: files one after the other, partitions behind all of them. */
bool fr_lane_its_turn(const struct fr_ingest *ingest, uint32_t lane);
/* A lane that was troubled gave something. */
void fr_lane_recovered(struct fr_ingest *ingest, struct fr_lane *lane);
/* The first event of a file that was begun at its last delivered line, or its end where a line was
 * only half in effect; consumes it. FR_E_MISMATCH. */
enum fr_status fr_lane_verify_file(struct fr_ingest *ingest, struct fr_source_event *event,
                                   struct fr_err *err) FR_MUST_CHECK;

/* ends.c */
enum fr_status fr_ends_fix(struct fr_ingest *ingest, struct fr_err *err) FR_MUST_CHECK;

/* assembly.c */
/* FR_AGAIN: no batch, no room, or the dead-letter sink is full; FR_EOF: a ring was closed. */
enum fr_status fr_assembly_ready(struct fr_ingest *ingest, int wait_ms) FR_MUST_CHECK;
enum fr_status fr_assembly_event(struct fr_ingest *ingest, struct fr_source_event *event) FR_MUST_CHECK;
enum fr_status fr_assembly_pending(struct fr_ingest *ingest) FR_MUST_CHECK;
/* Entries for lanes that moved without a record. */
void fr_assembly_moved(struct fr_ingest *ingest);
/* Whether the open batch is smaller than batch_size because the model is young. */
bool fr_assembly_young(const struct fr_ingest *ingest);
bool fr_assembly_due(const struct fr_ingest *ingest, uint64_t now_ns);
void fr_assembly_close(struct fr_ingest *ingest);
/* The last batch of the stream: closes an open one first; then one without samples. */
void fr_assembly_end(struct fr_ingest *ingest);

/* letters.c */
/* The pending record goes to the dead letters for `reason`. FR_AGAIN: no room. */
enum fr_status fr_letter_send(struct fr_ingest *ingest, const char *reason) FR_MUST_CHECK;
/* Whether the open batch has room for the pending record's bytes. */
bool fr_letter_fits(struct fr_ingest *ingest);
/* `count` samples of the pending record are appended next: its bytes go with the batch. */
void fr_letter_keep(struct fr_ingest *ingest, uint32_t count);

#endif
