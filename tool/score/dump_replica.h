/* A replica made from a public dump and the model's configuration, for scoring without a topic.
 * Private to tool. */
#ifndef FR_TOOL_DUMP_REPLICA_H
#define FR_TOOL_DUMP_REPLICA_H

#include <freshet/replica.h>

#include "base/buffer.h"
#include "base/status.h"

/* cfg: the canonical model JSON (state_dir/model.json). Errors: FR_E_NOT_FOUND, FR_E_INVALID (with
 * the line), FR_E_CORRUPT (the dump's hash does not match), FR_E_MISMATCH (dump and model do not
 * fit). */
enum fr_status fr_tool_replica_of_dump(const char *path, const struct fr_buffer *cfg, struct freshet_replica **out,
                                       struct fr_err *err) FR_MUST_CHECK;

#endif
