/* The keyed order: a bijection whose top bits cannot be chosen without the salt. */
#include <string.h>

#include "base/order.h"
#include "base/random.h"
#include "case.h"

enum { KEYS = 100000, TOP_BITS = 12, BINS = 1 << TOP_BITS };

FR_CASE(hash_and_key_undo_each_other)
{
    const uint64_t salts[] = {0, 1, 42, UINT64_MAX, 0x0123456789abcdefULL};
    for (size_t s = 0; s < sizeof(salts) / sizeof(salts[0]); s++) {
        struct fr_order order = fr_order_of(salts[s]);
        assert_true(order.multiplier * order.inverse == 1);
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t key = i < 500 ? i : fr_fmix64(i);
            assert_true(fr_order_key(&order, fr_order_hash(&order, key)) == key);
        }
    }
}

/* The keys are chosen so that plain fmix64 sends all of them into one bin; no bin of the keyed
 * order gets more of them than of random keys. */
FR_CASE(keys_crafted_against_fmix64_spread)
{
    static uint32_t bins[BINS];
    struct fr_order order = fr_order_of(fr_order_random_salt());
    memset(bins, 0, sizeof(bins));
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t crafted = fr_fmix64_inverse(i); /* the top bits of fmix64 are all 0 */
        bins[fr_order_hash(&order, crafted) >> (64 - TOP_BITS)]++;
    }
    uint32_t most = 0;
    for (size_t b = 0; b < BINS; b++)
        most = bins[b] > most ? bins[b] : most;
    assert_in_range(most, KEYS / BINS, 4 * KEYS / BINS);
}

FR_CASE(random_salts_differ)
{
    assert_true(fr_order_random_salt() != fr_order_random_salt());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_and_key_undo_each_other),
        cmocka_unit_test(keys_crafted_against_fmix64_spread),
        cmocka_unit_test(random_salts_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
