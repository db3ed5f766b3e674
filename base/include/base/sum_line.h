/* A checksum as the last line of a small text file, "# crc32c 0123abcd". Programs that read the
 * text line by line see a comment; fr_sum_line_take removes the line. Thread: any; no state. */
#ifndef FR_BASE_SUM_LINE_H
#define FR_BASE_SUM_LINE_H

#include "base/buffer.h"
#include "base/status.h"

/* Appends a line break and the checksum line. */
void fr_sum_line_append(struct fr_buffer *text);
/* Removes the line break and the checksum line. FR_E_CORRUPT: the checksum is not that of the text.
 * FR_E_NOT_FOUND: there is no such line, and the text does not change. */
enum fr_status fr_sum_line_take(struct fr_buffer *text) FR_MUST_CHECK;

#endif
