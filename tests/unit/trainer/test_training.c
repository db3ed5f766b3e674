/* The section "training": it reads back as written, a truncated or changed section is refused, and
 * its history is bounded. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/training.h"

static struct fr_training *make(uint32_t changes)
{
    struct fr_training *training = calloc(1, sizeof(*training));
    fr_buffer_printf(&training->settings, "{\"seed\":1}");
    for (uint32_t i = 1; i <= changes; i++) {
        char text[32];
        snprintf(text, sizeof(text), "seed: %u -> %u", i, i + 1);
        fr_trainer_training_add(training, 10 * i, 1000 * (int64_t)i, text);
    }
    return training;
}

static void drop(struct fr_training *training)
{
    fr_trainer_training_release(training);
    free(training);
}

FR_CASE(settings_and_changes_come_back)
{
    struct fr_training *training = make(3), *read = calloc(1, sizeof(*read));
    struct fr_buffer bytes = {0};
    fr_trainer_training_encode(training, &bytes);
    assert_int_equal(fr_trainer_training_parse(bytes.data, bytes.size, read), FR_OK);
    assert_string_equal((const char *)read->settings.data, "{\"seed\":1}");
    assert_int_equal(read->n, 3);
    assert_int_equal(read->forgotten, 0);
    assert_int_equal(read->changes[2].epoch, 30);
    assert_int_equal(read->changes[2].time_ms, 3000);
    assert_string_equal(read->changes[2].text, "seed: 3 -> 4");
    fr_buffer_release(&bytes);
    drop(training);
    drop(read);
}

FR_CASE(every_cut_and_another_version_are_refused)
{
    struct fr_training *training = make(2);
    struct fr_buffer bytes = {0};
    fr_trainer_training_encode(training, &bytes);
    for (size_t size = 0; size <= bytes.size; size++) {
        struct fr_training *read = calloc(1, sizeof(*read));
        uint8_t *copy = malloc(size + 1); /* the sanitizers see a byte too far */
        memcpy(copy, bytes.data, size);
        enum fr_status status = fr_trainer_training_parse(copy, size, read);
        assert_int_equal(status, size == bytes.size ? FR_OK : FR_E_CORRUPT);
        free(copy);
        drop(read);
    }
    struct fr_training *read = calloc(1, sizeof(*read));
    bytes.data[0]++;
    assert_int_equal(fr_trainer_training_parse(bytes.data, bytes.size, read), FR_E_MISMATCH);
    bytes.data[0]--;
    fr_put_u8(&bytes, 0);
    assert_int_equal(fr_trainer_training_parse(bytes.data, bytes.size, read), FR_E_CORRUPT);
    fr_buffer_release(&bytes);
    drop(read);
    drop(training);
}

FR_CASE(the_oldest_changes_are_forgotten_and_counted)
{
    struct fr_training *training = make(FR_TRAINING_CHANGES_MAX + 5);
    assert_int_equal(training->n, FR_TRAINING_CHANGES_MAX);
    assert_int_equal(training->forgotten, 5);
    assert_int_equal(training->changes[0].epoch, 60);
    assert_int_equal(training->changes[FR_TRAINING_CHANGES_MAX - 1].epoch, 10 * (FR_TRAINING_CHANGES_MAX + 5));
    drop(training);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_and_changes_come_back),
        cmocka_unit_test(every_cut_and_another_version_are_refused),
        cmocka_unit_test(the_oldest_changes_are_forgotten_and_counted),
    };
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
