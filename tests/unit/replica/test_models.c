/* The replica's rules for records of another model, fingerprint, form, partition or version. */
#include "history.h"

/* The configuration with another limit: another fingerprint, the same parts. */
static char changed_cfg[sizeof(model_cfg)];

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_fingerprint_needs_its_model_record),
        cmocka_unit_test(an_epoch_that_does_not_fit_the_model_is_refused_whole),
        cmocka_unit_test(records_of_other_models_partitions_or_versions_stop_or_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
