/* See scalar.h. Grammar is checked by hand before strtod sees the text: strtod itself would take
 * "inf", "0x1p3" and leading blanks. */
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
                                             /* largest first: formatting takes the first that
                                              * divides */
                                             {"ms", 1}};
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

/* Two or four digits where the pattern has `d`s, the pattern's own character elsewhere. */
static bool take_fields(const char **text, const char *pattern, int64_t *fields)
{
    const char *at = *text;
    while (*pattern) {
        if (*pattern != 'd') {
            if (*at++ != *pattern++)
                return false;
            continue;
        }
        for (*fields = 0; *pattern == 'd'; pattern++, at++) {
            if (!is_digit(*at))
                return false;
            *fields = *fields * 10 + (*at - '0');
        }
        fields++;
    }
    *text = at;
    return true;
}

/* Days since 1970-01-01 of a date of the Gregorian calendar: years from March, so that the leap day
 * is the last. */
static int64_t days_from_civil(int64_t year, int64_t month, int64_t day)
{
    year -= month <= 2;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return 365 * year + year / 4 - year / 100 + year / 400 + of_year - 719468;
}

enum fr_scalar_result fr_scalar_time(const char *text, int64_t *ms)
{
    static const int64_t lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t f[6], milliseconds = 0;
    if (!take_fields(&text, "dddd-dd-ddTdd:dd:dd", f))
        return FR_SCALAR_BAD;
    if (*text == '.' && !take_fields(&text, ".ddd", &milliseconds))
        return FR_SCALAR_BAD;
    bool leap = f[0] % 4 == 0 && (f[0] % 100 != 0 || f[0] % 400 == 0);
    if (strcmp(text, "Z") != 0 || f[1] < 1 || f[1] > 12 || f[2] < 1 ||
        f[2] > lengths[f[1] - 1] - (f[1] == 2 && !leap) || f[3] > 23 || f[4] > 59 || f[5] > 59)
        return FR_SCALAR_BAD;
    int64_t value = ((days_from_civil(f[0], f[1], f[2]) * 24 + f[3]) * 60 + f[4]) * 60 + f[5];
    value = value * 1000 + milliseconds;
    if (value < FR_TIME_MS_MIN || value > FR_TIME_MS_MAX)
        return FR_SCALAR_TOO_LARGE;
    *ms = value;
    return FR_SCALAR_OK;
}

bool fr_conf_time(const char *text, int64_t *ms)
{
    uint64_t number;
    if (fr_scalar_u64(text, &number) != FR_SCALAR_OK)
        return fr_scalar_time(text, ms) == FR_SCALAR_OK;
    if (number < FR_TIME_MS_MIN || number > FR_TIME_MS_MAX)
        return false;
    *ms = (int64_t)number;
    return true;
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
