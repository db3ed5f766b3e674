/* What the ranks of a job find out together: sums, facts of a batch, the median of event times. In
 * a job of one rank the answers are this rank's. All ranks ask the same questions in the same
 * order. An exchange that fails leaves its error to fr_trainer_failure, and the answers are then
 * this rank's alone, so that no loop runs forever. Owner thread only. */
#include "rank_samples.h"
#include "trainer_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* The samples of a batch of one rank are fewer, because a column has an entry for each of them. */
enum { SAMPLES_END = 1 << FR_ENTRY_BITS };

/* A question: integers and bits of one rank. */
struct question {
    uint64_t ready; /* 1: the rank has a batch */
    uint64_t n_samples, n_trained;
    int64_t latest_ms;
    struct fr_batch_shape shape;
};

enum fr_status fr_trainer_ranks_check(struct fr_trainer *trainer, enum fr_status status, const struct fr_err *err)
{
    if (status != FR_OK && trainer->ranks.failure.status == FR_OK)
        trainer->ranks.failure = *err;
    return status;
}

enum fr_status fr_trainer_failure(struct fr_trainer *trainer, struct fr_err *err)
{
    enum fr_status status = fr_store_failure(trainer->store, err);
    if (status == FR_OK)
        status = fr_graph_failure(trainer->graph, err);
    if (status == FR_OK && trainer->ranks.failure.status != FR_OK) {
        status = trainer->ranks.failure.status;
        if (err)
            *err = trainer->ranks.failure;
    }
    return status;
}

/* Returns what all ranks say [ranks][size]; NULL: the exchange failed. */
static const void *gather(struct fr_trainer *trainer, const void *mine, size_t size)
{
    struct fr_ranks *ranks = &trainer->ranks;
    struct fr_err err = {0};
    fr_buffer_clear(&ranks->answers);
    uint8_t *all = fr_buffer_reserve(&ranks->answers, size * ranks->n);
    enum fr_status status = fr_exchange_gather(ranks->exchange, mine, size, all, &err);
    return fr_trainer_ranks_check(trainer, status, &err) == FR_OK ? all : NULL;
}

void fr_trainer_sum(struct fr_trainer *trainer, uint64_t *numbers, uint32_t n)
{
    if (trainer->ranks.n == 1)
        return;
    const uint8_t *all = gather(trainer, numbers, n * sizeof(*numbers));
    if (!all)
        return;
    memset(numbers, 0, n * sizeof(*numbers));
    for (uint32_t r = 0; r < trainer->ranks.n; r++)
        for (uint32_t i = 0; i < n; i++)
            numbers[i] += fr_load_u64(all + (r * (size_t)n + i) * sizeof(*numbers));
}

uint64_t fr_trainer_largest(struct fr_trainer *trainer, uint64_t number)
{
    const uint8_t *all = trainer->ranks.n > 1 ? gather(trainer, &number, sizeof(number)) : NULL;
    for (uint32_t r = 0; all && r < trainer->ranks.n; r++) {
        uint64_t other = fr_load_u64(all + r * sizeof(other));
        number = other > number ? other : number;
    }
    return number;
}

enum fr_status fr_trainer_give_all(struct fr_trainer *trainer, const struct fr_buffer *mine, struct fr_bytes *in,
                                   struct fr_err *err)
{
    struct fr_bytes out[FR_RANKS_MAX];
    for (uint32_t r = 0; r < trainer->ranks.n; r++)
        out[r] = (struct fr_bytes){mine->data, mine->size};
    enum fr_status status = fr_exchange_send(trainer->ranks.exchange, FR_CHANNEL_VALUES, out, err);
    return status == FR_OK ? fr_exchange_receive(trainer->ranks.exchange, FR_CHANNEL_VALUES, in, err) : status;
}

/* ---- a batch ---- */

static struct fr_facts own_facts(const struct fr_batch *batch)
{
    struct fr_facts facts = {.n_samples = batch->n_samples, .latest_ms = INT64_MIN};
    for (uint32_t i = 0; i < batch->n_samples; i++) {
        if (batch->role[i] != FR_ROLE_TRAIN)
            continue;
        facts.n_trained++;
        facts.latest_ms = batch->t_ms[i] > facts.latest_ms ? batch->t_ms[i] : facts.latest_ms;
    }
    return facts;
}

static void join_shape(struct fr_batch_shape *shape, const struct fr_batch_shape *other)
{
    shape->several |= other->several;
    for (size_t i = 0; i < FR_ARRAY_LEN(shape->own); i++)
        shape->own[i] |= other->own[i];
}

/* Whether a batch can have these facts. Loops over slices and halves go by them. */
static bool is_possible(const struct question *question)
{
    bool timed = question->n_trained > 0 ? question->latest_ms > 0 : question->latest_ms == INT64_MIN;
    return question->n_samples < SAMPLES_END && question->n_trained <= question->n_samples && timed;
}

/* Asks all ranks; returns what they say [ranks], NULL: the exchange failed, or a rank says what is
 * not possible. */
static const struct question *gather_facts(struct fr_trainer *trainer, const struct question *mine)
{
    const struct question *all = gather(trainer, mine, sizeof(*mine));
    struct fr_err err = {0};
    for (uint32_t r = 0; all && r < trainer->ranks.n; r++)
        if (!is_possible(&all[r])) {
            (void)fr_trainer_ranks_check(trainer,
                                         fr_err_set(&err, FR_E_CORRUPT,
                                                    "rank %" PRIu32 " says of its batch what no batch has: %" PRIu64
                                                    " samples, of which %" PRIu64
                                                    " are trained, the latest of %" PRId64,
                                                    r, all[r].n_samples, all[r].n_trained, all[r].latest_ms),
                                         &err);
            return NULL;
        }
    return all;
}

/* Asks all ranks; returns whether each has a batch. batch: NULL if this rank has none. */
static bool ask(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_facts *out)
{
    struct question mine = {.ready = batch != NULL};
    *out = batch ? own_facts(batch) : (struct fr_facts){.latest_ms = INT64_MIN};
    mine.n_samples = out->n_samples;
    mine.n_trained = out->n_trained;
    mine.latest_ms = out->latest_ms;
    if (batch)
        fr_batch_get_shape(batch, &mine.shape);
    const struct question *all = gather_facts(trainer, &mine);
    struct fr_batch_shape shape = mine.shape;
    bool ready = all != NULL;
    for (uint32_t r = 0; all && r < trainer->ranks.n; r++) {
        struct question other = all[r];
        ready &= other.ready != 0;
        join_shape(&shape, &other.shape);
        if (r == fr_exchange_rank(trainer->ranks.exchange))
            continue;
        out->first += r < fr_exchange_rank(trainer->ranks.exchange) ? other.n_samples : 0;
        out->n_samples += other.n_samples;
        out->n_trained += other.n_trained;
        out->latest_ms = other.latest_ms > out->latest_ms ? other.latest_ms : out->latest_ms;
    }
    if (batch && (ready || !all))
        fr_batch_take_shape(batch, &shape);
    return ready;
}

void fr_trainer_agree(struct fr_trainer *trainer, struct fr_batch *batch, struct fr_facts *out)
{
    if (trainer->ranks.n == 1)
        *out = own_facts(batch);
    else
        (void)ask(trainer, batch, out);
}

bool fr_trainer_agree_next(struct fr_trainer *trainer, struct fr_batch *next, struct fr_facts *out)
{
    return ask(trainer, next, out) && out->n_samples > 0;
}

/* ---- the median of times ---- */

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Replaces the times of this rank by those of all. */
static enum fr_status receive_times(struct fr_trainer *trainer, struct fr_buffer *times, struct fr_err *err)
{
    struct fr_bytes parts[FR_RANKS_MAX];
    enum fr_status status = fr_trainer_give_all(trainer, times, parts, err);
    struct fr_buffer all = {0};
    for (uint32_t r = 0; status == FR_OK && r < trainer->ranks.n; r++) {
        if (!fr_rank_times_valid(parts[r]))
            status = fr_err_set(err, FR_E_CORRUPT, "rank %" PRIu32 " sent %zu bytes that are no event times", r,
                                parts[r].size);
        fr_buffer_append(&all, parts[r].data, parts[r].size);
    }
    if (status == FR_OK) {
        fr_buffer_clear(times);
        fr_buffer_append(times, all.data, all.size);
    }
    fr_buffer_release(&all);
    return status;
}

int64_t fr_trainer_median_time(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_buffer times = {0}; /* asked for once in a history */
    struct fr_err err = {0};
    for (uint32_t i = 0; i < batch->n_samples; i++)
        if (batch->role[i] == FR_ROLE_TRAIN)
            fr_put_u64(&times, (uint64_t)batch->t_ms[i]);
    if (trainer->ranks.n > 1)
        (void)fr_trainer_ranks_check(trainer, receive_times(trainer, &times, &err), &err);
    size_t n = times.size / sizeof(int64_t);
    int64_t median = INT64_MIN;
    if (n > 0) {
        qsort(times.data, n, sizeof(int64_t), by_time);
        memcpy(&median, times.data + (n - 1) / 2 * sizeof(median), sizeof(median));
    }
    fr_buffer_release(&times);
    return median;
}

/* ---- what a batch has done ---- */

void fr_trainer_count(struct fr_trainer *trainer, const struct fr_batch *batch)
{
    struct fr_batch_counts *counts = &trainer->ranks.counts;
    *counts = (struct fr_batch_counts){.n_samples = batch->n_samples,
                                       .n_positions = batch->n_positions,
                                       .unknown_slots = batch->unknown_slots,
                                       .unknown_keys = batch->unknown_keys,
                                       .excess_ids = batch->excess_ids};
    for (uint32_t i = 0; i < batch->n_samples; i++)
        counts->roles[batch->role[i]]++;
    _Static_assert(sizeof(*counts) % sizeof(uint64_t) == 0, "numbers only");
    fr_trainer_sum(trainer, (uint64_t *)(void *)counts, sizeof(*counts) / sizeof(uint64_t));
    struct fr_err err = {0};
    uint64_t trained = counts->roles[FR_ROLE_TRAIN];
    if (trained >= (uint64_t)trainer->ranks.n * SAMPLES_END) /* slices go by it */
        (void)fr_trainer_ranks_check(
            trainer,
            fr_err_set(&err, FR_E_CORRUPT,
                       "the ranks say that %" PRIu64 " samples of a batch were trained, which no batch has", trained),
            &err);
}

uint64_t fr_trainer_trained(const struct fr_trainer *trainer, const struct fr_batch *batch)
{
    uint64_t trained = 0;
    if (trainer->ranks.n > 1)
        return trainer->ranks.counts.roles[FR_ROLE_TRAIN];
    for (uint32_t i = 0; i < batch->n_samples; i++)
        trained += batch->role[i] == FR_ROLE_TRAIN;
    return trained;
}
