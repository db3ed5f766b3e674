/* The replica's rules: what is served is always exactly the state of one epoch, and every break of
 * the chain is reported. */
#include "history.h"

enum { EPOCHS = 30 };

/* The same with another limit: another fingerprint, the same parts. */
static char changed_cfg[sizeof(model_cfg)];

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

FR_CASE(an_unknown_fingerprint_needs_its_model_record)
{
    memcpy(changed_cfg, model_cfg, sizeof(model_cfg));
    memcpy(strstr(changed_cfg, "\"max_len\":5"), "\"max_len\":7", 11);
    struct history *h = history_of(2, 50);
    history_cfg(h, changed_cfg);
    size_t first = h->n_topic;
    struct history *without = history_of(2, 50);
    history_cfg(without, changed_cfg);
    history_change(without, 50);
    history_write(without, &(struct write_options){.model = false});
    struct freshet_replica *replica = replica_new();
    struct freshet_event event = {0};
    int status = FRESHET_OK;
    for (size_t i = 0; i < without->n_topic && status == FRESHET_OK; i++)
        status = feed(replica, &without->topic[i], &event);
    assert_int_equal(status, FRESHET_E_GAP);
    assert_non_null(strstr(event.problem, "fingerprint"));
    assert_int_equal(info_of(replica).epoch, 2);
    freshet_replica_free(replica);

    replica = replica_new();
    history_change(h, 50);
    history_write(h, &(struct write_options){.model = true});
    feed_ok(replica, h, 0, first);
    uint64_t rows = info_of(replica).rows;
    feed_ok(replica, h, first, h->n_topic);
    assert_int_equal(info_of(replica).epoch, 3);
    assert_int_equal(info_of(replica).fp, h->settings.fp);
    assert_true(info_of(replica).rows > rows / 2); /* tables of the same form keep their rows */
    freshet_replica_free(replica);

    struct history *partial = history_of(2, 50); /* a new model without its parameters */
    history_cfg(partial, changed_cfg);
    history_write(partial, &(struct write_options){.model = true, .no_dense = true});
    replica = replica_new();
    status = FRESHET_OK;
    for (size_t i = 0; i < partial->n_topic && status == FRESHET_OK; i++)
        status = feed(replica, &partial->topic[i], &event);
    assert_int_equal(status, FRESHET_E_INVALID);
    assert_non_null(strstr(event.problem, "dense parameter"));
    freshet_replica_free(replica);
    history_free(h);
    history_free(without);
    history_free(partial);
}

FR_CASE(an_epoch_that_does_not_fit_the_model_is_refused_whole)
{
    struct history *h = history_of(2, 50);
    size_t first = h->n_topic;
    strcpy(h->tables[1].parts[0].name, "q"); /* the model says w */
    history_epoch(h, 50);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, first);
    uint64_t before = dump_hash(replica);
    struct freshet_event event = {0};
    int status = FRESHET_OK;
    for (size_t i = first; i < h->n_topic && status == FRESHET_OK; i++)
        status = feed(replica, &h->topic[i], &event);
    assert_int_equal(status, FRESHET_E_INVALID);
    assert_non_null(strstr(event.problem, "parts"));
    assert_int_equal(dump_hash(replica), before);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(records_of_other_models_partitions_or_versions_stop_or_are_refused)
{
    struct history *h = history_of(1, 30), *other = history_new(0);
    struct freshet_event event;
    strcpy(other->settings.model, "ranking");
    history_epoch(other, 30);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, 1);
    assert_int_equal(feed(replica, &other->topic[1], &event), FRESHET_E_MISMATCH);
    assert_non_null(strstr(event.problem, "ranking"));
    freshet_replica_free(replica);

    assert_int_equal(freshet_replica_new(&(struct freshet_replica_options){.model = "ctr"}, &replica), FRESHET_OK);
    assert_int_equal(feed(replica, &other->topic[0], &event), FRESHET_E_MISMATCH);
    freshet_replica_free(replica);

    replica = replica_new();
    assert_int_equal(freshet_replica_feed(replica, 1, h->topic[0].bytes, h->topic[0].size, &event), FRESHET_E_INVALID);
    assert_int_equal(event.refused, 1);
    feed_ok(replica, h, 0, 1); /* no stop */
    struct topic_record *last = &h->topic[h->n_topic - 1];
    uint8_t *version = (uint8_t *)memchr(last->bytes, 'v', last->size) + 1;
    *version = 2;
    fit_crc(last);
    assert_int_equal(feed(replica, last, &event), FRESHET_E_MISMATCH);
    assert_int_equal(feed(replica, &h->topic[1], &event), FRESHET_E_MISMATCH);
    freshet_replica_free(replica);
    history_free(h);
    history_free(other);
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
        cmocka_unit_test(an_epoch_merged_from_the_first_replaces_everything),
        cmocka_unit_test(every_single_missing_piece_is_a_gap),
        cmocka_unit_test(a_second_writer_is_recognized_by_its_digest),
        cmocka_unit_test(an_epoch_with_another_predecessor_is_a_second_writer),
        cmocka_unit_test(older_timelines_are_ignored_and_newer_ones_name_their_snapshot),
        cmocka_unit_test(a_timeline_that_begins_with_a_merged_epoch_replaces_a_newer_epoch),
        cmocka_unit_test(a_rewind_to_nothing_starts_again_and_serves_the_old_state_meanwhile),
        cmocka_unit_test(a_replica_of_some_partitions_needs_only_those_and_partition_0),
        cmocka_unit_test(merged_epochs_apply_where_they_continue_and_are_a_gap_elsewhere),
        cmocka_unit_test(pieces_of_another_from_are_another_epochs),
        cmocka_unit_test(an_unknown_fingerprint_needs_its_model_record),
        cmocka_unit_test(an_epoch_that_does_not_fit_the_model_is_refused_whole),
        cmocka_unit_test(records_of_other_models_partitions_or_versions_stop_or_are_refused),
        cmocka_unit_test(partitions_that_run_ahead_are_held_off_until_the_others_follow),
        cmocka_unit_test(damaged_records_with_a_fitting_crc_never_break_the_replica),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
