/* The roll call: before each step of the owner loop every rank says how it stands, and all ranks
 * decide the same from what all said. So a decision is a pure function of the rolls, and no rank
 * asks another one later. A job of one rank makes the same calls, which cost it a copy.
 *
 * Thread: the owner loop. */
#ifndef FR_TRAINER_ROLL_CALL_H
#define FR_TRAINER_ROLL_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum {
    FR_ROLL_LETTERS = 1,  /* it began this step with letters of the last batch to send */
    FR_ROLL_STOP = 2,     /* this rank was asked to stop */
    FR_ROLL_ENDED = 4,    /* its streams have ended, and it has no batch */
    FR_ROLL_NEWS = 8,     /* an epoch cut now would have something that the state lacks */
    FR_ROLL_DUE = 16,     /* a cut is due */
    FR_ROLL_MUST = 32,    /* and the next batch waits for it */
    FR_ROLL_STAGE = 64,   /* it has a stage for a cut */
    FR_ROLL_PAUSED = 128, /* reading waits, for a reason that this rank's status has */
    FR_ROLL_READY = 256,  /* it has a batch */
};

/* What a rank says. It travels as it is, between programs of one version on machines of one byte
 * order; the fingerprint tells other programs apart. */
struct fr_roll {
    uint64_t fingerprint; /* of the configuration that all ranks must share, and of this struct */
    uint64_t call;        /* number of the roll call, from 1 */
    /* What all ranks have in common after the same decisions. */
    uint64_t epoch, batches, samples;
    int64_t watermark_ms;
    /* This rank's publisher has all epochs up to this one acknowledged, which decides nothing. */
    uint64_t acknowledged;
    uint32_t flags;    /* FR_ROLL_* */
    uint32_t lockstep; /* 1: what a batch holds is a function of the log */
};
_Static_assert(sizeof(struct fr_roll) == 64, "no padding, and one size on all machines");

enum fr_next {
    FR_NEXT_WAIT,     /* nothing happens in this step */
    FR_NEXT_CUT,      /* an epoch is cut */
    FR_NEXT_TRAIN,    /* a batch is trained; a rank without one takes part with no samples */
    FR_NEXT_CUT_LAST, /* the job ends, with an epoch */
    FR_NEXT_END,      /* the job ends: the state has everything */
};

struct fr_decision {
    enum fr_next next;
    bool ends; /* the job ends, now or once the ranks can cut the last epoch */
    /* WAIT: for longer than a batch takes, so what was planned ahead is undone, on all ranks */
    bool interrupts;
    /* WAIT: the rank that all wait for; UINT32_MAX: there is no batch. */
    uint32_t rank;
};

/* The decision of all ranks from what the n of them said. */
struct fr_decision fr_roll_decide(const struct fr_roll *rolls, uint32_t n);
/* The epoch up to which all n of them have all acknowledged. */
uint64_t fr_roll_acknowledged(const struct fr_roll *rolls, uint32_t n);
/* Whether the rolls are of one job at one point: FR_E_MISMATCH names the rank that is elsewhere, as
 * compared with rank 0. */
enum fr_status fr_roll_check(const struct fr_roll *rolls, uint32_t n, struct fr_err *err) FR_MUST_CHECK;

#endif
