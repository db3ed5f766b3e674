/* The documents, to the byte: what /status, /auc and /readyz say of scripted modules is on record
 * in tests/golden/documents.jsonl, a line each. With FR_UPDATE set in the environment the file is
 * written instead. */
#include "case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "documents.h"
#include "fake_clock.h"
#include "service.h"

enum { DOCUMENTS = 3 };
static const char *const paths[DOCUMENTS] = {"/auc", "/status", "/readyz"};

struct world {
    struct fr_service service;
    struct fr_clock_fake clock;
    struct fr_conf conf;
    struct fr_trainer_status trainer;
    struct fr_ingest_status ingest;
    struct fr_ingest_partition partitions[2];
    struct fr_publisher_status publisher;
    struct fr_durable_status durable;
    struct fr_replicas_status replicas;
    struct fr_buffer bodies[DOCUMENTS];
    int codes[DOCUMENTS];
    const char *reasons[4][2]; /* of /healthz: source, text */
    size_t n_reasons;
};

static struct world *w;

/* ---- the modules ---- */

#define WRAP(type, name, ...)                                                                                          \
    type __wrap_##name(__VA_ARGS__);                                                                                   \
    type __wrap_##name(__VA_ARGS__)

WRAP(void, fr_trainer_get_status, struct fr_trainer *trainer, struct fr_trainer_status *out)
{
    (void)trainer;
    *out = w->trainer;
}

WRAP(void, fr_ingest_get_status, struct fr_ingest *ingest, struct fr_ingest_status *out)
{
    (void)ingest;
    *out = w->ingest;
    out->partitions = fr_alloc(FR_ARRAY_LEN(w->partitions), sizeof(*out->partitions));
    memcpy(out->partitions, w->partitions, sizeof(w->partitions));
    out->present = fr_alloc(1, sizeof(*out->present));
}

WRAP(void, fr_publisher_get_status, struct fr_publisher *publisher, struct fr_publisher_status *out)
{
    (void)publisher;
    *out = w->publisher;
}

WRAP(void, fr_durable_get_status, struct fr_durable *durable, struct fr_durable_status *out)
{
    (void)durable;
    *out = w->durable;
}

WRAP(void, fr_replicas_get_status, struct fr_replicas *replicas, struct fr_replicas_status *out)
{
    (void)replicas;
    *out = w->replicas;
}

WRAP(uint64_t, fr_durable_span, struct fr_durable *durable, uint64_t from, uint64_t to, uint64_t most, uint64_t *last)
{
    (void)durable, (void)most, (void)last;
    return to >= from ? 1000 * (to - from + 1) : 0;
}

WRAP(const char *, fr_trainer_kernel, const struct fr_trainer *trainer)
{
    (void)trainer;
    return "avx2";
}

WRAP(void, fr_http_reason, struct fr_http *http, const char *source, const char *text)
{
    (void)http, (void)source, (void)text;
}

WRAP(void, fr_http_visit_problems, struct fr_http *http,
     void (*visit)(void *self, const char *source, const char *text), void *self)
{
    (void)http;
    for (size_t i = 0; i < w->n_reasons; i++)
        visit(self, w->reasons[i][0], w->reasons[i][1]);
}

WRAP(void, fr_http_publish, struct fr_http *http, const char *path, int status, const char *content_type,
     const void *body, size_t size)
{
    (void)http;
    assert_string_equal(content_type, "application/json");
    for (size_t i = 0; i < DOCUMENTS; i++) {
        if (strcmp(paths[i], path) != 0)
            continue;
        fr_buffer_clear(&w->bodies[i]);
        fr_buffer_append(&w->bodies[i], body, size);
        fr_buffer_terminate(&w->bodies[i]);
        w->codes[i] = status;
    }
}

/* ---- the scene ---- */

FR_FIXTURE(open_world)
{
    w = fr_alloc(1, sizeof(*w));
    fr_clock_fake_init(&w->clock, 1767225600000);
    w->clock.mono_ns = 1000000000;
    snprintf(w->conf.model, sizeof(w->conf.model), "ctr");
    w->conf.state_dir = (char *)"/tmp";
    w->conf.memory_limit = 4096;
    w->conf.ingest.ready_lag_ms = 30000;
    w->conf.metrics.n_half_lives = 1;
    snprintf(w->conf.metrics.half_life_name[0], sizeof(w->conf.metrics.half_life_name[0]), "1h");
    struct fr_service *service = &w->service;
    service->conf = &w->conf;
    service->clock = &w->clock.clock;
    service->registry = fr_registry_new("ctr");
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    service->documents = fr_documents_new();
    fr_service_wire(service);
    w->trainer.history.watermark_ms = INT64_MIN;
    w->trainer.run.last_loss = NAN;
    return 0;
}

FR_FIXTURE(close_world)
{
    struct fr_service *service = &w->service;
    for (size_t i = 0; i < DOCUMENTS; i++)
        fr_buffer_release(&w->bodies[i]);
    fr_documents_free(service->documents);
    fr_freshness_free(service->freshness);
    fr_registry_free(service->registry);
    fr_loops_release(&service->loops);
    fr_lifecycle_release(&service->life);
    free(w);
    return 0;
}

/* Makes all modules, each with something to report. */
static void run_service(void)
{
    struct fr_service *service = &w->service;
    static char modules[4]; /* the modules are scripted; only addresses count */
    service->trainer = (struct fr_trainer *)&modules[0];
    service->ingest = (struct fr_ingest *)&modules[1];
    service->publisher = (struct fr_publisher *)&modules[2];
    service->durable = (struct fr_durable *)&modules[3];
    atomic_store(&service->life.phase, FR_PHASE_RUNNING);
    atomic_store(&service->loops.ingest.shared.started, true);
    w->ingest.n_partitions = 2;
    w->ingest.connected = true;
    for (int i = 0; i < 2; i++) {
        snprintf(w->partitions[i].topic, sizeof(w->partitions[i].topic), "samples");
        w->partitions[i].partition = i;
        w->partitions[i].high = 700;
    }
}

static void count_training(void)
{
    struct fr_trainer_status *trainer = &w->trainer;
    for (size_t i = 0; i < FR_TRAINER_COUNTER_COUNT; i++)
        trainer->history.counters[i] = 100 + i;
    trainer->history.watermark_ms = 1767225599000;
    trainer->history.publishable = 8;
    trainer->history.held = true;
    trainer->epoch = 9;
    trainer->run.last_loss = 0.6931471805;
    trainer->run.step_ns = 1500000000;
    trainer->run.plan_ns = 250000000;
    trainer->run.cut_ns = 1;
    trainer->run.quarantined_records = 3;
    trainer->store_bytes = 2048;
    trainer->dirty_bytes = 64;
    trainer->n_tables = trainer->history.n_tasks = 2;
    for (uint32_t i = 0; i < 2; i++) {
        struct fr_store_table_stats *stats = &trainer->tables[i].stats;
        snprintf(trainer->tables[i].name, FR_NAME_MAX, "%s", i ? "item" : "user");
        stats->counts.rows = 40 + i;
        stats->counts.pending = 5;
        stats->counts.admitted = 50;
        stats->counts.rejected = 7;
        stats->counts.forgotten = 2;
        stats->counts.unremembered = 1;
        stats->counts.expired[FR_ABSENT_IDLE] = 3;
        stats->counts.expired[FR_ABSENT_CAPACITY] = 4;
        stats->resident = 44;
        stats->evictions = 6;
        stats->bytes = 1024;
        struct fr_task_result *result = &trainer->tasks[i].result;
        snprintf(trainer->history.tasks[i].name, FR_NAME_MAX, "%s", i ? "price" : "click");
        trainer->history.tasks[i].samples = 90;
        trainer->history.tasks[i].pairs = i;
        snprintf(trainer->tasks[i].problem, sizeof(trainer->tasks[i].problem), "%s", i ? "no label \"price\"" : "");
        result->n_half_lives = 1;
        result->regression = i == 1;
        result->has_gauc = i == 0;
        result->decayed[0].auc = 0.75;
        result->decayed[0].logloss = NAN;
        result->lifetime.weight = 100;
        result->served.weight = 2 * i;
        result->gauc.groups = 12;
    }
}

static void count_stream(void)
{
    struct fr_ingest_status *ingest = &w->ingest;
    ingest->records = 500;
    ingest->bytes = 12345;
    ingest->malformed = 2;
    ingest->future_timestamp = 1;
    ingest->dead_sent = 2;
    ingest->lag_ms = 140;
    ingest->malformed_kinds[1] = 2;
    ingest->malformed_share = 0.004;
    snprintf(ingest->last_malformed.topic, sizeof(ingest->last_malformed.topic), "samples");
    ingest->last_malformed.offset = 77;
    ingest->last_malformed.kind = (enum fr_malformed)1;
    snprintf(ingest->last_malformed.reason, sizeof(ingest->last_malformed.reason), "a \"quoted\" reason\n");
    ingest->unknown.slots.n = 2;
    snprintf(ingest->unknown.slots.names[0], sizeof(ingest->unknown.slots.names[0]), "colour");
    snprintf(ingest->unknown.slots.names[1], sizeof(ingest->unknown.slots.names[1]), "si\"ze");
    ingest->unknown.slots.counts[0] = 9;
    ingest->unknown.slots.counts[1] = 8;
    ingest->unknown.slots.counts[FR_UNKNOWN_OTHERS] = 3;
    w->partitions[1].waits = true;
    w->partitions[1].transaction_ms = 1500;
    struct fr_positions positions = {0};
    uint32_t at = fr_positions_index(&positions, "samples", 0);
    positions.partitions[at].offset = 500;
    positions.partitions[at].item = 2;
    for (size_t k = 0; k < FR_LEDGER_TERMS; k++)
        positions.partitions[at].ledger[k] = 10 * k;
    positions.partitions[at].n_skips = 2;
    positions.partitions[at].skips[0] = (struct fr_skip){5, 9};
    positions.partitions[at].skips[1] = (struct fr_skip){20, 29};
    fr_shared_durable_set_positions(&w->service.loops.durable.shared, &positions);
    fr_positions_release(&positions);
}

static void count_epochs(void)
{
    struct fr_shared_durable *durable = &w->service.loops.durable.shared;
    w->durable = (struct fr_durable_status){.timeline = 2,
                                            .epoch = 8,
                                            .folded = 6,
                                            .folding = true,
                                            .journal_bytes = 900,
                                            .unfolded_bytes = 200,
                                            .journal_first = 3};
    w->publisher = (struct fr_publisher_status){.sent = 8, .acked = 7, .records = 30, .bytes = 3000, .strays = 1};
    w->publisher.backlog.merges = 1;
    w->publisher.topic.begin = 2;
    w->publisher.topic.looked_ms = 1767225590000;
    snprintf(w->publisher.problem, sizeof(w->publisher.problem), "broker \"b1\" is away");
    atomic_store(&durable->appends, 8);
    atomic_store(&durable->image_bytes, 8000);
    atomic_store(&durable->append_ns, 4000000);
    atomic_store(&durable->cut_to_durable_ns, 3000000);
    fr_shared_snapshots_set_current(&w->service.loops.snapshot.shared, "ctr-2-6", 6);
    fr_shared_snapshots_announce(&w->service.loops.snapshot.shared, &(struct fr_announced_snapshot){.name = "ctr-2-5"});
    atomic_store(&w->service.loops.snapshot.shared.taken, 4);
    snprintf(w->service.device.name, sizeof(w->service.device.name), "cpu");
    snprintf(w->service.device.reason, sizeof(w->service.device.reason), "no \"card\"");
}

/* Two replicas are listed of three: one follows an older timeline, and one has said the least. */
static void count_replicas(void)
{
    static char module;
    struct fr_replicas_status *replicas = &w->replicas;
    w->service.replicas = (struct fr_replicas *)&module;
    w->conf.export_.acknowledgement_topic = (char *)"ctr.ack";
    replicas->count = 3;
    replicas->silent = replicas->left = replicas->forgotten = 1;
    replicas->dropped = 2;
    replicas->records = 40;
    replicas->refused[FR_REPLICA_REFUSED_AHEAD] = 5;
    replicas->n_listed = 2;
    struct fr_acknowledgement *first = &replicas->listed[0].said, *second = &replicas->listed[1].said;
    *first = (struct fr_acknowledgement){.name = "pod \"1\"\xe2\x98\x83",
                                         .timeline = 1,
                                         .epoch = 12,
                                         .cut_ms = 1767225589000,
                                         .watermark_ms = 1767225588500,
                                         .rows = 70,
                                         .has_rows = true,
                                         .scores_per_second = 2.5,
                                         .has_scores = true,
                                         .problem = "no broker\n"};
    replicas->listed[0].silence_ms = 31000;
    replicas->listed[0].silent = true;
    *second = (struct fr_acknowledgement){.name = "pod-2", .timeline = 2, .epoch = 5};
}

/* ---- documents on record ---- */

/* The version is the only text that changes from release to release. */
static void put_body(const struct fr_buffer *body, struct fr_buffer *out)
{
    const char *text = (const char *)body->data, *version = strstr(text, "\"" FR_VERSION "\"");
    if (version) {
        fr_buffer_append(out, text, (size_t)(version - text));
        fr_buffer_printf(out, "\"VERSION\"");
        text = version + strlen("\"" FR_VERSION "\"");
    }
    fr_buffer_printf(out, "%s", text);
}

static void check_record(const struct fr_buffer *documents)
{
    static const char path[] = FR_SOURCE_DIR "/tests/golden/documents.jsonl";
    FILE *file = fopen(path, getenv("FR_UPDATE") ? "w" : "r");
    assert_non_null(file);
    if (getenv("FR_UPDATE")) {
        assert_int_equal(fwrite(documents->data, 1, documents->size, file), documents->size);
        assert_int_equal(fclose(file), 0);
        return;
    }
    char *recorded = fr_alloc(1 << 16, 1);
    size_t size = fread(recorded, 1, (1 << 16) - 1, file);
    (void)fclose(file);
    assert_string_equal((const char *)documents->data, recorded);
    assert_int_equal(size, documents->size);
    free(recorded);
}

FR_CASE(documents_are_those_on_record_to_the_byte)
{
    struct fr_buffer documents = {0};
    for (int scene = 0; scene < 3; scene++) {
        if (scene == 1)
            run_service();
        if (scene == 2) {
            count_training();
            count_stream();
            count_epochs();
            count_replicas();
        }
        fr_documents_publish(&w->service);
        for (size_t i = 0; i < DOCUMENTS; i++)
            put_body(&w->bodies[i], &documents);
    }
    fr_buffer_terminate(&documents);
    check_record(&documents);
    fr_buffer_release(&documents);
}

/* ---- problems ---- */

static const char *readyz(int code)
{
    fr_documents_publish(&w->service);
    assert_int_equal(w->codes[2], code);
    return (const char *)w->bodies[2].data;
}

static void ingest_problem(enum fr_ingest_problem kind, const char *text)
{
    snprintf(w->ingest.problems[kind], FR_PROBLEM_MAX, "%s", text);
    if (!w->ingest.problem[0]) {
        snprintf(w->ingest.problem, FR_PROBLEM_MAX, "%s", text);
        w->ingest.first = kind;
    }
}

/* An epoch that was cut three seconds ago and is not durable. */
static void make_late(void)
{
    struct fr_shared_durable *durable = &w->service.loops.durable.shared;
    atomic_store(&durable->waiting_cut_ns, w->clock.mono_ns);
    atomic_store(&durable->waits_for, "dead letters to be acknowledged");
    fr_clock_fake_advance_ms(&w->clock, 3000);
}

FR_CASE(every_problem_is_listed_and_the_first_is_the_reason)
{
    run_service();
    make_late();
    snprintf(w->publisher.refused, sizeof(w->publisher.refused), "raise max.message.bytes");
    snprintf(w->publisher.problem, sizeof(w->publisher.problem), "too large");
    snprintf(w->trainer.paused, sizeof(w->trainer.paused), "journal_max: full");
    w->ingest.connected = false;
    w->ingest.lag_ms = 30001;
    ingest_problem(FR_INGEST_PROBLEM_BROKERS, "brokers b1: down");
    ingest_problem(FR_INGEST_PROBLEM_STREAMS, "samples/0: no leader");
    ingest_problem(FR_INGEST_PROBLEM_DEAD_LETTER_SINK, "4 letters wait");
    /* the trainer's pause once more, which must not be listed twice */
    w->reasons[0][0] = "trainer", w->reasons[0][1] = "journal_max: full";
    w->reasons[1][0] = "journal", w->reasons[1][1] = "make room";
    w->n_reasons = 2;
    assert_string_equal(
        readyz(503),
        "{\"ready\":false,\"reason\":\"publisher: raise max.message.bytes\",\"progress\":1,\"problems\":[\n"
        "{\"where\":\"publisher\",\"text\":\"raise max.message.bytes\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"trainer\",\"text\":\"journal_max: full\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"durable\",\"text\":\"epoch 1 is not durable 3.0 s after its cut: it waits for dead letters to "
        "be acknowledged\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"brokers\",\"text\":\"brokers b1: down\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"lag\",\"text\":\"lag of 30001 ms is over ready_lag\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"streams\",\"text\":\"samples/0: no leader\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"dead_letter_sink\",\"text\":\"4 letters wait\",\"since_ms\":1767225603000},\n"
        "{\"where\":\"journal\",\"text\":\"make room\",\"since_ms\":1767225603000}]}\n");
    assert_non_null(strstr((const char *)w->bodies[1].data,
                           ",\"problems\":[{\"where\":\"publisher\",\"text\":\"raise max.message.bytes\","));
}

FR_CASE(the_reason_is_that_of_the_first_problem_that_is_left)
{
    static const char *const reasons[] = {"paused: journal_max: full", "epoch 1 is not durable",
                                          "ingest: samples/0: no leader",
                                          "lag of 30001 ms is over ready_lag: samples/0: no leader"};
    run_service();
    make_late();
    snprintf(w->trainer.paused, sizeof(w->trainer.paused), "journal_max: full");
    ingest_problem(FR_INGEST_PROBLEM_STREAMS, "samples/0: no leader");
    w->ingest.stands = true;
    w->ingest.lag_ms = 30001;
    for (size_t i = 0; i < FR_ARRAY_LEN(reasons); i++) {
        char expected[160];
        snprintf(expected, sizeof(expected), "{\"ready\":false,\"reason\":\"%s", reasons[i]);
        assert_memory_equal(readyz(503), expected, strlen(expected));
        w->trainer.paused[0] = '\0';
        if (i == 1)
            atomic_store(&w->service.loops.durable.shared.waiting_cut_ns, 0);
        w->ingest.stands = i < 2;
    }
    w->ingest.lag_ms = 0; /* a part of the stream waits, and the rest is read */
    assert_non_null(strstr(readyz(200), "{\"ready\":true,\"reason\":\"samples/0: no leader\",\"progress\":1,"));
    assert_non_null(strstr(readyz(200), "\n{\"where\":\"streams\",\"text\":\"samples/0: no leader\","));
}

FR_CASE(records_that_stop_reading_come_before_other_problems_of_the_stream)
{
    run_service();
    ingest_problem(FR_INGEST_PROBLEM_RECORDS, "all records are malformed");
    ingest_problem(FR_INGEST_PROBLEM_BROKERS, "brokers b1: down");
    w->ingest.pause = FR_INGEST_PAUSED_RECORDS;
    w->ingest.connected = false;
    const char *text = readyz(503);
    assert_non_null(strstr(text, "\"reason\":\"paused: all records are malformed\""));
    assert_true(strstr(text, "\"where\":\"records\"") < strstr(text, "\"where\":\"brokers\""));
}

FR_CASE(a_problem_has_a_time_until_it_is_gone)
{
    run_service();
    snprintf(w->publisher.problem, sizeof(w->publisher.problem), "broker b1 is away");
    assert_non_null(strstr(readyz(200), "\"text\":\"broker b1 is away\",\"since_ms\":1767225600000}"));
    fr_clock_fake_advance_ms(&w->clock, 500);
    /* another problem at the same place */
    snprintf(w->publisher.problem, sizeof(w->publisher.problem), "broker b2 is away");
    assert_non_null(strstr(readyz(200), "\"text\":\"broker b2 is away\",\"since_ms\":1767225600000}"));
    w->publisher.problem[0] = '\0';
    assert_string_equal(readyz(200), "{\"ready\":true,\"reason\":\"\",\"progress\":1,\"problems\":[]}\n");
    fr_clock_fake_advance_ms(&w->clock, 500);
    snprintf(w->publisher.problem, sizeof(w->publisher.problem), "broker b1 is away");
    assert_non_null(strstr(readyz(200), "\"since_ms\":1767225601000}"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, open_world, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(documents_are_those_on_record_to_the_byte),
        CASE(every_problem_is_listed_and_the_first_is_the_reason),
        CASE(the_reason_is_that_of_the_first_problem_that_is_left),
        CASE(records_that_stop_reading_come_before_other_problems_of_the_stream),
        CASE(a_problem_has_a_time_until_it_is_gone),
    };
    return cmocka_run_group_tests_name("daemon documents", tests, NULL, NULL);
}
