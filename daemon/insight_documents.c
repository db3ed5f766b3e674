/* See insight_documents.h. Both documents are made on the HTTP thread when they are requested:
 * /insight is a copy of what the trainer published, /feature a question that the trainer answers
 * between two batches. Only one request at a time waits for the trainer, and for FEATURE_WAIT_MS at
 * most (trainer/feature.h), so a busy trainer cannot keep the HTTP thread from other requests. */
#include "insight_documents.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/json.h"
#include "decode/decoder.h"
#include "insight/insight.h"
#include "service.h"
#include "trainer/feature.h"

enum {
    TEXT_MAX = 1024,       /* at least a whole query */
    FEATURE_WAIT_MS = 100, /* the longest that a request waits for the trainer */
};

static int refuse(struct fr_buffer *out, int status, const char *why)
{
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "error", why);
    fr_json_end(&json);
    fr_buffer_printf(out, "\n");
    return status;
}

/* ---- /insight ---- */

static int answer_insight(void *self, const char *query, struct fr_buffer *out)
{
    const struct fr_service *service = self;
    struct fr_insight *insight = fr_trainer_insight(service->trainer);
    if (query[0])
        return refuse(out, 400, "/insight takes no query");
    if (!insight)
        return refuse(out, 404, "insight is off: set insight.interval above 0");
    return fr_insight_read(insight, out)
               ? 200
               : refuse(out, 503,
                        "nothing was looked at yet: the first document comes a quarter of insight.interval after the "
                        "start, once a batch has trained");
}

/* ---- the query of /feature ---- */

struct value {
    bool given;
    size_t size;
    char text[TEXT_MAX];
};

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes a form's value up to the next '&'. false: it is not well formed. */
static bool decode(const char **query, struct value *value)
{
    const char *at = *query;
    value->given = true;
    value->size = 0;
    while (*at && *at != '&') {
        char c = *at++;
        if (c == '%') {
            int high = hex(at[0]), low = high < 0 ? -1 : hex(at[1]);
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            at += 2;
        } else if (c == '+') {
            c = ' ';
        }
        if (value->size == TEXT_MAX - 1)
            return false;
        value->text[value->size++] = c;
    }
    value->text[value->size] = '\0';
    *query = *at ? at + 1 : at;
    return fr_utf8_valid((const uint8_t *)value->text, value->size);
}

static bool parse(const char *query, struct value *slot, struct value *id, struct value *key)
{
    struct {
        const char *name;
        struct value *value;
    } known[] = {{"slot=", slot}, {"id=", id}, {"key=", key}};
    while (*query) {
        size_t k = 0;
        while (k < FR_ARRAY_LEN(known) && strncmp(query, known[k].name, strlen(known[k].name)) != 0)
            k++;
        if (k == FR_ARRAY_LEN(known) || known[k].value->given)
            return false;
        query += strlen(known[k].name);
        if (!decode(&query, known[k].value))
            return false;
    }
    return slot->given && id->given != key->given;
}

static bool parse_key(const char *text, uint64_t *key)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *key = value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static int32_t find_slot(const struct fr_conf *conf, const char *name)
{
    for (uint32_t s = 0; s < conf->n_slots; s++)
        if (strcmp(conf->slots[s].name, name) == 0)
            return (int32_t)s;
    return FR_NO_INDEX;
}

/* Returns 200; otherwise the status that refuses the query, and `out` has the reason. */
static int read_question(const struct fr_conf *conf, const char *query, struct fr_feature_question *question,
                         struct fr_buffer *out)
{
    struct value slot = {0}, id = {0}, key = {0};
    if (!parse(query, &slot, &id, &key))
        return refuse(out, 400, "the query must have slot=SLOT and either id=ID or key=KEY, percent-encoded UTF-8");
    int32_t s = find_slot(conf, slot.text);
    if (s == FR_NO_INDEX)
        return refuse(out, 404, "the model has no such slot: /insight lists the slots");
    const struct fr_conf_slot *found = &conf->slots[s];
    if (found->table == FR_NO_INDEX)
        return refuse(out, 404, "the slot has numbers and no ids: name a slot with a table");
    if (id.given && found->source != FR_SOURCE_SAMPLE)
        return refuse(out, 404, "the slot is computed from others and has no ids of its own: give key=KEY");
    question->slot = (uint32_t)s;
    if (id.given)
        question->key = fr_key_string(id.text, id.size, found->seed, found->id_raw);
    else if (!parse_key(key.text, &question->key))
        return refuse(out, 400, "key must be a decimal number below 2^64");
    return 200;
}

/* ---- the answer of /feature ---- */

static double norm_of(const float *x, uint32_t n)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void put_row(const struct fr_conf *conf, const struct fr_conf_table *table, const struct fr_feature *feature,
                    struct fr_json *json)
{
    const float *at = feature->values;
    fr_json_u64(json, "show", feature->key.head.show);
    fr_json_number(json, "click", feature->key.head.click);
    fr_json_number(json, "norm", norm_of(feature->values, feature->n_values));
    fr_json_object(json, "parts");
    for (uint32_t p = 0; p < table->n_parts; at += table->parts[p++].dim)
        fr_json_floats(json, table->parts[p].name, at, table->parts[p].dim);
    fr_json_end(json);
    if (!feature->contributes) {
        fr_json_null(json, "contribution");
        return;
    }
    fr_json_object(json, "contribution");
    for (uint32_t t = 0; t < conf->n_tasks; t++)
        fr_json_number(json, conf->tasks[t].name, (double)feature->contribution[t]);
    fr_json_end(json);
}

static void put_feature(const struct fr_conf *conf, const struct fr_feature_question *question,
                        const struct fr_feature *feature, struct fr_buffer *out)
{
    static const char *const states[] = {
        [FR_KEY_UNKNOWN] = "unknown", [FR_KEY_PENDING] = "waiting", [FR_KEY_ROW] = "row", [FR_KEY_REMOVED] = "removed"};
    const struct fr_conf_slot *slot = &conf->slots[question->slot];
    const struct fr_store_key *key = &feature->key;
    struct fr_json json = {.out = out};
    fr_json_object(&json, NULL);
    fr_json_text(&json, "model", conf->model);
    fr_json_text(&json, "slot", slot->name);
    fr_json_id(&json, "key", question->key);
    fr_json_text(&json, "table", conf->tables[slot->table].name);
    fr_json_i64(&json, "as_of_ms", feature->watermark_ms);
    fr_json_text(&json, "state", states[key->state]);
    fr_json_bool(&json, "resident", key->resident);
    if (key->state == FR_KEY_ROW || key->state == FR_KEY_PENDING)
        fr_json_i64(&json, "seen_ms", key->head.seen_ms);
    if (key->state == FR_KEY_PENDING)
        fr_json_u64(&json, "count", key->count);
    if (key->state == FR_KEY_ROW)
        put_row(conf, &conf->tables[slot->table], feature, &json);
    fr_json_end(&json);
    fr_buffer_printf(out, "\n");
}

static int answer_feature(void *self, const char *query, struct fr_buffer *out)
{
    struct fr_service *service = self;
    struct fr_feature_question question;
    int status = read_question(service->conf, query, &question, out);
    if (status != 200)
        return status;
    if (atomic_load(&service->life.phase) != FR_PHASE_RUNNING)
        return refuse(out, 503, "the daemon is recovering or draining, so the trainer does not answer: see /readyz");
    struct fr_feature *feature = fr_alloc(1, sizeof(*feature));
    struct fr_err err = {0};
    enum fr_status asked = fr_trainer_feature(service->trainer, &question, FEATURE_WAIT_MS * 1000000ull, feature, &err);
    if (asked == FR_AGAIN)
        status = refuse(out, 503, "the trainer is busy with a batch: ask again");
    else if (asked != FR_OK)
        status = refuse(out, 503, err.text);
    else if (feature->watermark_ms == INT64_MIN)
        status = refuse(out, 503, "nothing is trained yet: ask again after the first batch");
    else
        put_feature(service->conf, &question, feature, out);
    free(feature);
    return status;
}

void fr_documents_insight_open(struct fr_service *service)
{
    fr_http_serve(service->http, "/insight", answer_insight, service);
    fr_http_serve(service->http, "/feature", answer_feature, service);
}
