/* Scores a file of samples with a replica: one JSON line of task -> probability per sample. Private
 * to tool. */
#ifndef FR_TOOL_SCORER_H
#define FR_TOOL_SCORER_H

#include <freshet/replica.h>

#include <stdio.h>

#include "base/status.h"

/* The file has a sample or an array of samples per line, plain or gzip; empty lines are skipped.
 * Errors: FR_E_NOT_FOUND (the file, or a model that is not complete yet), FR_E_INVALID (with the
 * line), FR_E_IO. */
enum fr_status fr_tool_score_file(struct freshet_replica *replica, const char *path, FILE *out,
                                  struct fr_err *err) FR_MUST_CHECK;

#endif
