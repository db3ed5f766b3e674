/* What the page is made of: GET / in each state, the columns of /history with their values, /model
 * of a real configuration. */
#include "case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "documents.h"
#include "fake_clock.h"
#include "service.h"

enum { DOCUMENTS = 2 };
static const char *const paths[DOCUMENTS] = {"/", "/model"};

struct world {
    struct fr_service service;
    struct fr_clock_fake clock;
    struct fr_service_status status;
    struct fr_buffer bodies[DOCUMENTS], history;
};

static struct world *w;

void __wrap_fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type,
                            const void *body, size_t size);
void __wrap_fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type,
                            const void *body, size_t size)
{
    (void)http;
    assert_int_equal(status, 200);
    for (size_t i = 0; i < DOCUMENTS; i++) {
        if (strcmp(paths[i], path) != 0)
            continue;
        assert_string_equal(content_type, i == 0 ? "text/html; charset=utf-8" : "application/json");
        fr_buffer_clear(&w->bodies[i]);
        fr_buffer_append(&w->bodies[i], body, size);
        fr_buffer_terminate(&w->bodies[i]);
    }
}

FR_FIXTURE(open_world)
{
    struct fr_buffer problems = {0};
    struct fr_conf_load_options load = {.path = FR_SOURCE_DIR "/conf/quickstart.yaml"};
    w = fr_alloc(1, sizeof(*w));
    fr_clock_fake_init(&w->clock, 1767225600000);
    w->clock.mono_ns = 1000000000;
    struct fr_service *service = &w->service;
    assert_int_equal(fr_conf_load(&load, &service->conf, &problems), FR_OK);
    service->clock = &w->clock.clock;
    service->registry = fr_registry_new("quickstart");
    fr_timings_init(&service->timings, service->registry);
    service->freshness = fr_freshness_new(service->registry, &service->timings);
    struct fr_http_options http = {.host = "127.0.0.1", .clock = service->clock, .registry = service->registry};
    assert_int_equal(fr_http_new(&http, &service->http, NULL), FR_OK);
    service->documents = fr_documents_new();
    fr_service_wire(service);
    fr_documents_page_open(service);
    atomic_store(&service->life.phase, FR_PHASE_RUNNING);
    fr_buffer_release(&problems);
    return 0;
}

FR_FIXTURE(close_world)
{
    struct fr_service *service = &w->service;
    fr_http_free(service->http);
    fr_documents_free(service->documents);
    for (size_t i = 0; i < DOCUMENTS; i++)
        fr_buffer_release(&w->bodies[i]);
    fr_buffer_release(&w->history);
    fr_freshness_free(service->freshness);
    fr_registry_free(service->registry);
    fr_loops_release(&service->loops);
    fr_lifecycle_release(&service->life);
    fr_conf_free(service->conf);
    free(w);
    return 0;
}

static const char *page(void)
{
    fr_documents_page(&w->service, &w->status);
    return (const char *)w->bodies[0].data;
}

static void have_problem(const char *where, const char *text)
{
    struct fr_readiness *readiness = &w->service.documents->readiness;
    struct fr_readiness_problem *problem = &readiness->problems[readiness->n++];
    snprintf(problem->where, sizeof(problem->where), "%s", where);
    snprintf(problem->text, sizeof(problem->text), "%s", text);
}

FR_CASE(the_page_says_the_state_and_every_problem)
{
    (void)state;
    w->status.ready = true;
    assert_non_null(strstr(page(), "<h1>quickstart</h1>"));
    assert_non_null(strstr(page(), ">Running, ready.</p>"));
    assert_null(strstr(page(), "<li>"));
    have_problem("fold", "no room");
    assert_non_null(strstr(page(), ">Running, ready, with problems.</p>"));
    have_problem("brokers", "b1 <away>");
    w->status.ready = false;
    assert_non_null(strstr(page(), ">Running, not ready, with problems.</p>"));
    assert_non_null(strstr(page(), "<li><b>fold</b> no room</li>\n<li><b>brokers</b> b1 &lt;away&gt;</li>\n"));
    atomic_store(&w->service.life.phase, FR_PHASE_DRAINING);
    assert_non_null(strstr(page(), ">Draining: "));
    atomic_store(&w->service.life.phase, FR_PHASE_RECOVERING);
    atomic_store(&w->service.recovery.total_bytes, 200);
    atomic_store(&w->service.recovery.done_bytes, 84);
    assert_non_null(strstr(page(), ">Recovering: 42 % of the state is loaded.</p>"));
}

/* The newest value of a column at the resolution of seconds; NaN: null. Names in the document's
 * order have their values in the same order. */
static double newest(const char *name, const char *half_life)
{
    char wanted[160];
    fr_buffer_clear(&w->history);
    assert_int_equal(fr_history_answer(w->service.documents->page.history, "step=1", &w->history), 200);
    fr_buffer_terminate(&w->history);
    if (half_life)
        snprintf(wanted, sizeof(wanted), "{\"name\":\"%s\",\"task\":\"click\",\"half_life\":\"%s\"", name, half_life);
    else
        snprintf(wanted, sizeof(wanted), "{\"name\":\"%s\",\"of\"", name);
    const char *text = (const char *)w->history.data, *found = strstr(text, wanted);
    if (!found)
        fail_msg("no column %s", wanted);
    size_t place = 0;
    for (const char *at = text; (at = strstr(at, "{\"name\":")) && at < found; at++)
        place++;
    const char *values = strstr(text, "\"values\":[[") + strlen("\"values\":[[");
    for (; place > 0; place--)
        values = strstr(values, "],[") + 3;
    const char *end = strchr(values, ']');
    while (end > values && end[-1] != ',' && end[-1] != '[')
        end--;
    return strncmp(end, "null", 4) == 0 ? (double)NAN : strtod(end, NULL);
}

static void count_a_second(uint64_t samples, uint64_t admitted)
{
    struct fr_trainer_status *trainer = &w->status.trainer;
    trainer->history.samples = samples;
    trainer->n_tables = 2;
    for (int i = 0; i < 2; i++) {
        trainer->tables[i].stats.counts.rows = 40;
        trainer->tables[i].stats.counts.pending = 3;
        trainer->tables[i].stats.counts.admitted = admitted;
        trainer->tables[i].stats.counts.expired[FR_ABSENT_IDLE] = admitted / 2;
    }
    fr_documents_page(&w->service, &w->status);
    fr_clock_fake_advance_ms(&w->clock, 1000);
}

FR_CASE(history_has_the_numbers_of_the_documents_and_their_rates)
{
    (void)state;
    struct fr_service_status *s = &w->status;
    s->ready = s->recovered = s->ingest.connected = true;
    s->ingest.lag_ms = 1500;
    s->waiting_bytes = 700;
    s->durable = (struct fr_durable_status){.epoch = 9, .journal_bytes = 5000, .cold_bytes = 1 << 20};
    s->publisher.acked = 7;
    s->trainer.epoch = 10;
    s->trainer.pause = FR_PAUSE_MEMORY;
    s->trainer.store_bytes = 2048;
    count_a_second(1000, 10);
    count_a_second(3000, 30);
    const struct {
        const char *name;
        double value;
    } expected[] = {{"ready", 1},
                    {"problems", 0},
                    {"samples_per_second", 2000},
                    {"lag_seconds", 1.5},
                    {"rows", 80},
                    {"pending", 6},
                    {"admitted_per_second", 40},
                    {"expired_per_second", 20},
                    {"store_bytes", 2048},
                    {"journal_bytes", 5000},
                    {"cold_bytes", 1 << 20},
                    {"outbox_bytes", 700},
                    {"epochs_cut", 10},
                    {"epochs_durable", 9},
                    {"epochs_acked", 7},
                    {"outbox_epochs", 2},
                    {"paused", 1},
                    {"held", 0}};
    for (size_t i = 0; i < FR_ARRAY_LEN(expected); i++)
        if (newest(expected[i].name, NULL) != expected[i].value)
            fail_msg("%s is %g instead of %g", expected[i].name, newest(expected[i].name, NULL), expected[i].value);
    assert_true(isnan(newest("arrival_published_p99", NULL)));
    s->ingest.connected = s->recovered = false; /* unknown, not 0 */
    count_a_second(0, 0);
    assert_true(isnan(newest("lag_seconds", NULL)));
    assert_true(isnan(newest("samples_per_second", NULL)));
    assert_true(isnan(newest("rows", NULL)));
}

/* Hanley and McNeil's example of equal classes: A = 0.8, 50 each. Q1 = 0.6667, Q2 = 0.7111, so the
 * variance is (0.16 + 49 * 0.02667 + 49 * 0.07111) / 2500. */
FR_CASE(history_has_the_auc_of_each_half_life_with_the_error_of_the_first)
{
    (void)state;
    struct fr_trainer_status *trainer = &w->status.trainer;
    assert_true(w->service.conf->metrics.n_half_lives == 3);
    trainer->history.n_tasks = 1;
    for (int h = 0; h < 3; h++)
        trainer->tasks[0].result.decayed[h] = (struct fr_auc_result){
            .auc = 0.8 - 0.1 * h, .logloss = 0.5, .calibration = 1.25, .positive_rate = 0.5, .weight = 100, .mse = NAN};
    count_a_second(0, 0);
    assert_true(fabs(newest("auc", "5m") - 0.8) < 1e-6);
    assert_true(fabs(newest("auc", "1d") - 0.6) < 1e-6);
    assert_true(fabs(newest("auc_error", "5m") - sqrt((0.16 + 49 * 0.0266667 + 49 * 0.0711111) / 2500)) < 1e-5);
    assert_true(fabs(newest("calibration", "5m") - 1.25) < 1e-6);
    assert_true(isnan(newest("mse", "5m")));
    trainer->tasks[0].result.decayed[0].positive_rate = 0.001; /* a tenth of a positive */
    count_a_second(0, 0);
    assert_true(isnan(newest("auc_error", "5m")));
}

FR_CASE(the_model_has_every_shape)
{
    (void)state;
    const char *text = (const char *)w->bodies[1].data;
    static const char *const parts[] = {
        "{\"model\":\"quickstart\",\"fp\":\"",
        "\"memory_limit\":1073741824",
        "{\"name\":\"user\",\"parts\":[{\"name\":\"w\",\"dim\":1},{\"name\":\"v\",\"dim\":8}]}",
        "{\"name\":\"hour\",\"kind\":\"sparse\",\"table\":\"context\"}",
        "{\"name\":\"price\",\"kind\":\"dense\",\"width\":1}",
        "{\"name\":\"h\",\"op\":\"mlp\",\"width\":32,\"units\":[64,32],\"reads\":[{\"layer\":\"x\",\"width\":41}]}",
        "{\"slot\":\"user_id\",\"part\":\"v\",\"pooling\":\"sum\",\"width\":8}",
        "{\"name\":\"click\",\"label\":\"click\",\"loss\":\"logloss\",\"layer\":\"out\",\"product\":[]}",
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(parts); i++)
        if (!strstr(text, parts[i]))
            fail_msg("%s\nis not in\n%s", parts[i], text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_page_says_the_state_and_every_problem, open_world, close_world),
        cmocka_unit_test_setup_teardown(history_has_the_numbers_of_the_documents_and_their_rates, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(history_has_the_auc_of_each_half_life_with_the_error_of_the_first, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(the_model_has_every_shape, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
