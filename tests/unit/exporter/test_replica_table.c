/* The table of replicas by a clock that the test moves: who is there, who is silent and forgotten,
 * who is the slowest, and what has no effect. */
#include "case.h"

#include <string.h>

#include "../../../exporter/replica_table.h"

static struct fr_replicas_table *table;
static struct fr_replicas_status status;
static struct fr_replicas_chain chain;
static int64_t now_ms;

FR_FIXTURE(begin)
{
    table = fr_replicas_table_new("ctr");
    chain = (struct fr_replicas_chain){.timeline = 2, .durable = 100};
    now_ms = 5;
    return 0;
}

FR_FIXTURE(end)
{
    fr_replicas_table_free(table);
    return 0;
}

static void take_aged(const char *name, uint64_t timeline, uint64_t epoch, const char *more, int64_t age_ms)
{
    char text[512];
    int size = snprintf(text, sizeof(text), "{\"v\":1,\"m\":\"ctr\",\"name\":\"%s\",\"tl\":%llu,\"e\":%llu%s}", name,
                        (unsigned long long)timeline, (unsigned long long)epoch, more);
    fr_replicas_table_take(table, text, (size_t)size, age_ms, &chain, now_ms);
}

static void take(const char *name, uint64_t timeline, uint64_t epoch)
{
    take_aged(name, timeline, epoch, "", 0);
}

static const struct fr_replicas_status *describe(void)
{
    fr_replicas_table_forget(table, now_ms);
    fr_replicas_table_describe(table, now_ms, &status);
    return &status;
}

/* The names of the list, in their order. */
static const char *order(void)
{
    static char names[256];
    names[0] = '\0';
    for (uint32_t i = 0; i < describe()->n_listed; i++)
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s ", status.listed[i].said.name);
    return names;
}

FR_CASE(a_replica_is_what_it_said_last)
{
    take("a", 2, 5);
    take("a", 2, 7);
    take("a", 2, 6); /* after a reload: it serves what it says */
    assert_int_equal(describe()->count, 1);
    assert_int_equal(status.records, 3);
    assert_int_equal(status.listed[0].said.epoch, 6);
}

FR_CASE(the_slowest_has_the_oldest_timeline_then_the_oldest_epoch_then_the_longest_silence)
{
    take("starts", 0, 0);
    take("fast", 2, 9);
    take("silent", 2, 8);
    now_ms += 1;
    take("slow", 2, 8);
    take("also", 2, 8);
    take("old", 1, 90);
    assert_string_equal(order(), "old silent also slow fast starts ");
    assert_int_equal(status.starting, 1);
}

FR_CASE(a_replica_becomes_silent_and_is_then_forgotten)
{
    take("a", 2, 5);
    now_ms += FR_REPLICA_SILENT_MS - 1;
    take("b", 2, 6);
    assert_int_equal(describe()->silent, 0);
    now_ms += 1;
    assert_int_equal(describe()->silent, 1);
    assert_true(status.listed[0].silent && !status.listed[1].silent);
    assert_int_equal(status.listed[0].silence_ms, FR_REPLICA_SILENT_MS);
    now_ms += FR_REPLICA_FORGOTTEN_MS - FR_REPLICA_SILENT_MS - 1;
    assert_string_equal(order(), "a b ");
    now_ms += 1;
    assert_string_equal(order(), "b ");
    assert_int_equal(status.forgotten, 1);
    take("a", 2, 9); /* it is there again */
    assert_string_equal(order(), "b a ");
}

FR_CASE(the_age_of_a_record_counts_as_silence)
{
    take_aged("a", 2, 5, "", FR_REPLICA_SILENT_MS);
    take_aged("b", 2, 5, "", FR_REPLICA_FORGOTTEN_MS);
    assert_string_equal(order(), "a ");
    assert_int_equal(status.silent, 1);
    assert_int_equal(status.forgotten, 0);
}

FR_CASE(who_leaves_is_gone_at_once)
{
    take("a", 2, 5);
    take("b", 2, 5);
    take_aged("a", 2, 5, ",\"leaving\":true", 0);
    take_aged("unknown", 2, 5, ",\"leaving\":true", 0);
    assert_string_equal(order(), "b ");
    assert_int_equal(status.left, 1);
}

FR_CASE(other_timelines_are_handled_by_name)
{
    take("older", 1, 900); /* epochs of another timeline are not compared */
    take("later", 3, 1);
    take("ahead", 2, 101);
    take("newest", 2, 100);
    assert_string_equal(order(), "older newest ");
    assert_int_equal(status.refused[FR_REPLICA_REFUSED_TIMELINE], 1);
    assert_int_equal(status.refused[FR_REPLICA_REFUSED_AHEAD], 1);
    chain = (struct fr_replicas_chain){.timeline = 3, .durable = 50}; /* history was rewound */
    take("later", 3, 1);
    assert_string_equal(order(), "older newest later ");
}

FR_CASE(what_is_forged_or_cut_is_counted_and_changes_nothing)
{
    static const char other[] = "{\"v\":1,\"m\":\"other\",\"name\":\"a\",\"tl\":2,\"e\":1}";
    take("a", 2, 5);
    fr_replicas_table_take(table, other, strlen(other), 0, &chain, now_ms);
    fr_replicas_table_take(table, other, strlen(other) - 1, 0, &chain, now_ms);
    fr_replicas_table_take(table, NULL, 0, 0, &chain, now_ms);
    assert_string_equal(order(), "a ");
    assert_int_equal(status.listed[0].said.epoch, 5);
    assert_int_equal(status.records, 4);
    assert_int_equal(status.refused[FR_REPLICA_REFUSED_MODEL], 1);
    assert_int_equal(status.refused[FR_REPLICA_REFUSED_MALFORMED], 2);
}

FR_CASE(a_full_table_keeps_who_is_there_and_counts_the_others)
{
    char name[32];
    for (int i = 0; i < FR_REPLICAS_MAX; i++) {
        snprintf(name, sizeof(name), "r%04d", i);
        take(name, 2, 50);
    }
    take("one too many", 2, 1);
    take("r0077", 2, 3);
    assert_int_equal(describe()->count, FR_REPLICAS_MAX);
    assert_int_equal(status.dropped, 1);
    assert_int_equal(status.n_listed, FR_REPLICAS_LISTED_MAX);
    assert_string_equal(status.listed[0].said.name, "r0077");
    assert_string_equal(status.listed[1].said.name, "r0000");
    take_aged("r0000", 2, 50, ",\"leaving\":true", 0);
    take("one too many", 2, 1);
    assert_string_equal(describe()->listed[0].said.name, "one too many");
    now_ms += FR_REPLICA_FORGOTTEN_MS;
    assert_int_equal(describe()->count, 0);
    assert_int_equal(status.forgotten, FR_REPLICAS_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        CASE(a_replica_is_what_it_said_last),
        CASE(the_slowest_has_the_oldest_timeline_then_the_oldest_epoch_then_the_longest_silence),
        CASE(a_replica_becomes_silent_and_is_then_forgotten),
        CASE(the_age_of_a_record_counts_as_silence),
        CASE(who_leaves_is_gone_at_once),
        CASE(other_timelines_are_handled_by_name),
        CASE(what_is_forged_or_cut_is_counted_and_changes_nothing),
        CASE(a_full_table_keeps_who_is_there_and_counts_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
