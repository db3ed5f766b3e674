/* One harness for all layer operations: a scene is what an operation reads and writes on ragged
 * entries; check_operation compares every backend with the reference, and the reference with finite
 * differences. The files test_layers_*.c define for each operation its views and its call. */
#ifndef FR_TESTS_OPS_SCENE_H
#define FR_TESTS_OPS_SCENE_H

#include "backends.h"

enum { VIEWS_MAX = 8, SEQUENCES = 3 };

/* Which rows of a view belong to an entry. */
enum rows_of {
    ROWS_VECTOR, /* one row an entry */
    ROWS_STEPS,  /* the steps of sequence 0, 1 or 2 */
    ROWS_STEPS_1,
    ROWS_STEPS_2,
    /* steps of sequence 1 for each step of sequence 0: groups of samples with sequences */
    ROWS_EXPANDED,
    ROWS_PARAMETER, /* one row for all */
};

struct ragged {
    uint32_t *begin; /* [entries + 1] */
    uint8_t *masked;
};

struct scene {
    uint32_t m, width, count; /* entries, columns, inputs of operations over several */
    uint64_t seed;
    bool smooth; /* values on a grid, away from 0: for finite differences */
    struct ragged sequence[SEQUENCES];
    uint32_t *expanded_begin; /* [steps of sequence 0 + 1] */
    uint32_t n_in, n_out;
    enum rows_of in_rows[VIEWS_MAX], out_rows[VIEWS_MAX];
    uint32_t in_columns[VIEWS_MAX], out_columns[VIEWS_MAX];
    /* a gradient with .values NULL is not wanted */
    struct fr_view in[VIEWS_MAX], in_gradient[VIEWS_MAX];
    struct fr_view out[VIEWS_MAX];
    struct fr_view out_gradient; /* of out[0] */
};

struct operation {
    const char *name;
    /* normalized mean square error against the reference; 0: same bits */
    double bound;
    void (*lay_out)(struct scene *s); /* defines the views, by add_in and add_out */
    /* Entries [first, first + n). */
    void (*forward)(const struct fr_ops *ops, struct scene *s, uint32_t first, uint32_t n);
    void (*backward)(const struct fr_ops *ops, struct scene *s); /* all entries; NULL: none */
    bool copies;     /* forward gives the same bits as the reference, whatever the bound */
    bool whole_rows; /* bits of an entry need fr_ops.rows_independent */
    uint32_t count;
};

static inline void *positive_alloc(size_t n, size_t size)
{
    return fr_alloc(n > 0 ? n : 1, size);
}

/* Lengths 0 to 9 (a few 0), every fifth entry masked throughout, every fourth step of others
 * masked. */
static inline struct ragged make_ragged(uint32_t m, uint64_t seed)
{
    struct ragged r = {.begin = positive_alloc((size_t)m + 1, sizeof(uint32_t))};
    r.begin[0] = 0;
    for (uint32_t e = 0; e < m; e++)
        r.begin[e + 1] = r.begin[e] + (e % 6 == 4 ? 0 : (uint32_t)(fr_random_u64(seed, 9, 0, e) % 10));
    r.masked = positive_alloc(r.begin[m], 1);
    for (uint32_t e = 0; e < m; e++)
        for (uint32_t p = r.begin[e]; p < r.begin[e + 1]; p++)
            r.masked[p] = e % 5 == 3 || fr_random_u64(seed, 10, 0, p) % 4 == 0;
    return r;
}

static inline struct fr_steps steps_of(const struct scene *s, uint32_t sequence, uint32_t first, uint32_t n)
{
    return (struct fr_steps){s->sequence[sequence].begin, s->sequence[sequence].masked, first, first + n};
}

/* Rows of a view that belong to entries [first, first + n). */
static inline void row_range(const struct scene *s, enum rows_of rows, uint32_t first, uint32_t n, size_t *begin,
                             size_t *end)
{
    *begin = first;
    *end = (size_t)first + n;
    if (rows >= ROWS_STEPS && rows <= ROWS_STEPS_2) {
        *begin = s->sequence[rows - ROWS_STEPS].begin[first];
        *end = s->sequence[rows - ROWS_STEPS].begin[first + n];
    } else if (rows == ROWS_EXPANDED) {
        *begin = s->expanded_begin[s->sequence[0].begin[first]];
        *end = s->expanded_begin[s->sequence[0].begin[first + n]];
    } else if (rows == ROWS_PARAMETER) {
        *begin = 0;
        *end = 1;
    }
}

static inline size_t rows_in(const struct scene *s, enum rows_of rows)
{
    size_t begin, end;
    row_range(s, rows, 0, s->m, &begin, &end);
    return end;
}

static inline struct fr_view poisoned_view(size_t rows, uint32_t columns)
{
    struct fr_view v = random_view(rows, columns, columns + 3, 0);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            v.values[i * v.ld + j] = NAN;
    return v;
}

/* Multiples of 2^-7 with 1/8 <= |x| < 9/8, so that steps of 2^-7 and 2^-6 are exact and do not
 * cross a kink at 0. */
static inline void make_smooth(struct fr_view v, size_t rows, uint32_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            float *x = &v.values[i * v.ld + j], grid = floorf(fabsf(*x) * 128.0f) / 128.0f + 0.125f;
            *x = *x < 0.0f ? -grid : grid;
        }
    }
}

static inline void add_in(struct scene *s, enum rows_of rows, uint32_t columns)
{
    uint32_t k = s->n_in++;
    size_t n = rows_in(s, rows);
    s->in_rows[k] = rows;
    s->in_columns[k] = columns;
    s->in[k] = random_view(n, columns, columns + k % 3, s->seed + 40 + k);
    s->in_gradient[k] = random_view(n, columns, columns + (rows == ROWS_PARAMETER ? 0 : 2), s->seed + 60 + k);
    if (s->smooth)
        make_smooth(s->in[k], n, columns);
    for (size_t i = 0; i < n && s->smooth; i++)
        memset(s->in_gradient[k].values + i * s->in_gradient[k].ld, 0, columns * sizeof(float));
}

static inline void add_out(struct scene *s, enum rows_of rows, uint32_t columns)
{
    uint32_t k = s->n_out++;
    s->out_rows[k] = rows;
    s->out_columns[k] = columns;
    s->out[k] = poisoned_view(rows_in(s, rows), columns);
    if (k == 0)
        s->out_gradient = random_view(rows_in(s, rows), columns, columns + 1, s->seed + 80);
}

static inline struct scene make_scene(const struct operation *op, uint32_t m, uint32_t width, bool smooth)
{
    struct scene s = {.m = m, .width = width, .count = op->count, .seed = 7, .smooth = smooth};
    for (uint32_t k = 0; k < SEQUENCES; k++)
        s.sequence[k] = make_ragged(m, 11 + k);
    uint32_t samples = s.sequence[0].begin[m];
    s.expanded_begin = positive_alloc((size_t)samples + 1, sizeof(uint32_t));
    s.expanded_begin[0] = 0;
    for (uint32_t e = 0; e < m; e++)
        for (uint32_t p = s.sequence[0].begin[e]; p < s.sequence[0].begin[e + 1]; p++)
            s.expanded_begin[p + 1] = s.expanded_begin[p] + s.sequence[1].begin[e + 1] - s.sequence[1].begin[e];
    op->lay_out(&s);
    return s;
}

static inline void release_view(struct fr_view v, size_t rows, uint32_t columns)
{
    assert_row_ends_untouched(v, rows, columns);
    release_guarded(v.values, rows * v.ld);
}

static inline void release_scene(struct scene *s)
{
    for (uint32_t k = 0; k < s->n_in; k++) {
        release_view(s->in[k], rows_in(s, s->in_rows[k]), s->in_columns[k]);
        release_view(s->in_gradient[k], rows_in(s, s->in_rows[k]), s->in_columns[k]);
    }
    for (uint32_t k = 0; k < s->n_out; k++)
        release_view(s->out[k], rows_in(s, s->out_rows[k]), s->out_columns[k]);
    release_view(s->out_gradient, rows_in(s, s->out_rows[0]), s->out_columns[0]);
    for (uint32_t k = 0; k < SEQUENCES; k++) {
        free(s->sequence[k].begin);
        free(s->sequence[k].masked);
    }
    free(s->expanded_begin);
}

/* A vector view from entry `first` on. */
static inline struct fr_view from_row(struct fr_view v, uint32_t first)
{
    return (struct fr_view){v.values ? v.values + first * v.ld : NULL, v.ld};
}

static inline void compare(const struct operation *op, struct fr_view got, struct fr_view want, size_t rows,
                           uint32_t columns, const char *what)
{
    char text[160];
    snprintf(text, sizeof(text), "%s, %s, %zu rows of %u", op->name, what, rows, columns);
    if (op->bound == 0.0)
        assert_same_bits(got, want, rows, columns, text);
    else
        assert_nmse(got, want, rows, columns, op->bound, text);
}

static inline void compare_outputs(const struct operation *op, const struct scene *a, const struct scene *b, bool bits,
                                   const char *what)
{
    for (uint32_t k = 0; k < a->n_out; k++) {
        size_t rows = rows_in(a, a->out_rows[k]);
        if (bits)
            assert_same_bits(a->out[k], b->out[k], rows, a->out_columns[k], what);
        else
            compare(op, a->out[k], b->out[k], rows, a->out_columns[k], what);
    }
}

/* Gradients of all inputs but `skipped`. */
static inline void compare_gradients(const struct operation *op, const struct scene *a, const struct scene *b,
                                     bool bits, uint32_t skipped)
{
    for (uint32_t k = 0; k < a->n_in; k++) {
        size_t rows = rows_in(a, a->in_rows[k]);
        char what[96];
        snprintf(what, sizeof(what), "%s: gradient of input %u", op->name, k);
        if (k != skipped && bits)
            assert_same_bits(a->in_gradient[k], b->in_gradient[k], rows, a->in_columns[k], what);
        else if (k != skipped)
            compare(op, a->in_gradient[k], b->in_gradient[k], rows, a->in_columns[k], what);
    }
}

/* Computes each entry alone, from the last to the first: the bits must be those of the whole
 * chunk. */
static inline void check_entries_alone(const struct fr_ops *ops, const struct operation *op, const struct scene *whole)
{
    struct scene alone = make_scene(op, whole->m, whole->width, false);
    for (uint32_t e = whole->m; e-- > 0;)
        op->forward(ops, &alone, e, 1);
    compare_outputs(op, whole, &alone, true, op->name);
    release_scene(&alone);
}

/* A gradient that is not wanted is not written, and the other gradients keep their bits. */
static inline void check_unwanted(const struct fr_ops *ops, const struct operation *op, const struct scene *all)
{
    for (uint32_t k = 0; k < all->n_in; k++) {
        struct scene s = make_scene(op, all->m, all->width, false);
        op->forward(ops, &s, 0, s.m);
        float *kept = s.in_gradient[k].values;
        s.in_gradient[k].values = NULL;
        op->backward(ops, &s);
        s.in_gradient[k].values = kept;
        compare_gradients(op, all, &s, true, k);
        release_scene(&s);
    }
}

/* Entry 1 becomes NaN and infinite: nothing crashes and no other entry changes. */
static inline void check_not_finite(const struct fr_ops *ops, const struct operation *op, const struct scene *clean)
{
    struct scene s = make_scene(op, clean->m, clean->width, false);
    size_t begin, end;
    for (uint32_t k = 0; k < s.n_in && s.m > 1; k++) {
        row_range(&s, s.in_rows[k], 1, 1, &begin, &end);
        for (size_t i = begin; i < end && s.in_rows[k] != ROWS_PARAMETER; i++)
            for (size_t j = 0; j < s.in_columns[k]; j++)
                s.in[k].values[i * s.in[k].ld + j] = j % 3 == 0 ? NAN : j % 3 == 1 ? INFINITY : -INFINITY;
    }
    op->forward(ops, &s, 0, s.m);
    for (uint32_t k = 0; k < s.n_out && s.m > 1; k++) {
        row_range(&s, s.out_rows[k], 1, 1, &begin, &end);
        size_t rows = rows_in(&s, s.out_rows[k]), ld = s.out[k].ld;
        struct fr_view got = {s.out[k].values + end * ld, ld}, want = {clean->out[k].values + end * ld, ld};
        assert_same_bits(s.out[k], clean->out[k], begin, s.out_columns[k], op->name);
        assert_same_bits(got, want, rows - end, s.out_columns[k], op->name);
    }
    if (op->backward)
        op->backward(ops, &s);
    release_scene(&s);
}

static inline void check_backend(const struct fr_ops *ops, const struct operation *op, uint32_t m, uint32_t width)
{
    struct scene got = make_scene(op, m, width, false), again = make_scene(op, m, width, false),
                 want = make_scene(op, m, width, false);
    op->forward(ops, &got, 0, m / 3);
    op->forward(ops, &got, m / 3, m - m / 3);
    op->forward(ops, &again, 0, m);
    op->forward(fr_reference_ops(), &want, 0, m);
    compare_outputs(op, &got, &want, false, ops->name);
    compare_outputs(op, &again, &want, op->copies, ops->name);
    if (!op->whole_rows || ops->rows_independent) {
        compare_outputs(op, &got, &again, true, "whole chunk against two");
        check_entries_alone(ops, op, &got);
        check_not_finite(ops, op, &got);
    }
    op->forward(ops, &got, 0, m);
    compare_outputs(op, &got, &again, true, "second run");
    if (op->backward) {
        op->backward(ops, &got);
        op->backward(ops, &again);
        op->backward(fr_reference_ops(), &want);
        compare_gradients(op, &got, &want, false, UINT32_MAX);
        compare_gradients(op, &got, &again, true, UINT32_MAX);
        check_unwanted(ops, op, &got);
    }
    release_scene(&got);
    release_scene(&again);
    release_scene(&want);
}

/* sum of out_gradient * out[0] through the reference. */
static inline double functional(const struct operation *op, struct scene *s)
{
    op->forward(fr_reference_ops(), s, 0, s->m);
    double sum = 0.0;
    for (size_t i = 0; i < rows_in(s, s->out_rows[0]); i++)
        for (size_t j = 0; j < s->out_columns[0]; j++)
            sum += (double)s->out[0].values[i * s->out[0].ld + j] *
                   (double)s->out_gradient.values[i * s->out_gradient.ld + j];
    return sum;
}

/* Derivative of the functional by *x: central differences of two steps, Richardson's extrapolation:
 * error O(h^4). */
static inline double finite_difference(const struct operation *op, struct scene *s, float *x)
{
    const float h = 0x1p-7f, at = *x;
    double value[4];
    const float place[4] = {at - 2.0f * h, at - h, at + h, at + 2.0f * h};
    for (uint32_t k = 0; k < 4; k++) {
        *x = place[k];
        value[k] = functional(op, s);
    }
    *x = at;
    return (8.0 * (value[2] - value[1]) - (value[3] - value[0])) / (12.0 * (double)h);
}

static inline void check_finite_differences(const struct operation *op, uint32_t m, uint32_t width)
{
    struct scene s = make_scene(op, m, width, true);
    op->forward(fr_reference_ops(), &s, 0, m);
    op->backward(fr_reference_ops(), &s);
    for (uint32_t k = 0; k < s.n_in; k++) {
        double difference = 0.0, size = 0.0;
        size_t rows = rows_in(&s, s.in_rows[k]);
        for (size_t i = 0; i < rows; i++) {
            for (size_t j = 0; j < s.in_columns[k]; j++) {
                double want = finite_difference(op, &s, &s.in[k].values[i * s.in[k].ld + j]);
                double got = (double)s.in_gradient[k].values[i * s.in_gradient[k].ld + j];
                difference += (got - want) * (got - want);
                size += want * want;
            }
        }
        /* Stored values near 1 are rounded to 2^-24; divided by the step this is 1e-5 an
         * element. */
        if (!(difference <= 1e-8 * size + 1e-9 * (double)(rows * s.in_columns[k])))
            fail_msg("%s, %u entries of %u: gradient of input %u is off by %g of %g", op->name, m, width, k,
                     sqrt(difference), sqrt(size));
    }
    release_scene(&s);
}

static inline void check_operation(const struct operation *op)
{
#ifdef FR_PARITY_DEVICE /* a device has no chunks */
    static const uint32_t entries[] = {0, 1, 3, 200}, widths[] = {1, 8, 17, 64};
#else
    static const uint32_t entries[] = {0, 1, 3, 128, 200}, widths[] = {1, 3, 8, 17, 64};
#endif
    struct backend_list list = list_backends();
    for (size_t b = 0; b < list.n; b++)
        for (size_t i = 0; i < FR_ARRAY_LEN(entries); i++)
            for (size_t j = 0; j < FR_ARRAY_LEN(widths); j++)
                check_backend(list.ops[b], op, entries[i], widths[j]);
    for (uint32_t m = 1; m <= 6 && op->backward; m += 5)
        for (uint32_t width = 1; width <= 4; width += 3)
            check_finite_differences(op, m, width);
}

#endif
