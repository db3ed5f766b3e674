/* The fields of a sample other than `f`: labels y, weights w, use u, event time t, keep rate s,
 * served scores p.
 *
 * Labels that feed a log loss lie in [0,1] (labels.c says which); other labels may be any finite
 * number. NaN in the staging marks a masked label, so NaN in a record is refused. */
#include "parse.h"

#include <math.h>

enum { LABELS_ALL = -1 };

/* 10^14 is a time in the year 5138 if read as ms, and in March 1973 if read as microseconds. */
static const int64_t MICROSECONDS_MIN = 100000000000000;

/* Limit of a served prediction: the square of a larger one would hide all others in a sum of
 * doubles. */
static const float PREDICTION_MAX = 1e15f;

/* Returns the number of the label or task, or the number of labels or tasks if there is none of
 * that name. */
static uint32_t find_member(const struct fr_decoder *d, bool tasks, const struct fr_token *key)
{
    uint32_t i = 0;
    if (tasks) {
        while (i < d->conf->n_tasks && !fr_decode_is_key(key, d->conf->tasks[i].name))
            i++;
        return i;
    }
    for (; i < d->n_carried; i++)
        if (d->label_keys[i].size == key->size && memcmp(d->label_keys[i].text, key->bytes, key->size) == 0)
            break;
    return i;
}

/* Handles a key that names no label or task: passes over it, or reports a fault. */
static enum fr_status unknown_member(struct fr_decoder *d, struct fr_members *members, const struct fr_token *key)
{
    for (uint32_t l = d->n_carried; !members->tasks && l < d->conf->n_labels; l++)
        if (fr_decode_is_key(key, d->conf->labels[l].name))
            return fr_decode_fail(d, FR_E_INVALID, "%s is derived, not given", fr_decode_shown(d, key));
    if (d->conf->ingest.strict)
        return fr_decode_fail(d, FR_E_INVALID, "%s is no %s of the config (ingest.strict)", fr_decode_shown(d, key),
                              members->tasks ? "task" : "label");
    return fr_decode_unknown_member(d, members, key);
}

enum fr_status fr_decode_member(struct fr_decoder *d, struct fr_members *members, uint32_t *found)
{
    uint32_t count = members->tasks ? d->conf->n_tasks : d->n_carried;
    d->path.name = NULL;
    for (;;) {
        struct fr_token key;
        enum fr_status status = fr_decode_next(d, &key);
        if (status != FR_OK)
            return status;
        *found = count;
        if (key.kind == FR_TOKEN_END)
            return FR_OK;
        if (key.kind != FR_TOKEN_STRING)
            return fr_decode_fail(d, FR_E_INVALID, "%s as a key", fr_decode_kind(&key));
        uint32_t i = find_member(d, members->tasks, &key);
        if (i == count) {
            if ((status = unknown_member(d, members, &key)) != FR_OK)
                return status;
            continue;
        }
        d->path.name = members->tasks ? d->conf->tasks[i].name : d->conf->labels[i].name;
        if (members->seen & 1u << i)
            return fr_decode_fail(d, FR_E_INVALID, "duplicate key");
        members->seen |= 1u << i;
        *found = i;
        return FR_OK;
    }
}

__attribute__((cold)) static enum fr_status not_in_unit(struct fr_decoder *d, uint32_t label, double value)
{
    if (value != -1.0 || d->conf->labels[label].has_negative)
        return fr_decode_fail(d, FR_E_INVALID, "label %.9g is not in [0,1]", value);
    const char *name = d->conf->labels[label].name;
    (void)fr_decode_fail(d, FR_E_INVALID,
                         "label -1 is not in [0,1]: where labels are -1 and 1, map them to 0 and 1 with "
                         "labels.%s.negative: -1",
                         name);
    d->malformed = FR_MALFORMED_SIGNED;
    return FR_E_INVALID;
}

enum fr_status fr_decode_label(struct fr_decoder *d, uint32_t label, const struct fr_token *token)
{
    float v;
    if (token->kind == FR_TOKEN_NIL)
        return FR_OK; /* the label is masked */
    if (token->kind == FR_TOKEN_BOOL) {
        v = token->i ? 1.0f : 0.0f;
    } else {
        enum fr_status status = fr_decode_f32(token, &v);
        if (status == FR_E_NONFINITE)
            return fr_decode_fail(d, FR_E_INVALID, "label is not finite");
        if (status != FR_OK)
            return fr_decode_fail(d, FR_E_INVALID, "%s where a label was expected", fr_decode_kind(token));
        /* The number is compared before it is rounded: 1.00000001, which rounds to 1, is an
         * error. */
        double exact = token->kind == FR_TOKEN_FLOAT ? token->f : (double)v;
        const struct fr_conf_label *conf = &d->conf->labels[label];
        if (conf->has_negative && exact == (double)conf->negative)
            exact = v = 0.0f;
        if ((d->unit_labels & 1u << label) && !(exact >= 0.0 && exact <= 1.0))
            return not_in_unit(d, label, exact);
    }
    d->staging.labels[(size_t)d->at * d->staging.n_labels + label] = v;
    return FR_OK;
}

enum fr_status fr_decode_y(struct fr_decoder *d, const struct fr_token *first)
{
    struct fr_token token;
    enum fr_status status;
    uint32_t n_labels = d->n_carried;
    if (first->kind == FR_TOKEN_NIL)
        return FR_OK;
    if (first->kind == FR_TOKEN_MAP) {
        struct fr_members members = {.times = 1};
        uint32_t label;
        for (;;) {
            if ((status = fr_decode_member(d, &members, &label)) != FR_OK || label == n_labels)
                return status;
            if ((status = fr_decode_next(d, &token)) != FR_OK)
                return status;
            if ((status = fr_decode_label(d, label, &token)) != FR_OK)
                return status;
        }
    }
    if (first->kind == FR_TOKEN_ARRAY) {
        for (uint32_t n = 0;; n++) {
            if ((status = fr_decode_next(d, &token)) != FR_OK || token.kind == FR_TOKEN_END)
                return status;
            if (n == n_labels)
                return fr_decode_fail(d, FR_E_INVALID, "more than the %u labels of the config", n_labels);
            d->path.index = n;
            if ((status = fr_decode_label(d, n, &token)) != FR_OK)
                return status;
            d->path.index = -1;
        }
    }
    if (first->kind == FR_TOKEN_STRING || first->kind == FR_TOKEN_BIN || first->kind == FR_TOKEN_EXT)
        return fr_decode_fail(d, FR_E_INVALID, "%s where labels were expected", fr_decode_kind(first));
    if (n_labels != 1)
        return fr_decode_fail(d, FR_E_INVALID, "a bare number needs exactly one label, the config has %u", n_labels);
    return fr_decode_label(d, 0, first);
}

static enum fr_status set_weight(struct fr_decoder *d, int64_t label, const struct fr_token *token)
{
    float v;
    enum fr_status status = fr_decode_f32(token, &v);
    if (status == FR_E_NONFINITE)
        return fr_decode_fail(d, FR_E_INVALID, "weight is not finite");
    if (status != FR_OK)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a weight was expected", fr_decode_kind(token));
    if (v < 0.0f || (token->kind == FR_TOKEN_FLOAT && token->f < 0.0))
        return fr_decode_fail(d, FR_E_INVALID, "weight %.9g is below 0", (double)v);
    v += 0.0f; /* turns -0 into 0 */
    float *weights = d->staging.weights + (size_t)d->at * d->staging.n_labels;
    for (uint32_t l = 0; l < d->n_carried; l++)
        if (label == LABELS_ALL || label == l)
            weights[l] = v;
    return FR_OK;
}

enum fr_status fr_decode_w(struct fr_decoder *d, const struct fr_token *first)
{
    if (first->kind != FR_TOKEN_MAP)
        return set_weight(d, LABELS_ALL, first);
    struct fr_members members = {.times = 1};
    uint32_t label;
    for (;;) {
        struct fr_token token;
        enum fr_status status = fr_decode_member(d, &members, &label);
        if (status != FR_OK || label == d->n_carried)
            return status;
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if ((status = set_weight(d, label, &token)) != FR_OK)
            return status;
    }
}

enum fr_status fr_decode_u(struct fr_decoder *d, const struct fr_token *first)
{
    if (first->kind != FR_TOKEN_UINT || first->u < 1 || first->u > 3)
        return fr_decode_fail(d, FR_E_INVALID, "use is 1 (train), 2 (metrics) or 3 (both)");
    d->staging.use[d->at] = (uint8_t)first->u;
    return FR_OK;
}

/* Refuses a time that is ahead of `than_ms` by more than future_max. Both times are above 0, so
 * the difference does not overflow. */
static enum fr_status refuse_future(struct fr_decoder *d, enum fr_future future, int64_t t_ms, int64_t than_ms)
{
    int64_t ahead = t_ms - than_ms;
    if (ahead <= d->conf->ingest.future_max_ms)
        return FR_OK;
    d->future = future;
    d->future_t_ms = t_ms;
    return fr_decode_fail(d, FR_E_INVALID, "event time is %lld ms after the %s, more than ingest.future_max (%lld ms)",
                          (long long)ahead,
                          future == FR_FUTURE_CLOCK ? "clock of the host that read it" : "Kafka timestamp",
                          (long long)d->conf->ingest.future_max_ms);
}

static bool is_ms(int64_t t_ms)
{
    return t_ms >= FR_SECONDS_MAX && t_ms < MICROSECONDS_MIN;
}

static const char *unit_of(int64_t t_ms)
{
    return t_ms < FR_SECONDS_MAX ? "seconds" : "micro- or nanoseconds";
}

int64_t fr_decode_timestamp(int64_t timestamp_ms)
{
    return is_ms(timestamp_ms) ? timestamp_ms : 0;
}

enum fr_status fr_decode_no_time(struct fr_decoder *d)
{
    if (d->kafka_ms <= 0)
        return fr_decode_fail(d, FR_E_INVALID, "t is missing and the record has no Kafka timestamp");
    d->path.field = "t";
    return fr_decode_fail(d, FR_E_INVALID,
                          "t is missing and the record's Kafka timestamp, %lld, is %s, not ms: correct the unit of the "
                          "producer's timestamps, send t, or set message.timestamp.type=LogAppendTime of the topic",
                          (long long)d->kafka_ms, unit_of(d->kafka_ms));
}

enum fr_status fr_decode_check_clock(struct fr_decoder *d, int64_t t_ms)
{
    if (d->scoring || d->received_ms <= 0 || t_ms <= d->received_ms)
        return FR_OK;
    return refuse_future(d, FR_FUTURE_CLOCK, t_ms, d->received_ms);
}

enum fr_status fr_decode_event_time(struct fr_decoder *d, int64_t t_ms)
{
    if (t_ms <= 0)
        return fr_decode_fail(d, FR_E_INVALID, "event time is not above 0");
    if (!is_ms(t_ms))
        return fr_decode_fail(d, FR_E_INVALID, "%lld is %s, not ms", (long long)t_ms, unit_of(t_ms));
    if (!d->scoring && d->timestamp_ms > 0 && t_ms > d->timestamp_ms) {
        enum fr_status status = refuse_future(d, FR_FUTURE_TIMESTAMP, t_ms, d->timestamp_ms);
        if (status != FR_OK)
            return status;
    }
    return fr_decode_check_clock(d, t_ms);
}

enum fr_status fr_decode_t(struct fr_decoder *d, const struct fr_token *first, int64_t *t_ms)
{
    if (first->kind != FR_TOKEN_UINT && first->kind != FR_TOKEN_INT)
        return fr_decode_fail(d, FR_E_INVALID, "%s where an integer (Unix ms) was expected", fr_decode_kind(first));
    if (first->kind == FR_TOKEN_UINT && first->u > INT64_MAX)
        return fr_decode_fail(d, FR_E_INVALID, "event time is beyond 64 bits");
    *t_ms = first->i; /* the two types have the same bits */
    return fr_decode_event_time(d, *t_ms);
}

enum fr_status fr_decode_s(struct fr_decoder *d, const struct fr_token *first)
{
    double rate = first->kind == FR_TOKEN_FLOAT ? first->f : first->kind == FR_TOKEN_UINT ? (double)first->u : 0.0;
    float rounded = rate > 0.0 && rate <= 1.0 ? (float)rate : 0.0f;
    if (!(rounded > 0.0f)) /* also refuses a number too small for f32 */
        return fr_decode_fail(d, FR_E_INVALID, "keep rate is not a number in (0,1]");
    d->staging.keep[d->at] = rounded;
    return FR_OK;
}

/* Whether metrics can use the score. A score that they cannot use does not make the sample
 * malformed, because scores are not trained on. */
static bool is_score(const struct fr_conf_task *task, float score)
{
    switch (fr_loss_prediction(task->loss)) {
    case FR_PREDICTS_VALUE:
        return __builtin_fabsf(score) <= PREDICTION_MAX;
    case FR_PREDICTS_PROBABILITY:
        break;
    }
    return score >= 0.0f && score <= 1.0f;
}

enum fr_status fr_decode_p(struct fr_decoder *d, const struct fr_token *first)
{
    if (first->kind != FR_TOKEN_MAP)
        return fr_decode_fail(d, FR_E_INVALID, "%s where a map task -> score was expected", fr_decode_kind(first));
    struct fr_members members = {.tasks = true, .times = 1};
    uint32_t task;
    for (;;) {
        struct fr_token token;
        float score;
        enum fr_status status = fr_decode_member(d, &members, &task);
        if (status != FR_OK || task == d->conf->n_tasks)
            return status;
        if ((status = fr_decode_next(d, &token)) != FR_OK)
            return status;
        if ((status = fr_decode_f32(&token, &score)) != FR_OK)
            return fr_decode_fail(d, FR_E_INVALID,
                                  status == FR_E_NONFINITE ? "score is not finite" : "score is not a number");
        if (!is_score(&d->conf->tasks[task], score)) {
            fr_decode_unused_score(d, d->conf->tasks[task].name);
            continue;
        }
        fr_staging_serve(&d->staging);
        d->staging.served[(size_t)d->at * d->staging.n_tasks + task] = score;
    }
}
