/* The canonical model JSON: written, hashed, parsed back from untrusted text; the training JSON;
 * differences. */
#include "conf_fixture.h"

#include "base/hash.h"

static const char expected_model[] =
    "{\"chunk_rows\":128,\"labels\":[{\"name\":\"click\"}],\"layers\":["
    "{\"concat\":[{\"sum\":\"user_id.v\"},{\"sum\":\"item_id.v\"},{\"mean\":\"history.v\"},\"price\"],\"name\":\"x\"},"
    "{\"activation\":\"relu\",\"mlp\":[\"x\"],\"name\":\"h\",\"units\":[16,8]},"
    "{\"activation\":\"none\",\"dense\":[\"h\"],\"name\":\"out\",\"units\":[1]}],"
    "\"quantize\":\"f32\",\"slots\":["
    "{\"id\":\"auto\",\"kind\":\"sparse\",\"max_ids\":1024,\"name\":\"user_id\",\"namespace\":\"user\",\"table\":"
    "\"user\"},"
    "{\"id\":\"auto\",\"kind\":\"sparse\",\"max_ids\":1024,\"name\":\"item_id\",\"namespace\":\"item\",\"table\":"
    "\"item\"},"
    "{\"id\":\"auto\",\"kind\":\"sequence\",\"max_len\":50,\"name\":\"history\",\"namespace\":\"item\",\"table\":"
    "\"item\"},"
    "{\"default\":0,\"dim\":2,\"indicator\":false,\"kind\":\"dense\",\"name\":\"price\",\"transform\":\"none\"}],"
    "\"tables\":[{\"name\":\"user\",\"parts\":[{\"dim\":8,\"name\":\"v\"}]},"
    "{\"name\":\"item\",\"parts\":[{\"dim\":1,\"name\":\"w\"},{\"dim\":8,\"name\":\"v\"}]}],"
    "\"tasks\":[{\"label\":\"click\",\"logit\":\"out\",\"loss\":\"logloss\",\"name\":\"click\"}],\"version\":1}";

FR_CASE(the_model_is_written_in_its_canonical_form)
{
    struct fr_conf *conf = load(base_text);
    char *json = model_json(conf);
    assert_string_equal(json, expected_model);
    free(json);
    fr_conf_free(conf);
}

FR_CASE(the_fingerprint_is_that_of_the_json)
{
    struct fr_conf *conf = load(base_text);
    struct fr_sha256 digest = fr_sha256(expected_model, sizeof(expected_model) - 1);
    assert_int_equal(fr_conf_fingerprint(conf), fr_sha256_u64(&digest));
    fr_conf_free(conf);
}

FR_CASE(the_fingerprint_ignores_what_scores_do_not_depend_on)
{
    static const char *const same[] = {"model=other",
                                       "ingest.batch_size=5",
                                       "seed=9",
                                       "tables.user.optimizer=sgd",
                                       "tables.user.admit.count=3",
                                       "slots.user_id.touch=false",
                                       "export.partitions=8",
                                       "tasks.0.weight=3"};
    static const char *const different[] = {"slots.history.max_len=51",
                                            "slots.price.default=1",
                                            "export.quantize=f16",
                                            "tables.user.dim=9",
                                            "slots.user_id.namespace=u",
                                            "slots.user_id.id=raw",
                                            "network.layers.1.units=[16, 9]",
                                            "network.layers.1.activation=none",
                                            "tasks.0.name=c"};
    struct fr_conf *conf = load(base_text);
    uint64_t fingerprint = fr_conf_fingerprint(conf);
    fr_conf_free(conf);
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        conf = load_with(base_text, &same[i], 1);
        assert_int_equal(fr_conf_fingerprint(conf), fingerprint);
        fr_conf_free(conf);
    }
    for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++) {
        conf = load_with(base_text, &different[i], 1);
        if (fr_conf_fingerprint(conf) == fingerprint)
            fail_msg("%s does not change the fingerprint", different[i]);
        fr_conf_free(conf);
    }
}

static struct fr_conf *parse(const char *json);

FR_CASE(a_key_seed_is_part_of_the_model_and_of_every_namespaces_seed)
{
    static const struct {
        const char *set, *json;
        uint64_t number;
    } cases[] = {
        {"key_seed=12345678901234567890", "\"key_seed\":\"12345678901234567890\",", 12345678901234567890u},
        {"key_seed=\"7\"", "\"key_seed\":\"7\",", 7},
        {"key_seed=s e-c.r'e\\t", "\"key_seed\":\"s e-c.r'e\\\\t\",", 0},
    };
    struct fr_conf *without = load(base_text);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fr_conf *conf = load_with(base_text, &cases[i].set, 1);
        char *json = model_json(conf);
        assert_non_null(strstr(json, cases[i].json));
        struct fr_conf *again = parse(json);
        uint64_t number = cases[i].number ? cases[i].number : fr_xxh3("s e-c.r'e\\t", 11);
        assert_int_equal(again->key_seed_number, number);
        assert_int_equal(fr_conf_fingerprint(again), fr_conf_fingerprint(conf));
        assert_true(fr_conf_fingerprint(conf) != fr_conf_fingerprint(without));
        assert_int_equal(again->slots[0].seed, fr_xxh3_seed("user", 4, number));
        assert_true(again->slots[0].seed != without->slots[0].seed);
        free(json);
        fr_conf_free(again);
        fr_conf_free(conf);
    }
    char *json = model_json(without);
    assert_null(strstr(json, "key_seed"));
    assert_int_equal(without->slots[0].seed, fr_xxh3("user", 4));
    free(json);
    fr_conf_free(without);
}

static struct fr_conf *parse(const char *json)
{
    struct fr_conf *conf = NULL;
    struct fr_err err = {0};
    if (fr_conf_model_parse(json, strlen(json), &conf, &err) != FR_OK)
        fail_msg("%s", err.text);
    return conf;
}

static void assert_round_trip(const struct fr_conf *conf)
{
    char *json = model_json(conf);
    struct fr_conf *again = parse(json);
    char *json_again = model_json(again);
    assert_string_equal(json_again, json);
    assert_int_equal(fr_conf_fingerprint(again), fr_conf_fingerprint(conf));
    assert_int_equal(again->n_layers, conf->n_layers);
    for (uint32_t i = 0; i < conf->n_layers; i++) {
        assert_int_equal(again->layers[i].op, conf->layers[i].op);
        assert_int_equal(again->layers[i].n_refs, conf->layers[i].n_refs);
        assert_memory_equal(again->layers[i].refs, conf->layers[i].refs,
                            conf->layers[i].n_refs * sizeof(*conf->layers[i].refs));
        assert_int_equal(again->layers[i].line, 0);
    }
    for (uint32_t i = 0; i < conf->n_slots; i++)
        assert_int_equal(again->slots[i].seed, conf->slots[i].seed);
    assert_string_equal(again->model, "");
    free(json_again);
    fr_conf_free(again);
    free(json);
}

FR_CASE(a_parsed_model_is_the_same_model)
{
    static const char *const sets[] = {"slots.price.default=0.1", "slots.price.transform=log1p",
                                       "slots.user_id.index=7",   "slots.item_id.id=raw",
                                       "export.quantize=f16",     "slots.user_id.namespace=people"};
    struct fr_conf *conf = load_with(base_text, sets, 6);
    assert_round_trip(conf);
    fr_conf_free(conf);
}

FR_CASE(a_model_with_something_of_everything_round_trips)
{
    struct fr_conf *conf = load(rich_text);
    assert_round_trip(conf);
    fr_conf_free(conf);
}

FR_CASE(the_models_of_the_committed_files_round_trip)
{
    static const char *const names[] = {"freshet.yaml",
                                        "quickstart.yaml",
                                        "samples/fm.yaml",
                                        "samples/general.yaml",
                                        "samples/dlrm.yaml",
                                        "samples/dcn.yaml",
                                        "samples/din.yaml",
                                        "samples/esmm.yaml",
                                        "samples/mmoe.yaml",
                                        "reference/globo_200k_mlp.yaml",
                                        "reference/ml_din.yaml",
                                        "reference/grocery_fm.yaml",
                                        "reference/adult_ftrl.yaml"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[512];
        struct fr_buffer problems = {0};
        struct fr_conf *conf = NULL;
        snprintf(path, sizeof(path), "%s/conf/%s", FR_SOURCE_DIR, names[i]);
        struct fr_conf_load_options options = {.path = path};
        if (fr_conf_load(&options, &conf, &problems) != FR_OK)
            fail_msg("%s", (const char *)problems.data);
        assert_round_trip(conf);
        fr_conf_free(conf);
        fr_buffer_release(&problems);
    }
}

static void refuse(const char *json, size_t size, const char *part)
{
    struct fr_conf *conf = NULL;
    struct fr_err err = {0};
    enum fr_status status = fr_conf_model_parse(json, size, &conf, &err);
    assert_true(status < 0);
    assert_int_equal(status, err.status);
    assert_null(conf);
    assert_contains(err.text, part);
}

FR_CASE(a_model_that_is_not_what_it_should_be_is_refused)
{
    static const struct {
        const char *from, *to, *part;
    } rows[] = {
        {"{\"chunk_rows\"", "[\"chunk_rows\"", "not JSON"},
        {"\"version\":1}", "\"version\":1}x", "JSON"},
        {"\"version\":1", "\"version\":2", "version"},
        {"\"chunk_rows\":128", "\"chunk_rows\":256", "chunk_rows"},
        {"\"dim\":8", "\"dim\":0", "out of range"},
        {"\"dim\":8", "\"dim\":4294967296", "out of range"},
        {"\"dim\":8", "\"dim\":-1", "not an integer"},
        {"\"dim\":8", "\"dim\":8.0", "canonical"},
        {"\"dim\":8", "\"dim\":8.5", "not an integer"},
        {"\"dim\":8", "\"dim\":\"8\"", "not an integer"},
        {"\"dim\":8,", "", "missing"},
        {"\"name\":\"user\",", "\"name\":\"us er\",", "not a name"},
        {"\"name\":\"item\",", "\"name\":\"user\",", "taken"},
        {"\"table\":\"user\"", "\"table\":\"usr\"", "unknown table"},
        {"\"user_id.v\"", "\"user_id.w\"", "no part `w`"},
        {"\"user_id.v\"", "\"nobody.v\"", "unknown slot or layer"},
        {"{\"sum\":\"user_id.v\"}", "\"user_id\"", "canonical"},
        {"{\"sum\":\"user_id.v\"}", "{\"median\":\"user_id.v\"}", "`median` inside an argument is not an operation"},
        {"\"mlp\":[\"x\"]", "\"mlp\":[\"out\"]", "reads itself"},
        {"\"mlp\":[\"x\"]", "\"mlp\":[]", "0 entries"},
        {"\"mlp\":[\"x\"]", "\"transformer\":[\"x\"]", "unknown key `transformer`"},
        {"\"units\":[16,8]", "\"units\":[16,99999]", "out of range"},
        {"\"units\":[1]", "\"units\":[2]", "of shape [2]; expected [1]"},
        {"\"logit\":\"out\"", "\"logit\":\"price\"", "unknown layer"},
        {"\"label\":\"click\"", "\"label\":\"clack\"", "unknown label"},
        {"\"loss\":\"logloss\"", "\"loss\":\"hinge\"", "unknown value `hinge`"},
        {"\"quantize\":\"f32\"", "\"quantize\":\"i4\"", "unknown value `i4`"},
        {"\"quantize\":\"f32\",", "", "export.quantize: missing"},
        {"\"default\":0", "\"default\":1e400", ""},
        {"\"default\":0", "\"default\":null", "empty"},
        {"\"default\":0", "\"default\":0.0", "canonical"},
        {"\"default\":0", "\"default\":0,\"default\":0", "duplicate key"},
        {"\"version\":1", "\"version\":1,\"x\":2", "canonical"},
        {"\"quantize\"", " \"quantize\"", "canonical"},
        {"\"name\":\"v\"", "\"name\":\"v\",\"optimizer\":\"sgd\"", "canonical"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *at = strstr(expected_model, rows[i].from);
        assert_non_null(at);
        char *json = calloc(1, sizeof(expected_model) + 64);
        snprintf(json, sizeof(expected_model) + 64, "%.*s%s%s", (int)(at - expected_model), expected_model, rows[i].to,
                 at + strlen(rows[i].from));
        refuse(json, strlen(json), rows[i].part);
        free(json);
    }
}

static void refuse_truncations(const char *json)
{
    for (size_t size = 0; size < strlen(json); size++) {
        char *copy = malloc(size + 1); /* exact room: a read past the end is seen */
        memcpy(copy, json, size);
        refuse(copy, size, "");
        free(copy);
    }
}

FR_CASE(every_truncation_of_a_model_is_refused)
{
    refuse_truncations(expected_model);
    struct fr_conf *conf = load(rich_text);
    char *json = model_json(conf);
    refuse_truncations(json);
    free(json);
    fr_conf_free(conf);
}

/* Every byte is tried; under a sanitizer, which is ten times slower, one byte in five. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 5 };
#else
enum { STRIDE = 1 };
#endif

static void change_bytes(const char *text, const char *bytes, size_t n_bytes)
{
    size_t size = strlen(text);
    char *copy = calloc(1, size + 1);
    for (size_t i = 0; i < size; i += STRIDE) {
        for (size_t b = 0; b < n_bytes; b++) {
            struct fr_conf *conf = NULL;
            struct fr_err err = {0};
            memcpy(copy, text, size);
            if (copy[i] == bytes[b])
                continue;
            copy[i] = bytes[b];
            if (fr_conf_model_parse(copy, size, &conf, &err) != FR_OK)
                continue;
            char *json = model_json(conf); /* an accepted text is exactly what the writer writes */
            assert_string_equal(json, copy);
            free(json);
            fr_conf_free(conf);
        }
    }
    free(copy);
}

FR_CASE(every_changed_byte_gives_a_refusal_or_another_model)
{
    static const char bytes[] = {'0', '"', '}', ',', '\xff', '\0', 'z'};
    change_bytes(expected_model, bytes, sizeof(bytes));
    struct fr_conf *conf = load(rich_text);
    char *json = model_json(conf);
    change_bytes(json, "9]x", 3);
    free(json);
    fr_conf_free(conf);
}

FR_CASE(a_model_with_many_wrong_references_is_refused_quickly)
{
    size_t room = 900000;
    char *json = calloc(1, room + 64);
    size_t used =
        (size_t)snprintf(json, room, "{\"chunk_rows\":128,\"labels\":[],\"layers\":[{\"name\":\"x\",\"concat\":[\"a\"");
    while (used < room)
        used += (size_t)snprintf(json + used, 16, ",\"a\"");
    snprintf(json + used, 64, "]}],\"slots\":[],\"tables\":[],\"tasks\":[],\"version\":1}");
    refuse(json, strlen(json), "");
    free(json);
}

FR_CASE(the_training_settings_are_written_in_their_canonical_form)
{
    struct fr_conf *conf = load(base_text);
    char *json = training_json(conf);
    assert_string_equal(
        json,
        "{\"layers\":[{\"init\":{\"kind\":\"default\",\"scale\":0},\"name\":\"h\"},"
        "{\"init\":{\"kind\":\"default\",\"scale\":0},\"name\":\"out\"}],\"losses\":[],"
        "\"network\":{\"optimizer\":{\"beta1\":0.899999976,\"beta2\":0.999000013,\"eps\":9."
        "99999994e-09,\"kind\":\"adam\",\"lr\":0.00100000005}},"
        "\"sampling\":\"all\",\"seed\":1,\"tables\":[{\"admit\":{\"count\":1},\"name\":\"user\",\"parts\":[{\"init\":{"
        "\"kind\":\"normal\",\"scale\":0.00999999978},"
        "\"name\":\"v\",\"optimizer\":{\"eps\":9.99999994e-09,\"initial\":0,\"kind\":\"adagrad\","
        "\"lr\":0.0500000007}}]},"
        "{\"admit\":{\"count\":1},\"name\":\"item\",\"parts\":[{\"init\":{\"kind\":\"zeros\","
        "\"scale\":0},\"name\":\"w\","
        "\"optimizer\":{\"beta\":1,\"kind\":\"ftrl\",\"lr\":0.100000001}},{"
        "\"init\":{\"kind\":\"normal\",\"scale\":0.00999999978},"
        "\"name\":\"v\",\"optimizer\":{\"eps\":9.99999994e-09,\"initial\":0,\"kind\":\"adagrad\","
        "\"lr\":0.0500000007}}]}],"
        "\"tasks\":[{\"name\":\"click\",\"weight\":1}],\"version\":1}");
    free(json);
    fr_conf_free(conf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_is_written_in_its_canonical_form),
        cmocka_unit_test(the_fingerprint_is_that_of_the_json),
        cmocka_unit_test(a_key_seed_is_part_of_the_model_and_of_every_namespaces_seed),
        cmocka_unit_test(the_fingerprint_ignores_what_scores_do_not_depend_on),
        cmocka_unit_test(a_parsed_model_is_the_same_model),
        cmocka_unit_test(a_model_with_something_of_everything_round_trips),
        cmocka_unit_test(the_models_of_the_committed_files_round_trip),
        cmocka_unit_test(a_model_that_is_not_what_it_should_be_is_refused),
        cmocka_unit_test(every_truncation_of_a_model_is_refused),
        cmocka_unit_test(every_changed_byte_gives_a_refusal_or_another_model),
        cmocka_unit_test(a_model_with_many_wrong_references_is_refused_quickly),
        cmocka_unit_test(the_training_settings_are_written_in_their_canonical_form),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
