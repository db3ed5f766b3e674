/* An epoch is judged whole: kinds of a later format, parameters in part or out of order. Input: a
 * real network's records, changed one by one (with a crc that fits). */
#include "trained.h"

static const char text[] = "version: 1\n"
                           "model: epochs\n"
                           "state_dir: nowhere\n"
                           "ingest: {brokers: 'localhost:9092', topic: t}\n"
                           "tables: {user: {dim: 8}, item: {dim: 8}}\n"
                           "slots:\n"
                           "  user_id: {table: user}\n"
                           "  item_id: {table: item}\n"
                           "  history: {table: item, kind: sequence}\n"
                           "labels: {click: {}, buy: {}}\n"
                           "network:\n"
                           "  layers:\n"
                           "    - {name: h, mlp: [user_id, item_id, {mean: history}], units: [64]}\n"
                           "    - {name: out, dense: h, units: 1}\n"
                           "tasks: [{name: click, label: click, logit: out}]\n";

/* chunks of h/0/kernel: [24, 64] f32 in pieces of 2000 bytes */
enum { KEPT_MAX = 256, CHUNKS = 4 };

/* The records of partition 0 of epoch 2; other partitions go straight to the replica. */
struct kept {
    struct freshet_replica *replica;
    size_t n;
    struct {
        size_t size;
        uint8_t *bytes;
    } list[KEPT_MAX];
};

static enum fr_status keep(void *self, uint32_t partition, uint32_t piece, const void *bytes, size_t size)
{
    struct kept *kept = self;
    if (partition != 0)
        return feed_replica(kept->replica, partition, piece, bytes, size);
    assert_true(kept->n < KEPT_MAX);
    kept->list[kept->n].bytes = fr_alloc(size, 1);
    memcpy(kept->list[kept->n].bytes, bytes, size);
    kept->list[kept->n++].size = size;
    return FR_OK;
}

static struct kept *kept_new(struct trained **trained)
{
    struct kept *kept = fr_alloc(1, sizeof(*kept));
    *trained = trained_new(text, "export.quantize=f32");
    train(*trained, 3);
    kept->replica = serve(*trained);
    train(*trained, 6);
    write_epoch(*trained, &(struct sent_epoch){.number = 2, .piece_max = 2000, .sink = keep, .self = kept});
    return kept;
}

static void kept_free(struct kept *kept, struct trained *trained)
{
    for (size_t i = 0; i < kept->n; i++)
        free(kept->list[i].bytes);
    freshet_replica_free(kept->replica);
    free(kept);
    trained_free(trained);
}

static uint8_t *find(struct kept *kept, size_t i, const char *bytes, size_t size)
{
    for (size_t at = 0; at + size <= kept->list[i].size; at++)
        if (memcmp(kept->list[i].bytes + at, bytes, size) == 0)
            return kept->list[i].bytes + at;
    return NULL;
}

static void fit_crc(struct kept *kept, size_t i)
{
    uint32_t crc = __builtin_bswap32(fr_crc32c(0, kept->list[i].bytes, kept->list[i].size - 9));
    memcpy(kept->list[i].bytes + kept->list[i].size - 4, &crc, 4);
}

/* The n-th (from 0) chunk of the parameter; its index. */
static size_t chunk(struct kept *kept, const char *parameter, int n)
{
    for (size_t i = 0; i < kept->n; i++)
        if (find(kept, i, parameter, strlen(parameter)) && n-- == 0)
            return i;
    fail_msg("no such chunk of %s", parameter);
    return 0;
}

static void make_unknown(struct kept *kept, size_t i)
{
    uint8_t *kind = find(kept, i,
                         "\xa5"
                         "dense",
                         6);
    assert_non_null(kind);
    memcpy(kind + 1, "later", 5);
    fit_crc(kept, i);
}

/* Feeds what was kept but `left_out`; the last status. */
static int feed_kept(struct kept *kept, size_t left_out, struct freshet_event *event)
{
    int status = FRESHET_OK;
    for (size_t i = 0; i < kept->n && status == FRESHET_OK; i++)
        if (i != left_out)
            status = freshet_replica_feed(kept->replica, 0, kept->list[i].bytes, kept->list[i].size, event);
    return status;
}

static int discard(void *self, const void *bytes, size_t size)
{
    (void)self, (void)bytes, (void)size;
    return 0;
}

static uint64_t hash_of(const struct freshet_replica *replica)
{
    uint64_t hash = 0;
    assert_int_equal(freshet_replica_dump(replica, discard, NULL, &hash), FRESHET_OK);
    return hash;
}

static uint64_t epoch_of(const struct freshet_replica *replica)
{
    struct freshet_replica_info info;
    freshet_replica_get_info(replica, &info);
    return info.epoch;
}

FR_CASE(a_piece_of_an_unknown_kind_is_counted_and_otherwise_ignored)
{
    for (int missing = 0; missing < 2; missing++) {
        struct trained *trained;
        struct freshet_event event;
        struct kept *kept = kept_new(&trained);
        size_t unknown = chunk(kept, "out/bias", 0);
        make_unknown(kept, unknown);
        int status = feed_kept(kept, missing ? unknown : SIZE_MAX, &event);
        assert_int_equal(status, missing ? FRESHET_E_GAP : FRESHET_OK);
        assert_int_equal(epoch_of(kept->replica), missing ? 1 : 2);
        kept_free(kept, trained);
    }
}

FR_CASE(a_parameter_is_in_an_epoch_completely_or_the_epoch_is_refused_whole)
{
    for (int n = 0; n < CHUNKS; n++) { /* also the last chunk, which no later chunk reveals */
        struct trained *trained;
        struct freshet_event event;
        struct kept *kept = kept_new(&trained);
        uint64_t before = hash_of(kept->replica);
        assert_true(chunk(kept, "h/0/kernel", CHUNKS - 1) + 1 == chunk(kept, "h/0/bias", 0));
        make_unknown(kept, chunk(kept, "h/0/kernel", n));
        assert_int_equal(feed_kept(kept, SIZE_MAX, &event), FRESHET_E_INVALID);
        assert_non_null(strstr(event.problem, "h/0/kernel"));
        assert_int_equal(hash_of(kept->replica), before);
        assert_int_equal(epoch_of(kept->replica), 1);
        kept_free(kept, trained);
    }
}

FR_CASE(chunks_of_a_parameter_that_do_not_ascend_refuse_the_epoch)
{
    struct trained *trained;
    struct freshet_event event;
    struct kept *kept = kept_new(&trained);
    uint64_t before = hash_of(kept->replica);
    size_t a = chunk(kept, "h/0/kernel", 0), b = chunk(kept, "h/0/kernel", 1);
    uint8_t *x = find(kept, a, "\xa1i", 2) + 2, *y = find(kept, b, "\xa1i", 2) + 2, kept_x = *x;
    assert_true(*x < 128 && *y < 128);
    *x = *y;
    *y = kept_x;
    fit_crc(kept, a);
    fit_crc(kept, b);
    assert_int_equal(feed_kept(kept, SIZE_MAX, &event), FRESHET_E_INVALID);
    assert_non_null(strstr(event.problem, "h/0/kernel"));
    assert_int_equal(hash_of(kept->replica), before);
    kept_free(kept, trained);
}

FR_CASE(rows_and_parameters_of_an_epoch_appear_at_once)
{
    struct trained *trained;
    struct freshet_event event;
    struct kept *kept = kept_new(&trained);
    uint64_t before = hash_of(kept->replica);
    for (size_t i = 0; i < kept->n; i++) {
        assert_int_equal(hash_of(kept->replica), before);
        assert_int_equal(freshet_replica_feed(kept->replica, 0, kept->list[i].bytes, kept->list[i].size, &event),
                         FRESHET_OK);
    }
    assert_int_not_equal(hash_of(kept->replica), before);
    kept_free(kept, trained);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_of_an_unknown_kind_is_counted_and_otherwise_ignored),
        cmocka_unit_test(a_parameter_is_in_an_epoch_completely_or_the_epoch_is_refused_whole),
        cmocka_unit_test(chunks_of_a_parameter_that_do_not_ascend_refuse_the_epoch),
        cmocka_unit_test(rows_and_parameters_of_an_epoch_appear_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
