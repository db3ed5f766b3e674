/* Which RocksDB may open a state. The state is this program's; the OPTIONS file of its cold store
 * is changed to name another version. */
#include "scene.h"

/* In the newest OPTIONS file, as RocksDB leaves it at every open for writing. */
static void name_rocksdb(const struct scene *scene, const char *version)
{
    static const char before[] = "rocksdb_version=";
    struct dirent **files = NULL;
    char cold[SCENE_PATH], path[SCENE_PATH], newest[SCENE_PATH] = "";
    scene_path(scene, "cold", cold);
    int n = scandir(cold, &files, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strncmp(files[i]->d_name, "OPTIONS-", 8) == 0)
            snprintf(newest, sizeof(newest), "cold/%.100s", files[i]->d_name);
        free(files[i]);
    }
    free(files);
    scene_path(scene, newest, path);
    struct fr_buffer text = scene_read(path), changed = {0};
    fr_buffer_terminate(&text);
    const char *at = strstr((const char *)text.data, before);
    assert_non_null(at);
    at += sizeof(before) - 1;
    fr_buffer_append(&changed, text.data, (size_t)(at - (const char *)text.data));
    fr_buffer_append(&changed, version, strlen(version));
    at += strcspn(at, "\n");
    fr_buffer_append(&changed, at, strlen(at));
    scene_write(path, changed.data, changed.size);
    fr_buffer_release(&text);
    fr_buffer_release(&changed);
}

static struct scene make_folded(void)
{
    struct scene scene = scene_make(47);
    struct fr_durable *durable = scene_open(&scene, false);
    scene_append_to(&scene, durable, 1, 2);
    scene_fold(durable);
    fr_durable_close(durable);
    return scene;
}

/* Opens the state; opened, it must be whole. */
static enum fr_status open_again(const struct scene *scene, bool read_only, struct fr_err *err)
{
    struct fr_durable *durable = NULL;
    enum fr_status status = scene_try_open(scene, NULL, read_only, &durable, err);
    if (status == FR_OK)
        assert_true(scene_state_is(scene, durable, 2));
    fr_durable_close(durable);
    return status;
}

FR_CASE(a_cold_store_of_a_later_rocksdb_is_refused_with_the_remedy)
{
    static const char *const later[] = {"99.1.0", "9.11.0", "10.0.0"};
    struct scene scene = make_folded();
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        char remedy[64];
        name_rocksdb(&scene, later[i]);
        snprintf(remedy, sizeof(remedy), "run a build with RocksDB %.*s or later", (int)strlen(later[i]) - 2, later[i]);
        for (int read_only = 0; read_only < 2; read_only++) {
            struct fr_err err = {0};
            assert_int_equal(open_again(&scene, read_only, &err), FR_E_MISMATCH);
            assert_non_null(strstr(err.text, remedy));
        }
    }
}

FR_CASE(the_versions_of_both_distributions_and_earlier_ones_open)
{
    static const char *const known[] = {"9.10.0", "7.8.3", "6.29.5", "", "none"};
    struct scene scene = make_folded();
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        struct fr_err err = {0};
        name_rocksdb(&scene, known[i]);
        assert_int_equal(open_again(&scene, false, &err), FR_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(a_cold_store_of_a_later_rocksdb_is_refused_with_the_remedy),
        SCENE_CASE(the_versions_of_both_distributions_and_earlier_ones_open),
    };
    return cmocka_run_group_tests_name("durable version", tests, NULL, NULL);
}
