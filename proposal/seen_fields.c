/* Counts of types, a sketch of the different values, and a few examples of every field.
 *
 * Values are hashed as the keys of ids are, so that the string "5" and the integer 5 are one value.
 * Memory is bounded by the number of fields (FR_FIELDS_MAX) and the size of a sketch. What the
 * counts mean is decided in kinds.c.
 *
 * Owner: the caller's thread. */
#include "seen_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "decode/decoder.h"

_Static_assert(2 * FR_FIELDS_MAX <= FR_FIELD_PLACES && FR_FIELDS_MAX < UINT16_MAX, "half of the places are free");

/* Unix times of these years are taken for times: 2000-01-01 to 2100-01-01. */
static const double TIME_MIN_S = 946684800, TIME_MAX_S = 4102444800;
enum { SENTENCE_SPACES = 3, EXACT_FLOAT_BITS = 53 };

/* ---- fields ---- */

struct fr_seen_field *fr_seen_find(struct fr_seen_fields *fields, const void *path, size_t size)
{
    uint32_t at = (uint32_t)(fr_xxh3(path, size) % FR_FIELD_PLACES);
    for (; fields->places[at]; at = (at + 1) % FR_FIELD_PLACES) {
        struct fr_seen_field *known = &fields->fields[fields->places[at] - 1];
        if (known->path_size == size && memcmp(known->path, path, size) == 0)
            return known;
    }
    if (fields->n == FR_FIELDS_MAX) {
        fields->passed_over++;
        return NULL;
    }
    if (fields->n == fields->capacity) {
        fields->capacity = fields->capacity ? 2 * fields->capacity : 32;
        fields->fields = fr_realloc(fields->fields, fields->capacity, sizeof(*fields->fields));
    }
    struct fr_seen_field *field = &fields->fields[fields->n];
    *field = (struct fr_seen_field){.path = fr_alloc(size + 1, 1), .path_size = (uint32_t)size};
    memcpy(field->path, path, size);
    fields->places[at] = (uint16_t)++fields->n;
    return field;
}

void fr_seen_release(struct fr_seen_fields *fields)
{
    for (uint32_t i = 0; i < fields->n; i++) {
        free(fields->fields[i].path);
        free(fields->fields[i].sketch.hashes);
    }
    free(fields->fields);
    *fields = (struct fr_seen_fields){0};
}

/* ---- sketches ---- */

/* Returns the place of the first hash that is not below this one. */
static uint32_t place_of(const struct fr_seen_sketch *sketch, uint64_t hash)
{
    uint32_t low = 0, high = sketch->n;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (sketch->hashes[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool contains(const struct fr_seen_sketch *sketch, uint64_t hash)
{
    uint32_t at = place_of(sketch, hash);
    return at < sketch->n && sketch->hashes[at] == hash;
}

static void sketch_add(struct fr_seen_sketch *sketch, uint64_t hash)
{
    if (!sketch->hashes)
        sketch->hashes = fr_alloc(FR_SKETCH_SIZE, sizeof(*sketch->hashes));
    uint32_t at = place_of(sketch, hash);
    if (at == FR_SKETCH_SIZE || (at < sketch->n && sketch->hashes[at] == hash))
        return;
    uint32_t moved = (sketch->n < FR_SKETCH_SIZE ? sketch->n : FR_SKETCH_SIZE - 1) - at;
    memmove(sketch->hashes + at + 1, sketch->hashes + at, moved * sizeof(*sketch->hashes));
    sketch->hashes[at] = hash;
    sketch->n += sketch->n < FR_SKETCH_SIZE;
}

uint64_t fr_seen_distinct(const struct fr_seen_sketch *sketch)
{
    if (sketch->n < FR_SKETCH_SIZE)
        return sketch->n;
    return (uint64_t)((FR_SKETCH_SIZE - 1) * 0x1p64 / (double)sketch->hashes[FR_SKETCH_SIZE - 1]);
}

/* Both sketches are complete below the smaller of their largest hashes, or wholly if they are not
 * full: what lies there is a sample of both sets. */
double fr_seen_contained(const struct fr_seen_sketch *a, const struct fr_seen_sketch *b, double *jaccard)
{
    uint64_t until = UINT64_MAX;
    if (a->n == FR_SKETCH_SIZE)
        until = a->hashes[a->n - 1];
    if (b->n == FR_SKETCH_SIZE && b->hashes[b->n - 1] < until)
        until = b->hashes[b->n - 1];
    uint64_t of_a = 0, of_b = 0, both = 0;
    for (uint32_t i = 0; i < a->n && a->hashes[i] <= until; i++) {
        of_a++;
        both += contains(b, a->hashes[i]);
    }
    for (uint32_t i = 0; i < b->n && b->hashes[i] <= until; i++)
        of_b++;
    *jaccard = both > 0 ? (double)both / (double)(of_a + of_b - both) : 0.0;
    return both > 0 ? (double)both / (double)of_a : 0.0;
}

/* ---- scalars ---- */

uint64_t fr_seen_numbers(const struct fr_seen_scalars *scalars)
{
    return scalars->integers + scalars->floats;
}

uint64_t fr_seen_present(const struct fr_seen_field *field)
{
    const struct fr_seen_scalars *v = &field->value;
    return v->booleans + fr_seen_numbers(v) + v->strings + v->others + field->lists + field->weighted + field->objects;
}

static void count_number(struct fr_seen_scalars *scalars, double number)
{
    bool first = fr_seen_numbers(scalars) == 1;
    scalars->min = first || number < scalars->min ? number : scalars->min;
    scalars->max = first || number > scalars->max ? number : scalars->max;
    scalars->sum += number;
    scalars->zeros += number == 0;
    scalars->ones += number == 1;
    scalars->minus_ones += number == -1;
    scalars->seconds += number >= TIME_MIN_S && number < TIME_MAX_S;
    scalars->milliseconds += number >= 1000 * TIME_MIN_S && number < 1000 * TIME_MAX_S;
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Counts what a string is by its content. A fraction is digits, a dot, digits. */
static void count_string(struct fr_seen_scalars *scalars, const uint8_t *bytes, uint32_t size)
{
    uint32_t at = size > 1 && bytes[0] == '-' ? 1 : 0, digits = at, spaces = 0;
    while (digits < size && is_digit(bytes[digits]))
        digits++;
    bool begins = digits > at;
    scalars->decimals += begins && digits == size;
    if (begins && digits + 1 < size && bytes[digits] == '.') {
        uint32_t end = digits + 1;
        while (end < size && is_digit(bytes[end]))
            end++;
        scalars->fraction_texts += end == size;
    }
    bool date = size >= 10;
    for (uint32_t i = 0; date && i < 10; i++)
        date = i == 4 || i == 7 ? bytes[i] == '-' : is_digit(bytes[i]);
    for (uint32_t i = 0; i < size; i++)
        spaces += bytes[i] == ' ';
    scalars->dates += date;
    scalars->sentences += spaces >= SENTENCE_SPACES;
    scalars->bytes += size;
}

/* Keeps the text of a value that was not seen before, cut and in printable ASCII. */
static void keep_example(struct fr_seen_field *field, const char *text, size_t size, bool quoted)
{
    char shown[FR_EXAMPLE_TEXT_MAX] = "";
    size_t n = 0, kept = size < FR_EXAMPLE_BYTES ? size : FR_EXAMPLE_BYTES;
    shown[n] = '"';
    n += quoted;
    for (size_t i = 0; i < kept; i++) {
        uint8_t c = (uint8_t)text[i];
        if (c < 0x20 || c > 0x7e)
            n += (size_t)snprintf(shown + n, 5, "\\x%02x", c);
        else
            shown[n++] = (char)c;
    }
    (void)snprintf(shown + n, sizeof(shown) - n, "%s%s", kept < size ? ".." : "", quoted ? "\"" : "");
    for (uint32_t i = 0; i < field->n_examples; i++)
        if (strcmp(field->examples[i], shown) == 0)
            return;
    memcpy(field->examples[field->n_examples++], shown, sizeof(shown));
}

static void observe_number(struct fr_seen_field *field, struct fr_seen_scalars *scalars, const struct fr_token *token)
{
    char text[32];
    double number = token->kind == FR_TOKEN_FLOAT ? token->f
                    : token->kind == FR_TOKEN_INT ? (double)token->i
                                                  : (double)token->u;
    bool integral = token->kind != FR_TOKEN_FLOAT || (number == floor(number) && fabs(number) < 0x1p53);
    scalars->integers += token->kind != FR_TOKEN_FLOAT;
    scalars->floats += token->kind == FR_TOKEN_FLOAT;
    scalars->fractions += !integral;
    count_number(scalars, number);
    uint64_t bits = token->kind == FR_TOKEN_FLOAT && integral ? (uint64_t)(int64_t)number : token->u;
    sketch_add(&field->sketch, integral ? fr_key_integer(bits, 0) : fr_key_string(&number, sizeof(number), 0, true));
    if (field->n_examples == FR_EXAMPLES_MAX)
        return;
    if (token->kind == FR_TOKEN_UINT)
        snprintf(text, sizeof(text), "%" PRIu64, token->u);
    else
        snprintf(text, sizeof(text), "%.15g", number);
    keep_example(field, text, strlen(text), false);
}

static void observe_scalar(struct fr_seen_field *field, struct fr_seen_scalars *scalars, const struct fr_token *token)
{
    switch (token->kind) {
    case FR_TOKEN_NIL:
        scalars->nils++;
        break;
    case FR_TOKEN_BOOL:
        scalars->booleans++;
        scalars->zeros += token->i == 0;
        scalars->ones += token->i != 0;
        sketch_add(&field->sketch, fr_key_integer((uint64_t)token->i, 0));
        break;
    case FR_TOKEN_INT:
    case FR_TOKEN_UINT:
    case FR_TOKEN_FLOAT:
        observe_number(field, scalars, token);
        break;
    case FR_TOKEN_STRING:
        scalars->strings++;
        count_string(scalars, token->bytes, token->size);
        sketch_add(&field->sketch, fr_key_string(token->bytes, token->size, 0, false));
        if (field->n_examples < FR_EXAMPLES_MAX)
            keep_example(field, (const char *)token->bytes, token->size, true);
        break;
    case FR_TOKEN_BIN:
    case FR_TOKEN_EXT:
    case FR_TOKEN_ARRAY:
    case FR_TOKEN_MAP:
    case FR_TOKEN_END:
        scalars->others++;
        break;
    }
}

/* ---- values ---- */

static enum fr_status observe_elements(struct fr_seen_field *field, struct fr_cursor *cursor)
{
    struct fr_token token;
    uint32_t length = 0;
    enum fr_status status;
    while ((status = fr_cursor_next(cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        observe_scalar(field, &field->element, &token);
        length++;
        if ((status = fr_cursor_skip(cursor, &token)) != FR_OK)
            return status;
    }
    if (status != FR_OK)
        return status;
    field->empty_lists += length == 0;
    if (length > 0 && (field->length_max == 0 || length < field->length_min))
        field->length_min = length;
    if (length > field->length_max)
        field->length_max = length;
    return FR_OK;
}

/* Reads a map. One with the keys `i` and `w` only is weighted ids; any other is an object. */
static enum fr_status observe_map(struct fr_seen_field *field, struct fr_cursor *cursor)
{
    struct fr_token key, token;
    uint32_t known = 0, unknown = 0;
    enum fr_status status;
    while ((status = fr_cursor_next(cursor, &key)) == FR_OK && key.kind != FR_TOKEN_END) {
        bool short_key = key.kind == FR_TOKEN_STRING && key.size == 1;
        bool ids = short_key && key.bytes[0] == 'i', weights = short_key && key.bytes[0] == 'w';
        status = fr_cursor_next(cursor, &token);
        if (status == FR_OK && ids && token.kind == FR_TOKEN_ARRAY)
            status = observe_elements(field, cursor);
        else if (status == FR_OK)
            status = fr_cursor_skip(cursor, &token);
        if (status != FR_OK)
            return status;
        known += ids || weights;
        unknown += !ids && !weights;
    }
    field->weighted += known == 2 && unknown == 0;
    field->objects += known != 2 || unknown > 0;
    return status;
}

enum fr_status fr_seen_observe(struct fr_seen_field *field, struct fr_cursor *cursor, const struct fr_token *first)
{
    if (first->kind == FR_TOKEN_ARRAY) {
        field->lists++;
        return observe_elements(field, cursor);
    }
    if (first->kind == FR_TOKEN_MAP)
        return observe_map(field, cursor);
    observe_scalar(field, &field->value, first);
    return FR_OK;
}
