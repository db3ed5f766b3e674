/* Lanes: which partitions there are, whether the log still is the one our positions speak of, and
 * beginning to read (DESIGN section 5, Recovery; P8).
 *
 * The position must lie in [low, high] and the record that was delivered last must have the
 * timestamp and CRC32C that were noted (the fingerprint): same name and a plausible offset do not
 * prove the same log, a topic may have been deleted and made anew. librdkafka 2.0.2 checks neither
 * (no KIP-320 truncation detection, nor later for an assigned start), so this does, at the start
 * and whenever reading a partition broke. Losses and a log made anew go by `on_loss`; another
 * cluster always stops. A file is checked when it is read: it is begun at its last delivered line,
 * which must be the noted one; a changed file always stops. Owner: ingest thread. Does not: wait
 * between tries (the caller backs off). */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "files.h"

static const struct fr_partition_position *position_of(const struct fr_ingest *ingest, const struct fr_lane *lane)
{
    return &ingest->shared.known.partitions[lane->slot];
}

void fr_lane_moved(struct fr_ingest *ingest, struct fr_lane *lane)
{
    if (!lane->moved)
        ingest->n_moved++;
    lane->moved = true;
}

/* ---- discovery ---- */

static void add_lane(struct fr_ingest *ingest, const struct fr_source_partition *at, bool added)
{
    if (ingest->n_lanes == ingest->capacity_lanes) {
        ingest->capacity_lanes = ingest->capacity_lanes ? 2 * ingest->capacity_lanes : 8;
        ingest->lanes = fr_realloc(ingest->lanes, ingest->capacity_lanes, sizeof(*ingest->lanes));
        ingest->touched = fr_realloc(ingest->touched, ingest->capacity_lanes, sizeof(*ingest->touched));
    }
    pthread_mutex_lock(&ingest->shared.mutex);
    uint32_t slot = fr_positions_slot(&ingest->shared.known, at->topic, at->partition);
    struct fr_partition_position p = ingest->shared.known.partitions[slot];
    pthread_mutex_unlock(&ingest->shared.mutex);
    ingest->lanes[ingest->n_lanes++] = (struct fr_lane){
        .slot = slot,
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
    ingest->n_stopped++;
}

/* Partitions that were read before must still be there: a topic never shrinks, it was made anew. */
static enum fr_status check_complete(const struct fr_ingest *ingest, const struct fr_source_layout *layout,
                                     struct fr_err *err)
{
    const struct fr_positions *known = &ingest->shared.known;
    for (uint32_t i = 0; i < known->count; i++) {
        const struct fr_partition_position *p = &known->partitions[i];
        bool topic_there = false, there = false;
        for (uint32_t k = 0; k < layout->n_partitions; k++) {
            bool same = strcmp(layout->partitions[k].topic, p->topic) == 0;
            topic_there |= same;
            there |= same && layout->partitions[k].partition == p->partition;
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

enum fr_status fr_lanes_discover(struct fr_ingest *ingest, struct fr_err *err)
{
    struct fr_source_layout layout = {0};
    enum fr_status status = ingest->source.discover(ingest->source.self, &layout, err);
    if (status == FR_OK && layout.n_partitions > FR_PARTITIONS_MAX)
        status = fr_err_set(err, FR_E_LIMIT, "%u partitions are more than the %d this service reads",
                            layout.n_partitions, FR_PARTITIONS_MAX);
    if (status == FR_OK)
        status = check_cluster(ingest, layout.cluster_id, err);
    if (status == FR_OK)
        status = check_complete(ingest, &layout, err);
    if (status != FR_OK)
        return status;
    uint32_t resumed = ingest->shared.n_resolved;
    for (uint32_t i = ingest->n_lanes; i < layout.n_partitions; i++) {
        if (ingest->shared.known.count == FR_PARTITIONS_MAX && !is_known(ingest, &layout.partitions[i]))
            return fr_err_set(err, FR_E_LIMIT,
                              "the state holds positions of %d partitions, of topics that were left too, and no more; "
                              "read further topics with another state_dir",
                              FR_PARTITIONS_MAX);
        add_lane(ingest, &layout.partitions[i], was_read(ingest, layout.partitions[i].topic, resumed));
    }
    return FR_OK;
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
    const struct fr_partition_position *p = position_of(ingest, lane);
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
    const struct fr_partition_position *p = position_of(ingest, lane);
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

static enum fr_status verify(struct fr_ingest *ingest, uint32_t index, int64_t low, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[index];
    const struct fr_partition_position *p = position_of(ingest, lane);
    if (lane->mark.offset < 0)
        return FR_OK;
    enum fr_status status = FR_EOF;
    struct fr_source_event event;
    if (lane->mark.offset >= low && lane->mark.offset < lane->high)
        status = ingest->source.fetch(ingest->source.self, index, lane->mark.offset, &event, err);
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
    ingest->source.release(ingest->source.self, &event);
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

/* The lane's first offset is known: the owner may hear of it. Slots are told without gaps. */
static void resolve(struct fr_ingest *ingest, const struct fr_lane *lane)
{
    struct fr_ingest_shared *shared = &ingest->shared;
    pthread_mutex_lock(&shared->mutex);
    if (shared->known.partitions[lane->slot].offset < 0)
        shared->known.partitions[lane->slot].offset = lane->next;
    while (shared->n_resolved < shared->known.count && shared->known.partitions[shared->n_resolved].offset >= 0)
        shared->n_resolved++;
    pthread_mutex_unlock(&shared->mutex);
}

static enum fr_status check_file(struct fr_ingest *ingest, uint32_t index, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[index];
    const char *path = fr_file_path(position_of(ingest, lane)->topic);
    if (ingest->past_files && lane->next < 0)
        return fr_err_set(err, FR_E_MISMATCH,
                          "ingest.files: %s was not read before the topics were, and files come first; take it out of "
                          "ingest.files, or begin with another state_dir",
                          path);
    if (ingest->past_files) { /* need not even be there any more */
        fr_lane_finish(ingest, index);
        return FR_OK;
    }
    enum fr_status status = fr_file_size(path, &lane->bytes, err);
    if (status != FR_OK)
        return status;
    if (lane->next < 0)
        lane->next = 0;
    resolve(ingest, lane);
    return FR_OK;
}

static enum fr_status first_offset(struct fr_ingest *ingest, uint32_t index, int64_t low, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[index];
    int64_t at = low;
    enum fr_status status = FR_OK;
    if (!lane->added && ingest->conf->ingest.start == FR_START_LATEST)
        at = lane->high;
    else if (!lane->added && ingest->conf->ingest.start == FR_START_TIME)
        status = ingest->source.offset_at(ingest->source.self, index, ingest->conf->ingest.start_ms, &at, err);
    if (status < 0)
        return status;
    /* None so late: what is written from now on is. */
    lane->next = status == FR_EOF || at > lane->high ? lane->high : at < low ? low : at;
    return FR_OK;
}

enum fr_status fr_lane_check(struct fr_ingest *ingest, uint32_t index, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[index];
    int64_t low, high;
    if (index < ingest->n_files)
        return check_file(ingest, index, err);
    enum fr_status status = ingest->source.watermarks(ingest->source.self, index, &low, &high, err);
    if (status != FR_OK)
        return status;
    lane->high = high;
    if (lane->next < 0)
        status = first_offset(ingest, index, low, err);
    else if (lane->next < low || lane->next > high)
        status = check_range(ingest, lane, low, err);
    else
        status = verify(ingest, index, low, err);
    if (status == FR_OK)
        resolve(ingest, lane);
    return status;
}

/* ---- reading ---- */

enum fr_status fr_lane_begin(struct fr_ingest *ingest, uint32_t index, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[index];
    const struct fr_partition_position *p = position_of(ingest, lane);
    FR_CHECK(!lane->reading && !lane->done);
    if (lane->end >= 0 && lane->next >= lane->end) {
        fr_lane_finish(ingest, index);
        return FR_OK;
    }
    bool file = index < ingest->n_files;
    lane->unverified = file && lane->mark.offset >= 0;
    enum fr_status status =
        ingest->source.begin(ingest->source.self, index, lane->unverified ? lane->mark.offset : lane->next, err);
    if (status != FR_OK)
        return status;
    lane->reading = true;
    /* Nothing to wait for as far as we know; the source says so again. */
    lane->at_end = !file && lane->next >= lane->high;
    lane->seen = lane->next;
    ingest->n_stopped--;
    fr_log(lane->troubled ? FR_LOG_DEBUG : FR_LOG_INFO, "ingest", "reading",
           "topic=%s partition=%" PRId32 " offset=%" PRId64 " item=%" PRIu32 " high=%" PRId64, p->topic, p->partition,
           lane->next, lane->item, lane->high);
    return FR_OK;
}

void fr_lane_stop(struct fr_ingest *ingest, uint32_t index, const char *why)
{
    struct fr_lane *lane = &ingest->lanes[index];
    const struct fr_partition_position *p = position_of(ingest, lane);
    FR_CHECK(lane->reading);
    ingest->source.halt(ingest->source.self, index);
    lane->reading = false;
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
        if (lane->troubled || (!lane->reading && !lane->done && fr_lane_its_turn(ingest, i)))
            return;
    }
    ingest->problem[0] = 0;
}

void fr_lane_recovered(struct fr_ingest *ingest, struct fr_lane *lane)
{
    lane->troubled = false;
    settle(ingest);
}

bool fr_lane_its_turn(const struct fr_ingest *ingest, uint32_t index)
{
    if (index >= ingest->n_files)
        return ingest->files_left == 0;
    for (uint32_t i = 0; i < index; i++)
        if (!ingest->lanes[i].done)
            return false;
    return true;
}

enum fr_status fr_lane_verify_file(struct fr_ingest *ingest, struct fr_source_event *event, struct fr_err *err)
{
    struct fr_lane *lane = &ingest->lanes[event->partition];
    const char *path = fr_file_path(position_of(ingest, lane)->topic);
    const char *remedy =
        "put the file that was read there, or begin with another state_dir; taken out of ingest.files, "
        "what is left of it is not read";
    enum fr_status status = FR_OK;
    lane->unverified = false;
    if (event->kind == FR_SOURCE_END)
        status =
            fr_err_set(err, FR_E_MISMATCH,
                       "ingest.files: %s ends after %" PRId64 " lines, %" PRId64 " of it were read: it was cut; %s",
                       path, event->offset, lane->item ? lane->next + 1 : lane->next, remedy);
    else if (event->offset != lane->mark.offset ||
             (event->withheld ? event->crc32c : fr_crc32c(0, event->value, event->size)) != lane->mark.crc32c)
        status =
            fr_err_set(err, FR_E_MISMATCH,
                       "ingest.files: line %" PRId64 " of %s (counted from 0) is not the one that was read: it was "
                       "changed; %s",
                       lane->mark.offset, path, remedy);
    ingest->source.release(ingest->source.self, event);
    return status;
}

void fr_lane_finish(struct fr_ingest *ingest, uint32_t index)
{
    struct fr_lane *lane = &ingest->lanes[index];
    FR_CHECK(!lane->done);
    if (lane->reading)
        ingest->source.halt(ingest->source.self, index);
    else
        ingest->n_stopped--;
    lane->reading = lane->troubled = false;
    lane->done = lane->at_end = true;
    ingest->n_done++;
    ingest->files_left -= index < ingest->n_files;
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
        if (lane->reading || lane->done || now < lane->retry_ns || !fr_lane_its_turn(ingest, i))
            continue;
        looked = true;
        lane->retry_ns = now + (uint64_t)FR_RECHECK_MS * 1000000u;
        status = fr_lane_check(ingest, i, err);
        /* The owner learns slots without gaps: behind one whose first offset is not known this one
         * waits. */
        if (status == FR_OK && lane->slot < ingest->shared.n_resolved)
            status = fr_lane_begin(ingest, i, err);
    }
    if (looked)
        ingest->source.checked(ingest->source.self);
    if (status == FR_E_UNAVAILABLE || status == FR_E_DENIED) {
        snprintf(ingest->problem, sizeof(ingest->problem), "%.255s", err->text);
        status = FR_OK;
    }
    settle(ingest);
    return status;
}
