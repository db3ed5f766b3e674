/* The Kafka clients of ingest: each has what all clients have. No broker is asked. */
#include "recorded_clients.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "ingest/ingest.h"

FR_CASE(consumer_and_dead_letter_producer_name_the_model_and_are_back_within_a_second)
{
    char *topic = "samples";
    struct fr_conf conf = {.model = "ctr"};
    conf.ingest.brokers = "127.0.0.1:1";
    conf.ingest.topics = &topic;
    conf.ingest.n_topics = 1;
    conf.ingest.dead_letter_topic = "samples.dead";
    conf.ingest.batch_size = 8;
    struct fr_ingest *ingest = NULL;
    struct fr_ingest_options options = {.conf = &conf, .clock = fr_clock_system()};
    assert_int_equal(fr_ingest_new(&options, &ingest, NULL), FR_OK);
    expect_recorded(0, RD_KAFKA_CONSUMER, "freshet-ctr");
    expect_recorded(0, RD_KAFKA_PRODUCER, "freshet-ctr");
    fr_ingest_free(ingest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consumer_and_dead_letter_producer_name_the_model_and_are_back_within_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
