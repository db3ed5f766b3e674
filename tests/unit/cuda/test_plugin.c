/* The plug-in as nvcc made it: without a driver and a card it loads and reports that there is no
 * card; with a card it works. The cases are skipped if no toolkit built the plug-in. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/api.h"

/* Returns the plug-in's functions, or NULL if the build has no plug-in. */
static const struct fr_device_api *load(void)
{
    const struct fr_device_api *api = NULL;
    struct fr_err err = {0};
    if (FR_CUDA_PLUGIN[0] == '\0')
        return NULL;
    if (fr_cuda_load(FR_CUDA_PLUGIN, &api, &err) != FR_OK)
        fail_msg("%s", err.text);
    return api;
}

FR_CASE(the_plugin_loads_and_says_whether_there_is_a_card)
{
    const struct fr_device_api *api = load();
    struct fr_err err = {0};
    if (!api)
        skip();
    if (api->count(&err) > 0)
        return;
    assert_int_equal(err.status, FR_E_UNAVAILABLE);
    assert_memory_equal(err.text, "no card: ", 9);
    assert_true(strlen(err.text) > 9);
}

/* Returns the resident memory in kilobytes. */
static long resident(void)
{
    char line[256];
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    assert_int_equal(sscanf(line, "%*d %ld", &pages), 1);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

FR_CASE(a_plugin_that_is_not_used_takes_its_memory_along)
{
    struct fr_err err = {0};
    if (FR_CUDA_PLUGIN[0] == '\0')
        skip();
    fr_cuda_unload();
    long before = resident();
    const struct fr_device_api *api = load();
    if (api->count(&err) > 0)
        skip(); /* the driver stays loaded */
    long with = resident();
    fr_cuda_unload();
    if (!(resident() - before < (with - before) / 4))
        fail_msg("%ld kB with it, %ld before, %ld after", with, before, resident());
    fr_cuda_unload(); /* without a plug-in this does nothing */
    assert_non_null(load());
}

FR_CASE(a_card_that_is_not_there_is_refused_with_the_reason)
{
    const struct fr_device_api *api = load();
    struct fr_device_queue *queue = NULL;
    struct fr_err err = {0};
    if (!api)
        skip();
    assert_int_equal(api->open(1000, &queue, &err), FR_E_UNAVAILABLE);
    assert_null(queue);
    assert_non_null(strstr(err.text, "card 1000"));
}

FR_CASE(memory_goes_to_a_card_and_back)
{
    const struct fr_device_api *api = load();
    struct fr_device_queue *queue = NULL;
    struct fr_err err = {0};
    if (!api || api->count(&err) == 0)
        skip();
    assert_int_equal(api->open(0, &queue, &err), FR_OK);
    uint32_t sent[64], got[64] = {0}, *device = api->alloc(queue, sizeof(sent));
    for (uint32_t i = 0; i < 64; i++)
        sent[i] = i * i;
    assert_non_null(device);
    api->upload(queue, device, sent, sizeof(sent));
    api->zero(queue, device + 7, sizeof(*device));
    api->download(queue, got, device, sizeof(got));
    assert_int_equal(api->finish(queue, &err), FR_OK);
    sent[7] = 0;
    assert_memory_equal(sent, got, sizeof(got));
    /* a petabyte is refused, which is no error of the queue */
    assert_null(api->alloc(queue, (size_t)1 << 50));
    assert_int_equal(api->finish(queue, &err), FR_OK);
    api->release(queue, device);
    api->close(queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plugin_loads_and_says_whether_there_is_a_card),
        cmocka_unit_test(a_plugin_that_is_not_used_takes_its_memory_along),
        cmocka_unit_test(a_card_that_is_not_there_is_refused_with_the_reason),
        cmocka_unit_test(memory_goes_to_a_card_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
