/* Files before Kafka, behind the source table: lines of ingest.files as records of pseudo topics
 * `file:<path>`. Private to ingest. */
#ifndef FR_INGEST_FILES_H
#define FR_INGEST_FILES_H

#include "conf/conf.h"
#include "ingest/source.h"

#define FR_FILE_TOPIC "file:"

/* The files are the first n_files partitions of the layout, the inner source's follow. `inner` with
 * NULL self: files only. Its `close` (may be NULL: borrowed) is called by this one's. FR_E_INVALID:
 * a path that cannot be a topic's name (length, odd characters, given twice). Borrows the conf. */
enum fr_status fr_files_open(const struct fr_conf *conf, const struct fr_source *inner, struct fr_source *out,
                             struct fr_err *err) FR_MUST_CHECK;

/* Size in bytes of a regular file. FR_E_UNAVAILABLE: it is not there; FR_E_DENIED; FR_E_INVALID: not
 * a regular file; FR_E_IO. */
enum fr_status fr_file_size(const char *path, int64_t *out, struct fr_err *err) FR_MUST_CHECK;

static inline const char *fr_file_path(const char *topic)
{
    return topic + sizeof(FR_FILE_TOPIC) - 1;
}

static inline bool fr_is_file_topic(const char *topic)
{
    /* a topic's name holds no colon */
    return strncmp(topic, FR_FILE_TOPIC, sizeof(FR_FILE_TOPIC) - 1) == 0;
}

#endif
