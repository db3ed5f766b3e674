/* Refused memory is an error of the call and never the end of the process: with every limit from
 * what is held up, what is served stays that of one epoch, and the same call succeeds when there is
 * room. A model record may ask for any amount of memory. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "history.h"

enum { EPOCHS = 5, OTHER_MODEL = 3, STEP = 1024, LAYERS = 8, WIDE = 128 };

/* Epoch 1 brings a model, OTHER_MODEL another one with the same tables. */
static struct history *history_of_two_models(char *other)
{
    struct history *h = history_new(0);
    strcpy(other, model_cfg);
    char *len = strstr(other, "\"max_len\":5");
    assert_non_null(len);
    len[strlen("\"max_len\":")] = '6';
    for (int e = 1; e <= EPOCHS; e++) {
        if (e == OTHER_MODEL)
            history_cfg(h, other);
        history_change(h, 300);
        history_write(h, &(struct write_options){.model = e == 1 || e == OTHER_MODEL});
    }
    return h;
}

static uint64_t hash_without_limit(struct freshet_replica *replica)
{
    freshet_replica_limit_memory(replica, 0);
    return info_of(replica).epoch ? dump_hash(replica) : 0;
}

FR_CASE(a_history_is_served_whole_whatever_was_refused_on_the_way)
{
    char other[sizeof(model_cfg)];
    struct history *h = history_of_two_models(other);
    struct freshet_replica *whole = replica_new(), *replica = replica_new();
    uint64_t hashes[EPOCHS + 1] = {0}, refusals = 0;
    for (size_t i = 0; i < h->n_topic; i++) {
        feed_ok(whole, h, i, i + 1);
        hashes[info_of(whole).epoch] = hash_without_limit(whole);
    }
    for (size_t i = 0; i < h->n_topic; i++) {
        struct freshet_event event;
        int status = FRESHET_E_NO_MEMORY;
        for (uint64_t limit = info_of(replica).memory_bytes + 1; status == FRESHET_E_NO_MEMORY; limit += STEP) {
            freshet_replica_limit_memory(replica, limit);
            status = feed(replica, &h->topic[i], &event);
            assert_true(info_of(replica).memory_bytes <= limit);
            refusals += status == FRESHET_E_NO_MEMORY;
            if (status == FRESHET_E_NO_MEMORY && refusals % 32 == 0)
                assert_int_equal(hash_without_limit(replica), hashes[info_of(replica).epoch]);
        }
        if (status != FRESHET_OK)
            fail_msg("record %zu: %d %s", i, status, event.problem);
        assert_int_equal(hash_without_limit(replica), hashes[info_of(replica).epoch]);
    }
    print_message("%llu refusals in %zu records\n", (unsigned long long)refusals, h->n_topic);
    assert_true(refusals > 10 * EPOCHS);
    assert_int_equal(info_of(replica).epoch, EPOCHS);
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

static int score_of(struct freshet_replica *replica, float scores[3])
{
    static const char json[] = "[{\"f\":{\"user_id\":1,\"item_id\":[7,8,9],\"history\":[7,8],\"price\":2}},"
                               "{\"f\":{\"price\":-1}},{\"f\":{\"item_id\":8,\"history\":[1,2,3]}}]";
    uint32_t n = 3;
    int status = freshet_replica_score_json(replica, json, strlen(json), scores, &n);
    if (status == FRESHET_OK)
        assert_int_equal(n, 3);
    return status;
}

FR_CASE(a_score_that_was_refused_memory_is_right_when_there_is_more)
{
    struct history *h = history_of(2, 300);
    struct freshet_replica *whole = replica_new(), *replica = replica_new();
    feed_ok(whole, h, 0, h->n_topic);
    feed_ok(replica, h, 0, h->n_topic);
    float expected[3], scores[3];
    assert_int_equal(score_of(whole, expected), FRESHET_OK);
    uint64_t hash = dump_hash(replica);
    int refusals = 0, status = FRESHET_E_NO_MEMORY;
    for (uint64_t limit = info_of(replica).memory_bytes + 1; status == FRESHET_E_NO_MEMORY; limit += STEP) {
        freshet_replica_limit_memory(replica, limit);
        status = score_of(replica, scores);
        assert_true((status == FRESHET_OK) == (freshet_replica_score_problem(replica)[0] == '\0'));
        refusals += status == FRESHET_E_NO_MEMORY;
    }
    assert_int_equal(status, FRESHET_OK);
    assert_memory_equal(scores, expected, sizeof(scores));
    print_message("%d refusals\n", refusals);
    assert_true(refusals > 3);
    assert_int_equal(hash_without_limit(replica), hash);
    assert_int_equal(score_of(replica, scores), FRESHET_OK);
    assert_memory_equal(scores, expected, sizeof(scores));
    freshet_replica_free(whole);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(a_dump_that_was_refused_memory_changes_nothing)
{
    struct history *h = history_of(1, 300);
    struct freshet_replica *replica = replica_new();
    feed_ok(replica, h, 0, h->n_topic);
    uint64_t hash = dump_hash(replica), again = 0, held = info_of(replica).memory_bytes;
    freshet_replica_limit_memory(replica, held + 1000);
    assert_int_equal(freshet_replica_dump(replica, discard, NULL, &again), FRESHET_E_NO_MEMORY);
    assert_int_equal(info_of(replica).memory_bytes, held);
    assert_int_equal(hash_without_limit(replica), hash);
    freshet_replica_free(replica);
    history_free(h);
}

/* ---- models that ask for much ---- */

/* The model with `slots` and `layers` more, and its output over x and `last`. */
static struct history *history_of_forged(char *cfg, size_t room, const char *slots, const char *layers,
                                         const char *last)
{
    static const char slots_begin[] = "\"slots\":[", after_x[] = ",{\"activation\":\"none\",\"dense\":[\"x\"";
    const char *at_slots = strstr(model_cfg, slots_begin), *at_layers = strstr(model_cfg, after_x);
    assert_true(at_layers && at_slots && at_layers < at_slots);
    at_slots += strlen(slots_begin);
    int size = snprintf(cfg, room, "%.*s%s,{\"activation\":\"none\",\"dense\":[\"x\",\"%s\"%.*s%s%s",
                        (int)(at_layers - model_cfg), model_cfg, layers, last,
                        (int)(at_slots - at_layers - (ptrdiff_t)strlen(after_x)), at_layers + strlen(after_x), slots,
                        at_slots);
    assert_true(size > 0 && (size_t)size < room);
    struct history *h = history_new(0);
    history_cfg(h, cfg);
    h->settings.piece_max = 1 << 20;
    history_epoch(h, 10);
    return h;
}

/* Feeds partition by partition until something is refused. */
static int feed_until_refused(struct freshet_replica *replica, const struct history *h, struct freshet_event *event)
{
    int status = FRESHET_OK;
    for (size_t i = 0; i < h->n_topic && status == FRESHET_OK; i++)
        status = feed(replica, &h->topic[i], event);
    return status;
}

/* 256 million parameters: within the bounds of a model, 1 GiB. */
static struct history *history_of_a_large_model(char *cfg, size_t room)
{
    return history_of_forged(
        cfg, room, "", ",{\"activation\":\"relu\",\"mlp\":[\"x\"],\"name\":\"big\",\"units\":[16000,16000]}", "big");
}

FR_CASE(a_model_beyond_the_limit_is_an_error)
{
    char cfg[4096];
    struct history *h = history_of_a_large_model(cfg, sizeof(cfg));
    struct freshet_replica *replica = replica_new();
    struct freshet_event event;
    freshet_replica_limit_memory(replica, 64 << 20);
    assert_int_equal(feed_until_refused(replica, h, &event), FRESHET_E_NO_MEMORY);
    assert_string_equal(event.problem, "epoch 1: memory for the model was refused");
    assert_true(info_of(replica).memory_bytes < 1 << 20);
    assert_int_equal(info_of(replica).epoch, 0);
    freshet_replica_free(replica);
    history_free(h);
}

enum { NO_LIMIT = 13 }; /* qemu-user reports success and takes no limit of the address space */

static int large_model_in_a_small_process(void)
{
    char cfg[4096], line[256];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || !fgets(line, sizeof(line), file) || sscanf(line, "%ld", &pages) != 1)
        return 10;
    fclose(file);
    struct history *h = history_of_a_large_model(cfg, sizeof(cfg));
    struct freshet_replica *replica = replica_new();
    struct freshet_event event;
    const rlim_t room = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (256u << 20);
    struct rlimit taken;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){room, room}) != 0 || getrlimit(RLIMIT_AS, &taken) != 0)
        return 11;
    if (taken.rlim_cur != room)
        return NO_LIMIT;
    return feed_until_refused(replica, h, &event) == FRESHET_E_NO_MEMORY ? 0 : 12;
}

FR_CASE(a_model_beyond_the_memory_of_the_process_is_an_error)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's shadow memory exceeds any limit of the address space */
#endif
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(large_model_in_a_small_process());
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_LIMIT)
        skip();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the process ended with 0x%x", (unsigned)status);
}

/* A record of 2 KiB that would ask for gigabytes at the first score. */
FR_CASE(a_model_beyond_the_bound_of_activations_is_refused)
{
    char cfg[16384];
    struct fr_buffer layers = {0};
    fr_buffer_printf(&layers, ",{\"concat\":[");
    for (int i = 0; i < WIDE; i++)
        fr_buffer_printf(&layers, "%s\"d\"", i ? "," : "");
    fr_buffer_printf(&layers, "],\"name\":\"w0\"}");
    for (int i = 1; i < LAYERS; i++)
        fr_buffer_printf(&layers, ",{\"add\":[\"w0\",\"w%d\"],\"name\":\"w%d\"}", i - 1, i);
    fr_buffer_printf(&layers, ",{\"fm\":[\"w0\",\"w%d\"],\"name\":\"last\"}", LAYERS - 1);
    fr_put_u8(&layers, 0);
    struct history *h = history_of_forged(
        cfg, sizeof(cfg),
        "{\"default\":0,\"dim\":4096,\"indicator\":false,\"kind\":\"dense\",\"name\":\"d\",\"transform\":\"none\"},",
        (const char *)layers.data, "last");
    struct freshet_replica *replica = replica_new();
    struct freshet_event event;
    assert_int_equal(feed_until_refused(replica, h, &event), FRESHET_E_INVALID);
    if (!strstr(event.problem, "brings the layers to more than 4194304 numbers for a sample"))
        fail_msg("%s", event.problem);
    fr_buffer_release(&layers);
    freshet_replica_free(replica);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_history_is_served_whole_whatever_was_refused_on_the_way),
        cmocka_unit_test(a_score_that_was_refused_memory_is_right_when_there_is_more),
        cmocka_unit_test(a_dump_that_was_refused_memory_changes_nothing),
        cmocka_unit_test(a_model_beyond_the_limit_is_an_error),
        cmocka_unit_test(a_model_beyond_the_memory_of_the_process_is_an_error),
        cmocka_unit_test(a_model_beyond_the_bound_of_activations_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
