/* A snapshot's manifest: its text, what is refused of one, and the files it names. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "codec/manifest.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

/* A manifest of the time before manifests had a sum, which must still be read. */
static const char text[] =
    "{\"v\":1,\"model\":\"ctr\",\"fp\":\"18446744073709551615\",\"tl\":2,\"e\":812,\"dig\":\"7\",\"t\":1700000000000,"
    "\"wm\":0,\"np\":2,\"topic\":\"ctr.delta\",\"off\":{\"a.b\":{\"0\":5,\"10\":6},\"c\":{\"1\":0}},\n"
    "\"delta_offsets\":[3,18446744073709551615],\"parent\":null,\n\"files\":[\n"
    "{\"name\":\"model.delta\",\"table\":null,\"partition\":0,\"rows\":0,\"bytes\":9,\"sha256\":\"" ZEROS "\"},\n"
    "{\"name\":\"rows.user.1.delta\",\"table\":\"user\",\"partition\":1,\"rows\":3,\"bytes\":0,\"sha256\":\"" ZEROS
    "\"}\n]}\n";

static enum fr_status parse(const char *bytes, size_t size, struct fr_manifest *out, struct fr_err *err)
{
    /* no byte after the text is readable */
    char *copy = malloc(size ? size : 1);
    FR_CHECK(copy);
    memcpy(copy, bytes, size);
    enum fr_status status = fr_manifest_parse(copy, size, out, err);
    free(copy);
    return status;
}

/* Parses the text with the first `from` in it replaced. */
static enum fr_status parse_with(const char *from, const char *to, struct fr_err *err)
{
    char changed[2 * sizeof(text)];
    const char *at = strstr(text, from);
    assert_non_null(at);
    snprintf(changed, sizeof(changed), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    struct fr_manifest manifest = {0};
    enum fr_status status = parse(changed, strlen(changed), &manifest, err);
    fr_manifest_release(&manifest);
    return status;
}

/* Writes the text as it is printed, with its sum at the end. */
static size_t with_sum(char out[2 * sizeof(text)])
{
    const size_t before = strlen(text) - strlen("}\n");
    const struct fr_sha256 sum = fr_sha256(text, before);
    size_t size = before + (size_t)sprintf(out + before, ",\n\"sha256\":\"");
    memcpy(out, text, before);
    for (size_t i = 0; i < sizeof(sum.bytes); i++)
        size += (size_t)sprintf(out + size, "%02x", sum.bytes[i]);
    return size + (size_t)sprintf(out + size, "\"}\n");
}

FR_CASE(what_is_parsed_prints_the_same_bytes)
{
    struct fr_manifest manifest = {0};
    struct fr_err err = {0};
    assert_int_equal(parse(text, strlen(text), &manifest, &err), FR_OK);
    assert_string_equal(manifest.model, "ctr");
    assert_true(manifest.fp == UINT64_MAX && manifest.digest == 7 && manifest.timeline == 2 && manifest.epoch == 812);
    assert_int_equal(manifest.n_offsets, 3);
    assert_int_equal(manifest.offsets[1].partition, 10);
    assert_true(manifest.delta_offsets[1] == UINT64_MAX);
    assert_int_equal(manifest.n_files, 2);
    assert_string_equal(manifest.files[0].table, "");
    assert_string_equal(manifest.files[1].table, "user");
    assert_int_equal(fr_manifest_rows(&manifest), 3);
    assert_int_equal(fr_manifest_bytes(&manifest), 9);
    char name[FR_MANIFEST_NAME_MAX];
    assert_int_equal(fr_manifest_name(&manifest, name), FR_OK);
    assert_string_equal(name, "ctr-2-812");
    struct fr_buffer out = {0};
    char summed[2 * sizeof(text)];
    (void)with_sum(summed);
    assert_false(manifest.summed);
    fr_manifest_print(&manifest, &out);
    fr_buffer_terminate(&out);
    assert_string_equal((char *)out.data, summed);
    fr_manifest_release(&manifest);
    assert_int_equal(parse(summed, strlen(summed), &manifest, &err), FR_OK);
    assert_true(manifest.summed);
    fr_buffer_release(&out);
    fr_manifest_release(&manifest);
    fr_manifest_release(NULL);
}

/* The sum covers the whole manifest: a manifest with any changed bit is refused, even if its text
 * is still well-formed. */
FR_CASE(no_changed_bit_of_a_manifest_with_a_sum_is_accepted)
{
    char summed[2 * sizeof(text)];
    struct fr_manifest manifest = {0};
    const size_t size = with_sum(summed);
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            summed[at] = (char)(summed[at] ^ (1 << bit));
            assert_int_not_equal(parse(summed, size, &manifest, NULL), FR_OK);
            summed[at] = (char)(summed[at] ^ (1 << bit));
        }
    }
    for (size_t cut = 0; cut < size; cut++)
        assert_int_not_equal(parse(summed, cut, &manifest, NULL), FR_OK);
    struct fr_err err = {0};
    *strstr(summed, "ctr.delta") = 'q';
    assert_int_equal(parse(summed, size, &manifest, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "SHA-256"));
}

static uint64_t random_state = 30;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % below;
}

/* Draws 1 to `most` characters of `signs`; the first one is among the first `first` of these. */
static void draw_name(char *out, size_t most, const char *signs, size_t first)
{
    size_t size = draw(4) == 0 ? most : 1 + draw(most), n = strlen(signs);
    for (size_t i = 0; i < size; i++)
        out[i] = signs[draw(i == 0 ? first : n)];
    out[size] = '\0';
}

/* Draws UTF-8 of any length, with characters that need an escape or several bytes. */
static void draw_text(char *out, size_t most)
{
    static const char *const pieces[] = {"a",
                                         " ",
                                         "\"",
                                         "\\",
                                         "/",
                                         ":",
                                         "\1",
                                         "\n",
                                         "\x1f",
                                         "\x7f",
                                         "\xc3\xbc",
                                         "\xe4\xb8\xad",
                                         "\xf0\x9f\x99\x82",
                                         "\xe2\x80\xa8",
                                         "{",
                                         "}",
                                         ",",
                                         "'"};
    size_t size = 0, wanted = draw(4) == 0 ? most : 1 + draw(most);
    do {
        const char *piece = pieces[draw(FR_ARRAY_LEN(pieces))];
        if (size + strlen(piece) > most)
            break;
        memcpy(out + size, piece, strlen(piece));
        size += strlen(piece);
    } while (size < wanted);
    out[size] = '\0';
}

static uint64_t draw_number(uint64_t most)
{
    static const uint64_t edges[] = {0, 1, UINT32_MAX, (uint64_t)1 << 53, INT64_MAX, UINT64_MAX};
    uint64_t number = draw(3) ? (draw(UINT32_MAX) << 32 | draw(UINT32_MAX)) : edges[draw(FR_ARRAY_LEN(edges))];
    return most == UINT64_MAX ? number : number % (most + 1);
}

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define MODEL_SIGNS LETTERS "0123456789_-"

static void draw_offsets(struct fr_manifest *manifest)
{
    manifest->n_offsets = draw(40);
    manifest->offsets = fr_alloc(manifest->n_offsets + 1, sizeof(*manifest->offsets));
    for (size_t i = 0; i < manifest->n_offsets; i++) {
        struct fr_manifest_offset *offset = &manifest->offsets[i];
        /* a number in front makes each topic different */
        size_t head = (size_t)snprintf(offset->topic, sizeof(offset->topic), "%04zu", i / 3);
        if (i % 3 > 0)
            memcpy(offset->topic, offset[-1].topic, sizeof(offset->topic));
        else if (draw(2))
            draw_text(offset->topic + head, sizeof(offset->topic) - 1 - head);
        else
            draw_name(offset->topic + head, sizeof(offset->topic) - 1 - head, LETTERS "0123456789._-", 50);
        offset->partition = (uint32_t)(i % 3 + (i % 3 == 2 ? draw(INT32_MAX - 2) : 0));
        offset->next_offset = draw_number(INT64_MAX);
    }
}

/* Draws a manifest from everything that a writer may be configured to write. */
static void draw_manifest(struct fr_manifest *manifest)
{
    *manifest = (struct fr_manifest){.fp = draw_number(UINT64_MAX),
                                     .timeline = 1 + draw_number(UINT64_MAX - 1),
                                     .epoch = 1 + draw_number(UINT64_MAX - 1),
                                     .digest = draw_number(UINT64_MAX),
                                     .t_ms = draw_number(INT64_MAX),
                                     .wm_ms = draw_number(INT64_MAX),
                                     .np = (uint32_t)(1 + draw(1024))};
    draw_name(manifest->model, 120, MODEL_SIGNS, 64);
    draw_name(manifest->topic, 249, LETTERS "0123456789_-.", 64);
    draw_offsets(manifest);
    if (draw(2)) {
        manifest->delta_offsets = fr_alloc(manifest->np, sizeof(*manifest->delta_offsets));
        for (uint32_t p = 0; p < manifest->np; p++)
            manifest->delta_offsets[p] = draw_number(INT64_MAX);
    }
    manifest->n_files = draw(20);
    manifest->files = fr_alloc(manifest->n_files + 1, sizeof(*manifest->files));
    for (size_t i = 0; i < manifest->n_files; i++) {
        struct fr_manifest_file *file = &manifest->files[i];
        draw_name(file->table, sizeof(file->table) - 1, LETTERS "_0123456789", 53);
        file->partition = (uint32_t)draw(manifest->np);
        snprintf(file->name, sizeof(file->name), "rows.%s.%zu.delta", file->table, 1000 + i);
        file->rows = draw_number(FR_MANIFEST_FILE_BYTES_MAX);
        file->bytes = draw_number(FR_MANIFEST_FILE_BYTES_MAX);
        for (size_t b = 0; b < sizeof(file->sha256.bytes); b++)
            file->sha256.bytes[b] = (uint8_t)draw(256);
    }
}

FR_CASE(everything_that_may_be_written_is_read_back_as_it_was)
{
    for (int round = 0; round < 400; round++) {
        struct fr_manifest written, parsed = {0};
        struct fr_buffer bytes = {0}, again = {0};
        struct fr_err err = {0};
        char name[FR_MANIFEST_NAME_MAX];
        draw_manifest(&written);
        fr_manifest_print(&written, &bytes);
        if (parse((const char *)bytes.data, bytes.size, &parsed, &err) != FR_OK)
            fail_msg("round %d: %s\n%.*s", round, err.text, (int)bytes.size, (const char *)bytes.data);
        assert_int_equal(fr_manifest_name(&parsed, name), FR_OK);
        assert_int_equal(parsed.n_offsets, written.n_offsets);
        for (size_t i = 0; i < written.n_offsets; i++) {
            assert_string_equal(parsed.offsets[i].topic, written.offsets[i].topic);
            assert_int_equal(parsed.offsets[i].partition, written.offsets[i].partition);
            assert_true(parsed.offsets[i].next_offset == written.offsets[i].next_offset);
        }
        fr_manifest_print(&parsed, &again);
        assert_int_equal(again.size, bytes.size);
        assert_memory_equal(again.data, bytes.data, bytes.size);
        fr_buffer_release(&bytes);
        fr_buffer_release(&again);
        fr_manifest_release(&written);
        fr_manifest_release(&parsed);
    }
}

FR_CASE(a_position_without_a_name_or_with_a_nul_in_it_is_refused)
{
    assert_int_equal(parse_with("\"a.b\"", "\"\"", NULL), FR_E_INVALID);
    assert_int_equal(parse_with("\"a.b\"", "\"a\\u0000b\"", NULL), FR_E_INVALID);
    assert_int_equal(parse_with("\"a.b\"", "\"file:/var/a \\\"b\\\".jsonl\"", NULL), FR_OK);
}

FR_CASE(nothing_but_the_sum_follows_the_files)
{
    assert_int_equal(parse_with("\n]}\n", "\n],\"sha257\":\"" ZEROS "\"}\n", NULL), FR_E_INVALID);
    assert_int_equal(parse_with("\n]}\n", "\n],\n\"sha256\":\"" ZEROS "\"}\n", NULL), FR_E_CORRUPT);
    assert_int_equal(parse_with("\"v\":1", "\"v\":1,\"sha256\":\"" ZEROS "\"", NULL), FR_E_INVALID);
}

FR_CASE(nothing_cut_short_is_a_manifest)
{
    struct fr_manifest manifest = {0};
    for (size_t size = 0; size + 1 < strlen(text); size++) /* the last newline may go */
        assert_int_equal(parse(text, size, &manifest, NULL), FR_E_INVALID);
    assert_null(manifest.files);
}

FR_CASE(no_changed_byte_is_taken_for_anything_unsafe)
{
    char changed[sizeof(text)];
    for (size_t at = 0; at < strlen(text); at++) {
        static const char bytes[] = {'"', '0', '9', '}', '[', '/', 0, 'n'};
        for (size_t b = 0; b < sizeof(bytes); b++) {
            struct fr_manifest manifest = {0};
            memcpy(changed, text, sizeof(text));
            changed[at] = bytes[b];
            if (parse(changed, strlen(text), &manifest, NULL) != FR_OK)
                continue;
            for (size_t i = 0; i < manifest.n_files; i++) {
                assert_null(strchr(manifest.files[i].name, '/'));
                assert_true(manifest.files[i].partition < manifest.np);
            }
            fr_manifest_release(&manifest);
        }
    }
}

FR_CASE(every_key_of_the_format_is_asked_for)
{
    static const char *const keys[] = {"v",    "model", "fp",        "tl",   "e",     "dig",    "t",
                                       "wm",   "np",    "topic",     "off",  "files", "parent", "delta_offsets",
                                       "name", "table", "partition", "rows", "bytes", "sha256"};
    for (size_t k = 0; k < FR_ARRAY_LEN(keys); k++) {
        char from[32], to[32];
        struct fr_err err = {0};
        snprintf(from, sizeof(from), "\"%s\":", keys[k]);
        snprintf(to, sizeof(to), "\"x_%s\":", keys[k]);
        assert_int_equal(parse_with(from, to, &err), FR_E_INVALID);
        assert_non_null(strstr(err.text, keys[k]));
        assert_non_null(strstr(err.text, "is missing"));
    }
}

FR_CASE(what_a_later_version_adds_is_passed_over)
{
    struct fr_err err = {0};
    assert_int_equal(parse_with("\"tl\"", "\"new\":{\"a\":[1,{}]},\"tl\"", &err), FR_OK);
    assert_int_equal(parse_with("\"rows\":3", "\"new\":null,\"rows\":3", &err), FR_OK);
    assert_int_equal(parse_with("\"v\":1", "\"v\":2", &err), FR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "format 2"));
    assert_int_equal(parse_with("\"parent\":null", "\"parent\":\"ctr-2-1\"", &err), FR_E_UNSUPPORTED);
}

FR_CASE(what_would_mislead_a_reader_is_refused)
{
    static const struct {
        const char *from, *to;
    } wrong[] = {
        {"model.delta", "../model"},
        {"model.delta", "/etc/passwd"},
        {"model.delta", ".hidden"},
        {"model.delta", ""},
        {"model.delta", "rows.user.1.delta"}, /* twice */
        {"\"partition\":1", "\"partition\":2"},
        {"\"partition\":1", "\"partition\":-1"},
        {"\"bytes\":9", "\"bytes\":70368744177665"},
        {"\"rows\":3", "\"rows\":3,\"rows\":3"},
        {"\"np\":2", "\"np\":0"},
        {"\"np\":2", "\"np\":1025"},
        {"\"np\":2", "\"np\":3"}, /* delta_offsets */
        {"\"tl\":2", "\"tl\":0"},
        {"\"e\":812", "\"e\":812.5"},
        {"\"dig\":\"7\"", "\"dig\":7"},
        {"\"dig\":\"7\"", "\"dig\":\"07\""},
        {"18446744073709551615", "18446744073709551616"},
        {"\"10\":6", "\"0\":6"}, /* twice */
        {"\"10\":6", "\"x\":6"},
        {ZEROS, "zz"},
        {"\n]}\n", "\n]}\n{}"},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(wrong); i++) {
        struct fr_err err = {0};
        assert_int_equal(parse_with(wrong[i].from, wrong[i].to, &err), FR_E_INVALID);
        assert_non_null(strstr(err.text, "not a snapshot's manifest"));
    }
    struct fr_manifest manifest;
    assert_int_equal(fr_manifest_parse(text, (size_t)FR_MANIFEST_BYTES_MAX + 1, &manifest, NULL), FR_E_LIMIT);
}

/* ---- a directory ---- */

struct folder {
    char dir[64];
    struct fr_manifest_file file;
};

static void write_file(const struct folder *folder, const char *name, const void *bytes, size_t size)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", folder->dir, name);
    assert_int_equal(fr_file_replace(fr_disk_system(), path, bytes, size, NULL), FR_OK);
}

static const char two_records[] = "\2\0\0\0ab\0\0\0\0"; /* the string's own NUL is no part of it */
enum { TWO_RECORDS = sizeof(two_records) - 1 };

static void make_folder(struct folder *folder)
{
    strcpy(folder->dir, "/tmp/fr_manifest.XXXXXX");
    assert_non_null(mkdtemp(folder->dir));
    folder->file = (struct fr_manifest_file){
        .name = "f.delta", .bytes = TWO_RECORDS, .sha256 = fr_sha256(two_records, TWO_RECORDS)};
    write_file(folder, "f.delta", two_records, TWO_RECORDS);
}

static void remove_folder(const struct folder *folder)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder->dir);
    assert_int_equal(system(command), 0);
}

struct seen {
    size_t n, bytes;
};

static enum fr_status count(void *self, const void *bytes, size_t size, struct fr_err *err)
{
    (void)bytes;
    (void)err;
    struct seen *seen = self;
    seen->n += 1;
    seen->bytes += size;
    return FR_OK;
}

static enum fr_status refuse(void *self, const void *bytes, size_t size, struct fr_err *err)
{
    (void)self;
    (void)bytes;
    (void)size;
    return fr_err_set(err, FR_E_MISMATCH, "not mine");
}

FR_CASE(records_of_a_file_come_in_order_and_whole)
{
    struct folder folder;
    struct seen seen = {0};
    struct fr_err err = {0};
    make_folder(&folder);
    assert_int_equal(fr_manifest_records(folder.dir, &folder.file, count, &seen, &err), FR_OK);
    assert_true(seen.n == 2 && seen.bytes == 2);
    assert_int_equal(fr_manifest_records(folder.dir, &folder.file, refuse, NULL, &err), FR_E_MISMATCH);
    remove_folder(&folder);
    assert_int_equal(fr_manifest_records(folder.dir, &folder.file, count, &seen, &err), FR_E_NOT_FOUND);
}

FR_CASE(a_file_that_is_not_the_one_of_the_manifest_is_said)
{
    static const struct {
        const char *bytes;
        size_t size;
    } wrong[] = {
        {two_records, TWO_RECORDS - 1},      /* cut */
        {two_records, TWO_RECORDS + 1},      /* longer */
        {"\2\0\0\0ac\0\0\0\0", TWO_RECORDS}, /* another byte */
        {"\2\0\0\0ab\1\0\0\0", TWO_RECORDS}, /* a length beyond the end */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", TWO_RECORDS},
        {"\3\0\0\0abc\0\0\0", TWO_RECORDS}, /* a length that is cut */
    };
    struct folder folder;
    make_folder(&folder);
    for (size_t i = 0; i < FR_ARRAY_LEN(wrong); i++) {
        struct seen seen = {0};
        struct fr_err err = {0};
        write_file(&folder, "f.delta", wrong[i].bytes, wrong[i].size);
        assert_int_equal(fr_manifest_records(folder.dir, &folder.file, count, &seen, &err), FR_E_CORRUPT);
        assert_non_null(strstr(err.text, "f.delta"));
    }
    remove_folder(&folder);
}

FR_CASE(a_directory_is_looked_at_by_its_manifest)
{
    struct folder folder;
    struct fr_manifest manifest = {0};
    struct fr_err err = {0};
    make_folder(&folder);
    assert_int_equal(fr_manifest_read(folder.dir, &manifest, NULL, NULL, &err), FR_E_NOT_FOUND);
    write_file(&folder, fr_manifest_file_name, "{}", 2);
    assert_int_equal(fr_manifest_read(folder.dir, &manifest, NULL, NULL, &err), FR_E_INVALID);
    assert_non_null(strstr(err.text, fr_manifest_file_name));
    write_file(&folder, fr_manifest_file_name, text, strlen(text));
    struct fr_sha256 sha256, expected = fr_sha256(text, strlen(text));
    uint64_t size = 0;
    assert_int_equal(fr_manifest_read(folder.dir, &manifest, &sha256, &size, &err), FR_OK);
    assert_memory_equal(&sha256, &expected, sizeof(expected));
    assert_int_equal(size, strlen(text));
    assert_int_equal(fr_manifest_check_sizes(folder.dir, &manifest, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "model.delta"));
    write_file(&folder, "model.delta", "123456789", 9);
    write_file(&folder, "rows.user.1.delta", "1", 1);
    assert_int_equal(fr_manifest_check_sizes(folder.dir, &manifest, &err), FR_E_CORRUPT);
    write_file(&folder, "rows.user.1.delta", "", 0);
    assert_int_equal(fr_manifest_check_sizes(folder.dir, &manifest, &err), FR_OK);
    fr_manifest_release(&manifest);
    remove_folder(&folder);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(what_is_parsed_prints_the_same_bytes),
        cmocka_unit_test(no_changed_bit_of_a_manifest_with_a_sum_is_accepted),
        cmocka_unit_test(everything_that_may_be_written_is_read_back_as_it_was),
        cmocka_unit_test(a_position_without_a_name_or_with_a_nul_in_it_is_refused),
        cmocka_unit_test(nothing_but_the_sum_follows_the_files),
        cmocka_unit_test(nothing_cut_short_is_a_manifest),
        cmocka_unit_test(no_changed_byte_is_taken_for_anything_unsafe),
        cmocka_unit_test(every_key_of_the_format_is_asked_for),
        cmocka_unit_test(what_a_later_version_adds_is_passed_over),
        cmocka_unit_test(what_would_mislead_a_reader_is_refused),
        cmocka_unit_test(records_of_a_file_come_in_order_and_whole),
        cmocka_unit_test(a_file_that_is_not_the_one_of_the_manifest_is_said),
        cmocka_unit_test(a_directory_is_looked_at_by_its_manifest),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
