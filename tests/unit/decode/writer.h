/* One writer for both record formats, so that a test says a value once. Containers need their size
 * up front (MessagePack). */
#ifndef TEST_DECODE_WRITER_H
#define TEST_DECODE_WRITER_H

#include "base/buffer.h"
#include "base/cursor.h"

struct writer {
    enum fr_format format;
    struct fr_buffer out;
    struct {
        uint32_t left;
        uint32_t written;
        bool is_map;
    } level[16];
    int depth;
};

static inline void writer_clear(struct writer *w, enum fr_format format)
{
    fr_buffer_clear(&w->out);
    w->format = format;
    w->depth = 0;
}

/* Separators of JSON: before the n-th value of the innermost container. */
static inline void writer_before(struct writer *w)
{
    if (w->depth == 0)
        return;
    uint32_t n = w->level[w->depth].written++;
    w->level[w->depth].left--;
    if (w->format == FR_FORMAT_JSON && n > 0)
        fr_put_u8(&w->out, w->level[w->depth].is_map && n % 2 ? ':' : ',');
}

/* Closes containers that are complete. */
static inline void writer_after(struct writer *w)
{
    while (w->depth > 0 && w->level[w->depth].left == 0) {
        if (w->format == FR_FORMAT_JSON)
            fr_put_u8(&w->out, w->level[w->depth].is_map ? '}' : ']');
        w->depth--;
    }
}

static inline void writer_big(struct writer *w, uint8_t head, uint64_t value, int bytes)
{
    fr_put_u8(&w->out, head);
    for (int i = bytes - 1; i >= 0; i--)
        fr_put_u8(&w->out, (uint8_t)(value >> (8 * i)));
}

static inline void write_container(struct writer *w, bool is_map, uint32_t count)
{
    writer_before(w);
    if (w->format == FR_FORMAT_JSON)
        fr_put_u8(&w->out, is_map ? '{' : '[');
    else if (count < 16)
        fr_put_u8(&w->out, (uint8_t)((is_map ? 0x80 : 0x90) | count));
    else
        writer_big(w, is_map ? 0xde : 0xdc, count, 2);
    w->depth++;
    w->level[w->depth].is_map = is_map;
    w->level[w->depth].left = is_map ? 2 * count : count;
    w->level[w->depth].written = 0;
    writer_after(w);
}

static inline void write_map(struct writer *w, uint32_t count)
{
    write_container(w, true, count);
}

static inline void write_array(struct writer *w, uint32_t count)
{
    write_container(w, false, count);
}

static inline void write_string(struct writer *w, const char *text)
{
    size_t size = strlen(text);
    writer_before(w);
    if (w->format == FR_FORMAT_JSON)
        fr_buffer_printf(&w->out, "\"%s\"", text);
    else {
        if (size < 32)
            fr_put_u8(&w->out, (uint8_t)(0xa0 | size));
        else
            writer_big(w, 0xd9, size, 1);
        fr_buffer_append(&w->out, text, size);
    }
    writer_after(w);
}

/* MessagePack only. */
static inline void write_bin(struct writer *w, const void *bytes, size_t size)
{
    writer_before(w);
    writer_big(w, 0xc6, size, 4);
    fr_buffer_append(&w->out, bytes, size);
    writer_after(w);
}

static inline void write_integer(struct writer *w, int64_t v)
{
    writer_before(w);
    if (w->format == FR_FORMAT_JSON)
        fr_buffer_printf(&w->out, "%lld", (long long)v);
    else if (v >= 0 && v < 128)
        fr_put_u8(&w->out, (uint8_t)v);
    else if (v >= -128 && v < 0)
        writer_big(w, 0xd0, (uint8_t)v, 1);
    else
        writer_big(w, 0xd3, (uint64_t)v, 8);
    writer_after(w);
}

static inline void write_float(struct writer *w, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    writer_before(w);
    if (w->format == FR_FORMAT_JSON)
        fr_buffer_printf(&w->out, "%.17g", v);
    else
        writer_big(w, 0xcb, bits, 8);
    writer_after(w);
}

static inline void write_word(struct writer *w, const char *json, uint8_t head)
{
    writer_before(w);
    if (w->format == FR_FORMAT_JSON)
        fr_buffer_printf(&w->out, "%s", json);
    else
        fr_put_u8(&w->out, head);
    writer_after(w);
}

static inline void write_nil(struct writer *w)
{
    write_word(w, "null", 0xc0);
}

static inline void write_bool(struct writer *w, bool v)
{
    write_word(w, v ? "true" : "false", v ? 0xc3 : 0xc2);
}

#endif
