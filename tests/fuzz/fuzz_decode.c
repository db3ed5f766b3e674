/* Fuzz target of the record decoder: any bytes, as MessagePack and as JSON, give samples or a reason, never a crash,
 * and what is accepted appends the same whole and split. From the root:
 *
 *   INCLUDES="-Ibase/include -Iconf/include -Iingest/decode/include"
 *   SANITIZERS="-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all"
 *   clang-14 -g -O1 -std=c17 -D_DEFAULT_SOURCE -ffp-contract=off $SANITIZERS $INCLUDES tests/fuzz/fuzz_decode.c
 *       ingest/decode/[a-z]*.c base/[a-z]*.c -lxxhash -lcrypto -lm -lpthread -o fuzz_decode
 *   ./fuzz_decode -max_total_time=60 -max_len=8192
 */
#include <stdlib.h>

#include "../unit/decode/schema.h"
#include "base/check.h"
#include "decode/decoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct target {
    struct schema schema;
    struct fr_decoder *decoder;
    struct fr_batch *whole, *split;
};

static void check_equal(const struct target *target)
{
    const struct fr_batch *a = target->whole, *b = target->split;
    FR_CHECK(a->n_samples == b->n_samples && a->unknown_slots == b->unknown_slots && a->excess_ids == b->excess_ids);
    for (uint32_t s = 0; s < N_SLOTS; s++) {
        const struct fr_column *x = &a->columns[s], *y = &b->columns[s];
        if (x->dim) {
            FR_CHECK(memcmp(x->dense, y->dense, (size_t)a->n_samples * x->dim * sizeof(float)) == 0);
            continue;
        }
        uint32_t n = x->begin[a->n_samples];
        FR_CHECK(memcmp(x->begin, y->begin, (a->n_samples + 1) * sizeof(*x->begin)) == 0);
        FR_CHECK(n == 0 || memcmp(x->keys, y->keys, n * sizeof(*x->keys)) == 0);
    }
}

static void decode(struct target *target, const uint8_t *data, size_t size)
{
    struct fr_record record = {data, size, TIMESTAMP_MS};
    uint32_t n = 0;
    const char *reason = NULL;
    if (fr_decode_record(target->decoder, &record, &n, &reason) != FR_OK) {
        FR_CHECK(reason && reason[0] == '$' && strlen(reason) < 512);
        return;
    }
    fr_batch_clear(target->whole);
    fr_batch_clear(target->split);
    fr_decode_append(target->decoder, 0, n, target->whole);
    uint32_t half = n / 2 ? n / 2 : n;
    fr_decode_append(target->decoder, 0, half, target->split);
    fr_decode_append(target->decoder, half, n - half, target->split);
    check_equal(target);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target targets[2];
    for (int i = 0; i < 2; i++) {
        struct target *target = &targets[i];
        if (!target->decoder) {
            schema_init(&target->schema, i ? FR_FORMAT_JSON : FR_FORMAT_MSGPACK);
            target->decoder = fr_decoder_new(&target->schema.conf);
            target->whole = fr_batch_new(&target->schema.conf);
            target->split = fr_batch_new(&target->schema.conf);
        }
        decode(target, data, size);
    }
    return 0;
}
