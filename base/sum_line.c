/* The checksum line of small files. CRC32C finds all changes of up to 32 bits in a row and all but
 * one of 2^32 others. A line that is itself damaged is no such line: then it is part of the text,
 * which whoever reads the text refuses. Thread: any, no state. */
#include "base/sum_line.h"

#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

#define MARK "\n# crc32c "
enum { MARK_SIZE = sizeof(MARK) - 1, DIGITS = 8, LINE_SIZE = MARK_SIZE + DIGITS + 1 };

static void write_line(const void *bytes, size_t size, char line[LINE_SIZE + 1])
{
    snprintf(line, LINE_SIZE + 1, MARK "%08x\n", (unsigned)fr_crc32c(0, bytes, size));
}

void fr_sum_line_append(struct fr_buffer *text)
{
    char line[LINE_SIZE + 1];
    write_line(text->data, text->size, line);
    fr_buffer_append(text, line, LINE_SIZE);
}

enum fr_status fr_sum_line_take(struct fr_buffer *text)
{
    char line[LINE_SIZE + 1];
    if (text->size < LINE_SIZE || memcmp(text->data + text->size - LINE_SIZE, MARK, MARK_SIZE) != 0)
        return FR_E_NOT_FOUND;
    size_t size = text->size - LINE_SIZE;
    write_line(text->data, size, line);
    if (memcmp(text->data + size, line, LINE_SIZE) != 0)
        return FR_E_CORRUPT;
    text->size = size;
    return FR_OK;
}
