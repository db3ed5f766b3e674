/* What a rank of a job has of its own, and which directories it may use (job.h). */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "job.h"

static struct fr_conf *load(const char *first, const char *second)
{
    const char *sets[] = {first, second, "scale.domains=4", "export.partitions=4"};
    struct fr_conf_load_options options = {
        .path = FR_SOURCE_DIR "/tests/integration/operating.yaml", .sets = sets, .n_sets = FR_ARRAY_LEN(sets)};
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    enum fr_status status = fr_conf_load(&options, &conf, &problems);
    if (status != FR_OK)
        print_message("%.*s\n", (int)problems.size, (const char *)problems.data);
    fr_buffer_release(&problems);
    return conf;
}

FR_CASE(a_rank_has_a_directory_and_a_port_of_its_own)
{
    char sets[FR_JOB_SETS][FR_JOB_SET_BYTES];
    struct fr_buffer problem = {0};
    struct fr_conf *conf = load("scale.ranks=4", "metrics.listen=\"[::1]:8080\"");
    assert_non_null(conf);
    assert_true(fr_job_sets(conf, 3, sets, &problem));
    char own[FR_JOB_SET_BYTES];
    snprintf(own, sizeof(own), "state_dir=%s/rank-3of4", conf->state_dir);
    assert_string_equal(sets[0], own);
    assert_string_equal(sets[1], "metrics.listen=\"[::1]:8083\"");
    conf->metrics.listen_port = 0; /* any free one */
    assert_true(fr_job_sets(conf, 3, sets, &problem));
    assert_string_equal(sets[1], "metrics.listen=\"[::1]:0\"");
    assert_int_equal(problem.size, 0);
    conf->metrics.listen_port = 65533;
    assert_false(fr_job_sets(conf, 3, sets, &problem));
    fr_buffer_terminate(&problem);
    assert_non_null(strstr((char *)problem.data, "rank 3 would have state_dir="));
    fr_buffer_release(&problem);
    fr_conf_free(conf);
}

FR_CASE(what_several_ranks_cannot_do_is_refused)
{
    assert_null(load("scale.ranks=5", "scale.deadline=1s"));
    assert_null(load("scale.ranks=2", "snapshot.every=1h"));
    assert_null(load("scale.ranks=2", "export.format=hps"));
}

static void make(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

FR_CASE(a_directory_of_another_number_of_ranks_is_refused)
{
    char dir[FR_TEST_FOLDER], absent[FR_TEST_FOLDER + 8], command[FR_TEST_FOLDER + 8];
    struct fr_err err = {0};
    fr_test_folder(dir);
    snprintf(absent, sizeof(absent), "%s/absent", dir);
    assert_int_equal(fr_job_check_directory(absent, 1, &err), FR_OK);
    assert_int_equal(fr_job_check_directory(absent, 3, &err), FR_OK);
    make(dir, "rank-0of3");
    make(dir, "rank-of-mine");
    assert_int_equal(fr_job_check_directory(dir, 3, &err), FR_OK);
    assert_int_equal(fr_job_check_directory(dir, 4, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "of a job of 3 ranks, and scale.ranks is 4"));
    assert_int_equal(fr_job_check_directory(dir, 1, &err), FR_E_MISMATCH);
    make(dir, "hwm"); /* as the file of a state of one rank */
    assert_int_equal(fr_job_check_directory(dir, 3, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "the state of one rank"));
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_has_a_directory_and_a_port_of_its_own),
        cmocka_unit_test(what_several_ranks_cannot_do_is_refused),
        cmocka_unit_test(a_directory_of_another_number_of_ranks_is_refused),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
