/* See sorted_file.h.
 *
 * The format (RocksDB, "BlockBasedTable format"): data blocks one after the other from offset 0 on;
 * then filter, index, properties, the metaindex, which has the places of these, and a footer of 53
 * bytes. A block has entries, then the offsets of entries with a complete key, then their number;
 * the trailer that follows has one byte for the kind of compression and the checksum. An entry is
 * (shared bytes, other bytes, size of the value; all varints), then the rest of the key and the
 * value. An entry of an index has a shortened key, not less than the last key of its block and less
 * than all keys after it, and the block's handle; after the first entry of each run only the change
 * of the block's size is stored. Keys in data blocks are followed by a sequence number and a kind
 * (8 bytes). sorted_filter.c describes the filter.
 *
 * Keys are hashes, so a block is found by interpolation and then by bisection. Only the upper half
 * of a separator's hash is kept. If it equals that of the key, the key may also be in the next
 * block.
 *
 * Invariants: nothing from a block is used before its checksum is compared, and whatever it
 * contains, no byte outside it is accessed. If the filter were misread, rows would be lost, so open
 * looks up the file's first and last row.
 *
 * Order of files, caching and ranges belong to other files. */
#define _GNU_SOURCE /* preadv2 */
#include "sorted_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h> /* RWF_NOWAIT */
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "cold_rocks.h"
#include "sorted_block.h"

enum {
    FOOTER_VERSION_AT = 41,
    INDEX_WHOLE = 0,
    META_MAX = 64 << 20, /* largest index or filter, in bytes, of a file of at most 4 GiB */
    BLOCKS_MIN = 64,
    GALLOP = 8,
    HUGE_PAGE = 2 << 20,
};

/* The blocks whose separators belong to one table: [begin, end). */
struct sorted_table {
    uint32_t table, begin, end;
};

static bool read_block(int fd, struct sorted_handle at, struct fr_buffer *bytes)
{
    return fr_sorted_load(fd, at, 0, bytes) && fr_sorted_is_whole(bytes->data, bytes->size);
}

/* ---- open ---- */

struct opening {
    struct fr_sorted_file *file;
    uint64_t file_size;
    struct sorted_handle metaindex, index, filter, properties;
    uint64_t index_kind, user_keys, delta, data_size;
    uint32_t capacity; /* in blocks */
    bool ended;        /* a block was added whose separator is after all images */
    struct fr_buffer scratch;
};

static bool fits(const struct opening *opening, struct sorted_handle at)
{
    return at.size <= META_MAX && at.offset <= opening->file_size &&
           at.size + SORTED_TRAILER <= opening->file_size - at.offset;
}

static bool read_footer(struct opening *opening)
{
    uint8_t bytes[SORTED_FOOTER];
    if (opening->file_size < SORTED_FOOTER || opening->file_size > UINT32_MAX ||
        pread(opening->file->fd, bytes, SORTED_FOOTER, (off_t)(opening->file_size - SORTED_FOOTER)) != SORTED_FOOTER)
        return false;
    if (fr_load_u64(bytes + SORTED_FOOTER - 8) != SORTED_MAGIC ||
        fr_load_u32(bytes + FOOTER_VERSION_AT) != SORTED_FORMAT_VERSION || bytes[0] != SORTED_CHECKSUM_XXH3)
        return false;
    struct sorted_span span = {bytes + 1, bytes + FOOTER_VERSION_AT};
    return fr_sorted_take_handle(&span, &opening->metaindex) && fr_sorted_take_handle(&span, &opening->index) &&
           fits(opening, opening->metaindex) && fits(opening, opening->index);
}

static bool key_is(const struct sorted_entries *entries, const char *name)
{
    return entries->key_size == strlen(name) && memcmp(entries->key, name, entries->key_size) == 0;
}

static bool read_metaindex(struct opening *opening)
{
    struct sorted_entries entries;
    if (!read_block(opening->file->fd, opening->metaindex, &opening->scratch) ||
        !fr_sorted_begin_entries(opening->scratch.data, opening->scratch.size, false, &entries))
        return false;
    while (fr_sorted_next_entry(&entries)) {
        struct sorted_handle *to = NULL;
        if (key_is(&entries, "fullfilter.rocksdb.BuiltinBloomFilter"))
            to = &opening->filter;
        else if (key_is(&entries, "rocksdb.properties"))
            to = &opening->properties;
        else
            return false; /* deletions of ranges, dictionaries */
        if (!fr_sorted_take_handle(&entries.value, to) || !fits(opening, *to))
            return false;
    }
    return !entries.odd && opening->filter.size > 0 && opening->properties.size > 0;
}

static bool take_property(struct opening *opening, struct sorted_entries *entries)
{
    if (key_is(entries, "rocksdb.block.based.table.index.type")) {
        bool good = entries->value.end - entries->value.at == 4;
        opening->index_kind = good ? fr_load_u32(entries->value.at) : 0;
        return good;
    }
    if (key_is(entries, "rocksdb.index.key.is.user.key"))
        return fr_sorted_take_varint(&entries->value, &opening->user_keys);
    if (key_is(entries, "rocksdb.index.value.is.delta.encoded"))
        return fr_sorted_take_varint(&entries->value, &opening->delta);
    if (key_is(entries, "rocksdb.data.size"))
        return fr_sorted_take_varint(&entries->value, &opening->data_size);
    return true;
}

/* An ingest overwrites eight zero bytes with the file's sequence number and leaves the checksum as
 * it was, so the number is zeroed before the checksum is compared. */
static bool read_properties(struct opening *opening)
{
    struct sorted_entries entries;
    if (!fr_sorted_load(opening->file->fd, opening->properties, 0, &opening->scratch) ||
        !fr_sorted_begin_entries(opening->scratch.data, opening->scratch.size, false, &entries))
        return false;
    bool good = true;
    opening->index_kind = UINT64_MAX;
    while (good && fr_sorted_next_entry(&entries)) {
        good = take_property(opening, &entries);
        if (key_is(&entries, "rocksdb.external_sst_file.global_seqno") &&
            entries.value.end - entries.value.at == SORTED_SEQUENCE)
            memset(opening->scratch.data + (entries.value.at - opening->scratch.data), 0, SORTED_SEQUENCE);
    }
    return good && !entries.odd && fr_sorted_is_whole(opening->scratch.data, opening->scratch.size) &&
           opening->delta == 1 && opening->data_size > 0 && opening->data_size <= opening->file_size &&
           opening->index_kind == INDEX_WHOLE;
}

/* The lines of a key are anywhere in the filters of a dozen files. Without huge pages most of their
 * cost would be page table walks; small filters would leave huge pages half empty. */
static struct fr_buffer filter_memory(size_t size)
{
    size_t whole = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (whole - size > whole / 4)
        return (struct fr_buffer){.data = fr_realloc(NULL, size, 1), .capacity = size};
    void *memory = aligned_alloc(HUGE_PAGE, whole);
    /* refused memory ends the process, as in fr_alloc */
    FR_CHECK(memory != NULL);
    (void)madvise(memory, whole, MADV_HUGEPAGE); /* a refusal only costs speed */
    return (struct fr_buffer){.data = memory, .capacity = whole};
}

static bool read_filter(struct opening *opening)
{
    struct fr_sorted_file *file = opening->file;
    file->filter = filter_memory((size_t)opening->filter.size + SORTED_TRAILER);
    return read_block(file->fd, opening->filter, &file->filter) &&
           fr_sorted_filter_take(file->filter.data, file->filter.size, &file->lines);
}

/* Converts a separator to a table and a hash that the separator is not less than. A shortened key
 * is less than all keys that begin with it. false: the separator is after all images. */
static bool separator_of(const uint8_t *key, size_t size, uint32_t *table, uint64_t *hash)
{
    uint8_t whole[COLD_KEY_SIZE] = {0};
    memcpy(whole, key, size < COLD_KEY_SIZE ? size : COLD_KEY_SIZE);
    *table = (uint32_t)cold_take_be(whole, 4);
    *hash = cold_take_be(whole + 4, 8);
    if (size < COLD_KEY_SIZE && (*hash)-- == 0)
        (*table)--;
    return *table <= FR_IMAGE_TABLE_MAX;
}

static bool add_block(struct opening *opening, const struct sorted_entries *index)
{
    struct fr_sorted_file *file = opening->file;
    uint32_t table;
    uint64_t hash;
    size_t key_size = index->key_size;
    if (!opening->user_keys) {
        if (key_size < SORTED_SEQUENCE)
            return false;
        key_size -= SORTED_SEQUENCE;
    }
    uint64_t begin = file->n_blocks ? file->offsets[file->n_blocks] : 0;
    if (index->handle.offset != begin || index->handle.size > opening->data_size ||
        begin + index->handle.size + SORTED_TRAILER > opening->data_size)
        return false;
    if (file->n_blocks == opening->capacity) {
        opening->capacity = opening->capacity ? opening->capacity + opening->capacity / 2 : BLOCKS_MIN;
        file->separators = fr_realloc(file->separators, opening->capacity, sizeof(*file->separators));
        file->offsets = fr_realloc(file->offsets, opening->capacity + 1, sizeof(*file->offsets));
    }
    opening->ended = !separator_of(index->key, key_size, &table, &hash);
    if (opening->ended)
        table = (uint32_t)FR_IMAGE_TABLE_MAX + 1, hash = 0;
    struct sorted_table *last = file->n_tables ? &file->tables[file->n_tables - 1] : NULL;
    if (!last || last->table != table) {
        if (last && table < last->table)
            return false;
        file->tables = fr_realloc(file->tables, file->n_tables + 1, sizeof(*file->tables));
        last = &file->tables[file->n_tables++];
        *last = (struct sorted_table){table, file->n_blocks, file->n_blocks};
    }
    file->separators[file->n_blocks] = (uint32_t)(hash >> 32);
    file->offsets[file->n_blocks] = (uint32_t)begin;
    file->offsets[file->n_blocks + 1] = (uint32_t)(begin + index->handle.size + SORTED_TRAILER);
    last->end = ++file->n_blocks;
    return true;
}

/* Reads the index up to the block in which images end; later blocks are not needed. */
static bool read_index(struct opening *opening)
{
    struct sorted_entries entries;
    if (!read_block(opening->file->fd, opening->index, &opening->scratch) ||
        !fr_sorted_begin_entries(opening->scratch.data, opening->scratch.size, true, &entries))
        return false;
    while (!opening->ended && fr_sorted_next_entry(&entries))
        if (!add_block(opening, &entries))
            return false;
    return !entries.odd;
}

/* Frees the memory that was reserved and is not used. */
static void trim(struct fr_sorted_file *file)
{
    file->separators = fr_realloc(file->separators, file->n_blocks, sizeof(*file->separators));
    file->offsets = fr_realloc(file->offsets, file->n_blocks + 1, sizeof(*file->offsets));
}

static bool finds(const struct fr_sorted_file *file, const uint8_t *key, struct fr_sorted_value *value)
{
    struct fr_sorted_key sought = fr_sorted_key_of((uint32_t)cold_take_be(key, 4), cold_take_be(key + 4, 8));
    if (!fr_sorted_may_have(file, &sought))
        return false;
    enum fr_sorted_answer answer = fr_sorted_get(file, &sought, fr_sorted_block(file, &sought), true, value);
    return answer == FR_SORTED_VALUE || answer == FR_SORTED_DELETED;
}

/* Looks up rows of the first and the last block, to check that the file was understood. */
static bool is_understood(struct opening *opening)
{
    const struct fr_sorted_file *file = opening->file;
    struct fr_sorted_value value = {0};
    bool good = true;
    for (uint32_t i = 0; i < 2 && good && file->n_blocks > 0; i++) {
        uint32_t block = i ? file->n_blocks - 1 : 0;
        struct sorted_handle at = {file->offsets[block],
                                   file->offsets[block + 1] - file->offsets[block] - SORTED_TRAILER};
        struct sorted_entries entries;
        good = read_block(file->fd, at, &opening->scratch) &&
               fr_sorted_begin_entries(opening->scratch.data, opening->scratch.size, false, &entries);
        while (good && fr_sorted_next_entry(&entries))
            if (entries.key_size == COLD_KEY_SIZE + SORTED_SEQUENCE &&
                cold_take_be(entries.key, 4) <= FR_IMAGE_TABLE_MAX)
                good = finds(file, entries.key, &value);
        good = good && !entries.odd;
    }
    fr_buffer_release(&value.block);
    return good;
}

static int open_file(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* never waits for a pipe's writer */
}

struct fr_sorted_file *fr_sorted_open(const char *path, uint64_t number)
{
    struct stat info;
    struct fr_sorted_file *file = fr_alloc(1, sizeof(*file));
    struct opening opening = {.file = file};
    int error = 0;
    *file = (struct fr_sorted_file){.number = number, .fd = open_file(path), .path = fr_strdup(path)};
    bool good = file->fd >= 0 && fstat(file->fd, &info) == 0;
    if (file->fd < 0)
        error = errno == ENOENT ? ENOENT : errno == EMFILE || errno == ENFILE ? EMFILE : 0;
    if (good)
        opening.file_size = (uint64_t)info.st_size;
    good = good && read_footer(&opening) && read_metaindex(&opening) && read_properties(&opening) &&
           read_filter(&opening) && read_index(&opening);
    if (good)
        trim(file);
    good = good && is_understood(&opening);
    fr_buffer_release(&opening.scratch);
    if (good)
        return file;
    fr_sorted_close(file);
    errno = error;
    return NULL;
}

void fr_sorted_rest(struct fr_sorted_file *file)
{
    (void)close(file->fd); /* nothing was written, so an error loses nothing */
    file->fd = -1;
}

int fr_sorted_use(const struct fr_sorted_file *file)
{
    return file->fd >= 0 ? file->fd : open_file(file->path);
}

void fr_sorted_unuse(const struct fr_sorted_file *file, int fd)
{
    if (fd >= 0 && fd != file->fd)
        (void)close(fd);
}

void fr_sorted_close(struct fr_sorted_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        (void)close(file->fd); /* nothing was written, so an error loses nothing */
    free(file->path);
    fr_buffer_release(&file->filter);
    free(file->separators);
    free(file->offsets);
    free(file->tables);
    free(file);
}

size_t fr_sorted_bytes(const struct fr_sorted_file *file)
{
    return sizeof(*file) + file->filter.capacity + (size_t)file->n_blocks * 8 + file->n_tables * sizeof(*file->tables);
}

/* ---- reads ---- */

struct fr_sorted_key fr_sorted_key_of(uint32_t table, uint64_t hash)
{
    uint8_t bytes[COLD_KEY_SIZE];
    cold_put_key(bytes, table, hash);
    uint64_t own = fr_sorted_filter_hash(bytes, sizeof(bytes));
    return (struct fr_sorted_key){.hash = hash, .table = table, .line = (uint32_t)own, .probe = (uint32_t)(own >> 32)};
}

/* The first of [begin, end) whose separator is not less, or end. */
static uint32_t first_from(const uint32_t *separators, uint32_t begin, uint32_t end, uint32_t upper)
{
    if (begin == end || separators[end - 1] < upper)
        return end;
    uint32_t low = separators[begin], high = separators[end - 1];
    if (upper <= low)
        return begin;
    uint32_t at = begin + (uint32_t)((uint64_t)(upper - low) * (end - 1 - begin) / (high - low));
    uint32_t step = GALLOP;
    if (separators[at] < upper) {
        for (; at + step < end && separators[at + step] < upper; step *= 2)
            at += step;
        begin = at + 1;
        end = at + step < end ? at + step : end - 1;
    } else {
        for (; at >= begin + step && separators[at - step] >= upper; step *= 2)
            at -= step;
        end = at;
        begin = at >= begin + step ? at - step : begin;
    }
    while (begin < end) { /* invariant: the answer is in [begin, end] */
        uint32_t middle = begin + (end - begin) / 2;
        if (separators[middle] < upper)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

uint32_t fr_sorted_block(const struct fr_sorted_file *file, const struct fr_sorted_key *key)
{
    uint32_t t = 0;
    while (t < file->n_tables && file->tables[t].table < key->table)
        t++;
    if (t == file->n_tables || file->tables[t].table != key->table)
        return t == file->n_tables ? file->n_blocks : file->tables[t].begin;
    return first_from(file->separators, file->tables[t].begin, file->tables[t].end, (uint32_t)(key->hash >> 32));
}

void fr_sorted_will_read(const struct fr_sorted_file *file, uint32_t block)
{
    if (block < file->n_blocks && file->fd >= 0)
        (void)posix_fadvise(file->fd, file->offsets[block], file->offsets[block + 1] - file->offsets[block],
                            POSIX_FADV_WILLNEED);
}

/* Searches for the key in one block; *more is set if all keys of the block are less. */
static enum fr_sorted_answer find_in(const uint8_t *key, struct fr_sorted_value *out, bool *more)
{
    struct sorted_entries entries;
    if (!fr_sorted_begin_entries(out->block.data, out->block.size, false, &entries))
        return FR_SORTED_ODD;
    while (fr_sorted_next_entry(&entries)) {
        if (entries.key_size < SORTED_SEQUENCE)
            return FR_SORTED_ODD;
        size_t own = entries.key_size - SORTED_SEQUENCE;
        int order = memcmp(entries.key, key, own < COLD_KEY_SIZE ? own : COLD_KEY_SIZE);
        if (order < 0 || (order == 0 && own < COLD_KEY_SIZE))
            continue;
        if (order > 0 || own > COLD_KEY_SIZE)
            return FR_SORTED_NONE;
        out->bytes = entries.value.at;
        out->size = (size_t)(entries.value.end - entries.value.at);
        uint8_t kind = entries.key[own];
        return kind == SORTED_KIND_PUT       ? FR_SORTED_VALUE
               : kind == SORTED_KIND_DELETED ? FR_SORTED_DELETED
                                             : FR_SORTED_ODD;
    }
    *more = !entries.odd;
    return entries.odd ? FR_SORTED_ODD : FR_SORTED_NONE;
}

/* Reads a block. Not every file system supports reads that return instead of waiting. */
static bool read_data(const struct fr_sorted_file *file, uint32_t block, bool wait, struct fr_buffer *bytes)
{
    struct sorted_handle at = {file->offsets[block], file->offsets[block + 1] - file->offsets[block] - SORTED_TRAILER};
    int fd = fr_sorted_use(file);
    bool read = !wait && fr_sorted_load(fd, at, RWF_NOWAIT, bytes);
    bool waits = !wait && !read && errno == EAGAIN;
    if (!read && !waits)
        read = fr_sorted_load(fd, at, 0, bytes);
    fr_sorted_unuse(file, fd);
    errno = waits ? EAGAIN : 0;
    return read;
}

enum fr_sorted_answer fr_sorted_get(const struct fr_sorted_file *file, const struct fr_sorted_key *key, uint32_t block,
                                    bool wait, struct fr_sorted_value *out)
{
    uint8_t sought[COLD_KEY_SIZE];
    cold_put_key(sought, key->table, key->hash);
    for (; block < file->n_blocks; block++) {
        bool more = false;
        if (!read_data(file, block, wait, &out->block))
            return wait || errno != EAGAIN ? FR_SORTED_ODD : FR_SORTED_WAITS;
        if (!fr_sorted_is_whole(out->block.data, out->block.size))
            return FR_SORTED_ODD;
        enum fr_sorted_answer answer = find_in(sought, out, &more);
        if (!more || file->separators[block] != (uint32_t)(key->hash >> 32))
            return answer;
    }
    return FR_SORTED_NONE;
}
