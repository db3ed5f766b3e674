/* Names and paths that the files of snapshots share. */
#ifndef FR_EXPORTER_SNAPSHOT_FOLDER_H
#define FR_EXPORTER_SNAPSHOT_FOLDER_H

#include "exporter/snapshot.h"

extern const char fr_snapshot_answer_end[]; /* .answer, the end of a name of an answer */

/* Writes the path dir/name; FR_E_LIMIT. */
enum fr_status fr_snapshot_join(char out[PATH_MAX], const char *dir, const char *name,
                                struct fr_err *err) FR_MUST_CHECK;
/* Writes the path that a snapshot has until it is complete, and removes anything at that path. */
enum fr_status fr_snapshot_temporary(const char *dir, const char *name, char out[PATH_MAX],
                                     struct fr_err *err) FR_MUST_CHECK;
/* Renames a directory to a name that the sweep removes. */
enum fr_status fr_snapshot_aside(const char *path, char out[PATH_MAX], struct fr_err *err) FR_MUST_CHECK;
/* text: the manifest's bytes. */
void fr_snapshot_describe(const struct fr_manifest *manifest, const struct fr_buffer *text, struct fr_snapshot *out);

#endif
