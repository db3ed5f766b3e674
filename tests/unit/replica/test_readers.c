/* Many threads read while one feeds: every call is of one epoch, and of that one exactly.
 *
 * Epoch e says of every key k whether there is a row, and its values, as a function of e and k:
 * what a reader got tells which epoch it was in. Keys come and go, tables grow, one epoch replaces
 * all, one brings another model, from one on few rows are left, so that their table becomes
 * another, and then there are many again. */
#include "history.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/check.h"
#include "freshet/reader.h"

enum { EPOCHS = 60, KEYS_FIRST = 500, KEYS_MORE = 40, ALL_KEYS = KEYS_FIRST + EPOCHS * KEYS_MORE, READERS = 3 };
enum { EPOCH_OF_ALL = 20, EPOCH_OF_A_MODEL = 35, EPOCH_OF_FEW = 45, EPOCH_OF_MANY = 50, SLEEP = 5 };

static struct freshet_replica *replica;
static struct history *history;
static uint64_t hashes[EPOCHS + 1];
static atomic_int done;
static atomic_uint passes[READERS];

static uint64_t hashed(const char *name_space, uint64_t id)
{
    return fr_fmix64(id ^ fr_xxh3(name_space, strlen(name_space)));
}

static bool is_there(uint64_t epoch, uint64_t k)
{
    if (k >= KEYS_FIRST + epoch * KEYS_MORE)
        return false;
    if (epoch >= EPOCH_OF_FEW && epoch < EPOCH_OF_MANY)
        return k % 16 == 0;
    return epoch == 0 ? false : (k + epoch) % 7 != 0;
}

/* Exact in f16. */
static float value_of(uint64_t epoch, uint64_t k, int d)
{
    return (float)epoch + (float)((k + (uint64_t)d) % 8) / 8.0f;
}

static uint64_t keys_of(int table, uint64_t k)
{
    return hashed(table == 0 ? "user" : "item", k);
}

/* ---- the topic ---- */

static float values[2][ALL_KEYS][3];
static struct fr_delta_row rows[2 * ALL_KEYS];

static void write_epoch(struct history *h, uint64_t e, bool model, uint64_t from)
{
    size_t n = 0;
    for (int t = 0; t < 2; t++)
        for (uint64_t k = 0; k < ALL_KEYS; k++) {
            for (int d = 0; d < 3; d++)
                values[t][k][d] = value_of(e, k, d);
            bool there = is_there(e, k);
            if (there || (from != 1 && is_there(e - 1, k)))
                rows[n++] = (struct fr_delta_row){.key = keys_of(t, k),
                                                  .table = (uint32_t)t,
                                                  .why = there ? 0 : 1,
                                                  .values = there ? values[t][k] : NULL};
        }
    qsort(rows, n, sizeof(rows[0]), row_order);
    uint64_t previous = from == 1 ? 0 : h->digest, saturated = 0;
    h->epoch = e;
    h->digest = fr_fmix64(e + 77);
    for (int i = 0; i < KERNEL; i++)
        h->kernel[i] = 0.0f;
    h->kernel[0] = 1.0f / 64.0f;
    h->bias[0] = (float)e / 64.0f;
    struct fr_delta_dense dense[2] = {{"z/kernel", 2, {KERNEL, 1}, KERNEL, h->kernel, false},
                                      {"z/bias", 1, {1, 0}, 1, h->bias, false}};
    struct fr_delta_epoch epoch = {.timeline = 1,
                                   .epoch = e,
                                   .from = from ? from : e,
                                   .digest = h->digest,
                                   .previous = previous,
                                   .with_model = model,
                                   .rows = rows,
                                   .n_rows = n,
                                   .dense = dense,
                                   .n_dense = 2,
                                   .commit = {.wm_ms = (int64_t)e, .samples = e, .t_ms = 1}};
    assert_int_equal(fr_delta_write(&h->settings, &epoch, keep_record, h, &saturated), FR_OK);
}

static struct history *make_history(void)
{
    static char other[sizeof(model_cfg)];
    struct history *h = history_new(0);
    h->settings.piece_max = 32768;
    for (uint64_t e = 1; e <= EPOCHS; e++) {
        if (e == EPOCH_OF_A_MODEL) {
            strcpy(other, model_cfg);
            memcpy(strstr(other, "\"max_len\":5"), "\"max_len\":4", 11);
            history_cfg(h, other);
        }
        write_epoch(h, e, e == 1 || e == EPOCH_OF_ALL || e == EPOCH_OF_A_MODEL, e == EPOCH_OF_ALL ? 1 : 0);
    }
    return h;
}

/* ---- readers: what they find wrong ends the program, with its line ---- */

static void check_rows(uint64_t epoch, int table, const uint8_t *found, const float *got, uint32_t dim)
{
    for (uint64_t k = 0; k < ALL_KEYS; k++) {
        FR_CHECK(found[k] == is_there(epoch, k));
        for (uint32_t d = 0; d < dim; d++)
            FR_CHECK(got[k * dim + d] == (found[k] ? value_of(epoch, k, (int)d) : 0.0f));
    }
    (void)table;
}

struct scratch {
    uint64_t keys[2][ALL_KEYS];
    uint8_t found[ALL_KEYS];
    float got[ALL_KEYS * 3];
};

static struct scratch *scratch_new(void)
{
    struct scratch *scratch = calloc(1, sizeof(*scratch));
    FR_CHECK(scratch != NULL);
    for (int t = 0; t < 2; t++)
        for (uint64_t k = 0; k < ALL_KEYS; k++)
            scratch->keys[t][k] = keys_of(t, k);
    return scratch;
}

static void read_table(struct freshet_reader *reader, struct scratch *scratch, int table, uint32_t *dim)
{
    struct freshet_lookup lookup = {.table = table == 0 ? "user" : "item",
                                    .keys = scratch->keys[table],
                                    .n = ALL_KEYS,
                                    .found = scratch->found,
                                    .values = scratch->got,
                                    .capacity = ALL_KEYS * 3};
    FR_CHECK(freshet_reader_lookup(reader, &lookup) == FRESHET_OK);
    *dim = lookup.dim;
}

static void check_score(struct freshet_reader *reader, uint64_t epoch)
{
    static const char json[] = "[{\"f\":{}},{\"f\":{\"user_id\":6}}]";
    float scores[2];
    uint32_t n = 2;
    FR_CHECK(freshet_reader_score(reader, FRESHET_JSON, json, strlen(json), scores, &n) == FRESHET_OK && n == 2);
    double bias = (double)epoch / 64.0;
    double user = is_there(epoch, 6) ? (double)value_of(epoch, 6, 0) / 64.0 : 0.0;
    FR_CHECK(fabs((double)scores[0] - 1.0 / (1.0 + exp(-bias))) < 1e-6);
    FR_CHECK(fabs((double)scores[1] - 1.0 / (1.0 + exp(-bias - user))) < 1e-6);
}

/* Makes one call, of any epoch: its first value shows which epoch it read. */
static void check_alone(struct freshet_reader *reader, struct scratch *scratch)
{
    uint32_t dim;
    uint64_t k = 0;
    read_table(reader, scratch, 1, &dim);
    while (k < ALL_KEYS && !scratch->found[k])
        k++;
    FR_CHECK(k < ALL_KEYS && dim == 3);
    check_rows((uint64_t)scratch->got[k * dim], 1, scratch->found, scratch->got, dim);
}

static void check_whole(struct freshet_reader *reader, struct scratch *scratch)
{
    struct freshet_replica_info info;
    uint32_t dim;
    freshet_reader_get_info(reader, &info);
    for (int t = 0; t < 2; t++) {
        read_table(reader, scratch, t, &dim);
        check_rows(info.epoch, t, scratch->found, scratch->got, dim);
    }
    check_score(reader, info.epoch);
    FR_CHECK(strcmp(freshet_reader_table_name(reader, 1), "item") == 0);
    FR_CHECK(freshet_reader_table_rows(reader, 0) * 2 == info.rows);
}

static void check_dump(struct freshet_reader *reader)
{
    struct freshet_replica_info info;
    uint64_t hash = 0;
    freshet_reader_get_info(reader, &info);
    FR_CHECK(freshet_reader_dump(reader, discard, NULL, &hash) == FRESHET_OK);
    FR_CHECK(hash == hashes[info.epoch]);
}

static void *read_on(void *self)
{
    const uintptr_t number = (uintptr_t)self;
    struct scratch *scratch = scratch_new();
    struct freshet_reader *reader = NULL;
    FR_CHECK(freshet_reader_new(replica, &reader) == FRESHET_OK);
    while (freshet_reader_begin(reader) == FRESHET_E_NOT_READY)
        sched_yield();
    while (!atomic_load(&done)) {
        unsigned begun = atomic_load(&passes[0]);
        FR_CHECK(freshet_reader_begin(reader) == FRESHET_OK);
        check_whole(reader, scratch);
        if (number == READERS - 1) { /* the one that stays for a while */
            while (!atomic_load(&done) && atomic_load(&passes[0]) - begun < SLEEP)
                sched_yield();
            check_whole(reader, scratch);
            check_dump(reader);
        }
        freshet_reader_end(reader);
        check_alone(reader, scratch);
        atomic_fetch_add(&passes[number], 1);
    }
    freshet_reader_free(reader);
    free(scratch);
    return NULL;
}

FR_CASE(calls_of_many_threads_are_each_of_one_epoch_while_one_feeds)
{
    pthread_t threads[READERS];
    history = make_history();
    struct freshet_replica *alone = replica_new();
    for (size_t i = 0; i < history->n_topic; i++) {
        feed_ok(alone, history, i, i + 1);
        uint64_t epoch = info_of(alone).epoch;
        if (epoch > 0 && hashes[epoch] == 0)
            hashes[epoch] = dump_hash(alone);
    }
    replica = replica_new();
    for (uintptr_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, (void *)i), 0);
    for (size_t i = 0; i < history->n_topic; i++) {
        uint64_t epoch = info_of(replica).epoch;
        unsigned before = atomic_load(&passes[0]);
        feed_ok(replica, history, i, i + 1);
        /* a reader calls between the epochs, or stays in one */
        if (info_of(replica).epoch != epoch && epoch % 2 == 0)
            FR_UNTIL (atomic_load(&passes[0]) != before)
                sched_yield();
    }
    FR_UNTIL (atomic_load(&passes[READERS - 1]) >= 3)
        sched_yield();
    atomic_store(&done, 1);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(info_of(replica).epoch, EPOCHS);
    assert_int_equal(dump_hash(replica), hashes[EPOCHS]);
    /* what readers kept is gone with them: the next call tidies up */
    struct freshet_event event;
    assert_int_equal(feed(replica, &history->topic[history->n_topic - 1], &event), FRESHET_OK);
    print_message("passes %u %u %u, memory %llu of one that nobody read: %llu\n", passes[0], passes[1], passes[2],
                  (unsigned long long)info_of(replica).memory_bytes, (unsigned long long)info_of(alone).memory_bytes);
    /* places of rows are used again, not given back: of some epochs, not of all */
    assert_true(info_of(replica).memory_bytes < info_of(alone).memory_bytes * 5);
    freshet_replica_free(replica);
    freshet_replica_free(alone);
    history_free(history);
}

/* An epoch lives until its last reader leaves it, whatever comes meanwhile. */
FR_CASE(a_reader_that_stays_sees_its_epoch_to_the_end)
{
    struct history *h = make_history();
    struct scratch *scratch = scratch_new();
    struct freshet_reader *stays = NULL, *other = NULL;
    replica = replica_new();
    assert_int_equal(freshet_reader_new(replica, &stays), FRESHET_OK);
    assert_int_equal(freshet_reader_begin(stays), FRESHET_E_NOT_READY);
    size_t i = 0;
    for (; info_of(replica).epoch < 3; i++)
        feed_ok(replica, h, i, i + 1);
    assert_int_equal(freshet_reader_begin(stays), FRESHET_OK);
    uint64_t hash = 0, expected = dump_hash(replica);
    assert_int_equal(freshet_reader_new(replica, &other), FRESHET_OK);
    for (; i < h->n_topic; i++) {
        uint64_t epoch = info_of(replica).epoch;
        feed_ok(replica, h, i, i + 1);
        if (info_of(replica).epoch == epoch)
            continue;
        check_whole(stays, scratch);
        assert_int_equal(freshet_reader_begin(other), FRESHET_OK);
        check_whole(other, scratch);
        if (info_of(replica).epoch % 3 == 0)
            freshet_reader_end(other);
    }
    assert_int_equal(freshet_reader_dump(stays, discard, NULL, &hash), FRESHET_OK);
    assert_int_equal(hash, expected);
    uint64_t held = info_of(replica).memory_bytes;
    freshet_reader_end(stays);
    freshet_reader_free(other);
    check_whole(stays, scratch);
    struct freshet_event event;
    assert_int_equal(feed(replica, &h->topic[h->n_topic - 1], &event), FRESHET_OK);
    assert_true(info_of(replica).memory_bytes < held);
    freshet_reader_free(stays);
    freshet_replica_free(replica);
    free(scratch);
    history_free(h);
}

enum { MASS = 30000, LEFT = 100, TOUCHED = 5 };

/* All rows of a table, or the tombstones of all but a few, or a change of some of these. */
static void write_mass(struct history *h, uint64_t e)
{
    static float of_key[MASS][2];
    struct fr_delta_row *changed = calloc(MASS, sizeof(*changed));
    size_t n = 0;
    uint64_t saturated = 0;
    for (uint64_t k = 0; k < MASS; k++) {
        of_key[k][0] = (float)(k % 64);
        of_key[k][1] = e > 2 ? 3.0f : 1.0f;
        bool drops = e == 2 && k >= LEFT, writes = e == 1 || (e > 2 && k < TOUCHED);
        if (drops || writes)
            changed[n++] =
                (struct fr_delta_row){.key = keys_of(0, k), .why = drops ? 1 : 0, .values = drops ? NULL : of_key[k]};
    }
    qsort(changed, n, sizeof(changed[0]), row_order);
    uint64_t previous = h->digest;
    h->epoch = e;
    h->digest = fr_fmix64(e + 77);
    struct fr_delta_dense dense[2] = {{"z/kernel", 2, {KERNEL, 1}, KERNEL, h->kernel, false},
                                      {"z/bias", 1, {1, 0}, 1, h->bias, false}};
    struct fr_delta_epoch epoch = {.timeline = 1,
                                   .epoch = e,
                                   .from = e,
                                   .digest = h->digest,
                                   .previous = previous,
                                   .with_model = e == 1,
                                   .rows = changed,
                                   .n_rows = n,
                                   .dense = dense,
                                   .n_dense = 2,
                                   .commit = {.wm_ms = (int64_t)e, .samples = e, .t_ms = 1}};
    assert_int_equal(fr_delta_write(&h->settings, &epoch, keep_record, h, &saturated), FR_OK);
    free(changed);
}

static void check_mass(struct freshet_reader *reader, uint64_t epoch)
{
    for (uint64_t k = 0; k < MASS; k += 7) {
        float got[2] = {0};
        uint8_t found = 0;
        uint64_t key = keys_of(0, k);
        struct freshet_lookup lookup = {
            .table = "user", .part = "v", .keys = &key, .n = 1, .found = &found, .values = got, .capacity = 2};
        assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_OK);
        assert_int_equal(found, epoch == 1 || k < LEFT);
        if (found) {
            assert_float_equal(got[0], (float)(k % 64), 0);
            assert_float_equal(got[1], epoch > 2 && k < TOUCHED ? 3.0f : 1.0f, 0);
        }
    }
}

/* Memory of free places comes back once the last reader of an older epoch has left, and not before;
 * refused memory leaves all as it is. */
FR_CASE(places_of_rows_that_went_are_given_back)
{
    struct history *h = history_new(0);
    struct freshet_reader *stays = NULL, *other = NULL;
    h->settings.piece_max = 32768;
    replica = replica_new();
    assert_int_equal(freshet_reader_new(replica, &stays), FRESHET_OK);
    assert_int_equal(freshet_reader_new(replica, &other), FRESHET_OK);
    size_t from = 0;
    uint64_t held[7] = {0};
    for (uint64_t e = 1; e <= 6; e++) {
        write_mass(h, e);
        if (e == 3) /* no room for another table; what the epoch needs there is */
            freshet_replica_limit_memory(replica, info_of(replica).memory_bytes + 8192);
        feed_ok(replica, h, from, h->n_topic);
        freshet_replica_limit_memory(replica, 0);
        from = h->n_topic;
        held[e] = info_of(replica).memory_bytes;
        check_mass(other, e);
        if (e == 1)
            assert_int_equal(freshet_reader_begin(stays), FRESHET_OK);
        check_mass(stays, e < 5 ? 1 : e);
        if (e == 4)
            freshet_reader_end(stays);
    }
    assert_true(held[4] > held[1]);
    assert_true(held[6] < held[1] / 4);
    assert_int_equal(info_of(replica).rows, LEFT);
    freshet_reader_free(stays);
    freshet_reader_free(other);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(readers_are_limited_and_places_are_used_again)
{
    struct freshet_reader *readers[FRESHET_READERS_MAX] = {NULL}, *more = NULL;
    replica = replica_new();
    int n = 0; /* the handle's own is one of them */
    while (n < FRESHET_READERS_MAX && freshet_reader_new(replica, &readers[n]) == FRESHET_OK)
        n++;
    assert_int_equal(n, FRESHET_READERS_MAX - 1);
    assert_int_equal(freshet_reader_new(replica, &more), FRESHET_E_INVALID);
    freshet_reader_free(readers[7]);
    assert_int_equal(freshet_reader_new(replica, &readers[7]), FRESHET_OK);
    for (int i = 0; i < n; i++)
        freshet_reader_free(readers[i]);
    freshet_reader_free(NULL);
    freshet_replica_free(replica);
}

FR_CASE(lookups_say_what_is_wrong_with_them)
{
    struct history *h = make_history();
    uint64_t keys[2] = {keys_of(1, 2), 5}, key = 0, room[4];
    uint8_t found[2] = {9, 9};
    float got[6] = {7, 7, 7, 7, 7, 7};
    struct freshet_reader *reader = NULL;
    replica = replica_new();
    assert_int_equal(freshet_reader_new(replica, &reader), FRESHET_OK);
    struct freshet_lookup lookup = {
        .table = "item", .part = "v", .keys = keys, .n = 2, .found = found, .values = got, .capacity = 4};
    size_t n = 4;
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_E_NOT_READY);
    assert_int_equal(freshet_reader_key(reader, "user_id", "1", 1, &key), FRESHET_E_NOT_READY);
    assert_int_equal(freshet_reader_keys(reader, "item", room, &n), FRESHET_E_NOT_READY);
    assert_int_equal(freshet_reader_tables(reader), 0);
    assert_string_equal(freshet_reader_slot_name(reader, 0), "");
    size_t i = 0;
    for (; info_of(replica).epoch < 2; i++)
        feed_ok(replica, h, i, i + 1);
    lookup.table = "items";
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_E_NOT_FOUND);
    lookup.table = "item";
    lookup.part = "x";
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_E_NOT_FOUND);
    lookup.part = "v";
    lookup.capacity = 3;
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_E_INVALID);
    assert_int_equal(lookup.dim, 2);
    assert_true(got[0] == 7 && found[0] == 9);
    lookup.n = SIZE_MAX / 2; /* times dim is beyond size_t */
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_E_INVALID);
    lookup.n = 2;
    lookup.capacity = 4;
    assert_int_equal(freshet_reader_lookup(reader, &lookup), FRESHET_OK);
    assert_true(found[0] == 1 && found[1] == 0);
    assert_true(got[0] == value_of(2, 2, 1) && got[1] == value_of(2, 2, 2) && got[2] == 0 && got[3] == 0 &&
                got[4] == 7);
    assert_int_equal(freshet_reader_keys(reader, "item", room, &n), FRESHET_E_INVALID);
    assert_int_equal(n, info_of(replica).rows / 2);
    freshet_reader_free(reader);
    freshet_replica_free(replica);
    history_free(h);
}

FR_CASE(raw_ids_become_the_keys_of_their_slots)
{
    struct history *h = make_history();
    struct freshet_reader *reader = NULL;
    uint64_t key = 0;
    replica = replica_new();
    size_t i = 0;
    for (; info_of(replica).epoch < 1; i++)
        feed_ok(replica, h, i, i + 1);
    assert_int_equal(freshet_reader_new(replica, &reader), FRESHET_OK);
    assert_int_equal(freshet_reader_slots(reader), 4);
    assert_string_equal(freshet_reader_slot_name(reader, 2), "history");
    assert_string_equal(freshet_reader_slot_table(reader, 2), "item");
    assert_string_equal(freshet_reader_slot_table(reader, 3), "");
    assert_int_equal(freshet_reader_key(reader, "history", "17", 2, &key), FRESHET_OK);
    assert_true(key == keys_of(1, 17));
    assert_int_equal(freshet_reader_key_of_integer(reader, "user_id", 17, &key), FRESHET_OK);
    assert_true(key == keys_of(0, 17));
    assert_int_equal(freshet_reader_key(reader, "item_id", "sku-7", 5, &key), FRESHET_OK);
    assert_true(key == fr_xxh3_seed("sku-7", 5, fr_xxh3("item", 4)));
    assert_int_equal(freshet_reader_key(reader, "price", "17", 2, &key), FRESHET_E_NOT_FOUND);
    assert_int_equal(freshet_reader_key(reader, "nothing", "17", 2, &key), FRESHET_E_NOT_FOUND);
    freshet_reader_free(reader);
    freshet_replica_free(replica);
    history_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_many_threads_are_each_of_one_epoch_while_one_feeds),
        cmocka_unit_test(a_reader_that_stays_sees_its_epoch_to_the_end),
        cmocka_unit_test(places_of_rows_that_went_are_given_back),
        cmocka_unit_test(readers_are_limited_and_places_are_used_again),
        cmocka_unit_test(lookups_say_what_is_wrong_with_them),
        cmocka_unit_test(raw_ids_become_the_keys_of_their_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
