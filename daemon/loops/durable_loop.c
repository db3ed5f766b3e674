/* One turn of the durable loop, and its state that other threads read (durable_loop.h). */
#include "loops/durable_loop.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "base/trace.h"
#include "durable/agreement.h"
#include "exchange/exchange.h"

enum { LETTERS_LOGGED_MS = 5000, POP_MS = 200, NS_PER_MS = 1000000 };

/* ---- shared with other threads ---- */

void fr_shared_durable_init(struct fr_shared_durable *shared)
{
    pthread_mutex_init(&shared->lock, NULL);
}

void fr_shared_durable_release(struct fr_shared_durable *shared)
{
    fr_positions_release(&shared->positions);
    pthread_mutex_destroy(&shared->lock);
}

void fr_shared_durable_set_positions(struct fr_shared_durable *shared, const struct fr_positions *positions)
{
    pthread_mutex_lock(&shared->lock);
    fr_positions_copy(positions, &shared->positions);
    pthread_mutex_unlock(&shared->lock);
}

void fr_shared_durable_get_positions(struct fr_shared_durable *shared, struct fr_positions *out)
{
    pthread_mutex_lock(&shared->lock);
    fr_positions_copy(&shared->positions, out);
    pthread_mutex_unlock(&shared->lock);
}

bool fr_shared_durable_late(const struct fr_shared_durable *shared, const struct fr_conf *conf,
                            const struct fr_clock *clock, char *text, size_t size)
{
    uint64_t cut_ns = atomic_load(&shared->waiting_cut_ns), now_ns = fr_mono_ns(clock);
    if (!cut_ns || now_ns < cut_ns || now_ns - cut_ns < fr_trainer_late_ns(conf))
        return false;
    const char *what = atomic_load(&shared->waits_for);
    snprintf(text, size, "epoch %" PRIu64 " is not durable %.1f s after its cut: it waits for %s",
             atomic_load(&shared->epoch) + 1, (double)(now_ns - cut_ns) / 1e9,
             what ? what : "the disk under state_dir");
    return true;
}

/* ---- the turn ---- */

/* Whether the dead letters of all records before the cut are acknowledged, as an append requires
 * (docs/architecture.md, "Dead letters"). */
static bool letters_acknowledged(struct fr_durable_loop *loop, const struct fr_stage *stage)
{
    const struct fr_loop_context *context = loop->context;
    uint64_t acknowledged = fr_ingest_dead_acknowledged(loop->ingest);
    if (acknowledged >= stage->dead_sequence) {
        if (loop->letters_logged_ns)
            fr_http_reason(context->http, "dead_letters", NULL);
        loop->letters_logged_ns = 0;
        return true;
    }
    /* batches of several lanes do not wait for a good record (ingest/malformed.c) */
    if (fr_conf_domains(context->conf) > 1)
        fr_ingest_release_letters(loop->ingest);
    if (fr_log_due(&loop->letters_logged_ns, fr_mono_ns(context->clock), (uint64_t)LETTERS_LOGGED_MS * NS_PER_MS)) {
        fr_log(FR_LOG_WARN, "durable", "waiting_for_dead_letters",
               "epoch=%" PRIu64 " acknowledged=%" PRIu64 " needed=%" PRIu64, stage->epoch, acknowledged,
               stage->dead_sequence);
        fr_http_reason(context->http, "dead_letters", "dead letters are not acknowledged; epochs wait for them");
    }
    return false;
}

static void publish_positions(struct fr_durable_loop *loop, const struct fr_stage *stage)
{
    for (size_t i = 0; i < stage->n_sections; i++) {
        if (strcmp(stage->sections[i].name, "positions") != 0)
            continue;
        struct fr_positions positions = {0};
        enum fr_status parsed =
            fr_positions_parse(stage->sections[i].bytes.data, stage->sections[i].bytes.size, &positions);
        FR_CHECK(parsed == FR_OK); /* this process encoded these bytes */
        fr_ingest_commit(loop->ingest, &positions);
        fr_shared_durable_set_positions(&loop->shared, &positions);
        fr_positions_release(&positions);
    }
}

/* What a rank waits for before an epoch is in its journal; travels in votes. */
enum waits { WAITS_FOR_NOTHING, WAITS_FOR_LETTERS, WAITS_FOR_ROOM };

/* Keeps the digest of an epoch that all ranks have prepared, for the publisher. */
static void add_digest(struct fr_durable_loop *loop, const struct fr_durable_vote *votes, uint64_t epoch)
{
    struct fr_sha256 of_ranks[FR_RANKS_MAX], joined;
    struct fr_durable_status durable;
    uint32_t n = fr_exchange_size(loop->exchange);
    for (uint32_t r = 0; r < n; r++)
        of_ranks[r] = votes[r].digest;
    joined = fr_durable_join_digests(of_ranks, n);
    fr_shared_digests_add(&loop->digests, epoch, &joined);
    fr_durable_get_status(loop->durable, &durable);
    if (durable.journal_first > 0)
        fr_shared_digests_drop(&loop->digests, durable.journal_first - 1);
}

/* Tells all ranks how far this one is with the epoch. FR_OK: all have prepared it. FR_AGAIN: a rank
 * waits for something. A job of one rank asks nobody. */
static enum fr_status vote(struct fr_durable_loop *loop, const struct fr_stage *stage, enum waits mine,
                           struct fr_err *err)
{
    static const char *const others[] = {[WAITS_FOR_NOTHING] = "another rank to write the epoch",
                                         [WAITS_FOR_LETTERS] = "dead letters of another rank to be acknowledged",
                                         [WAITS_FOR_ROOM] = "room on the disk under state_dir of another rank"};
    struct fr_durable_vote votes[FR_RANKS_MAX], own = {.epoch = stage->epoch, .waits_for = mine};
    bool all = false;
    uint32_t rank = 0;
    if (!loop->exchange)
        return mine == WAITS_FOR_NOTHING ? FR_OK : FR_AGAIN;
    if (mine == WAITS_FOR_NOTHING) {
        own.digest = loop->own;
        atomic_store(&loop->shared.waits_for, others[mine]);
    }
    enum fr_status status = fr_exchange_vote(loop->exchange, &own, sizeof(own), votes, err);
    if (status == FR_OK)
        status = fr_durable_voted(votes, fr_exchange_size(loop->exchange), &all, &rank, err);
    if (status != FR_OK)
        return status;
    if (all) {
        add_digest(loop, votes, stage->epoch);
        return FR_OK;
    }
    if (mine == WAITS_FOR_NOTHING && votes[rank].waits_for < FR_ARRAY_LEN(others))
        atomic_store(&loop->shared.waits_for, others[votes[rank].waits_for]);
    return FR_AGAIN;
}

/* Writes the epoch to the journal and, when all ranks have it there, to the mark. FR_AGAIN: they do
 * not have it yet. */
static enum fr_status write_epoch(struct fr_durable_loop *loop, struct fr_stage *stage, struct fr_sha256 *digest,
                                  struct fr_err *err)
{
    if (!loop->exchange)
        return fr_durable_append(loop->durable, stage, NULL, digest, err);
    enum fr_status status = loop->prepared ? FR_OK : fr_durable_prepare(loop->durable, stage, &loop->own, err);
    loop->prepared = status == FR_OK;
    if (status == FR_OK)
        status = vote(loop, stage, WAITS_FOR_NOTHING, err);
    if (status != FR_OK)
        return status;
    loop->prepared = false;
    *digest = loop->own;
    return fr_durable_commit(loop->durable, stage, err);
}

static enum fr_status make_durable(struct fr_durable_loop *loop, struct fr_stage *stage, struct fr_err *err)
{
    const struct fr_clock *clock = loop->context->clock;
    struct fr_shared_durable *shared = &loop->shared;
    uint64_t begin_ns = fr_mono_ns(clock);
    struct fr_sha256 digest;
    uint64_t image_bytes = stage->image_bytes, bytes = fr_stage_bytes(stage);
    size_t images = stage->n_images;
    uint64_t least_timeline = fr_publisher_least_timeline(loop->publisher);
    if (stage->timeline < least_timeline)
        stage->timeline = least_timeline;
    uint64_t traced_ns = fr_trace_begin();
    enum fr_status status = write_epoch(loop, stage, &digest, err);
    fr_trace_end("append", traced_ns);
    if (status != FR_OK)
        return status;
    uint64_t end_ns = fr_mono_ns(clock);
    fr_freshness_durable(loop->freshness, stage->epoch, fr_wall_ms(clock));
    atomic_store(&shared->epoch, stage->epoch);
    atomic_store(&shared->publishable, stage->publishable);
    fr_publisher_offer(loop->publisher, stage->publishable);
    atomic_fetch_add(&shared->append_ns, end_ns - begin_ns);
    atomic_fetch_add(&shared->appends, 1);
    atomic_fetch_add(&shared->image_bytes, image_bytes);
    atomic_fetch_add(&shared->appended_bytes, bytes);
    atomic_store(&shared->cut_to_durable_ns, end_ns - stage->cut_mono_ns);
    atomic_store(&shared->wall_ms, fr_wall_ms(clock));
    fr_timings_observe(loop->timings, FR_TIMING_APPEND, (double)(end_ns - begin_ns) / 1e9);
    fr_timings_observe(loop->timings, FR_TIMING_DURABLE, (double)(end_ns - stage->cut_mono_ns) / 1e9);
    publish_positions(loop, stage);
    fr_log(FR_LOG_DEBUG, "durable", "epoch",
           "epoch=%" PRIu64 " images=%zu image_bytes=%" PRIu64 " digest=%016" PRIx64 " ms=%.1f", stage->epoch, images,
           image_bytes, fr_sha256_u64(&digest), (double)(end_ns - stage->cut_mono_ns) / 1e6);
    return FR_OK;
}

/* Appends the epoch. Without room on the disk, the part that was written is cut off again, and the
 * epoch waits here until there is room; reading pauses soon after. */
static enum fr_status append(struct fr_durable_loop *loop, struct fr_stage *stage, struct fr_err *err)
{
    const struct fr_loop_context *context = loop->context;
    if (fr_mono_ns(context->clock) < loop->retry.next_ns)
        return vote(loop, stage, WAITS_FOR_ROOM, err);
    if (!loop->prepared) /* the epoch waits for the disk, so there is no text */
        atomic_store(&loop->shared.waits_for, NULL);
    enum fr_status status = make_durable(loop, stage, err);
    if (status == FR_E_NO_SPACE) {
        atomic_store(&loop->shared.waits_for, "room on the disk under state_dir");
        (void)fr_err_wrap(err, "make room under %s, then writing continues by itself", context->conf->state_dir);
        fr_retry_failed(context, &loop->retry, "journal", err);
        return vote(loop, stage, WAITS_FOR_ROOM, err);
    }
    if (status == FR_OK)
        fr_retry_succeeded(context, &loop->retry, "journal");
    return status;
}

enum fr_status fr_step_durable(struct fr_durable_loop *loop, struct fr_err *err)
{
    const struct fr_lifecycle *life = loop->context->life;
    if (!loop->stage) {
        void *item = NULL;
        enum fr_status popped = fr_ring_pop(loop->cut_stages, &item, (uint64_t)POP_MS * NS_PER_MS);
        if (popped != FR_OK)
            return popped == FR_EOF || atomic_load(&life->abandon) ? FR_EOF : FR_OK;
        loop->stage = item;
        atomic_store(&loop->shared.waiting_cut_ns, loop->stage->cut_mono_ns);
    }
    struct fr_stage *stage = loop->stage;
    enum fr_status status = FR_AGAIN;
    if (loop->prepared || letters_acknowledged(loop, stage)) {
        status = append(loop, stage, err);
    } else {
        atomic_store(&loop->shared.waits_for, "dead letters to be acknowledged");
        status = vote(loop, stage, WAITS_FOR_LETTERS, err);
    }
    if (status == FR_AGAIN) /* an abandoned epoch was never durable; its records are read again */
        return atomic_load(&life->abandon) ? FR_EOF : FR_AGAIN;
    if (status != FR_OK)
        return status;
    loop->stage = NULL;
    atomic_store(&loop->shared.waiting_cut_ns, 0);
    fr_stage_clear(stage);
    /* the push fails only while the service closes */
    return fr_ring_try_push(loop->free_stages, stage) ? FR_OK : FR_EOF;
}
