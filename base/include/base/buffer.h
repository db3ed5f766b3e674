/* A growing byte buffer, little-endian loads and stores, and a bounded reader. The buffer doubles
 * when it is full; refused memory ends the process. */
#ifndef FR_BASE_BUFFER_H
#define FR_BASE_BUFFER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fr_buffer {
    uint8_t *data; /* owned; NULL when capacity is 0 */
    size_t size;
    size_t capacity;
};

void fr_buffer_release(struct fr_buffer *buffer);
/* Bytes that the holder does not own. */
struct fr_bytes {
    const uint8_t *data;
    size_t size;
};

/* Makes room for `extra` more bytes and returns their address; the size does not change. */
/* the slow path of fr_buffer_reserve */
uint8_t *fr_buffer_grow(struct fr_buffer *buffer, size_t extra);
static inline uint8_t *fr_buffer_reserve(struct fr_buffer *buffer, size_t extra)
{
    if (buffer->capacity == 0 || buffer->capacity - buffer->size < extra)
        return fr_buffer_grow(buffer, extra);
    return buffer->data + buffer->size;
}
/* `bytes` (may be NULL when size is 0) must not point into the buffer itself. */
static inline void fr_buffer_append(struct fr_buffer *buffer, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    memcpy(fr_buffer_reserve(buffer, size), bytes, size);
    buffer->size += size;
}
void fr_buffer_printf(struct fr_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes a NUL after the text, outside its size, for callers that print the text as a string. */
static inline void fr_buffer_terminate(struct fr_buffer *buffer)
{
    *fr_buffer_reserve(buffer, 1) = '\0';
}
/* Appends text as a JSON string. Quotes, backslashes and control characters are escaped, and U+FFFD
 * replaces each byte that is not UTF-8, as in a text that was cut. */
void fr_buffer_json_text(struct fr_buffer *buffer, const char *text);
void fr_buffer_json_bytes(struct fr_buffer *buffer, const char *text, size_t size);
/* Appends text as a YAML scalar in double quotes, which may also stand in a comment: in addition to
 * what JSON escapes, nothing in it ends a line of YAML, is refused by YAML, or is invisible. */
void fr_buffer_yaml_text(struct fr_buffer *buffer, const char *text);
/* Appends a float exactly as printf's `%.9g` would, in a quarter of the time, because a dump has
 * tens of millions of floats. A value that is not finite is written as null, because JSON has no
 * other way. */
void fr_buffer_number(struct fr_buffer *buffer, float value);

static inline void fr_buffer_clear(struct fr_buffer *buffer)
{
    buffer->size = 0;
}

/* The project runs on little-endian machines only (checked at compile time): loads and stores are
 * memcpy. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored formats are little-endian");

static inline uint32_t fr_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline uint64_t fr_load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline float fr_load_f32(const void *p)
{
    float v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline double fr_load_f64(const void *p)
{
    double v;
    memcpy(&v, p, sizeof(v));
    return v;
}

static inline void fr_put_u8(struct fr_buffer *b, uint8_t v)
{
    *fr_buffer_reserve(b, 1) = v;
    b->size += 1;
}

static inline void fr_put_u32(struct fr_buffer *b, uint32_t v)
{
    fr_buffer_append(b, &v, sizeof(v));
}

static inline void fr_put_u64(struct fr_buffer *b, uint64_t v)
{
    fr_buffer_append(b, &v, sizeof(v));
}

static inline void fr_put_f64(struct fr_buffer *b, double v)
{
    fr_buffer_append(b, &v, sizeof(v));
}

/* A bounded reader of stored bytes. A read past the end sets `failed` and returns zeros, so one
 * check at the end is enough. */
struct fr_reader {
    const uint8_t *at;
    const uint8_t *end;
    int failed;
};

static inline const uint8_t *fr_take(struct fr_reader *r, size_t size)
{
    if (r->failed || (size_t)(r->end - r->at) < size) {
        r->failed = 1;
        return NULL;
    }
    const uint8_t *p = r->at;
    r->at += size;
    return p;
}

static inline uint8_t fr_take_u8(struct fr_reader *r)
{
    const uint8_t *p = fr_take(r, 1);
    return p ? *p : 0;
}

static inline uint32_t fr_take_u32(struct fr_reader *r)
{
    const uint8_t *p = fr_take(r, 4);
    return p ? fr_load_u32(p) : 0;
}

static inline uint64_t fr_take_u64(struct fr_reader *r)
{
    const uint8_t *p = fr_take(r, 8);
    return p ? fr_load_u64(p) : 0;
}

static inline double fr_take_f64(struct fr_reader *r)
{
    uint64_t bits = fr_take_u64(r);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

#endif
