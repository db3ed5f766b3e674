/* The suite that every back end of the exchange passes: steps of one rank, whose bytes follow from
 * rank, receiver, channel and call, so that the receiver can compute them. */
#ifndef FR_TESTS_EXCHANGE_CALLS_H
#define FR_TESTS_EXCHANGE_CALLS_H

#include "case.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "exchange/exchange.h"

enum { CALLS = 60, RANKS = 8, PART_MAX = 5000 };

/* How many bytes rank `from` sends to rank `to` with a call, and what they are: none, one, or
 * many, a function of the arguments alone. */
static inline size_t size_of(uint32_t from, uint32_t to, enum fr_channel channel, uint64_t call)
{
    uint64_t h = fr_fmix64(from | to << 8 | (uint64_t)channel << 16 | call << 20);
    return h % 3 == 0 ? 0 : h % 3 == 1 ? 1 : h / 3 % PART_MAX;
}

static inline uint8_t byte_of(uint32_t from, uint32_t to, uint64_t call, size_t i)
{
    return (uint8_t)(from * 3 + to * 5 + call * 7 + i * 11);
}

struct worker {
    pthread_t thread;
    struct fr_exchange *exchange;
    struct fr_err err;
    uint64_t calls; /* that succeeded */
    uint8_t *bytes[RANKS][2];
};

static inline enum fr_status send_call(struct worker *worker, enum fr_channel channel, uint64_t call)
{
    struct fr_bytes out[RANKS];
    uint32_t me = fr_exchange_rank(worker->exchange);
    for (uint32_t to = 0; to < fr_exchange_size(worker->exchange); to++) {
        size_t size = size_of(me, to, channel, call);
        uint8_t *bytes = worker->bytes[to][channel];
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_of(me, to, call, i);
        out[to] = (struct fr_bytes){size ? bytes : NULL, size};
    }
    return fr_exchange_send(worker->exchange, channel, out, &worker->err);
}

static inline enum fr_status receive_call(struct worker *worker, enum fr_channel channel, uint64_t call)
{
    struct fr_bytes in[RANKS];
    uint32_t me = fr_exchange_rank(worker->exchange);
    enum fr_status status = fr_exchange_receive(worker->exchange, channel, in, &worker->err);
    for (uint32_t from = 0; status == FR_OK && from < fr_exchange_size(worker->exchange); from++) {
        assert_int_equal(in[from].size, size_of(from, me, channel, call));
        for (size_t i = 0; i < in[from].size; i++)
            assert_int_equal(in[from].data[i], byte_of(from, me, call, i));
    }
    return status;
}

static inline enum fr_status gather_call(struct worker *worker, uint64_t call)
{
    uint64_t mine[4], all[RANKS][4];
    for (uint64_t i = 0; i < 4; i++)
        mine[i] = fr_fmix64(fr_exchange_rank(worker->exchange) + 100 * call + i);
    enum fr_status status = fr_exchange_gather(worker->exchange, mine, sizeof(mine), all, &worker->err);
    for (uint32_t r = 0; status == FR_OK && r < fr_exchange_size(worker->exchange); r++)
        for (uint64_t i = 0; i < 4; i++)
            assert_int_equal(all[r][i], fr_fmix64(r + 100 * call + i));
    return status;
}

/* The calls of a step: keys of the next step are in flight beside the values of this one, and a
 * gather beside both. */
static inline enum fr_status run_step(struct worker *worker, uint64_t call)
{
    enum fr_status status = send_call(worker, FR_CHANNEL_KEYS, call);
    if (status == FR_OK)
        status = send_call(worker, FR_CHANNEL_VALUES, call);
    if (status == FR_OK)
        status = gather_call(worker, call);
    bool keys_first = call % 2 == 0;
    if (status == FR_OK)
        status = receive_call(worker, keys_first ? FR_CHANNEL_KEYS : FR_CHANNEL_VALUES, call);
    if (status == FR_OK)
        status = receive_call(worker, keys_first ? FR_CHANNEL_VALUES : FR_CHANNEL_KEYS, call);
    return status;
}

static inline void *work(void *context)
{
    struct worker *worker = context;
    for (uint64_t call = 0; call < CALLS && run_step(worker, call) == FR_OK; call++)
        worker->calls++;
    return NULL;
}

static inline void init(struct worker *worker, struct fr_exchange *exchange)
{
    memset(worker, 0, sizeof(*worker));
    worker->exchange = exchange;
    for (int to = 0; to < RANKS; to++)
        for (int c = 0; c < 2; c++)
            worker->bytes[to][c] = malloc(PART_MAX);
}

static inline void release(struct worker *worker)
{
    for (int to = 0; to < RANKS; to++)
        for (int c = 0; c < 2; c++)
            free(worker->bytes[to][c]);
}

#endif
