/* Fuzz target of the record decoder: any bytes, as MessagePack and as JSON, give samples or a
 * reason, never a crash, and what is accepted appends the same whole and group by group, behind an
 * empty batch and behind one that has groups. Two configurations: strict rules with every kind of
 * slot and label, and scoring. */
#include <stdlib.h>

#include "../unit/decode/schema.h"
#include "decode/decoder.h"
#include "fuzz.h"

/* A group of two with every slot on one level, so that what follows meets shared and own
 * columns. */
static const char before_json[] =
    "{\"shared\":{\"user_id\":{\"i\":[1,2],\"w\":[1,2]},\"vec\":[1,2,3],\"history\":[4,5]},\"items\":["
    "{\"f\":{\"item_id\":\"a\",\"price\":2},\"y\":[1,0],\"p\":{\"buy_rate\":0.5}},{\"f\":{\"context\":[7,8],\"price\":"
    "0},\"y\":[0]}]}";

struct target {
    struct schema schema;
    struct fr_decoder *decoder, *first; /* first: what reads before_json */
    struct fr_batch *whole, *split;
};

static void check_column(const struct fr_batch *a, const struct fr_batch *b, uint32_t s)
{
    const struct fr_column *x = &a->columns[s], *y = &b->columns[s];
    uint32_t entries = fr_batch_entries(a, s);
    FR_CHECK(x->shared == y->shared && (!x->shared || a->n_groups < a->n_samples));
    if (x->dim) {
        FR_CHECK(memcmp(x->dense, y->dense, (size_t)entries * x->dim * sizeof(float)) == 0);
        return;
    }
    uint32_t n = x->begin[entries];
    FR_CHECK(memcmp(x->begin, y->begin, (entries + 1) * sizeof(*x->begin)) == 0);
    FR_CHECK(n == 0 || memcmp(x->keys, y->keys, n * sizeof(*x->keys)) == 0);
    for (uint32_t k = 0; k < n; k++)
        FR_CHECK((x->weights ? x->weights[k] : 1.0f) == (y->weights ? y->weights[k] : 1.0f));
}

static void check_equal(const struct fr_batch *a, const struct fr_batch *b)
{
    FR_CHECK(a->n_samples == b->n_samples && a->n_groups == b->n_groups && a->unknown_slots == b->unknown_slots &&
             a->excess_ids == b->excess_ids);
    FR_CHECK(memcmp(a->group_begin, b->group_begin, (a->n_groups + 1) * sizeof(*a->group_begin)) == 0);
    FR_CHECK(a->group_begin[a->n_groups] == a->n_samples);
    for (uint32_t i = 0; i < a->n_samples; i++) {
        FR_CHECK(a->group_of[i] == b->group_of[i] && a->t_ms[i] == b->t_ms[i] && a->role[i] == b->role[i]);
        FR_CHECK(a->group_begin[a->group_of[i]] <= i && i < a->group_begin[a->group_of[i] + 1]);
        FR_CHECK(a->keep[i] == b->keep[i] && a->keep[i] > 0.0f && a->keep[i] <= 1.0f);
    }
    for (uint32_t s = 0; s < N_SLOTS; s++)
        check_column(a, b, s);
}

static void append(struct target *target, bool behind_groups, uint32_t n)
{
    fr_batch_clear(target->whole);
    fr_batch_clear(target->split);
    if (behind_groups) {
        uint32_t first = 0;
        const char *reason = NULL;
        struct fr_record record = {before_json, sizeof(before_json) - 1, TIMESTAMP_MS, 0};
        FR_CHECK(fr_decode_record(target->first, &record, &first, &reason) == FR_OK && first == 2);
        fr_decode_append(target->first, 0, first, target->whole);
        fr_decode_append(target->first, 0, first, target->split);
    }
    fr_decode_append(target->decoder, 0, n, target->whole);
    for (uint32_t from = 0, step = 1; from < n; step = step * 2 + 1) {
        uint32_t count = fr_decode_take(target->decoder, from, step);
        FR_CHECK(count > 0 && count <= n - from);
        fr_decode_append(target->decoder, from, count, target->split);
        from += count;
    }
    if (n > 0)
        check_equal(target->whole, target->split);
}

static void decode(struct target *target, const uint8_t *data, size_t size)
{
    struct fr_record record = {data, size, TIMESTAMP_MS, 0};
    uint32_t n = 0;
    const char *reason = NULL;
    if (fr_decode_record(target->decoder, &record, &n, &reason) != FR_OK) {
        FR_CHECK(reason && reason[0] == '$' && strlen(reason) < 512);
        return;
    }
    append(target, false, n);
    append(target, true, n);
}

static void open_target(struct target *target, bool json, bool scoring, bool flat)
{
    enum fr_format format = json ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK;
    schema_init(&target->schema, FR_FORMAT_JSON);
    if (scoring) {
        /* has no log1p: the slot is needed */
        target->schema.slots[SLOT_PRICE].default_value = -1.0f;
        target->schema.slots[SLOT_VEC].transform = FR_TRANSFORM_STANDARDIZE;
        target->schema.tasks[1].loss = FR_LOSS_MSE;
    }
    target->first = fr_decoder_new_scoring(&target->schema.conf, FR_FORMAT_JSON);
    static char user_key[] = "f.user_id", click_key[] = "y.click", time_key[] = "t";
    if (flat) { /* a sample is then a flat record, too */
        target->schema.conf.ingest.envelope = true;
        target->schema.conf.ingest.envelope_t = time_key;
        target->schema.slots[SLOT_USER_ID].key = user_key;
        target->schema.labels[LABEL_CLICK].key = click_key;
    }
    target->schema.conf.ingest.format = (int)format;
    target->schema.conf.ingest.strict = !scoring;
    target->decoder =
        scoring ? fr_decoder_new_scoring(&target->schema.conf, format) : fr_decoder_new(&target->schema.conf);
    target->whole = fr_batch_new(&target->schema.conf);
    target->split = fr_batch_new(&target->schema.conf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target targets[6];
    for (int i = 0; i < 6; i++) {
        if (!targets[i].decoder)
            open_target(&targets[i], i & 1, i & 2, i & 4);
        decode(&targets[i], data, size);
    }
    return 0;
}
