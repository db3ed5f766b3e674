/* Starting from a snapshot, and how a replica continues after a gap or a rewind. */
#include "snapshot_dir.h"

static char folder[FR_TEST_FOLDER];

FR_FIXTURE(begin)
{
    fr_test_folder(folder);
    return 0;
}

FR_FIXTURE(end)
{
    remove_folder(folder);
    return 0;
}

static struct freshet_replica *replica_of(const struct freshet_replica_options *options)
{
    struct freshet_replica *replica = NULL;
    assert_int_equal(freshet_replica_new(options, &replica), FRESHET_OK);
    return replica;
}

static void load_ok(struct freshet_replica *replica, const char *directory)
{
    char problem[256];
    int status = freshet_replica_load(replica, directory, problem, sizeof(problem));
    if (status != FRESHET_OK)
        fail_msg("%d: %s", status, problem);
    assert_string_equal(problem, "");
}

static size_t first_of(const struct history *h, uint64_t epoch)
{
    size_t i = 0;
    while (i < h->n_topic && h->topic[i].epoch < epoch)
        i++;
    return i;
}

FR_CASE(a_replica_that_starts_from_a_snapshot_ends_as_one_that_never_stopped)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_new(0);
    struct freshet_replica *whole = replica_new(), *replica = replica_new();
    for (int e = 1; e <= 12; e++) {
        history_epoch(h, 200);
        if (e == 7)
            history_snapshot(h, folder, name);
    }
    feed_ok(whole, h, 0, first_of(h, 8));
    assert_int_equal(freshet_replica_next_offset(replica, 1), -1);
    load_ok(replica, folder);
    assert_int_equal(freshet_replica_next_offset(replica, 1), 12);
    assert_int_equal(freshet_replica_next_offset(replica, 3), -1);
    assert_int_equal(dump_hash(replica), dump_hash(whole));
    struct freshet_replica_info info = info_of(replica), other = info_of(whole);
    assert_int_equal(info.epoch, 7);
    assert_int_equal(info.samples, other.samples);
    assert_int_equal(info.watermark_ms, other.watermark_ms);
    assert_int_equal(info.rows, other.rows);
    assert_int_equal(info.reloads, 1);
    assert_true(info.scorable);
    feed_ok(whole, h, first_of(h, 8), h->n_topic);
    feed_ok(replica, h, 0, h->n_topic); /* from wherever: what is older is passed over */
    assert_int_equal(info_of(replica).epoch, 12);
    assert_int_equal(dump_hash(replica), dump_hash(whole));
    char problem[8];
    assert_int_equal(freshet_replica_load(replica, folder, problem, sizeof(problem)), FRESHET_E_INVALID);
    assert_int_equal(info_of(replica).epoch, 12);
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

/* The replica is killed ten times in the middle of an epoch, and begins again with the newest
 * snapshot. */
FR_CASE(a_replica_that_is_killed_ten_times_equals_one_that_never_stopped)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_new(0);
    struct freshet_replica *whole = replica_new(), *replica = NULL;
    size_t fed = 0;
    for (int e = 1; e <= 30; e++) {
        history_epoch(h, 150);
        feed_ok(whole, h, fed, h->n_topic);
        if (e % 3 == 0)
            history_snapshot(h, folder, name);
        if (replica)
            feed_ok(replica, h, fed, e % 3 == 1 ? fed + (h->n_topic - fed) / 2 : h->n_topic);
        if (replica && e % 3 != 1)
            assert_int_equal(dump_hash(replica), dump_hash(whole));
        fed = h->n_topic;
        if (e % 3 != 1)
            continue;
        freshet_replica_free(replica);
        replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
        if (e > 1)
            load_ok(replica, folder);
        feed_ok(replica, h, 0, h->n_topic);
        assert_int_equal(info_of(replica).epoch, e);
        assert_int_equal(dump_hash(replica), dump_hash(whole));
    }
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

/* An ordinary open would wait for each of these without end. */
FR_CASE(a_pipe_in_the_place_of_a_file_is_refused)
{
    char name[FR_MANIFEST_NAME_MAX], path[PATH_MAX], aside[PATH_MAX], problem[512];
    struct history *h = history_of(3, 100);
    history_snapshot(h, folder, name);
    char dir[PATH_MAX];
    join_path(dir, folder, name);
    const struct {
        const char *dir, *name;
    } files[] = {{folder, "CURRENT"}, {dir, "MANIFEST.json"}, {dir, "rows.item.1"}};
    alarm(20);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct freshet_replica *replica = replica_new();
        join_path(path, files[i].dir, files[i].name);
        join_path(aside, folder, "aside");
        assert_int_equal(rename(path, aside), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(freshet_replica_load(replica, folder, problem, sizeof(problem)), FRESHET_E_CORRUPT);
        if (!strstr(problem, "is not a regular file") || !strstr(problem, files[i].name))
            fail_msg("%s", problem);
        assert_int_equal(rename(aside, path), 0);
        load_ok(replica, folder);
        freshet_replica_free(replica);
    }
    alarm(0);
    history_free(h);
}

FR_CASE(a_replica_of_some_partitions_reads_their_files_only)
{
    char name[FR_MANIFEST_NAME_MAX], path[PATH_MAX];
    uint32_t partitions[] = {2};
    struct freshet_replica_options options = {.partitions = partitions, .n_partitions = 1};
    struct history *h = history_of(5, 300);
    struct freshet_replica *whole = replica_of(&options), *replica = replica_of(&options);
    history_snapshot(h, folder, name);
    history_epoch(h, 100);
    join_path(path, folder, name);
    strcat(path, "/rows.item.1");
    assert_int_equal(unlink(path), 0);
    join_path(path, folder, name);
    load_ok(replica, path);
    feed_ok(replica, h, first_of(h, 6), h->n_topic);
    feed_ok(whole, h, 0, h->n_topic);
    assert_int_equal(dump_hash(replica), dump_hash(whole));
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

/* Each file in turn: a byte changed, cut short, longer, gone. */
FR_CASE(a_damaged_snapshot_is_refused_and_what_is_served_stays)
{
    char name[FR_MANIFEST_NAME_MAX], dir[PATH_MAX], path[PATH_MAX], problem[300];
    struct history *h = history_of(2, 100);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    uint64_t hash = dump_hash(replica), held = info_of(replica).memory_bytes;
    history_epoch(h, 100);
    history_snapshot(h, folder, name);
    join_path(dir, folder, name);
    DIR *entries = opendir(dir);
    int files = 0;
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        static uint8_t bytes[1 << 16];
        if (entry->d_name[0] == '.')
            continue;
        join_path(path, dir, entry->d_name);
        FILE *file = fopen(path, "rb");
        size_t size = fread(bytes, 1, sizeof(bytes) - 1, file);
        assert_int_equal(fclose(file), 0);
        for (int way = 0; way < 4; way++) {
            bytes[size / 2] ^= way == 0;
            if (way == 3)
                assert_int_equal(unlink(path), 0);
            else
                write_file(dir, entry->d_name, bytes, way == 1 ? size - 1 : way == 2 ? size + 1 : size);
            bytes[size / 2] ^= way == 0;
            if (strcmp(entry->d_name, "MANIFEST.json") == 0 && (way == 1 || way == 2))
                continue; /* a change of the last newline has no effect */
            int status = freshet_replica_load(replica, folder, problem, sizeof(problem));
            if (status == FRESHET_OK)
                fail_msg("%s damaged in way %d was loaded", entry->d_name, way);
            assert_true(problem[0] != '\0');
            assert_int_equal(dump_hash(replica), hash);
            assert_int_equal(info_of(replica).memory_bytes, held);
        }
        write_file(dir, entry->d_name, bytes, size);
        files++;
    }
    closedir(entries);
    assert_int_equal(files, 1 + 1 + 2 * PARTITIONS + 1 + PARTITIONS);
    load_ok(replica, folder);
    assert_int_equal(info_of(replica).epoch, 3);
    assert_int_equal(freshet_replica_load(replica, "/nowhere", problem, sizeof(problem)), FRESHET_E_NOT_FOUND);
    write_file(folder, "CURRENT", "../escape", 9);
    assert_int_equal(freshet_replica_load(replica, folder, NULL, 0), FRESHET_E_CORRUPT);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(a_snapshot_of_another_model_or_of_fewer_partitions_is_refused)
{
    char name[FR_MANIFEST_NAME_MAX], problem[300];
    uint32_t partition = PARTITIONS;
    struct history *h = history_of(2, 50);
    history_snapshot(h, folder, name);
    struct freshet_replica *other = replica_of(&(struct freshet_replica_options){.model = "other"});
    assert_int_equal(freshet_replica_load(other, folder, problem, sizeof(problem)), FRESHET_E_MISMATCH);
    assert_non_null(strstr(problem, "of model ctr, not of other"));
    freshet_replica_free(other);
    other = replica_of(&(struct freshet_replica_options){.partitions = &partition, .n_partitions = 1});
    assert_int_equal(freshet_replica_load(other, folder, problem, sizeof(problem)), FRESHET_E_MISMATCH);
    freshet_replica_free(other);
    history_free(h);
}

FR_CASE(a_load_that_was_refused_memory_changes_nothing_and_may_be_made_again)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(3, 300);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, first_of(h, 2));
    uint64_t hash = dump_hash(replica), held = info_of(replica).memory_bytes;
    int refusals = 0, status = FRESHET_E_NO_MEMORY;
    history_snapshot(h, folder, name);
    for (uint64_t limit = held; status == FRESHET_E_NO_MEMORY; limit += 20000) {
        freshet_replica_limit_memory(replica, limit);
        status = freshet_replica_load(replica, folder, NULL, 0);
        if (status == FRESHET_E_NO_MEMORY) {
            freshet_replica_limit_memory(replica, 0);
            assert_int_equal(dump_hash(replica), hash);
            assert_int_equal(info_of(replica).memory_bytes, held);
            refusals++;
        }
    }
    assert_int_equal(status, FRESHET_OK);
    assert_true(refusals > 3);
    assert_int_equal(info_of(replica).epoch, 3);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(a_gap_is_met_by_loading_the_newest_snapshot)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(4, 100);
    struct freshet_replica *replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
    struct freshet_event event;
    feed_ok(replica, h, 0, first_of(h, 4));
    history_epoch(h, 100);
    history_epoch(h, 100);
    history_snapshot(h, folder, name); /* of epoch 6 */
    history_epoch(h, 100);
    size_t seven = first_of(h, 7);
    assert_int_equal(feed(replica, &h->topic[seven], &event), FRESHET_OK); /* 4 to 6 are missing */
    assert_int_equal(event.reloaded, 1);
    assert_int_equal(event.refused, 0);
    assert_int_equal(event.epoch, 6);
    feed_ok(replica, h, seven, h->n_topic);
    assert_int_equal(info_of(replica).epoch, 7);
    assert_int_equal(info_of(replica).reloads, 1);
    assert_int_equal(info_of(replica).refused, 0);
    ends_like_one_that_never_stopped(replica, h);
}

/* What was passed over after a wrong hint is read from further back; where it is gone the gap
 * stays. */
FR_CASE(a_gap_is_taken_back_once_with_the_snapshot_that_is_served)
{
    char name[FR_MANIFEST_NAME_MAX], path[PATH_MAX], problem[256];
    struct history *h = history_of(3, 100);
    history_snapshot(h, folder, name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    history_epoch(h, 100);
    history_epoch(h, 100);
    struct freshet_event event;
    for (int gone = 0; gone < 2; gone++) {
        struct freshet_replica *replica = replica_new();
        assert_int_equal(freshet_replica_load(replica, path, problem, sizeof(problem)), FRESHET_OK);
        assert_int_equal(feed(replica, &h->topic[first_of(h, 5)], &event), FRESHET_E_GAP);
        assert_int_equal(freshet_replica_load(replica, path, problem, sizeof(problem)), FRESHET_OK);
        assert_int_equal(info_of(replica).epoch, 3);
        if (gone) {
            assert_int_equal(feed(replica, &h->topic[first_of(h, 5)], &event), FRESHET_E_GAP);
            assert_int_equal(freshet_replica_load(replica, path, problem, sizeof(problem)), FRESHET_E_INVALID);
            freshet_replica_free(replica);
            continue;
        }
        feed_ok(replica, h, first_of(h, 3), h->n_topic);
        assert_int_equal(info_of(replica).epoch, 5);
        struct freshet_replica *whole = replica_new();
        feed_ok(whole, h, 0, h->n_topic);
        assert_int_equal(dump_hash(replica), dump_hash(whole));
        freshet_replica_free(whole);
        freshet_replica_free(replica);
    }
    history_free(h);
}

/* The snapshot comes when the replica has stopped already. */
FR_CASE(a_replica_that_stopped_looks_for_a_newer_snapshot_at_every_commit)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(3, 100);
    struct freshet_replica *replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
    struct freshet_event event;
    feed_ok(replica, h, 0, first_of(h, 3));
    history_epoch(h, 100);
    size_t four = first_of(h, 4);
    assert_int_equal(feed(replica, &h->topic[four], &event), FRESHET_E_GAP);
    history_snapshot(h, folder, name);
    history_epoch(h, 100);
    int reloads = 0;
    for (size_t i = first_of(h, 5); i < h->n_topic && !reloads; i++) {
        int status = feed(replica, &h->topic[i], &event);
        reloads += event.reloaded;
        assert_true(event.reloaded || status == FRESHET_E_GAP);
    }
    assert_int_equal(reloads, 1);
    assert_int_equal(info_of(replica).epoch, 4);
    /* pieces of epoch 5 were passed over: feed again from the offsets that the replica returns */
    assert_int_equal(freshet_replica_next_offset(replica, 0), 11);
    feed_ok(replica, h, first_of(h, 5), h->n_topic);
    assert_int_equal(info_of(replica).epoch, 5);
    freshet_replica_free(replica);
    history_free(h);
}

/* The folder gets its first snapshot when records go by already. */
FR_CASE(a_replica_without_the_topics_beginning_begins_with_the_first_snapshot_there_is)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(4, 100);
    struct freshet_replica *replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
    struct freshet_event event;
    /* piece 0 of the first epoch is lost in partition 1 alone: the others begin, and wait */
    for (size_t i = 0; i < h->n_topic; i++) {
        bool first_of_1 = h->topic[i].partition == 1 && h->topic[i].epoch == 1 && begins(&h->topic[i]);
        if (!first_of_1) {
            assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_OK);
            assert_int_equal(event.reloaded, 0);
        }
    }
    assert_int_equal(info_of(replica).epoch, 0);
    history_snapshot(h, folder, name); /* of epoch 4 */
    history_epoch(h, 100);
    size_t i = first_of(h, 5);
    for (event.reloaded = 0; i < h->n_topic && !event.reloaded; i++)
        assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_OK);
    assert_int_equal(event.reloaded, 1);
    assert_int_equal(info_of(replica).epoch, 4);
    feed_ok(replica, h, first_of(h, 5), h->n_topic);
    ends_like_one_that_never_stopped(replica, h);
}

FR_CASE(a_replica_that_a_gap_stopped_takes_a_later_epoch_of_all)
{
    struct history *h = history_of(4, 100);
    struct freshet_replica *replica = replica_new(), *whole = replica_new();
    struct freshet_event event;
    feed_ok(replica, h, 0, first_of(h, 3));
    assert_int_equal(feed(replica, &h->topic[first_of(h, 4)], &event), FRESHET_E_GAP);
    uint64_t hash = dump_hash(replica);
    /* epoch 5 is merged from the first: what there is, and no more */
    size_t five = h->n_topic;
    history_change(h, 0);
    h->n_rows = 0;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++)
            if (h->present[t][k])
                h->rows[h->n_rows++] =
                    (struct fr_delta_row){.key = key_of(t, k), .table = (uint32_t)t, .values = h->values[t][k]};
    history_write(h, &(struct write_options){.model = true, .from = 1, .set_previous = true});
    history_epoch(h, 50);
    feed_ok(whole, h, 0, h->n_topic);
    for (size_t i = first_of(h, 4) + 1; i < five; i++)
        assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_E_GAP);
    assert_int_equal(dump_hash(replica), hash);
    feed_ok(replica, h, five, h->n_topic);
    assert_int_equal(info_of(replica).epoch, 6);
    assert_int_equal(dump_hash(replica), dump_hash(whole));
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

/* A writer continues from `then` in a later timeline, whose rewind names the snapshot of it; the
 * replica serves what was rewound. Its topic grows. */
static void rewind_to(struct history *h, const struct history *then, uint64_t timeline, const char *name,
                      struct freshet_replica *replica)
{
    struct freshet_event event;
    struct topic_record *topic = h->topic;
    size_t begin = h->n_topic;
    *h = *then;
    h->topic = topic;
    h->n_topic = begin;
    h->timeline = timeline;
    h->random += 99 * timeline;
    history_change(h, 100);
    history_write(h, &(struct write_options){.rewind = &(struct fr_delta_rewind){.to = 3, .snap = name}});
    history_epoch(h, 100);
    int reloads = 0;
    for (size_t i = begin; i < h->n_topic; i++) {
        int status = feed(replica, &h->topic[i], &event);
        if (status != FRESHET_OK)
            fail_msg("record %zu: %d %s", i, status, event.problem);
        reloads += event.reloaded;
        i = event.reloaded ? begin - 1 : i; /* feeds from that place again */
    }
    assert_int_equal(reloads, 1);
    assert_int_equal(info_of(replica).timeline, timeline);
    assert_int_equal(info_of(replica).epoch, 5);
    /* of one that never saw what was rewound */
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++) {
            float values[3];
            uint32_t dim = 3;
            int status = freshet_replica_row(replica, t == 0 ? "user" : "item", "v", key_of(t, k), values, &dim);
            assert_int_equal(status, h->present[t][k] ? FRESHET_OK : FRESHET_E_NOT_FOUND);
            if (status == FRESHET_OK)
                assert_true(values[0] == fr_quantized(h->values[t][k][t], FR_CODEC_F16));
        }
}

/* It is of the timeline that was rewound, of one before that, or, as the daemon's, of the new
 * one. */
FR_CASE(a_rewind_is_met_by_the_snapshot_it_names)
{
    char name[FR_MANIFEST_NAME_MAX], own[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(3, 100);
    struct freshet_replica *replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
    history_snapshot(h, folder, name);
    struct history then = *h; /* what is rewound to */
    history_epoch(h, 100);
    history_epoch(h, 100);
    feed_ok(replica, h, 0, h->n_topic);
    assert_int_equal(info_of(replica).epoch, 5);
    rewind_to(h, &then, 2, name, replica);
    rewind_to(h, &then, 3, name, replica);
    then.timeline = 4;
    history_snapshot(&then, folder, own);
    rewind_to(h, &then, 4, own, replica);
    freshet_replica_free(replica);
    history_free(h);
}

/* The snapshot is fetched more slowly than the topic, and no commit has come yet. */
FR_CASE(a_replica_that_a_rewind_stopped_takes_the_snapshot_that_another_names)
{
    char name[FR_MANIFEST_NAME_MAX];
    struct history *h = history_of(3, 100);
    struct freshet_replica *replica = replica_of(&(struct freshet_replica_options){.snapshots = folder});
    struct freshet_event event;
    feed_ok(replica, h, 0, h->n_topic);
    struct history then = *h;
    size_t begin = h->n_topic;
    h->timeline = 2;
    history_write(h, &(struct write_options){.rewind = &(struct fr_delta_rewind){.to = 3, .snap = "ctr-2-3"}});
    assert_int_equal(feed(replica, &h->topic[begin], &event), FRESHET_E_REWIND);
    then.timeline = 3;
    history_snapshot(&then, folder, name);
    then.topic = h->topic;
    then.n_topic = h->n_topic;
    *h = then;
    rewind_to(h, &then, 3, name, replica);
    freshet_replica_free(replica);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_replica_that_starts_from_a_snapshot_ends_as_one_that_never_stopped, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_replica_that_is_killed_ten_times_equals_one_that_never_stopped, begin, end),
        cmocka_unit_test_setup_teardown(a_pipe_in_the_place_of_a_file_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_replica_of_some_partitions_reads_their_files_only, begin, end),
        cmocka_unit_test_setup_teardown(a_damaged_snapshot_is_refused_and_what_is_served_stays, begin, end),
        cmocka_unit_test_setup_teardown(a_snapshot_of_another_model_or_of_fewer_partitions_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_load_that_was_refused_memory_changes_nothing_and_may_be_made_again, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_gap_is_met_by_loading_the_newest_snapshot, begin, end),
        cmocka_unit_test_setup_teardown(a_gap_is_taken_back_once_with_the_snapshot_that_is_served, begin, end),
        cmocka_unit_test_setup_teardown(a_replica_that_stopped_looks_for_a_newer_snapshot_at_every_commit, begin, end),
        cmocka_unit_test_setup_teardown(a_replica_without_the_topics_beginning_begins_with_the_first_snapshot_there_is,
                                        begin, end),
        cmocka_unit_test(a_replica_that_a_gap_stopped_takes_a_later_epoch_of_all),
        cmocka_unit_test_setup_teardown(a_rewind_is_met_by_the_snapshot_it_names, begin, end),
        cmocka_unit_test_setup_teardown(a_replica_that_a_rewind_stopped_takes_the_snapshot_that_another_names, begin,
                                        end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
