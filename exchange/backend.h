/* What a back end of the exchange is. exchange.c checks arguments, keeps the first error and
 * measures waits; a back end moves bytes. */
#ifndef FR_EXCHANGE_BACKEND_H
#define FR_EXCHANGE_BACKEND_H

#include "exchange/exchange.h"

/* The functions have the contracts of those in exchange.h. A gather is a send and a receive of
 * FR_CHANNEL_ROLL (exchange.c). */
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
    struct fr_err failure; /* the first error; status FR_OK: none */
    bool in_flight[FR_CHANNELS];
    uint64_t waited_ns[FR_CHANNELS];
};

/* Errors that back ends have in common: FR_E_UNAVAILABLE, these ranks (bit r: rank r) have not come
 * to call number `call` of a channel, counted from 1; FR_E_CANCELLED, a rank ended the job. */
enum fr_status fr_exchange_missed(uint64_t ranks, enum fr_channel channel, uint64_t call, uint64_t waited_ns,
                                  struct fr_err *err);
enum fr_status fr_exchange_stopped(uint32_t rank, int code, struct fr_err *err);

#endif
