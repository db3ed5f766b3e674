/* Walks over a range of the cold store.
 *
 * The present store is read from its files (cold_files.h): a merge of one stream for each run that
 * has keys in the range. Of equal keys, the one in the newest run is visited and the others are
 * skipped. There are at most some dozens of streams, and nearly all keys are in one of them, so the
 * least key is found by a linear search instead of a heap. RocksDB walks snapshots, all tables at
 * once, and the rest of a range after a block that looked wrong (cold_read.c).
 *
 * Invariants: checksums are verified; an error is never taken for the end.
 *
 * Thread: any. A walk sees the store before or after a fold, never half a fold. */
#include <stdlib.h>

#include "base/check.h"
#include "cold_files.h"

/* The files of one run, one after the other. */
struct stream {
    struct cold_run left; /* those of the run's files that are not begun yet */
    struct fr_sorted_walk *walk;
    struct fr_sorted_value value;
    uint64_t hash; /* hash of the current entry */
    bool is_deleted;
};

struct merge {
    struct fr_cold *cold;
    const struct cold_view *view;
    const struct fr_cold_range *range;
    struct stream streams[COLD_RUNS_MAX]; /* newest run first */
    uint32_t n;
    uint64_t next; /* the hash after the last one that was visited */
    uint64_t done;
    bool odd;
};

static bool has_range(const struct merge *merge, const struct cold_file *file)
{
    const struct fr_cold_range *range = merge->range;
    return !cold_is_less(range->table, range->last, &file->first) &&
           !cold_is_behind(range->table, range->first, &file->last);
}

/* Moves a stream to its next entry; false at its end. */
static bool advance(struct merge *merge, struct stream *stream)
{
    for (;;) {
        while (!stream->walk && stream->left.begin < stream->left.end) {
            const struct cold_file *file = &merge->view->files[stream->left.begin++];
            if (has_range(merge, file))
                stream->walk =
                    fr_sorted_walk_new(file->file, merge->range->table, merge->range->first, merge->range->last);
        }
        if (!stream->walk)
            return false;
        enum fr_sorted_answer answer = fr_sorted_walk_next(stream->walk, &stream->hash, &stream->value);
        merge->odd |= answer == FR_SORTED_ODD;
        stream->is_deleted = answer == FR_SORTED_DELETED;
        if (answer == FR_SORTED_VALUE || answer == FR_SORTED_DELETED)
            return true;
        fr_sorted_walk_free(stream->walk);
        stream->walk = NULL;
        if (merge->odd)
            return false;
    }
}

static void close_stream(struct merge *merge, uint32_t i)
{
    fr_sorted_walk_free(merge->streams[i].walk);
    for (merge->n--; i < merge->n; i++)
        merge->streams[i] = merge->streams[i + 1];
}

/* Moves all streams that are at this hash past it, over every version of the key that their files
 * have. */
static void pass_hash(struct merge *merge, uint64_t hash)
{
    for (uint32_t i = 0; i < merge->n && !merge->odd;) {
        bool open = true;
        while (open && merge->streams[i].hash == hash)
            open = advance(merge, &merge->streams[i]);
        if (open)
            i++;
        else
            close_stream(merge, i);
    }
}

static uint32_t least_stream(const struct merge *merge)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < merge->n; i++)
        if (merge->streams[i].hash < merge->streams[at].hash)
            at = i;
    return at;
}

static enum fr_status visit_stream(struct merge *merge, const struct stream *stream, cold_visit visit, void *self,
                                   struct fr_err *err)
{
    uint8_t key[COLD_KEY_SIZE];
    struct fr_image image;
    cold_put_key(key, merge->range->table, stream->hash);
    if (!fr_cold_image_of(merge->cold, key, stream->value.bytes, stream->value.size, &image))
        return fr_cold_no_image(merge->cold, err);
    merge->done += COLD_KEY_SIZE + stream->value.size;
    return visit(self, &image, merge->done);
}

static enum fr_status walk_files(struct merge *merge, cold_visit visit, void *self, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (uint32_t r = 0; r < merge->view->n_runs && !merge->odd; r++) {
        merge->streams[merge->n] = (struct stream){.left = merge->view->runs[r]};
        merge->n += advance(merge, &merge->streams[merge->n]);
    }
    while (merge->n > 0 && !merge->odd && status == FR_OK) {
        const struct stream *stream = &merge->streams[least_stream(merge)];
        uint64_t hash = stream->hash;
        if (!stream->is_deleted)
            status = visit_stream(merge, stream, visit, self, err);
        merge->next = hash + 1;
        if (hash == UINT64_MAX)
            break;
        pass_hash(merge, hash);
    }
    while (merge->n > 0)
        close_stream(merge, merge->n - 1);
    return status;
}

/* The walk of the rest by RocksDB; it continues the count of bytes. */
struct rest {
    cold_visit visit;
    void *self;
    uint64_t done;
};

static enum fr_status visit_rest(void *self, const struct fr_image *image, uint64_t done_bytes)
{
    const struct rest *rest = self;
    return rest->visit(rest->self, image, rest->done + done_bytes);
}

enum fr_status fr_cold_walk(struct fr_cold *cold, const struct fr_cold_range *range, cold_visit visit, void *self,
                            struct fr_err *err)
{
    const struct cold_view *view = range && !range->at && cold->files ? fr_cold_files_hold(cold->files) : NULL;
    if (!view)
        return fr_cold_walk_through(cold, range, visit, self, err);
    struct merge *merge = fr_alloc(1, sizeof(*merge));
    *merge = (struct merge){.cold = cold, .view = view, .range = range, .next = range->first};
    enum fr_status status = walk_files(merge, visit, self, err);
    fr_cold_files_give(cold->files, view);
    struct fr_cold_range left = {range->table, merge->next, range->last, NULL};
    struct rest rest = {visit, self, merge->done};
    bool odd = merge->odd;
    free(merge);
    return status == FR_OK && odd ? fr_cold_walk_through(cold, &left, visit_rest, &rest, err) : status;
}
