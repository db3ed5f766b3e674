/* A checksum as the last line of a small text file, "# crc32c 0123abcd": a comment to what reads
 * the text by lines, cut off by who takes the line. Thread: any, no state. */
#ifndef FR_BASE_SUM_LINE_H
#define FR_BASE_SUM_LINE_H

#include "base/buffer.h"
#include "base/status.h"

/* Appends a line break and the line. */
void fr_sum_line_append(struct fr_buffer *text);
/* Cuts both off again. FR_E_CORRUPT: the text is not the one they were appended to. FR_E_NOT_FOUND:
 * there is no such line, and the text stays as it is. */
enum fr_status fr_sum_line_take(struct fr_buffer *text) FR_MUST_CHECK;

#endif
