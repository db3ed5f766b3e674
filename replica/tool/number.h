/* `%.9g` of a float, fast: a private dump prints tens of millions. Private to replica/tool. The
 * same bytes as printf for every float (tests/integration/tool.py compares). Not finite: null, as
 * JSON has no word for it. */
#ifndef FR_TOOL_NUMBER_H
#define FR_TOOL_NUMBER_H

#include "base/buffer.h"

void fr_tool_put_number(struct fr_buffer *out, float value);

#endif
