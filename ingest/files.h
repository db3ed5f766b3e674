/* Files before topics: lines of ingest.files as records of pseudo topics `file:<path>`. Private to
 * ingest. */
#ifndef FR_INGEST_FILES_H
#define FR_INGEST_FILES_H

#include "internal.h"

#define FR_FILE_TOPIC "file:"

/* Makes the feed of files. Borrows the conf, which reads JSON and whose paths are sound. A file
 * that the state knows by another path gets its present path in `known`. */
void fr_files_open(const struct fr_conf *conf, struct fr_positions *known, struct fr_feed *out);
/* Verifies the first event of a file that was begun at its last delivered line, or its end while
 * only a part of its last line is in effect. FR_E_MISMATCH: the file was changed or cut. */
enum fr_status fr_files_verify(struct fr_ingest *ingest, struct fr_stream *stream, const struct fr_source_event *event,
                               struct fr_err *err) FR_MUST_CHECK;

static inline bool fr_is_file_topic(const char *topic)
{
    /* a topic's name holds no colon */
    return strncmp(topic, FR_FILE_TOPIC, sizeof(FR_FILE_TOPIC) - 1) == 0;
}

#endif
