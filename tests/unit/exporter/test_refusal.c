/* A topic that refuses records above some size (status.refused), on librdkafka's embedded
 * broker. */
#include "mock_broker.h"

enum { PRODUCE_API_KEY = 0 };

FR_FIXTURE(open_state)
{
    new_topic();
    f = (struct fixture){0};
    return fixture_open(&f, "ctr");
}

/* A restart of the broker may raise the limit; a drain that ends before that was waiting for the
 * broker. */
FR_CASE(a_refusal_is_the_reason_until_something_else_is)
{
    append(&f, 20);
    make_publisher((struct fr_publisher_options){.create = true}); /* one request at a time */
    check_ok();
    offer_all();
    for (int i = 0; i < 20; i++)
        rd_kafka_mock_push_request_errors(cluster, PRODUCE_API_KEY, 1, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    FR_UNTIL (status.refused[0]) {
        (void)!fr_publisher_step(publisher, STEP_MS, &err);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(rd_kafka_mock_broker_set_down(cluster, 1), 0);
    FR_UNTIL (!status.refused[0]) {
        (void)!fr_publisher_step(publisher, STEP_MS, &err);
        fr_publisher_get_status(publisher, &status);
    }
    assert_int_equal(status.acked, 0);
    assert_string_not_equal(status.problem, "");
    rd_kafka_mock_clear_request_errors(cluster, PRODUCE_API_KEY);
    assert_int_equal(rd_kafka_mock_broker_set_up(cluster, 1), 0);
    step_until(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refusal_is_the_reason_until_something_else_is, open_state, close_state),
    };
    return cmocka_run_group_tests(tests, start_broker, stop_broker);
}
