/* Growing byte buffer. The capacity doubles, so that appending n bytes costs O(n) copies. This file
 * has the slow path; the check is in the header.
 *
 * Owner: the code that has the struct; one thread. A buffer does not shrink, and append does not
 * accept bytes of the buffer itself. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/cursor.h"

enum { FIRST_CAPACITY = 64 };

void fr_buffer_release(struct fr_buffer *buffer)
{
    if (!buffer)
        return;
    free(buffer->data);
    *buffer = (struct fr_buffer){0};
}

uint8_t *fr_buffer_grow(struct fr_buffer *buffer, size_t extra)
{
    size_t needed;
    bool fits = fr_add_size(buffer->size, extra, &needed);
    FR_CHECK(fits);
    size_t capacity = buffer->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : buffer->capacity;
    while (capacity < needed)
        if (!fr_mul_size(capacity, 2, &capacity))
            capacity = needed;
    buffer->data = fr_realloc(buffer->data, capacity, 1);
    buffer->capacity = capacity;
    return buffer->data + buffer->size;
}

void fr_buffer_printf(struct fr_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    fr_buffer_reserve(buffer, 128);
    size_t room = buffer->capacity - buffer->size;
    int size = vsnprintf((char *)buffer->data + buffer->size, room, format, arguments);
    FR_CHECK(size >= 0);
    if ((size_t)size >= room) {
        /* vsnprintf needs a byte for the NUL, which is not part of `size` */
        fr_buffer_reserve(buffer, (size_t)size + 1);
        int second = vsnprintf((char *)buffer->data + buffer->size, (size_t)size + 1, format, again);
        FR_CHECK(second == size);
    }
    buffer->size += (size_t)size;
    va_end(again);
    va_end(arguments);
}

void fr_buffer_json_bytes(struct fr_buffer *buffer, const char *text, size_t size)
{
    fr_put_u8(buffer, '"');
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            fr_buffer_printf(buffer, "\\%c", c);
        else if (c < 0x20)
            fr_buffer_printf(buffer, "\\u%04x", c);
        else if (c < 0x80)
            fr_put_u8(buffer, c);
        else {
            size_t length = fr_utf8_length((const uint8_t *)text + i, size - i);
            fr_buffer_append(buffer, length ? text + i : "\xef\xbf\xbd", length ? length : 3);
            i += length ? length - 1 : 0;
        }
    }
    fr_put_u8(buffer, '"');
}

void fr_buffer_json_text(struct fr_buffer *buffer, const char *text)
{
    fr_buffer_json_bytes(buffer, text, strlen(text));
}
