/* The replica's rules for records that do not simply continue the applied epoch: merged epochs, a
 * second writer, older and newer timelines. */
#include "history.h"

/* Rows that the merged epoch does not have are gone, without tombstones; new and old replicas end
 * in the same state. */
FR_CASE(an_epoch_merged_from_the_first_replaces_everything)
{
    struct history *h = history_of(3, 200);
    size_t after_1 = 0, after_3 = h->n_topic;
    while (h->topic[after_1].epoch == 1)
        after_1++;
    for (int k = 0; k < KEYS; k += 2)
        h->present[0][k] = false;
    h->n_rows = 0;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++)
            if (h->present[t][k])
                h->rows[h->n_rows++] =
                    (struct fr_delta_row){.key = key_of(t, k), .table = (uint32_t)t, .values = h->values[t][k]};
    size_t n_rows = h->n_rows;
    history_write(h, &(struct write_options){.model = true, .from = 1, .set_previous = true});
    size_t after_4 = h->n_topic;
    history_epoch(h, 50);
    struct freshet_replica *old = replica_new(), *fresh = replica_new();
    feed_ok(old, h, 0, after_3);
    feed_ok(fresh, h, after_1, after_3); /* of a topic that lost its beginning */
    assert_true(info_of(old).rows > n_rows);
    feed_ok(old, h, after_3, after_4);
    feed_ok(fresh, h, after_3, after_4);
    assert_int_equal(info_of(old).epoch, 4);
    assert_int_equal(info_of(old).rows, n_rows);
    assert_int_equal(dump_hash(old), dump_hash(fresh));
    feed_ok(old, h, after_4, h->n_topic);
    feed_ok(fresh, h, after_4, h->n_topic);
    feed_ok(old, h, after_3, after_4); /* again: nothing */
    assert_int_equal(info_of(fresh).epoch, 5);
    assert_int_equal(dump_hash(old), dump_hash(fresh));
    freshet_replica_free(old);
    freshet_replica_free(fresh);
    history_free(h);
}

/* Epochs 1..6 as such, and 3..5 merged into one. */
FR_CASE(merged_epochs_apply_where_they_continue_and_are_a_gap_elsewhere)
{
    struct history *h = history_of(2, 50);
    size_t after_2 = h->n_topic;
    uint64_t digest_2 = h->digest;
    for (int i = 0; i < 3; i++)
        history_epoch(h, 50);
    size_t after_5 = h->n_topic;
    history_epoch(h, 50);
    size_t after_6 = h->n_topic;
    /* The merged image: every row's state at 5. Epoch 6 was made after it, so build it from a
     * second history. */
    struct history *m = history_of(5, 50);
    m->epoch = 4;
    m->n_rows = 0;
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++)
            m->rows[m->n_rows++] = (struct fr_delta_row){.key = key_of(t, k),
                                                         .table = (uint32_t)t,
                                                         .why = m->present[t][k] ? 0 : 1,
                                                         .values = m->present[t][k] ? m->values[t][k] : NULL};
    size_t merged = m->n_topic;
    /* the digest of epoch 5 as the unmerged one has it */
    uint64_t digest_4 = digest_2;
    for (uint64_t e = 3; e <= 4; e++)
        digest_4 = fr_fmix64(digest_4 ^ fr_fmix64(e));
    m->digest = digest_4;
    history_write(m, &(struct write_options){.from = 3, .set_previous = true, .previous = digest_2});

    struct freshet_replica *plain = replica_new(), *skipping = replica_new(), *overlapping = replica_new();
    feed_ok(plain, h, 0, after_6);
    feed_ok(skipping, h, 0, after_2);
    feed_ok(skipping, m, merged, m->n_topic);
    assert_int_equal(info_of(skipping).epoch, 5);
    feed_ok(skipping, h, after_5, after_6);
    assert_int_equal(dump_hash(skipping), dump_hash(plain));
    size_t after_3 = after_2;
    while (h->topic[after_3].epoch == 3)
        after_3++;
    feed_ok(overlapping, h, 0, after_3); /* 3 is applied, the merged one begins there */
    feed_ok(overlapping, m, merged, m->n_topic);
    feed_ok(overlapping, h, after_5, after_6);
    assert_int_equal(dump_hash(overlapping), dump_hash(plain));
    struct freshet_replica *behind = replica_new();
    struct freshet_event event;
    for (size_t i = 0; h->topic[i].epoch == 1; i++)
        feed_ok(behind, h, i, i + 1);
    assert_int_equal(feed(behind, &m->topic[merged], &event), FRESHET_E_GAP);
    freshet_replica_free(plain);
    freshet_replica_free(skipping);
    freshet_replica_free(overlapping);
    freshet_replica_free(behind);
    history_free(h);
    history_free(m);
}

/* Epoch 4 in the ordinary way and as all there is, under one digest: their pieces have other
 * numbers and other content, and come between one another. */
FR_CASE(pieces_of_another_from_are_another_epochs)
{
    for (size_t turn = 1; turn < 20; turn++) {
        struct history *h = history_of(3, 80);
        size_t ordinary = h->n_topic;
        uint64_t digest = h->digest;
        history_epoch(h, 80);
        size_t all = h->n_topic;
        h->epoch = 3;
        h->digest = digest;
        h->n_rows = 0;
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < KEYS; k++)
                if (h->present[t][k])
                    h->rows[h->n_rows++] =
                        (struct fr_delta_row){.key = key_of(t, k), .table = (uint32_t)t, .values = h->values[t][k]};
        history_write(h, &(struct write_options){.model = true, .from = 1, .set_previous = true});
        struct freshet_replica *plain = replica_new(), *mixed = replica_new();
        feed_ok(plain, h, 0, all);
        feed_ok(mixed, h, 0, ordinary);
        size_t cut = ordinary + turn * (all - ordinary) / 20;
        feed_ok(mixed, h, ordinary, cut);
        feed_ok(mixed, h, all, h->n_topic);
        assert_int_equal(info_of(mixed).epoch, 4);
        assert_int_equal(info_of(mixed).duplicates, 0);
        assert_int_equal(dump_hash(mixed), dump_hash(plain));
        feed_ok(mixed, h, cut, all);
        assert_int_equal(dump_hash(mixed), dump_hash(plain));
        freshet_replica_free(plain);
        freshet_replica_free(mixed);
        history_free(h);
    }
}

FR_CASE(a_second_writer_is_recognized_by_its_digest)
{
    struct history *ours = history_of(3, 30), *theirs = history_new(1);
    for (int i = 0; i < 3; i++)
        history_epoch(theirs, 30);
    struct freshet_event event;
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, ours, 0, ours->n_topic);
    assert_int_equal(feed(replica, &theirs->topic[theirs->n_topic - 1], &event), FRESHET_E_MISMATCH);
    assert_non_null(strstr(event.problem, "two writers"));
    freshet_replica_free(replica);

    replica = replica_new(); /* inside an epoch */
    feed_ok(replica, ours, 0, 2);
    assert_int_equal(feed(replica, &theirs->topic[2], &event), FRESHET_E_MISMATCH);
    freshet_replica_free(replica);
    history_free(ours);
    history_free(theirs);
}

FR_CASE(an_epoch_with_another_predecessor_is_a_second_writer)
{
    struct history *h = history_of(2, 30);
    size_t first = h->n_topic;
    history_change(h, 30);
    history_write(h, &(struct write_options){.set_previous = true, .previous = 42});
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic - 1);
    struct freshet_event event;
    assert_int_equal(feed(replica, &h->topic[h->n_topic - 1], &event), FRESHET_E_MISMATCH);
    assert_non_null(strstr(event.problem, "two writers"));
    assert_int_equal(info_of(replica).epoch, 2);
    assert_true(first > 0);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(older_timelines_are_ignored_and_newer_ones_name_their_snapshot)
{
    struct history *h = history_new(0), *old = history_of(1, 30);
    h->timeline = 5;
    history_epoch(h, 30);
    struct freshet_replica *replica = replica_new();
    struct freshet_event event;
    feed_ok(replica, h, 0, h->n_topic);
    for (size_t i = 0; i < old->n_topic; i++) {
        assert_int_equal(feed(replica, &old->topic[i], &event), FRESHET_OK);
        assert_int_equal(event.stale, 1);
    }
    size_t first = h->n_topic;
    h->timeline = 6;
    struct fr_delta_rewind rewind = {1, "ctr-5-1"};
    history_write(h, &(struct write_options){.model = true, .rewind = &rewind});
    assert_int_equal(feed(replica, &h->topic[first], &event), FRESHET_E_REWIND);
    assert_non_null(strstr(event.problem, "ctr-5-1"));
    assert_int_equal(feed(replica, &h->topic[first + 1], &event), FRESHET_E_REWIND);
    assert_int_equal(info_of(replica).epoch, 1);
    assert_int_equal(info_of(replica).timeline, 5);
    freshet_replica_free(replica);
    history_free(h);
    history_free(old);
}

/* A restored state fills the topic as of its epoch, which lies before the one the replica serves;
 * a first attempt was cut off by a kill, and the old writer is late. */
FR_CASE(a_timeline_that_begins_with_a_merged_epoch_replaces_a_newer_epoch)
{
    struct history *h = history_of(6, 60), *again = history_new(9), *cut = history_new(11);
    struct freshet_replica *replica = replica_new(), *fresh = replica_new();
    struct fr_delta_rewind rewind = {0, ""};
    const struct write_options merged = {.model = true, .rewind = &rewind, .from = 1, .set_previous = true};
    cut->timeline = 2;
    cut->epoch = 2;
    history_change(cut, 40);
    history_write(cut, &merged);
    again->timeline = 3;
    again->epoch = 3;
    history_change(again, 40);
    history_write(again, &merged);
    history_epoch(again, 40);
    feed_ok(replica, h, 0, h->n_topic);
    uint64_t before = dump_hash(replica);
    feed_ok(replica, cut, 0, cut->n_topic / 2);
    assert_int_equal(dump_hash(replica), before);
    for (size_t i = 0; i < again->n_topic; i++) {
        struct freshet_event event;
        feed_ok(replica, again, i, i + 1);
        feed_ok(fresh, again, i, i + 1);
        assert_int_equal(feed(replica, &h->topic[h->n_topic - 1], &event), FRESHET_OK);
        assert_true(event.stale);
        assert_int_equal(feed(replica, &cut->topic[0], &event), FRESHET_OK);
        assert_true(event.stale);
    }
    assert_int_equal(info_of(replica).timeline, 3);
    assert_int_equal(info_of(replica).epoch, 5);
    assert_int_equal(dump_hash(replica), dump_hash(fresh));
    freshet_replica_free(replica);
    freshet_replica_free(fresh);
    history_free(h);
    history_free(again);
    history_free(cut);
}

FR_CASE(a_rewind_to_nothing_starts_again_and_serves_the_old_state_meanwhile)
{
    struct history *h = history_of(3, 100), *again = history_new(9);
    struct freshet_replica *replica = replica_new(), *fresh = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    uint64_t before = dump_hash(replica);
    again->timeline = 2;
    history_change(again, 40);
    struct fr_delta_rewind rewind = {0, ""};
    history_write(again, &(struct write_options){.model = true, .rewind = &rewind});
    history_epoch(again, 40);
    for (size_t i = 0; i < again->n_topic; i++) {
        struct freshet_event event;
        assert_int_equal(feed(replica, &again->topic[i], &event), FRESHET_OK);
        if (info_of(replica).timeline == 1)
            assert_int_equal(dump_hash(replica), before);
        feed_ok(fresh, again, i, i + 1);
    }
    assert_int_equal(info_of(replica).timeline, 2);
    assert_int_equal(info_of(replica).epoch, 2);
    assert_int_equal(dump_hash(replica), dump_hash(fresh));
    freshet_replica_free(replica);
    freshet_replica_free(fresh);
    history_free(h);
    history_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_merged_from_the_first_replaces_everything),
        cmocka_unit_test(merged_epochs_apply_where_they_continue_and_are_a_gap_elsewhere),
        cmocka_unit_test(pieces_of_another_from_are_another_epochs),
        cmocka_unit_test(a_second_writer_is_recognized_by_its_digest),
        cmocka_unit_test(an_epoch_with_another_predecessor_is_a_second_writer),
        cmocka_unit_test(older_timelines_are_ignored_and_newer_ones_name_their_snapshot),
        cmocka_unit_test(a_timeline_that_begins_with_a_merged_epoch_replaces_a_newer_epoch),
        cmocka_unit_test(a_rewind_to_nothing_starts_again_and_serves_the_old_state_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
