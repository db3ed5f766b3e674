/* Fuzz target of the configuration: any text is refused with a problem, or loads, and then what
 * --print-config writes loads to the same, and the model's JSON is read back to the same
 * fingerprint. Lines "#--set PATH=VALUE" at the beginning are --set arguments. Seeds are the
 * configurations of the repository. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "conf/conf.h"
#include "fuzz.h"

enum { SETS_MAX = 4 };
static const char set_line[] = "#--set ";

struct loaded {
    struct fr_buffer printed, training;
    uint64_t fp;
};

static void check_model_json(const struct fr_conf *conf)
{
    struct fr_buffer json = {0};
    struct fr_conf *again = NULL;
    struct fr_err err = {0};
    fr_conf_model_json(conf, &json);
    FR_CHECK(fr_conf_model_parse((const char *)json.data, json.size, &again, &err) == FR_OK);
    FR_CHECK(fr_conf_fingerprint(again) == fr_conf_fingerprint(conf));
    fr_conf_free(again);
    fr_buffer_release(&json);
}

static bool load(const char *text, const char *const *sets, size_t n_sets, struct loaded *out)
{
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    struct fr_conf_load_options options = {.text = text, .sets = sets, .n_sets = n_sets};
    enum fr_status status = fr_conf_load(&options, &conf, &problems);
    FR_CHECK((status == FR_OK) == (problems.size == 0 || problems.data[0] == 0));
    fr_buffer_release(&problems);
    if (status != FR_OK)
        return false;
    fr_conf_print(conf, &out->printed);
    fr_conf_training_json(conf, &out->training);
    fr_put_u8(&out->printed, 0);
    fr_put_u8(&out->training, 0);
    out->fp = fr_conf_fingerprint(conf);
    check_model_json(conf);
    fr_conf_free(conf);
    return true;
}

static void release(struct loaded *loaded)
{
    fr_buffer_release(&loaded->printed);
    fr_buffer_release(&loaded->training);
}

/* What is printed with a masked secret is not what was loaded. */
static void check_printed(const struct loaded *loaded)
{
    struct loaded again = {0};
    if (strstr((const char *)loaded->printed.data, "***"))
        return;
    FR_CHECK(load((const char *)loaded->printed.data, NULL, 0, &again));
    FR_CHECK(again.fp == loaded->fp);
    FR_CHECK(strcmp((char *)again.printed.data, (char *)loaded->printed.data) == 0);
    FR_CHECK(strcmp((char *)again.training.data, (char *)loaded->training.data) == 0);
    release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = (char *)fuzz_copy(data, size, 1), *body = text;
    const char *sets[SETS_MAX];
    size_t n_sets = 0;
    struct loaded loaded = {0};
    text[size] = '\0';
    while (n_sets < SETS_MAX && strncmp(body, set_line, sizeof(set_line) - 1) == 0) {
        char *end = strchr(body, '\n');
        sets[n_sets++] = body + sizeof(set_line) - 1;
        body = end ? end + 1 : body + strlen(body);
        if (end)
            *end = '\0';
    }
    if (load(body, sets, n_sets, &loaded))
        check_printed(&loaded);
    release(&loaded);
    free(text);
    return 0;
}
