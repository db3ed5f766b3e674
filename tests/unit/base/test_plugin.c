/* base/plugin.h: where a plug-in is found, and which are refused. The plug-in plugin/sample.c lies
 * in a folder beside the program. */
#include "case.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

#include "base/plugin.h"

static const struct fr_plugin sample = {.name = "sample",
                                        .file = "unit_plugin_sample.so",
                                        .build_folder = "plugins/",
                                        .function = "fr_sample_plugin",
                                        .version = 7};

static bool is_loaded(void)
{
    void *library = dlopen(FR_PLUGIN_SAMPLE, RTLD_NOW | RTLD_NOLOAD);
    return library && dlclose(library) == 0;
}

FR_CASE(a_plugin_is_found_in_its_place_of_the_build)
{
    struct fr_err err = {0};
    void *library = NULL;
    const void *interface = NULL;
    if (fr_plugin_load(&sample, NULL, &library, &interface, &err) != FR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(((const uint32_t *)interface)[1], 42);
    assert_true(is_loaded());
    assert_int_equal(dlclose(library), 0);
    assert_false(is_loaded());
}

FR_CASE(a_plugin_of_another_version_is_refused_and_unloaded)
{
    struct fr_err err = {0};
    void *library = NULL;
    const void *interface = NULL;
    struct fr_plugin newer = sample;
    newer.version = 8;
    assert_int_equal(fr_plugin_load(&newer, NULL, &library, &interface, &err), FR_E_MISMATCH);
    assert_string_equal(err.text, "unit_plugin_sample.so is another version's plug-in (interface 7, not 8): install "
                                  "those of one build together");
    assert_null(library);
    assert_false(is_loaded());
}

FR_CASE(a_library_without_the_function_is_no_plugin)
{
    struct fr_err err = {0};
    void *library = NULL;
    const void *interface = NULL;
    assert_int_equal(fr_plugin_load(&sample, "libm.so.6", &library, &interface, &err), FR_E_MISMATCH);
    assert_non_null(strstr(err.text, "libm.so.6 is another version's plug-in (interface 0, not 7)"));
}

FR_CASE(a_missing_plugin_is_said_by_name)
{
    struct fr_err err = {0};
    void *library = NULL;
    const void *interface = NULL;
    struct fr_plugin missing = sample;
    missing.file = "unit_plugin_nowhere.so";
    assert_int_equal(fr_plugin_load(&missing, NULL, &library, &interface, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "the sample plug-in cannot be loaded: unit_plugin_nowhere.so"));
    assert_int_equal(fr_plugin_load(&sample, "/nowhere/sample.so", &library, &interface, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/sample.so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plugin_is_found_in_its_place_of_the_build),
        cmocka_unit_test(a_plugin_of_another_version_is_refused_and_unloaded),
        cmocka_unit_test(a_library_without_the_function_is_no_plugin),
        cmocka_unit_test(a_missing_plugin_is_said_by_name),
    };
    return cmocka_run_group_tests_name("plugin", tests, NULL, NULL);
}
