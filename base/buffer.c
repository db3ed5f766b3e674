/* Growing byte buffer. The capacity doubles, so that appending n bytes costs O(n) copies. This file
 * has the slow path; the check is in the header.
 *
 * Owner: the code that has the struct; one thread. A buffer does not shrink, and append does not
 * accept bytes of the buffer itself. */
#include "base/buffer.h"

#include <inttypes.h>
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

/* Characters that stand for themselves in JSON strings, and not in YAML. U+0085, U+2028 and U+2029
 * end a line; other controls, the byte order mark and noncharacters are refused. Format characters,
 * which people do not see, are escaped for their sake. */
static bool yaml_escapes(uint32_t point)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x7f, 0x9f},     {0xad, 0xad},     {0x200b, 0x200f}, {0x2028, 0x202e},
                  {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfffe, 0xffff}};
    for (size_t i = 0; i < FR_ARRAY_LEN(ranges); i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

/* Returns the code point of a valid character of 1 to 3 bytes; 0 for one of 4, which is never
 * escaped. */
static uint32_t code_point(const uint8_t *at, size_t length)
{
    return length == 1   ? at[0]
           : length == 2 ? (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu)
           : length == 3 ? (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu)
                         : 0;
}

void fr_buffer_yaml_text(struct fr_buffer *buffer, const char *text)
{
    struct fr_buffer json = {0};
    fr_buffer_json_text(&json, text); /* valid UTF-8 */
    for (size_t i = 0, length; i < json.size; i += length) {
        length = fr_utf8_length(json.data + i, json.size - i);
        uint32_t point = code_point(json.data + i, length);
        if (yaml_escapes(point))
            fr_buffer_printf(buffer, "\\u%04" PRIx32, point);
        else
            fr_buffer_append(buffer, json.data + i, length);
    }
    fr_buffer_release(&json);
}
