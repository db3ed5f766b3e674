/* Matrix products of every backend: parity, bounds, and the bit-for-bit promises of fr_ops. */
#include "backends.h"

static const uint32_t shapes[][3] = {{1, 1, 1},     {1, 429, 512}, {3, 7, 5},      {5, 16, 33},
                                     {12, 256, 32}, {13, 257, 17}, {128, 64, 1},   {128, 30, 48},
                                     {96, 300, 40}, {25, 513, 31}, {128, 432, 100}};

struct product_memory {
    struct fr_view left, right, out;
    struct fr_operand left_operand, right_operand;
    size_t packed_floats;
};

/* [m, k] times [k, n]; a transposed operand is stored the other way round. */
static struct product_memory make_product(const struct fr_ops *ops, const uint32_t *shape, bool left_t, bool right_t)
{
    uint32_t m = shape[0], k = shape[1], n = shape[2];
    struct product_memory p = {0};
    p.left = left_t ? random_view(k, m, m + 3, 1) : random_view(m, k, k + 5, 1);
    p.right = right_t ? random_view(n, k, k + 2, 2) : random_view(k, n, n + 1, 2);
    p.out = (struct fr_view){guarded((size_t)m * (n + 7)), n + 7};
    p.left_operand = (struct fr_operand){p.left.values, p.left.ld, m, k, left_t, NULL};
    p.right_operand = (struct fr_operand){p.right.values, p.right.ld, k, n, right_t, NULL};
    p.packed_floats = ops->packed_floats(k, n);
    return p;
}

static void pack(const struct fr_ops *ops, struct product_memory *p)
{
    if (p->packed_floats == 0)
        return;
    p->right_operand.packed = guarded(p->packed_floats);
    uint32_t k = p->right_operand.rows;
    ops->pack(&p->right_operand, k / 3, k); /* in two ranges, as workers do */
    ops->pack(&p->right_operand, 0, k / 3);
}

static void release_product(struct product_memory *p)
{
    uint32_t m = p->left_operand.rows, k = p->left_operand.columns, n = p->right_operand.columns;
    release_guarded(p->left.values, (p->left_operand.transposed ? k : m) * p->left.ld);
    release_guarded(p->right.values, (p->right_operand.transposed ? n : k) * p->right.ld);
    release_guarded(p->out.values, m * p->out.ld);
    if (p->right_operand.packed)
        release_guarded(p->right_operand.packed, p->packed_floats);
}

static void run_product(const struct fr_ops *ops, const struct product_memory *p, uint32_t begin, uint32_t end,
                        bool add)
{
    ops->multiply(&(struct fr_multiply){.left = &p->left_operand,
                                        .right = &p->right_operand,
                                        .row_begin = begin,
                                        .row_end = end,
                                        .out = p->out,
                                        .accumulate = add});
}

static struct backend_list list_all_backends(void)
{
    struct backend_list list = list_backends(), more = list_bf16_backends();
    for (size_t b = 0; b < more.n; b++)
        list.ops[list.n++] = more.ops[b];
    return list;
}

static const struct fr_ops *reference_of(const struct fr_ops *ops)
{
    struct backend_list rounding = list_bf16_backends();
    bool bf16 = false;
    for (size_t b = 0; b < rounding.n; b++)
        bf16 |= rounding.ops[b] == ops;
    return bf16 ? fr_reference_bf16_ops() : fr_reference_ops();
}

static void compare_with_reference(const struct fr_ops *ops, const uint32_t *shape, bool left_t, bool right_t, bool add)
{
    struct product_memory got = make_product(ops, shape, left_t, right_t);
    struct product_memory want = make_product(reference_of(ops), shape, left_t, right_t);
    uint32_t m = shape[0], n = shape[2];
    for (uint32_t i = 0; i < m && add; i++) {
        fill(got.out.values + i * got.out.ld, n, 70 + i);
        fill(want.out.values + i * want.out.ld, n, 70 + i);
    }
    pack(ops, &got);
    run_product(ops, &got, 0, m / 2, add);
    run_product(ops, &got, m / 2, m, add);
    run_product(reference_of(ops), &want, 0, m, add);
    assert_nmse(got.out, want.out, m, n, 1e-10, ops->name);
    assert_row_ends_untouched(got.out, m, n);
    release_product(&got);
    release_product(&want);
}

FR_CASE(products_of_all_shapes_agree_with_the_reference)
{
    struct backend_list list = list_all_backends();
    for (size_t b = 0; b < list.n; b++)
        for (size_t s = 0; s < FR_ARRAY_LEN(shapes); s++)
            for (uint32_t flags = 0; flags < 8; flags++)
                compare_with_reference(list.ops[b], shapes[s], flags & 1, flags & 2, flags & 4);
}

/* Operations that follow a product give the same bits in one call with it and in calls of their
 * own, except that the reference rounds once. */
static void compare_followed(const struct fr_ops *ops, const uint32_t *shape, uint32_t flags, bool counts)
{
    uint32_t m = shape[0], n = shape[2], begin = m / 3, bits[2] = {1, 1};
    bool biased = flags & 1, gated = flags & 2, left_t = flags & 4;
    struct product_memory once = make_product(ops, shape, left_t, false),
                          apart = make_product(ops, shape, left_t, false);
    struct fr_view gate = random_view(m, n, n + 3, 5), bias = random_view(1, n, n, 6);
    pack(ops, &once);
    pack(ops, &apart);
    struct fr_multiply product = {
        .left = &once.left_operand, .right = &once.right_operand, .row_begin = begin, .row_end = m, .out = once.out};
    product.bias = biased ? bias.values : NULL;
    product.relu = flags & 8;
    product.gate = gated ? gate : (struct fr_view){0};
    product.bits = counts ? &bits[0] : NULL;
    ops->multiply(&product);
    run_product(ops, &apart, begin, m, false);
    struct fr_view rows = {apart.out.values + begin * apart.out.ld, apart.out.ld};
    if (biased)
        ops->bias_activate(m - begin, n, rows, bias.values, product.relu);
    if (gated)
        ops->relu_backward(m - begin, n, (struct fr_view){gate.values + begin * gate.ld, gate.ld}, rows);
    if (counts && ops->max_bits(m - begin, n, rows) > bits[1])
        bits[1] = ops->max_bits(m - begin, n, rows);
    assert_same_bits((struct fr_view){once.out.values + begin * once.out.ld, once.out.ld}, rows, m - begin, n,
                     ops->name);
    assert_int_equal(bits[0], bits[1]);
    assert_row_ends_untouched(once.out, m, n);
    struct product_memory want = make_product(reference_of(ops), shape, left_t, false);
    product.left = &want.left_operand;
    product.right = &want.right_operand;
    product.out = want.out;
    reference_of(ops)->multiply(&product);
    assert_nmse((struct fr_view){once.out.values + begin * once.out.ld, once.out.ld},
                (struct fr_view){want.out.values + begin * want.out.ld, want.out.ld}, m - begin, n, 1e-10, ops->name);
    release_guarded(gate.values, m * gate.ld);
    release_guarded(bias.values, n);
    release_product(&want);
    release_product(&once);
    release_product(&apart);
}

FR_CASE(what_follows_a_product_in_its_call_is_what_calls_of_their_own_do)
{
    struct backend_list list = list_all_backends();
    for (size_t b = 0; b < list.n; b++)
        for (size_t s = 0; s < FR_ARRAY_LEN(shapes); s++)
            for (uint32_t flags = 0; flags < 16; flags++)
                compare_followed(list.ops[b], shapes[s], flags, strncmp(list.ops[b]->name, "device", 6) != 0);
}

FR_CASE(a_product_is_the_same_when_run_twice)
{
    struct backend_list list = list_all_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct product_memory once = make_product(list.ops[b], shapes[10], false, false);
        struct product_memory twice = make_product(list.ops[b], shapes[10], false, false);
        pack(list.ops[b], &once);
        pack(list.ops[b], &twice);
        run_product(list.ops[b], &once, 0, 128, false);
        run_product(list.ops[b], &twice, 0, 128, false);
        assert_same_bits(once.out, twice.out, 128, shapes[10][2], list.ops[b]->name);
        release_product(&once);
        release_product(&twice);
    }
}

/* Expects that the row of `p` at `position`, alone or among others, packed or not, is `want`. */
static void check_position(const struct fr_ops *ops, const uint32_t *shape, uint32_t position, uint32_t rows,
                           bool packed, const float *row, float *want, bool first)
{
    struct product_memory p = make_product(ops, (const uint32_t[]){rows, shape[1], shape[2]}, false, false);
    memcpy(p.left.values + position * p.left.ld, row, shape[1] * sizeof(float));
    if (packed)
        pack(ops, &p);
    run_product(ops, &p, 0, rows, false);
    const float *got = p.out.values + position * p.out.ld;
    if (first)
        memcpy(want, got, shape[2] * sizeof(float));
    else if (memcmp(want, got, shape[2] * sizeof(float)) != 0)
        fail_msg("%s: row %u of %u has other bits than alone (k %u, n %u)", ops->name, position, rows, shape[1],
                 shape[2]);
    release_product(&p);
}

FR_CASE(a_row_has_the_same_bits_at_any_position_beside_any_rows)
{
    struct backend_list list = list_all_backends();
    size_t checked = 0;
    for (size_t b = 0; b < list.n; b++) {
        if (!list.ops[b]->rows_independent)
            continue;
        checked++;
        for (size_t s = 0; s < FR_ARRAY_LEN(shapes); s++) {
            float *row = fr_alloc(shapes[s][1], sizeof(float)), *want = fr_alloc(shapes[s][2], sizeof(float));
            fill(row, shapes[s][1], 99);
            check_position(list.ops[b], shapes[s], 0, 1, false, row, want, true);
            for (uint32_t position = 0; position < 128; position += 1 + position % 7)
                check_position(list.ops[b], shapes[s], position, 128, true, row, want, false);
            check_position(list.ops[b], shapes[s], 10, 11, true, row, want, false);
            free(row);
            free(want);
        }
    }
    if (checked == 0)
        skip(); /* no FMA on this machine */
}

FR_CASE(avx2_and_avx512_give_the_same_bits)
{
    const struct fr_ops *wide = fr_ops_cpu_avx512(), *narrow = fr_ops_cpu_avx2();
    if (!wide || !narrow)
        skip();
    for (size_t s = 0; s < FR_ARRAY_LEN(shapes); s++) {
        struct product_memory a = make_product(wide, shapes[s], s % 2, s % 3 == 0);
        struct product_memory b = make_product(narrow, shapes[s], s % 2, s % 3 == 0);
        pack(wide, &a);
        pack(narrow, &b);
        run_product(wide, &a, 0, shapes[s][0], false);
        run_product(narrow, &b, 0, shapes[s][0], false);
        assert_same_bits(a.out, b.out, shapes[s][0], shapes[s][2], "avx2 against avx512");
        release_product(&a);
        release_product(&b);
    }
}

/* What every backend promises, openblas too: in a call of fixed shape, other rows do not matter. */
FR_CASE(a_row_does_not_depend_on_the_other_rows_of_its_chunk)
{
    struct backend_list list = list_all_backends();
    for (size_t b = 0; b < list.n; b++) {
        struct product_memory p = make_product(list.ops[b], shapes[10], false, false);
        pack(list.ops[b], &p);
        run_product(list.ops[b], &p, 0, 128, false);
        float before[100];
        memcpy(before, p.out.values + 77 * p.out.ld, sizeof(before));
        for (uint32_t i = 0; i < 128; i++)
            for (uint32_t k = 0; k < shapes[10][1] && i != 77; k++)
                p.left.values[i * p.left.ld + k] = i % 2 ? 0.0f : -3.5f * p.left.values[i * p.left.ld + k];
        run_product(list.ops[b], &p, 0, 128, false);
        assert_memory_equal(before, p.out.values + 77 * p.out.ld, sizeof(before));
        release_product(&p);
    }
}

/* 1 * x through a product of one element. */
static float rounded(const struct fr_ops *ops, float x, bool packed)
{
    float one = 1.0f, out = -1.0f;
    struct fr_operand left = {&one, 1, 1, 1, false, NULL}, right = {&x, 1, 1, 1, false, NULL};
    size_t floats = ops->packed_floats(1, 1);
    if (packed && floats > 0) {
        right.packed = guarded(floats);
        ops->pack(&right, 0, 1);
    }
    ops->multiply(&(struct fr_multiply){.left = &left, .right = &right, .row_end = 1, .out = {&out, 1}});
    if (right.packed)
        release_guarded(right.packed, floats);
    return out;
}

FR_CASE(bf16_factors_are_rounded_to_nearest_ties_to_even)
{
    /* 1 + n / 128 is exact; 2^-130 is a subnormal, 3e38 near the largest */
    static const float cases[][2] = {{1.0f, 1.0f},
                                     {1.0f + 1.0f / 256, 1.0f},              /* a tie: down */
                                     {1.0f + 3.0f / 256, 1.0f + 2.0f / 128}, /* a tie: up */
                                     {1.0f + 1.1f / 256, 1.0f + 1.0f / 128}, /* above the tie */
                                     {-1.0f - 0.9f / 256, -1.0f},            /* below it */
                                     {0x1.fffffep-1f, 1.0f},                 /* into the next */
                                     {0x1p-130f, 0.0f},
                                     {3.0e38f, 0x1.c4p127f},
                                     {INFINITY, INFINITY}};
    struct backend_list list = list_bf16_backends();
    if (list.n == 0)
        skip(); /* no AVX512_BF16 on this machine */
    list.ops[list.n++] = fr_reference_bf16_ops();
    for (size_t b = 0; b < list.n; b++)
        for (size_t i = 0; i < FR_ARRAY_LEN(cases); i++)
            for (int packed = 0; packed < 2; packed++)
                if (rounded(list.ops[b], cases[i][0], packed) != cases[i][1])
                    fail_msg("%s: case %zu gives %a", list.ops[b]->name, i,
                             (double)rounded(list.ops[b], cases[i][0], packed));
    for (size_t b = 0; b < list.n; b++)
        assert_true(isnan(rounded(list.ops[b], NAN, true)));
}

/* Whichever thread packs which rows, and in any order: the packed bytes are the same. */
FR_CASE(packing_in_pieces_packs_the_same)
{
    static const uint32_t cuts[][2] = {{1, 2}, {7, 31}, {32, 33}, {0, 45}, {44, 45}};
    struct backend_list list = list_all_backends();
    for (size_t b = 0; b < list.n; b++) {
        for (int turned = 0; turned < 2; turned++) {
            const uint32_t shape[] = {1, 45, 37};
            struct product_memory whole = make_product(list.ops[b], shape, false, turned);
            if (whole.packed_floats > 0) {
                whole.right_operand.packed = guarded(whole.packed_floats);
                list.ops[b]->pack(&whole.right_operand, 0, 45);
            }
            for (size_t c = 0; c < FR_ARRAY_LEN(cuts) && whole.packed_floats > 0; c++) {
                struct product_memory pieces = make_product(list.ops[b], shape, false, turned);
                pieces.right_operand.packed = guarded(pieces.packed_floats);
                list.ops[b]->pack(&pieces.right_operand, cuts[c][1], 45);
                list.ops[b]->pack(&pieces.right_operand, 0, cuts[c][0]);
                list.ops[b]->pack(&pieces.right_operand, cuts[c][0], cuts[c][1]);
                assert_memory_equal(pieces.right_operand.packed, whole.right_operand.packed,
                                    whole.packed_floats * sizeof(float));
                release_product(&pieces);
            }
            release_product(&whole);
        }
    }
}

FR_CASE(the_kernel_says_which_arithmetic_runs)
{
    assert_string_equal(fr_reference_ops()->kernel, "reference 1");
    assert_memory_equal(fr_ops_openblas()->kernel, "openblas ", 9);
    if (fr_ops_cpu()->rows_independent)
        assert_string_equal(fr_ops_cpu()->kernel, "fma 1");
    if (fr_ops_bf16_dot())
        assert_string_equal(fr_ops_bf16_dot()->kernel, "bf16 dot 1");
    if (fr_ops_bf16_tiles())
        assert_string_equal(fr_ops_bf16_tiles()->kernel, "bf16 tiles 1");
    assert_true(!fr_ops_bf16_tiles() || fr_ops_bf16() == fr_ops_bf16_tiles());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_all_shapes_agree_with_the_reference),
        cmocka_unit_test(what_follows_a_product_in_its_call_is_what_calls_of_their_own_do),
        cmocka_unit_test(a_product_is_the_same_when_run_twice),
        cmocka_unit_test(a_row_has_the_same_bits_at_any_position_beside_any_rows),
        cmocka_unit_test(avx2_and_avx512_give_the_same_bits),
        cmocka_unit_test(a_row_does_not_depend_on_the_other_rows_of_its_chunk),
        cmocka_unit_test(bf16_factors_are_rounded_to_nearest_ties_to_even),
        cmocka_unit_test(packing_in_pieces_packs_the_same),
        cmocka_unit_test(the_kernel_says_which_arithmetic_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
