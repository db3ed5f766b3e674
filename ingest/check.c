/* Lanes: which partitions there are, whether the log still is the one our positions speak of, and beginning to read
 * (DESIGN section 5, Recovery; P8).
 *
 * The position must lie in [low, high] and the record that was delivered last must have the timestamp and CRC32C that
 * were noted (the fingerprint): same name and a plausible offset do not prove the same log, a topic may have been
 * deleted and made anew. librdkafka 2.0.2 checks neither (no KIP-320 truncation detection, nor later for an assigned
 * start), so this does, at the start and whenever reading a partition broke. Losses go by `on_loss`; another log under
 * the same name always stops. Owner: ingest thread. Does not: wait between tries (the caller backs off). */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"

static const struct fr_partition_position *position_of(const struct fr_ingest *self, const struct fr_lane *lane)
{
    return &self->shared.known.partitions[lane->slot];
}

void fr_lane_moved(struct fr_ingest *self, struct fr_lane *lane)
{
    if (!lane->moved)
        self->n_moved++;
    lane->moved = true;
}

/* ---- discovery ---- */

static void add_lane(struct fr_ingest *self, const struct fr_source_partition *at, bool added)
{
    if (self->n_lanes == self->capacity_lanes) {
        self->capacity_lanes = self->capacity_lanes ? 2 * self->capacity_lanes : 8;
        self->lanes = fr_realloc(self->lanes, self->capacity_lanes, sizeof(*self->lanes));
        self->touched = fr_realloc(self->touched, self->capacity_lanes, sizeof(*self->touched));
    }
    pthread_mutex_lock(&self->shared.mutex);
    uint32_t slot = fr_positions_slot(&self->shared.known, at->topic, at->partition);
    struct fr_partition_position p = self->shared.known.partitions[slot];
    pthread_mutex_unlock(&self->shared.mutex);
    self->lanes[self->n_lanes++] = (struct fr_lane){
        .slot = slot,
        .next = p.offset,
        .item = p.item,
        .mark = {p.fingerprint_offset, p.fingerprint_timestamp_ms, p.fingerprint_crc32c},
        .end = -1,
        .high = -1,
        .seen = p.offset,
        .touched = -1,
        .added = added,
    };
    self->n_stopped++;
}

/* Partitions that were read before must still be there: a topic never shrinks. */
static enum fr_status check_complete(const struct fr_ingest *self, const struct fr_source_layout *layout,
                                     struct fr_err *err)
{
    const struct fr_positions *known = &self->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        bool topic_there = false, there = false;
        for (uint32_t k = 0; k < layout->n_partitions; k++) {
            bool same = strcmp(layout->partitions[k].topic, p->topic) == 0;
            topic_there |= same;
            there |= same && layout->partitions[k].partition == p->partition;
        }
        if (topic_there && !there)
            return fr_err_set(err, FR_E_MISMATCH,
                              "topic %s has no partition %" PRId32 ", of which the state holds offset %" PRId64
                              ": the topic was made anew with fewer partitions; use another topic or another state_dir",
                              p->topic, p->partition, p->offset);
        if (!topic_there && !self->started)
            fr_log(FR_LOG_WARN, "ingest", "topic_left", "topic=%s partition=%" PRId32 " offset=%" PRId64, p->topic,
                   p->partition, p->offset);
    }
    return FR_OK;
}

static enum fr_status check_cluster(struct fr_ingest *self, const char *cluster_id, struct fr_err *err)
{
    if (cluster_id[0] == 0)
        return FR_OK;
    char known[FR_CLUSTER_ID_MAX];
    pthread_mutex_lock(&self->shared.mutex);
    if (self->shared.known.cluster_id[0] == 0)
        snprintf(self->shared.known.cluster_id, FR_CLUSTER_ID_MAX, "%s", cluster_id);
    memcpy(known, self->shared.known.cluster_id, sizeof(known));
    pthread_mutex_unlock(&self->shared.mutex);
    if (strcmp(known, cluster_id) == 0)
        return FR_OK;
    return fr_err_set(
        err, FR_E_MISMATCH,
        "the brokers at %s are cluster %s, the state was trained from cluster %s: offsets of one mean nothing in the "
        "other; point ingest.brokers at the right cluster or use another state_dir",
        self->conf->ingest.brokers, cluster_id, known);
}

enum fr_status fr_lanes_discover(struct fr_ingest *self, struct fr_err *err)
{
    struct fr_source_layout layout = {0};
    enum fr_status status = self->source.discover(self->source.self, &layout, err);
    if (status == FR_OK && layout.n_partitions > FR_PARTITIONS_MAX)
        status = fr_err_set(err, FR_E_LIMIT, "%u partitions are more than the %d this service reads",
                            layout.n_partitions, FR_PARTITIONS_MAX);
    if (status == FR_OK)
        status = check_cluster(self, layout.cluster_id, err);
    if (status == FR_OK)
        status = check_complete(self, &layout, err);
    if (status != FR_OK)
        return status;
    /* Where something was read before, a partition without a position is new: its records were written since and none
     * may be skipped. */
    bool resumed = self->started;
    for (uint32_t i = 0; i < self->shared.known.count; i++)
        resumed |= self->shared.known.partitions[i].offset >= 0;
    for (uint32_t i = self->n_lanes; i < layout.n_partitions; i++)
        add_lane(self, &layout.partitions[i], resumed);
    return FR_OK;
}

/* ---- is it the same log? ---- */

static enum fr_status lose(struct fr_ingest *self, struct fr_lane *lane, int64_t low, struct fr_err *err)
{
    const struct fr_partition_position *p = position_of(self, lane);
    const char *what = lane->next < low ? "were deleted before they were read (retention)"
                                        : "are missing at its end (truncated, or the topic was made anew)";
    uint64_t hole = (uint64_t)(lane->next < low ? low - lane->next : lane->next - lane->high);
    if (self->conf->ingest.on_loss == FR_ON_LOSS_STOP)
        return fr_err_set(err, FR_E_LOST,
                          "%s/%" PRId32 ": %" PRIu64 " records %s: the next offset is %" PRId64
                          ", the log holds [%" PRId64 ", %" PRId64
                          "); ingest.on_loss: earliest or latest goes on without them, another state_dir begins anew",
                          p->topic, p->partition, hole, what, lane->next, low, lane->high);
    int64_t to = self->conf->ingest.on_loss == FR_ON_LOSS_EARLIEST ? low : lane->high;
    uint64_t lost = to > lane->next ? (uint64_t)(to - lane->next) : 0;
    fr_log(FR_LOG_WARN, "ingest", "records_lost",
           "topic=%s partition=%" PRId32 " expected=%" PRId64 " low=%" PRId64 " high=%" PRId64 " next=%" PRId64
           " lost=%" PRIu64,
           p->topic, p->partition, lane->next, low, lane->high, to, lost);
    lane->next = to;
    lane->item = 0;
    lane->mark =
        (struct fr_mark){.offset = -1}; /* what follows is another log, or has a hole: nothing to compare with */
    lane->lost += lost;
    fr_lane_moved(self, lane);
    return FR_OK;
}

static enum fr_status verify(struct fr_ingest *self, uint32_t index, int64_t low, struct fr_err *err)
{
    struct fr_lane *lane = &self->lanes[index];
    const struct fr_partition_position *p = position_of(self, lane);
    if (lane->mark.offset < 0)
        return FR_OK;
    enum fr_status status = FR_EOF;
    struct fr_source_event event;
    if (lane->mark.offset >= low && lane->mark.offset < lane->high)
        status = self->source.fetch(self->source.self, index, lane->mark.offset, &event, err);
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
    if (crc != lane->mark.crc32c || event.timestamp_ms != lane->mark.timestamp_ms)
        status =
            fr_err_set(err, FR_E_MISMATCH,
                       "%s/%" PRId32 ": the record at offset %" PRId64
                       " is not the one that was trained (timestamp %" PRId64 ", CRC32C %08" PRIx32 "; noted %" PRId64
                       ", %08" PRIx32 "): another topic under the same name; use the right topic or another state_dir",
                       p->topic, p->partition, lane->mark.offset, event.timestamp_ms, crc, lane->mark.timestamp_ms,
                       lane->mark.crc32c);
    self->source.release(self->source.self, &event);
    return status;
}

enum fr_status fr_lane_check(struct fr_ingest *self, uint32_t index, struct fr_err *err)
{
    struct fr_lane *lane = &self->lanes[index];
    int64_t low, high;
    enum fr_status status = self->source.watermarks(self->source.self, index, &low, &high, err);
    if (status != FR_OK)
        return status;
    lane->high = high;
    if (lane->next < 0) {
        bool latest = self->conf->ingest.start == FR_START_LATEST && !lane->added;
        lane->next = latest ? high : low;
    } else if (lane->next < low || lane->next > high) {
        status = lose(self, lane, low, err);
    } else {
        status = verify(self, index, low, err);
    }
    if (status != FR_OK)
        return status;
    pthread_mutex_lock(&self->shared.mutex);
    if (self->shared.known.partitions[lane->slot].offset < 0)
        self->shared.known.partitions[lane->slot].offset = lane->next;
    if (lane->slot == self->shared.n_resolved) /* lanes are checked in the order of their slots */
        self->shared.n_resolved++;
    pthread_mutex_unlock(&self->shared.mutex);
    return FR_OK;
}

/* ---- reading ---- */

enum fr_status fr_lane_begin(struct fr_ingest *self, uint32_t index, struct fr_err *err)
{
    struct fr_lane *lane = &self->lanes[index];
    const struct fr_partition_position *p = position_of(self, lane);
    FR_CHECK(!lane->reading && !lane->done);
    if (lane->end >= 0 && lane->next >= lane->end) {
        fr_lane_finish(self, index);
        return FR_OK;
    }
    enum fr_status status = self->source.begin(self->source.self, index, lane->next, err);
    if (status != FR_OK)
        return status;
    lane->reading = true;
    lane->at_end = lane->next >= lane->high; /* nothing to wait for as far as we know; the source says so again */
    lane->seen = lane->next;
    self->n_stopped--;
    fr_log(FR_LOG_INFO, "ingest", "reading",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32 " high=%" PRId64, p->topic, p->partition,
           lane->next, lane->item, lane->high);
    return FR_OK;
}

void fr_lane_stop(struct fr_ingest *self, uint32_t index, const char *why)
{
    struct fr_lane *lane = &self->lanes[index];
    const struct fr_partition_position *p = position_of(self, lane);
    FR_CHECK(lane->reading);
    self->source.halt(self->source.self, index);
    lane->reading = false;
    lane->at_end = false;
    lane->retry_ns = 0;
    self->n_stopped++;
    snprintf(self->problem, sizeof(self->problem), "%s/%" PRId32 ": %s", p->topic, p->partition, why);
    char quoted[256];
    fr_log(FR_LOG_WARN, "ingest", "interrupted", "topic=%s partition=%" PRId32 " offset=%" PRId64 " reason=%s",
           p->topic, p->partition, lane->next, fr_log_quote(quoted, sizeof(quoted), why));
}

void fr_lane_finish(struct fr_ingest *self, uint32_t index)
{
    struct fr_lane *lane = &self->lanes[index];
    FR_CHECK(!lane->done);
    if (lane->reading)
        self->source.halt(self->source.self, index);
    else
        self->n_stopped--;
    lane->reading = false;
    lane->done = lane->at_end = true;
    self->n_done++;
    if (lane->next < lane->end) { /* only markers were left: in effect all the same */
        lane->next = lane->end;
        lane->item = 0;
        fr_lane_moved(self, lane);
    }
    lane->seen = lane->next;
}

enum fr_status fr_lanes_revive(struct fr_ingest *self, struct fr_err *err)
{
    uint64_t now = fr_mono_ns(self->clock);
    bool looked = false;
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; status == FR_OK && self->n_stopped && i < self->n_lanes; i++) {
        struct fr_lane *lane = &self->lanes[i];
        if (lane->reading || lane->done || now < lane->retry_ns)
            continue;
        looked = true;
        lane->retry_ns = now + (uint64_t)FR_RECHECK_MS * 1000000u;
        status = fr_lane_check(self, i, err);
        if (status == FR_OK)
            status = fr_lane_begin(self, i, err);
    }
    if (looked)
        self->source.checked(self->source.self);
    if (status == FR_E_UNAVAILABLE) {
        snprintf(self->problem, sizeof(self->problem), "%.255s", err->text);
        status = FR_OK;
    }
    if (self->n_stopped == 0)
        self->problem[0] = 0;
    return status;
}
