/* `freshet-bench shared`: what a request's shared part costs once instead of once an impression.
 *
 * The same impressions twice, as groups and as plain samples (arrays of the same number of them),
 * with 8 and with 50 impressions a request: bytes, decoding on one core, training in this process.
 * Model: conf/bench_shared.yaml. The two train alternately in one run, each on a machine of its
 * own, so that other work of the host does not change the ratio. Thread: the caller's and the
 * machines' pools. */
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/random.h"
#include "bench_machine.h"
#include "decode/decoder.h"
#include "tool.h"
#include "samples/transcode.h"

enum { BATCHES = 32, ROUNDS = 5, IDS = 100000, HISTORY = 100, FORMS = 2, USER, ITEM, DENSE, LABEL };

/* A user's 18 slots have 300 ids: six of one, then lists of 24 and 25 in turn. */
enum { SINGLES = 6, LIST_IDS = 24 };
enum form { GROUPED, EXPANDED };

struct shared_bench {
    const struct fr_conf *conf;
    struct fr_tool_zipf zipf;
    uint32_t group;
    uint64_t n_groups;
    uint64_t bytes[FORMS];
    struct fr_batch *batches[FORMS][BATCHES];
    double decode_seconds[FORMS];
    double train_cpu_seconds[FORMS]; /* of all rounds but the first */
};

static void put_text(msgpack_packer *packer, const char *text)
{
    msgpack_pack_str(packer, strlen(text));
    msgpack_pack_str_body(packer, text, strlen(text));
}

static uint32_t draw_id(const struct shared_bench *s, uint64_t key, uint32_t index)
{
    return fr_zipf_rank(&s->zipf, fr_random_u64(1, USER, key, index));
}

static void put_ids(const struct shared_bench *s, msgpack_packer *packer, uint64_t key, uint32_t slot, uint32_t n)
{
    msgpack_pack_array(packer, n);
    for (uint32_t i = 0; i < n; i++)
        msgpack_pack_uint32(packer, draw_id(s, key, slot + FR_SLOTS_MAX * (1 + i)));
}

/* The slots of one side (names that begin with `letter`), then its history and its numbers. */
static void put_slots(const struct shared_bench *s, msgpack_packer *packer, char letter, uint64_t key)
{
    const struct fr_conf *conf = s->conf;
    uint32_t n_put = 0;
    for (uint32_t i = 0; i < conf->n_slots; i++) {
        const struct fr_conf_slot *slot = &conf->slots[i];
        if (fr_slot_has_rows(slot->kind) && !fr_slot_has_steps(slot->kind) && slot->name[0] == letter) {
            put_text(packer, slot->name);
            if (letter == 'u' && n_put >= SINGLES)
                put_ids(s, packer, key, i, LIST_IDS + n_put % 2);
            else
                msgpack_pack_uint32(packer, draw_id(s, key, i));
            n_put++;
        } else if (fr_slot_has_steps(slot->kind) && letter == 'u') {
            put_text(packer, slot->name);
            put_ids(s, packer, key, i, HISTORY);
        } else if (fr_slot_has_numbers(slot->kind) && (strcmp(slot->name, "context") == 0) == (letter == 'u')) {
            put_text(packer, slot->name);
            msgpack_pack_array(packer, slot->dim);
            for (uint32_t d = 0; d < slot->dim; d++)
                msgpack_pack_float(packer, (float)fr_random_uniform(1, DENSE, key, d) - 0.5f);
        }
    }
}

static uint32_t count_slots(const struct fr_conf *conf, char letter)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < conf->n_slots; i++)
        n += conf->slots[i].name[0] == letter;
    return n;
}

/* One request as a record of the form. */
static void put_request(const struct shared_bench *s, enum form form, uint64_t request, struct fr_buffer *out)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, out, fr_tool_pack_write);
    uint32_t n_user = count_slots(s->conf, 'u') + 2, n_item = count_slots(s->conf, 'i') + 1;
    if (form == GROUPED) {
        msgpack_pack_map(&packer, 2);
        put_text(&packer, "shared");
        msgpack_pack_map(&packer, n_user);
        put_slots(s, &packer, 'u', request);
        put_text(&packer, "items");
    }
    msgpack_pack_array(&packer, s->group);
    for (uint32_t i = 0; i < s->group; i++) {
        uint64_t item = (request * s->group + i) | UINT64_C(1) << 40;
        msgpack_pack_map(&packer, 3);
        put_text(&packer, "f");
        msgpack_pack_map(&packer, form == GROUPED ? n_item : n_user + n_item);
        if (form == EXPANDED)
            put_slots(s, &packer, 'u', request);
        put_slots(s, &packer, 'i', item);
        put_text(&packer, "y");
        msgpack_pack_uint32(&packer, fr_random_uniform(1, LABEL, item, 0) < 0.2);
        put_text(&packer, "t");
        msgpack_pack_int64(&packer, INT64_C(1767225600000) + (int64_t)request);
    }
}

static int fill(struct shared_bench *s, enum form form)
{
    struct fr_decoder *decoder = fr_decoder_new(s->conf);
    struct fr_buffer record = {0};
    int result = FR_TOOL_OK;
    uint64_t request = 0;
    s->decode_seconds[form] = 0.0;
    for (uint32_t b = 0; b < BATCHES && result == FR_TOOL_OK; b++) {
        struct fr_batch *batch = s->batches[form][b] = fr_batch_new(s->conf);
        while (batch->n_samples < s->conf->ingest.batch_size && result == FR_TOOL_OK) {
            uint32_t n = 0;
            const char *reason = "";
            fr_buffer_clear(&record);
            put_request(s, form, request++, &record);
            s->bytes[form] += record.size;
            struct fr_record r = {.value = record.data, .size = record.size};
            double begin = fr_bench_now();
            if (fr_decode_record(decoder, &r, &n, &reason) == FR_OK) {
                fr_decode_append(decoder, 0, n, batch);
            } else {
                fprintf(stderr, "freshet-bench: a record of the benchmark is malformed: %s\n", reason);
                result = FR_TOOL_FAILED;
            }
            s->decode_seconds[form] += fr_bench_now() - begin;
        }
    }
    s->n_groups = request;
    fr_buffer_release(&record);
    fr_decoder_free(decoder);
    return result;
}

static int train_in_turns(struct shared_bench *s, uint32_t threads, double *rate)
{
    struct fr_bench_machine machines[FORMS] = {0};
    double rates[FORMS][ROUNDS];
    int result = FR_TOOL_OK;
    for (int f = 0; f < FORMS; f++)
        fr_bench_machine_init(&machines[f], s->conf, threads);
    /* round 0 touches all memory */
    for (uint32_t round = 0; round <= ROUNDS && result == FR_TOOL_OK; round++) {
        for (int f = 0; f < FORMS && result == FR_TOOL_OK; f++) {
            double now = 0.0, begin = fr_bench_cpu_seconds();
            result = fr_bench_machine_round(&machines[f], s->batches[f], BATCHES, &now);
            if (round == 0)
                continue;
            rates[f][round - 1] = now;
            s->train_cpu_seconds[f] += fr_bench_cpu_seconds() - begin;
        }
    }
    for (int f = 0; f < FORMS; f++) {
        if (result == FR_TOOL_OK)
            rate[f] = fr_bench_median(rates[f], ROUNDS);
        fr_bench_machine_release(&machines[f]);
    }
    return result;
}

static int measure(struct fr_bench *bench, const struct fr_conf *conf, uint32_t group)
{
    struct shared_bench *s = fr_alloc(1, sizeof(*s));
    s->conf = conf;
    s->group = group;
    fr_tool_zipf_init(&s->zipf, IDS, 1.05);
    double rate[FORMS] = {0};
    int result = fill(s, GROUPED);
    if (result == FR_TOOL_OK)
        result = fill(s, EXPANDED);
    if (result == FR_TOOL_OK)
        result = train_in_turns(s, bench->threads, rate);
    if (result == FR_TOOL_OK) {
        double samples = (double)s->n_groups * group;
        char name[32];
        snprintf(name, sizeof(name), "shared_%u", group);
        fr_bench_begin(bench, name);
        fr_bench_number(bench, "items_per_group", group);
        fr_bench_number(bench, "train_grouped_samples_per_second", rate[GROUPED]);
        fr_bench_number(bench, "train_plain_samples_per_second", rate[EXPANDED]);
        fr_bench_number(bench, "train_gain", rate[GROUPED] / rate[EXPANDED]);
        fr_bench_number(bench, "train_grouped_cpu_microseconds_per_sample",
                        s->train_cpu_seconds[GROUPED] * 1e6 / (samples * ROUNDS));
        fr_bench_number(bench, "train_plain_cpu_microseconds_per_sample",
                        s->train_cpu_seconds[EXPANDED] * 1e6 / (samples * ROUNDS));
        fr_bench_number(bench, "train_cpu_gain", s->train_cpu_seconds[EXPANDED] / s->train_cpu_seconds[GROUPED]);
        fr_bench_number(bench, "decode_grouped_samples_per_second_per_core", samples / s->decode_seconds[GROUPED]);
        fr_bench_number(bench, "decode_plain_samples_per_second_per_core", samples / s->decode_seconds[EXPANDED]);
        fr_bench_number(bench, "decode_gain", s->decode_seconds[EXPANDED] / s->decode_seconds[GROUPED]);
        fr_bench_number(bench, "bytes_per_sample_grouped", (double)s->bytes[GROUPED] / samples);
        fr_bench_number(bench, "bytes_per_sample_plain", (double)s->bytes[EXPANDED] / samples);
        fr_bench_end(bench);
    }
    for (int f = 0; f < FORMS; f++)
        for (uint32_t b = 0; b < BATCHES; b++)
            fr_batch_free(s->batches[f][b]);
    fr_tool_zipf_release(&s->zipf);
    free(s);
    return result;
}

int fr_bench_shared(struct fr_bench *bench)
{
    static const uint32_t groups[] = {8, 50};
    if (!bench->source) {
        fputs("freshet-bench: shared needs conf/bench_shared.yaml: give --source DIR\n", stderr);
        return FR_TOOL_FAILED;
    }
    char path[4128];
    snprintf(path, sizeof(path), "%s/conf/bench_shared.yaml", bench->source);
    struct fr_conf *conf = NULL;
    struct fr_buffer problems = {0};
    int result = FR_TOOL_OK;
    if (fr_conf_load(&(struct fr_conf_load_options){.path = path}, &conf, &problems) != FR_OK) {
        fprintf(stderr, "freshet-bench: %.*s\n", (int)problems.size, (const char *)problems.data);
        result = FR_TOOL_FAILED;
    }
    for (size_t i = 0; i < FR_ARRAY_LEN(groups) && result == FR_TOOL_OK; i++) {
        fr_bench_progress("shared: %u impressions a request, groups and plain samples alternately", groups[i]);
        result = measure(bench, conf, groups[i]);
    }
    fr_conf_free(conf);
    fr_buffer_release(&problems);
    return result;
}
