/* The records of one epoch, byte for byte as in tests/golden/delta_epoch.jsonl.
 * FRESHET_WRITE_GOLDEN=1 writes the file again: only for a change of the format, which is a new
 * version. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "golden_epoch.h"

static const char golden_path[] = FR_SOURCE_DIR "/tests/golden/delta_epoch.jsonl";

static enum fr_status print_record(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct fr_buffer *out = self;
    fr_buffer_printf(out, "{\"partition\":%u,\"piece\":%u,\"hex\":\"", partition, piece);
    for (size_t i = 0; i < size; i++)
        fr_buffer_printf(out, "%02x", ((const uint8_t *)bytes)[i]);
    fr_buffer_printf(out, "\"}\n");
    return FR_OK;
}

FR_CASE(the_golden_epoch_gives_the_golden_records)
{
    struct golden g;
    golden_init(&g);
    struct fr_buffer now = {0}, then = {0};
    uint64_t saturated = 0;
    assert_int_equal(fr_delta_write(&g.settings, &g.epoch, print_record, &now, &saturated), FR_OK);
    assert_int_equal(saturated, 1);
    if (getenv("FRESHET_WRITE_GOLDEN"))
        assert_int_equal(fr_file_replace(fr_disk_system(), golden_path, now.data, now.size, NULL), FR_OK);
    assert_int_equal(fr_file_read(golden_path, 1 << 20, &then, NULL), FR_OK);
    assert_int_equal(now.size, then.size);
    assert_memory_equal(now.data, then.data, now.size);
    fr_buffer_release(&now);
    fr_buffer_release(&then);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_golden_epoch_gives_the_golden_records)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
