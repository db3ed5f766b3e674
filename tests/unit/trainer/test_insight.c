/* Insight into a model while it learns: what is planted in a stream is visible in the document, and
 * looking changes no number of the model. */
#include "model_image.h"

#include "../store/store_image.h"
#include "insight/insight.h"
#include "trainer/feature.h"

enum { SAMPLES = 64, BATCHES = 240, MIDDLE = 200, USERS = 40, HOT_USER = 7 };

/* A stream with a slot that decides the label and has a hot id, one whose ids come once each and
 * whose rows move far, one that goes missing in the middle, and two whose ids and numbers change
 * there. */
#define PLANTED(insight)                                                                                               \
    "version: 1\n"                                                                                                     \
    "model: planted\n"                                                                                                 \
    "state_dir: /nonexistent\n"                                                                                        \
    "ingest: {brokers: \"127.0.0.1:1\", topic: t, format: json, batch_size: 64,\n"                                     \
    "  lockstep: {records: 16, epoch_batches: 4}}\n"                                                                   \
    "tables:\n"                                                                                                        \
    "  user: {dim: 4, optimizer: {adagrad: {lr: 0.05}}}\n"                                                             \
    "  session: {dim: 4, optimizer: {adagrad: {lr: 3}}}\n"                                                             \
    "  device: {dim: 4, optimizer: {adagrad: {lr: 0.05}}}\n"                                                           \
    "  place: {dim: 4, optimizer: {adagrad: {lr: 0.05}}}\n"                                                            \
    "slots:\n"                                                                                                         \
    "  user: {table: user}\n"                                                                                          \
    "  session: {table: session}\n"                                                                                    \
    "  device: {table: device}\n"                                                                                      \
    "  place: {table: place}\n"                                                                                        \
    "  price: {kind: dense, dim: 1}\n"                                                                                 \
    "labels: {click: {}}\n"                                                                                            \
    "network:\n"                                                                                                       \
    "  layers:\n"                                                                                                      \
    "    - {name: h, mlp: [user, session, device, place, price], units: [8, 4]}\n"                                     \
    "    - {name: out, dense: h, units: 1}\n"                                                                          \
    "  optimizer: {adam: {lr: 0.01}}\n"                                                                                \
    "tasks: [{name: click, label: click, logit: out}]\n"                                                               \
    "export: {topic: d}\n"                                                                                             \
    "metrics: {listen: \"127.0.0.1:0\", auc_half_life: [1m, 1d]}\n"                                                    \
    "insight: " insight "\n"

static uint64_t random_of(uint64_t i, uint64_t what)
{
    return fr_fmix64(fr_fmix64(i) + what);
}

/* Of the next batches: user and place are shared by the samples of a group. */
static bool grouped;

static int planted_group(char *text, size_t size, uint64_t i)
{
    return snprintf(text, size,
                    "{\"t\":%llu,\"shared\":{\"user\":%llu,\"place\":%llu},\"items\":["
                    "{\"y\":%d,\"f\":{\"session\":%llu,\"price\":1}},{\"y\":%d,\"f\":{\"device\":3,\"price\":2}}]}",
                    (unsigned long long)(1700000000000 + i * 100), (unsigned long long)(random_of(i, 2) % USERS),
                    (unsigned long long)(random_of(i, 3) % 100), random_of(i, 5) % 2 == 0, (unsigned long long)i,
                    random_of(i, 6) % 2 == 0);
}

static int planted_sample(char *text, size_t size, uint64_t i, bool later)
{
    uint64_t user = random_of(i, 1) % 10 < 4 ? HOT_USER : random_of(i, 2) % USERS, place = random_of(i, 3) % 100;
    uint64_t odds = user % 2 ? 8 : 2; /* of 10 */
    char device[40] = "";
    if (later && place % 3)
        place = 5;
    if (!later)
        snprintf(device, sizeof(device), "\"device\":%llu,", (unsigned long long)(random_of(i, 4) % 5));
    return snprintf(text, size,
                    "{\"t\":%llu,\"y\":%d,\"f\":{\"user\":%llu,\"session\":%llu,%s\"place\":%llu,\"price\":%g}}",
                    (unsigned long long)(1700000000000 + i * 100), random_of(i, 5) % 10 < odds,
                    (unsigned long long)user, (unsigned long long)i, device, (unsigned long long)place,
                    (double)(random_of(i, 6) % 100) / 100 + (later ? 2 : 0));
}

static struct fr_batch *planted_batch(const struct fr_conf *conf, uint64_t number)
{
    struct fr_batch *batch = fr_batch_new(conf);
    struct fr_decoder *decoder = fr_decoder_new(conf);
    for (uint64_t i = number * SAMPLES; i < (number + 1) * SAMPLES; i++) {
        char text[400];
        int size =
            grouped ? planted_group(text, sizeof(text), i) : planted_sample(text, sizeof(text), i, number >= MIDDLE);
        add_record(decoder, text, size, i, batch);
    }
    batch->n_positions = 0;
    fr_decoder_free(decoder);
    return batch;
}

static void open_planted(struct run *run, const char *dir, const char *text)
{
    other_text = text;
    run_open(run, dir, 2);
    other_text = NULL;
    run->gate_config.count = 1;
    run->expire_config.idle_ms = 86400000;
}

static void feed_planted(struct run *run, uint64_t end)
{
    struct fr_err err = {0};
    while (run->applied < end) {
        if (fr_ring_count(run->full) == 0)
            assert_true(fr_ring_try_push(run->full, planted_batch(run->conf, run->applied)));
        assert_true(fr_trainer_step(run->trainer, &err) >= 0);
        drain_stages(run);
    }
}

/* Makes the document; the caller releases it. */
static struct fr_buffer renew(struct run *run)
{
    struct fr_buffer document = {0};
    struct fr_err err = {0};
    fr_clock_fake_advance_ms(&run->clock, 60001);
    assert_true(fr_trainer_step(run->trainer, &err) >= 0);
    drain_stages(run);
    assert_true(fr_insight_read(fr_trainer_insight(run->trainer), &document));
    fr_put_u8(&document, 0);
    return document;
}

/* Returns the number after the texts, each of which is sought after the one before. */
static double number(const struct fr_buffer *document, const char *const texts[])
{
    const char *at = (const char *)document->data;
    for (size_t i = 0; texts[i]; i++) {
        const char *found = strstr(at, texts[i]);
        if (!found)
            fail_msg("%s is missing in %s", texts[i], (const char *)document->data);
        at = found ? found + strlen(texts[i]) : "";
    }
    return strncmp(at, "null", 4) == 0 ? (double)NAN : strtod(at, NULL);
}
#define NUMBER(document, ...) number(document, (const char *const[]){__VA_ARGS__, NULL})
#define SLOT(name) "\"name\":\"" name "\",\"kind\""

FR_CASE(what_is_planted_is_visible)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    fr_test_folder(dir);
    open_planted(&run, dir, PLANTED("{interval: 1m, importance: 2}"));
    feed_planted(&run, MIDDLE);
    struct fr_buffer before = renew(&run);
    feed_planted(&run, BATCHES);
    struct fr_buffer after = renew(&run);
    if (getenv("FR_SHOW"))
        fputs((const char *)after.data, stderr);

    /* weights that overfit: large rows, and no use on new samples */
    double session = NUMBER(&before, SLOT("session"), "\"row_norm\":", "\"p50\":");
    static const char *const others[] = {SLOT("user"), SLOT("device"), SLOT("place")};
    for (size_t i = 0; i < FR_ARRAY_LEN(others); i++)
        assert_true(session >= 5 * NUMBER(&before, others[i], "\"row_norm\":", "\"p90\":"));
    assert_true(fabs(NUMBER(&after, SLOT("session"), "\"importance\":[", "\"importance\":")) < 0.005);
    assert_true(NUMBER(&after, SLOT("user"), "\"importance\":[", "\"importance\":") > 0.1);
    assert_true(NUMBER(&before, SLOT("session"), "\"new\":") == 1.0);
    assert_true(NUMBER(&before, SLOT("user"), "\"new\":") < 0.01);

    /* a slot that went missing */
    assert_true(NUMBER(&before, SLOT("device"), "\"present\":") == 1.0);
    assert_true(NUMBER(&after, SLOT("device"), "\"present\":") == 0.0);
    assert_true(NUMBER(&after, SLOT("user"), "\"present\":") == 1.0);

    /* other ids, other numbers */
    assert_true(NUMBER(&before, SLOT("place"), "\"drift\":{\"values\":") < 0.1);
    assert_true(NUMBER(&after, SLOT("place"), "\"drift\":{\"values\":") > 0.25);
    assert_true(NUMBER(&after, SLOT("price"), "\"drift\":{\"values\":") > 0.25);
    assert_true(NUMBER(&after, SLOT("user"), "\"drift\":{\"values\":") < 0.1);

    /* a hot id: 40 % of all, and its share of the rest */
    assert_true(NUMBER(&after, SLOT("user"), "\"hot\":[{\"id\":\"") == HOT_USER);
    assert_true(fabs(NUMBER(&after, SLOT("user"), "\"hot\":[", "\"share\":") - 0.415) < 0.05);
    assert_true(NUMBER(&after, SLOT("session"), "\"hot\":[", "\"error\":") > 0.0);

    /* layers: both products of the mlp, the output */
    assert_true(NUMBER(&after, "\"name\":\"h/0\"", "\"units\":") == 8.0);
    assert_true(NUMBER(&after, "\"name\":\"h/1\"", "\"weights\":", "\"n\":") == 36.0);
    assert_true(NUMBER(&after, "\"name\":\"h/0\"", "\"dead\":") < 1.0);
    assert_true(NUMBER(&after, "\"name\":\"h/0\"", "\"activations\":", "\"min\":") == 0.0);
    assert_true(isnan(NUMBER(&after, "\"name\":\"out\"", "\"dead\":")));
    assert_true(NUMBER(&after, "\"name\":\"out\"", "\"gradient_norm\":") > 0.0);
    fr_buffer_release(&before);
    fr_buffer_release(&after);
    run_close(&run);
    remove_dir(dir);
}

/* Asks about an id while the loop makes steps. */
struct asking {
    struct run *run;
    struct fr_feature_question question;
    struct fr_feature feature;
    enum fr_status status;
};

static void *ask(void *argument)
{
    struct asking *asking = argument;
    struct fr_err err = {0};
    asking->status = fr_trainer_feature(asking->run->trainer, &asking->question, 60000000000, &asking->feature, &err);
    return NULL;
}

static void ask_between_batches(struct run *run, struct asking *asking)
{
    pthread_t thread;
    struct fr_err err = {0};
    asking->run = run;
    assert_int_equal(pthread_create(&thread, NULL, ask, asking), 0);
    FR_UNTIL (atomic_load(&run->trainer->questions.open)) {
    }
    assert_true(fr_trainer_step(run->trainer, &err) >= 0);
    drain_stages(run);
    pthread_join(thread, NULL);
    assert_int_equal(asking->status, FR_OK);
}

static void looks_without_a_change(void)
{
    static const char *const configurations[] = {PLANTED("{interval: 0s}"), PLANTED("{interval: 1s}"),
                                                 PLANTED("{interval: 1m, importance: 1}")};
    static struct asking asking;
    struct fr_sha256 digests[3];
    struct fr_buffer images[3] = {{0}};
    for (size_t i = 0; i < 3; i++) {
        char dir[FR_TEST_FOLDER];
        struct run run;
        fr_test_folder(dir);
        open_planted(&run, dir, configurations[i]);
        assert_true((i > 0) == (fr_trainer_insight(run.trainer) != NULL));
        for (uint64_t end = 10; end <= 60; end += 10) {
            feed_planted(&run, end);
            asking.question = (struct fr_feature_question){0, fr_key_integer(end, run.conf->slots[0].seed)};
            ask_between_batches(&run, &asking);
            fr_clock_fake_advance_ms(&run.clock, 1001);
        }
        digests[i] = chain_digest(&run);
        model_image(run.trainer, &images[i]);
        store_image(run.trainer->store, &images[i]);
        run_close(&run);
        remove_dir(dir);
        assert_memory_equal(&digests[i], &digests[0], sizeof(digests[i]));
        assert_int_equal(images[i].size, images[0].size);
        assert_memory_equal(images[i].data, images[0].data, images[0].size);
    }
    for (size_t i = 0; i < 3; i++)
        fr_buffer_release(&images[i]);
}

FR_CASE(looking_changes_no_number)
{
    looks_without_a_change();
}

FR_CASE(looking_at_groups_changes_no_number)
{
    grouped = true;
    looks_without_a_change();
    grouped = false;
}

FR_CASE(shared_values_count_for_each_sample_of_their_group)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    fr_test_folder(dir);
    grouped = true;
    open_planted(&run, dir, PLANTED("{interval: 1m, importance: 1}"));
    feed_planted(&run, 10);
    grouped = false;
    struct fr_buffer document = renew(&run);
    assert_true(NUMBER(&document, "\"window\":", "\"samples\":") == 2 * 10 * SAMPLES);
    assert_true(NUMBER(&document, SLOT("user"), "\"present\":") == 1.0);
    assert_true(NUMBER(&document, SLOT("session"), "\"present\":") == 0.5);
    assert_true(NUMBER(&document, SLOT("session"), "\"ids\":") == 0.5);
    assert_true(NUMBER(&document, SLOT("device"), "\"hot\":[", "\"share\":") == 1.0);
    /* all samples but those of each batch's first group, decayed */
    double samples = NUMBER(&document, SLOT("user"), "\"importance\":[", "\"samples\":");
    assert_true(samples > 800 && samples < 2 * 10 * (SAMPLES - 1));
    fr_buffer_release(&document);
    run_close(&run);
    remove_dir(dir);
}

FR_CASE(an_id_is_answered_with_its_row_and_contribution)
{
    char dir[FR_TEST_FOLDER];
    struct run run;
    static struct asking asking;
    struct fr_err err = {0};
    fr_test_folder(dir);
    open_planted(&run, dir, PLANTED("{}"));
    feed_planted(&run, 20);
    uint64_t key = fr_key_integer(HOT_USER, run.conf->slots[0].seed);
    asking.question = (struct fr_feature_question){0, key};
    ask_between_batches(&run, &asking);
    const float *row = fr_store_row_of(run.trainer->store, 0, key);
    assert_int_equal(asking.feature.key.state, FR_KEY_ROW);
    assert_true(asking.feature.key.resident);
    assert_int_equal(asking.feature.n_values, 4);
    assert_memory_equal(asking.feature.values, row, 4 * sizeof(float));
    assert_true(asking.feature.key.head.show > 400 && asking.feature.key.head.click > 300);
    assert_true(asking.feature.contributes && asking.feature.contribution[0] > 0.1f);
    asking.question.key = 12345;
    ask_between_batches(&run, &asking);
    assert_int_equal(asking.feature.key.state, FR_KEY_UNKNOWN);
    assert_false(asking.feature.contributes);

    /* a loop that makes no step: the first asker waits its time, the next one not at all */
    assert_int_equal(fr_trainer_feature(run.trainer, &asking.question, 1000000, &asking.feature, &err), FR_AGAIN);
    assert_int_equal(fr_trainer_feature(run.trainer, &asking.question, 3600000000000, &asking.feature, &err), FR_AGAIN);
    feed_planted(&run, 21);
    ask_between_batches(&run, &asking);
    run_close(&run);
    remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planted_is_visible),
        cmocka_unit_test(looking_changes_no_number),
        cmocka_unit_test(looking_at_groups_changes_no_number),
        cmocka_unit_test(shared_values_count_for_each_sample_of_their_group),
        cmocka_unit_test(an_id_is_answered_with_its_row_and_contribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
