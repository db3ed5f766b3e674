/* Recovery in parallel equals recovery by one thread, and can be ended. */
#include "scene.h"

#include <stdatomic.h>

#include "base/order.h"

enum { KEYS = 2000, SHARDS = 16, THREADS_MAX = 5 };

/* What came for each table and shard: how often, by which thread, and a hash of the sequence. */
struct seen {
    struct fr_order order;
    struct {
        uint64_t images, hash;
        size_t thread;
    } of[SCENE_TABLES][SHARDS];
    unsigned sections;
    bool no_cold, images_began;
    atomic_bool stop;
    _Atomic uint64_t images, stop_at; /* 0: never */
    uint64_t progress, total;
};

static enum fr_status see_image(void *self, size_t thread, const struct fr_image *image)
{
    struct seen *seen = self;
    uint64_t shard = fr_order_hash(&seen->order, image->key) >> 60;
    if (image->table >= SCENE_TABLES || thread >= THREADS_MAX || seen->sections == 0)
        return FR_E_CORRUPT;
    uint64_t count = ++seen->of[image->table][shard].images;
    if (count > 1 && seen->of[image->table][shard].thread != thread)
        return FR_E_STATE;
    seen->of[image->table][shard].thread = thread;
    uint64_t hash = fr_xxh3_seed(image->bytes, image->size, seen->of[image->table][shard].hash);
    seen->of[image->table][shard].hash = fr_fmix64(hash ^ image->key ^ image->kind);
    if (atomic_fetch_add(&seen->images, 1) + 1 == seen->stop_at)
        atomic_store(&seen->stop, true);
    return FR_OK;
}

static enum fr_status see_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    (void)name;
    (void)bytes;
    (void)size;
    struct seen *seen = self;
    assert_int_equal(seen->images, 0);
    seen->sections++;
    return FR_OK;
}

static bool wants_cold(void *self)
{
    return !((struct seen *)self)->no_cold;
}

static void see_progress(void *self, uint64_t done, uint64_t total)
{
    struct seen *seen = self;
    if (done < seen->progress || done > total)
        seen->total = 0; /* the case's own thread reports it: total is 0 */
    else
        seen->total = total;
    seen->progress = done;
}

static enum fr_status restore(struct fr_durable *durable, struct seen *seen, size_t threads)
{
    struct fr_err err = {0};
    struct fr_restore_visitor visitor = {.self = seen,
                                         .image = see_image,
                                         .section = see_section,
                                         .wants_cold = wants_cold,
                                         .progress = see_progress,
                                         .stop = &seen->stop,
                                         .threads = threads};
    seen->order = fr_order_of(scene_status(durable).salt);
    enum fr_status status = fr_durable_restore(durable, &visitor, &err);
    assert_int_equal(status, err.status);
    return status;
}

static struct fr_durable *open_folded(struct scene *scene, uint64_t epochs, uint64_t folded)
{
    scene->keys = KEYS;
    struct fr_durable *durable = scene_open(scene, false);
    scene_append_to(scene, durable, 1, folded);
    scene_fold(durable);
    scene_append_to(scene, durable, folded + 1, epochs);
    return durable;
}

FR_CASE(every_shard_comes_from_one_thread_as_from_a_single_one)
{
    struct scene scene = scene_make(91);
    struct fr_durable *durable = open_folded(&scene, 9, 5);
    for (int no_cold = 0; no_cold < 2; no_cold++) {
        struct seen one = {.no_cold = no_cold};
        assert_int_equal(restore(durable, &one, 1), FR_OK);
        for (size_t threads = 2; threads <= THREADS_MAX; threads++) {
            struct seen many = {.no_cold = no_cold};
            assert_int_equal(restore(durable, &many, threads), FR_OK);
            assert_int_equal(many.sections, 3);
            assert_int_equal(many.images, one.images);
            for (uint32_t t = 0; t < SCENE_TABLES; t++)
                for (size_t s = 0; s < SHARDS; s++) {
                    assert_int_equal(many.of[t][s].images, one.of[t][s].images);
                    assert_int_equal(many.of[t][s].hash, one.of[t][s].hash);
                }
            assert_true(many.total > 0 && many.progress == many.total);
        }
    }
    fr_durable_close(durable);
}

/* Recovery is stopped before it begins, among the images of the cold store, and among the images of
 * epochs. */
FR_CASE(a_stop_ends_it_and_leaves_all_as_it_was)
{
    struct scene scene = scene_make(92);
    scene.touched_of = 1;
    struct fr_durable *durable = open_folded(&scene, 9, 5);
    static const uint64_t stops[] = {1, 2000, 7000};
    for (size_t threads = 1; threads <= 2; threads++)
        for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++) {
            struct seen all = {0}, some = {.stop_at = stops[i]}, none = {.stop = true};
            assert_int_equal(restore(durable, &all, threads), FR_OK);
            assert_int_equal(restore(durable, &some, threads), FR_E_CANCELLED);
            assert_true(some.images < all.images);
            assert_int_equal(restore(durable, &none, threads), FR_E_CANCELLED);
            assert_int_equal(none.images + none.sections, 0);
        }
    assert_true(scene_state_is(&scene, durable, 9));
    fr_durable_close(durable);
}

/* Names of sections as they came; "?" for one that no epoch holds. */
static enum fr_status see_name(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    (void)size;
    fr_buffer_printf(self, " %s%s", name, bytes ? "" : "?");
    return strcmp(name, "refused") == 0 ? FR_E_MISMATCH : FR_OK;
}

static enum fr_status restore_names(struct fr_durable *durable, const char *first, struct fr_buffer *names)
{
    struct fr_err err = {0};
    struct fr_restore_visitor visitor = {.self = names, .first = first, .section = see_name};
    fr_buffer_clear(names);
    enum fr_status status = fr_durable_restore(durable, &visitor, &err);
    fr_buffer_terminate(names);
    return status;
}

FR_CASE(the_first_section_comes_before_all_others_also_when_no_epoch_has_it)
{
    struct scene scene = scene_make(93);
    struct fr_durable *durable = open_folded(&scene, 6, 3);
    struct fr_buffer all = {0}, names = {0};
    assert_int_equal(restore_names(durable, NULL, &all), FR_OK);
    char last[64];
    snprintf(last, sizeof(last), "%s", strrchr((const char *)all.data, ' ') + 1);
    assert_int_equal(restore_names(durable, last, &names), FR_OK);
    assert_int_equal(names.size, all.size); /* each name once */
    assert_memory_equal(names.data + 1, last, strlen(last));
    assert_memory_equal(names.data + 1 + strlen(last), all.data, all.size - 1 - strlen(last));
    assert_int_equal(restore_names(durable, "none", &names), FR_OK);
    assert_memory_equal(names.data, " none?", 6);
    assert_int_equal(names.size, all.size + 6);
    assert_int_equal(restore_names(durable, "refused", &names), FR_E_MISMATCH);
    assert_string_equal((const char *)names.data, " refused?");
    fr_buffer_release(&all);
    fr_buffer_release(&names);
    fr_durable_close(durable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENE_CASE(every_shard_comes_from_one_thread_as_from_a_single_one),
        SCENE_CASE(a_stop_ends_it_and_leaves_all_as_it_was),
        SCENE_CASE(the_first_section_comes_before_all_others_also_when_no_epoch_has_it),
    };
    return cmocka_run_group_tests_name("durable restore", tests, NULL, NULL);
}
