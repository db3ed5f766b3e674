/* The checksum line of small files. CRC32C detects all changes within 32 consecutive bits, and all
 * but one in 2^32 of the others. A damaged checksum line does not count as one: it stays part of
 * the text, and the reader of the text refuses it. Thread: any; no state. */
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
