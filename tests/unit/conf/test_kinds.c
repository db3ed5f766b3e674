/* Lists of kinds outside C: those of the Python package and those in the texts. All are written
 * from the vocabulary, and these tests compare them. With FR_UPDATE set in the environment they are
 * written instead.
 *
 * * In a text a list stands between <!--kinds:NAME--> and <!--/kinds-->, which no reader of
 * Markdown shows. */
#include "conf_fixture.h"

#include <glob.h>

#include "base/check.h"
#include "vocabulary/layer.h"
#include "../../../conf/options.h"
#include "vocabulary/loss.h"
#include "vocabulary/removal.h"

static const char PYTHON[] = FR_SOURCE_DIR "/replica/python/freshet/_kinds.py";
#define BEGIN "<!--kinds:"
#define END "<!--/kinds-->"

static struct fr_buffer read_file(const char *path)
{
    struct fr_buffer text = {0};
    char bytes[4096];
    FILE *file = fopen(path, "r");
    for (size_t n; file && (n = fread(bytes, 1, sizeof(bytes), file)) > 0;)
        fr_buffer_append(&text, bytes, n);
    if (file)
        assert_int_equal(fclose(file), 0);
    fr_buffer_terminate(&text);
    return text;
}

static void write_file(const char *path, const struct fr_buffer *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text->data, 1, text->size, file), text->size);
    assert_int_equal(fclose(file), 0);
}

/* ---- Python ---- */

#define TUPLE_MEMBER(name, text, ...) "    \"" text "\",\n"
#define REMOVAL_MEMBER(name, text, number, by) "    " #number ": \"" text "\",\n"
#define SCORE_OF_PROBABILITY "probability"
#define SCORE_OF_VALUE "value"
#define LOSS_MEMBER(name, text, prediction, ...) "    \"" text "\": \"" SCORE_OF_##prediction "\",\n"

static const char python_lists[] =
    "\"\"\"Names of a model and what is asked of them. Generated from conf/vocabulary; unit_conf_kinds compares this "
    "file with it.\"\"\"\n"
    "\n"
    "# What the score of a task is: sigmoid(logit), or the logit itself.\n"
    "LOSSES = {\n" FR_TASK_LOSSES(
        LOSS_MEMBER) "}\n"
                     "ROW_POOLINGS = (\n" FR_ROW_POOLINGS(
                         TUPLE_MEMBER) ")\n"
                                       "STEP_POOLINGS = (\n" FR_POOLINGS(
                                           TUPLE_MEMBER) ")\n"
                                                         "OPERATIONS = (\n" FR_LAYER_OPS(
                                                             TUPLE_MEMBER) ")\n"
                                                                           "# The `why` of a tombstone.\n"
                                                                           "REMOVALS = {\n" FR_REMOVALS(
                                                                               REMOVAL_MEMBER) "}\n";

FR_CASE(the_lists_of_the_python_package_are_those_of_the_vocabulary)
{
    const struct fr_buffer expected = {.data = (uint8_t *)(uintptr_t)python_lists, .size = sizeof(python_lists) - 1};
    if (getenv("FR_UPDATE"))
        write_file(PYTHON, &expected);
    struct fr_buffer have = read_file(PYTHON);
    assert_string_equal((const char *)have.data, python_lists);
    fr_buffer_release(&have);
}

/* ---- texts ---- */

/* "a, b or c" from the members that `wanted` accepts. */
static void list_losses(struct fr_buffer *out, bool (*wanted)(enum fr_task_loss loss))
{
    static const enum fr_task_loss losses[] = {FR_TASK_LOSSES(FR_KIND_MEMBER)};
    size_t n = 0, written = 0;
    for (size_t i = 0; i < FR_ARRAY_LEN(losses); i++)
        n += wanted(losses[i]);
    for (size_t i = 0; i < FR_ARRAY_LEN(losses); i++)
        if (wanted(losses[i])) {
            const char *before = written == 0 ? "" : written + 1 == n ? " or " : ", ";
            fr_buffer_printf(out, "%s`%s`", before, fr_task_loss_text(losses[i]));
            written++;
        }
}

static bool is_any(enum fr_task_loss loss)
{
    (void)loss;
    return true;
}

static bool is_of_value(enum fr_task_loss loss)
{
    return fr_loss_prediction(loss) == FR_PREDICTS_VALUE;
}

static bool is_of_unit_labels(enum fr_task_loss loss)
{
    return fr_loss_labels(loss) == FR_LABELS_UNIT;
}

static bool has_prior(enum fr_task_loss loss)
{
    return fr_loss_has_prior(loss);
}

#define NUMBERED(name, text, number, ...) ", " #number " " text

static bool expected_list(const char *name, struct fr_buffer *out)
{
    static const struct {
        const char *name;
        bool (*wanted)(enum fr_task_loss loss);
    } lists[] = {{"losses", is_any},
                 {"losses of values", is_of_value},
                 {"losses of unit labels", is_of_unit_labels},
                 {"losses with a prior", has_prior}};
    for (size_t i = 0; i < FR_ARRAY_LEN(lists); i++)
        if (strcmp(lists[i].name, name) == 0) {
            list_losses(out, lists[i].wanted);
            fr_buffer_terminate(out);
            return true;
        }
    fr_buffer_printf(out, "%s", strcmp(name, "removals") == 0 ? &FR_REMOVALS(NUMBERED)[2] : "");
    fr_buffer_terminate(out);
    return out->size > 0;
}

/* Says whether two texts are equal apart from the places of their line ends. */
static bool reads_the_same(const char *a, size_t n, const char *b)
{
    for (size_t i = 0; i < n; i++)
        if (b[i] != (a[i] == '\n' ? ' ' : a[i]))
            return false;
    return b[n] == '\0';
}

/* Writes the text with every list as the vocabulary has it; returns the number of lists. */
static size_t write_lists(const char *path, const char *text, struct fr_buffer *out, bool *same)
{
    size_t n = 0;
    for (const char *at; (at = strstr(text, BEGIN)); n++) {
        char name[64] = "";
        const char *begin = strstr(at, "-->"), *end = strstr(at, END);
        if (!begin || !end || (size_t)(begin - at) - strlen(BEGIN) >= sizeof(name))
            fail_msg("%s: a list of kinds without its end", path);
        memcpy(name, at + strlen(BEGIN), (size_t)(begin - at) - strlen(BEGIN));
        begin += strlen("-->");
        struct fr_buffer list = {0};
        if (!expected_list(name, &list))
            fail_msg("%s: there is no list of kinds `%s`", path, name);
        bool equal = reads_the_same(begin, (size_t)(end - begin), (const char *)list.data);
        *same &= equal;
        fr_buffer_append(out, text, (size_t)(begin - text));
        fr_buffer_append(out, equal ? begin : (const char *)list.data, equal ? (size_t)(end - begin) : list.size);
        if (!equal && !getenv("FR_UPDATE"))
            fail_msg("%s: the list `%s` is to be %s; FR_UPDATE=1 unit_conf_kinds writes it", path, name,
                     (const char *)list.data);
        text = end;
        fr_buffer_release(&list);
    }
    fr_buffer_append(out, text, strlen(text));
    return n;
}

FR_CASE(the_lists_in_the_texts_are_those_of_the_vocabulary)
{
    glob_t texts;
    size_t n = 0;
    assert_int_equal(glob(FR_SOURCE_DIR "/docs/*.md", 0, NULL, &texts), 0);
    assert_int_equal(glob(FR_SOURCE_DIR "/docs/formats/*.md", GLOB_APPEND, NULL, &texts), 0);
    for (size_t i = 0; i < texts.gl_pathc; i++) {
        struct fr_buffer have = read_file(texts.gl_pathv[i]), want = {0};
        bool same = true;
        n += write_lists(texts.gl_pathv[i], (const char *)have.data, &want, &same);
        if (!same)
            write_file(texts.gl_pathv[i], &want);
        fr_buffer_release(&have);
        fr_buffer_release(&want);
    }
    assert_true(n >= 5);
    globfree(&texts);
}

static const char expiry[] = "tables.*.expire.";

/* What each option of expiry does is explained where models are. */
FR_CASE(the_text_about_models_explains_every_option_of_expiry)
{
    struct fr_buffer text = read_file(FR_SOURCE_DIR "/docs/models.md");
    char *begin = strstr((char *)text.data, "rules of expiry (`expire`)"), *end = begin ? strstr(begin, "\n## ") : NULL;
    assert_non_null(end);
    *end = '\0';
    for (size_t i = 0; i < fr_options_count; i++) {
        const char *path = fr_options[i].path;
        char name[64];
        if (strncmp(path, expiry, sizeof(expiry) - 1) != 0)
            continue;
        assert_in_range(snprintf(name, sizeof(name), "`%s`", strrchr(path, '.') + 1), 1, sizeof(name) - 1);
        if (!strchr(path + sizeof(expiry) - 1, '.') && !strstr(begin, name))
            fail_msg("docs/models.md does not explain the option %s", path);
    }
    fr_buffer_release(&text);
}

/* Whether an option of a table lies in these bytes of struct fr_conf_table. */
static bool has_option(size_t begin, size_t end)
{
    bool found = false;
    for (size_t i = 0; i < fr_options_count; i++)
        found |= strncmp(fr_options[i].path, expiry, sizeof(expiry) - 1) == 0 && fr_options[i].offset >= begin &&
                 fr_options[i].offset < end;
    return found;
}

/* A word that is kept for a later version is refused before the operation is looked for. */
FR_CASE(no_operation_is_kept_for_a_later_version)
{
    static const char layer[] = "network.layers.*.";
    for (size_t i = 0; i < fr_options_count; i++) {
        enum fr_layer_op op;
        const char *path = fr_options[i].path;
        if (fr_options[i].type == FR_OPTION_LATER && strncmp(path, layer, sizeof(layer) - 1) == 0 &&
            fr_layer_op_parse(path + sizeof(layer) - 1, &op))
            fail_msg("conf/options.c keeps the operation %s for a later version", path);
    }
}

#define NAME_IN_CODE(name, text, ...) "`" text "`",
#define NAME_OF_POOLED_SLOT(name, text, ...) "`{\"" text "\": ",

/* Another program scores from this text alone. */
FR_CASE(the_format_of_deltas_explains_every_operation_and_pooling)
{
    static const char *const names[] = {FR_LAYER_OPS(NAME_IN_CODE) FR_ROW_POOLINGS(NAME_OF_POOLED_SLOT)};
    struct fr_buffer text = read_file(FR_SOURCE_DIR "/docs/formats/deltas.md");
    const char *formulas = strstr((const char *)text.data, "### Formulas and parameters");
    assert_non_null(formulas);
    for (size_t i = 0; i < FR_ARRAY_LEN(names); i++) {
        const char *begin = names[i][1] == '{' ? (const char *)text.data : formulas;
        if (!strstr(begin, names[i]))
            fail_msg("docs/formats/deltas.md does not explain %s", names[i]);
    }
    fr_buffer_release(&text);
}

/* The name cannot be in parentheses. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define ASSERT_HAS_OPTION(name, text, number, rule)                                                                    \
    if (!has_option(offsetof(struct fr_conf_table, expire.rule),                                                       \
                    offsetof(struct fr_conf_table, expire.rule) + sizeof(struct fr_expire_##rule)))                    \
        fail_msg("no option of tables.*.expire (conf/options.c) sets the parameters of the rule " text);

FR_CASE(every_rule_of_expiry_has_options)
{
    FR_EXPIRIES(ASSERT_HAS_OPTION)
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lists_of_the_python_package_are_those_of_the_vocabulary),
        cmocka_unit_test(the_lists_in_the_texts_are_those_of_the_vocabulary),
        cmocka_unit_test(no_operation_is_kept_for_a_later_version),
        cmocka_unit_test(the_format_of_deltas_explains_every_operation_and_pooling),
        cmocka_unit_test(every_rule_of_expiry_has_options),
        cmocka_unit_test(the_text_about_models_explains_every_option_of_expiry),
    };
    return cmocka_run_group_tests_name("conf kinds", tests, NULL, NULL);
}
