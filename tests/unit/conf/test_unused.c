/* Warnings of a configuration that loads: what nothing depends on, and tables that never get a
 * row. */
#include "conf_fixture.h"

#include "base/check.h"

/* The warnings of base_text with one replacement; "" if none. */
static void assert_warns(const char *from, const char *to, const char *expected)
{
    struct fr_buffer problems = {0}, warnings = {0};
    struct fr_conf *conf = NULL;
    char *text = variant(from, to);
    struct fr_conf_load_options options = {.path = "test.yaml", .text = text, .warnings = &warnings};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%s", (const char *)problems.data);
    assert_string_equal((const char *)warnings.data, expected);
    fr_conf_free(conf);
    free(text);
    fr_buffer_release(&problems);
    fr_buffer_release(&warnings);
}

FR_CASE(nothing_is_said_of_what_is_used)
{
    assert_warns("version: 1", "version: 1", "");
    /* used by a bucket of a cross, and by a metric */
    assert_warns("  price: {kind: dense, dim: 2}\n",
                 "  price: {kind: dense, dim: 2}\n  age: {kind: dense}\n"
                 "  shop: {table: user}\n"
                 "  pair: {table: user, cross: [user_id, b]}\n"
                 "  b: {table: user, buckets: {of: age, boundaries: [1]}}\n"
                 "metrics: {gauc_by: shop}\n"
                 "losses: [{name: l, mse: [{sum: pair}, user_id]}]\n",
                 "");
}

FR_CASE(a_slot_that_nothing_reads_is_named_with_its_place)
{
    assert_warns(
        "  price: {kind: dense, dim: 2}\n", "  price: {kind: dense, dim: 2}\n  usr: {table: user}\n",
        "test.yaml:17:3: warning: slots.usr: no layer, loss or metric reads it; name it where it should count, "
        "or remove it\n");
}

FR_CASE(a_slot_and_a_layer_that_lead_nowhere_are_named)
{
    assert_warns(
        "{name: x, concat: [user_id, item_id.v, {mean: history.v}, price]}\n",
        "{name: x, concat: [user_id, item_id.v, {mean: history.v}]}\n"
        "    - {name: lost, dense: price, units: 1}\n",
        "test.yaml:16:3: warning: slots.price: only layers read it that no task and no loss depends on; name it "
        "where it should count, or remove it\n"
        "test.yaml:21:1: warning: network.layers.lost: no task and no loss depends on this layer; name it in "
        "one, or remove it\n");
}

FR_CASE(a_table_without_slots_is_named)
{
    assert_warns("  user: {dim: 8}\n", "  user: {dim: 8}\n  users: {dim: 8}\n",
                 "test.yaml:10:3: warning: tables.users: no slot has this table; give it to one, or remove it\n");
}

/* The second table has `history`, which admits keys. */
FR_CASE(a_table_that_can_never_have_a_row_is_named)
{
    assert_warns("user_id: {table: user}", "user_id: {table: user, admit: never}",
                 "test.yaml:9:3: warning: tables.user: every slot of this table has `admit: never`, so it never gets a "
                 "row; let one of them admit\n");
    assert_warns("item_id: {table: item}", "item_id: {table: item, admit: never}", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_of_what_is_used),
        cmocka_unit_test(a_slot_that_nothing_reads_is_named_with_its_place),
        cmocka_unit_test(a_slot_and_a_layer_that_lead_nowhere_are_named),
        cmocka_unit_test(a_table_without_slots_is_named),
        cmocka_unit_test(a_table_that_can_never_have_a_row_is_named),
    };
    return cmocka_run_group_tests_name("conf unused", tests, NULL, NULL);
}
