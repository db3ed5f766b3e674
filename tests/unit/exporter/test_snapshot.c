/* Snapshots of a small state: written whole or not at all, read back by the manifest, checked; the
 * folder of them; asking for one. */
#include "case.h"

#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "exporter/snapshot.h"
#include "fixture.h"

enum { ROWS = 300 };

static struct fixture f;
static char folder[FR_TEST_FOLDER + 16];
static struct fr_err err;

FR_FIXTURE(open_state)
{
    err = (struct fr_err){0};
    f = (struct fixture){0};
    assert_int_equal(fixture_open(&f, "ctr"), FR_OK);
    snprintf(folder, sizeof(folder), "%s/snapshots", f.dir);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fixture_append(&f, ROWS - i, 1700000000000, &err), FR_OK);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    return 0;
}

FR_FIXTURE(close_state)
{
    fixture_close(&f);
    return 0;
}

static struct fr_snapshot_options options(void)
{
    return (struct fr_snapshot_options){
        .durable = f.durable, .clock = fr_clock_system(), .dir = folder, .topic = "ctr.delta"};
}

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static struct fr_snapshot write_snapshot(void)
{
    struct fr_snapshot snapshot = {0};
    struct fr_snapshot_options how = options();
    assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_OK);
    return snapshot;
}

FR_CASE(a_snapshot_holds_all_of_the_state_and_passes_its_check)
{
    struct fr_snapshot snapshot = write_snapshot(), seen = {0};
    assert_string_equal(snapshot.name, "ctr-1-3");
    assert_true(snapshot.rows > 0 && snapshot.bytes > 0);
    assert_int_equal(fr_snapshot_check(path_of(snapshot.name), &seen, &err), FR_OK);
    assert_int_equal(seen.rows, snapshot.rows);
    assert_memory_equal(&seen.sha256, &snapshot.sha256, sizeof(seen.sha256));
    struct fr_manifest manifest = {0};
    assert_int_equal(fr_manifest_read(path_of(snapshot.name), &manifest, NULL, NULL, &err), FR_OK);
    assert_string_equal(manifest.files[0].name, "model.delta");
    char last[32];
    snprintf(last, sizeof(last), "commit.%d.delta", FIXTURE_PARTITIONS - 1);
    assert_string_equal(manifest.files[manifest.n_files - 1].name, last);
    assert_null(manifest.delta_offsets);
    assert_string_equal(manifest.topic, "ctr.delta");
    fr_manifest_release(&manifest);
}

FR_CASE(the_same_epoch_is_not_written_twice)
{
    struct fr_snapshot first = write_snapshot(), again = {0};
    struct fr_snapshot_options how = options();
    assert_int_equal(fr_snapshot_write(&how, &again, &err), FR_E_EXISTS);
    assert_string_equal(again.name, first.name);
    assert_memory_equal(&again.sha256, &first.sha256, sizeof(first.sha256));
}

/* The bytes do not depend on what was folded since, nor on the rate. */
FR_CASE(the_files_are_a_function_of_the_epoch)
{
    struct fr_snapshot first = write_snapshot(), again = {0};
    assert_int_equal(fr_snapshot_remove(folder, first.name, &err), FR_OK);
    struct fr_snapshot_options how = options();
    how.rate = 10 << 20;
    assert_int_equal(fr_snapshot_write(&how, &again, &err), FR_OK);
    assert_memory_equal(&again.sha256, &first.sha256, sizeof(first.sha256));
}

FR_CASE(every_form_of_values_can_be_written)
{
    uint64_t bytes[4] = {0};
    for (int q = FR_CODEC_F32; q <= FR_CODEC_I8; q++) {
        enum fr_codec_quantize quantize = (enum fr_codec_quantize)q;
        struct fr_snapshot snapshot = {0};
        struct fr_snapshot_options how = options();
        how.quantize = &quantize;
        assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_OK);
        assert_int_equal(fr_snapshot_check(path_of(snapshot.name), &snapshot, &err), FR_OK);
        bytes[q] = snapshot.bytes;
        assert_int_equal(fr_snapshot_remove(folder, snapshot.name, &err), FR_OK);
    }
    assert_true(bytes[FR_CODEC_F16] < bytes[FR_CODEC_F32]);
    assert_true(bytes[FR_CODEC_BF16] < bytes[FR_CODEC_F32]);
}

FR_CASE(offsets_stand_in_the_manifest_when_they_are_those_of_all_partitions)
{
    const uint64_t offsets[FIXTURE_PARTITIONS] = {5, 7};
    struct fr_snapshot snapshot = {0};
    struct fr_snapshot_options how = options();
    how.delta_offsets = offsets;
    how.n_delta_offsets = FIXTURE_PARTITIONS;
    assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_OK);
    struct fr_manifest manifest = {0};
    assert_int_equal(fr_manifest_read(path_of(snapshot.name), &manifest, NULL, NULL, &err), FR_OK);
    assert_non_null(manifest.delta_offsets);
    assert_memory_equal(manifest.delta_offsets, offsets, sizeof(offsets));
    fr_manifest_release(&manifest);
}

/* The cold store has them by domain, then table. */
FR_CASE(a_table_of_several_domains_has_one_file_a_partition)
{
    static const char *const names[] = {"rows.user.0.delta", "rows.user.1.delta", "rows.item.0.delta",
                                        "rows.item.1.delta"};
    struct fr_stage stage;
    fr_stage_init(&stage);
    stage.epoch = 4;
    stage.timeline = 1;
    for (uint64_t i = 1; i <= 20; i++)
        for (uint32_t t = 0; t < 2; t++) {
            uint64_t key = i << 59 | t;
            stage_row(&stage, fr_subtable(t, 1 + fr_key_domain(key, 2)), key, (float)i);
        }
    stage_sections(&stage, 1700000000000, false, true);
    assert_int_equal(fr_durable_append(f.durable, &stage, NULL, NULL, &err), FR_OK);
    fr_stage_release(&stage);
    assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    struct fr_snapshot snapshot = write_snapshot();
    struct fr_manifest manifest = {0};
    assert_int_equal(fr_manifest_read(path_of(snapshot.name), &manifest, NULL, NULL, &err), FR_OK);
    size_t n = 0;
    for (size_t i = 0; i < manifest.n_files; i++)
        if (manifest.files[i].rows > 0)
            assert_true(n < FR_ARRAY_LEN(names) && strcmp(manifest.files[i].name, names[n++]) == 0);
    assert_int_equal(n, FR_ARRAY_LEN(names));
    assert_int_equal(snapshot.rows, ROWS + 40);
    assert_int_equal(fr_snapshot_check(path_of(snapshot.name), &snapshot, &err), FR_OK);
    fr_manifest_release(&manifest);
}

FR_CASE(one_that_is_stopped_leaves_nothing)
{
    const atomic_bool stop = true;
    struct fr_snapshot snapshot = {0};
    struct fr_snapshot_options how = options();
    how.stop = &stop;
    assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_E_CANCELLED);
    assert_int_not_equal(access(path_of("ctr-1-3"), F_OK), 0);
    assert_int_not_equal(access(path_of("ctr-1-3.part"), F_OK), 0);
}

FR_CASE(what_a_crash_left_is_swept_and_no_snapshot_is)
{
    struct fr_snapshot snapshot = write_snapshot();
    assert_int_equal(mkdir(path_of("ctr-1-9.part"), 0700), 0);
    assert_int_equal(fr_file_replace(fr_disk_system(), path_of("ctr-1-9.part/model.delta"), "x", 1, &err), FR_OK);
    struct fr_snapshot *all = NULL;
    size_t n = 0;
    assert_int_equal(fr_snapshot_list(folder, &all, &n, &err), FR_OK);
    assert_int_equal(n, 1);
    free(all);
    assert_int_equal(fr_snapshot_sweep(folder, &err), FR_OK);
    assert_int_not_equal(access(path_of("ctr-1-9.part"), F_OK), 0);
    assert_int_equal(fr_snapshot_read(path_of(snapshot.name), &snapshot, &err), FR_OK);
}

/* Every file in turn is cut, changed in one byte, and gone. */
FR_CASE(a_damaged_snapshot_does_not_pass)
{
    struct fr_snapshot snapshot = write_snapshot(), seen;
    char dir[PATH_MAX], file[PATH_MAX + 128];
    snprintf(dir, sizeof(dir), "%s", path_of(snapshot.name));
    struct fr_manifest manifest = {0};
    assert_int_equal(fr_manifest_read(dir, &manifest, NULL, NULL, &err), FR_OK);
    for (size_t i = 0; i < manifest.n_files; i++) {
        struct fr_buffer bytes = {0};
        snprintf(file, sizeof(file), "%s/%s", dir, manifest.files[i].name);
        assert_int_equal(fr_file_read(file, 1 << 20, &bytes, &err), FR_OK);
        assert_int_equal(truncate(file, (off_t)bytes.size - 1), 0);
        assert_int_not_equal(fr_snapshot_check(dir, &seen, &err), FR_OK);
        bytes.data[bytes.size / 2] ^= 1;
        assert_int_equal(fr_file_replace(fr_disk_system(), file, bytes.data, bytes.size, &err), FR_OK);
        assert_int_not_equal(fr_snapshot_check(dir, &seen, &err), FR_OK);
        bytes.data[bytes.size / 2] ^= 1;
        assert_int_equal(unlink(file), 0);
        assert_int_equal(fr_snapshot_check(dir, &seen, &err), FR_E_NOT_FOUND);
        assert_int_equal(fr_file_replace(fr_disk_system(), file, bytes.data, bytes.size, &err), FR_OK);
        fr_buffer_release(&bytes);
    }
    assert_int_equal(fr_snapshot_check(dir, &seen, &err), FR_OK);
    fr_manifest_release(&manifest);
}

/* A directory under the snapshot's name that no reader accepts is replaced, and does not hinder
 * later snapshots. */
FR_CASE(a_directory_that_does_not_read_is_replaced)
{
    struct fr_snapshot first = write_snapshot(), again = {0};
    struct fr_snapshot_options how = options();
    char manifest[PATH_MAX];
    snprintf(manifest, sizeof(manifest), "%s/%s", path_of(first.name), fr_manifest_file_name);
    assert_int_equal(fr_file_replace(fr_disk_system(), manifest, "{\"v\":1}", 7, &err), FR_OK);
    assert_int_equal(fr_snapshot_write(&how, &again, &err), FR_OK);
    assert_memory_equal(&again.sha256, &first.sha256, sizeof(first.sha256));
    assert_int_equal(fr_snapshot_check(path_of(first.name), &again, &err), FR_OK);
    assert_int_equal(unlink(manifest), 0);
    assert_int_equal(fr_snapshot_write(&how, &again, &err), FR_OK);
    assert_int_not_equal(access(path_of("ctr-1-3.old.part"), F_OK), 0);
    assert_int_not_equal(access(path_of("ctr-1-3.part"), F_OK), 0);
    /* a snapshot of a later version must not be replaced */
    assert_int_equal(fr_file_replace(fr_disk_system(), manifest, "{\"v\":2}", 7, &err), FR_OK);
    assert_int_equal(fr_snapshot_write(&how, &again, &err), FR_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "format 2"));
    assert_int_equal(access(manifest, F_OK), 0);
}

/* No reader would accept the snapshot, so it must not get its name. */
FR_CASE(what_does_not_read_back_gets_no_name)
{
    struct fr_snapshot snapshot = {0};
    struct fr_snapshot_options how = options();
    how.topic = "a topic";
    assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_E_STATE);
    assert_non_null(strstr(err.text, "replicas could not read its manifest"));
    assert_int_not_equal(access(path_of("ctr-1-3"), F_OK), 0);
    assert_int_not_equal(access(path_of("ctr-1-3.part"), F_OK), 0);
    snapshot = write_snapshot(); /* the failed attempt left nothing behind */
}

FR_CASE(what_has_the_name_of_a_snapshot_and_does_not_read_is_listed_with_the_reason)
{
    struct fr_snapshot *all = NULL;
    size_t n = 0;
    (void)write_snapshot();
    assert_int_equal(mkdir(path_of("ctr-1-2"), 0700), 0);
    assert_int_equal(mkdir(path_of("ctr-x-2"), 0700), 0);
    assert_int_equal(mkdir(path_of("ctr-1-18446744073709551616"), 0700), 0);
    assert_int_equal(fr_snapshot_list(folder, &all, &n, &err), FR_OK);
    assert_int_equal(n, 2);
    assert_string_equal(all[0].name, "ctr-1-2");
    assert_int_equal(all[0].unread, FR_E_NOT_FOUND);
    assert_non_null(strstr(all[0].problem, fr_manifest_file_name));
    assert_true(all[1].unread == FR_OK && all[1].summed);
    free(all);
}

FR_CASE(current_names_what_is_there_or_nothing)
{
    char name[FR_MANIFEST_NAME_MAX];
    assert_false(fr_snapshot_current(folder, name));
    struct fr_snapshot snapshot = write_snapshot();
    assert_false(fr_snapshot_current(folder, name));
    assert_int_equal(fr_snapshot_set_current(folder, snapshot.name, &err), FR_OK);
    assert_true(fr_snapshot_current(folder, name));
    assert_string_equal(name, snapshot.name);
    assert_int_equal(fr_snapshot_set_current(folder, "ctr-1-99", &err), FR_E_NOT_FOUND);
    assert_true(fr_snapshot_current(folder, name));
    assert_int_equal(fr_file_replace(fr_disk_system(), path_of("CURRENT"), "ctr-1-99\n", 9, &err), FR_OK);
    assert_false(fr_snapshot_current(folder, name));
    assert_int_equal(fr_file_replace(fr_disk_system(), path_of("CURRENT"), "../x\n", 5, &err), FR_OK);
    assert_false(fr_snapshot_current(folder, name));
}

FR_CASE(no_snapshot_is_written_over_files_of_a_state)
{
    static const char *const taken[] = {"", "cold", "fold", "journal", "savepoints/", "cold/be/low", "link"};
    char path[FR_TEST_FOLDER + 32], link[FR_TEST_FOLDER + 32];
    struct fr_snapshot snapshot;
    struct fr_snapshot_options how = options();
    snprintf(path, sizeof(path), "%s/cold", f.dir);
    snprintf(link, sizeof(link), "%s/link", f.dir);
    assert_int_equal(symlink(path, link), 0);
    for (size_t i = 0; i < FR_ARRAY_LEN(taken); i++) {
        snprintf(folder, sizeof(folder), "%s/%s", f.dir, taken[i]);
        assert_int_equal(fr_snapshot_check_place(folder, &err), FR_E_MISMATCH);
        assert_non_null(strstr(err.text, "name a folder of their own"));
        assert_int_equal(fr_snapshot_write(&how, &snapshot, &err), FR_E_MISMATCH);
    }
    snprintf(folder, sizeof(folder), "%s/other/missing", f.dir);
    assert_int_equal(fr_snapshot_check_place(folder, &err), FR_OK);
    assert_int_equal(unlink(link), 0);
}

FR_CASE(current_stays_with_the_model_it_names)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct fixture other = {0};
    struct fr_snapshot snapshot = write_snapshot(), second = {0};
    struct fr_snapshot_options how = options();
    assert_int_equal(fixture_open(&other, "ctr-1"), FR_OK);
    assert_int_equal(fixture_append(&other, ROWS, 1700000000000, &err), FR_OK);
    assert_int_equal(fr_durable_fold(other.durable, &err), FR_OK);
    how.durable = other.durable;
    assert_int_equal(fr_snapshot_write(&how, &second, &err), FR_OK);
    fixture_close(&other);
    assert_int_equal(fr_snapshot_set_current(folder, snapshot.name, &err), FR_OK);
    assert_int_equal(fr_snapshot_set_current(folder, second.name, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "a snapshot of model ctr"));
    assert_non_null(strstr(err.text, "give each model its own snapshot.dir"));
    assert_true(fr_snapshot_current(folder, name));
    assert_string_equal(name, snapshot.name);
}

FR_CASE(snapshots_are_listed_from_the_oldest_by_number)
{
    for (int i = 0; i < 9; i++) {
        (void)write_snapshot();
        assert_int_equal(fixture_append(&f, 20, 1700000000000, &err), FR_OK);
        assert_int_equal(fr_durable_fold(f.durable, &err), FR_OK);
    }
    struct fr_snapshot *all = NULL;
    size_t n = 0;
    assert_int_equal(fr_snapshot_list(folder, &all, &n, &err), FR_OK);
    assert_int_equal(n, 9);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(all[i].epoch, 3 + i); /* 10 and 11 come after 9 */
    free(all);
}

FR_CASE(a_request_is_answered_once)
{
    char path[PATH_MAX], id[FR_SNAPSHOT_ID_MAX];
    assert_int_equal(fr_snapshot_ask(f.dir, "../x", &err), FR_E_INVALID);
    assert_false(fr_snapshot_next_request(f.dir, id));
    assert_int_equal(fr_snapshot_ask(f.dir, "a", &err), FR_OK);
    assert_int_equal(fr_snapshot_answered(f.dir, "a", path, &err), FR_AGAIN);
    assert_true(fr_snapshot_next_request(f.dir, id));
    assert_string_equal(id, "a");
    assert_int_equal(fr_snapshot_answer(f.dir, "a", "/x/ctr-1-3", NULL, &err), FR_OK);
    assert_false(fr_snapshot_next_request(f.dir, id));
    assert_int_equal(fr_snapshot_answered(f.dir, "a", path, &err), FR_OK);
    assert_string_equal(path, "/x/ctr-1-3");
    assert_int_equal(fr_snapshot_answered(f.dir, "a", path, &err), FR_AGAIN);
    assert_int_equal(fr_snapshot_answer(f.dir, "b", NULL, "the disk is full", &err), FR_OK);
    assert_int_equal(fr_snapshot_answered(f.dir, "b", path, &err), FR_E_STATE);
    assert_string_equal(err.text, "the disk is full");
}

int main(void)
{
#define IN_A_STATE(name) cmocka_unit_test_setup_teardown(name, open_state, close_state)
    const struct CMUnitTest cases[] = {
        IN_A_STATE(a_snapshot_holds_all_of_the_state_and_passes_its_check),
        IN_A_STATE(the_same_epoch_is_not_written_twice),
        IN_A_STATE(the_files_are_a_function_of_the_epoch),
        IN_A_STATE(every_form_of_values_can_be_written),
        IN_A_STATE(offsets_stand_in_the_manifest_when_they_are_those_of_all_partitions),
        IN_A_STATE(a_table_of_several_domains_has_one_file_a_partition),
        IN_A_STATE(one_that_is_stopped_leaves_nothing),
        IN_A_STATE(what_a_crash_left_is_swept_and_no_snapshot_is),
        IN_A_STATE(a_damaged_snapshot_does_not_pass),
        IN_A_STATE(a_directory_that_does_not_read_is_replaced),
        IN_A_STATE(what_does_not_read_back_gets_no_name),
        IN_A_STATE(what_has_the_name_of_a_snapshot_and_does_not_read_is_listed_with_the_reason),
        IN_A_STATE(current_names_what_is_there_or_nothing),
        IN_A_STATE(no_snapshot_is_written_over_files_of_a_state),
        IN_A_STATE(current_stays_with_the_model_it_names),
        IN_A_STATE(snapshots_are_listed_from_the_oldest_by_number),
        IN_A_STATE(a_request_is_answered_once),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
