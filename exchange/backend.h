/* What a back end of the exchange is. exchange.c checks arguments, keeps the first error and
 * measures waits; a back end moves bytes. */
#ifndef FR_EXCHANGE_BACKEND_H
#define FR_EXCHANGE_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>

#include "exchange/exchange.h"

/* The functions have the contracts of those in exchange.h. A gather or a vote is a send and a
 * receive (exchange.c). Two threads may make calls of different channels at once. */
struct fr_exchange_backend {
    enum fr_status (*send)(void *self, enum fr_channel channel, const struct fr_bytes *out, struct fr_err *err);
    enum fr_status (*receive)(void *self, enum fr_channel channel, struct fr_bytes *in, struct fr_err *err);
    void (*stop)(void *self, int code);
    void (*release)(void *self);
};

struct fr_exchange {
    const struct fr_exchange_backend *backend;
    void *self;
    uint32_t rank, size;
    _Atomic bool failed;
    struct fr_err failure; /* the first error; valid if `failed` (exchange.c has the lock) */
    bool in_flight[FR_CHANNELS];
    _Atomic uint64_t waited_ns[FR_CHANNELS];
};

/* Errors that back ends have in common: FR_E_UNAVAILABLE, these ranks (bit r: rank r) have not come
 * to call number `call` of a channel, counted from 1; FR_E_CANCELLED, a rank ended the job. */
enum fr_status fr_exchange_missed(uint64_t ranks, enum fr_channel channel, uint64_t call, uint64_t waited_ns,
                                  struct fr_err *err);
enum fr_status fr_exchange_stopped(uint32_t rank, int code, struct fr_err *err);

#endif
