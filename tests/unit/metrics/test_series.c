/* Every series has a unique name, which is in docs/metrics.md and shows its kind. */
#include "case.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "metrics/series.h"

FR_CASE(every_series_stands_in_the_documentation)
{
    struct fr_buffer doc = {0};
    struct fr_err err = {0};
    if (fr_file_read(FR_SOURCE_DIR "/docs/metrics.md", 1 << 20, &doc, &err) != FR_OK)
        fail_msg("%s", err.text);
    fr_put_u8(&doc, 0);
    for (size_t i = 0; i < FR_SERIES_COUNT; i++) {
        /* `freshet_x`, or `_x` after it where a row names several */
        const char *name = fr_series_rows[i].name, *rest = strchr(name, '_');
        char whole[80], part[80];
        snprintf(whole, sizeof(whole), "`%s", name);
        snprintf(part, sizeof(part), "`%s`", rest);
        if (!strstr((const char *)doc.data, whole) && !strstr((const char *)doc.data, part))
            fail_msg("docs/metrics.md does not name %s", name);
    }
    fr_buffer_release(&doc);
}

FR_CASE(a_name_stands_once_and_that_of_a_counter_ends_in_total)
{
    for (size_t i = 0; i < FR_SERIES_COUNT; i++) {
        const struct fr_series_row *row = &fr_series_rows[i];
        bool counts = row->kind == FR_SERIES_COUNTER || row->kind == FR_SERIES_SECONDS;
        size_t n = strlen(row->name);
        assert_int_equal(counts, n > 6 && strcmp(row->name + n - 6, "_total") == 0);
        assert_true(row->help[0] != '\0');
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(row->name, fr_series_rows[k].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_series_stands_in_the_documentation),
        cmocka_unit_test(a_name_stands_once_and_that_of_a_counter_ends_in_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
