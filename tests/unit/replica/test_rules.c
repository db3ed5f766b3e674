/* The replica's rules within one timeline: what is served is always exactly the state of one epoch,
 * whatever order the records come in, and every missing, repeated or damaged record is noticed. */
#include "history.h"

enum { EPOCHS = 30 };

FR_CASE(a_replica_holds_exactly_what_the_writer_published)
{
    struct history *h = history_new(0);
    struct freshet_replica *replica = replica_new();
    for (int e = 1; e <= EPOCHS; e++) {
        size_t from = h->n_topic;
        history_epoch(h, 150);
        feed_ok(replica, h, from, h->n_topic);
        struct freshet_replica_info info = info_of(replica);
        assert_int_equal(info.epoch, e);
        assert_int_equal(info.timeline, 1);
        assert_int_equal(info.digest, h->digest);
        assert_int_equal(info.fp, h->settings.fp);
        assert_int_equal(info.watermark_ms, 1700000000000 + e);
        assert_int_equal(info.commit_wall_ms, 1700000005000 + e);
        assert_int_equal(info.samples, e * 100);
        assert_int_equal(info.dense, 2);
        assert_int_equal(info.scorable, 1);
        assert_int_equal(info.np, PARTITIONS);
        uint64_t rows = 0;
        for (int t = 0; t < 2; t++)
            for (int k = 0; k < KEYS; k++) {
                float row[3];
                uint32_t dim = 3;
                int status = freshet_replica_row(replica, t ? "item" : "user", "v", key_of(t, k), row, &dim);
                assert_int_equal(status, h->present[t][k] ? FRESHET_OK : FRESHET_E_NOT_FOUND);
                if (!h->present[t][k])
                    continue;
                rows++;
                assert_int_equal(dim, 2);
                for (int d = 0; d < 2; d++)
                    assert_true(row[d] == fr_quantized(h->values[t][k][t + d], FR_CODEC_F16));
                if (t == 1) {
                    dim = 3;
                    assert_int_equal(freshet_replica_row(replica, "item", "w", key_of(t, k), row, &dim), FRESHET_OK);
                    assert_int_equal(dim, 1);
                    assert_true(row[0] == fr_quantized(h->values[t][k][0], FR_CODEC_F16));
                }
            }
        assert_int_equal(info.rows, rows);
    }
    freshet_replica_free(replica);
    history_free(h);
}

/* Any interleaving of the partitions (each in its own order): the same epochs, each with the same
 * state. */
FR_CASE(partitions_may_arrive_in_any_interleaving)
{
    struct history *h = history_of(EPOCHS, 60);
    uint64_t hashes[EPOCHS + 1] = {0};
    struct freshet_replica *replica = replica_new();
    for (size_t i = 0; i < h->n_topic; i++) {
        struct freshet_event event;
        assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_OK);
        if (event.applied)
            hashes[event.epoch] = dump_hash(replica);
    }
    freshet_replica_free(replica);
    for (int round = 0; round < 20; round++) {
        size_t at[PARTITIONS] = {0};
        int applied = 0;
        replica = replica_new();
        for (size_t fed = 0; fed < h->n_topic; fed++) {
            uint32_t p = round == 0 ? (uint32_t)(fed * PARTITIONS / h->n_topic) : (uint32_t)(draw(h) % PARTITIONS);
            struct freshet_event event;
            for (uint32_t tries = 0;; p = (p + 1) % PARTITIONS, tries++) {
                assert_true(tries <= PARTITIONS);
                while (at[p] < h->n_topic && h->topic[at[p]].partition != p)
                    at[p]++;
                if (at[p] < h->n_topic)
                    break;
            }
            assert_int_equal(feed(replica, &h->topic[at[p]++], &event), FRESHET_OK);
            if (event.applied) {
                assert_int_equal(event.applied, 1);
                assert_int_equal(event.epoch, ++applied);
                assert_int_equal(dump_hash(replica), hashes[event.epoch]);
            }
        }
        assert_int_equal(applied, EPOCHS);
        freshet_replica_free(replica);
    }
    history_free(h);
}

FR_CASE(duplicates_of_every_record_change_nothing)
{
    struct history *h = history_of(5, 60);
    struct freshet_replica *once = replica_new(), *twice = replica_new();
    feed_ok(once, h, 0, h->n_topic);
    for (size_t i = 0; i < h->n_topic; i++) {
        struct freshet_event event;
        assert_int_equal(feed(twice, &h->topic[i], &event), FRESHET_OK);
        assert_int_equal(feed(twice, &h->topic[i], &event), FRESHET_OK);
        assert_true(event.duplicate || event.stale);
    }
    feed_ok(twice, h, 0, h->n_topic); /* and the whole topic again */
    assert_int_equal(info_of(twice).epochs_applied, 5);
    assert_true(info_of(twice).duplicates > 0);
    assert_int_equal(dump_hash(twice), dump_hash(once));
    freshet_replica_free(once);
    freshet_replica_free(twice);
    history_free(h);
}

FR_CASE(an_epoch_that_was_cut_off_and_sent_again_is_applied_once)
{
    struct history *h = history_of(1, 200);
    size_t first = h->n_topic;
    history_epoch(h, 200);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, first);
    feed_ok(replica, h, first, first + 2);
    assert_int_equal(info_of(replica).epoch, 1);
    feed_ok(replica, h, first, h->n_topic);
    assert_int_equal(info_of(replica).epoch, 2);
    assert_int_equal(info_of(replica).duplicates, 2);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(truncated_and_flipped_records_are_refused_and_leave_a_gap)
{
    struct history *h = history_of(1, 60);
    size_t first = h->n_topic;
    history_epoch(h, 60);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, first);
    uint64_t before = dump_hash(replica);
    struct topic_record *victim = &h->topic[first];
    struct freshet_event event;
    for (size_t size = 0; size < victim->size; size++) {
        assert_int_equal(freshet_replica_feed(replica, victim->partition, victim->bytes, size, &event),
                         FRESHET_E_INVALID);
        assert_int_equal(event.refused, 1);
    }
    for (size_t at = 0; at < victim->size; at++) {
        victim->bytes[at] ^= 0x10;
        assert_int_equal(feed(replica, victim, &event), FRESHET_E_INVALID);
        assert_int_equal(event.refused, 1);
        victim->bytes[at] ^= 0x10;
    }
    int status = FRESHET_OK;
    for (size_t i = first + 1; i < h->n_topic && status == FRESHET_OK; i++)
        status = feed(replica, &h->topic[i], &event);
    assert_int_equal(status, FRESHET_E_GAP);
    assert_int_equal(info_of(replica).epoch, 1);
    assert_int_equal(dump_hash(replica), before);
    freshet_replica_free(replica);
    history_free(h);
}

/* The topic from its beginning, without one of the epochs; the last status. */
static int feed_without(struct freshet_replica *replica, const struct history *h, uint64_t missing,
                        struct freshet_event *event)
{
    int status = FRESHET_OK;
    for (size_t i = 0; i < h->n_topic; i++)
        if (h->topic[i].epoch != missing)
            status = feed(replica, &h->topic[i], event);
    return status;
}

FR_CASE(a_missing_epoch_is_a_gap_until_the_topic_is_read_again_and_has_it)
{
    struct history *h = history_of(4, 30);
    struct freshet_replica *replica = replica_new();
    struct freshet_event event = {0};
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(feed_without(replica, h, 3, &event), FRESHET_E_GAP);
        assert_int_equal(event.refused, 1);
        assert_non_null(strstr(event.problem, "gap"));
        assert_int_equal(info_of(replica).epoch, 2);
    }
    for (size_t i = 0; i < h->n_topic; i++)
        if (h->topic[i].epoch > 1) /* the beginning is not among them */
            assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_E_GAP);
    assert_int_equal(feed_without(replica, h, 0, &event), FRESHET_OK);
    assert_int_equal(info_of(replica).epoch, 4);
    freshet_replica_free(replica);
    history_free(h);
}

/* The beginning of the topic was deleted, so the replica waits for an epoch that is merged from the
 * first. */
FR_CASE(a_topic_that_begins_later_is_passed_over)
{
    struct history *h = history_of(3, 30);
    struct freshet_replica *replica = replica_new();
    struct freshet_event event;
    for (size_t i = 0; i < h->n_topic; i++)
        if (h->topic[i].epoch > 1) {
            assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_OK);
            assert_true(event.stale);
        }
    uint64_t hash;
    assert_int_equal(freshet_replica_dump(replica, discard, NULL, &hash), FRESHET_E_NOT_READY);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(every_single_missing_piece_is_a_gap)
{
    struct history *h = history_of(2, 120);
    for (size_t missing = 0; missing < h->n_topic; missing++) {
        struct freshet_replica *replica = replica_new();
        struct freshet_event event;
        int status = FRESHET_OK;
        for (size_t i = 0; i < h->n_topic && status == FRESHET_OK; i++)
            if (i != missing)
                status = feed(replica, &h->topic[i], &event);
        if (missing + 1 < h->n_topic && h->topic[missing].epoch == 2 &&
            h->topic[missing].partition != h->topic[missing + 1].partition)
            /* this is the last commit of a partition, so no later record reveals the loss */
            assert_int_equal(info_of(replica).epoch, 1);
        else if (missing + 1 < h->n_topic && !begins(&h->topic[missing]))
            assert_int_equal(status, FRESHET_E_GAP);
        assert_true(info_of(replica).epoch < h->topic[missing].epoch);
        freshet_replica_free(replica);
    }
    history_free(h);
}

FR_CASE(a_replica_of_some_partitions_needs_only_those_and_partition_0)
{
    struct history *h = history_of(6, 100);
    uint32_t two[] = {2};
    struct freshet_replica *replica = NULL;
    assert_int_equal(
        freshet_replica_new(&(struct freshet_replica_options){.partitions = two, .n_partitions = 1}, &replica),
        FRESHET_OK);
    for (size_t i = 0; i < h->n_topic; i++)
        if (h->topic[i].partition != 1)
            feed_ok(replica, h, i, i + 1);
    assert_int_equal(info_of(replica).epoch, 6);
    assert_int_equal(info_of(replica).scorable, 1);
    for (int t = 0; t < 2; t++)
        for (int k = 0; k < KEYS; k++) {
            float row[3];
            uint32_t dim = 3;
            bool ours = fr_delta_partition(key_of(t, k), PARTITIONS) != 1;
            assert_int_equal(freshet_replica_row(replica, t ? "item" : "user", "v", key_of(t, k), row, &dim),
                             h->present[t][k] && ours ? FRESHET_OK : FRESHET_E_NOT_FOUND);
        }
    struct freshet_event event;
    for (size_t i = 0; i < h->n_topic; i++)
        if (h->topic[i].partition == 1) {
            assert_int_equal(feed(replica, &h->topic[i], &event), FRESHET_OK);
            assert_int_equal(event.stale, 1);
        }
    freshet_replica_free(replica);
    uint32_t nine[] = {9};
    assert_int_equal(
        freshet_replica_new(&(struct freshet_replica_options){.partitions = nine, .n_partitions = 1}, &replica),
        FRESHET_OK);
    assert_int_equal(feed(replica, &h->topic[0], &event), FRESHET_E_INVALID);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(partitions_that_run_ahead_are_held_off_until_the_others_follow)
{
    struct history *h = history_of(40, 60);
    struct freshet_replica *replica = NULL, *plain = replica_new();
    assert_int_equal(freshet_replica_new(&(struct freshet_replica_options){.staging_max = 20000}, &replica),
                     FRESHET_OK);
    size_t at[PARTITIONS] = {0}, held_off = 0;
    for (bool more = true; more;) { /* each partition as far as it may */
        more = false;
        for (uint32_t p = 0; p < PARTITIONS; p++)
            for (; at[p] < h->n_topic; at[p]++) {
                struct freshet_event event;
                if (h->topic[at[p]].partition != p)
                    continue;
                int status = feed(replica, &h->topic[at[p]], &event);
                if (status == FRESHET_AGAIN) {
                    held_off++;
                    break;
                }
                assert_int_equal(status, FRESHET_OK);
                more = true;
            }
    }
    assert_true(held_off > 0);
    assert_int_equal(info_of(replica).epoch, 40);
    feed_ok(plain, h, 0, h->n_topic);
    assert_int_equal(dump_hash(replica), dump_hash(plain));
    freshet_replica_free(replica);
    freshet_replica_free(plain);
    history_free(h);
}

FR_CASE(damaged_records_with_a_fitting_crc_never_break_the_replica)
{
    struct history *h = history_of(2, 40);
    size_t stopped = 0;
    for (uint64_t round = 0; round < 1500; round++) {
        struct freshet_replica *replica = replica_new();
        size_t victim = draw(h) % h->n_topic;
        struct topic_record *record = &h->topic[victim];
        size_t at = draw(h) % (record->size - 9);
        uint8_t kept = record->bytes[at];
        record->bytes[at] = (uint8_t)draw(h);
        fit_crc(record);
        bool bad = false;
        for (size_t i = 0; i < h->n_topic; i++)
            bad |= feed(replica, &h->topic[i], NULL) != FRESHET_OK;
        stopped += bad;
        record->bytes[at] = kept;
        fit_crc(record);
        freshet_replica_free(replica);
    }
    assert_true(stopped > 100);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_replica_holds_exactly_what_the_writer_published),
        cmocka_unit_test(partitions_may_arrive_in_any_interleaving),
        cmocka_unit_test(duplicates_of_every_record_change_nothing),
        cmocka_unit_test(an_epoch_that_was_cut_off_and_sent_again_is_applied_once),
        cmocka_unit_test(truncated_and_flipped_records_are_refused_and_leave_a_gap),
        cmocka_unit_test(a_missing_epoch_is_a_gap_until_the_topic_is_read_again_and_has_it),
        cmocka_unit_test(a_topic_that_begins_later_is_passed_over),
        cmocka_unit_test(every_single_missing_piece_is_a_gap),
        cmocka_unit_test(a_replica_of_some_partitions_needs_only_those_and_partition_0),
        cmocka_unit_test(partitions_that_run_ahead_are_held_off_until_the_others_follow),
        cmocka_unit_test(damaged_records_with_a_fitting_crc_never_break_the_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
