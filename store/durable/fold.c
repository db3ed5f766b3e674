/* Fold: writes the newest image of each key of the unfolded epochs, sorted, into the cold store by
 * one ingest.
 *
 * Every epoch is sorted already, so a fold is a merge of one stream per epoch (a tree of losers by
 * (table, hash, newest epoch first); Knuth, TAOCP vol. 3, 5.4.1). Of equal keys the first one wins
 * and the others are skipped. Which stream comes next is practically random, so it is computed
 * without a branch, which the processor would mispredict. Each stream reads its epoch through a
 * window. All windows together stay within FR_FOLD_WINDOWS bytes (more only for images larger than
 * their window), so a fold of 512 MiB does not need 512 MiB. Epochs kept in memory (kept.c) are
 * read there without a copy. For the others, a stream computes the CRC as the bytes pass and
 * compares it at the end, before anything is ingested.
 *
 * The newest value of each section is collected at the ends of the streams (section_set.h) and
 * written after the images; then comes the sentinel. A section that no folded epoch holds keeps its
 * value in the cold store. An absent key becomes a delete. Until the ingest the state is unchanged;
 * this code or the next open removes the files of an interrupted fold. After the ingest, journal
 * files that are also acknowledged are trimmed.
 *
 * Thread: the fold thread, while others append and read. The caller decides when to fold, and waits
 * for compactions (level0_files). */
#include "durable_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "direct.h"
#include "epoch_layout.h"
#include "section_set.h"

enum { WINDOW_MIN = 4096, WINDOW_MAX = 256 << 10, MERGED_STEP = 1 << 20 };

/* An image's place in the merge: (table, hash), then the number of newer epochs in the fold.
 * place_last is the place of a stream that has no image left. */
__extension__ typedef unsigned __int128 fold_place;
enum { PLACE_EPOCH_BITS = 32, PLACE_HASH_BITS = 64 };
static const fold_place place_last = ~(fold_place)0;

struct stream {
    struct fr_journal_file *file; /* a reference to it is held */
    /* a reference is held, and its record is the window; NULL: the file is read */
    struct fr_kept *kept;
    struct fr_journal_epoch entry;
    uint64_t epoch;
    /* file offsets: the next byte to read into the window, the end of the epoch */
    uint64_t at, end;
    uint64_t images_left;   /* bytes of images that are not read yet */
    uint64_t sections_left; /* bytes of sections that are not read yet */
    uint64_t n_sections;    /* sections that are not read yet */
    uint32_t crc, expected_crc;
    uint8_t *window;
    size_t begin, filled, capacity;
    /* the current image; its bytes point into the window until the next step */
    struct fr_image image;
    fold_place place; /* place of the current image */
};

struct fold {
    struct fr_durable *durable;
    uint64_t from, to;
    uint64_t bytes; /* of the journal's records */
    struct stream *streams;
    size_t n_streams;
    /* [n_streams], a tree above the streams; [0] is the place of the next image */
    fold_place *losers;
    struct fr_cold_writer *writer;
    bool has_cold;   /* the cold store is not empty, so absent keys must be deleted there */
    uint64_t merged; /* bytes since the last progress call */
    struct fr_section_set sections;
};

/* ---- streams ---- */

static enum fr_status damaged_epoch(const struct fold *fold, const struct stream *stream, struct fr_err *err)
{
    char path[PATH_MAX];
    fr_journal_path(&fold->durable->journal, stream->file->first, path);
    return fr_err_set(err, FR_E_CORRUPT, "%s: epoch %" PRIu64 " changed since it was written", path, stream->epoch);
}

static bool is_direct(const struct stream *stream)
{
    return stream->entry.size >= FR_DIRECT_MIN;
}

/* Moves the `held` bytes to the front of the window and makes room for `size` bytes after them. For
 * a large epoch, the next byte of the file gets the same offset within a page in memory as in the
 * file. */
static void make_room(struct stream *stream, size_t held, size_t size)
{
    size_t page = is_direct(stream) ? FR_DIRECT_PAGE : 1, begin = (size_t)((stream->at - held) % page);
    size_t capacity = (begin + size + page - 1) / page * page;
    uint8_t *window = stream->window;
    if (stream->capacity < capacity) {
        window = fr_alloc_aligned(FR_DIRECT_PAGE, capacity);
        stream->capacity = capacity;
    }
    if (held > 0)
        memmove(window + begin, stream->window + stream->begin, held);
    if (window != stream->window)
        free(stream->window);
    stream->window = window;
    stream->begin = begin;
    stream->filled = begin + held;
}

/* Reads n bytes after the filled ones. For a large epoch it reads whole pages, so the held bytes of
 * the first page are read again. */
static enum fr_status read_window(const struct fold *fold, const struct stream *stream, size_t n, struct fr_err *err)
{
    size_t held = stream->filled % FR_DIRECT_PAGE, pages = held + n + FR_DIRECT_PAGE - 1;
    pages -= pages % FR_DIRECT_PAGE;
    if (is_direct(stream)) {
        char path[PATH_MAX];
        fr_journal_path(&fold->durable->journal, stream->file->first, path);
        if (fr_direct_read(path, stream->window + stream->filled - held, pages, stream->at - held) >=
            (int64_t)(held + n))
            return FR_OK;
    }
    return fr_journal_pread(&fold->durable->journal, stream->file, stream->window + stream->filled, n, stream->at, err);
}

/* Makes `size` bytes available at window + begin. */
static enum fr_status require_bytes(const struct fold *fold, struct stream *stream, size_t size, struct fr_err *err)
{
    if (stream->filled - stream->begin >= size)
        return FR_OK;
    size_t held = stream->filled - stream->begin;
    uint64_t left = stream->end - stream->at;
    if (left < size - held)
        return damaged_epoch(fold, stream, err);
    make_room(stream, held, size);
    size_t n = stream->capacity - stream->filled;
    if (n > left)
        n = (size_t)left;
    enum fr_status status = read_window(fold, stream, n, err);
    if (status != FR_OK)
        return status;
    stream->crc = fr_crc32c(stream->crc, stream->window + stream->filled, n);
    stream->at += n;
    stream->filled += n;
    return FR_OK;
}

/* Reads the next n bytes of the stream's sections; appends them to `to` unless that is NULL. */
static enum fr_status pass_sections(const struct fold *fold, struct stream *stream, uint64_t n, struct fr_buffer *to,
                                    struct fr_err *err)
{
    if (n > stream->sections_left)
        return damaged_epoch(fold, stream, err);
    stream->sections_left -= n;
    while (n > 0) {
        if (stream->begin == stream->filled) {
            size_t want = n < stream->capacity ? (size_t)n : stream->capacity;
            enum fr_status status = require_bytes(fold, stream, want, err);
            if (status != FR_OK)
                return status;
        }
        size_t held = stream->filled - stream->begin;
        if (held > n)
            held = (size_t)n;
        if (to)
            fr_buffer_append(to, stream->window + stream->begin, held);
        stream->begin += held;
        n -= held;
    }
    return FR_OK;
}

/* Reads the next section and keeps it if no newer value of its name is known. */
static enum fr_status take_section(struct fold *fold, struct stream *stream, struct fr_err *err)
{
    uint8_t bytes[FR_SECTION_NAME_MAX + sizeof(uint64_t)] = {0};
    struct fr_buffer head = {bytes, 0, sizeof(bytes)};
    char name[FR_SECTION_NAME_MAX] = "";
    enum fr_status status = pass_sections(fold, stream, 1, &head, err);
    if (status != FR_OK)
        return status;
    size_t length = bytes[0];
    if (length == 0 || length >= FR_SECTION_NAME_MAX)
        return damaged_epoch(fold, stream, err);
    fr_buffer_clear(&head);
    status = pass_sections(fold, stream, length + sizeof(uint64_t), &head, err);
    if (status != FR_OK)
        return status;
    memcpy(name, bytes, length);
    if (strlen(name) != length)
        return damaged_epoch(fold, stream, err);
    uint64_t size = fr_load_u64(bytes + length);
    if (size > stream->sections_left)
        return damaged_epoch(fold, stream, err);
    return pass_sections(fold, stream, size, fr_section_set_put(&fold->sections, name, stream->epoch), err);
}

static void close_window(const struct fold *fold, struct stream *stream)
{
    if (!stream->kept)
        free(stream->window);
    fr_durable_unkeep(fold->durable, stream->kept);
    stream->kept = NULL;
    stream->window = NULL;
    stream->begin = stream->filled = stream->capacity = 0;
}

/* Reads the sections after the images, compares the CRC, and frees the window. */
static enum fr_status finish_stream(struct fold *fold, struct stream *stream, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (; stream->n_sections > 0 && status == FR_OK; stream->n_sections--)
        status = take_section(fold, stream, err);
    if (status != FR_OK)
        return status;
    if (stream->sections_left > 0 || stream->at != stream->end || stream->begin != stream->filled)
        return damaged_epoch(fold, stream, err);
    bool same = stream->kept || stream->crc == stream->expected_crc;
    close_window(fold, stream);
    return same ? FR_OK : damaged_epoch(fold, stream, err);
}

static inline fold_place place_of(const struct fold *fold, const struct stream *stream, uint32_t table, uint64_t hash)
{
    return ((fold_place)table << PLACE_HASH_BITS | hash) << PLACE_EPOCH_BITS | (fold->to - stream->epoch);
}

static inline struct stream *stream_at(const struct fold *fold, fold_place place)
{
    return &fold->streams[fold->n_streams - 1 - (uint32_t)place];
}

/* Moves to the next image. After the last one, the whole epoch has passed its CRC. */
static enum fr_status next_image(struct fold *fold, struct stream *stream, struct fr_err *err)
{
    if (stream->images_left == 0) {
        stream->place = place_last;
        return finish_stream(fold, stream, err);
    }
    if (stream->images_left < EPOCH_IMAGE_HEAD)
        return damaged_epoch(fold, stream, err);
    enum fr_status status = require_bytes(fold, stream, EPOCH_IMAGE_HEAD, err);
    if (status != FR_OK)
        return status;
    /* filled in place: copying a struct whose fields were just written would wait for each write */
    struct fr_image *image = &stream->image;
    bool is_first = !image->bytes;
    if (!fr_epoch_image_head(stream->window + stream->begin, image) ||
        image->size > stream->images_left - EPOCH_IMAGE_HEAD)
        return damaged_epoch(fold, stream, err);
    size_t size = (size_t)EPOCH_IMAGE_HEAD + image->size;
    status = require_bytes(fold, stream, size, err);
    if (status != FR_OK)
        return status;
    fold_place place = place_of(fold, stream, image->table, fr_order_hash(&fold->durable->order, image->key));
    if (!is_first && place <= stream->place)
        return damaged_epoch(fold, stream, err);
    image->bytes = stream->window + stream->begin + EPOCH_IMAGE_HEAD;
    stream->place = place;
    stream->begin += size;
    stream->images_left -= size;
    return FR_OK;
}

/* Makes the window the whole epoch if it is kept in memory; otherwise reads its first bytes from
 * the journal. */
static enum fr_status open_window(const struct fold *fold, struct stream *stream, size_t size, struct fr_err *err)
{
    size_t whole = (size_t)stream->entry.size;
    stream->kept = fr_durable_kept(fold->durable, stream->epoch);
    if (stream->kept) {
        stream->window = stream->kept->record.data + FR_STAGE_FRONT;
        stream->filled = stream->capacity = whole;
        stream->at = stream->end;
        return FR_OK;
    }
    stream->crc = fr_journal_record_crc(stream->entry.size);
    make_room(stream, 0, whole < size ? whole : size);
    enum fr_status status =
        fr_journal_record_head(&fold->durable->journal, stream->file, stream->entry.offset, &stream->expected_crc, err);
    return status == FR_OK ? require_bytes(fold, stream, EPOCH_HEAD, err) : status;
}

static enum fr_status stream_open(struct fold *fold, uint64_t epoch, size_t window, struct fr_err *err)
{
    struct stream *stream = &fold->streams[fold->n_streams];
    stream->file = fr_durable_acquire(fold->durable, epoch, &stream->entry);
    FR_CHECK(stream->file != NULL); /* unfolded epochs are never trimmed */
    fold->n_streams++;
    stream->epoch = epoch;
    stream->at = stream->entry.offset;
    stream->end = stream->entry.offset + stream->entry.size;
    fold->bytes += stream->entry.size + JOURNAL_RECORD_HEAD;
    enum fr_status status = open_window(fold, stream, window, err);
    if (status != FR_OK)
        return status;
    struct fr_epoch_head head;
    if (fr_epoch_head_check(stream->window + stream->begin, stream->entry.size, &head) != FR_OK ||
        head.epoch != epoch || head.salt != fold->durable->order.salt)
        return damaged_epoch(fold, stream, err);
    stream->begin += EPOCH_HEAD;
    stream->images_left = head.images_size;
    stream->sections_left = head.sections_size;
    stream->n_sections = head.n_sections;
    return FR_OK;
}

/* ---- tree of losers ---- */

static inline fold_place first_of(fold_place a, fold_place b)
{
    return a < b ? a : b;
}

/* Plays all matches of the tree: node i is above nodes 2i and 2i + 1, and stream i is leaf n +
 * i. */
static void play_all(struct fold *fold)
{
    size_t n = fold->n_streams;
    fold_place *winners = fr_alloc(2 * n, sizeof(*winners));
    for (size_t i = 0; i < n; i++)
        winners[n + i] = fold->streams[i].place;
    for (size_t i = n - 1; i > 0; i--) {
        fold_place a = winners[2 * i], b = winners[2 * i + 1];
        winners[i] = first_of(a, b);
        fold->losers[i] = a < b ? b : a;
    }
    fold->losers[0] = winners[1];
    free(winners);
}

/* Plays the matches of one stream again, the one that came first, after it moved on. */
static void play_again(struct fold *fold, const struct stream *stream)
{
    fold_place winner = stream->place;
    for (size_t i = (fold->n_streams + (size_t)(stream - fold->streams)) / 2; i > 0; i /= 2) {
        fold_place other = fold->losers[i];
        uint64_t half = -(uint64_t)(other < winner);
        fold_place swap = (winner ^ other) & ((fold_place)half << 64 | half);
        winner ^= swap;
        fold->losers[i] = other ^ swap;
    }
    fold->losers[0] = winner;
}

static void count_merged(struct fold *fold, uint64_t bytes)
{
    fold->merged += bytes;
    if (fold->merged < MERGED_STEP)
        return;
    fold->merged = 0;
    if (fold->durable->merged)
        fold->durable->merged(fold->durable->merged_self);
}

static enum fr_status merge_images(struct fold *fold, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < fold->n_streams && status == FR_OK; i++)
        status = next_image(fold, &fold->streams[i], err);
    if (status != FR_OK)
        return status;
    play_all(fold);
    fold_place last = place_last; /* a place without its epoch; no image has this one */
    while (fold->losers[0] != place_last && status == FR_OK) {
        fold_place place = fold->losers[0];
        struct stream *stream = stream_at(fold, place);
        const struct fr_image *image = &stream->image;
        if (place >> PLACE_EPOCH_BITS != last && (image->kind != FR_IMAGE_ABSENT || fold->has_cold))
            status = fr_cold_writer_image(fold->writer, image, (uint64_t)(place >> PLACE_EPOCH_BITS), err);
        last = place >> PLACE_EPOCH_BITS;
        if (status != FR_OK)
            return status;
        count_merged(fold, EPOCH_IMAGE_HEAD + image->size);
        status = next_image(fold, stream, err);
        play_again(fold, stream);
    }
    return status;
}

/* ---- sections, sentinel ---- */

static enum fr_status write_end(struct fold *fold, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < fold->sections.n && status == FR_OK; i++) {
        const struct section_value *value = &fold->sections.values[i];
        count_merged(fold, value->bytes.size);
        status = fr_cold_writer_section(fold->writer, value->name, value->bytes.data, value->bytes.size, err);
    }
    if (status != FR_OK)
        return status;
    const struct stream *newest = &fold->streams[fold->n_streams - 1];
    struct fr_cold_sentinel sentinel = {.timeline = newest->entry.timeline,
                                        .epoch = newest->epoch,
                                        .salt = fold->durable->order.salt,
                                        .digest = newest->entry.digest};
    return fr_cold_writer_sentinel(fold->writer, &sentinel, err);
}

/* ---- the whole ---- */

static enum fr_status run_fold(struct fold *fold, bool *ingesting, struct fr_err *err)
{
    size_t n = (size_t)(fold->to - fold->from + 1);
    size_t window = FR_FOLD_WINDOWS / n;
    window = window < WINDOW_MIN ? WINDOW_MIN : window > WINDOW_MAX ? WINDOW_MAX : window;
    fold->streams = fr_alloc(n, sizeof(struct stream));
    fold->losers = fr_alloc(n, sizeof(*fold->losers));
    fold->has_cold = fold->from > 1;
    enum fr_status status = FR_OK;
    for (uint64_t e = fold->from; e <= fold->to && status == FR_OK; e++)
        status = stream_open(fold, e, window, err);
    fold->writer =
        fr_cold_writer_new(fold->durable->cold, fold->durable->path_fold, fold->durable->sst_bytes_max, fold->bytes);
    if (status == FR_OK)
        status = merge_images(fold, err);
    if (status == FR_OK)
        status = write_end(fold, err);
    if (status == FR_OK)
        status = fr_cold_writer_finish(fold->writer, err);
    if (status != FR_OK)
        return status;
    *ingesting = true;
    return fr_cold_writer_ingest(fold->writer, err);
}

static void release_fold(struct fold *fold)
{
    for (size_t i = 0; i < fold->n_streams; i++) {
        close_window(fold, &fold->streams[i]);
        fr_durable_release(fold->durable, fold->streams[i].file);
    }
    free(fold->streams);
    free(fold->losers);
    fr_section_set_release(&fold->sections);
    fr_cold_writer_free(fold->writer);
}

enum fr_status fr_durable_fold(struct fr_durable *durable, struct fr_err *err)
{
    enum fr_status status = fr_durable_check(durable, true, err);
    if (status != FR_OK)
        return status;
    status = fr_cold_health(durable->cold, err);
    if (status != FR_OK)
        return status == FR_E_NO_SPACE ? status : fr_durable_die(durable, status, err);
    pthread_mutex_lock(&durable->index);
    struct fold fold = {.durable = durable, .from = durable->folded + 1, .to = durable->epoch};
    bool only_one = !durable->folding, due = fold.from <= fold.to;
    durable->folding = due;
    pthread_mutex_unlock(&durable->index);
    FR_CHECK(only_one);
    if (!due)
        return FR_OK;
    bool ingesting = false;
    status = run_fold(&fold, &ingesting, err);
    release_fold(&fold);
    pthread_mutex_lock(&durable->index);
    durable->folding = false;
    if (status == FR_OK) {
        durable->folded = fold.to;
        durable->unfolded_bytes -= fold.bytes;
    }
    pthread_mutex_unlock(&durable->index);
    /* nothing was ingested, and the sorted files are removed */
    if (status == FR_E_NO_SPACE && !ingesting)
        return status;
    if (status == FR_OK)
        return fr_durable_trim(durable, err);
    return fr_durable_die(durable, status, err);
}
