/* The document of GET /auc as of a state's newest durable epoch. Private to tool. */
#ifndef FR_TOOL_METRICS_DOCUMENT_H
#define FR_TOOL_METRICS_DOCUMENT_H

#include "base/buffer.h"
#include "base/status.h"

/* Opens the state directory, also of a running daemon. FR_E_NOT_FOUND: there is no state, or no
 * epoch. */
enum fr_status fr_tool_metrics_document(const char *dir, struct fr_buffer *out, struct fr_err *err) FR_MUST_CHECK;

#endif
