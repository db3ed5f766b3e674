/* References in values: variables of the environment, files of secrets, and that no secret is shown
 * in a message, a warning or the printed configuration. */
#include "conf_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"

static char dir[64];

FR_FIXTURE(make_dir)
{
    snprintf(dir, sizeof(dir), "/tmp/fr_expand_XXXXXX");
    assert_non_null(mkdtemp(dir));
    setenv("FR_T_HOST", "kafka-1", 1);
    setenv("FR_T_NUMBER", "512", 1);
    setenv("FR_T_SECRET", "hunter2", 1);
    unsetenv("FR_T_NONE");
    return 0;
}

FR_FIXTURE(remove_dir)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", dir);
    return system(command);
}

static void write_file(const char *name, const char *text, mode_t mode, char path[static 128])
{
    snprintf(path, 128, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Loads base_text with one --set, or the file at `path`. The caller frees the configuration and the
 * warnings. */
static struct fr_conf *load_warned(const char *path, const char *set, struct fr_buffer *warnings)
{
    struct fr_buffer problems = {0};
    struct fr_conf *conf = NULL;
    struct fr_conf_load_options options = {.path = path ? path : "test.yaml",
                                           .text = path ? NULL : base_text,
                                           .sets = &set,
                                           .n_sets = set ? 1 : 0,
                                           .warnings = warnings};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%s", (const char *)problems.data);
    fr_buffer_release(&problems);
    return conf;
}

static void assert_problem(const char *set, const char *part)
{
    char *problems = problems_of(base_text, &set, 1);
    assert_contains(problems, part);
    if (strstr(problems, "hunter2"))
        fail_msg("a secret in a message: %s", problems);
    free(problems);
}

/* ---- ${NAME} ---- */

FR_CASE(a_variable_stands_for_its_value_anywhere_in_a_text)
{
    struct fr_conf *conf =
        load_variant("brokers: \"localhost:9092\"", "brokers: \"${FR_T_HOST}:9092,${FR_T_HOST}b:9\"");
    assert_string_equal(conf->ingest.brokers, "kafka-1:9092,kafka-1b:9");
    fr_conf_free(conf);
    conf = load_variant("batch_size: 256", "ring_batches: ${FR_T_NUMBER}");
    assert_int_equal(conf->ingest.ring_batches, 512);
    fr_conf_free(conf);
}

FR_CASE(two_dollars_write_one_and_a_dollar_alone_is_itself)
{
    struct fr_conf *conf = load_variant("batch_size: 256", "kafka: {client.id: \"a$${FR_T_HOST}$b $$ ${FR_T_HOST}$\"}");
    assert_string_equal(conf->ingest.kafka[0].value, "a${FR_T_HOST}$b $$ kafka-1$");
    fr_conf_free(conf);
}

FR_CASE(a_missing_variable_is_named_with_its_place)
{
    char *text = variant("brokers: \"localhost:9092\"", "brokers: \"${FR_T_NONE}:9092\"");
    char *problems = problems_of(text, NULL, 0);
    assert_contains(problems, "test.yaml:5:12: ingest.brokers: the environment has no variable FR_T_NONE");
    free(problems);
    free(text);
    assert_problem("ingest.brokers=${FR_T_HOST:-a}", "`${` begins no variable");
    assert_problem("ingest.brokers=a${", "`${` begins no variable");
    assert_problem("ingest.brokers=${}", "`${` begins no variable");
    assert_problem("ingest.brokers=${9}", "`${` begins no variable");
}

FR_CASE(a_variable_cannot_become_syntax)
{
    setenv("FR_T_SECRET", "x\", evil: {a: [", 1);
    struct fr_conf *conf = load_variant("topic: samples", "topic: samples\n  kafka: {client.id: \"${FR_T_SECRET}\"}");
    assert_string_equal(conf->ingest.kafka[0].value, "x\", evil: {a: [");
    fr_conf_free(conf);
}

FR_CASE(what_the_model_is_made_of_takes_no_variable)
{
    static const char *const sets[] = {"tables.user.dim=${FR_T_NUMBER}", "seed=${FR_T_NUMBER}",
                                       "slots.price.dim=${FR_T_NUMBER}", "ingest.sampling=${FR_T_HOST}",
                                       "export.quantize=${FR_T_HOST}",   "tasks.0.weight=${FR_T_NUMBER}"};
    for (size_t i = 0; i < FR_ARRAY_LEN(sets); i++)
        assert_problem(sets[i], "the model is made of this");
}

FR_CASE(names_of_models_and_topics_may_come_from_the_environment)
{
    const char *const set = "model=ctr-${FR_T_HOST}";
    struct fr_conf *conf = load_with(base_text, &set, 1);
    assert_string_equal(conf->model, "ctr-kafka-1");
    assert_string_equal(conf->export_.topic, "ctr-kafka-1.delta");
    fr_conf_free(conf);
}

FR_CASE(a_message_shows_what_was_written)
{
    assert_problem("ingest.format=${FR_T_SECRET}", "unknown value `${FR_T_SECRET}`");
    assert_problem("ingest.ring_batches=${FR_T_SECRET}", "`${FR_T_SECRET}` is not an integer");
    assert_problem("model=a ${FR_T_SECRET}", "`a ${FR_T_SECRET}` is not a model name");
    char secret[301] = {0}; /* cut in messages */
    memset(secret, 'x', 300);
    setenv("FR_T_SECRET", secret, 1);
    const char *const set = "ingest.topic=${FR_T_SECRET}!";
    char *problems = problems_of(base_text, &set, 1);
    assert_contains(problems, "`${FR_T_SECRET}!` is not a topic name");
    assert_null(strstr(problems, "xxx"));
    free(problems);
}

/* ---- file: ---- */

FR_CASE(a_secret_comes_from_a_file_without_its_last_newline)
{
    static const char *const texts[] = {"hunter2", "hunter2\n", "hunter2\r\n"};
    char path[128], set[200];
    for (size_t i = 0; i < FR_ARRAY_LEN(texts); i++) {
        write_file("password", texts[i], 0600, path);
        snprintf(set, sizeof(set), "ingest.kafka.sasl.password=file:%s", path);
        struct fr_conf *conf = load_warned(NULL, set, NULL);
        assert_string_equal(conf->ingest.kafka[0].value, "hunter2");
        fr_conf_free(conf);
    }
    write_file("password", " a\n\n", 0600, path); /* one newline, and nothing else */
    struct fr_conf *conf = load_warned(NULL, set, NULL);
    assert_string_equal(conf->ingest.kafka[0].value, " a\n");
    fr_conf_free(conf);
    setenv("FR_T_HOST", dir, 1); /* as systemd sets CREDENTIALS_DIRECTORY */
    write_file("seed", "812\n", 0600, path);
    conf = load_warned(NULL, "key_seed=file:${FR_T_HOST}/seed", NULL);
    assert_int_equal(conf->key_seed_number, 812);
    fr_conf_free(conf);
}

FR_CASE(a_file_that_cannot_be_read_is_named)
{
    assert_problem("ingest.kafka.sasl.password=file:/nowhere/password", "cannot open /nowhere/password: No such file");
    assert_problem("key_seed=file:/nowhere/seed", "key_seed: cannot open /nowhere/seed");
}

FR_CASE(other_options_take_the_word_file_as_it_stands)
{
    const char *const set = "state_dir=file:/x";
    struct fr_conf *conf = load_with(base_text, &set, 1);
    assert_string_equal(conf->state_dir, "file:/x");
    fr_conf_free(conf);
}

FR_CASE(a_secret_that_every_user_can_read_is_warned_of)
{
    struct fr_buffer warnings = {0};
    char path[128], set[200], yaml[128];
    write_file("password", "hunter2\n", 0644, path);
    snprintf(set, sizeof(set), "ingest.kafka.sasl.password=file:%s", path);
    fr_conf_free(load_warned(NULL, set, &warnings));
    assert_contains((char *)warnings.data,
                    "--set ingest.kafka.sasl.password:1:1: warning: ingest.kafka.sasl.password: ");
    assert_contains((char *)warnings.data, "is readable by every user (mode 0644)");
    assert_null(strstr((char *)warnings.data, "hunter2"));
    fr_buffer_clear(&warnings);

    char *text = variant("topic: samples", "topic: samples\n  kafka: {sasl.password: hunter2, ssl.ca.location: /ca}");
    write_file("c.yaml", text, 0644, yaml);
    fr_conf_free(load_warned(yaml, NULL, &warnings));
    assert_contains((char *)warnings.data, "c.yaml:7:26: warning: ingest.kafka.sasl.password: a secret in a file that "
                                           "every user can read (mode 0644)");
    assert_null(strstr((char *)warnings.data, "hunter2"));
    fr_buffer_clear(&warnings);
    assert_int_equal(chmod(yaml, 0600), 0);
    fr_conf_free(load_warned(yaml, NULL, &warnings));
    assert_int_equal(warnings.size, 0);
    free(text);
    fr_buffer_release(&warnings);
}

/* ---- masks ---- */

FR_CASE(what_is_not_known_to_be_no_secret_is_masked)
{
    static const char *const sets[] = {"ingest.kafka.SASL.PASSWORD=hunter2", "ingest.kafka.sasl.jaas.config=hunter2",
                                       "ingest.kafka.sasl.username=hunter2", "ingest.kafka.new.thing=hunter2",
                                       "ingest.kafka.security.protocol=ssl", "key_seed=hunter2"};
    struct fr_conf *conf = load_with(base_text, sets, FR_ARRAY_LEN(sets));
    struct fr_buffer text = {0};
    fr_conf_print(conf, &text);
    assert_null(strstr((char *)text.data, "hunter2"));
    assert_contains((char *)text.data, "security.protocol: \"ssl\"");
    assert_contains((char *)text.data, "SASL.PASSWORD: \"***\"");
    assert_contains((char *)text.data, "key_seed: \"***\"");
    fr_buffer_release(&text);
    fr_conf_free(conf);
}

FR_CASE(a_mask_is_no_secret)
{
    assert_problem("ingest.kafka.sasl.password=\"***\"", "what --print-config shows of a secret");
    assert_problem("key_seed=\"***\"", "what --print-config shows of a secret");
}

FR_CASE(a_set_is_named_by_its_path)
{
    assert_problem("ingest.kafka.sasl.password={hunter2", "--set ingest.kafka.sasl.password:");
    assert_problem("ingest.kafka.sasl.password=[hunter2]", "--set ingest.kafka.sasl.password:");
    assert_problem("ingest.kafak.sasl.password=hunter2", "unknown key `kafak`");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_variable_stands_for_its_value_anywhere_in_a_text),
        CASE(two_dollars_write_one_and_a_dollar_alone_is_itself),
        CASE(a_missing_variable_is_named_with_its_place),
        CASE(a_variable_cannot_become_syntax),
        CASE(what_the_model_is_made_of_takes_no_variable),
        CASE(names_of_models_and_topics_may_come_from_the_environment),
        CASE(a_message_shows_what_was_written),
        CASE(a_secret_comes_from_a_file_without_its_last_newline),
        CASE(a_file_that_cannot_be_read_is_named),
        CASE(other_options_take_the_word_file_as_it_stands),
        CASE(a_secret_that_every_user_can_read_is_warned_of),
        CASE(what_is_not_known_to_be_no_secret_is_masked),
        CASE(a_mask_is_no_secret),
        CASE(a_set_is_named_by_its_path),
    };
    return cmocka_run_group_tests_name("conf expand", tests, NULL, NULL);
}
