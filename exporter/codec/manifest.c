/* MANIFEST.json of a snapshot as bytes (docs/formats/snapshots.md): printed and parsed here only.
 *
 * 64-bit hashes are strings of decimal digits, as keys are in dumps, because JSON numbers beyond
 * 2^53 do not survive every reader. Parsing trusts no length and no name: a file's name is never
 * a path, counts have limits, and every key of the format must be there once. A name in `off`
 * may be any text, because it may be the path of a sample file, which is never opened by this
 * name.
 *
 * The last key is the SHA-256 of all bytes before it. Older manifests end with `files` and have no
 * sum. Nothing else may follow `files`, so that damage cannot turn one kind of manifest into the
 * other.
 *
 * Thread: any, no state. Files are opened in manifest_files.c. */
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

/* The end of a manifest after the summed bytes: SUM_HEAD, 64 hexadecimal digits, SUM_END. */
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

/* ---- parsing: values ---- */

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

static enum fr_status expect(struct parser *parser, enum fr_token_kind kind, const char *what)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == kind ? FR_OK : refuse(parser, FR_E_INVALID, what);
}

/* A reader of a value writes it to `at`. limit: the largest number, or the room of a text. */
static enum fr_status read_number(struct parser *parser, void *at, uint64_t limit)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    if (token.kind != FR_TOKEN_UINT || token.u > limit)
        return refuse(parser, FR_E_INVALID, "expected a whole number within its range");
    *(uint64_t *)at = token.u;
    return FR_OK;
}

static enum fr_status read_u32(struct parser *parser, void *at, uint64_t limit)
{
    uint64_t number = 0;
    enum fr_status status = read_number(parser, &number, limit);
    *(uint32_t *)at = (uint32_t)number;
    return status;
}

static bool parse_decimal(const uint8_t *bytes, size_t size, uint64_t *out)
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

static enum fr_status read_hash(struct parser *parser, void *at, uint64_t limit)
{
    (void)limit;
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == FR_TOKEN_STRING && parse_decimal(token.bytes, token.size, at)
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

static enum fr_status keep_name(struct parser *parser, const struct fr_token *token, char *out, uint64_t room)
{
    if (token->kind != FR_TOKEN_STRING || token->size >= room || !is_name(token->bytes, token->size))
        return refuse(parser, FR_E_INVALID, "expected a name of letters, digits, '.', '_' and '-'");
    memcpy(out, token->bytes, token->size);
    out[token->size] = '\0';
    return FR_OK;
}

static enum fr_status read_name(struct parser *parser, void *at, uint64_t limit)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    return status == FR_OK ? keep_name(parser, &token, at, limit) : status;
}

static enum fr_status read_name_or_null(struct parser *parser, void *at, uint64_t limit)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    return status != FR_OK || token.kind == FR_TOKEN_NIL ? status : keep_name(parser, &token, at, limit);
}

static uint8_t nibble(uint8_t c)
{
    return (uint8_t)(c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : UINT8_MAX);
}

static bool parse_sha256(const uint8_t digits[HEX_SIZE], struct fr_sha256 *out)
{
    bool good = true;
    for (size_t i = 0; good && i < HEX_SIZE / 2; i++) {
        uint8_t high = nibble(digits[2 * i]), low = nibble(digits[2 * i + 1]);
        good = high < 16 && low < 16;
        out->bytes[i] = (uint8_t)(high << 4 | (low & 15));
    }
    return good;
}

static enum fr_status read_sha256(struct parser *parser, void *at, uint64_t limit)
{
    (void)limit;
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    bool good = token.kind == FR_TOKEN_STRING && token.size == HEX_SIZE && parse_sha256(token.bytes, at);
    return good ? FR_OK : refuse(parser, FR_E_INVALID, "expected 64 hexadecimal digits, lower case");
}

static enum fr_status read_version(struct parser *parser, void *at, uint64_t limit)
{
    (void)at;
    uint64_t version = 0;
    enum fr_status status = read_number(parser, &version, limit);
    if (status == FR_OK && version != FR_MANIFEST_VERSION)
        return fr_err_set(parser->err, FR_E_UNSUPPORTED,
                          "a snapshot of format %" PRIu64 "; this version reads format %d", version,
                          FR_MANIFEST_VERSION);
    return status;
}

static enum fr_status read_parent(struct parser *parser, void *at, uint64_t limit)
{
    (void)at, (void)limit;
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    return token.kind == FR_TOKEN_NIL ? FR_OK
                                      : refuse(parser, FR_E_UNSUPPORTED,
                                               "a snapshot that builds on another one; this version reads whole ones");
}

static enum fr_status skip(struct parser *parser)
{
    struct fr_token token;
    enum fr_status status = next(parser, &token);
    if (status != FR_OK)
        return status;
    status = fr_cursor_skip(&parser->cursor, &token);
    return status == FR_OK ? FR_OK : refuse(parser, status, parser->cursor.problem);
}

/* Skips the sum, which was compared before parsing if it is the last key. */
static enum fr_status read_sum(struct parser *parser, void *at, uint64_t limit)
{
    (void)at, (void)limit;
    return parser->manifest.summed ? skip(parser) : refuse(parser, FR_E_INVALID, "\"sha256\" is not the last");
}

/* ---- parsing: maps with known keys ---- */

struct member {
    const char *key;
    enum fr_status (*read)(struct parser *parser, void *at, uint64_t limit);
    size_t offset;
    uint64_t limit;
};

/* Reads the rest of a map into *out. The first n_required members must be there, none may be
 * there twice, and other keys are ignored. *last: the index of the map's last key; n: it is
 * another key. */
static enum fr_status read_map(struct parser *parser, const struct member *members, size_t n, size_t n_required,
                               void *out, size_t *last)
{
    struct fr_token token;
    enum fr_status status = FR_OK;
    uint32_t seen = 0;
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        size_t k = 0;
        while (k < n && (strlen(members[k].key) != token.size || memcmp(members[k].key, token.bytes, token.size) != 0))
            k++;
        if (k < n && (seen >> k & 1))
            return refuse(parser, FR_E_INVALID, "a key stands twice");
        seen |= k < n ? 1u << k : 0;
        *last = k;
        status = k < n ? members[k].read(parser, (char *)out + members[k].offset, members[k].limit) : skip(parser);
    }
    for (size_t k = 0; k < n_required && status == FR_OK; k++)
        if (!(seen >> k & 1))
            return fr_err_set(parser->err, FR_E_INVALID, "not a snapshot's manifest: byte %zu: \"%s\" is missing",
                              fr_cursor_offset(&parser->cursor), members[k].key);
    return status;
}

/* ---- parsing: lists ---- */

/* Returns the list with room for one more item. */
static void *with_room(void *items, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 16;
    return fr_realloc(items, *capacity, size);
}

static enum fr_status read_topic_offsets(struct parser *parser, const char *topic)
{
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "expected a map of partitions to offsets");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        uint64_t partition = 0;
        if (!parse_decimal(token.bytes, token.size, &partition) || partition > INT32_MAX)
            return refuse(parser, FR_E_INVALID, "expected a partition's number");
        if (manifest->n_offsets == FR_MANIFEST_OFFSETS_MAX)
            return refuse(parser, FR_E_LIMIT, "too many offsets");
        manifest->offsets =
            with_room(manifest->offsets, manifest->n_offsets, &parser->offsets_capacity, sizeof(*manifest->offsets));
        struct fr_manifest_offset *offset = &manifest->offsets[manifest->n_offsets];
        snprintf(offset->topic, sizeof(offset->topic), "%s", topic);
        offset->partition = (uint32_t)partition;
        status = read_number(parser, &offset->next_offset, UINT64_MAX);
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

static enum fr_status read_offsets(struct parser *parser, void *at, uint64_t limit)
{
    (void)at;
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "\"off\" is no map");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        char topic[FR_MANIFEST_TOPIC_MAX];
        if (token.kind != FR_TOKEN_STRING || token.size == 0 || token.size >= limit ||
            memchr(token.bytes, 0, token.size))
            return refuse(parser, FR_E_INVALID, "expected a name of 1 to 249 bytes without NUL");
        snprintf(topic, sizeof(topic), "%.*s", (int)token.size, (const char *)token.bytes);
        status = read_topic_offsets(parser, topic);
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

static enum fr_status read_delta_offsets(struct parser *parser, void *at, uint64_t limit)
{
    (void)at;
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    enum fr_status status = expect(parser, FR_TOKEN_ARRAY, "\"delta_offsets\" is no array");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        if (token.kind != FR_TOKEN_UINT)
            return refuse(parser, FR_E_INVALID, "expected an offset");
        if (parser->n_delta_offsets == limit)
            return refuse(parser, FR_E_LIMIT, "too many partitions");
        manifest->delta_offsets = with_room(manifest->delta_offsets, parser->n_delta_offsets,
                                            &parser->delta_offsets_capacity, sizeof(*manifest->delta_offsets));
        manifest->delta_offsets[parser->n_delta_offsets++] = token.u;
    }
    return status;
}

#define OF_FILE(member) offsetof(struct fr_manifest_file, member)
static const struct member file_members[] = {
    {"name", read_name, OF_FILE(name), FR_MANIFEST_FILE_MAX},
    {"table", read_name_or_null, OF_FILE(table), sizeof(((struct fr_manifest_file *)0)->table)},
    {"partition", read_u32, OF_FILE(partition), FR_DELTA_PARTITIONS_MAX - 1},
    {"rows", read_number, OF_FILE(rows), FR_MANIFEST_FILE_BYTES_MAX},
    {"bytes", read_number, OF_FILE(bytes), FR_MANIFEST_FILE_BYTES_MAX},
    {"sha256", read_sha256, OF_FILE(sha256), 0},
};

static enum fr_status read_files(struct parser *parser, void *at, uint64_t limit)
{
    (void)at;
    enum { N = FR_ARRAY_LEN(file_members) };
    struct fr_manifest *manifest = &parser->manifest;
    struct fr_token token;
    size_t last = 0;
    enum fr_status status = expect(parser, FR_TOKEN_ARRAY, "\"files\" is no array");
    while (status == FR_OK && (status = next(parser, &token)) == FR_OK && token.kind != FR_TOKEN_END) {
        if (token.kind != FR_TOKEN_MAP)
            return refuse(parser, FR_E_INVALID, "expected a map that describes a file");
        if (manifest->n_files == limit)
            return refuse(parser, FR_E_LIMIT, "too many files");
        manifest->files =
            with_room(manifest->files, manifest->n_files, &parser->files_capacity, sizeof(*manifest->files));
        struct fr_manifest_file *file = &manifest->files[manifest->n_files++];
        *file = (struct fr_manifest_file){0};
        status = read_map(parser, file_members, N, N, file, &last);
    }
    return status;
}

/* ---- parsing: the whole manifest ---- */

#define OF(member) offsetof(struct fr_manifest, member)
static const struct member members[] = {
    {"v", read_version, 0, UINT64_MAX},
    {"model", read_name, OF(model), sizeof(((struct fr_manifest *)0)->model)},
    {"fp", read_hash, OF(fp), 0},
    {"tl", read_number, OF(timeline), UINT64_MAX},
    {"e", read_number, OF(epoch), UINT64_MAX},
    {"dig", read_hash, OF(digest), 0},
    {"t", read_number, OF(t_ms), INT64_MAX},
    {"wm", read_number, OF(wm_ms), INT64_MAX},
    {"np", read_u32, OF(np), FR_DELTA_PARTITIONS_MAX},
    {"topic", read_name, OF(topic), FR_MANIFEST_TOPIC_MAX},
    {"off", read_offsets, 0, FR_MANIFEST_TOPIC_MAX},
    {"delta_offsets", read_delta_offsets, 0, FR_DELTA_PARTITIONS_MAX},
    {"parent", read_parent, 0, 0},
    {"files", read_files, 0, FR_MANIFEST_FILES_MAX},
    {"sha256", read_sum, 0, 0}, /* not in older manifests */
};
enum { MEMBERS = FR_ARRAY_LEN(members), SUM = MEMBERS - 1, FILES = MEMBERS - 2 };

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Checks what no single value shows. */
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
    size_t last = 0;
    enum fr_status status = expect(parser, FR_TOKEN_MAP, "expected a map");
    if (status == FR_OK)
        status = read_map(parser, members, MEMBERS, SUM, &parser->manifest, &last);
    if (status != FR_OK)
        return status;
    if (!parser->manifest.summed && last != FILES)
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
    struct fr_sha256 stored;
    const struct fr_sha256 sum = fr_sha256(bytes, size - SUM_TAIL_SIZE);
    return parse_sha256(bytes + size - SUM_TAIL_SIZE + SUM_HEAD_SIZE, &stored) &&
           memcmp(&sum, &stored, sizeof(sum)) == 0;
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
