/* What the publisher's tests share: the state and the publisher of a case, its topic, and what the
 * daemon does with it. */
#ifndef EXPORTER_PUBLISHER_FIXTURE_H
#define EXPORTER_PUBLISHER_FIXTURE_H

#include "case.h"

#include "exporter/publisher.h"
#include "fixture.h"

enum { STEP_MS = 50 };

/* What a case has: a topic, a durable state, and the newest publisher. */
static const char *brokers;
static char topic[64];
static struct fixture f;
static struct fr_publisher *publisher;
static struct fr_publisher_status status;
static struct fr_err err;

FR_FIXTURE(close_state)
{
    fr_publisher_free(publisher);
    publisher = NULL;
    fixture_close(&f);
    return 0;
}

/* Makes a publisher in place of the previous one, as after a restart. It has the case's state and
 * topic unless `options` names others. */
static inline void make_publisher(struct fr_publisher_options options)
{
    options.durable = options.durable ? options.durable : f.durable;
    options.topic = options.topic ? options.topic : topic;
    options.clock = fr_clock_system();
    options.model = "ctr";
    options.brokers = brokers;
    options.partitions = FIXTURE_PARTITIONS;
    fr_publisher_free(publisher);
    publisher = NULL;
    assert_int_equal(fr_publisher_new(&options, &publisher, &err), FR_OK);
}

/* Repeats the check while the broker does not answer, as the daemon does. */
static inline enum fr_status check_until_answered(void)
{
    enum fr_status checked = FR_E_UNAVAILABLE;
    FR_UNTIL (checked != FR_E_UNAVAILABLE)
        checked = fr_publisher_check(publisher, &err);
    fr_publisher_get_status(publisher, &status);
    return checked;
}

static inline void check_ok(void)
{
    if (check_until_answered() != FR_OK)
        fail_msg("%s", err.text);
}

/* Offers all that is durable, as the daemon does when nothing is held back. */
static inline void offer_all(void)
{
    struct fr_durable_status durable;
    fr_durable_get_status(f.durable, &durable);
    fr_publisher_offer(publisher, durable.epoch);
}

/* Steps until `acked` is acknowledged, and notes it in the journal, as the daemon does. */
static inline void step_until(uint64_t acked)
{
    FR_UNTIL (status.acked >= acked) {
        enum fr_status result = fr_publisher_step(publisher, STEP_MS, &err);
        if (result != FR_OK && result != FR_E_UNAVAILABLE)
            fail_msg("%s", err.text);
        fr_publisher_get_status(publisher, &status);
        assert_true(status.acked <= status.sent);
    }
    assert_int_equal(status.acked, acked);
    assert_int_equal(fr_durable_acknowledge(f.durable, acked, &err), FR_OK);
}

static inline void append(struct fixture *to, int rows)
{
    assert_int_equal(fixture_append(to, rows, 1700000000000, &err), FR_OK);
}

#endif
