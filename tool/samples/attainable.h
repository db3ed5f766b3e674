/* The best AUC that is attainable on a synthetic stream: its samples scored with their own true
 * probabilities, with the same decay as the daemon's. Private to tool.
 *
 * Thread: the caller's. */
#ifndef FR_TOOL_ATTAINABLE_H
#define FR_TOOL_ATTAINABLE_H

#include "base/buffer.h"
#include "base/status.h"
#include "samples/synthetic.h"

struct fr_tool_attainable;

struct fr_tool_attainable *fr_tool_attainable_new(void);
void fr_tool_attainable_free(struct fr_tool_attainable *attainable);
void fr_tool_attainable_add(struct fr_tool_attainable *attainable, const struct fr_tool_synthetic_sample *sample);
/* Appends the logfmt fields ` attainable_auc=.. attainable_auc_5m=..`, as of the last sample. */
void fr_tool_attainable_print(struct fr_tool_attainable *attainable, struct fr_buffer *out);
/* Replaces the file with {"samples","t_ms","attainable":{"5m","1h","1d","lifetime"}}; undefined
 * values are null. */
enum fr_status fr_tool_attainable_write(struct fr_tool_attainable *attainable, const char *path,
                                        struct fr_err *err) FR_MUST_CHECK;

#endif
