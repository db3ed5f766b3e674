/* A compressed file of numbered lines in memory, and what ingest reads of it. */
#ifndef FR_TESTS_INGEST_PACKED_LINES_H
#define FR_TESTS_INGEST_PACKED_LINES_H

#include "case.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ingest/lines.h"

enum { LINES = 100, CAPACITY = 65536 };

static char bytes[CAPACITY]; /* the file: two parts of LINES lines each */
static size_t size, second;  /* of both; where the second begins */

/* LINES lines from number `first` on; returns their length. */
static inline size_t lines_text(char text[CAPACITY], uint32_t first)
{
    int length = 0;
    for (uint32_t i = first; i < first + LINES; i++)
        length += snprintf(text + length, CAPACITY - (size_t)length, "line %u of the text\n", i);
    return (size_t)length;
}

/* Reads a file of the first n bytes; *count is how many whole lines came. */
static inline enum fr_status read_lines(size_t n, int64_t *count, struct fr_err *err)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    rewind(file);
    struct fr_lines *lines = fr_lines_new(dup(fileno(file)), 4096, 0, true);
    struct fr_line line;
    enum fr_status status = FR_OK;
    *count = 0;
    for (int i = 0; i < 10000 && (status == FR_OK || status == FR_AGAIN); i++) {
        status = fr_lines_next(lines, &line, err);
        char expected[64];
        if (status != FR_OK)
            continue;
        snprintf(expected, sizeof(expected), "line %lld of the text", (long long)*count);
        assert_int_equal(line.size, strlen(expected));
        assert_memory_equal(line.value, expected, line.size);
        (*count)++;
    }
    fr_lines_free(lines);
    fclose(file);
    return status;
}

#endif
