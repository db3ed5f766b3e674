/* See scalar.h. Grammar is checked by hand before strtod sees the text: strtod itself would take "inf", "0x1p3" and
 * leading blanks. */
#include "scalar.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit duration_units[] = {{"d", 86400000},
                                             {"h", 3600000},
                                             {"m", 60000},
                                             {"s", 1000},
                                             {"ms", 1}}; /* largest first: formatting takes the first that divides */
static const struct unit size_units[] = {
    {"TiB", 1ULL << 40}, {"GiB", 1ULL << 30}, {"MiB", 1ULL << 20}, {"KiB", 1ULL << 10}, {"B", 1}};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Leading digits; *end is the first other byte. */
static enum fr_scalar_result take_digits(const char *text, uint64_t *out, const char **end)
{
    uint64_t value = 0;
    bool large = false;
    const char *at = text;
    for (; is_digit(*at); at++) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            large = true;
    }
    *end = at;
    if (at == text)
        return FR_SCALAR_BAD;
    if (large)
        return FR_SCALAR_TOO_LARGE;
    *out = value;
    return FR_SCALAR_OK;
}

enum fr_scalar_result fr_scalar_u64(const char *text, uint64_t *out)
{
    const char *end;
    uint64_t value;
    enum fr_scalar_result result = take_digits(text, &value, &end);
    if (*end != '\0')
        return FR_SCALAR_BAD;
    if (result == FR_SCALAR_OK)
        *out = value;
    return result;
}

enum fr_scalar_result fr_scalar_real(const char *text, double *out)
{
    const char *at = text;
    size_t digits = 0;
    if (*at == '+' || *at == '-')
        at++;
    for (; is_digit(*at); at++)
        digits++;
    if (*at == '.') {
        for (at++; is_digit(*at); at++)
            digits++;
    }
    if (digits == 0)
        return FR_SCALAR_BAD;
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-')
            at++;
        if (!is_digit(*at))
            return FR_SCALAR_BAD;
        while (is_digit(*at))
            at++;
    }
    if (*at != '\0')
        return FR_SCALAR_BAD;
    double value = strtod(text, NULL);
    if (!isfinite(value))
        return FR_SCALAR_TOO_LARGE;
    *out = value == 0.0 ? 0.0 : value; /* -0 would print differently from 0 */
    return FR_SCALAR_OK;
}

static enum fr_scalar_result with_unit(const char *text, const struct unit *units, size_t n_units, uint64_t *out)
{
    const char *end;
    uint64_t value;
    enum fr_scalar_result result = take_digits(text, &value, &end);
    if (result == FR_SCALAR_BAD)
        return FR_SCALAR_BAD;
    if (*end == '\0') {
        if (result != FR_SCALAR_OK || value != 0)
            return FR_SCALAR_NO_UNIT;
        *out = 0;
        return FR_SCALAR_OK;
    }
    for (size_t i = 0; i < n_units; i++) {
        if (strcmp(end, units[i].name) != 0)
            continue;
        if (result != FR_SCALAR_OK || __builtin_mul_overflow(value, units[i].factor, &value))
            return FR_SCALAR_TOO_LARGE;
        *out = value;
        return FR_SCALAR_OK;
    }
    return FR_SCALAR_BAD;
}

enum fr_scalar_result fr_scalar_duration(const char *text, int64_t *ms)
{
    uint64_t value;
    enum fr_scalar_result result = with_unit(text, duration_units, FR_ARRAY_LEN(duration_units), &value);
    if (result == FR_SCALAR_OK && value > INT64_MAX)
        return FR_SCALAR_TOO_LARGE;
    if (result == FR_SCALAR_OK)
        *ms = (int64_t)value;
    return result;
}

enum fr_scalar_result fr_scalar_size(const char *text, uint64_t *bytes)
{
    return with_unit(text, size_units, FR_ARRAY_LEN(size_units), bytes);
}

static void format(uint64_t value, const struct unit *units, size_t n_units, char *out)
{
    for (size_t i = 0; i < n_units; i++) {
        if (value != 0 && value % units[i].factor == 0) {
            snprintf(out, FR_SCALAR_TEXT_MAX, "%" PRIu64 "%s", value / units[i].factor, units[i].name);
            return;
        }
    }
    snprintf(out, FR_SCALAR_TEXT_MAX, "0");
}

void fr_scalar_format_duration(int64_t ms, char out[static FR_SCALAR_TEXT_MAX])
{
    FR_CHECK(ms >= 0);
    format((uint64_t)ms, duration_units, FR_ARRAY_LEN(duration_units), out);
}

void fr_scalar_format_size(uint64_t bytes, char out[static FR_SCALAR_TEXT_MAX])
{
    format(bytes, size_units, FR_ARRAY_LEN(size_units), out);
}

bool fr_scalar_is_name(const char *text)
{
    if (!((*text >= 'A' && *text <= 'Z') || (*text >= 'a' && *text <= 'z') || *text == '_'))
        return false;
    const char *at = text;
    while ((*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z') || *at == '_' || is_digit(*at))
        at++;
    return *at == '\0' && at - text < FR_NAME_MAX;
}
