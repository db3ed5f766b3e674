/* See exchange/threads.h. One mutex and one condition variable for the group.
 *
 * A rank's parts are copied into its box of the call when it sends, and receivers read them there;
 * its own part stays where it is. A receiver looks for a while before it sleeps, because a thread
 * that sleeps takes longer to wake than most parts take to come.
 *
 * Two boxes for each rank and channel are enough, taken in turn: a rank sends call s + 2 only after
 * it has received call s + 1, which every rank sent after receiving call s; so nobody reads the box
 * of call s any more. */
#include "exchange/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "base/buffer.h"
#include "base/check.h"
#include "base/hash.h"

enum { SPIN_NS = 100000 };

/* What one rank sent with one call of a channel. */
struct box {
    struct fr_buffer bytes;
    size_t at[FR_RANKS_MAX], sizes[FR_RANKS_MAX]; /* where the part for each rank is in `bytes` */
    uint64_t sent_ns;
};

struct member {
    struct fr_exchange exchange;
    struct fr_exchange_group *group;
    uint64_t calls;        /* that the fault counts */
    struct fr_err failure; /* that the deadline was over; status FR_OK: it was not */
    /* calls sent; written with the group's lock */
    _Atomic uint64_t sent[FR_CHANNELS];
    uint64_t received[FR_CHANNELS];   /* calls received */
    struct fr_bytes own[FR_CHANNELS]; /* the part that the rank sent to itself last */
    struct box boxes[FR_CHANNELS][2];
};

struct fr_exchange_group {
    struct fr_exchange_group_options options;
    pthread_mutex_t lock; /* guards what follows, and what the members' comments say */
    pthread_cond_t changed;
    bool stopped;
    uint32_t stopped_by;
    int code;
    struct member members[];
};

/* Why a call cannot be made: this rank's deadline, whichever of its threads met it, or the end of
 * the job by another rank. */
static enum fr_status stopped(const struct member *member, struct fr_err *err)
{
    const struct fr_exchange_group *group = member->group;
    if (member->failure.status == FR_OK)
        return fr_exchange_stopped(group->stopped_by, group->code, err);
    *err = member->failure;
    return err->status;
}

static void stop_locked(struct fr_exchange_group *group, uint32_t rank, int code)
{
    if (group->stopped)
        return;
    group->stopped = true;
    group->stopped_by = rank;
    group->code = code;
    pthread_cond_broadcast(&group->changed);
}

static void stop(void *self, int code)
{
    struct member *member = self;
    pthread_mutex_lock(&member->group->lock);
    stop_locked(member->group, member->exchange.rank, code);
    pthread_mutex_unlock(&member->group->lock);
}

/* Returns false after the fault of this rank: the job has ended. */
static bool survives_call(struct member *member, enum fr_channel channel)
{
    struct fr_exchange_group *group = member->group;
    const struct fr_exchange_group_options *options = &group->options;
    member->calls += channel == FR_CHANNEL_VOTES || !options->fault_votes;
    if (options->fault_at == 0 || member->exchange.rank != options->fault_rank || member->calls < options->fault_at)
        return true;
    if (options->fault_code != 0)
        stop_locked(group, member->exchange.rank, options->fault_code);
    while (!group->stopped)
        pthread_cond_wait(&group->changed, &group->lock);
    return false;
}

static enum fr_status send(void *self, enum fr_channel channel, const struct fr_bytes *out, struct fr_err *err)
{
    struct member *member = self;
    struct fr_exchange_group *group = member->group;
    struct box *box = &member->boxes[channel][member->sent[channel] % 2];
    box->bytes.size = 0;
    member->own[channel] = out[member->exchange.rank];
    for (uint32_t r = 0; r < group->options.ranks; r++) {
        if (r == member->exchange.rank)
            continue;
        size_t gap = (FR_EXCHANGE_ALIGNED - box->bytes.size % FR_EXCHANGE_ALIGNED) % FR_EXCHANGE_ALIGNED;
        memset(fr_buffer_reserve(&box->bytes, gap + 1), 0, gap);
        box->bytes.size += gap;
        box->at[r] = box->bytes.size;
        box->sizes[r] = out[r].size;
        fr_buffer_append(&box->bytes, out[r].data, out[r].size);
    }
    pthread_mutex_lock(&group->lock);
    bool survives = survives_call(member, channel);
    box->sent_ns = fr_mono_ns(fr_clock_system());
    member->sent[channel] += survives;
    pthread_cond_broadcast(&group->changed);
    enum fr_status status = survives ? FR_OK : stopped(member, err);
    pthread_mutex_unlock(&group->lock);
    return status;
}

/* When the receiver may see what `from` sent. */
static uint64_t visible_ns(const struct member *to, const struct member *from, enum fr_channel channel, uint64_t call)
{
    const struct fr_exchange_group_options *options = &to->group->options;
    uint64_t sent_ns = from->boxes[channel][call % 2].sent_ns;
    if (options->delay_max_ns == 0)
        return sent_ns;
    uint64_t pair = (uint64_t)from->exchange.rank << 32 | to->exchange.rank << 8 | (uint64_t)channel;
    return sent_ns + fr_fmix64(fr_fmix64(options->seed + call) ^ pair) % (options->delay_max_ns + 1);
}

/* Returns 0 if everything of the call can be seen now, otherwise when to look again; UINT64_MAX: a
 * rank has not sent, and is named in `missing`. */
static uint64_t look_again_ns(const struct member *to, enum fr_channel channel, uint64_t call, uint64_t now_ns,
                              uint32_t *missing)
{
    uint64_t again_ns = 0;
    for (uint32_t r = 0; r < to->group->options.ranks; r++) {
        const struct member *from = &to->group->members[r];
        if (from->sent[channel] <= call) {
            *missing = r;
            return UINT64_MAX;
        }
        uint64_t at_ns = visible_ns(to, from, channel, call);
        if (at_ns > now_ns && at_ns > again_ns)
            again_ns = at_ns;
    }
    return again_ns;
}

/* Looks for at most SPIN_NS whether all ranks have sent, and lets other threads run meanwhile. */
static void spin(const struct member *to, enum fr_channel channel, uint64_t call)
{
    uint64_t until_ns = fr_mono_ns(fr_clock_system()) + SPIN_NS;
    uint32_t r = 0;
    while (r < to->group->options.ranks) {
        if (atomic_load(&to->group->members[r].sent[channel]) > call)
            r++;
        else if (fr_mono_ns(fr_clock_system()) >= until_ns)
            return;
        else
            sched_yield();
    }
}

static enum fr_status await(struct member *member, enum fr_channel channel, uint64_t call, struct fr_err *err)
{
    struct fr_exchange_group *group = member->group;
    uint64_t begin_ns = fr_mono_ns(fr_clock_system()), deadline_ns = begin_ns + group->options.deadline_ns;
    for (;;) {
        uint32_t missing = 0;
        uint64_t now_ns = fr_mono_ns(fr_clock_system());
        uint64_t again_ns = look_again_ns(member, channel, call, now_ns, &missing);
        if (group->stopped)
            return stopped(member, err);
        if (again_ns == 0)
            return FR_OK;
        if (again_ns == UINT64_MAX && now_ns >= deadline_ns) {
            enum fr_status status =
                fr_exchange_missed(UINT64_C(1) << missing, channel, call + 1, now_ns - begin_ns, err);
            stop_locked(group, member->exchange.rank, 75);
            member->failure = *err;
            return status;
        }
        struct timespec until = fr_clock_deadline((again_ns == UINT64_MAX ? deadline_ns : again_ns) - now_ns);
        int rc = pthread_cond_timedwait(&group->changed, &group->lock, &until);
        FR_CHECK(rc == 0 || rc == ETIMEDOUT);
    }
}

static enum fr_status receive(void *self, enum fr_channel channel, struct fr_bytes *in, struct fr_err *err)
{
    struct member *member = self;
    struct fr_exchange_group *group = member->group;
    uint64_t call = member->received[channel];
    spin(member, channel, call);
    pthread_mutex_lock(&group->lock);
    enum fr_status status = survives_call(member, channel) ? await(member, channel, call, err) : stopped(member, err);
    pthread_mutex_unlock(&group->lock);
    if (status != FR_OK)
        return status;
    for (uint32_t r = 0; r < group->options.ranks; r++) {
        const struct box *box = &group->members[r].boxes[channel][call % 2];
        uint32_t rank = member->exchange.rank;
        in[r] = r == rank ? member->own[channel] : (struct fr_bytes){box->bytes.data + box->at[rank], box->sizes[rank]};
    }
    member->received[channel]++;
    return FR_OK;
}

static void release(void *self)
{
    (void)self; /* the group owns its members */
}

static const struct fr_exchange_backend backend = {send, receive, stop, release};

struct fr_exchange_group *fr_exchange_group_new(const struct fr_exchange_group_options *options)
{
    FR_CHECK(options->ranks >= 1 && options->ranks <= FR_RANKS_MAX);
    struct fr_exchange_group *group = fr_alloc(1, sizeof(*group) + options->ranks * sizeof(struct member));
    group->options = *options;
    pthread_condattr_t monotonic;
    int rc = pthread_condattr_init(&monotonic);
    rc |= pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    rc |= pthread_mutex_init(&group->lock, NULL);
    rc |= pthread_cond_init(&group->changed, &monotonic);
    rc |= pthread_condattr_destroy(&monotonic);
    FR_CHECK(rc == 0);
    for (uint32_t r = 0; r < options->ranks; r++) {
        struct member *member = &group->members[r];
        member->group = group;
        member->exchange = (struct fr_exchange){.backend = &backend, .self = member, .rank = r, .size = options->ranks};
    }
    return group;
}

void fr_exchange_group_free(struct fr_exchange_group *group)
{
    if (!group)
        return;
    for (uint32_t r = 0; r < group->options.ranks; r++)
        for (int c = 0; c < FR_CHANNELS; c++)
            for (int i = 0; i < 2; i++)
                fr_buffer_release(&group->members[r].boxes[c][i].bytes);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

struct fr_exchange *fr_exchange_group_rank(struct fr_exchange_group *group, uint32_t rank)
{
    FR_CHECK(rank < group->options.ranks);
    return &group->members[rank].exchange;
}
