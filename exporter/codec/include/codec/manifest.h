/* A snapshot directory (docs/formats/snapshots.md): MANIFEST.json as a struct, its files as
 * records.
 *
 * A file is a sequence of (u32 LE length, delta record). Records of a partition, in the order of
 * the manifest's files, are those of one epoch with `from` 1: pieces 0..n-1 and the commit. A
 * reader that follows some partitions reads the files of these.
 *
 * A directory is trusted only as far as it has been verified: the manifest has the size and SHA-256
 * of each file, and its last key is the SHA-256 of the bytes before it. The SHA-256 of the whole
 * manifest is in the commit that announces the snapshot.
 *
 * Thread: any; there is no state. */
#ifndef FR_CODEC_MANIFEST_H
#define FR_CODEC_MANIFEST_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"

enum {
    FR_MANIFEST_VERSION = 1,
    FR_MANIFEST_NAME_MAX = 192,       /* size of a directory's name: model, timeline and epoch */
    FR_MANIFEST_FILE_MAX = 96,        /* size of a file's name: "rows.", a table, a partition */
    FR_MANIFEST_FILES_MAX = 1 << 17,  /* 64 tables in 1024 partitions, twice */
    FR_MANIFEST_BYTES_MAX = 64 << 20, /* that many files at 400 bytes */
    FR_MANIFEST_OFFSETS_MAX = 1 << 16,
    FR_MANIFEST_TOPIC_MAX = 250,
};
/* The largest record: no broker accepts a larger one, and no reader needs more memory. */
#define FR_MANIFEST_RECORD_MAX ((uint32_t)1 << 30)
/* The largest file: 64 TiB, so that the sum of all files does not overflow. */
#define FR_MANIFEST_FILE_BYTES_MAX ((uint64_t)1 << 46)

extern const char fr_manifest_file_name[]; /* MANIFEST.json */

struct fr_manifest_file {
    char name[FR_MANIFEST_FILE_MAX]; /* of [A-Za-z0-9._-], no dot first: never a path */
    char table[64];                  /* "": no rows but model, dense parameters or a commit */
    uint32_t partition;
    uint64_t rows, bytes;
    struct fr_sha256 sha256;
};

/* The first record of a partition that is not trained: of a topic of samples or, with the name
 * `file:PATH` and partition 0, of a file of samples. Any UTF-8 text without NUL is a name. */
struct fr_manifest_offset {
    char topic[FR_MANIFEST_TOPIC_MAX];
    uint32_t partition;
    uint64_t next_offset;
};

struct fr_manifest {
    char model[128];
    uint64_t fp, timeline, epoch, digest;
    uint64_t t_ms, wm_ms; /* wall time and watermark; 0: not known */
    uint32_t np;
    char topic[FR_MANIFEST_TOPIC_MAX]; /* the delta topic */
    /* Sorted by topic, then partition; owned. */
    struct fr_manifest_offset *offsets;
    size_t n_offsets;
    /* A hint: for each partition of the delta topic, an offset at or before everything later than
     * this epoch. NULL: unknown. Owned. */
    uint64_t *delta_offsets;
    struct fr_manifest_file *files; /* in the order to be read; owned */
    size_t n_files;
    /* Set by parsing: the bytes ended with their SHA-256; false: an older manifest without one. */
    bool summed;
};

/* Writes the name `<model>-<tl>-<e>`; FR_E_LIMIT. */
enum fr_status fr_manifest_name(const struct fr_manifest *manifest, char out[FR_MANIFEST_NAME_MAX]) FR_MUST_CHECK;
/* Appends the manifest as text. The same manifest gives the same bytes. */
void fr_manifest_print(const struct fr_manifest *manifest, struct fr_buffer *out);
/* Fills *out only on success. FR_E_UNSUPPORTED: another `v`, or a parent; FR_E_LIMIT;
 * FR_E_CORRUPT: the sum at the end is not that of the bytes; FR_E_INVALID, with the place.
 * Unknown keys are passed over. What is accepted is safe to index: names, np, and partitions
 * below it. */
enum fr_status fr_manifest_parse(const void *bytes, size_t size, struct fr_manifest *out,
                                 struct fr_err *err) FR_MUST_CHECK;
void fr_manifest_release(struct fr_manifest *manifest);
/* Sums over all files. */
uint64_t fr_manifest_bytes(const struct fr_manifest *manifest);
uint64_t fr_manifest_rows(const struct fr_manifest *manifest);

/* ---- a directory ---- */

/* Writes the path of a snapshot: `directory` itself if it has a MANIFEST.json, otherwise the
 * snapshot that its file CURRENT names. FR_E_NOT_FOUND: neither; FR_E_CORRUPT: CURRENT names
 * none. */
enum fr_status fr_manifest_find(const char *directory, char path[PATH_MAX], struct fr_err *err) FR_MUST_CHECK;
/* Reads and parses dir/MANIFEST.json; its SHA-256 and size go to *sha256 and *size (may be NULL).
 * FR_E_NOT_FOUND: no snapshot there; FR_E_DENIED, FR_E_IO, and what parsing gives. */
enum fr_status fr_manifest_read(const char *dir, struct fr_manifest *out, struct fr_sha256 *sha256, uint64_t *size,
                                struct fr_err *err) FR_MUST_CHECK;
/* Checks that every file exists and has its size; contents are not read. FR_E_CORRUPT,
 * FR_E_NOT_FOUND: the text names the file. */
enum fr_status fr_manifest_check_sizes(const char *dir, const struct fr_manifest *manifest,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Visits the records of one file in order; they are valid during the call. A status of visit
 * other than FR_OK ends it and is returned. FR_E_CORRUPT: another size or SHA-256, or cut
 * records. That may be known only after all records were visited, so a visitor must not make
 * anything visible before FR_OK. Memory: one record. */
typedef enum fr_status fr_manifest_visit(void *self, const void *bytes, size_t size, struct fr_err *err);
enum fr_status fr_manifest_records(const char *dir, const struct fr_manifest_file *file, fr_manifest_visit *visit,
                                   void *self, struct fr_err *err) FR_MUST_CHECK;

#endif
