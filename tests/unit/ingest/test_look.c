/* The minute's look at the logs' identity with more partitions than one look takes: each is asked
 * about once a minute, some at a time, and one that was made again is found. */
#define FR_TEST_LOG_PARTITIONS 600
#define FR_TEST_LOG_RECORDS 64
#include "fixture.h"

enum { LOOK_PARTITIONS = 256, MINUTE_MS = 60000, STEP_MS = 500 };

static struct {
    uint32_t times, most; /* questions about records, and answers of the largest one */
    uint32_t of[LOG_PARTITIONS];
} asked;

static enum fr_status count_marks(void *self, struct fr_source_answer *answers, uint32_t n, struct fr_err *err)
{
    asked.times++;
    asked.most = n > asked.most ? n : asked.most;
    for (uint32_t i = 0; i < n; i++)
        asked.of[answers[i].partition]++;
    return log_marks(self, answers, n, err);
}

/* A record of each partition is in effect, and the first look at each has noted it. */
static struct service *reading(const char *ingest)
{
    struct service *s = service_new(ingest, LOG_PARTITIONS);
    s->source.marks = count_marks;
    for (uint32_t p = 0; p < LOG_PARTITIONS; p++)
        append(&s->log, p, 1);
    service_serve(s);
    for (int ms = 0; ms < 2 * MINUTE_MS; ms += STEP_MS) {
        fr_clock_fake_advance_ms(&s->clock, STEP_MS);
        service_run(s);
    }
    memset(&asked, 0, sizeof(asked));
    return s;
}

FR_CASE(each_of_many_partitions_is_looked_at_once_a_minute_some_at_a_time)
{
    struct service *s = reading(", batch_size: 1, batch_wait: 20ms");
    for (int ms = 0; ms < 2 * MINUTE_MS; ms += STEP_MS) {
        fr_clock_fake_advance_ms(&s->clock, STEP_MS);
        service_run(s);
    }
    assert_int_equal(asked.most, LOOK_PARTITIONS);
    assert_int_equal(asked.times, 6);
    for (uint32_t p = 0; p < LOG_PARTITIONS; p++)
        assert_int_equal(asked.of[p], 2);
}

FR_CASE(a_log_made_again_among_many_is_found_within_a_minute)
{
    static const uint32_t places[] = {0, 255, 256, 511, 512, LOG_PARTITIONS - 1};
    for (size_t i = 0; i < FR_ARRAY_LEN(places); i++) {
        struct service *s = reading(", batch_size: 1, batch_wait: 20ms");
        char text[64];
        s->log.partitions[places[i]].records[0].timestamp_ms += 1000; /* another record */
        enum fr_status status = FR_OK;
        for (int ms = 0; ms <= MINUTE_MS && status >= 0; ms += STEP_MS) {
            fr_clock_fake_advance_ms(&s->clock, STEP_MS);
            status = service_step(s, RING);
        }
        assert_int_equal(status, FR_E_MISMATCH);
        snprintf(text, sizeof(text), "samples/%u: the record at offset 0 is not", places[i]);
        assert_non_null(strstr(s->err.text, text));
        service_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(each_of_many_partitions_is_looked_at_once_a_minute_some_at_a_time),
        SERVICE_CASE(a_log_made_again_among_many_is_found_within_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
