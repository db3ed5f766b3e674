/* Ids -> keys against tests/golden/keys.json, whose keys were computed elsewhere
 * (make_golden.py). */
#include "case.h"

#include <stdlib.h>

#include "base/file.h"
#include "decode/decoder.h"
#include "schema.h"

struct golden {
    char name_space[64];
    uint32_t n_crossed; /* of a cross: the keys it is made of, in place of the id */
    uint64_t crossed[FR_CROSS_MAX];
    struct fr_token id; /* its bytes copied to `text` */
    uint8_t text[FR_STRING_MAX];
    bool raw;
    char key_seed[64]; /* as in a configuration, quotes included; empty: none */
    uint64_t key;
};

static struct fr_token next(struct fr_cursor *cursor)
{
    struct fr_token token;
    if (fr_cursor_next(cursor, &token) != FR_OK)
        fail_msg("keys.json: %s at byte %zu", cursor->problem, fr_cursor_offset(cursor));
    return token;
}

static void read_golden(struct fr_cursor *cursor, struct golden *golden)
{
    for (;;) {
        struct fr_token key = next(cursor);
        if (key.kind == FR_TOKEN_END)
            return;
        char name = (char)key.bytes[0];
        struct fr_token value = next(cursor);
        char digits[32];
        if (name == 'n') {
            snprintf(golden->name_space, sizeof(golden->name_space), "%.*s", (int)value.size,
                     (const char *)value.bytes);
        } else if (key.size == strlen("key_seed")) {
            if (value.kind == FR_TOKEN_STRING)
                snprintf(golden->key_seed, sizeof(golden->key_seed), "\"%.*s\"", (int)value.size,
                         (const char *)value.bytes);
            else
                snprintf(golden->key_seed, sizeof(golden->key_seed), "%llu", (unsigned long long)value.u);
        } else if (name == 'i') {
            golden->id = value;
            if (value.kind == FR_TOKEN_STRING)
                memcpy(golden->text, value.bytes, value.size);
        } else if (name == 'r') {
            golden->raw = value.i != 0;
        } else if (name == 'c') {
            for (struct fr_token part = next(cursor); part.kind != FR_TOKEN_END; part = next(cursor)) {
                snprintf(digits, sizeof(digits), "%.*s", (int)part.size, (const char *)part.bytes);
                golden->crossed[golden->n_crossed++] = strtoull(digits, NULL, 10);
            }
        } else {
            snprintf(digits, sizeof(digits), "%.*s", (int)value.size, (const char *)value.bytes);
            golden->key = strtoull(digits, NULL, 10);
        }
    }
}

/* Returns the seed of the namespace, as a configuration gives it. */
static uint64_t seed_of(const struct golden *golden)
{
    if (golden->key_seed[0] == '\0')
        return fr_xxh3(golden->name_space, strlen(golden->name_space));
    struct fr_buffer text = {0}, problems = {0};
    struct fr_conf *conf = NULL;
    fr_buffer_printf(&text,
                     "version: 1\nmodel: m\nstate_dir: /tmp/m\nkey_seed: %s\n"
                     "ingest: {brokers: \"127.0.0.1:9\", topic: samples}\n"
                     "tables: {user: {dim: 2}}\nslots: {user_id: {table: user, namespace: %s}}\nlabels: {click: {}}\n"
                     "network: {layers: [{name: out, dense: user_id, units: 1}]}\n"
                     "tasks: [{name: click, label: click, logit: out}]\n",
                     golden->key_seed, golden->name_space);
    fr_put_u8(&text, 0);
    struct fr_conf_load_options options = {.path = "test.yaml", .text = (const char *)text.data};
    if (fr_conf_load(&options, &conf, &problems) != FR_OK)
        fail_msg("%.*s", (int)problems.size, (const char *)problems.data);
    uint64_t seed = conf->slots[0].seed;
    fr_conf_free(conf);
    fr_buffer_release(&text);
    fr_buffer_release(&problems);
    return seed;
}

/* The key that a whole record gives for this id, msgpack-encoded by hand: the path that floats
 * take. */
static uint64_t key_by_decoder(const struct golden *golden)
{
    struct schema schema;
    schema_init(&schema, FR_FORMAT_MSGPACK);
    struct fr_conf_slot *slot = &schema.slots[SLOT_USER_ID];
    slot->seed = seed_of(golden);
    slot->id_raw = golden->raw;
    struct fr_buffer record = {0};
    fr_buffer_append(&record,
                     "\x82\xa1"
                     "f\x81\xa7user_id",
                     12);
    uint64_t bits = golden->id.u; /* of a double too */
    uint64_t big = __builtin_bswap64(bits);
    if (golden->id.kind == FR_TOKEN_STRING) {
        fr_put_u8(&record, 0xda);
        fr_put_u8(&record, (uint8_t)(golden->id.size >> 8));
        fr_put_u8(&record, (uint8_t)golden->id.size);
        fr_buffer_append(&record, golden->text, golden->id.size);
    } else {
        fr_put_u8(&record, golden->id.kind == FR_TOKEN_FLOAT ? 0xcb : golden->id.kind == FR_TOKEN_INT ? 0xd3 : 0xcf);
        fr_buffer_append(&record, &big, 8);
    }
    fr_buffer_append(&record, "\xa1y\x80", 3);
    struct fr_decoder *decoder = fr_decoder_new(&schema.conf);
    struct fr_batch *batch = fr_batch_new(&schema.conf);
    uint32_t n;
    const char *reason = "";
    struct fr_record input = {record.data, record.size, TIMESTAMP_MS, 0};
    if (fr_decode_record(decoder, &input, &n, &reason) != FR_OK)
        fail_msg("%s", reason);
    fr_decode_append(decoder, 0, n, batch);
    uint64_t key = batch->columns[SLOT_USER_ID].keys[0];
    fr_batch_free(batch);
    fr_decoder_free(decoder);
    fr_buffer_release(&record);
    return key;
}

/* Returns the key of a cross of slots whose ids have the golden keys. Each slot has a seed of its
 * own, and the ids are chosen so that they give these keys. */
static uint64_t key_by_cross(const struct golden *golden)
{
    static const char *const names[FR_CROSS_MAX] = {"a", "b", "c", "d"};
    struct schema schema;
    schema_init(&schema, FR_FORMAT_JSON);
    struct fr_conf_slot slots[FR_CROSS_MAX + 1], *cross = &slots[golden->n_crossed];
    struct fr_buffer record = {0};
    fr_buffer_printf(&record, "{\"f\":{");
    schema_slot(cross, "cross", FR_SLOT_SPARSE, 0, golden->name_space);
    cross->seed = seed_of(golden);
    cross->source = FR_SOURCE_CROSS;
    for (uint32_t i = 0; i < golden->n_crossed; i++) {
        schema_slot(&slots[i], names[i], FR_SLOT_SPARSE, 0, names[i]);
        cross->sources[cross->n_sources++] = (int32_t)i;
        fr_buffer_printf(&record, "%s\"%s\":%llu", i ? "," : "", names[i],
                         (unsigned long long)(fr_fmix64_inverse(golden->crossed[i]) ^ slots[i].seed));
    }
    fr_buffer_printf(&record, "},\"y\":{}}");
    schema.conf.slots = slots;
    schema.conf.n_slots = golden->n_crossed + 1;
    struct fr_decoder *decoder = fr_decoder_new(&schema.conf);
    struct fr_batch *batch = fr_batch_new(&schema.conf);
    struct fr_record input = {record.data, record.size, TIMESTAMP_MS, 0};
    uint32_t n;
    const char *reason = "";
    if (fr_decode_record(decoder, &input, &n, &reason) != FR_OK)
        fail_msg("%s", reason);
    fr_decode_append(decoder, 0, n, batch);
    assert_int_equal(batch->columns[golden->n_crossed].begin[1], 1);
    uint64_t key = batch->columns[golden->n_crossed].keys[0];
    fr_batch_free(batch);
    fr_decoder_free(decoder);
    fr_buffer_release(&record);
    return key;
}

FR_CASE(keys_equal_the_golden_vectors)
{
    struct fr_buffer text = {0}, scratch = {0};
    assert_int_equal(fr_file_read(FR_SOURCE_DIR "/tests/golden/keys.json", 1 << 20, &text, NULL), FR_OK);
    struct fr_cursor cursor;
    fr_cursor_init(&cursor, FR_FORMAT_JSON, text.data, text.size, &scratch);
    assert_int_equal(next(&cursor).kind, FR_TOKEN_ARRAY);
    unsigned n = 0, crosses = 0, seeded = 0;
    while (next(&cursor).kind == FR_TOKEN_MAP) {
        struct golden golden = {.raw = false};
        read_golden(&cursor, &golden);
        uint64_t seed = seed_of(&golden);
        n++;
        seeded += golden.key_seed[0] != '\0';
        crosses += golden.n_crossed > 0;
        if (golden.n_crossed > 0) {
            assert_int_equal(key_by_cross(&golden), golden.key);
            continue;
        }
        if (golden.id.kind == FR_TOKEN_STRING)
            assert_int_equal(fr_key_string(golden.text, golden.id.size, seed, golden.raw), golden.key);
        else if (golden.id.kind != FR_TOKEN_FLOAT)
            assert_int_equal(fr_key_integer(golden.id.u, seed), golden.key);
        assert_int_equal(key_by_decoder(&golden), golden.key);
    }
    assert_true(n >= 300 && crosses >= 18 && seeded >= 50);
    fr_buffer_release(&text);
    fr_buffer_release(&scratch);
}

FR_CASE(an_integer_key_can_be_turned_back)
{
    uint64_t seed = fr_xxh3("user", 4);
    assert_int_equal(fr_fmix64_inverse(fr_key_integer(42, seed)) ^ seed, 42);
    assert_int_equal(fr_fmix64_inverse(fr_key_integer((uint64_t)-7, seed)) ^ seed, (uint64_t)-7);
}

FR_CASE(a_typed_id_is_an_integer_unless_the_slot_is_raw)
{
    struct schema schema;
    schema_init(&schema, FR_FORMAT_JSON);
    const struct fr_conf_slot *user = &schema.slots[SLOT_USER_ID], *item = &schema.slots[SLOT_ITEM_ID];
    assert_int_equal(fr_key_text("5", user), fr_key_integer(5, user->seed));
    assert_int_equal(fr_key_text("-1", user), fr_key_integer(UINT64_MAX, user->seed));
    assert_int_equal(fr_key_text("05", user), fr_xxh3_seed("05", 2, user->seed));
    assert_int_equal(fr_key_text("5", item), fr_xxh3_seed("5", 1, item->seed));
    assert_int_equal(fr_key_text("abc", item), fr_xxh3_seed("abc", 3, item->seed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_equal_the_golden_vectors),
        cmocka_unit_test(an_integer_key_can_be_turned_back),
        cmocka_unit_test(a_typed_id_is_an_integer_unless_the_slot_is_raw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
