/* What open does with torn, flipped, missing and mixed files: exactly one epoch's state, never
 * older than the durable one, or a refusal. */
#include "scene.h"

#include "base/crc32c.h"

enum { SLOT = 128, SLOT_DISTANCE = 4096 };

/* Every byte of a file is tried. A sanitizer build, which is ten times slower, tries every n-th
 * byte; n is odd, so that no field is left out. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STRIDE = 11 };
#else
enum { STRIDE = 1 };
#endif

/* A state directory of `epochs` epochs, all in one journal file, closed; small epochs, so that
 * every byte can be tried. */
static struct scene make_state(uint64_t seed, uint64_t epochs)
{
    struct scene scene = scene_make(seed);
    scene.keys = 3;
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, epochs);
    fr_durable_close(durable);
    return scene;
}

static void journal_file(const struct scene *scene, uint64_t first, char path[SCENE_PATH])
{
    char name[64];
    snprintf(name, sizeof(name), "journal/%020llu.fj", (unsigned long long)first);
    scene_path(scene, name, path);
}

static void append_one(const struct scene *scene, uint64_t epoch)
{
    struct fr_durable *durable = scene_open(scene, false);
    scene_append_to(scene, durable, epoch, epoch);
    fr_durable_close(durable);
}

static bool opens_at(const struct scene *scene, uint64_t epoch)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (scene_try_open(scene, NULL, false, &durable, &err) != FR_OK) {
        print_message("refused: %s\n", err.text);
        return false;
    }
    bool same = scene_status(durable).epoch == epoch && scene_state_is(scene, durable, epoch);
    fr_durable_close(durable);
    return same;
}

static enum fr_status refusal(const struct scene *scene, const char *must_say)
{
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    enum fr_status status = scene_try_open(scene, NULL, false, &durable, &err);
    fr_durable_close(durable);
    if (status == FR_OK || !strstr(err.text, must_say))
        print_message("status %d: %s\n", (int)status, err.text);
    return status != FR_OK && strstr(err.text, must_say) ? status : FR_OK;
}

/* ---- the tail ---- */

/* The power failed while epoch 4 was written: any number of its journal bytes are there, and the
 * mark still has epoch 3. */
FR_CASE(a_tail_torn_at_any_byte_of_the_last_record_is_cut_off)
{
    struct scene scene = make_state(21, 3);
    char journal[SCENE_PATH], hwm[SCENE_PATH];
    journal_file(&scene, 1, journal);
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer three = scene_read(journal), mark = scene_read(hwm);
    append_one(&scene, 4);
    struct fr_buffer four = scene_read(journal);
    assert_true(four.size > three.size + 100);
    for (size_t size = three.size; size <= four.size; size += STRIDE) {
        scene_write(journal, four.data, size);
        scene_write(hwm, mark.data, mark.size);
        assert_true(opens_at(&scene, 3));
        struct stat info;
        assert_int_equal(stat(journal, &info), 0);
        assert_int_equal(info.st_size, three.size);
    }
    append_one(&scene, 4); /* epoch 4 can be appended again, with any content */
    assert_true(opens_at(&scene, 4));
    fr_buffer_release(&three);
    fr_buffer_release(&mark);
    fr_buffer_release(&four);
}

FR_CASE(garbage_behind_the_mark_is_cut_off)
{
    struct scene scene = make_state(22, 3);
    char journal[SCENE_PATH], stray[SCENE_PATH];
    journal_file(&scene, 1, journal);
    journal_file(&scene, 4, stray);
    struct fr_buffer whole = scene_read(journal);
    fr_buffer_append(&whole, "fjrc garbage that is no record at all", 37);
    scene_write(journal, whole.data, whole.size);
    scene_write(stray, "FRJO", 4); /* the head of a file that a rotation had begun */
    assert_true(opens_at(&scene, 3));
    assert_int_not_equal(access(stray, F_OK), 0);
    append_one(&scene, 4);
    assert_true(opens_at(&scene, 4));
    fr_buffer_release(&whole);
}

FR_CASE(a_durable_record_cut_at_any_byte_is_refused_and_nothing_is_changed)
{
    struct scene scene = make_state(23, 3);
    char journal[SCENE_PATH];
    journal_file(&scene, 1, journal);
    struct fr_buffer whole = scene_read(journal);
    for (size_t cut = 1; cut <= whole.size; cut += STRIDE) {
        scene_write(journal, whole.data, whole.size - cut);
        assert_int_equal(refusal(&scene, "journal"), FR_E_CORRUPT);
        struct stat info;
        assert_int_equal(stat(journal, &info), 0);
        assert_int_equal(info.st_size, whole.size - cut);
    }
    scene_write(journal, whole.data, whole.size);
    assert_true(opens_at(&scene, 3));
    fr_buffer_release(&whole);
}

FR_CASE(a_flipped_byte_anywhere_in_the_journal_is_refused)
{
    struct scene scene = make_state(24, 3);
    char journal[SCENE_PATH];
    journal_file(&scene, 1, journal);
    struct fr_buffer whole = scene_read(journal);
    for (size_t i = 0; i < whole.size; i += STRIDE) {
        whole.data[i] ^= 0x10;
        scene_write(journal, whole.data, whole.size);
        assert_int_equal(refusal(&scene, journal), FR_E_CORRUPT);
        whole.data[i] ^= 0x10;
    }
    scene_write(journal, whole.data, whole.size);
    assert_true(opens_at(&scene, 3));
    fr_buffer_release(&whole);
}

/* ---- the mark ---- */

/* Rot in the newest slot must not lose the epoch that the slot names: the journal holds the epoch,
 * so it is kept. Rot in the older slot changes nothing. */
FR_CASE(a_flipped_byte_anywhere_in_one_slot_loses_no_durable_epoch)
{
    struct scene scene = make_state(25, 3);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer mark = scene_read(hwm);
    for (size_t slot = 0; slot < 2; slot++) {
        for (size_t i = 0; i < SLOT; i += STRIDE) {
            mark.data[slot * SLOT_DISTANCE + i] ^= 0x40;
            scene_write(hwm, mark.data, mark.size);
            assert_true(opens_at(&scene, 3));
            assert_true(opens_at(&scene, 3)); /* and the slots are good again */
            mark.data[slot * SLOT_DISTANCE + i] ^= 0x40;
        }
    }
    fr_buffer_release(&mark);
}

FR_CASE(without_a_good_slot_it_refuses)
{
    struct scene scene = make_state(26, 3);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer mark = scene_read(hwm);
    mark.data[20] ^= 1;
    mark.data[SLOT_DISTANCE + 20] ^= 1;
    scene_write(hwm, mark.data, mark.size);
    assert_int_equal(refusal(&scene, "neither slot"), FR_E_CORRUPT);
    scene_write(hwm, mark.data, 0);
    assert_int_equal(refusal(&scene, "neither slot"), FR_E_CORRUPT);
    assert_int_equal(unlink(hwm), 0);
    assert_int_equal(refusal(&scene, "is missing"), FR_E_CORRUPT);
    fr_buffer_release(&mark);
}

/* The power failed while the mark of epoch 4 was written: a prefix of the slot is new, the rest is
 * old. The journal has epoch 4, whole and synced. */
FR_CASE(a_mark_torn_at_any_byte_gives_the_epoch_before_or_the_one_it_was_to_name)
{
    struct scene scene = make_state(27, 3);
    char hwm[SCENE_PATH], journal[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    journal_file(&scene, 1, journal);
    /* the mark after open: what the write of epoch 4 finds */
    struct fr_durable *durable = scene_open(&scene, false);
    struct fr_buffer before = scene_read(hwm);
    scene_append_to(&scene, durable, 4, 4);
    struct fr_buffer after = scene_read(hwm), four = scene_read(journal);
    fr_durable_close(durable);
    size_t slot = memcmp(before.data, after.data, SLOT) != 0 ? 0 : SLOT_DISTANCE;
    unsigned seen[2] = {0, 0};
    for (size_t n = 0; n <= SLOT; n++) {
        memcpy(before.data + slot, after.data + slot, n);
        scene_write(hwm, before.data, before.size);
        scene_write(journal, four.data, four.size);
        struct fr_err err = {0};
        assert_int_equal(scene_try_open(&scene, NULL, false, &durable, &err), FR_OK);
        uint64_t epoch = scene_status(durable).epoch;
        assert_true(epoch == 3 || epoch == 4);
        assert_true(scene_state_is(&scene, durable, epoch));
        seen[epoch - 3]++;
        fr_durable_close(durable);
        assert_true(opens_at(&scene, epoch));
    }
    assert_true(seen[0] > 0 && seen[1] > SLOT / 2);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    fr_buffer_release(&four);
}

FR_CASE(a_lost_slot_and_a_torn_tail_together_keep_the_whole_epochs)
{
    struct scene scene = make_state(28, 3);
    char hwm[SCENE_PATH], journal[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    journal_file(&scene, 1, journal);
    append_one(&scene, 4);
    struct fr_buffer four = scene_read(journal), mark = scene_read(hwm);
    uint64_t sequences[2] = {fr_load_u64(mark.data + 16), fr_load_u64(mark.data + SLOT_DISTANCE + 16)};
    memset(mark.data + (sequences[0] > sequences[1] ? 0 : SLOT_DISTANCE), 0xff, SLOT);
    scene_write(hwm, mark.data, mark.size);
    scene_write(journal, four.data, four.size - 1);
    assert_true(opens_at(&scene, 3));
    fr_buffer_release(&four);
    fr_buffer_release(&mark);
}

/* ---- missing and mixed files ---- */

static struct fr_durable *open_rotating(const struct scene *scene)
{
    struct fr_durable_options options = {.dir = scene->dir, .journal_file_max = 1, .head = "head", .head_size = 4};
    struct fr_durable *durable = NULL;
    struct fr_err err = {0};
    if (fr_durable_open(&options, &durable, &err) != FR_OK)
        fail_msg("%s", err.text);
    return durable;
}

/* Six epochs, one a file. */
static struct scene make_rotated(uint64_t seed, uint64_t fold_at, uint64_t acked)
{
    struct scene scene = scene_make(seed);
    struct fr_durable *durable = open_rotating(&scene);
    struct fr_err err = {0};
    scene_append_to(&scene, durable, 1, fold_at);
    scene_fold(durable);
    scene_append_to(&scene, durable, fold_at + 1, 6);
    assert_int_equal(fr_durable_acknowledge(durable, acked, &err), FR_OK);
    fr_durable_close(durable);
    return scene;
}

FR_CASE(a_missing_journal_file_is_refused_by_name)
{
    struct scene scene = make_rotated(31, 3, 0);
    static const struct {
        uint64_t first;
        const char *says;
    } cases[] = {{5, "4..5 are missing"}, {6, "epochs 6..6 are missing"}, {1, "1..1, which are still to be published"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char path[SCENE_PATH], aside[SCENE_PATH];
        journal_file(&scene, cases[i].first, path);
        scene_path(&scene, "aside", aside);
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(refusal(&scene, cases[i].says), FR_E_CORRUPT);
        struct fr_durable *reader = NULL;
        struct fr_err err = {0};
        assert_int_equal(scene_try_open(&scene, NULL, true, &reader, &err), FR_E_CORRUPT);
        assert_int_equal(rename(aside, path), 0);
    }
    assert_true(opens_at(&scene, 6));
}

FR_CASE(a_missing_cold_store_is_refused_once_the_journal_was_trimmed)
{
    struct scene scene = make_rotated(32, 4, 4);
    char cold[SCENE_PATH];
    scene_path(&scene, "cold", cold);
    scene_remove(cold);
    struct fr_durable *reader = NULL;
    struct fr_err err = {0};
    assert_int_equal(scene_try_open(&scene, NULL, true, &reader, &err), FR_E_CORRUPT);
    assert_int_equal(refusal(&scene, "epochs 1..4 are missing"), FR_E_CORRUPT);
}

FR_CASE(a_missing_cold_store_is_rebuilt_while_the_journal_is_whole)
{
    struct scene scene = make_rotated(33, 4, 0);
    char cold[SCENE_PATH];
    scene_path(&scene, "cold", cold);
    scene_remove(cold);
    assert_true(opens_at(&scene, 6));
}

FR_CASE(files_that_an_interrupted_trim_left_are_removed)
{
    struct scene scene = make_rotated(34, 4, 0);
    struct fr_buffer kept[2];
    char paths[2][SCENE_PATH];
    for (size_t i = 0; i < 2; i++) { /* epochs 2 and 4: a power cut may undo unlinks in any order */
        journal_file(&scene, 2 + 2 * i, paths[i]);
        kept[i] = scene_read(paths[i]);
    }
    struct fr_durable *durable = open_rotating(&scene);
    struct fr_err err = {0};
    assert_int_equal(fr_durable_acknowledge(durable, 4, &err), FR_OK);
    assert_int_equal(scene_status(durable).journal_first, 5);
    fr_durable_close(durable);
    for (size_t i = 0; i < 2; i++) {
        assert_int_not_equal(access(paths[i], F_OK), 0);
        scene_write(paths[i], kept[i].data, kept[i].size);
        fr_buffer_release(&kept[i]);
    }
    assert_true(opens_at(&scene, 6));
    assert_int_not_equal(access(paths[0], F_OK), 0);
}

static void replace_part(const struct scene *scene, const char *part, const char *from_dir)
{
    char from[SCENE_PATH], to[SCENE_PATH];
    snprintf(from, sizeof(from), "%.300s/%.100s", from_dir, part);
    scene_path(scene, part, to);
    struct stat info;
    assert_int_equal(stat(from, &info), 0);
    if (S_ISDIR(info.st_mode)) {
        scene_remove(to);
        scene_copy_tree(from, to);
        return;
    }
    struct fr_buffer bytes = scene_read(from);
    scene_write(to, bytes.data, bytes.size);
    fr_buffer_release(&bytes);
}

FR_CASE(parts_of_an_older_copy_are_refused)
{
    struct scene scene = make_rotated(35, 2, 2);
    struct scene old = scene_make(0), fresh = scene_make(0);
    scene_copy_tree(scene.dir, old.dir); /* at epoch 6, folded 2 */
    struct fr_durable *durable = open_rotating(&scene);
    struct fr_err err = {0};
    scene_append_to(&scene, durable, 7, 9);
    scene_fold(durable);
    assert_int_equal(fr_durable_acknowledge(durable, 9, &err), FR_OK);
    fr_durable_close(durable);
    scene_copy_tree(scene.dir, fresh.dir); /* at epoch 9, folded 9 */

    replace_part(&scene, "cold", old.dir); /* an old cold store beside a trimmed journal */
    assert_int_equal(refusal(&scene, "epochs 3..8 are missing"), FR_E_CORRUPT);
    replace_part(&scene, "cold", fresh.dir);
    replace_part(&scene, "journal", old.dir); /* an old journal */
    assert_int_equal(refusal(&scene, "epochs 7..9 are missing"), FR_E_CORRUPT);
    replace_part(&scene, "hwm", old.dir); /* old journal and mark beside a new cold store */
    assert_int_equal(refusal(&scene, "older copy"), FR_E_CORRUPT);
    replace_part(&scene, "cold", old.dir); /* a whole old copy is a state */
    assert_true(opens_at(&scene, 6));
    scene_remove(scene.dir);
    scene_remove(old.dir);
    scene_remove(fresh.dir);
}

FR_CASE(files_of_two_histories_are_refused)
{
    struct scene scene = make_rotated(36, 3, 0), other = make_rotated(37, 3, 0), mine = scene_make(0);
    scene_copy_tree(scene.dir, mine.dir);
    replace_part(&scene, "hwm", other.dir);
    assert_int_equal(refusal(&scene, "two histories"), FR_E_CORRUPT);
    replace_part(&scene, "hwm", mine.dir);
    replace_part(&scene, "cold", other.dir);
    assert_int_equal(refusal(&scene, "two histories"), FR_E_CORRUPT);
    replace_part(&scene, "cold", mine.dir);
    char name[64];
    snprintf(name, sizeof(name), "journal/%020d.fj", 4);
    replace_part(&scene, name, other.dir);
    assert_int_equal(refusal(&scene, "chain of digests"), FR_E_CORRUPT);
    replace_part(&scene, name, mine.dir);
    assert_true(opens_at(&scene, 6));
    scene_remove(scene.dir);
    scene_remove(other.dir);
    scene_remove(mine.dir);
}

FR_CASE(a_record_of_another_history_inside_a_file_is_refused)
{
    struct scene scene = make_state(38, 2), other = make_state(39, 2);
    char path[SCENE_PATH], path_other[SCENE_PATH];
    journal_file(&scene, 1, path);
    journal_file(&other, 1, path_other);
    struct fr_buffer mine = scene_read(path), theirs = scene_read(path_other);
    /* of the file, with "head" and its CRC; then records of 16 + length */
    size_t head = 24 + 4 + 4;
    size_t end_mine = head + 16 + (size_t)fr_load_u64(mine.data + head + 8);
    size_t end_theirs = head + 16 + (size_t)fr_load_u64(theirs.data + head + 8);
    mine.size = end_mine;
    fr_buffer_append(&mine, theirs.data + end_theirs, theirs.size - end_theirs);
    scene_write(path, mine.data, mine.size);
    /* this mark has another digest of epoch 2 than the journal */
    replace_part(&scene, "hwm", other.dir);
    assert_int_equal(refusal(&scene, "chain of digests"), FR_E_CORRUPT);
    fr_buffer_release(&mine);
    fr_buffer_release(&theirs);
    scene_remove(scene.dir);
    scene_remove(other.dir);
}

/* ---- salt ---- */

FR_CASE(a_state_keeps_the_salt_it_was_made_with)
{
    struct scene scene = make_state(44, 3);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_fold(durable);
    scene_append_to(&scene, durable, 4, 5);
    fr_durable_close(durable);
    scene.salt = 1;
    for (int read_only = 0; read_only < 2; read_only++) {
        durable = scene_open(&scene, read_only != 0);
        assert_int_equal(scene_status(durable).salt, 0x5a17);
        assert_true(scene_state_is(&scene, durable, 5));
        fr_durable_close(durable);
    }
}

/* Same content, another salt. */
FR_CASE(parts_of_a_state_with_another_salt_are_refused)
{
    static const struct {
        const char *part, *text;
        bool folded;
    } cases[] = {{"hwm", "the record carries another salt", false},
                 {"journal", "the record carries another salt", false},
                 {"hwm", "the cold store's salt is not the one in hwm", true},
                 {"cold", "the cold store's salt is not the one in hwm", true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene scenes[2];
        for (int s = 0; s < 2; s++) {
            scenes[s] = scene_make(45);
            scenes[s].salt = (uint64_t)s;
            struct fr_durable *durable = scene_open(&scenes[s], false);
            scene_append_to(&scenes[s], durable, 1, 2);
            if (cases[i].folded)
                scene_fold(durable);
            fr_durable_close(durable);
        }
        replace_part(&scenes[0], cases[i].part, scenes[1].dir);
        assert_int_equal(refusal(&scenes[0], cases[i].text), FR_E_CORRUPT);
    }
}

FR_CASE(slots_with_two_salts_are_refused)
{
    struct scene scene = make_state(46, 2);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer mark = scene_read(hwm);
    mark.data[80] ^= 1;
    uint32_t crc = fr_crc32c(0, mark.data, SLOT - 4);
    memcpy(mark.data + SLOT - 4, &crc, 4);
    scene_write(hwm, mark.data, mark.size);
    assert_int_equal(refusal(&scene, "different salts"), FR_E_CORRUPT);
    fr_buffer_release(&mark);
}

/* ---- format ---- */

FR_CASE(a_mark_of_another_format_is_refused_with_the_remedy)
{
    struct scene scene = make_state(41, 2);
    char hwm[SCENE_PATH];
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer mark = scene_read(hwm);
    for (size_t slot = 0; slot < 2; slot++) {
        uint8_t *at = mark.data + slot * SLOT_DISTANCE;
        at[8] = 9;
        uint32_t crc = fr_crc32c(0, at, SLOT - 4);
        memcpy(at + SLOT - 4, &crc, 4);
    }
    scene_write(hwm, mark.data, mark.size);
    assert_int_equal(refusal(&scene, "state format 9, this version reads format 4"), FR_E_MISMATCH);
    assert_int_equal(refusal(&scene, "another state_dir"), FR_E_MISMATCH);
    fr_buffer_release(&mark);
}

FR_CASE(a_journal_of_another_format_is_refused_with_the_remedy)
{
    struct scene scene = make_state(42, 2);
    char journal[SCENE_PATH];
    journal_file(&scene, 1, journal);
    struct fr_buffer whole = scene_read(journal);
    whole.data[8] = 9;
    uint32_t crc = fr_crc32c(0, whole.data, 24 + 4); /* file head and "head" */
    memcpy(whole.data + 28, &crc, 4);
    scene_write(journal, whole.data, whole.size);
    assert_int_equal(refusal(&scene, "state format 9"), FR_E_MISMATCH);
    fr_buffer_release(&whole);
}

/* ---- read-only ---- */

FR_CASE(a_read_only_open_of_a_torn_state_changes_nothing)
{
    struct scene scene = make_state(43, 3);
    char journal[SCENE_PATH], hwm[SCENE_PATH], stray[SCENE_PATH];
    journal_file(&scene, 1, journal);
    journal_file(&scene, 4, stray);
    scene_path(&scene, "hwm", hwm);
    struct fr_buffer bytes = scene_read(journal), mark = scene_read(hwm);
    fr_buffer_append(&bytes, "fjrcxxxx", 8);
    scene_write(journal, bytes.data, bytes.size);
    scene_write(stray, "FRJO", 4);
    struct fr_durable *reader = scene_open(&scene, true);
    assert_int_equal(scene_status(reader).epoch, 3);
    assert_true(scene_state_is(&scene, reader, 3));
    fr_durable_close(reader);
    struct fr_buffer bytes_after = scene_read(journal), mark_after = scene_read(hwm);
    assert_int_equal(bytes_after.size, bytes.size);
    assert_memory_equal(mark_after.data, mark.data, mark.size);
    assert_int_equal(access(stray, F_OK), 0);
    fr_buffer_release(&bytes);
    fr_buffer_release(&mark);
    fr_buffer_release(&bytes_after);
    fr_buffer_release(&mark_after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_tail_torn_at_any_byte_of_the_last_record_is_cut_off),
        SCENE_CASE(garbage_behind_the_mark_is_cut_off),
        SCENE_CASE(a_durable_record_cut_at_any_byte_is_refused_and_nothing_is_changed),
        SCENE_CASE(a_flipped_byte_anywhere_in_the_journal_is_refused),
        SCENE_CASE(a_flipped_byte_anywhere_in_one_slot_loses_no_durable_epoch),
        SCENE_CASE(without_a_good_slot_it_refuses),
        SCENE_CASE(a_mark_torn_at_any_byte_gives_the_epoch_before_or_the_one_it_was_to_name),
        SCENE_CASE(a_lost_slot_and_a_torn_tail_together_keep_the_whole_epochs),
        SCENE_CASE(a_missing_journal_file_is_refused_by_name),
        SCENE_CASE(a_missing_cold_store_is_refused_once_the_journal_was_trimmed),
        SCENE_CASE(a_missing_cold_store_is_rebuilt_while_the_journal_is_whole),
        SCENE_CASE(files_that_an_interrupted_trim_left_are_removed),
        SCENE_CASE(parts_of_an_older_copy_are_refused),
        SCENE_CASE(files_of_two_histories_are_refused),
        SCENE_CASE(a_record_of_another_history_inside_a_file_is_refused),
        SCENE_CASE(a_state_keeps_the_salt_it_was_made_with),
        SCENE_CASE(parts_of_a_state_with_another_salt_are_refused),
        SCENE_CASE(slots_with_two_salts_are_refused),
        SCENE_CASE(a_mark_of_another_format_is_refused_with_the_remedy),
        SCENE_CASE(a_journal_of_another_format_is_refused_with_the_remedy),
        SCENE_CASE(a_read_only_open_of_a_torn_state_changes_nothing),
    };
    return cmocka_run_group_tests_name("durable recovery", tests, NULL, NULL);
}
