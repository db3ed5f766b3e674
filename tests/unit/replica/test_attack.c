/* Rows whose keys were chosen to hurt cost a replica as much as random ones: a writer of ids cannot
 * make its tables slow. The processor times of applying the same number of rows are measured
 * alternately and are about equal. The bound is 2, and the attack that it guards against costs more
 * than 20 times as much. */
#include <time.h>

#include "history.h"

enum { EPOCHS = 50, ROWS = 2 * KEYS, RATIO_MAX = 2 };

typedef uint64_t craft_key(uint64_t i);

static uint64_t spread(uint64_t i)
{
    return fr_fmix64(i + 1);
}

/* Keys that share one place of a table that uses low bits. */
static uint64_t equal_low_bits(uint64_t i)
{
    return i << 32 | 0x1234;
}

/* Keys that share one place of a table that uses the top bits of the unkeyed hash. */
static uint64_t equal_top_bits(uint64_t i)
{
    return fr_fmix64_inverse(UINT64_C(0xabcde) << 44 | i);
}

static double cpu_seconds(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct flooded {
    struct history *h;
    struct freshet_replica *replica;
    craft_key *craft;
};

/* Seconds of applying the next epoch of new rows. */
static double flood(struct flooded *flooded)
{
    static float values[3] = {0.5f, 0.25f, 1.0f};
    struct history *h = flooded->h;
    size_t from = h->n_topic;
    h->n_rows = ROWS;
    for (uint64_t i = 0; i < ROWS; i++)
        h->rows[i] = (struct fr_delta_row){.key = flooded->craft(h->epoch * ROWS + i), .table = 1, .values = values};
    history_write(h, &(struct write_options){.model = h->epoch == 0});
    double began = cpu_seconds();
    feed_ok(flooded->replica, h, from, h->n_topic);
    return cpu_seconds() - began;
}

static void cost_of(craft_key *craft)
{
    struct flooded crafted = {history_new(0), replica_new(), craft}, random = {history_new(0), replica_new(), spread};
    double cost = 0.0, usual = 0.0;
    for (int e = 0; e < EPOCHS; e++) {
        usual += flood(&random);
        cost += flood(&crafted);
    }
    assert_int_equal(info_of(crafted.replica).rows, EPOCHS * ROWS);
    freshet_replica_free(crafted.replica);
    freshet_replica_free(random.replica);
    history_free(crafted.h);
    history_free(random.h);
    print_message("crafted by random keys: %.2f\n", cost / usual);
    assert_true(cost < RATIO_MAX * usual);
}

FR_CASE(rows_with_equal_low_bits_cost_what_others_cost)
{
    cost_of(equal_low_bits);
}

FR_CASE(rows_with_equal_top_bits_of_the_unkeyed_hash_cost_what_others_cost)
{
    cost_of(equal_top_bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_with_equal_low_bits_cost_what_others_cost),
        cmocka_unit_test(rows_with_equal_top_bits_of_the_unkeyed_hash_cost_what_others_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
