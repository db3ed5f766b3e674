/* See replica_documents.h. The reader of acknowledgements keeps times; ages are computed here, by
 * this host's clock, when the document is made. */
#include "replica_documents.h"

#include <math.h>

#include "exporter/replicas.h"
#include "service.h"

/* Seconds since a Unix time, at least 0; NAN: the time is unknown. */
static double age(int64_t now_ms, int64_t since_ms)
{
    if (since_ms == 0)
        return (double)NAN;
    return since_ms < now_ms ? (double)(now_ms - since_ms) / 1e3 : 0;
}

/* How many published epochs a replica lacks; NAN: the replica serves nothing, or serves another
 * timeline, whose epoch numbers cannot be compared. */
static double epochs_behind(const struct fr_service_status *s, const struct fr_acknowledgement *said)
{
    if (said->epoch == 0 || said->timeline != s->durable.timeline)
        return (double)NAN;
    return s->publisher.acked > said->epoch ? (double)(s->publisher.acked - said->epoch) : 0;
}

/* The slowest replica of those that serve an epoch; NULL: there is none. */
static const struct fr_replica_standing *slowest_of(const struct fr_replicas_status *replicas)
{
    return replicas->n_listed > 0 && replicas->listed[0].said.epoch > 0 ? &replicas->listed[0] : NULL;
}

static void put_replica(struct fr_json *json, const char *name, const struct fr_service_status *s,
                        const struct fr_replica_standing *replica, int64_t now_ms)
{
    const struct fr_acknowledgement *said = &replica->said;
    fr_json_object(json, name);
    fr_json_text(json, "name", said->name);
    fr_json_u64(json, "timeline", said->timeline);
    fr_json_u64(json, "epoch", said->epoch);
    fr_json_number(json, "epochs_behind", epochs_behind(s, said));
    fr_json_number(json, "freshness", age(now_ms, said->watermark_ms));
    fr_json_number(json, "cut_age", age(now_ms, said->cut_ms));
    fr_json_number(json, "silence", (double)replica->silence_ms / 1e3);
    fr_json_bool(json, "silent", replica->silent);
    if (said->has_rows)
        fr_json_u64(json, "rows", said->rows);
    else
        fr_json_null(json, "rows");
    fr_json_number(json, "scores_per_second", said->has_scores ? said->scores_per_second : (double)NAN);
    fr_json_text(json, "problem", said->problem);
    fr_json_end(json);
}

void fr_documents_replicas(const struct fr_service *service, const struct fr_service_status *s, struct fr_json *json)
{
    const struct fr_replicas_status *replicas = s->replicas;
    if (!replicas) {
        fr_json_null(json, "replicas");
        return;
    }
    int64_t now_ms = fr_wall_ms(service->clock);
    fr_json_object(json, "replicas");
    fr_json_text(json, "topic", service->conf->export_.acknowledgement_topic);
    fr_json_text(json, "problem", replicas->problem);
    fr_json_u64(json, "count", replicas->count);
    fr_json_u64(json, "silent", replicas->silent);
    fr_json_u64(json, "starting", replicas->starting);
    fr_json_u64(json, "left", replicas->left);
    fr_json_u64(json, "forgotten", replicas->forgotten);
    fr_json_u64(json, "dropped", replicas->dropped);
    fr_json_u64(json, "records", replicas->records);
    fr_json_object(json, "ignored");
    for (size_t i = 0; i < FR_REPLICA_REFUSED_KINDS; i++)
        fr_json_u64(json, fr_replicas_refusal_names[i], replicas->refused[i]);
    fr_json_end(json);
    if (slowest_of(replicas))
        put_replica(json, "slowest", s, slowest_of(replicas), now_ms);
    else
        fr_json_null(json, "slowest");
    fr_json_array(json, "list");
    for (uint32_t i = 0; i < replicas->n_listed; i++)
        put_replica(json, NULL, s, &replicas->listed[i], now_ms);
    fr_json_end(json);
    fr_json_u64(json, "unlisted", replicas->count - replicas->n_listed);
    fr_json_end(json);
}

void fr_documents_replica_series(const struct fr_service *service, const struct fr_service_status *s)
{
    const struct fr_replicas_status *replicas = s->replicas;
    struct fr_registry *registry = service->registry;
    if (!replicas)
        return;
    int64_t now_ms = fr_wall_ms(service->clock);
    const struct fr_replica_standing *slowest = slowest_of(replicas);
    double freshness = slowest ? age(now_ms, slowest->said.watermark_ms) : (double)NAN;
    double cut_age = slowest ? age(now_ms, slowest->said.cut_ms) : (double)NAN;
    double behind = slowest ? epochs_behind(s, &slowest->said) : (double)NAN;
    fr_series_set(registry, FR_SERIES_REPLICAS, NULL, (double)replicas->count);
    fr_series_set(registry, FR_SERIES_REPLICAS_SILENT, NULL, (double)replicas->silent);
    fr_series_set(registry, FR_SERIES_REPLICAS_STARTING, NULL, (double)replicas->starting);
    fr_series_set(registry, FR_SERIES_REPLICA_SLOWEST_EPOCHS_BEHIND, NULL, behind);
    fr_series_set(registry, FR_SERIES_REPLICA_SLOWEST_FRESHNESS_SECONDS, NULL, freshness);
    fr_series_set(registry, FR_SERIES_REPLICA_SLOWEST_CUT_AGE_SECONDS, NULL, cut_age);
    fr_series_count(registry, FR_SERIES_REPLICA_ACKNOWLEDGEMENTS_TOTAL, NULL, replicas->records);
    fr_series_count(registry, FR_SERIES_REPLICA_ACKNOWLEDGEMENTS_DROPPED_TOTAL, NULL, replicas->dropped);
    for (size_t i = 0; i < FR_REPLICA_REFUSED_KINDS; i++) {
        char labels[64] = "";
        fr_metric_label(labels, sizeof(labels), "reason", fr_replicas_refusal_names[i]);
        fr_series_count(registry, FR_SERIES_REPLICA_ACKNOWLEDGEMENTS_IGNORED_TOTAL, labels, replicas->refused[i]);
    }
}
