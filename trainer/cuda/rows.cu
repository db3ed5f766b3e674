/* Kernels over embedding rows: pooling, steps, gradients of rows and their optimizers, first
 * values, staging for a cut.
 *
 * The gradient of a row is summed by one warp, whose lanes have the columns, over the
 * occurrences that the plan sorted by key. They are summed in blocks of FR_OCCURRENCE_BLOCK, and
 * the blocks in order, as on the processor and with the same bits. The blocks of a frequent key
 * are summed before, each by its own warp, so that thousands of occurrences do not form one
 * chain. There are no atomics on floats: a key belongs to one warp.
 *
 * The sum lies in shared memory if it fits, otherwise in the queue's workspace. A lane reads and
 * writes its own columns only; a number that the row has only once (an accumulator, an age) is
 * read by all lanes before lane 0 writes it. Updates do nothing once the queue's flag is set. */
#include "kernel.h"
#include "base/random_math.h"
#include "ops/pooling.h"

/* ---- pooling ---- */

FR_KERNEL(gather_kernel, struct fr_gather)
{
    FR_EACH (at, (size_t)(c.entry_end - c.entry_begin) * c.dim) {
        struct fr_cell cell = fr_cell_of(at, c.dim);
        size_t s = c.entry_begin + cell.row;
        uint32_t begin = c.begin[s], end = c.begin[s + 1];
        float scale = fr_pooling_scale(c.kind, c.weights, begin, end), pooled = 0.0f;
        float *chosen = fr_pooling_chooses(c.kind) ? c.kept + s * c.dim + cell.column : NULL;
        bool any = false;
        if (chosen)
            fr_pooling_choose_none(chosen, 1);
        for (uint32_t p = begin; p < end; p++) {
            const float *row = c.rows[c.unique_of[p]];
            if (!row)
                continue;
            float coef = (c.weights ? c.weights[p] : 1.0f) * scale;
            float term = coef * row[c.value_offset + cell.column];
            if (chosen)
                fr_pooling_offer(c.kind, &pooled, chosen, &term, 1.0f, p, 1, any);
            else
                pooled = any ? pooled + term : term;
            any = true;
        }
        *fr_at(c.out, s, cell.column) = pooled;
        if (fr_pooling_keeps_scale(c.kind) && cell.column == 0)
            c.kept[s] = scale;
    }
}

void fr_device_gather(struct fr_device_queue *queue, const struct fr_gather *call)
{
    size_t n = (size_t)(call->entry_end - call->entry_begin) * call->dim;
    FR_LAUNCH(queue, gather_kernel, fr_queue_blocks(queue, n), *call);
}

FR_KERNEL(gather_steps_kernel, struct fr_gather_steps)
{
    FR_EACH (at, (size_t)(c.end - c.begin) * c.dim) {
        struct fr_cell cell = fr_cell_of(at, c.dim);
        size_t p = c.begin + cell.row;
        const float *row = c.rows[c.unique_of[p]];
        float weight = c.weights ? c.weights[p] : 1.0f;
        *fr_at(c.out, p, cell.column) = row ? weight * row[c.value_offset + cell.column] : 0.0f;
        if (cell.column == 0)
            c.masked[p] = row == NULL;
    }
}

void fr_device_gather_steps(struct fr_device_queue *queue, const struct fr_gather_steps *call)
{
    FR_LAUNCH(queue, gather_steps_kernel, fr_queue_blocks(queue, (size_t)(call->end - call->begin) * call->dim), *call);
}

/* ---- gradients of rows ---- */

enum { SHARED_FLOATS = 256 }; /* floats of a warp: the sums of all parts */

struct update_call {
    struct fr_row_update update;
    struct fr_device_long_keys keys;
    bool have_keys;
    float *workspace;     /* [active warps, 2 dims] */
    const uint32_t *flag; /* NULL: none */
    uint32_t *largest;    /* only for check_rows */
};

/* Returns the number of floats of all parts. The host has no such number, because the parts lie
 * on the device. */
FR_DEVICE uint32_t dims_of(const struct fr_row_update *u)
{
    uint32_t dims = 0;
    for (uint32_t p = 0; p < u->n_parts; p++)
        dims += u->parts[p].dim;
    return dims;
}

/* Begins or continues the sum of a part in the lane's own columns. */
FR_DEVICE void add_columns(float *sum, const float *d, uint32_t dim, float coef, bool begun)
{
    FR_EACH_BY_LANE (j, dim)
        sum[j] = begun ? sum[j] + coef * d[j] : coef * d[j];
}

/* Sums occurrences [begin, end) of one key into `sums`, which has one part after another, and
 * adds to the counts. Returns the parts that are reached. */
FR_DEVICE uint32_t sum_occurrences(const struct fr_row_update *u, uint32_t begin, uint32_t end, float *sums,
                                   uint32_t *counts)
{
    uint32_t reached = 0;
    for (uint32_t o = begin; o < end; o++) {
        uint32_t number = u->occ[o], counted = 0;
        struct fr_occurrence at = fr_occurrence_at(u, o);
        for (uint32_t k = u->source_begin[at.group]; k < u->source_begin[at.group + 1]; k++) {
            const struct fr_row_source *source = &u->sources[k];
            uint32_t id = number - source->first, bit = 1u << source->part;
            if (source->trained[at.entry] == 0 || (source->masked && source->masked[id]))
                continue;
            float coef = source->weights ? source->weights[id] : 1.0f;
            if (fr_pooling_keeps_scale(source->pooling))
                coef *= source->kept[at.entry];
            float *sum = sums;
            for (uint32_t p = 0; p < source->part; p++)
                sum += u->parts[p].dim;
            uint32_t dim = u->parts[source->part].dim;
            const float *d = fr_at(source->gradient, source->by_id ? id : at.entry, 0);
            if (fr_pooling_chooses(source->pooling))
                fr_pooling_add_reached(sum, d, source->kept + (size_t)at.entry * dim, id, coef, dim,
                                       (reached & bit) != 0, fr_lane(), FR_WARP);
            else
                add_columns(sum, d, dim, coef, (reached & bit) != 0);
            reached |= bit;
            if (!(counted & bit)) /* an occurrence counts once, however many readers it has */
                counts[source->part] += source->counted[at.entry];
            counted |= bit;
        }
    }
    return reached;
}

/* Adds the sums of a block to those of the key. */
FR_DEVICE uint32_t join_block(const struct fr_row_update *u, const float *block, uint32_t parts, float *sums,
                              uint32_t reached)
{
    for (uint32_t p = 0; p < u->n_parts; p++) {
        uint32_t dim = u->parts[p].dim;
        if (parts >> p & 1)
            add_columns(sums, block, dim, 1.0f, reached >> p & 1);
        sums += dim;
        block += dim;
    }
    return reached | parts;
}

/* Computes the gradients of all parts of one key. `block` has room for the same number of
 * floats. */
FR_DEVICE uint32_t row_gradient(const struct update_call *c, uint32_t unique, float *sums, float *block,
                                uint32_t *counts)
{
    const struct fr_row_update *u = &c->update;
    uint32_t begin = u->occ_begin[unique], end = u->occ_begin[unique + 1], reached = 0;
    for (uint32_t p = 0; p < u->n_parts; p++)
        counts[p] = 0;
    if (end - begin <= FR_OCCURRENCE_BLOCK)
        return sum_occurrences(u, begin, end, sums, counts);
    uint32_t summed = c->have_keys ? c->keys.first_block[unique] : FR_DEVICE_SHORT;
    for (uint32_t o = begin; o < end; o += FR_OCCURRENCE_BLOCK) {
        if (summed == FR_DEVICE_SHORT) {
            uint32_t until = end - o < FR_OCCURRENCE_BLOCK ? end : o + FR_OCCURRENCE_BLOCK;
            reached = join_block(u, block, sum_occurrences(u, o, until, block, counts), sums, reached);
            continue;
        }
        uint32_t parts = 0;
        for (uint32_t p = 0; p < u->n_parts; p++) {
            uint32_t word = c->keys.counts[(size_t)summed * u->n_parts + p];
            parts |= (word & FR_DEVICE_REACHED ? 1u : 0u) << p;
            counts[p] += word & ~FR_DEVICE_REACHED;
        }
        reached = join_block(u, c->keys.sums + (size_t)summed * dims_of(u), parts, sums, reached);
        summed++;
    }
    return reached;
}

/* Returns the room for the sums of this warp and of a block; *warps gets the number of warps
 * that have room. */
FR_DEVICE float *room_of(const struct update_call *c, uint32_t dims, float *shared, uint32_t *warps)
{
    size_t fit = FR_WORKSPACE_BYTES / (2 * (size_t)dims * sizeof(float));
    *warps = fr_warps();
    if (2 * dims <= SHARED_FLOATS)
        return shared + threadIdx.x / FR_WARP * SHARED_FLOATS;
    *warps = fit < *warps ? (uint32_t)fit : *warps;
    return c->workspace + (size_t)fr_warp() * 2 * dims;
}

/* ---- optimizers ---- */

/* Computes fr_row_sum_squares by a warp, with the same 32 partial sums and the same tree. */
FR_DEVICE float warp_squares(const float *g, uint32_t dim)
{
    return fr_warp_sum(fr_row_square_partial(g, dim, fr_lane()));
}

FR_DEVICE bool warp_untouched(const float *n, uint32_t dim)
{
    float largest = 0.0f;
    FR_EACH_BY_LANE (j, dim)
        largest = n[j] > largest ? n[j] : largest;
    return fr_warp_largest(largest) == 0.0f;
}

/* The accumulator, of which a row has one, is copied first and written back after all lanes have
 * read it. */
FR_DEVICE void adagrad_rowwise(float *w, float *acc, const float *g, uint32_t dim, const struct fr_optimizer *o,
                               const struct fr_pace *pace)
{
    float own = *acc, squares = warp_squares(g, dim);
    fr_warp_meet();
    fr_row_adagrad_rowwise(w, &own, g, dim, squares, o, pace, fr_lane(), FR_WARP);
    if (fr_lane() == 0)
        *acc = own;
}

FR_DEVICE void adam_rowwise(float *w, float *m, float *second, const float *g, uint32_t dim,
                            const struct fr_optimizer *o, const struct fr_pace *pace)
{
    float own = *second, squares = warp_squares(g, dim);
    fr_warp_meet();
    fr_row_adam_rowwise(w, m, &own, g, dim, squares, o, pace, fr_lane(), FR_WARP);
    if (fr_lane() == 0)
        *second = own;
}

FR_DEVICE void group_ftrl(float *w, float *z, float *n, const float *g, uint32_t dim, const struct fr_optimizer *o)
{
    bool first = warp_untouched(n, dim);
    float first_squares = first ? warp_squares(w, dim) : -1.0f;
    fr_row_group_ftrl_shrink(w, z, n, g, dim, first_squares, o, fr_lane(), FR_WARP);
    fr_row_group_ftrl_values(w, n, dim, warp_squares(w, dim), o, fr_lane(), FR_WARP);
}

/* Does the work of fr_row_step by a warp: one part of a row. */
FR_DEVICE void warp_step(float *w, float *state, float *g, uint32_t dim, uint32_t count, const struct fr_optimizer *o)
{
    uint32_t lane = fr_lane();
    float *age = fr_row_age_of(state, dim, o->kind);
    uint32_t next_age = age ? fr_row_age(*age, count) : 0;
    struct fr_pace pace = fr_row_pace(o, count, next_age);
    fr_warp_meet();
    if (age && lane == 0)
        *age = (float)next_age;
    if (fr_shapes_gradient(o)) {
        float squares = o->clip_norm != 0.0f ? warp_squares(g, dim) : 0.0f;
        fr_row_shape_gradient(g, w, dim, squares, o, &pace, lane, FR_WARP);
    }
    switch (o->kind) {
    case FR_OPT_SGD:
        fr_row_sgd(w, g, dim, &pace, lane, FR_WARP);
        break;
    case FR_OPT_MOMENTUM:
        fr_row_momentum(w, state, g, dim, &pace, lane, FR_WARP);
        break;
    case FR_OPT_ADAGRAD:
        fr_row_adagrad(w, state, g, dim, o, &pace, lane, FR_WARP);
        break;
    case FR_OPT_ADAGRAD_ROWWISE:
        adagrad_rowwise(w, state, g, dim, o, &pace);
        break;
    case FR_OPT_RMSPROP:
        fr_row_rmsprop(w, state, g, dim, o, &pace, lane, FR_WARP);
        break;
    case FR_OPT_ADAM:
        fr_row_adam(w, state, state + dim, g, dim, o, &pace, lane, FR_WARP);
        break;
    case FR_OPT_ADAM_ROWWISE:
        adam_rowwise(w, state, state + dim, g, dim, o, &pace);
        break;
    case FR_OPT_FTRL:
        fr_row_ftrl(w, state, state + dim, g, dim, o, &pace, lane, FR_WARP);
        break;
    case FR_OPT_GROUP_FTRL:
        group_ftrl(w, state, state + dim, g, dim, o);
        break;
    case FR_OPT_ADAMW: /* not an optimizer of rows; refused when the graph is made */
        break;
    }
}

/* ---- kernels ---- */

FR_KERNEL(sum_blocks_kernel, struct update_call)
{
    if (c.flag && *c.flag)
        return;
    const struct fr_row_update *u = &c.update;
    uint32_t dims = dims_of(u);
    FR_EACH_BY_WARP (b, c.keys.n_blocks) {
        uint32_t unique = c.keys.unique[b], begin = c.keys.begin[b], last = u->occ_begin[unique + 1];
        uint32_t end = last - begin < FR_OCCURRENCE_BLOCK ? last : begin + FR_OCCURRENCE_BLOCK;
        uint32_t counts[FR_ROW_PARTS_MAX];
        for (uint32_t p = 0; p < u->n_parts; p++)
            counts[p] = 0;
        uint32_t reached = 0;
        if (unique >= u->begin && unique < u->end && u->rows[unique])
            reached = sum_occurrences(u, begin, end, c.keys.sums + (size_t)b * dims, counts);
        for (uint32_t p = 0; p < u->n_parts && fr_lane() == 0; p++)
            c.keys.counts[(size_t)b * u->n_parts + p] = counts[p] | (reached >> p & 1 ? FR_DEVICE_REACHED : 0);
    }
}

FR_KERNEL(update_rows_kernel, struct update_call)
{
    FR_SHARED(float, shared, FR_BLOCK_WARPS *SHARED_FLOATS);
    if (c.flag && *c.flag)
        return;
    uint32_t dims = dims_of(&c.update), warps;
    float *sums = room_of(&c, dims, shared, &warps), *block = sums + dims;
    for (uint32_t at = fr_warp(); at < c.update.end - c.update.begin && fr_warp() < warps; at += warps) {
        uint32_t unique = c.update.begin + at, counts[FR_ROW_PARTS_MAX];
        float *row = c.update.rows[unique], *sum = sums;
        if (!row)
            continue;
        uint32_t reached = row_gradient(&c, unique, sums, block, counts);
        for (uint32_t p = 0; p < c.update.n_parts; p++) {
            const struct fr_row_part *part = &c.update.parts[p];
            if (reached >> p & 1)
                warp_step(row + part->value_offset, row + part->state_offset, sum, part->dim, counts[p],
                          &part->optimizer);
            sum += part->dim;
        }
    }
}

FR_KERNEL(check_rows_kernel, struct update_call)
{
    FR_SHARED(float, shared, FR_BLOCK_WARPS *SHARED_FLOATS);
    uint32_t dims = dims_of(&c.update), warps;
    float *sums = room_of(&c, dims, shared, &warps), *block = sums + dims;
    uint32_t largest = 0;
    for (uint32_t at = fr_warp(); at < c.update.end - c.update.begin && fr_warp() < warps; at += warps) {
        uint32_t unique = c.update.begin + at, counts[FR_ROW_PARTS_MAX];
        const float *sum = sums;
        if (!c.update.rows[unique])
            continue;
        uint32_t reached = row_gradient(&c, unique, sums, block, counts);
        for (uint32_t p = 0; p < c.update.n_parts; p++) {
            uint32_t dim = c.update.parts[p].dim;
            FR_EACH_BY_LANE (j, dim) {
                uint32_t bits = reached >> p & 1 ? fr_f32_bits(sum[j]) & 0x7fffffffu : 0;
                largest = bits > largest ? bits : largest;
            }
            sum += dim;
        }
    }
    if (largest > 0)
        fr_atomic_max(c.largest, largest);
}

static struct update_call update_call_of(struct fr_device_queue *queue, const struct fr_row_update *update,
                                         const struct fr_device_long_keys *keys)
{
    struct update_call call;
    memset(&call, 0, sizeof(call));
    call.update = *update;
    call.have_keys = keys && keys->n_blocks > 0;
    if (call.have_keys)
        call.keys = *keys;
    call.workspace = (float *)fr_queue_workspace(queue);
    call.flag = fr_queue_flag(queue);
    return call;
}

static void update_rows(struct fr_device_queue *queue, const struct fr_row_update *update,
                        const struct fr_device_long_keys *keys)
{
    struct update_call call = update_call_of(queue, update, keys);
    if (update->begin == update->end)
        return;
    if (call.have_keys)
        FR_LAUNCH(queue, sum_blocks_kernel, fr_queue_blocks(queue, (size_t)keys->n_blocks * FR_WARP), call);
    FR_LAUNCH(queue, update_rows_kernel, fr_queue_blocks(queue, (size_t)(update->end - update->begin) * FR_WARP), call);
}

void fr_device_update_rows(struct fr_device_queue *queue, const struct fr_row_update *update)
{
    update_rows(queue, update, NULL);
}

void fr_device_update_rows_long(struct fr_device_queue *queue, const struct fr_row_update *update,
                                const struct fr_device_long_keys *keys)
{
    update_rows(queue, update, keys);
}

void fr_device_check_rows(struct fr_device_queue *queue, uint32_t *bits, const struct fr_row_update *update)
{
    struct update_call call = update_call_of(queue, update, NULL);
    call.largest = bits;
    if (update->begin < update->end)
        FR_LAUNCH(queue, check_rows_kernel, fr_queue_blocks(queue, (size_t)(update->end - update->begin) * FR_WARP),
                  call);
}

/* ---- first values ---- */

FR_DEVICE double first_value(const struct fr_device_part_init *part, uint64_t start, uint64_t index)
{
    switch (part->kind) {
    case FR_INIT_NORMAL:
    case FR_INIT_XAVIER_NORMAL:
    case FR_INIT_KAIMING_NORMAL:
        return (double)fr_random_weight_at(start, index);
    case FR_INIT_TRUNCATED_NORMAL:
        return fr_random_truncated_normal_at(start, index);
    case FR_INIT_DEFAULT:
    case FR_INIT_UNIFORM:
    case FR_INIT_XAVIER_UNIFORM:
    case FR_INIT_KAIMING_UNIFORM:
        return 2.0 * fr_random_uniform_at(start, index) - 1.0;
    case FR_INIT_CONSTANT:
        return 1.0;
    case FR_INIT_ZEROS:
        break;
    }
    return 0.0;
}

FR_KERNEL(init_rows_kernel, struct fr_device_row_init)
{
    FR_EACH_BY_WARP (r, c.n) {
        float *row = c.rows[r];
        uint64_t start = fr_random_start(c.seed, c.stream, c.keys[r]);
        for (uint32_t p = 0; p < c.n_parts; p++) {
            struct fr_device_part_init part = c.parts[p];
            FR_EACH_BY_LANE (j, part.dim)
                row[part.value_offset + j] = (float)(first_value(&part, start, part.value_offset + j) * part.scale);
            FR_EACH_BY_LANE (j, part.state_floats)
                row[part.state_offset + j] = part.state_initial;
        }
    }
}

void fr_device_init_rows(struct fr_device_queue *queue, const struct fr_device_row_init *call)
{
    if (call->n > 0)
        FR_LAUNCH(queue, init_rows_kernel, fr_queue_blocks(queue, (size_t)call->n * FR_WARP), *call);
}

/* ---- staging ---- */

FR_KERNEL(gather_rows_kernel, struct fr_device_rows)
{
    FR_EACH (at, (size_t)c.n * c.floats) {
        struct fr_cell cell = fr_cell_of(at, c.floats);
        c.staging[at] = c.rows[cell.row][cell.column];
    }
}

FR_KERNEL(scatter_rows_kernel, struct fr_device_rows)
{
    FR_EACH (at, (size_t)c.n * c.floats) {
        struct fr_cell cell = fr_cell_of(at, c.floats);
        c.rows[cell.row][cell.column] = c.staging[at];
    }
}

void fr_device_gather_rows(struct fr_device_queue *queue, const struct fr_device_rows *call)
{
    FR_LAUNCH(queue, gather_rows_kernel, fr_queue_blocks(queue, (size_t)call->n * call->floats), *call);
}

void fr_device_scatter_rows(struct fr_device_queue *queue, const struct fr_device_rows *call)
{
    FR_LAUNCH(queue, scatter_rows_kernel, fr_queue_blocks(queue, (size_t)call->n * call->floats), *call);
}
