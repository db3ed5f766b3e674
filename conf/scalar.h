/* Single values of a configuration: text <-> number, duration, size. No locale, no octal or
 * hexadecimal, no infinity. */
#ifndef FR_CONF_SCALAR_H
#define FR_CONF_SCALAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum fr_scalar_result { FR_SCALAR_OK, FR_SCALAR_BAD, FR_SCALAR_NO_UNIT, FR_SCALAR_TOO_LARGE };

enum { FR_SCALAR_TEXT_MAX = 32 };
/* The bounds of a plausible time in ms: an integer below was meant as seconds (1973 in ms), and
 * above the year 9999 has ended. */
#define FR_TIME_MS_MIN 100000000000
#define FR_TIME_MS_MAX 253402300799999

/* Digits only. */
enum fr_scalar_result fr_scalar_u64(const char *text, uint64_t *out);
/* Decimal with optional sign, fraction and exponent; finite; zero has no sign. */
enum fr_scalar_result fr_scalar_real(const char *text, double *out);
/* Integer and unit ms, s, m, h or d; a bare 0 is 0. */
enum fr_scalar_result fr_scalar_duration(const char *text, int64_t *ms);
/* Integer and unit B, KiB, MiB, GiB or TiB; a bare 0 is 0. */
enum fr_scalar_result fr_scalar_size(const char *text, uint64_t *bytes);

/* ISO 8601 in UTC, `2026-01-02T03:04:05Z` or with `.678` before the Z: Unix ms within the bounds
 * above. */
enum fr_scalar_result fr_scalar_time(const char *text, int64_t *ms);

/* In the largest unit that divides. */
void fr_scalar_format_duration(int64_t ms, char out[static FR_SCALAR_TEXT_MAX]);
void fr_scalar_format_size(uint64_t bytes, char out[static FR_SCALAR_TEXT_MAX]);

/* [A-Za-z_][A-Za-z0-9_]*, shorter than FR_NAME_MAX. */
bool fr_scalar_is_name(const char *text);

#endif
