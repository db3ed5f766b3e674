/* Writes a sorted file of a fold in RocksDB's format: block-based table, version 5, as
 * SstFileWriter writes it with the options of cold_tuning.c, in 7.8 and in 9.10.
 *
 * RocksDB's own writer took 150 ns for a row, mostly for copies of keys, collectors of properties
 * and small allocations (`freshet-bench epochs`). It also asks the system to drop the pages that it
 * wrote, although a fold has just the rows that left memory or are about to. Here, each entry is
 * written once, to its final place.
 *
 * The layout: data blocks, the Bloom filter, the index, properties, the metaindex and a footer. A
 * data block has entries, then the offsets of every 16th entry. An entry stores only the part of
 * its key that differs from the key before; every 16th entry stores the complete key. The index is
 * a block of the same form; its keys are the shortest ones between two blocks. With a complete key
 * the index stores the block's offset, otherwise only the change of the block's size. After each
 * block come its kind of compression (none) and its checksum. After each key come a sequence
 * number, which is 0 until the ingest gives one to the whole file, and whether the key was put or
 * deleted.
 *
 * Invariants: data blocks, filter and index are, byte for byte, what SstFileWriter writes (unit
 * test).
 *
 * Owner: the fold thread. Nothing is compressed or synced, and the order of keys is not checked. */
#define _GNU_SOURCE
#include "sorted_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/order.h"
#include "direct.h"
#include "sorted_block.h"
#include "sorted_filter.h"

enum {
    BLOCK_NEARLY_FULL = (SORTED_BLOCK_BYTES * 90 + 99) / 100,
    RESTARTS_MAX = SORTED_BLOCK_BYTES / SORTED_RESTART_EVERY,
    FOOTER_HANDLES = 40,
    VARINT_MAX = 10,
    WORD = sizeof(uint64_t),
    /* keys are compared and copied by words */
    KEY_ROOM = FR_SORTED_WRITER_KEY_MAX + SORTED_SEQUENCE + WORD,
    WRITE_BYTES = 256 << 10,
    SESSION_DIGITS = 20,
};

/* The complete key of an entry, with its trailer. */
struct whole_key {
    uint8_t bytes[KEY_ROOM];
    size_t size;
};

struct restarts {
    uint32_t *offsets;
    size_t n, capacity;
    unsigned since; /* entries since the last restart */
};

struct fr_sorted_writer {
    char *path;
    int fd;
    uint64_t offset; /* file offset at which `out` begins */
    struct fr_direct direct;
    struct fr_buffer out; /* written whenever a block ends */
    size_t block_begin;   /* offset of the open block in `out` */
    struct restarts restarts;
    struct whole_key keys[2], *last; /* the newest entry's key, and memory for the next one */
    struct sorted_handle closed;     /* the last closed block */
    struct fr_buffer index;
    struct restarts index_restarts;
    uint8_t index_last[KEY_ROOM];
    size_t index_last_size;
    uint64_t index_size_before; /* the size of the block in the index's newest entry */
    struct fr_sorted_filter filter;
    uint64_t n_blocks, n_keys, n_deleted, key_bytes, value_bytes;
};

/* ---- bytes ---- */

static uint8_t *varint(uint8_t *at, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static size_t varint_size(uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    return (size_t)(varint(bytes, value) - bytes);
}

static void put_varint(struct fr_buffer *to, uint64_t value)
{
    to->size += (size_t)(varint(fr_buffer_reserve(to, VARINT_MAX), value) - (to->data + to->size));
}

static void put_handle(struct fr_buffer *to, struct sorted_handle handle)
{
    put_varint(to, handle.offset);
    put_varint(to, handle.size);
}

/* Number of equal bytes at the beginning of both. Both must have room for a word after their
 * end. */
static size_t shared_bytes(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    size_t most = a_size < b_size ? a_size : b_size, at = 0;
    while (at < most) {
        uint64_t different = fr_load_u64(a + at) ^ fr_load_u64(b + at);
        if (different) {
            at += (size_t)__builtin_ctzll(different) / 8;
            break;
        }
        at += WORD;
    }
    return at < most ? at : most;
}

/* Copies a few bytes without a call or a string instruction. Both must have room for a word after
 * their end. */
static void copy_words(uint8_t *to, const uint8_t *from, size_t size)
{
    for (size_t at = 0; at < size; at += WORD)
        memcpy(to + at, from + at, WORD);
}

/* ---- blocks ---- */

static void add_restart(struct restarts *restarts, size_t offset)
{
    if (restarts->n == restarts->capacity) {
        restarts->capacity = restarts->capacity ? 2 * restarts->capacity : RESTARTS_MAX;
        restarts->offsets = fr_realloc(restarts->offsets, restarts->capacity, sizeof(*restarts->offsets));
    }
    restarts->offsets[restarts->n++] = (uint32_t)offset;
    restarts->since = 0;
}

static size_t restart_bytes(const struct restarts *restarts)
{
    return (restarts->n + 1) * sizeof(uint32_t);
}

/* Ends a block by writing its restarts. */
static void put_restarts(struct fr_buffer *to, struct restarts *restarts)
{
    fr_buffer_append(to, restarts->offsets, restarts->n * sizeof(*restarts->offsets));
    fr_put_u32(to, (uint32_t)restarts->n);
    restarts->n = 0;
}

static enum fr_status write_out(struct fr_sorted_writer *sst, struct fr_err *err)
{
    enum fr_status status = fr_direct_put(&sst->direct, sst->out.data, sst->out.size, err);
    if (status != FR_OK)
        return status;
    /* what goes through the cache then reaches the disk evenly instead of at the end; the sync
     * reports errors */
    if (sst->direct.fd < 0)
        (void)sync_file_range(sst->fd, (off_t)sst->offset, (off_t)sst->out.size, SYNC_FILE_RANGE_WRITE);
    sst->offset += sst->out.size;
    fr_buffer_clear(&sst->out);
    return FR_OK;
}

/* Ends the block that begins at `begin` in out with its trailer. */
static struct sorted_handle seal(struct fr_sorted_writer *sst, size_t begin)
{
    struct sorted_handle handle = {sst->offset + begin, sst->out.size - begin};
    uint32_t sum = fr_sorted_checksum(sst->out.data + begin, sst->out.size - begin);
    fr_put_u8(&sst->out, SORTED_COMPRESSION_NONE);
    fr_put_u32(&sst->out, sum);
    return handle;
}

/* ---- index ---- */

/* Shortens `key` to the shortest key that is not less than it and less than `next`. Returns the new
 * size. */
static size_t shorten_key(uint8_t *key, size_t size, const uint8_t *next, size_t next_size)
{
    size_t at = shared_bytes(key, size, next, next_size);
    if (at >= size || at >= next_size || key[at] >= next[at])
        return size;
    if (at + 1 < next_size || key[at] + 1 < next[at]) {
        key[at]++;
        return at + 1;
    }
    for (at++; at < size; at++)
        if (key[at] < UINT8_MAX) {
            key[at]++;
            return at + 1;
        }
    return size;
}

/* Adds the closed block, whose last key is sst->last, to the index. next NULL: it is the last
 * block. */
static void enter_closed(struct fr_sorted_writer *sst, const uint8_t *next, size_t next_size)
{
    uint8_t key[KEY_ROOM] = {0};
    size_t size = sst->last->size - SORTED_SEQUENCE, shared = 0;
    memcpy(key, sst->last->bytes, size);
    if (next)
        size = shorten_key(key, size, next, next_size);
    struct restarts *restarts = &sst->index_restarts;
    if (restarts->n == 0 || restarts->since >= SORTED_RESTART_EVERY)
        add_restart(restarts, sst->index.size);
    else
        shared = shared_bytes(sst->index_last, sst->index_last_size, key, size);
    restarts->since++;
    put_varint(&sst->index, shared);
    put_varint(&sst->index, size - shared);
    fr_buffer_append(&sst->index, key + shared, size - shared);
    int64_t grown = (int64_t)(sst->closed.size - sst->index_size_before);
    if (shared > 0)
        put_varint(&sst->index, (uint64_t)grown << 1 ^ (uint64_t)(grown >> 63));
    else
        put_handle(&sst->index, sst->closed);
    memcpy(sst->index_last, key, size);
    sst->index_last_size = size;
    sst->index_size_before = sst->closed.size;
}

/* ---- data ---- */

static bool is_full(const struct fr_sorted_writer *sst, size_t key_size, size_t value_size)
{
    size_t now = sst->out.size - sst->block_begin + restart_bytes(&sst->restarts);
    if (now >= SORTED_BLOCK_BYTES)
        return true;
    size_t restart = sst->restarts.since >= SORTED_RESTART_EVERY ? sizeof(uint32_t) : 0;
    size_t then =
        now + key_size + value_size + restart + sizeof(int32_t) + varint_size(key_size) + varint_size(value_size);
    return then > SORTED_BLOCK_BYTES && now > BLOCK_NEARLY_FULL;
}

static enum fr_status close_block(struct fr_sorted_writer *sst, struct fr_err *err)
{
    put_restarts(&sst->out, &sst->restarts);
    sst->closed = seal(sst, sst->block_begin);
    sst->n_blocks++;
    enum fr_status status = sst->out.size >= WRITE_BYTES ? write_out(sst, err) : FR_OK;
    sst->block_begin = sst->out.size;
    return status;
}

/* Begins an entry; its value follows. */
static enum fr_status begin_entry(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size, size_t value_size,
                                  uint8_t kind, struct fr_err *err)
{
    FR_CHECK(key_size > 0 && key_size <= FR_SORTED_WRITER_KEY_MAX);
    struct whole_key *whole = sst->last == sst->keys ? sst->keys + 1 : sst->keys;
    const uint64_t key_trailer = kind;
    size_t size = key_size + SORTED_SEQUENCE, shared = 0;
    memcpy(whole->bytes, key, key_size);
    memcpy(whole->bytes + key_size, &key_trailer, sizeof(key_trailer));
    whole->size = size;
    if (sst->restarts.n > 0 && is_full(sst, size, value_size)) {
        enum fr_status status = close_block(sst, err);
        if (status != FR_OK)
            return status;
        enter_closed(sst, whole->bytes, key_size);
    }
    if (sst->restarts.n == 0 || sst->restarts.since >= SORTED_RESTART_EVERY)
        add_restart(&sst->restarts, sst->out.size - sst->block_begin);
    else
        shared = shared_bytes(sst->last->bytes, sst->last->size, whole->bytes, size);
    sst->restarts.since++;
    uint8_t *at = fr_buffer_reserve(&sst->out, 3 * (size_t)VARINT_MAX + KEY_ROOM + value_size);
    at = varint(varint(varint(at, shared), size - shared), value_size);
    copy_words(at, whole->bytes + shared, size - shared);
    sst->out.size = (size_t)(at - sst->out.data) + size - shared;
    sst->last = whole;
    fr_sorted_filter_add(&sst->filter, key, key_size);
    sst->n_keys++;
    sst->key_bytes += size;
    sst->value_bytes += value_size;
    return FR_OK;
}

enum fr_status fr_sorted_writer_put(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                    size_t value_size, uint8_t **value, struct fr_err *err)
{
    enum fr_status status = begin_entry(sst, key, key_size, value_size, SORTED_KIND_PUT, err);
    if (status != FR_OK)
        return status;
    *value = sst->out.data + sst->out.size;
    sst->out.size += value_size;
    return FR_OK;
}

enum fr_status fr_sorted_writer_delete(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                       struct fr_err *err)
{
    sst->n_deleted++;
    return begin_entry(sst, key, key_size, 0, SORTED_KIND_DELETED, err);
}

/* ---- end ---- */

static void put_entry(struct fr_buffer *to, const char *name, const void *value, size_t size)
{
    size_t length = strlen(name);
    put_varint(to, 0);
    put_varint(to, length);
    put_varint(to, size);
    fr_buffer_append(to, name, length);
    fr_buffer_append(to, value, size);
}

static void put_number(struct fr_buffer *to, const char *name, uint64_t value)
{
    uint8_t bytes[VARINT_MAX];
    put_entry(to, name, bytes, (size_t)(varint(bytes, value) - bytes));
}

static void put_text(struct fr_buffer *to, const char *name, const char *text)
{
    put_entry(to, name, text, strlen(text));
}

/* RocksDB makes a unique name of the file from this session id. */
static void make_session(char out[SESSION_DIGITS + 1])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t random = 0;
    for (size_t i = 0; i < SESSION_DIGITS; i++, random /= sizeof(digits) - 1) {
        if (i % (SESSION_DIGITS / 2) == 0)
            random = fr_order_random_salt();
        out[i] = digits[random % (sizeof(digits) - 1)];
    }
    out[SESSION_DIGITS] = '\0';
}

/* The properties that RocksDB requires of an ingested file and uses to schedule compactions, in the
 * order of their names. */
static struct sorted_handle put_properties(struct fr_sorted_writer *sst, uint64_t filter_size, uint64_t index_size,
                                           uint64_t data_size)
{
    struct fr_buffer *out = &sst->out;
    size_t begin = out->size;
    const uint32_t version = 2, search = 0, first = 0, one = 1;
    const uint64_t sequence = 0, any_family = INT32_MAX;
    char session[SESSION_DIGITS + 1];
    make_session(session);
    put_entry(out, "rocksdb.block.based.table.index.type", &search, sizeof(search));
    put_text(out, "rocksdb.block.based.table.prefix.filtering", "0");
    put_text(out, "rocksdb.block.based.table.whole.key.filtering", "1");
    put_number(out, "rocksdb.column.family.id", any_family);
    put_text(out, "rocksdb.comparator", "leveldb.BytewiseComparator");
    put_text(out, "rocksdb.compression", "NoCompression");
    put_text(out, "rocksdb.creating.db.identity", "SST Writer");
    put_text(out, "rocksdb.creating.session.identity", session);
    put_number(out, "rocksdb.data.size", data_size);
    put_number(out, "rocksdb.deleted.keys", sst->n_deleted);
    put_entry(out, "rocksdb.external_sst_file.global_seqno", &sequence, sizeof(sequence));
    put_entry(out, "rocksdb.external_sst_file.version", &version, sizeof(version));
    put_text(out, "rocksdb.filter.policy", "bloomfilter");
    put_number(out, "rocksdb.filter.size", filter_size);
    put_number(out, "rocksdb.index.key.is.user.key", 1);
    put_number(out, "rocksdb.index.size", index_size);
    put_number(out, "rocksdb.index.value.is.delta.encoded", 1);
    put_number(out, "rocksdb.merge.operands", 0);
    put_number(out, "rocksdb.num.data.blocks", sst->n_blocks);
    put_number(out, "rocksdb.num.entries", sst->n_keys);
    put_number(out, "rocksdb.num.filter_entries", sst->n_keys);
    put_number(out, "rocksdb.num.range-deletions", 0);
    put_number(out, "rocksdb.original.file.number", 1);
    put_number(out, "rocksdb.raw.key.size", sst->key_bytes);
    put_number(out, "rocksdb.raw.value.size", sst->value_bytes);
    fr_put_u32(out, first);
    fr_put_u32(out, one);
    return seal(sst, begin);
}

static struct sorted_handle put_metaindex(struct fr_sorted_writer *sst, struct sorted_handle filter,
                                          struct sorted_handle properties)
{
    struct fr_buffer value = {0};
    size_t begin = sst->out.size;
    put_handle(&value, filter);
    put_entry(&sst->out, "fullfilter.rocksdb.BuiltinBloomFilter", value.data, value.size);
    uint32_t second = (uint32_t)(sst->out.size - begin);
    fr_buffer_clear(&value);
    put_handle(&value, properties);
    put_entry(&sst->out, "rocksdb.properties", value.data, value.size);
    fr_buffer_release(&value);
    fr_put_u32(&sst->out, 0);
    fr_put_u32(&sst->out, second);
    fr_put_u32(&sst->out, 2);
    return seal(sst, begin);
}

static void put_footer(struct fr_sorted_writer *sst, struct sorted_handle metaindex, struct sorted_handle index)
{
    static const uint8_t zeros[FOOTER_HANDLES];
    fr_put_u8(&sst->out, SORTED_CHECKSUM_XXH3);
    size_t begin = sst->out.size;
    put_handle(&sst->out, metaindex);
    put_handle(&sst->out, index);
    fr_buffer_append(&sst->out, zeros, FOOTER_HANDLES - (sst->out.size - begin));
    fr_put_u32(&sst->out, SORTED_FORMAT_VERSION);
    fr_put_u64(&sst->out, SORTED_MAGIC);
}

enum fr_status fr_sorted_writer_finish(struct fr_sorted_writer *sst, struct fr_err *err)
{
    FR_CHECK(sst->n_keys > 0);
    enum fr_status status = close_block(sst, err);
    if (status != FR_OK)
        return status;
    enter_closed(sst, NULL, 0);
    uint64_t data_size = sst->offset + sst->out.size;
    size_t begin = sst->out.size;
    fr_sorted_filter_put(&sst->filter, &sst->out);
    struct sorted_handle filter = seal(sst, begin);
    begin = sst->out.size;
    fr_buffer_append(&sst->out, sst->index.data, sst->index.size);
    put_restarts(&sst->out, &sst->index_restarts);
    struct sorted_handle index = seal(sst, begin);
    struct sorted_handle properties = put_properties(sst, filter.size, index.size + SORTED_TRAILER, data_size);
    put_footer(sst, put_metaindex(sst, filter, properties), index);
    status = write_out(sst, err);
    return status == FR_OK ? fr_direct_end(&sst->direct, err) : status;
}

/* ---- life ---- */

enum fr_status fr_sorted_writer_open(const char *path, uint64_t direct_bytes, struct fr_sorted_writer **out,
                                     struct fr_err *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return fr_disk_error(err, "create", path, errno);
    struct fr_sorted_writer *sst = fr_alloc(1, sizeof(*sst));
    sst->path = fr_strdup(path);
    sst->fd = fd;
    sst->direct = (struct fr_direct){.disk = fr_disk_system(), .path = sst->path, .cached = fd};
    fr_direct_begin(&sst->direct, direct_bytes);
    *out = sst;
    return FR_OK;
}

void fr_sorted_writer_free(struct fr_sorted_writer *sst)
{
    if (!sst)
        return;
    fr_direct_release(&sst->direct);
    (void)close(sst->fd); /* the ingest syncs the file */
    fr_sorted_filter_release(&sst->filter);
    fr_buffer_release(&sst->out);
    fr_buffer_release(&sst->index);
    free(sst->restarts.offsets);
    free(sst->index_restarts.offsets);
    free(sst->path);
    free(sst);
}
