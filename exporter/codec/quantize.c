/* Quantization of published values: f16 and bf16 with round half to even, saturating at the largest
 * finite value.
 *
 * The values of a replica must be a function of the row alone, so the conversions are integer
 * arithmetic on the bits and depend on no rounding mode or compiler flag. If the processor has an
 * instruction for f16, it converts finite values, with the rounding mode in its operand; the unit
 * test compares all exponents and roundings with the arithmetic. An infinity counts as saturated, a
 * NaN stays a NaN (its leading payload bits are kept).
 *
 * Source: IEEE 754-2019, section 3.4 (binary16), 4.3.1.
 *
 * i8 is per row of a part: scale = max |v| / 127, q = v / scale to the nearest (half to even); a
 * replica holds q * scale. A row of zeros, or so small that its scale vanishes, is zeros.
 *
 * Thread: any, no state. */
#include "codec/codec.h"

#include <float.h>
#include <math.h>

#include "base/math.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* From F16_OVERFLOW (65520) on, in magnitude, rounding would leave the finite range of f16. */
enum { F16_LARGEST = 0x7bff, F16_OVERFLOW = 0x477ff000, BF16_LARGEST = 0x7f7f };
#define I8_LARGEST 127.0f

uint16_t fr_f16_from_f32(float value, uint64_t *saturated)
{
    uint32_t bits = fr_f32_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    /* A NaN keeps a payload that is not 0; otherwise it would become an infinity. */
    if (magnitude > 0x7f800000u) {
        uint16_t payload = (uint16_t)(magnitude >> 13 & 0x3ffu);
        return (uint16_t)(sign | 0x7c00u | (payload ? payload : 1u));
    }
    if (magnitude >= F16_OVERFLOW) {
        if (saturated)
            *saturated += 1;
        return (uint16_t)(sign | F16_LARGEST);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal or zero, unit 2^-24 */
        if (magnitude < 0x33000000u)
            return sign; /* below 2^-25; exactly 2^-25 ties to even, also zero, in the code below */
        uint32_t shift = 126u - (magnitude >> 23); /* 14 at 2^-15 .. 24 at 2^-25 */
        uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        uint32_t half = 1u << (shift - 1), kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1);
        kept += rest > half || (rest == half && (kept & 1u));
        return (uint16_t)(sign | kept);
    }
    uint32_t rebased = magnitude - 0x38000000u; /* exponent bias 127 -> 15 */
    rebased += 0xfffu + (rebased >> 13 & 1u);
    return (uint16_t)(sign | rebased >> 13);
}

static void convert_each(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half = fr_f16_from_f32(fr_load_f32(values + i * sizeof(float)), saturated);
        memcpy(out + i * sizeof(half), &half, sizeof(half));
    }
}

#if defined(__x86_64__)
enum { LANES = 8 };

/* The instruction rounds like fr_f16_from_f32 and keeps subnormals whatever the control
 * register holds. Values that are not finite before or after the conversion are converted by
 * that function. */
__attribute__((target("avx2,f16c"))) static void convert_f16c(const uint8_t *values, size_t count, uint8_t *out,
                                                              uint64_t *saturated)
{
    const __m256i positive = _mm256_set1_epi32(0x7fffffff), last = _mm256_set1_epi32(F16_OVERFLOW - 1);
    size_t i = 0;
    for (; count - i >= LANES; i += LANES) {
        __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)(values + i * sizeof(float)));
        __m256i large = _mm256_cmpgt_epi32(_mm256_and_si256(bits, positive), last);
        if (_mm256_testz_si256(large, large))
            _mm_storeu_si128((__m128i *)(void *)(out + i * sizeof(uint16_t)),
                             _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT));
        else
            convert_each(values + i * sizeof(float), LANES, out + i * sizeof(uint16_t), saturated);
    }
    convert_each(values + i * sizeof(float), count - i, out + i * sizeof(uint16_t), saturated);
}

void fr_f16_from_f32s(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated)
{
    /* Processors with AVX2 have F16C, whose name not every compiler accepts here. */
    if (__builtin_cpu_supports("avx2"))
        convert_f16c(values, count, out, saturated);
    else
        convert_each(values, count, out, saturated);
}
#else
void fr_f16_from_f32s(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated)
{
    convert_each(values, count, out, saturated);
}
#endif

float fr_f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, exponent = half >> 10 & 0x1fu, mantissa = half & 0x3ffu;
    if (exponent == 0x1f)
        return fr_bits_f32(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0)
        return fr_bits_f32(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * fr_bits_f32(0x33800000u); /* 2^-24: exact */
    return fr_bits_f32(sign | fr_f32_bits(magnitude));
}

static uint16_t bf16_from_f32(float value, uint64_t *saturated)
{
    uint32_t bits = fr_f32_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        uint16_t payload = (uint16_t)(magnitude >> 16 & 0x7fu);
        return (uint16_t)(sign | 0x7f80u | (payload ? payload : 1u));
    }
    /* halfway beyond the largest finite value ties to the even infinity */
    if (magnitude >= 0x7f7f8000u) {
        if (saturated)
            *saturated += 1;
        return (uint16_t)(sign | BF16_LARGEST);
    }
    magnitude += 0x7fffu + (magnitude >> 16 & 1u);
    return (uint16_t)(sign | magnitude >> 16);
}

void fr_codec_bf16(const uint8_t *values, size_t count, uint8_t *out, uint64_t *saturated)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = bf16_from_f32(fr_load_f32(values + i * sizeof(float)), saturated);
        memcpy(out + i * sizeof(bits), &bits, sizeof(bits));
    }
}

float fr_codec_i8_scale(const uint8_t *values, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        float size = fabsf(fr_load_f32(values + i * sizeof(float)));
        if (size > most && size <= FLT_MAX) /* no NaN, no infinity */
            most = size;
    }
    return most / I8_LARGEST;
}

float fr_codec_i8(const uint8_t *values, size_t count, int8_t *out, uint64_t *saturated)
{
    /* Adding this number leaves no bits for a fraction, so the sum is rounded half to even. */
    const float whole = 12582912.0f; /* 1.5 * 2^23 */
    float scale = fr_codec_i8_scale(values, count);
    for (size_t i = 0; i < count; i++) {
        float value = fr_load_f32(values + i * sizeof(float));
        float steps = scale > 0 && !isnan(value) ? value / scale : 0;
        if (isinf(value) && saturated)
            *saturated += 1;
        steps = steps > I8_LARGEST ? I8_LARGEST : steps < -I8_LARGEST ? -I8_LARGEST : steps;
        out[i] = (int8_t)(steps + whole - whole);
    }
    return scale;
}

float fr_quantized(float value, enum fr_codec_quantize quantize)
{
    switch (quantize) {
    case FR_CODEC_F16:
        return fr_f32_from_f16(fr_f16_from_f32(value, NULL));
    case FR_CODEC_BF16:
        return fr_bits_f32((uint32_t)bf16_from_f32(value, NULL) << 16);
    case FR_CODEC_F32:
    case FR_CODEC_I8:
        break;
    }
    return value;
}

const char *fr_codec_quantize_name(enum fr_codec_quantize quantize)
{
    static const char *const names[] = {"f32", "f16", "bf16", "i8"};
    return names[quantize];
}

enum fr_codec_quantize fr_delta_dense_quantize(const struct fr_delta_dense *dense, enum fr_codec_quantize quantize)
{
    return dense->exact || quantize == FR_CODEC_I8 ? FR_CODEC_F32 : quantize;
}
