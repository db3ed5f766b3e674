/* Lanes: which partitions there are, whether the log still is the one our positions speak of, and
 * beginning to read (DESIGN section 5, Recovery; P8).
 *
 * The position must lie in [low, high] and the record that was delivered last must have the
 * timestamp and CRC32C that were noted (the fingerprint): same name and a plausible offset do not
 * prove the same log, a topic may have been deleted and made anew. librdkafka 2.0.2 checks neither
 * (no KIP-320 truncation detection, nor later for an assigned start), so this does, at the start
 * and whenever reading a partition broke. Losses and a log made anew go by `on_loss`; another
 * cluster always stops. Files check theirs in their own way (files.c).
 *
 * Owner: ingest thread. It does not wait between tries (the caller backs off). */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "files.h"

void fr_lane_moved(struct fr_ingest *ingest, struct fr_lane *lane)
{
    if (!lane->moved)
        ingest->n_moved++;
    lane->moved = true;
}

/* ---- discovery ---- */

static void add_lane(struct fr_ingest *ingest, const struct fr_feed *feed, const struct fr_source_partition *at,
                     bool added)
{
    if (ingest->n_lanes == ingest->capacity_lanes) {
        ingest->capacity_lanes = ingest->capacity_lanes ? 2 * ingest->capacity_lanes : 8;
        ingest->lanes = fr_realloc(ingest->lanes, ingest->capacity_lanes, sizeof(*ingest->lanes));
        ingest->touched = fr_realloc(ingest->touched, ingest->capacity_lanes, sizeof(*ingest->touched));
    }
    pthread_mutex_lock(&ingest->shared.mutex);
    uint32_t stream_index = fr_positions_index(&ingest->shared.known, at->topic, at->partition);
    struct fr_partition_position p = ingest->shared.known.partitions[stream_index];
    pthread_mutex_unlock(&ingest->shared.mutex);
    ingest->lanes[ingest->n_lanes] = (struct fr_lane){
        .feed = feed,
        .partition = ingest->n_lanes - feed->first,
        .turn = feed->in_turn ? ingest->n_lanes : feed->first,
        .stream_index = stream_index,
        .next = p.offset,
        .item = p.item,
        .delivered = p.delivered,
        .mark = {p.fingerprint_offset, p.fingerprint_timestamp_ms, p.fingerprint_crc32c},
        .end = -1,
        .high = -1,
        .seen = p.offset,
        .touched = -1,
        .added = added,
    };
    ingest->n_lanes++;
    ingest->n_stopped++;
}

/* Partitions that were read before must still be there: a topic never shrinks, it was made anew. */
static enum fr_status check_complete(const struct fr_ingest *ingest, struct fr_err *err)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        bool topic_there = false, there = false;
        for (uint32_t k = 0; k < ingest->n_lanes && !there; k++) {
            there = ingest->lanes[k].stream_index == i;
            topic_there |= there || strcmp(fr_lane_position(ingest, &ingest->lanes[k])->topic, p->topic) == 0;
        }
        if (topic_there && !there && ingest->conf->ingest.on_loss == FR_ON_LOSS_STOP)
            return fr_err_set(err, FR_E_MISMATCH,
                              "topic %s has no partition %" PRId32 ", of which the state holds offset %" PRId64
                              ": the topic was made anew with fewer partitions; use another topic or another "
                              "state_dir, or go on with the partitions there are by ingest.on_loss: earliest or latest",
                              p->topic, p->partition, p->offset);
        if (topic_there && !there && !ingest->started)
            fr_log(FR_LOG_WARN, "ingest", "partition_gone", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
        if (!topic_there && !ingest->started && !(ingest->past_files && fr_is_file_topic(p->topic)))
            fr_log(FR_LOG_WARN, "ingest", "topic_left", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
    }
    return FR_OK;
}

static enum fr_status check_cluster(struct fr_ingest *ingest, const char *cluster_id, struct fr_err *err)
{
    if (cluster_id[0] == 0)
        return FR_OK;
    char known[FR_CLUSTER_ID_MAX];
    pthread_mutex_lock(&ingest->shared.mutex);
    if (ingest->shared.known.cluster_id[0] == 0)
        snprintf(ingest->shared.known.cluster_id, FR_CLUSTER_ID_MAX, "%s", cluster_id);
    memcpy(known, ingest->shared.known.cluster_id, sizeof(known));
    pthread_mutex_unlock(&ingest->shared.mutex);
    if (strcmp(known, cluster_id) == 0)
        return FR_OK;
    return fr_err_set(
        err, FR_E_MISMATCH,
        "the brokers at %s are cluster %s, the state was trained from cluster %s: offsets of one mean nothing in the "
        "other; point ingest.brokers at the right cluster or use another state_dir",
        ingest->conf->ingest.brokers, cluster_id, known);
}

/* Where partitions of a topic were read before, one without a position is new: its records were
 * written since, and none may be skipped. Of a topic that was not read before (one more in
 * ingest.topics) `start` decides. */
static bool was_read(const struct fr_ingest *ingest, const char *topic, uint32_t n_resolved)
{
    for (uint32_t i = 0; i < n_resolved; i++)
        if (strcmp(ingest->shared.known.partitions[i].topic, topic) == 0)
            return true;
    return false;
}

static bool is_known(const struct fr_ingest *ingest, const struct fr_source_partition *at)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++)
        if (known->partitions[i].partition == at->partition && strcmp(known->partitions[i].topic, at->topic) == 0)
            return true;
    return false;
}

static enum fr_status add_lanes(struct fr_ingest *ingest, const struct fr_feed *feed,
                                const struct fr_source_layout *layout, uint32_t resumed, struct fr_err *err)
{
    for (uint32_t i = ingest->n_lanes - feed->first; i < layout->n_partitions; i++) {
        if (ingest->shared.known.count == FR_PARTITIONS_MAX && !is_known(ingest, &layout->partitions[i]))
            return fr_err_set(err, FR_E_LIMIT,
                              "the state holds positions of %d partitions, of topics that were left too, and no more; "
                              "read further topics with another state_dir",
                              FR_PARTITIONS_MAX);
        add_lane(ingest, feed, &layout->partitions[i], was_read(ingest, layout->partitions[i].topic, resumed));
    }
    return FR_OK;
}

enum fr_status fr_lanes_discover(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_source_layout files = {0}, topics = {0};
    const struct fr_source *of_topics = &ingest->topics.source, *of_files = &ingest->files.source;
    enum fr_status status = of_topics->self ? of_topics->discover(of_topics->self, &topics, err) : FR_OK;
    if (status == FR_OK && of_files->self)
        status = of_files->discover(of_files->self, &files, err);
    if (status == FR_OK && files.n_partitions + topics.n_partitions > FR_PARTITIONS_MAX)
        status = fr_err_set(err, FR_E_LIMIT, "%u partitions are more than the %d this service reads",
                            files.n_partitions + topics.n_partitions, FR_PARTITIONS_MAX);
    if (status == FR_OK)
        status = check_cluster(ingest, topics.cluster_id, err);
    uint32_t resumed = ingest->shared.n_resolved;
    if (status == FR_OK)
        status = add_lanes(ingest, &ingest->files, &files, resumed, err);
    if (status == FR_OK)
        status = add_lanes(ingest, &ingest->topics, &topics, resumed, err);
    return status == FR_OK ? check_complete(ingest, err) : status;
}

/* ---- is it the same log? ---- */

enum damage { BEGINNING_GONE, END_GONE, OTHER_RECORDS };

/* By the policy: `stop` leaves the text and status in err; the others begin again in what the log
 * holds now. What counts as lost are records known to be in neither the old nor the new reading:
 * with `earliest` in a log that is another one there are none that we know of, with `latest` all
 * that it holds now. */
static enum fr_status lose(struct fr_ingest *ingest, struct fr_lane *lane, int64_t low, enum damage damage,
                           struct fr_err *err)
{
    const struct fr_partition_position *p = fr_lane_position(ingest, lane);
    if (ingest->conf->ingest.on_loss == FR_ON_LOSS_STOP)
        return err->status;
    int64_t to = ingest->conf->ingest.on_loss == FR_ON_LOSS_EARLIEST ? low : lane->high;
    int64_t unread = damage == BEGINNING_GONE ? lane->next : low;
    uint64_t lost = to > unread ? (uint64_t)(to - unread) : 0;
    char quoted[1100];
    fr_log(FR_LOG_WARN, "ingest", "records_lost",
           "topic=%s partition=%" PRId32 " expected=%" PRId64 " low=%" PRId64 " high=%" PRId64 " next=%" PRId64
           " lost=%" PRIu64 " reason=%s",
           p->topic, p->partition, lane->next, low, lane->high, to, lost,
           fr_log_quote(quoted, sizeof(quoted), err->text));
    lane->next = to;
    lane->item = 0;
    lane->mark =
        /* what follows is another log, or has a hole: nothing to compare with */
        (struct fr_mark){.offset = -1};
    lane->lost += lost;
    fr_lane_moved(ingest, lane);
    return FR_OK;
}

#define ON_LOSS_REMEDY "ingest.on_loss: earliest or latest goes on without them, another state_dir begins anew"

static enum fr_status check_range(struct fr_ingest *ingest, struct fr_lane *lane, int64_t low, struct fr_err *err)
{
    const struct fr_partition_position *p = fr_lane_position(ingest, lane);
    if (lane->next < low) {
        (void)fr_err_set(err, FR_E_LOST,
                         "%s/%" PRId32 ": %" PRId64
                         " records were deleted before they were read (retention): the next offset is %" PRId64
                         ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                         p->topic, p->partition, low - lane->next, lane->next, low, lane->high);
        return lose(ingest, lane, low, BEGINNING_GONE, err);
    }
    (void)fr_err_set(err, FR_E_LOST,
                     "%s/%" PRId32 ": %" PRId64
                     " records are missing at its end (truncated, or the topic was made anew): the next offset is "
                     "%" PRId64 ", the log holds [%" PRId64 ", %" PRId64 "); " ON_LOSS_REMEDY,
                     p->topic, p->partition, lane->next - lane->high, lane->next, low, lane->high);
    return lose(ingest, lane, low, END_GONE, err);
}

static enum fr_status verify(struct fr_ingest *ingest, struct fr_lane *lane, int64_t low, struct fr_err *err)
{
    const struct fr_source *source = &lane->feed->source;
    const struct fr_partition_position *p = fr_lane_position(ingest, lane);
    if (lane->mark.offset < 0)
        return FR_OK;
    enum fr_status status = FR_EOF;
    struct fr_source_event event;
    if (lane->mark.offset >= low && lane->mark.offset < lane->high)
        status = source->fetch(source->self, lane->partition, lane->mark.offset, &event, err);
    if (status == FR_EOF) {
        fr_log(FR_LOG_WARN, "ingest", "unverified",
               "topic=%s partition=%" PRId32 " offset=%" PRId64
               " reason=\"the last delivered record is no longer in the log\"",
               p->topic, p->partition, lane->mark.offset);
        return FR_OK;
    }
    if (status != FR_OK)
        return status;
    uint32_t crc = fr_crc32c(0, event.value, event.size);
    int64_t timestamp_ms = event.timestamp_ms;
    fr_lane_release(lane, &event);
    if (crc == lane->mark.crc32c && timestamp_ms == lane->mark.timestamp_ms)
        return FR_OK;
    (void)fr_err_set(
        err, FR_E_MISMATCH,
        "%s/%" PRId32 ": the record at offset %" PRId64 " is not the one that was trained (timestamp %" PRId64
        ", CRC32C %08" PRIx32 "; noted %" PRId64 ", %08" PRIx32
        "): another topic under the same name, made anew; use the right topic or another state_dir, or go "
        "on with this log by ingest.on_loss: earliest or latest",
        p->topic, p->partition, lane->mark.offset, timestamp_ms, crc, lane->mark.timestamp_ms, lane->mark.crc32c);
    return lose(ingest, lane, low, OTHER_RECORDS, err);
}

/* The owner learns positions without gaps. */
void fr_lane_resolve(struct fr_ingest *ingest, const struct fr_lane *lane)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    if (shared->known.partitions[lane->stream_index].offset < 0)
        shared->known.partitions[lane->stream_index].offset = lane->next;
    while (shared->n_resolved < shared->known.count && shared->known.partitions[shared->n_resolved].offset >= 0)
        shared->n_resolved++;
    pthread_mutex_unlock(&shared->mutex);
}

static enum fr_status first_offset(struct fr_ingest *ingest, struct fr_lane *lane, int64_t low, struct fr_err *err)
{
    const struct fr_source *source = &lane->feed->source;
    int64_t at = low;
    enum fr_status status = FR_OK;
    if (!lane->added && ingest->conf->ingest.start == FR_START_LATEST)
        at = lane->high;
    else if (!lane->added && ingest->conf->ingest.start == FR_START_TIME)
        status = source->offset_at(source->self, lane->partition, ingest->conf->ingest.start_ms, &at, err);
    if (status < 0)
        return status;
    /* None so late: what is written from now on is. */
    lane->next = status == FR_EOF || at > lane->high ? lane->high : at < low ? low : at;
    return FR_OK;
}

enum fr_status fr_lane_check_partition(struct fr_ingest *ingest, struct fr_lane *lane, struct fr_err *err)
{
    const struct fr_source *source = &lane->feed->source;
    int64_t low, high;
    enum fr_status status = source->watermarks(source->self, lane->partition, &low, &high, err);
    if (status != FR_OK)
        return status;
    lane->high = high;
    if (lane->next < 0)
        status = first_offset(ingest, lane, low, err);
    else if (lane->next < low || lane->next > high)
        status = check_range(ingest, lane, low, err);
    else
        status = verify(ingest, lane, low, err);
    lane->from = lane->next;
    if (status == FR_OK)
        fr_lane_resolve(ingest, lane);
    return status;
}

/* ---- reading ---- */

enum fr_status fr_lane_begin(struct fr_ingest *ingest, struct fr_lane *lane, struct fr_err *err)
{
    const struct fr_partition_position *p = fr_lane_position(ingest, lane);
    FR_CHECK(lane->state == FR_LANE_STOPPED);
    if (lane->end >= 0 && lane->next >= lane->end) {
        fr_lane_finish(ingest, lane);
        return FR_OK;
    }
    const struct fr_source *source = &lane->feed->source;
    enum fr_status status = source->begin(source->self, lane->partition, lane->from, err);
    if (status != FR_OK)
        return status;
    lane->state = lane->from < lane->next ? FR_LANE_VERIFYING : FR_LANE_READING;
    ingest->polled = lane->feed;
    /* Nothing to wait for as far as we know; the source says so again. */
    lane->at_end = lane->high >= 0 && lane->next >= lane->high;
    lane->seen = lane->next;
    ingest->n_stopped--;
    fr_log(lane->troubled ? FR_LOG_DEBUG : FR_LOG_INFO, "ingest", "reading",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32 " high=%" PRId64, p->topic, p->partition,
           lane->next, lane->item, lane->high);
    return FR_OK;
}

void fr_lane_stop(struct fr_ingest *ingest, struct fr_lane *lane, const char *why)
{
    const struct fr_partition_position *p = fr_lane_position(ingest, lane);
    FR_CHECK(fr_lane_is_read(lane));
    lane->feed->source.halt(lane->feed->source.self, lane->partition);
    lane->state = FR_LANE_STOPPED;
    lane->at_end = false;
    lane->retry_ns = 0;
    ingest->n_stopped++;
    snprintf(ingest->problem, sizeof(ingest->problem), "%s/%" PRId32 ": %s", p->topic, p->partition, why);
    char quoted[512];
    /* A lane that is interrupted at every new try says so once. */
    fr_log(lane->troubled ? FR_LOG_DEBUG : FR_LOG_WARN, "ingest", "interrupted",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " reason=%s", p->topic, p->partition, lane->next,
           fr_log_quote(quoted, sizeof(quoted), why));
    lane->troubled = true;
}

/* No lane is troubled, and none waits that could be read: no problem is left to tell. */
static void settle(struct fr_ingest *ingest)
{
    for (uint32_t i = 0; ingest->problem[0] && i < ingest->n_lanes; i++) {
        const struct fr_lane *lane = &ingest->lanes[i];
        if (lane->troubled || (lane->state == FR_LANE_STOPPED && fr_lane_its_turn(ingest, lane)))
            return;
    }
    ingest->problem[0] = 0;
}

void fr_lane_recovered(struct fr_ingest *ingest, struct fr_lane *lane)
{
    lane->troubled = false;
    settle(ingest);
}

void fr_lane_finish(struct fr_ingest *ingest, struct fr_lane *lane)
{
    FR_CHECK(lane->state != FR_LANE_DONE);
    if (lane->state == FR_LANE_STOPPED)
        ingest->n_stopped--;
    else
        lane->feed->source.halt(lane->feed->source.self, lane->partition);
    lane->state = FR_LANE_DONE;
    lane->troubled = false;
    lane->at_end = true;
    ingest->n_done++;
    while (fr_files_left(ingest) && ingest->lanes[ingest->turn].state == FR_LANE_DONE)
        ingest->turn++;
    if (lane->next < lane->end) { /* only markers were left: in effect all the same */
        lane->next = lane->end;
        lane->item = 0;
        fr_lane_moved(ingest, lane);
    }
    lane->seen = lane->next;
}

enum fr_status fr_lanes_revive(struct fr_ingest *ingest, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(ingest->clock);
    bool looked = false;
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && ingest->n_stopped && i < ingest->n_lanes; i++) {
        struct fr_lane *lane = &ingest->lanes[i];
        if (lane->state != FR_LANE_STOPPED || now < lane->retry_ns || !fr_lane_its_turn(ingest, lane))
            continue;
        looked = true;
        lane->retry_ns = now + (uint64_t)FR_RECHECK_MS * 1000000u;
        status = lane->feed->check(ingest, lane, err);
        /* The owner learns positions without gaps: behind one whose first offset is not known this
         * one waits. */
        if (status == FR_OK && lane->state == FR_LANE_STOPPED && lane->stream_index < ingest->shared.n_resolved)
            status = fr_lane_begin(ingest, lane, err);
    }
    if (looked && ingest->topics.source.self)
        ingest->topics.source.checked(ingest->topics.source.self);
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED) {
        snprintf(ingest->problem, sizeof(ingest->problem), "%.255s", err->text);
        status = FR_OK;
    }
    settle(ingest);
    return status;
}
