/* A state and a configuration belong together, or the start is refused and says what to do. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "service.h"

static char dir[32];
static struct fr_service *service;
static struct fr_err err;
static const char *and_set; /* one more --set for starts that set something */

static struct fr_conf *load(const char *set)
{
    char state[64];
    snprintf(state, sizeof(state), "state_dir=%s", dir);
    const char *sets[] = {state, set, and_set};
    struct fr_conf_load_options options = {.path = FR_SOURCE_DIR "/tests/integration/operating.yaml",
                                           .sets = sets,
                                           .n_sets = and_set ? 3
                                                     : set   ? 2
                                                             : 1};
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return conf;
}

/* Checks the directory as a start with this configuration does; appends one epoch if it trains. */
static enum fr_status start(const char *set, bool trains)
{
    service->conf = load(set);
    struct fr_buffer head = {0};
    fr_identity_head(service->conf, "kernel", &head);
    struct fr_durable_options options = {.dir = dir, .salt = 1, .head = head.data, .head_size = head.size};
    err = (struct fr_err){0};
    assert_int_equal(fr_durable_open(&options, &service->durable, &err), FR_OK);
    struct fr_durable_status found;
    fr_durable_get_status(service->durable, &found);
    struct fr_identity *identity = &service->recovery.identity;
    *identity = (struct fr_identity){0};
    enum fr_status status = found.epoch == 0 ? fr_identity_write(service->conf, service->durable, &err)
                                             : fr_identity_check(identity, service->conf, service->durable, NULL, 0);
    if (status != FR_OK && found.epoch > 0)
        err = identity->err;
    fr_buffer_release(&identity->training.settings);
    if (trains) {
        struct fr_durable_status durable;
        struct fr_stage stage;
        struct fr_err failed = {0};
        fr_durable_get_status(service->durable, &durable);
        fr_stage_init(&stage);
        stage.epoch = durable.epoch + 1;
        stage.timeline = 1;
        assert_int_equal(fr_durable_append(service->durable, &stage, NULL, NULL, &failed), FR_OK);
        fr_stage_release(&stage);
    }
    fr_durable_close(service->durable);
    fr_buffer_release(&head);
    fr_conf_free(service->conf);
    return status;
}

static void remove_file(const char *name)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

FR_FIXTURE(make_state)
{
    strcpy(dir, "/tmp/fr_identity_XXXXXX");
    assert_non_null(mkdtemp(dir));
    service = fr_alloc(1, sizeof(*service));
    return 0;
}

FR_FIXTURE(remove_state)
{
    char command[64];
    free(service);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    return system(command);
}

FR_CASE(a_start_that_trained_nothing_binds_nobody)
{
    assert_int_equal(start(NULL, false), FR_OK);
    assert_int_equal(start("seed=77", false), FR_OK);
    assert_int_equal(start("export.partitions=5", false), FR_OK);
    assert_int_equal(start("seed=77", true), FR_OK);
    assert_int_equal(start("seed=77", false), FR_OK);
    assert_int_equal(start("export.partitions=5", false), FR_E_MISMATCH);
}

FR_CASE(a_file_that_is_missing_beside_epochs_is_refused_with_the_remedy)
{
    static const char *const names[] = {"model.json", "training.json", "delta.json"};
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        assert_int_equal(start(NULL, true), FR_OK);
        remove_file(names[i]);
        /* the file is not written again from the new configuration */
        assert_true(start("seed=77", false) < 0);
        assert_int_equal(fr_exit_code(FR_E_CORRUPT), FR_EXIT_OPERATOR);
        assert_int_equal(start(NULL, false), FR_E_CORRUPT);
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, "put the file back"));
        char command[64];
        snprintf(command, sizeof(command), "rm -r %s/*", dir);
        assert_int_equal(system(command), 0);
    }
}

FR_CASE(a_file_that_is_cut_off_is_refused_by_name)
{
    static const char *const names[] = {"model.json", "training.json", "delta.json"};
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        char command[64], path[64];
        assert_int_equal(start(NULL, true), FR_OK);
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(truncate(path, 20), 0);
        assert_int_equal(start(NULL, false), FR_E_CORRUPT);
        if (!strstr(err.text, names[i]))
            fail_msg("%s", err.text);
        snprintf(command, sizeof(command), "rm -r %s/*", dir);
        assert_int_equal(system(command), 0);
    }
}

FR_CASE(epochs_of_another_model_than_the_files_are_refused)
{
    char command[128];
    assert_int_equal(start("seed=77", false), FR_OK);
    snprintf(command, sizeof(command), "cp %s/model.json %s/kept", dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(start("tables.user.dim=3", true), FR_OK);
    assert_int_equal(start("tables.user.dim=3", false), FR_OK);
    snprintf(command, sizeof(command), "mv %s/kept %s/model.json", dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(start("seed=77", false), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "files of two states are mixed"));
}

FR_CASE(files_that_are_mixed_are_recognized_by_what_no_state_takes_over)
{
    char command[128];
    assert_int_equal(start("seed=77", false), FR_OK);
    snprintf(command, sizeof(command), "cp %s/model.json %s/kept", dir, dir);
    assert_int_equal(system(command), 0);
    and_set = "labels.click.key=clicked"; /* a change that a state accepts, which is listed first */
    assert_int_equal(start("tables.user.dim=3", true), FR_OK);
    assert_int_equal(start("tables.user.dim=3", false), FR_OK);
    snprintf(command, sizeof(command), "mv %s/kept %s/model.json", dir, dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(start("tables.user.dim=3", false), FR_E_CORRUPT);
    and_set = NULL;
    if (!strstr(err.text, "(tables.user.parts.v.dim: "))
        fail_msg("%s", err.text);
}

#define STATE_CASE(name) cmocka_unit_test_setup_teardown(name, make_state, remove_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        STATE_CASE(a_start_that_trained_nothing_binds_nobody),
        STATE_CASE(a_file_that_is_missing_beside_epochs_is_refused_with_the_remedy),
        STATE_CASE(a_file_that_is_cut_off_is_refused_by_name),
        STATE_CASE(epochs_of_another_model_than_the_files_are_refused),
        STATE_CASE(files_that_are_mixed_are_recognized_by_what_no_state_takes_over),
    };
    return cmocka_run_group_tests_name("daemon identity", tests, NULL, NULL);
}
