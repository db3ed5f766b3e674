/* Walks over the sampled records with the bounded cursor that the decoder uses (base/cursor.h).
 *
 * The first pass recognizes the format and the form of most records, the second one observes the
 * fields of records of that format and form. A record is known to be well-formed before anything of
 * it is observed.
 *
 * - A record that is a map with `f` or `items` is a sample or a group (docs/formats/samples.md).
 * - Any other map is a flat record, in which every value has a path.
 * - An array holds samples, groups or flat records.
 *
 * Values are not judged here: kinds.c does, and finally the decoder itself (proposal.c).
 *
 * Owner: the caller's thread. */
#include "survey.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum form { FORM_NONE, FORM_SAMPLES, FORM_BLOCK, FORM_FLAT };

struct walk {
    struct fr_survey *survey;
    struct fr_cursor cursor;
    struct fr_buffer *scratch;
    char path[FR_PATH_BYTES_MAX]; /* of the object that is read, with a dot at its end */
};

static bool is_key(const struct fr_token *token, const char *key)
{
    return token->kind == FR_TOKEN_STRING && token->size == strlen(key) && memcmp(token->bytes, key, token->size) == 0;
}

static void begin(struct fr_cursor *cursor, enum fr_format format, const struct fr_sampled *sampled, size_t record,
                  struct fr_buffer *scratch)
{
    const struct fr_sampled_record *r = &sampled->records[record];
    fr_cursor_init(cursor, format, sampled->bytes.data + r->at, r->size, scratch);
    cursor->depth_max = FR_PASSED_DEPTH_MAX;
}

/* ---- format and form ---- */

/* Returns the form of a map whose first token was read, and consumes the map. */
static enum fr_status form_of_map(struct fr_cursor *cursor, enum form *out)
{
    bool has_f = false, has_items = false, has_n = false, has_cols = false;
    struct fr_token token;
    enum fr_status status;
    while ((status = fr_cursor_next(cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        has_f |= is_key(&token, "f");
        has_items |= is_key(&token, "items");
        has_n |= is_key(&token, "n");
        has_cols |= is_key(&token, "cols");
        if ((status = fr_cursor_next(cursor, &token)) != FR_OK || (status = fr_cursor_skip(cursor, &token)) != FR_OK)
            return status;
    }
    *out = has_n && has_cols ? FORM_BLOCK : has_f || has_items ? FORM_SAMPLES : FORM_FLAT;
    return status;
}

/* Returns the form of a record: of an array, that of its first map. FORM_NONE: the record is not
 * well-formed in this format, or neither map nor array. */
static enum form form_of(struct fr_cursor *cursor)
{
    struct fr_token token;
    enum form form = FORM_NONE, found;
    enum fr_status status = fr_cursor_next(cursor, &token);
    if (status == FR_OK && token.kind == FR_TOKEN_MAP)
        status = form_of_map(cursor, &form);
    else if (status == FR_OK && token.kind == FR_TOKEN_ARRAY)
        while ((status = fr_cursor_next(cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
            status = token.kind == FR_TOKEN_MAP ? form_of_map(cursor, &found) : FR_E_INVALID;
            if (status != FR_OK)
                break;
            form = form == FORM_NONE ? found : form;
        }
    return status == FR_OK && fr_cursor_next(cursor, &token) == FR_EOF ? form : FORM_NONE;
}

static enum form form_in(enum fr_format format, const struct fr_sampled *sampled, size_t record,
                         struct fr_buffer *scratch)
{
    struct fr_cursor cursor;
    begin(&cursor, format, sampled, record, scratch);
    return form_of(&cursor);
}

/* Returns whether an object of a flat record is weighted ids, which are one value. */
static bool is_weighted(struct fr_cursor cursor)
{
    struct fr_token token;
    uint32_t known = 0, others = 0;
    while (fr_cursor_next(&cursor, &token) == FR_OK && token.kind != FR_TOKEN_END) {
        known += is_key(&token, "i") || is_key(&token, "w");
        others += !is_key(&token, "i") && !is_key(&token, "w");
        if (fr_cursor_next(&cursor, &token) != FR_OK || token.kind != FR_TOKEN_ARRAY ||
            fr_cursor_skip(&cursor, &token) != FR_OK)
            return false;
    }
    return known == 2 && others == 0;
}

/* ---- fields ---- */

static enum fr_status observe(struct walk *walk, struct fr_seen_fields *fields, const char *path, size_t size,
                              const struct fr_token *value)
{
    struct fr_seen_field *field = fr_seen_find(fields, path, size);
    return field ? fr_seen_observe(field, &walk->cursor, value) : fr_cursor_skip(&walk->cursor, value);
}

/* Reads a map from name to value, whose first token was read. */
static enum fr_status observe_named(struct walk *walk, struct fr_seen_fields *fields, bool shared)
{
    struct fr_token token;
    enum fr_status status;
    while ((status = fr_cursor_next(&walk->cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        /* the key's bytes may lie in the scratch buffer, which the value overwrites */
        struct fr_seen_field *field =
            token.kind == FR_TOKEN_STRING ? fr_seen_find(fields, token.bytes, token.size) : NULL;
        if ((status = fr_cursor_next(&walk->cursor, &token)) != FR_OK)
            return status;
        if (field)
            field->shared |= shared;
        status = field ? fr_seen_observe(field, &walk->cursor, &token) : fr_cursor_skip(&walk->cursor, &token);
        if (status != FR_OK)
            return status;
    }
    return status;
}

static enum fr_status observe_labels(struct walk *walk, const struct fr_token *first)
{
    struct fr_survey *survey = walk->survey;
    struct fr_token token;
    enum fr_status status = FR_OK;
    char name[12];
    if (first->kind == FR_TOKEN_MAP) {
        survey->y_maps++;
        return observe_named(walk, &survey->labels, false);
    }
    if (first->kind != FR_TOKEN_ARRAY) {
        survey->y_numbers += first->kind != FR_TOKEN_NIL;
        return observe(walk, &survey->labels, "", 0, first);
    }
    survey->y_arrays++;
    for (unsigned i = 0; (status = fr_cursor_next(&walk->cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END; i++) {
        int size = snprintf(name, sizeof(name), "%u", i);
        if ((status = observe(walk, &survey->labels, name, (size_t)size, &token)) != FR_OK)
            break;
    }
    return status;
}

static enum fr_status walk_map(struct walk *walk);

static enum fr_status walk_items(struct walk *walk, const struct fr_token *first)
{
    struct fr_token token;
    enum fr_status status = FR_OK;
    walk->survey->groups++;
    if (first->kind != FR_TOKEN_ARRAY)
        return fr_cursor_skip(&walk->cursor, first);
    while (status == FR_OK && (status = fr_cursor_next(&walk->cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END)
        status = token.kind == FR_TOKEN_MAP ? walk_map(walk) : fr_cursor_skip(&walk->cursor, &token);
    return status;
}

/* Reads a sample or a group, whose first token was read. */
static enum fr_status walk_map(struct walk *walk)
{
    struct fr_survey *survey = walk->survey;
    struct fr_token key, token;
    enum fr_status status;
    while ((status = fr_cursor_next(&walk->cursor, &key)) == FR_OK && key.kind != FR_TOKEN_END) {
        bool features = is_key(&key, "f"), shared = is_key(&key, "shared"), labels = is_key(&key, "y"),
             items = is_key(&key, "items"), time = is_key(&key, "t"), weight = is_key(&key, "w");
        if ((status = fr_cursor_next(&walk->cursor, &token)) != FR_OK)
            return status;
        survey->samples += features;
        survey->timed += time && token.kind != FR_TOKEN_NIL;
        survey->weights += weight;
        if ((features || shared) && token.kind == FR_TOKEN_MAP)
            status = observe_named(walk, &survey->fields, shared);
        else if (labels)
            status = observe_labels(walk, &token);
        else
            status = items ? walk_items(walk, &token) : fr_cursor_skip(&walk->cursor, &token);
        if (status != FR_OK)
            return status;
    }
    return status;
}

/* Reads an object of a flat record, whose first token was read: the values of its keys, by their
 * paths. The path before them has `size` bytes. The depth is limited by the cursor. */
static enum fr_status walk_flat(struct walk *walk, size_t size)
{
    struct fr_token token;
    enum fr_status status;
    while ((status = fr_cursor_next(&walk->cursor, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        bool fits = token.kind == FR_TOKEN_STRING && size + token.size + 1 < sizeof(walk->path);
        size_t end = size + (fits ? token.size : 0);
        if (fits)
            memcpy(walk->path + size, token.bytes, token.size);
        if ((status = fr_cursor_next(&walk->cursor, &token)) != FR_OK)
            return status;
        if (!fits) {
            walk->survey->fields.passed_over++;
            status = fr_cursor_skip(&walk->cursor, &token);
        } else if (token.kind == FR_TOKEN_MAP && !is_weighted(walk->cursor)) {
            walk->path[end] = '.';
            status = walk_flat(walk, end + 1);
        } else {
            status = observe(walk, &walk->survey->fields, walk->path, end, &token);
        }
        if (status != FR_OK)
            return status;
    }
    return status;
}

static enum fr_status walk_record(struct walk *walk)
{
    struct fr_token token;
    enum fr_status status = fr_cursor_next(&walk->cursor, &token);
    bool array = status == FR_OK && token.kind == FR_TOKEN_ARRAY;
    if (array)
        status = fr_cursor_next(&walk->cursor, &token);
    while (status == FR_OK && token.kind == FR_TOKEN_MAP) {
        walk->survey->samples += walk->survey->flat;
        status = walk->survey->flat ? walk_flat(walk, 0) : walk_map(walk);
        if (status != FR_OK || !array)
            break;
        status = fr_cursor_next(&walk->cursor, &token);
    }
    return status;
}

/* ---- the survey ---- */

static enum fr_status refuse_unreadable(const struct fr_sampled *sampled, struct fr_err *err)
{
    const struct fr_sampled_record *first = &sampled->records[0];
    char shown[8 * 4 + 1] = "";
    size_t n = first->size < 8 ? first->size : 8;
    for (size_t i = 0; i < n; i++)
        snprintf(shown + 4 * i, 5, "\\x%02x", sampled->bytes.data[first->at + i]);
    return fr_err_set(err, FR_E_INVALID,
                      "none of the %zu records is a JSON or MessagePack object (the first, of partition %" PRId32
                      " offset %" PRId64
                      ", begins with %s): Avro, Protobuf, a schema registry's framing and compressed "
                      "values are not read; write a small adapter (docs/formats/samples.md, \"An adapter\")",
                      sampled->n, first->partition, first->offset, shown);
}

enum fr_status fr_survey_make(const struct fr_sampled *sampled, struct fr_survey *out, struct fr_err *err)
{
    struct fr_buffer scratch = {0};
    uint64_t forms[2][FORM_FLAT + 1] = {{0}}; /* by format */
    uint8_t *seen = fr_alloc(sampled->n, sizeof(*seen));
    for (size_t i = 0; i < sampled->n; i++) {
        enum form json = form_in(FR_FORMAT_JSON, sampled, i, &scratch);
        enum form packed = json == FORM_NONE ? form_in(FR_FORMAT_MSGPACK, sampled, i, &scratch) : FORM_NONE;
        bool is_json = json != FORM_NONE;
        forms[is_json ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK][is_json ? json : packed]++;
        seen[i] = (uint8_t)(2 * (is_json ? json : packed) + is_json);
        out->unreadable += !is_json && packed == FORM_NONE;
    }
    const uint64_t *json = forms[FR_FORMAT_JSON], *packed = forms[FR_FORMAT_MSGPACK];
    uint64_t n_json = json[FORM_SAMPLES] + json[FORM_FLAT] + json[FORM_BLOCK];
    uint64_t n_packed = packed[FORM_SAMPLES] + packed[FORM_FLAT] + packed[FORM_BLOCK];
    out->format = n_json >= n_packed ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK;
    const uint64_t *most = forms[out->format];
    out->flat = most[FORM_FLAT] > most[FORM_SAMPLES];
    out->blocks = most[FORM_BLOCK];
    uint8_t chosen = (uint8_t)(2 * (out->flat ? FORM_FLAT : FORM_SAMPLES) + (out->format == FR_FORMAT_JSON));
    struct walk walk = {.survey = out, .scratch = &scratch};
    enum fr_status status = n_json + n_packed > 0 ? FR_OK : refuse_unreadable(sampled, err);
    for (size_t i = 0; i < sampled->n && status == FR_OK; i++)
        if (seen[i] == chosen) {
            begin(&walk.cursor, out->format, sampled, i, &scratch);
            out->records++;
            status = walk_record(&walk);
        }
    if (status != FR_OK && n_json + n_packed > 0)
        (void)fr_err_set(err, status, "the records cannot be surveyed: %s", walk.cursor.problem);
    if (status == FR_OK && out->records == 0)
        status = fr_err_set(err, FR_E_INVALID,
                            "all of the %" PRIu64 " records are blocks of columns, which are not surveyed: write a few "
                            "of their samples one a record, or begin with conf/samples/general.yaml",
                            out->blocks);
    out->deviating = sampled->n - out->records - out->unreadable;
    free(seen);
    fr_buffer_release(&scratch);
    return status;
}

void fr_survey_release(struct fr_survey *survey)
{
    fr_seen_release(&survey->fields);
    fr_seen_release(&survey->labels);
}
