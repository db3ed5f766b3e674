/* MANIFEST.json of a snapshot as bytes (docs/formats/snapshots.md): printed and parsed here only.
 *
 * 64-bit hashes are strings of decimal digits, as keys are in dumps, because JSON numbers beyond
 * 2^53 do not survive every reader. Parsing believes no length and no name: a file's name is never
 * a path, counts have limits, and every key of the format must be there once. A name in `off` may
 * be any text, since a sample file's path stands there; nobody opens it.
 *
 * The last key is the SHA-256 of all bytes before it. Older manifests end with `files` and have no
 * sum; after `files` nothing else may stand, so that no damage turns one kind into the other.
 *
 * Thread: any, no state. It opens no file (manifest_files.c). */
#include "codec/manifest.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/cursor.h"
#include "codec/codec.h"

enum { HEX_SIZE = 64, DECIMAL_MAX = 20 };

const char fr_manifest_file_name[] = "MANIFEST.json";

/* What follows the bytes that the sum is of: SUM_HEAD, 64 hexadecimal digits, SUM_END. */
#define SUM_HEAD ",\n\"sha256\":\""
#define SUM_END "\"}\n"
enum { SUM_HEAD_SIZE = sizeof(SUM_HEAD) - 1, SUM_TAIL_SIZE = SUM_HEAD_SIZE + HEX_SIZE + sizeof(SUM_END) - 1 };

/* ---- printing ---- */

enum fr_status fr_manifest_name(const struct fr_manifest *manifest, char out[FR_MANIFEST_NAME_MAX])
{
    int size = snprintf(out, FR_MANIFEST_NAME_MAX, "%s-%" PRIu64 "-%" PRIu64, manifest->model, manifest->timeline,
                        manifest->epoch);
    return size > 0 && size < FR_MANIFEST_NAME_MAX ? FR_OK : FR_E_LIMIT;
}

static void print_offsets(const struct fr_manifest *manifest, struct fr_buffer *out)
{
    fr_buffer_printf(out, ",\"off\":{");
    for (size_t i = 0; i < manifest->n_offsets; i++) {
        const struct fr_manifest_offset *offset = &manifest->offsets[i];
        bool begins = i == 0 || strcmp(offset[-1].topic, offset->topic) != 0;
        if (begins) {
            fr_buffer_printf(out, "%s", i ? "}," : "");
            fr_buffer_json_text(out, offset->topic);
            fr_buffer_printf(out, ":{");
        }
        fr_buffer_printf(out, "%s\"%" PRIu32 "\":%" PRIu64, begins ? "" : ",", offset->partition, offset->next_offset);
    }
    fr_buffer_printf(out, "%s},\n\"delta_offsets\":[", manifest->n_offsets ? "}" : "");
    for (uint32_t p = 0; manifest->delta_offsets && p < manifest->np; p++)
        fr_buffer_printf(out, "%s%" PRIu64, p ? "," : "", manifest->delta_offsets[p]);
    fr_buffer_printf(out, "]");
}

static void print_sha256(const struct fr_sha256 *sha256, struct fr_buffer *out)
{
    for (size_t i = 0; i < sizeof(sha256->bytes); i++)
        fr_buffer_printf(out, "%02x", sha256->bytes[i]);
}

static void print_file(const struct fr_manifest_file *file, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"name\":\"%s\",\"table\":", file->name);
    if (file->table[0])
        fr_buffer_json_text(out, file->table);
    else
        fr_buffer_printf(out, "null");
    fr_buffer_printf(out, ",\"partition\":%" PRIu32 ",\"rows\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"sha256\":\"",
                     file->partition, file->rows, file->bytes);
    print_sha256(&file->sha256, out);
    fr_buffer_printf(out, "\"}");
}

void fr_manifest_print(const struct fr_manifest *manifest, struct fr_buffer *out)
{
    size_t begin = out->size;
    fr_buffer_printf(out, "{\"v\":%d,\"model\":", FR_MANIFEST_VERSION);
    fr_buffer_json_text(out, manifest->model);
    fr_buffer_printf(out,
                     ",\"fp\":\"%" PRIu64 "\",\"tl\":%" PRIu64 ",\"e\":%" PRIu64 ",\"dig\":\"%" PRIu64
                     "\",\"t\":%" PRIu64 ",\"wm\":%" PRIu64 ",\"np\":%" PRIu32 ",\"topic\":",
                     manifest->fp, manifest->timeline, manifest->epoch, manifest->digest, manifest->t_ms,
                     manifest->wm_ms, manifest->np);
    fr_buffer_json_text(out, manifest->topic);
    print_offsets(manifest, out);
    fr_buffer_printf(out, ",\"parent\":null,\n\"files\":[");
    for (size_t i = 0; i < manifest->n_files; i++) {
        fr_buffer_printf(out, "%s\n", i ? "," : "");
        print_file(&manifest->files[i], out);
    }
    fr_buffer_printf(out, "\n]");
    const struct fr_sha256 sum = fr_sha256(out->data + begin, out->size - begin);
    fr_buffer_printf(out, SUM_HEAD);
    print_sha256(&sum, out);
    fr_buffer_printf(out, SUM_END);
}

uint64_t fr_manifest_bytes(const struct fr_manifest *manifest)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < manifest->n_files; i++)
        sum += manifest->files[i].bytes;
    return sum;
}

uint64_t fr_manifest_rows(const struct fr_manifest *manifest)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < manifest->n_files; i++)
        sum += manifest->files[i].rows;
    return sum;
}

void fr_manifest_release(struct fr_manifest *manifest)
{
    if (!manifest)
        return;
    free(manifest->offsets);
    free(manifest->delta_offsets);
    free(manifest->files);
    *manifest = (struct fr_manifest){0};
}

/* ---- parsing ---- */

struct parser {
    struct fr_cursor cursor;
    struct fr_buffer scratch;
    struct fr_manifest manifest;
    size_t offsets_capacity, files_capacity, n_delta_offsets, delta_offsets_capacity;
    struct fr_err *err;
};

static enum fr_status refuse(struct parser *parser, enum fr_status status, const char *what)
{
    return fr_err_set(parser->err, status, "not a snapshot's manifest: byte %zu: %s", fr_cursor_offset(&parser->cursor),
                      what);
}

static enum fr_status next(struct parser *parser, struct fr_token *token)
{
    enum fr_status status = fr_cursor_next(&parser->cursor, token);
    if (status == FR_EOF)
        return refuse(parser, FR_E_INVALID, "cut off");
    return status == FR_OK ? FR_OK : refuse(parser, status, parser->cursor.problem);
}

static enum fr_status take_number(struct parser *parser, uint64_t max, uint64_t *out)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    if (token.kind != FR_TOKEN_UINT || token.u > max)
        return refuse(parser, FR_E_INVALID, "expected a whole number within its range");
    *out = token.u;
    return FR_OK;
}

static bool decimal_of(const uint8_t *bytes, size_t size, uint64_t *out)
{
    uint64_t value = 0;
    if (size == 0 || size > DECIMAL_MAX || (size > 1 && bytes[0] == '0'))
        return false;
    for (size_t i = 0; i < size; i++) {
        uint64_t digit = (uint64_t)bytes[i] - '0';
        if (bytes[i] < '0' || bytes[i] > '9' || value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

/* A string of decimal digits. */
static enum fr_status take_hash(struct parser *parser, uint64_t *out)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == FR_TOKEN_STRING && decimal_of(token.bytes, token.size, out)
               ? FR_OK
               : refuse(parser, FR_E_INVALID, "expected a string of decimal digits below 2^64");
}

static bool is_name(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        uint8_t c = bytes[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '-' && (c != '.' || i == 0))
            return false;
    }
    return size > 0;
}

static enum fr_status keep_name(struct parser *parser, const struct fr_token *token, char *out, size_t room)
{
    if (token->kind != FR_TOKEN_STRING || token->size >= room || !is_name(token->bytes, token->size))
        return refuse(parser, FR_E_INVALID, "expected a name of letters, digits, '.', '_' and '-'");
    memcpy(out, token->bytes, token->size);
    out[token->size] = '\0';
    return FR_OK;
}

/* A name of `off`: whatever a position may be called. */
static enum fr_status keep_text(struct parser *parser, const struct fr_token *token, char *out, size_t room)
{
    if (token->kind != FR_TOKEN_STRING || token->size == 0 || token->size >= room ||
        memchr(token->bytes, 0, token->size))
        return refuse(parser, FR_E_INVALID, "expected a name of 1 to 249 bytes without NUL");
    memcpy(out, token->bytes, token->size);
    out[token->size] = '\0';
    return FR_OK;
}

static enum fr_status take_name(struct parser *parser, char *out, size_t room)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    return status == FR_OK ? keep_name(parser, &token, out, room) : status;
}

static enum fr_status expect(struct parser *parser, enum fr_token_kind kind, const char *what)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == kind ? FR_OK : refuse(parser, FR_E_INVALID, what);
}

/* ---- lists ---- */

static enum fr_status take_topic_offsets(struct parser *parser, const char *topic)
{
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "expected a map of partitions to offsets");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        uint64_t partition = 0;
        if (!decimal_of(token.bytes, token.size, &partition) || partition > INT32_MAX)
            return refuse(parser, FR_E_INVALID, "expected a partition's number");
        if (manifest->n_offsets == FR_MANIFEST_OFFSETS_MAX)
            return refuse(parser, FR_E_LIMIT, "too many offsets");
        if (manifest->n_offsets == parser->offsets_capacity) {
            parser->offsets_capacity = parser->offsets_capacity ? 2 * parser->offsets_capacity : 16;
            manifest->offsets = fr_realloc(manifest->offsets, parser->offsets_capacity, sizeof(*manifest->offsets));
        }
        struct fr_manifest_offset *offset = &manifest->offsets[manifest->n_offsets];
        snprintf(offset->topic, sizeof(offset->topic), "%s", topic);
        offset->partition = (uint32_t)partition;
        status = take_number(parser, UINT64_MAX, &offset->next_offset);
        manifest->n_offsets += status == FR_OK;
    }
    return status;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct fr_manifest_offset *left = a, *right = b;
    int order = strcmp(left->topic, right->topic);
    return order ? order : (left->partition > right->partition) - (left->partition < right->partition);
}

static enum fr_status take_offsets(struct parser *parser)
{
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "\"off\" is no map");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        char topic[FR_MANIFEST_TOPIC_MAX];
        status = keep_text(parser, &token, topic, sizeof(topic));
        if (status == FR_OK)
            status = take_topic_offsets(parser, topic);
    }
    if (status != FR_OK)
        return status;
    if (manifest->n_offsets > 1)
        qsort(manifest->offsets, manifest->n_offsets, sizeof(*manifest->offsets), compare_offsets);
    for (size_t i = 1; i < manifest->n_offsets; i++)
        if (compare_offsets(&manifest->offsets[i - 1], &manifest->offsets[i]) == 0)
            return refuse(parser, FR_E_INVALID, "a partition of \"off\" stands twice");
    return FR_OK;
}

static enum fr_status take_delta_offsets(struct parser *parser)
{
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_ARRAY, "\"delta_offsets\" is no array");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        if (token.kind != FR_TOKEN_UINT)
            return refuse(parser, FR_E_INVALID, "expected an offset");
        if (parser->n_delta_offsets == FR_DELTA_PARTITIONS_MAX)
            return refuse(parser, FR_E_LIMIT, "too many partitions");
        if (parser->n_delta_offsets == parser->delta_offsets_capacity) {
            parser->delta_offsets_capacity = parser->delta_offsets_capacity ? 2 * parser->delta_offsets_capacity : 16;
            manifest->delta_offsets =
                fr_realloc(manifest->delta_offsets, parser->delta_offsets_capacity, sizeof(*manifest->delta_offsets));
        }
        manifest->delta_offsets[parser->n_delta_offsets++] = token.u;
    }
    return status;
}

static uint8_t nibble(uint8_t c)
{
    return (uint8_t)(c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : UINT8_MAX);
}

static bool sha256_of(const uint8_t digits[HEX_SIZE], struct fr_sha256 *out)
{
    bool good = true;
    for (size_t i = 0; good && i < HEX_SIZE / 2; i++) {
        uint8_t high = nibble(digits[2 * i]), low = nibble(digits[2 * i + 1]);
        good = high < 16 && low < 16;
        out->bytes[i] = (uint8_t)(high << 4 | (low & 15));
    }
    return good;
}

static enum fr_status take_sha256(struct parser *parser, struct fr_sha256 *out)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    bool good = token.kind == FR_TOKEN_STRING && token.size == HEX_SIZE && sha256_of(token.bytes, out);
    return good ? FR_OK : refuse(parser, FR_E_INVALID, "expected 64 hexadecimal digits, lower case");
}

static enum fr_status take_table(struct parser *parser, struct fr_manifest_file *file)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK || token.kind == FR_TOKEN_NIL)
        return status;
    return keep_name(parser, &token, file->table, sizeof(file->table));
}

/* ---- maps whose keys are known ---- */

/* Index of the key among n, n when it is none of them; *seen has a bit of each that stood before,
 * and one that stands twice is refused. */
static enum fr_status find_key(struct parser *parser, const struct fr_token *token, const char *const *keys, size_t n,
                               uint32_t *seen, size_t *out)
{
    size_t k = 0;
    while (k < n && (strlen(keys[k]) != token->size || memcmp(keys[k], token->bytes, token->size) != 0))
        k++;
    if (k < n && (*seen >> k & 1))
        return refuse(parser, FR_E_INVALID, "a key stands twice");
    *seen |= k < n ? 1u << k : 0;
    *out = k;
    return FR_OK;
}

static enum fr_status pass_over(struct parser *parser)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    status = fr_cursor_skip(&parser->cursor, &token);
    return status == FR_OK ? FR_OK : refuse(parser, status, parser->cursor.problem);
}

static enum fr_status missing(struct parser *parser, const char *const *keys, size_t n, uint32_t seen)
{
    for (size_t k = 0; k < n; k++)
        if (!(seen >> k & 1))
            return fr_err_set(parser->err, FR_E_INVALID, "not a snapshot's manifest: byte %zu: \"%s\" is missing",
                              fr_cursor_offset(&parser->cursor), keys[k]);
    return FR_OK;
}

static enum fr_status take_file_value(struct parser *parser, size_t key, struct fr_manifest_file *file)
{
    uint64_t partition = 0;
    enum fr_status status = FR_OK;
    switch (key) {
    case 0:
        return take_name(parser, file->name, sizeof(file->name));
    case 1:
        return take_table(parser, file);
    case 2:
        status = take_number(parser, FR_DELTA_PARTITIONS_MAX - 1, &partition);
        file->partition = (uint32_t)partition;
        return status;
    case 3:
        return take_number(parser, FR_MANIFEST_FILE_BYTES_MAX, &file->rows);
    case 4:
        return take_number(parser, FR_MANIFEST_FILE_BYTES_MAX, &file->bytes);
    case 5:
        return take_sha256(parser, &file->sha256);
    default:
        return pass_over(parser);
    }
}

static enum fr_status take_file(struct parser *parser, struct fr_manifest_file *file)
{
    static const char *const keys[] = {"name", "table", "partition", "rows", "bytes", "sha256"};
    struct fr_token token;
    enum fr_status status = FR_OK;
    uint32_t seen = 0;
    size_t key = 0;
    while ((status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        status = find_key(parser, &token, keys, FR_ARRAY_LEN(keys), &seen, &key);
        if (status == FR_OK)
            status = take_file_value(parser, key, file);
        if (status != FR_OK)
            return status;
    }
    return status == FR_OK ? missing(parser, keys, FR_ARRAY_LEN(keys), seen) : status;
}

static enum fr_status take_files(struct parser *parser)
{
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_ARRAY, "\"files\" is no array");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        if (token.kind != FR_TOKEN_MAP)
            return refuse(parser, FR_E_INVALID, "expected a map that describes a file");
        if (manifest->n_files == FR_MANIFEST_FILES_MAX)
            return refuse(parser, FR_E_LIMIT, "too many files");
        if (manifest->n_files == parser->files_capacity) {
            parser->files_capacity = parser->files_capacity ? 2 * parser->files_capacity : 16;
            manifest->files = fr_realloc(manifest->files, parser->files_capacity, sizeof(*manifest->files));
        }
        manifest->files[manifest->n_files] = (struct fr_manifest_file){0};
        status = take_file(parser, &manifest->files[manifest->n_files++]);
    }
    return status;
}

enum key { V, MODEL, FP, TL, E, DIG, T, WM, NP, TOPIC, OFF, DELTA_OFFSETS, PARENT, FILES, SUM, KEYS };
static const char *const names[KEYS] = {"v",      "model", "fp",    "tl",    "e",   "dig",
                                        "t",      "wm",    "np",    "topic", "off", "delta_offsets",
                                        "parent", "files", "sha256"};

static enum fr_status take_version(struct parser *parser)
{
    uint64_t version = 0;
    enum fr_status status = take_number(parser, UINT64_MAX, &version);
    if (status == FR_OK && version != FR_MANIFEST_VERSION)
        return fr_err_set(parser->err, FR_E_UNSUPPORTED,
                          "a snapshot of format %" PRIu64 "; this version reads format %d", version,
                          FR_MANIFEST_VERSION);
    return status;
}

static enum fr_status take_parent(struct parser *parser)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == FR_TOKEN_NIL ? FR_OK
                                      : refuse(parser, FR_E_UNSUPPORTED,
                                               "a snapshot that builds on another one; this version reads whole ones");
}

static enum fr_status take_value(struct parser *parser, size_t key)
{
    struct fr_manifest *manifest = &parser->manifest;
    uint64_t number = 0;
    enum fr_status status = FR_OK;
    switch (key) {
    case V:
        return take_version(parser);
    case MODEL:
        return take_name(parser, manifest->model, sizeof(manifest->model));
    case FP:
        return take_hash(parser, &manifest->fp);
    case TL:
        return take_number(parser, UINT64_MAX, &manifest->timeline);
    case E:
        return take_number(parser, UINT64_MAX, &manifest->epoch);
    case DIG:
        return take_hash(parser, &manifest->digest);
    case T:
        return take_number(parser, INT64_MAX, &manifest->t_ms);
    case WM:
        return take_number(parser, INT64_MAX, &manifest->wm_ms);
    case NP:
        status = take_number(parser, FR_DELTA_PARTITIONS_MAX, &number);
        manifest->np = (uint32_t)number;
        return status;
    case TOPIC:
        return take_name(parser, manifest->topic, sizeof(manifest->topic));
    case OFF:
        return take_offsets(parser);
    case DELTA_OFFSETS:
        return take_delta_offsets(parser);
    case PARENT:
        return take_parent(parser);
    case FILES:
        return take_files(parser);
    case SUM: /* compared before parsing, where it is the last of all */
        return manifest->summed ? pass_over(parser) : refuse(parser, FR_E_INVALID, "\"sha256\" is not the last");
    default:
        return pass_over(parser);
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* What no value shows on its own. */
static enum fr_status check_whole(struct parser *parser)
{
    struct fr_manifest *manifest = &parser->manifest;
    if (manifest->timeline == 0 || manifest->epoch == 0 || manifest->np == 0)
        return refuse(parser, FR_E_INVALID, "\"tl\", \"e\" and \"np\" begin with 1");
    if (parser->n_delta_offsets != 0 && parser->n_delta_offsets != manifest->np)
        return refuse(parser, FR_E_INVALID, "\"delta_offsets\" has another length than \"np\"");
    const char **sorted = fr_alloc(manifest->n_files + 1, sizeof(*sorted));
    bool twice = false, beyond = false;
    for (size_t i = 0; i < manifest->n_files; i++) {
        sorted[i] = manifest->files[i].name;
        beyond |= manifest->files[i].partition >= manifest->np;
    }
    if (manifest->n_files > 1)
        qsort(sorted, manifest->n_files, sizeof(*sorted), compare_names);
    for (size_t i = 1; i < manifest->n_files; i++)
        twice |= strcmp(sorted[i - 1], sorted[i]) == 0;
    free(sorted);
    if (twice)
        return refuse(parser, FR_E_INVALID, "a file stands twice");
    return beyond ? refuse(parser, FR_E_INVALID, "a file's partition is not below \"np\"") : FR_OK;
}

static enum fr_status parse(struct parser *parser)
{
    struct fr_token token;
    uint32_t seen = 0;
    size_t key = 0;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "expected a map");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        status = find_key(parser, &token, names, KEYS, &seen, &key);
        if (status == FR_OK)
            status = take_value(parser, key);
    }
    if (status == FR_OK)
        status = missing(parser, names, SUM, seen);
    if (status != FR_OK)
        return status;
    if (!parser->manifest.summed && key != FILES)
        return refuse(parser, FR_E_INVALID, "what follows \"files\" is not the manifest's sum");
    status = fr_cursor_next(&parser->cursor, &token);
    if (status != FR_EOF)
        return refuse(parser, FR_E_INVALID, "something follows the manifest");
    return check_whole(parser);
}

static bool has_sum(const uint8_t *bytes, size_t size)
{
    return size > SUM_TAIL_SIZE && memcmp(bytes + size - SUM_TAIL_SIZE, SUM_HEAD, SUM_HEAD_SIZE) == 0 &&
           memcmp(bytes + size - (sizeof(SUM_END) - 1), SUM_END, sizeof(SUM_END) - 1) == 0;
}

static bool sum_fits(const uint8_t *bytes, size_t size)
{
    struct fr_sha256 said;
    const struct fr_sha256 sum = fr_sha256(bytes, size - SUM_TAIL_SIZE);
    return sha256_of(bytes + size - SUM_TAIL_SIZE + SUM_HEAD_SIZE, &said) && memcmp(&sum, &said, sizeof(sum)) == 0;
}

enum fr_status fr_manifest_parse(const void *bytes, size_t size, struct fr_manifest *out, struct fr_err *err)
{
    if (size > FR_MANIFEST_BYTES_MAX)
        return fr_err_set(err, FR_E_LIMIT, "a manifest of %zu bytes; at most %d are read", size,
                          (int)FR_MANIFEST_BYTES_MAX);
    struct parser parser = {.err = err};
    parser.manifest.summed = has_sum(bytes, size);
    if (parser.manifest.summed && !sum_fits(bytes, size))
        return fr_err_set(err, FR_E_CORRUPT, "a damaged manifest: its SHA-256 is not the one at its end");
    fr_cursor_init(&parser.cursor, FR_FORMAT_JSON, bytes, size, &parser.scratch);
    enum fr_status status = parse(&parser);
    fr_buffer_release(&parser.scratch);
    if (status == FR_OK)
        *out = parser.manifest;
    else
        fr_manifest_release(&parser.manifest);
    return status;
}
