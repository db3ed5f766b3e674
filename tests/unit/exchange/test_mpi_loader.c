/* The loader of the MPI plug-in: what is missing is said with what to install; and the warning
 * about processors. The plug-in itself is tried by mpi_rank.c. */
#include "exchange/mpi.h"

#include "case.h"

#include <string.h>

#include "base/check.h"

FR_CASE(a_machine_without_the_plugin_is_told_what_to_install)
{
    struct fr_exchange *exchange = NULL;
    struct fr_err err = {0};
    struct fr_exchange_mpi_options options = {.plugin = "/nowhere/freshet-mpi.so", .deadline_ns = 1};
    assert_int_equal(fr_exchange_mpi_open(&options, &exchange, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "openmpi-bin"));
    assert_non_null(strstr(err.text, "libopenmpi-dev"));
    assert_non_null(strstr(err.text, "the MPI plug-in cannot be loaded: /nowhere/freshet-mpi.so"));
    assert_null(exchange);
}

FR_CASE(a_plugin_of_another_version_is_refused)
{
    struct fr_exchange *exchange = NULL;
    struct fr_err err = {0};
    struct fr_exchange_mpi_options options = {.plugin = "libm.so.6", .deadline_ns = 1};
    assert_int_equal(fr_exchange_mpi_open(&options, &exchange, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "another version"));
    assert_null(exchange);
}

FR_CASE(workers_without_processors_of_their_own_are_a_warning_only_where_the_launcher_took_them)
{
    static const struct {
        uint32_t online, allowed, workers;
        bool warns;
    } table[] = {
        {8, 1, 4, true}, {8, 3, 4, true}, {8, 4, 4, false}, {8, 8, 16, false}, {1, 1, 4, false}, {8, 1, 1, false},
    };
    for (size_t i = 0; i < FR_ARRAY_LEN(table); i++) {
        char text[512] = "";
        struct fr_machine machine = {.online = table[i].online, .allowed = table[i].allowed};
        assert_int_equal(fr_exchange_affinity_warning(&machine, table[i].workers, text, sizeof(text)), table[i].warns);
        assert_int_equal(text[0] != '\0', table[i].warns);
    }
    char text[512];
    struct fr_machine machine = {.online = 8, .allowed = 1};
    assert_true(fr_exchange_affinity_warning(&machine, 4, text, sizeof(text)));
    assert_non_null(strstr(text, "4 workers share 1 of the 8 processors"));
    assert_non_null(strstr(text, "--bind-to none, or with --map-by numa:PE=4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_the_plugin_is_told_what_to_install),
        cmocka_unit_test(a_plugin_of_another_version_is_refused),
        cmocka_unit_test(workers_without_processors_of_their_own_are_a_warning_only_where_the_launcher_took_them),
    };
    return cmocka_run_group_tests_name("mpi_loader", tests, NULL, NULL);
}
