/* base/status.h: names, texts that are cut and never overrun. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

FR_CASE(every_code_has_a_name_of_its_own)
{
    for (int a = FR_E_CANCELLED; a <= FR_AGAIN; a++) {
        assert_string_not_equal(fr_status_name((enum fr_status)a), "unknown");
        for (int b = FR_E_CANCELLED; b < a; b++)
            assert_string_not_equal(fr_status_name((enum fr_status)a), fr_status_name((enum fr_status)b));
    }
    assert_string_equal(fr_status_name((enum fr_status) - 99), "unknown");
}

FR_CASE(set_formats_and_returns_the_status)
{
    struct fr_err err;
    assert_int_equal(fr_err_set(&err, FR_E_IO, "cannot read %s at %d", "a", 7), FR_E_IO);
    assert_int_equal(err.status, FR_E_IO);
    assert_string_equal(err.text, "cannot read a at 7");
    assert_int_equal(fr_err_set(NULL, FR_E_BUSY, "nobody reads this"), FR_E_BUSY);
}

FR_CASE(wrap_puts_its_text_before)
{
    struct fr_err err;
    fr_err_set(&err, FR_E_INVALID, "no such key");
    assert_int_equal(fr_err_wrap(&err, "%s:%d", "model.yaml", 3), FR_E_INVALID);
    assert_string_equal(err.text, "model.yaml:3: no such key");
}

FR_CASE(set_may_use_its_own_text)
{
    struct fr_err err;
    fr_err_set(&err, FR_E_INVALID, "inner");
    fr_err_set(&err, FR_E_INVALID, "outer(%s)", err.text);
    assert_string_equal(err.text, "outer(inner)");
}

FR_CASE(long_texts_are_cut)
{
    struct {
        struct fr_err err;
        char guard[16];
    } box;
    memset(&box, 0x5a, sizeof(box));
    fr_err_set(&box.err, FR_E_INVALID, "%03000d", 1);
    assert_int_equal(strlen(box.err.text), sizeof(box.err.text) - 1);
    fr_err_wrap(&box.err, "%0500d", 1);
    assert_int_equal(strlen(box.err.text), sizeof(box.err.text) - 1);
    assert_int_equal(box.err.text[500], ':');
    for (size_t i = 0; i < sizeof(box.guard); i++)
        assert_int_equal(box.guard[i], 0x5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_of_its_own),
        cmocka_unit_test(set_formats_and_returns_the_status),
        cmocka_unit_test(wrap_puts_its_text_before),
        cmocka_unit_test(set_may_use_its_own_text),
        cmocka_unit_test(long_texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
