/* The loader: a plug-in that is missing, or that belongs to another program, is refused with the
 * reason. test_plugin.c tests the plug-in that was built, with and without a card. */
#include "case.h"

#include <string.h>

#include "cuda/api.h"

FR_CASE(a_missing_plugin_is_said_by_name)
{
    const struct fr_device_api *api = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_cuda_load("/nowhere/libfreshet_cuda.so", &api, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/libfreshet_cuda.so"));
    assert_null(api);
}

FR_CASE(a_library_that_is_no_plugin_is_refused)
{
    const struct fr_device_api *api = NULL;
    struct fr_err err = {0};
    assert_int_equal(fr_cuda_load("libm.so.6", &api, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "another version"));
    assert_null(api);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_plugin_is_said_by_name),
        cmocka_unit_test(a_library_that_is_no_plugin_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
