/* Batches of several lanes for the store's tests: lanes are drawn one by one and put together. */
#ifndef FR_TEST_LANE_BATCHES_H
#define FR_TEST_LANE_BATCHES_H

#include "store_fixture.h"

/* Appends a lane's samples to the batch of all lanes. */
static inline void append_lane(struct test_batch *all, const struct test_batch *lane, uint32_t number,
                               uint32_t *lane_begin)
{
    uint32_t samples = all->batch.n_samples, groups = all->batch.n_groups;
    lane_begin[number] = groups;
    for (uint32_t s = 0; s < all->batch.n_slots; s++) {
        uint32_t entries = fr_batch_entries(&all->batch, s), more = fr_batch_entries(&lane->batch, s);
        uint32_t end = all->begin[s][entries];
        for (uint32_t e = 0; e <= more; e++)
            all->begin[s][entries + e] = end + lane->begin[s][e];
        assert_true(end + lane->begin[s][more] <= TEST_SLOT_KEYS);
        memcpy(&all->keys[s][end], lane->keys[s], lane->begin[s][more] * sizeof(uint64_t));
    }
    assert_true(samples + lane->batch.n_samples <= TEST_SAMPLES);
    for (uint32_t i = 0; i < lane->batch.n_samples; i++) {
        all->role[samples + i] = lane->role[i];
        all->labels[samples + i] = lane->labels[i];
        all->group_of[samples + i] = groups + lane->group_of[i];
    }
    for (uint32_t g = 0; g <= lane->batch.n_groups; g++)
        all->group_begin[groups + g] = samples + lane->group_begin[g];
    all->batch.n_samples += lane->batch.n_samples;
    all->batch.n_groups += lane->batch.n_groups;
}

/* Groups of samples whose odd slots are shared. */
static inline void draw_lane(struct test_batch *b, const struct world *w, uint64_t *random, uint32_t n_groups)
{
    batch_begin(b, w);
    for (uint32_t s = 1; s < w->conf.n_slots; s += 2)
        b->columns[s].shared = true;
    for (uint32_t g = 0; g < n_groups; g++)
        for (uint64_t n = 1 + test_random(random) % 3, i = 0; i < n; i++) {
            enum fr_role role = test_random(random) % 4 ? FR_ROLE_TRAIN : FR_ROLE_MASKED;
            float label = (float)(test_random(random) % 2);
            if (i == 0)
                batch_sample(b, role, label);
            else
                batch_item(b, role, label);
            for (uint32_t s = 0; s < w->conf.n_slots; s++)
                for (uint64_t k = test_random(random) % 4; k > 0 && !fr_slot_has_numbers(w->slots[s].kind); k--)
                    if (i == 0 || !b->columns[s].shared)
                        batch_id(b, s, test_key(test_random(random) % 40));
        }
}

#endif
