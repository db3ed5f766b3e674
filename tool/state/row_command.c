/* `freshet row`: what is stored for one id: its key, its table, and either the row, the gate's
 * count or nothing, from a state directory or as a topic serves it. Read-only.
 *
 * For a state, every image is read and one is kept, so memory does not depend on their number.
 * Thread: one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec/codec.h"
#include "conf/conf.h"
#include "decode/decoder.h"
#include "durable/durable.h"
#include "score/served.h"
#include "store/section.h"
#include "tool.h"

enum { SETS_MAX = 64 };

static const char usage[] =
    "freshet row --slot S --id ID --state-dir DIR\n"
    "freshet row --slot S --id ID --config FILE --brokers B --topic T [--kafka-file FILE] [--kafka NAME=VALUE]..\n\n"
    "One JSON object: the key that samples with this id in this slot look up, its table, and what is there.\n"
    "Of a state: \"row\" with exact values, optimizer state, seen_ms, show and click; \"pending\" with the count of its\n"
    "gate; \"absent\" while a removal is not folded; or \"none\": never seen, not remembered by its gate, or gone.\n"
    "Of a topic: the values a replica serves, or \"none\".\n"
    "  --table T --key K   instead of slot and id: a key, as `freshet dump` prints it\n"
    "Exit 0 also when there is none.\n";

struct question {
    const char *slot, *id, *table_name, *key_text;
    uint32_t table;
    uint64_t key;
};

/* ---- the key ---- */

static enum fr_status find_key(const struct fr_conf *conf, struct question *q, struct fr_err *err)
{
    for (uint32_t t = 0; t < conf->n_tables && q->table_name; t++)
        if (strcmp(conf->tables[t].name, q->table_name) == 0) {
            q->table = t;
            return FR_OK;
        }
    if (q->table_name)
        return fr_err_set(err, FR_E_INVALID, "the model has no table %s", q->table_name);
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        if (strcmp(slot->name, q->slot) != 0)
            continue;
        if (fr_slot_has_numbers(slot->kind) || slot->source != FR_SOURCE_SAMPLE)
            return fr_err_set(err, FR_E_INVALID, "slot %s has no ids of its own: it is %s", q->slot,
                              fr_slot_has_numbers(slot->kind) ? "dense" : "computed from others");
        q->table = (uint32_t)slot->table;
        q->key = fr_key_text(q->id, slot);
        return FR_OK;
    }
    return fr_err_set(err, FR_E_INVALID, "the model has no slot %s", q->slot);
}

static void put_question(const struct question *q, const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{");
    if (q->slot) {
        fr_buffer_printf(out, "\"slot\":\"%s\",\"id\":", q->slot);
        fr_buffer_json_text(out, q->id);
        fr_buffer_printf(out, ",");
    }
    fr_buffer_printf(out, "\"table\":\"%s\",\"key\":\"%" PRIu64 "\"", conf->tables[q->table].name, q->key);
}

static void put_floats(struct fr_buffer *out, const void *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fr_buffer_printf(out, i ? "," : "[");
        fr_buffer_number(out, fr_load_f32((const uint8_t *)values + i * sizeof(float)));
    }
    fr_buffer_printf(out, count ? "]" : "[]");
}

/* ---- a state ---- */

struct looking {
    const struct question *q;
    int kind; /* kind of the newest image; -1: none */
    uint8_t reason;
    struct fr_buffer image, store;
};

static enum fr_status see_image(void *self, size_t thread, const struct fr_image *image)
{
    struct looking *looking = self;
    (void)thread;
    if (image->key != looking->q->key || image->table != looking->q->table)
        return FR_OK;
    looking->kind = image->kind;
    looking->reason = image->reason;
    fr_buffer_clear(&looking->image);
    if (image->size > 0)
        fr_buffer_append(&looking->image, image->bytes, image->size);
    return FR_OK;
}

static enum fr_status see_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct looking *looking = self;
    if (strcmp(name, FR_SECTION_STORE) != 0)
        return FR_OK;
    fr_buffer_clear(&looking->store);
    fr_buffer_append(&looking->store, bytes, size);
    return FR_OK;
}

/* A key whose image says absent may be counted again already; the section "store" then contains
 * it. */
static enum fr_status see_carried(struct looking *looking, struct fr_err *err)
{
    struct fr_store_section section;
    enum fr_status status = fr_store_section_parse(looking->store.data, looking->store.size, &section);
    if (status != FR_OK)
        return fr_err_set(err, status, "the section \"" FR_SECTION_STORE "\" does not parse");
    for (size_t i = 0; i < section.n_carried; i++)
        if (section.carried[i].key == looking->q->key && section.carried[i].table == looking->q->table) {
            looking->kind = FR_IMAGE_PENDING;
            fr_buffer_clear(&looking->image);
            fr_pending_store(fr_buffer_reserve(&looking->image, FR_PENDING_IMAGE_SIZE), section.carried[i].seen_ms,
                             section.carried[i].count);
            looking->image.size = FR_PENDING_IMAGE_SIZE;
        }
    free(section.carried);
    return FR_OK;
}

static enum fr_status put_row(const struct looking *looking, const struct fr_conf_table *table, struct fr_buffer *out,
                              struct fr_err *err)
{
    const uint8_t *at = looking->image.data + FR_ROW_IMAGE_HEAD, *end = looking->image.data + looking->image.size;
    struct fr_row_head head;
    size_t values = 0;
    for (uint32_t p = 0; p < table->n_parts; p++)
        values += table->parts[p].dim;
    if (looking->image.size < FR_ROW_IMAGE_HEAD + values * sizeof(float))
        return fr_err_set(err, FR_E_CORRUPT, "the row is shorter than its table's parts");
    memcpy(&head, looking->image.data, sizeof(head));
    fr_buffer_printf(out, ",\"state\":\"row\",\"seen_ms\":%" PRId64 ",\"show\":%" PRIu64 ",\"click\":%.17g,\"parts\":",
                     head.seen_ms, head.show, head.click);
    for (uint32_t p = 0; p < table->n_parts; at += table->parts[p++].dim * sizeof(float)) {
        fr_buffer_printf(out, "%s\"%s\":", p ? "," : "{", table->parts[p].name);
        put_floats(out, at, table->parts[p].dim);
    }
    fr_buffer_printf(out, "},\"optimizer\":");
    put_floats(out, at, (size_t)(end - at) / sizeof(float));
    return FR_OK;
}

static enum fr_status put_found(const struct looking *looking, const struct fr_conf *conf, struct fr_buffer *out,
                                struct fr_err *err)
{
    enum fr_absent_reason why = (enum fr_absent_reason)(looking->reason % FR_ABSENT_REASONS);
    int64_t seen_ms;
    uint32_t count;
    switch (looking->kind) {
    case FR_IMAGE_ROW:
        return put_row(looking, &conf->tables[looking->q->table], out, err);
    case FR_IMAGE_PENDING:
        if (looking->image.size != FR_PENDING_IMAGE_SIZE)
            return fr_err_set(err, FR_E_CORRUPT, "the image of a pending key has another size");
        fr_pending_load(looking->image.data, &seen_ms, &count);
        fr_buffer_printf(out, ",\"state\":\"pending\",\"count\":%" PRIu32 ",\"seen_ms\":%" PRId64, count, seen_ms);
        return FR_OK;
    case FR_IMAGE_ABSENT:
        fr_buffer_printf(out, ",\"state\":\"absent\",\"why\":\"%s\"", fr_absent_reason_text(why));
        return FR_OK;
    default:
        fr_buffer_printf(out, ",\"state\":\"none\"");
        return FR_OK;
    }
}

/* Reads the model of the newest epoch. */
static enum fr_status read_model(struct fr_durable *durable, const char *dir, struct fr_conf **out, struct fr_err *err)
{
    struct fr_buffer head = {0};
    struct fr_codec_settings settings = {0};
    enum fr_status status = fr_durable_newest_head(durable, &head, err);
    if (status == FR_E_NOT_FOUND)
        status = fr_err_set(err, FR_E_NOT_FOUND, "%s holds no epoch yet", dir);
    if (status == FR_OK && fr_codec_settings_parse(head.data, head.size, &settings) != FR_OK)
        status = fr_err_set(err, FR_E_CORRUPT, "the head of the newest journal file in %s cannot be read", dir);
    if (status == FR_OK)
        status = fr_conf_model_parse(settings.cfg, settings.cfg_size, out, err);
    fr_codec_settings_release(&settings);
    fr_buffer_release(&head);
    return status;
}

static enum fr_status row_of_state(struct question *q, const char *dir, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_durable *durable = NULL;
    struct fr_conf *conf = NULL;
    struct looking looking = {.q = q, .kind = -1};
    struct fr_restore_visitor visitor = {.self = &looking, .image = see_image, .section = see_section};
    struct fr_durable_options options = {.dir = dir, .read_only = true};
    enum fr_status status = fr_durable_open(&options, &durable, err);
    if (status == FR_OK)
        status = read_model(durable, dir, &conf, err);
    if (status == FR_OK)
        status = find_key(conf, q, err);
    if (status == FR_OK)
        status = fr_durable_restore(durable, &visitor, err);
    if (status == FR_OK)
        status = see_carried(&looking, err);
    if (status == FR_OK) {
        struct fr_durable_status now;
        fr_durable_get_status(durable, &now);
        put_question(q, conf, out);
        fr_buffer_printf(out, ",\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64, now.timeline, now.epoch);
        status = put_found(&looking, conf, out, err);
    }
    fr_buffer_release(&looking.image);
    fr_buffer_release(&looking.store);
    fr_durable_close(durable);
    fr_conf_free(conf);
    return status;
}

/* ---- a topic ---- */

static enum fr_status put_served(const struct question *q, const struct fr_conf *conf, struct freshet_replica *replica,
                                 struct fr_buffer *out, struct fr_err *err)
{
    const struct fr_conf_table *table = &conf->tables[q->table];
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    put_question(q, conf, out);
    fr_buffer_printf(out, ",\"tl\":%" PRIu64 ",\"epoch\":%" PRIu64, info.timeline, info.epoch);
    for (uint32_t p = 0; p < table->n_parts; p++) {
        uint32_t dim = table->parts[p].dim;
        float *values = fr_alloc(dim, sizeof(*values));
        int status = freshet_replica_row(replica, table->name, table->parts[p].name, q->key, values, &dim);
        if (status == FRESHET_OK && dim == table->parts[p].dim) {
            fr_buffer_printf(out, "%s\"%s\":", p ? "," : ",\"state\":\"row\",\"parts\":{", table->parts[p].name);
            put_floats(out, values, dim);
        }
        free(values);
        if (status == FRESHET_E_NOT_FOUND && p == 0) {
            fr_buffer_printf(out, ",\"state\":\"none\"");
            return FR_OK;
        }
        if (status != FRESHET_OK || dim != table->parts[p].dim)
            return fr_err_set(err, FR_E_MISMATCH,
                              "the replica holds another model than the configuration describes, or none yet");
    }
    fr_buffer_printf(out, "}");
    return FR_OK;
}

static enum fr_status row_of_topic(struct question *q, const struct fr_conf *conf,
                                   const struct fr_consume_options *topic, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_tool_served served = {0};
    enum fr_status status = find_key(conf, q, err);
    if (status == FR_OK)
        status = fr_tool_served_topic(topic, "row", &served, err);
    if (status == FR_OK)
        status = put_served(q, conf, served.replica, out, err);
    fr_tool_served_close(&served);
    return status;
}

/* ---- the command line ---- */

static int run(struct question *q, const char *dir, const struct fr_consume_options *topic,
               const struct fr_conf_load_options *load)
{
    struct fr_conf *conf = NULL;
    struct fr_buffer out = {0}, problems = {0};
    struct fr_err err = {0};
    int code = FR_TOOL_OK;
    if (!dir && fr_conf_load(load, &conf, &problems) != FR_OK) {
        fwrite(problems.data, 1, problems.size, stderr);
        code = FR_TOOL_USAGE;
    } else if ((dir ? row_of_state(q, dir, &out, &err) : row_of_topic(q, conf, topic, &out, &err)) != FR_OK) {
        code = fr_tool_fail("row", &err);
    } else {
        fr_buffer_printf(&out, "}\n");
        code = fwrite(out.data, 1, out.size, stdout) == out.size && fflush(stdout) == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
    }
    fr_buffer_release(&out);
    fr_buffer_release(&problems);
    fr_conf_free(conf);
    return code;
}

int fr_tool_row(int argc, char **argv)
{
    struct question q = {0};
    const char *dir = NULL, *config = NULL, *sets[SETS_MAX], *properties[FR_FOLLOW_PROPERTIES_MAX];
    size_t n_sets = 0;
    struct fr_consume_options topic = {.properties = properties};
    const struct fr_tool_option options[] = {
        {.name = "--slot", .value = &q.slot},
        {.name = "--id", .value = &q.id},
        {.name = "--table", .value = &q.table_name},
        {.name = "--key", .value = &q.key_text},
        {.name = "--state-dir", .value = &dir},
        {.name = "--config", .value = &config},
        {.name = "--set", .many = sets, .n_many = &n_sets, .many_max = SETS_MAX},
        {.name = "--brokers", .value = &topic.brokers},
        {.name = "--topic", .value = &topic.topic},
        {.name = "--kafka-file", .value = &topic.kafka_file},
        {.name = "--kafka", .many = properties, .n_many = &topic.n_properties, .many_max = FR_FOLLOW_PROPERTIES_MAX},
    };
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed < 0 ? FR_TOOL_OK : parsed;
    bool by_id = q.slot && q.id && !q.table_name && !q.key_text,
         by_key = q.table_name && q.key_text && !q.slot && !q.id;
    bool of_state = dir && !config && !topic.brokers && !topic.topic;
    bool of_topic = config && topic.brokers && topic.topic && !dir;
    if ((!by_id && !by_key) || (!of_state && !of_topic)) {
        fprintf(stderr, "freshet row: %s\n\n%s",
                by_id || by_key ? "give --state-dir, or --config, --brokers and --topic"
                                : "give --slot and --id, or --table and --key",
                usage);
        return FR_TOOL_USAGE;
    }
    if (by_key && !fr_tool_option_u64("freshet row: --key", q.key_text, 0, UINT64_MAX, &q.key))
        return FR_TOOL_USAGE;
    return run(&q, dir, &topic, &(struct fr_conf_load_options){.path = config, .sets = sets, .n_sets = n_sets});
}
