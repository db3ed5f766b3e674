/* Random groups of samples as plain data, and writers of them in every form of a record. */
#ifndef TEST_DECODE_MODEL_H
#define TEST_DECODE_MODEL_H

#include "fixture.h"

#include <math.h>

#include "base/random.h"
#include "writer.h"

enum { MODEL_GROUPS = 6, MODEL_ITEMS = 6, MODEL_IDS = 8, MODEL_SAMPLES = MODEL_GROUPS * MODEL_ITEMS };

/* Draws are numbered within a model, so that every form gets the same draws. */
struct dice {
    uint64_t seed, record, count;
};

static inline uint64_t roll(struct dice *dice, uint64_t sides)
{
    return fr_random_u64(dice->seed, 1, dice->record, dice->count++) % sides;
}

struct value {
    bool present, nil, weighted, bare; /* bare: one id or number without an array */
    uint32_t n;
    struct {
        bool text;
        int64_t integer;
        char string[24];
    } ids[MODEL_IDS];
    float weights[MODEL_IDS];
    float numbers[3];
};

struct item {
    struct value own[N_CARRIED];
    float y[N_SAMPLE_LABELS]; /* NaN: nil */
    int64_t t_ms;
    uint32_t weighting; /* 0 none, 1 a number, 2 a map */
    float w[N_SAMPLE_LABELS];
    uint32_t use; /* 0: not given */
    float keep;   /* 0: not given */
};

struct model {
    uint32_t shared; /* bit s: slot s belongs to the group */
    bool one_time;   /* all samples have the time of the first */
    uint32_t n_groups;
    struct {
        uint32_t n_items;
        struct value shared[N_CARRIED];
        struct item items[MODEL_ITEMS];
    } groups[MODEL_GROUPS];
};

static const char *const slot_names[N_CARRIED] = {"user_id", "item_id", "history", "price", "vec", "context"};
static const char *const label_names[N_SAMPLE_LABELS] = {"click", "buy"};

static inline bool is_dense(int slot)
{
    return slot == SLOT_PRICE || slot == SLOT_VEC;
}

/* kind: 0 integers from 0 on, 1 strings, 2 anything. */
static inline void roll_value(struct dice *dice, int slot, uint64_t kind, struct value *value)
{
    memset(value, 0, sizeof(*value));
    value->present = roll(dice, 8) > 0;
    value->nil = roll(dice, 8) == 0;
    value->bare = roll(dice, 2);
    if (is_dense(slot)) {
        value->n = slot == SLOT_VEC ? 3 : 1;
        value->bare &= value->n == 1;
        for (uint32_t i = 0; i < value->n; i++)
            value->numbers[i] = (float)roll(dice, 1 << 20) / 977.0f;
        return;
    }
    value->n = value->bare ? 1 : (uint32_t)roll(dice, MODEL_IDS);
    value->weighted = !value->bare && roll(dice, 4) == 0;
    for (uint32_t i = 0; i < value->n; i++) {
        value->ids[i].text = kind == 1 || (kind == 2 && roll(dice, 2));
        value->ids[i].integer = (int64_t)roll(dice, 1 << 30) - (kind == 2 ? 1 << 29 : 0);
        snprintf(value->ids[i].string, sizeof(value->ids[i].string), roll(dice, 2) ? "%lld" : "id \xc3\xbc%lld",
                 (long long)roll(dice, 1000));
        value->weights[i] = (float)roll(dice, 64) / 8.0f - 2.0f;
    }
}

static inline void roll_item(struct dice *dice, struct item *item)
{
    for (int l = 0; l < N_SAMPLE_LABELS; l++) {
        uint64_t form = roll(dice, 4);
        item->y[l] = form == 0 ? NAN : form == 1 ? (float)roll(dice, 1025) / 1024.0f : (float)roll(dice, 2);
        item->w[l] = (float)roll(dice, 64) / 16.0f;
    }
    item->t_ms = TIMESTAMP_MS - (int64_t)roll(dice, 1000000);
    item->weighting = (uint32_t)roll(dice, 3);
    item->use = (uint32_t)roll(dice, 4);
    item->keep = (float)roll(dice, 4) / 4.0f;
}

static inline void roll_model(uint64_t seed, uint64_t number, struct model *model)
{
    struct dice dice = {.seed = seed, .record = number};
    memset(model, 0, sizeof(*model));
    model->shared = (uint32_t)roll(&dice, 1 << N_CARRIED);
    model->one_time = roll(&dice, 3) == 0;
    model->n_groups = 1 + (uint32_t)roll(&dice, MODEL_GROUPS);
    bool single = roll(&dice, 4) == 0;
    uint64_t kinds[N_CARRIED];
    for (int s = 0; s < N_CARRIED; s++)
        kinds[s] = roll(&dice, 3);
    for (uint32_t g = 0; g < model->n_groups; g++) {
        model->groups[g].n_items = single ? 1 : 1 + (uint32_t)roll(&dice, MODEL_ITEMS);
        for (int s = 0; s < N_CARRIED; s++)
            roll_value(&dice, s, kinds[s], &model->groups[g].shared[s]);
        for (uint32_t i = 0; i < model->groups[g].n_items; i++) {
            for (int s = 0; s < N_CARRIED; s++)
                roll_value(&dice, s, kinds[s], &model->groups[g].items[i].own[s]);
            roll_item(&dice, &model->groups[g].items[i]);
            if (model->one_time)
                model->groups[g].items[i].t_ms = model->groups[0].items[0].t_ms;
        }
    }
}

/* ---- values ---- */

static inline void write_id(struct writer *w, const struct value *value, uint32_t i)
{
    if (value->ids[i].text)
        write_string(w, value->ids[i].string);
    else
        write_integer(w, value->ids[i].integer);
}

static inline void write_value(struct writer *w, int slot, const struct value *value)
{
    if (!value->present || value->nil) {
        write_nil(w);
        return;
    }
    if (value->weighted) {
        write_map(w, 2);
        write_string(w, "w");
        write_array(w, value->n);
        for (uint32_t i = 0; i < value->n; i++)
            write_float(w, (double)value->weights[i]);
        write_string(w, "i");
    }
    if (!value->bare)
        write_array(w, value->n);
    for (uint32_t i = 0; i < value->n; i++)
        is_dense(slot) ? write_float(w, (double)value->numbers[i]) : write_id(w, value, i);
}

/* Both levels of a sample's slots; shared NULL: the own ones only, own NULL: the shared ones. */
static inline void write_slots(struct writer *w, const struct model *model, const struct value *own,
                               const struct value *shared)
{
    uint32_t n = 0;
    for (int turn = 0; turn < 2; turn++) {
        for (int s = 0; s < N_CARRIED; s++) {
            const struct value *values = model->shared >> s & 1 ? shared : own;
            if (!values || !values[s].present)
                continue;
            n++;
            if (turn == 0)
                continue;
            write_string(w, slot_names[s]);
            write_value(w, s, &values[s]);
        }
        if (turn == 0)
            write_map(w, n);
    }
}

/* ---- samples and groups ---- */

static inline void write_weight(struct writer *w, const struct item *item)
{
    if (item->weighting < 2) {
        write_float(w, item->weighting ? (double)item->w[0] : 1.0);
        return;
    }
    write_map(w, N_SAMPLE_LABELS);
    for (int l = 0; l < N_SAMPLE_LABELS; l++) {
        write_string(w, label_names[l]);
        write_float(w, (double)item->w[l]);
    }
}

static inline void write_label(struct writer *w, float y)
{
    if (isnan(y))
        write_nil(w);
    else
        write_float(w, (double)y);
}

/* shared: the group's values when the sample is to stand alone. */
static inline void write_item(struct writer *w, const struct model *model, const struct item *item,
                              const struct value *shared)
{
    bool timed = shared || !model->one_time; /* otherwise the group has the time */
    write_map(w, 2 + timed + (item->weighting > 0) + (item->use > 0) + (item->keep > 0));
    if (timed) {
        write_string(w, "t");
        write_integer(w, item->t_ms);
    }
    write_string(w, "f");
    write_slots(w, model, item->own, shared);
    write_string(w, "y");
    write_map(w, N_SAMPLE_LABELS);
    for (int l = N_SAMPLE_LABELS; l-- > 0;) {
        write_string(w, label_names[l]);
        write_label(w, item->y[l]);
    }
    if (item->weighting) {
        write_string(w, "w");
        write_weight(w, item);
    }
    if (item->use) {
        write_string(w, "u");
        write_integer(w, item->use);
    }
    if (item->keep > 0) {
        write_string(w, "s");
        write_float(w, (double)item->keep);
    }
}

static inline void write_group(struct writer *w, const struct model *model, uint32_t g)
{
    bool shared_first = g % 2;
    write_map(w, 2 + model->one_time);
    for (int turn = 0; turn < 2; turn++) {
        if ((turn == 0) == shared_first) {
            write_string(w, "shared");
            write_slots(w, model, NULL, model->groups[g].shared);
        } else {
            write_string(w, "items");
            write_array(w, model->groups[g].n_items);
            for (uint32_t i = 0; i < model->groups[g].n_items; i++)
                write_item(w, model, &model->groups[g].items[i], NULL);
        }
    }
    if (model->one_time) {
        write_string(w, "t");
        write_integer(w, model->groups[g].items[0].t_ms);
    }
}

/* ---- blocks ---- */

/* The values of a slot in block order: per group or per sample. */
static inline uint32_t column_values(const struct model *model, int slot, const struct value **values)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        if (model->shared >> slot & 1) {
            values[n++] = &model->groups[g].shared[slot];
            continue;
        }
        for (uint32_t i = 0; i < model->groups[g].n_items; i++)
            values[n++] = &model->groups[g].items[i].own[slot];
    }
    return n;
}

static inline void write_packed(struct writer *w, const char *key, struct fr_buffer *bytes)
{
    write_string(w, key);
    write_bin(w, bytes->data, bytes->size);
    fr_buffer_release(bytes);
}

static inline void put_f32(struct fr_buffer *out, float v)
{
    fr_buffer_append(out, &v, sizeof(v));
}

/* Returns false, and writes nothing, if the column cannot be packed: numbers that are nil, or ids
 * that are neither all integers from 0 on nor all strings. */
static inline bool write_packed_column(struct writer *w, int slot, const struct value **values, uint32_t n)
{
    struct fr_buffer ids = {0}, sizes = {0}, lengths = {0}, weights = {0};
    uint32_t texts = 0, integers = 0, others = 0;
    bool one_each = true, weighted = false;
    for (uint32_t v = 0; v < n; v++) {
        bool none = !values[v]->present || values[v]->nil;
        uint32_t count = none ? 0 : values[v]->n;
        others += none && is_dense(slot);
        one_each &= count == 1;
        weighted |= values[v]->weighted;
        fr_put_u32(&lengths, count);
        for (uint32_t i = 0; i < count; i++) {
            bool text = !is_dense(slot) && values[v]->ids[i].text;
            texts += text;
            integers += !text;
            others += !text && !is_dense(slot) && values[v]->ids[i].integer < 0;
            put_f32(&weights, values[v]->weighted ? values[v]->weights[i] : 1.0f);
            if (is_dense(slot))
                put_f32(&ids, values[v]->numbers[i]);
            else if (text)
                fr_buffer_append(&ids, values[v]->ids[i].string, strlen(values[v]->ids[i].string));
            else
                fr_put_u64(&ids, (uint64_t)values[v]->ids[i].integer);
            if (text)
                fr_put_u32(&sizes, (uint32_t)strlen(values[v]->ids[i].string));
        }
    }
    bool fits = others == 0 && (texts == 0 || integers == 0);
    if (fits) {
        bool with_lengths = !is_dense(slot) && !one_each;
        write_map(w, 1 + (texts > 0) + with_lengths + weighted);
        write_packed(w, texts ? "s" : "b", &ids);
        if (texts)
            write_packed(w, "sl", &sizes);
        if (with_lengths)
            write_packed(w, "l", &lengths);
        if (weighted)
            write_packed(w, "w", &weights);
    }
    fr_buffer_release(&ids);
    fr_buffer_release(&sizes);
    fr_buffer_release(&lengths);
    fr_buffer_release(&weights);
    return fits;
}

static inline void write_columns(struct writer *w, const struct model *model, bool shared, bool packed)
{
    uint32_t own = (1u << N_CARRIED) - 1 - model->shared;
    write_map(w, (uint32_t)__builtin_popcount(shared ? model->shared : own));
    for (int s = N_CARRIED; s-- > 0;) {
        const struct value *values[MODEL_SAMPLES];
        if ((model->shared >> s & 1) != shared)
            continue;
        uint32_t n = column_values(model, s, values);
        write_string(w, slot_names[s]);
        if (packed && write_packed_column(w, s, values, n))
            continue;
        write_array(w, n);
        for (uint32_t v = 0; v < n; v++)
            write_value(w, s, values[v]);
    }
}

static inline uint32_t all_items(const struct model *model, const struct item **items)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < model->n_groups; g++)
        for (uint32_t i = 0; i < model->groups[g].n_items; i++)
            items[n++] = &model->groups[g].items[i];
    return n;
}

/* One of the fields t, w, u, s, or label l of y. */
static inline void write_field(struct writer *w, char field, int l, const struct item **items, uint32_t n, bool packed)
{
    struct fr_buffer bytes = {0};
    bool maps = false;
    for (uint32_t i = 0; i < n; i++)
        maps |= field == 'w' && items[i]->weighting == 2;
    packed &= !maps;
    if (!packed)
        write_array(w, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t use = items[i]->use ? items[i]->use : 3;
        float number = field == 'y'   ? items[i]->y[l]
                       : field == 'w' ? (items[i]->weighting ? items[i]->w[0] : 1.0f)
                                      : (items[i]->keep > 0 ? items[i]->keep : 1.0f);
        if (packed) {
            if (field == 't')
                fr_put_u64(&bytes, (uint64_t)items[i]->t_ms);
            else if (field == 'u')
                fr_put_u8(&bytes, (uint8_t)use);
            else
                put_f32(&bytes, number);
        } else if (field == 't') {
            write_integer(w, items[i]->t_ms);
        } else if (field == 'u') {
            write_integer(w, use);
        } else if (field == 'w') {
            write_weight(w, items[i]);
        } else {
            write_label(w, number);
        }
    }
    if (packed) {
        write_map(w, 1);
        write_packed(w, "b", &bytes);
    }
}

static inline void write_sizes(struct writer *w, const struct model *model, bool packed)
{
    struct fr_buffer sizes = {0};
    if (!packed)
        write_array(w, model->n_groups);
    for (uint32_t g = 0; g < model->n_groups; g++)
        packed ? fr_put_u32(&sizes, model->groups[g].n_items) : write_integer(w, model->groups[g].n_items);
    if (packed) {
        write_map(w, 1);
        write_packed(w, "b", &sizes);
    }
}

static inline void write_block(struct writer *w, const struct model *model, bool packed)
{
    const struct item *items[MODEL_SAMPLES];
    uint32_t n = all_items(model, items);
    write_map(w, 9);
    write_string(w, "y");
    write_map(w, N_SAMPLE_LABELS);
    for (int l = 0; l < N_SAMPLE_LABELS; l++) {
        write_string(w, label_names[l]);
        write_field(w, 'y', l, items, n, packed);
    }
    write_string(w, "shared");
    write_columns(w, model, true, packed);
    write_string(w, "n");
    write_integer(w, n);
    write_string(w, "g");
    write_sizes(w, model, packed);
    write_string(w, "cols");
    write_columns(w, model, false, packed);
    for (int i = 0; i < 4; i++) {
        char name[2] = {"tuws"[i], 0};
        write_string(w, name);
        if (name[0] == 't' && model->one_time)
            write_integer(w, items[0]->t_ms);
        else
            write_field(w, name[0], 0, items, n, packed);
    }
}

/* ---- forms ---- */

/* ALONE and ARRAY_ALONE: every sample with its shared values copied; the others carry the
 * groups. */
enum form { FORM_ALONE, FORM_ARRAY_ALONE, FORM_GROUP, FORM_ARRAY_GROUP, FORM_BLOCK, FORM_PACKED, N_FORMS };

/* Records of the model in that form; the writer's format decides about msgpack or JSON. begin:
 * [MODEL_SAMPLES + 1]. */
static inline uint32_t write_records(struct writer *w, enum form form, const struct model *model, size_t *begin)
{
    const struct item *items[MODEL_SAMPLES];
    uint32_t n = 0, samples = all_items(model, items);
    begin[0] = 0;
    if (form == FORM_ARRAY_ALONE)
        write_array(w, samples);
    if (form == FORM_ARRAY_GROUP)
        write_array(w, model->n_groups);
    if (form == FORM_BLOCK || form == FORM_PACKED)
        write_block(w, model, form == FORM_PACKED);
    for (uint32_t g = 0; g < model->n_groups && form <= FORM_ARRAY_GROUP; g++) {
        if (form >= FORM_GROUP)
            write_group(w, model, g);
        if (form == FORM_GROUP)
            begin[++n] = w->out.size;
        for (uint32_t i = 0; i < model->groups[g].n_items && form < FORM_GROUP; i++) {
            write_item(w, model, &model->groups[g].items[i], model->groups[g].shared);
            if (form == FORM_ALONE)
                begin[++n] = w->out.size;
        }
    }
    if (form != FORM_ALONE && form != FORM_GROUP)
        begin[++n] = w->out.size;
    return n;
}

#endif
