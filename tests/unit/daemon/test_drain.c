/* The message of a drain whose time is over: it names what the drain waits for, and nothing
 * else. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service.h"

struct world {
    struct fr_service service;
    struct fr_conf conf;
    struct fr_publisher_status publisher;
    char problem[200]; /* of ingest */
    struct fr_err err;
};

static struct world *w;

void __wrap_fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out);
void __wrap_fr_publisher_get_status(struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    (void)publisher;
    *out = w->publisher;
}

void __wrap_fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out);
void __wrap_fr_ingest_get_status(struct fr_ingest *ingest, struct fr_ingest_status *out)
{
    (void)ingest;
    *out = (struct fr_ingest_status){0};
    snprintf(out->problem, sizeof(out->problem), "%s", w->problem);
}

FR_FIXTURE(begin)
{
    w = calloc(1, sizeof(*w));
    if (!w)
        return -1;
    w->service.conf = &w->conf;
    w->conf.state_dir = "/state";
    w->conf.ingest.brokers = "kafka:9092";
    w->conf.export_.topic = "m.delta";
    w->conf.snapshot.dir = "/state/snapshots";
    fr_service_wire(&w->service);
    atomic_store(&w->service.loops.durable.shared.epoch, 7);
    atomic_store(&w->service.loops.durable.shared.publishable, 7);
    w->publisher.acked = 7;
    return 0;
}

FR_FIXTURE(end)
{
    fr_loops_release(&w->service.loops);
    fr_lifecycle_release(&w->service.life);
    free(w);
    return 0;
}

static void expect(enum fr_status status, const char *text, const char *not_in_it)
{
    assert_int_equal(fr_service_drain_timed_out(&w->service, &w->err), status);
    if (!strstr(w->err.text, text) || (not_in_it && strstr(w->err.text, not_in_it)))
        fail_msg("%s", w->err.text);
}

FR_CASE(what_an_epoch_waits_for_is_said_while_it_is_not_durable)
{
    expect(FR_E_UNAVAILABLE, "before epoch 8 was durable: it waits for its last batch;", "m.delta");
    atomic_store(&w->service.loops.threads[FR_LOOP_TRAINER].done, true);
    atomic_store(&w->service.loops.durable.shared.waiting_cut_ns, 1);
    atomic_store(&w->service.loops.durable.shared.waits_for, "dead letters to be acknowledged");
    strcpy(w->problem, "dead-letter topic m.dead: Broker: Unknown topic");
    expect(
        FR_E_UNAVAILABLE,
        "before epoch 8 was durable: it waits for dead letters to be acknowledged (dead-letter topic m.dead: Broker: "
        "Unknown topic); nothing is lost: the next start reads its records again",
        "m.delta");
    w->problem[0] = 0;
    atomic_store(&w->service.loops.durable.shared.waits_for, NULL);
    expect(FR_E_UNAVAILABLE, "it waits for the disk under state_dir;", "m.delta");
}

static void end_loops(void)
{
    atomic_store(&w->service.loops.threads[FR_LOOP_TRAINER].done, true);
    atomic_store(&w->service.loops.threads[FR_LOOP_DURABLE].done, true);
}

FR_CASE(the_delta_topic_is_named_while_epochs_are_not_on_it)
{
    end_loops();
    w->publisher.acked = 5;
    strcpy(w->publisher.problem, "no leader");
    expect(FR_E_UNAVAILABLE, "epoch 7 durable and 5 acknowledged on m.delta (no leader)", NULL);
    strcpy(w->publisher.refused, "set max.message.bytes to 2000");
    expect(FR_E_MISMATCH, "on m.delta: set max.message.bytes to 2000, then start again", NULL);
}

FR_CASE(without_brokers_nothing_is_said_of_a_topic)
{
    end_loops();
    w->conf.snapshot.at_drain = true;
    expect(FR_E_UNAVAILABLE, "Every epoch is published and nothing is lost, but CURRENT names no snapshot", NULL);
    w->conf.ingest.brokers = NULL;
    expect(FR_E_UNAVAILABLE, "Every epoch is durable and nothing is lost, but CURRENT names no snapshot", "m.delta");
    expect(FR_E_UNAVAILABLE, "`freshet snapshot --state-dir /state --dir /state/snapshots", "publish");
    w->conf.savepoint.at_drain = true;
    expect(FR_E_UNAVAILABLE, "every epoch is durable and nothing is lost: take it now with `freshet savepoint",
           "publish");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_an_epoch_waits_for_is_said_while_it_is_not_durable, begin, end),
        cmocka_unit_test_setup_teardown(the_delta_topic_is_named_while_epochs_are_not_on_it, begin, end),
        cmocka_unit_test_setup_teardown(without_brokers_nothing_is_said_of_a_topic, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
