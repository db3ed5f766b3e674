/* The public dump (docs/commands.md, "freshet dump"): JSON Lines that two programs in two languages
 * compare byte by byte.
 *
 *     {"table":"item","key":"17","parts":{"w":[0.5],"v":[1,2]}}   tables by name, keys ascending
 *     {"dense":"h/0/kernel","shape":[2,3],"values":[...]}          by name
 *     {"tl":1,"epoch":812,"wm":1700000000000,"samples":90213,"hash":"0x0123456789abcdef"}
 *
 * There are no spaces; parts come in the table's order; floats are `%.9g` (read as f32 they have
 * the same bits); what is not finite is null. The hash is XXH3-64 of all bytes before the last
 * line, as 16 hexadecimal digits.
 *
 * Values pass through the timeline's quantization here (except exact dense parameters), so the
 * daemon's exact values and a replica's published ones give the same dump: quantizing quantized
 * values changes nothing.
 *
 * Thread: one owner. The order is the caller's duty and is checked: FR_E_STATE. */
#ifndef FR_CODEC_DUMP_H
#define FR_CODEC_DUMP_H

#include "base/hash.h"
#include "codec/codec.h"

/* Returns 0 to continue; any other value ends the dump with FR_E_IO. */
typedef int fr_dump_sink(void *self, const void *bytes, size_t size);

/* Opaque by convention: between init and release only the functions below touch it, except for
 * `line`, where a caller builds a line of a form of its own for fr_dump_line. */
struct fr_dump {
    fr_dump_sink *sink;
    void *self;
    enum fr_codec_quantize quantize;
    struct fr_xxh3_stream *hash;
    struct fr_buffer line, steps;
    int phase; /* 0 rows, 1 dense, 2 ended */
    bool any;  /* a row (phase 0) or a parameter (phase 1) was written */
    uint64_t last_key;
    char last_name[160]; /* table, then parameter */
    uint64_t n_rows, n_dense;
};

struct fr_dump_segment {
    const char *part;
    uint32_t dim;
    const void *values; /* f32, may be unaligned */
};

struct fr_dump_end {
    uint64_t timeline, epoch;
    int64_t wm_ms;
    uint64_t samples;
};

void fr_dump_init(struct fr_dump *dump, enum fr_codec_quantize quantize, fr_dump_sink *sink, void *self);
void fr_dump_release(struct fr_dump *dump);
enum fr_status fr_dump_row(struct fr_dump *dump, const char *table, uint64_t key,
                           const struct fr_dump_segment *segments, uint32_t n_segments) FR_MUST_CHECK;
enum fr_status fr_dump_dense(struct fr_dump *dump, const struct fr_delta_dense *dense) FR_MUST_CHECK;
/* Hashes and writes `line`, and clears it. */
enum fr_status fr_dump_line(struct fr_dump *dump) FR_MUST_CHECK;
/* Writes the last line; *hash may be NULL. */
enum fr_status fr_dump_end(struct fr_dump *dump, const struct fr_dump_end *end, uint64_t *hash) FR_MUST_CHECK;

#endif
