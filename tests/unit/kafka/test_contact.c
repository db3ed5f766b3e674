/* When contact with the brokers counts as lost: answers are stepped with clocks of their own. */
#include "case.h"

#include "kafka/contact.h"

enum { FETCH = 1, METADATA = 3, VERSIONS = 18, WAIT_MS = 50, SIZE = 20000, SLOW_MS = SIZE / FR_KAFKA_CONTACT_BYTES_MS };

static struct fr_kafka_contact_time now;

static void pass(int64_t ms)
{
    now.boot_ns += (uint64_t)ms * 1000000;
    now.wall_ms += ms;
}

static struct fr_kafka_contact *made(void)
{
    now = (struct fr_kafka_contact_time){1000000000, 1700000000000};
    struct fr_kafka_contact *contact = fr_kafka_contact_new(now);
    fr_kafka_contact_set_wait(contact, WAIT_MS);
    return contact;
}

static void answer_late(struct fr_kafka_contact *contact, const char *broker, int api_key, int64_t rtt_ms)
{
    const struct fr_kafka_contact_answer answer = {broker, api_key, SIZE, rtt_ms * 1000, now};
    fr_kafka_contact_heard(contact, &answer);
}

static void answer(struct fr_kafka_contact *contact, const char *broker, int api_key)
{
    answer_late(contact, broker, api_key, WAIT_MS);
}

static void expect(struct fr_kafka_contact *contact, uint64_t gaps, uint64_t connections)
{
    struct fr_kafka_contact_count count = fr_kafka_contact_count(contact);
    assert_int_equal(count.gaps, gaps);
    assert_int_equal(count.connections, connections);
}

FR_CASE(answers_that_follow_each_other_are_no_gap)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/bootstrap", VERSIONS);
    answer(contact, "GroupCoordinator", VERSIONS);
    for (int i = 0; i < 100; i++) {
        answer(contact, "a/1", FETCH);
        answer(contact, "a/1", METADATA);
        pass(i % 2 ? WAIT_MS : FR_KAFKA_CONTACT_FETCH_MS);
    }
    expect(contact, 0, 0);
    fr_kafka_contact_free(contact);
}

FR_CASE(a_broker_that_was_silent_or_answers_late_is_a_gap)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/1", FETCH);
    answer(contact, "b/2", FETCH);
    for (int i = 0; i < 4; i++) {
        pass(1000);
        answer(contact, "b/2", FETCH);
    }
    expect(contact, 0, 0);
    answer(contact, "a/1", FETCH); /* 4 s after the one before */
    expect(contact, 1, 0);
    answer(contact, "a/1", FETCH);
    expect(contact, 1, 0);
    answer_late(contact, "a/1", METADATA, 5000);
    answer_late(contact, "a/1", FETCH, WAIT_MS + SLOW_MS + FR_KAFKA_CONTACT_SILENCE_MS);
    expect(contact, 1, 0);
    answer_late(contact, "a/1", FETCH, WAIT_MS + SLOW_MS + FR_KAFKA_CONTACT_SILENCE_MS + 1);
    expect(contact, 2, 0);
    fr_kafka_contact_free(contact);
}

FR_CASE(either_clock_shows_a_stall)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/1", FETCH);
    now.boot_ns += 10000000000;
    answer(contact, "a/1", FETCH);
    expect(contact, 1, 0);
    now.wall_ms += 10000; /* a virtual machine was paused, and its clock is corrected */
    answer(contact, "a/1", FETCH);
    expect(contact, 2, 0);
    now.wall_ms -= 100000;
    answer(contact, "a/1", FETCH);
    expect(contact, 2, 0);
    fr_kafka_contact_free(contact);
}

FR_CASE(another_connection_counts_with_its_first_records)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/1", FETCH);
    answer(contact, "a/1", VERSIONS);
    answer(contact, "GroupCoordinator", VERSIONS);
    expect(contact, 0, 0);
    answer(contact, "a/1", FETCH);
    answer(contact, "a/1", FETCH);
    expect(contact, 0, 1);
    fr_kafka_contact_free(contact);
}

FR_CASE(a_broker_that_is_heard_first_is_timed_from_the_beginning)
{
    struct fr_kafka_contact *contact = made();
    pass(WAIT_MS + SLOW_MS + FR_KAFKA_CONTACT_FETCH_MS);
    answer(contact, "a/1", FETCH);
    expect(contact, 0, 0);
    pass(1);
    answer(contact, "b/2", FETCH);
    expect(contact, 1, 0);
    fr_kafka_contact_free(contact);
}

FR_CASE(what_the_client_asks_about_topics_is_counted_once_it_fetched)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/bootstrap", METADATA);
    answer(contact, "a/1", METADATA);
    assert_int_equal(fr_kafka_contact_count(contact).metadata, 0);
    answer(contact, "a/1", FETCH);
    answer(contact, "b/2", METADATA);
    assert_int_equal(fr_kafka_contact_count(contact).metadata, 1);
    expect(contact, 0, 0);
    fr_kafka_contact_free(contact);
}

FR_CASE(a_check_ends_a_silence_but_not_a_lost_connection)
{
    struct fr_kafka_contact *contact = made();
    answer(contact, "a/1", FETCH);
    pass(10000); /* nothing is fetched while partitions are asked about */
    fr_kafka_contact_checked(contact, now);
    answer(contact, "a/1", FETCH);
    answer(contact, "b/2", FETCH);
    expect(contact, 0, 0);
    answer(contact, "a/1", VERSIONS);
    fr_kafka_contact_checked(contact, now);
    answer(contact, "a/1", FETCH);
    expect(contact, 0, 1);
    fr_kafka_contact_free(contact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_that_follow_each_other_are_no_gap),
        cmocka_unit_test(a_broker_that_was_silent_or_answers_late_is_a_gap),
        cmocka_unit_test(either_clock_shows_a_stall),
        cmocka_unit_test(another_connection_counts_with_its_first_records),
        cmocka_unit_test(a_broker_that_is_heard_first_is_timed_from_the_beginning),
        cmocka_unit_test(what_the_client_asks_about_topics_is_counted_once_it_fetched),
        cmocka_unit_test(a_check_ends_a_silence_but_not_a_lost_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
