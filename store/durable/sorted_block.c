/* See sorted_block.h; sorted_file.c describes the format.
 *
 * Invariants: whatever the block contains, no byte outside it is accessed.
 *
 * Thread: any. */
#define _GNU_SOURCE /* preadv2 */
#include "sorted_block.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/hash.h"

bool fr_sorted_take_varint(struct sorted_span *span, uint64_t *out)
{
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64 && span->at < span->end; shift += 7) {
        uint8_t byte = *span->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

bool fr_sorted_take_handle(struct sorted_span *span, struct sorted_handle *out)
{
    return fr_sorted_take_varint(span, &out->offset) && fr_sorted_take_varint(span, &out->size);
}

bool fr_sorted_load(int fd, struct sorted_handle at, int flags, struct fr_buffer *bytes)
{
    size_t whole = (size_t)at.size + SORTED_TRAILER;
    fr_buffer_clear(bytes);
    fr_buffer_reserve(bytes, whole);
    struct iovec part = {bytes->data, whole};
    ssize_t n = preadv2(fd, &part, 1, (off_t)at.offset, flags);
    if (n >= 0 && n < (ssize_t)whole)
        errno = EAGAIN; /* without waiting: the rest is not in memory */
    bytes->size = (size_t)at.size;
    return n == (ssize_t)whole;
}

/* The kind of compression enters the checksum as a factor, so 0 has no effect. */
uint32_t fr_sorted_checksum(const uint8_t *block, size_t size)
{
    _Static_assert(SORTED_COMPRESSION_NONE == 0, "as above");
    return (uint32_t)fr_xxh3(block, size);
}

bool fr_sorted_is_whole(const uint8_t *block, size_t size)
{
    return block[size] == SORTED_COMPRESSION_NONE && fr_sorted_checksum(block, size) == fr_load_u32(block + size + 1);
}

/* ---- entries of a block ---- */

bool fr_sorted_begin_entries(const uint8_t *block, size_t size, bool is_index, struct sorted_entries *out)
{
    if (size < 4)
        return false;
    uint64_t restarts = fr_load_u32(block + size - 4);
    if (4 * restarts + 4 > size) /* the top bit marks a hash index, which is refused here */
        return false;
    out->left = (struct sorted_span){block, block + size - 4 - 4 * restarts};
    out->is_index = is_index;
    out->odd = false;
    out->key_size = 0;
    out->handle = (struct sorted_handle){0};
    return true;
}

static bool take_index_value(struct sorted_entries *entries, uint64_t shared)
{
    uint64_t change;
    if (shared == 0)
        return fr_sorted_take_handle(&entries->left, &entries->handle);
    if (!fr_sorted_take_varint(&entries->left, &change))
        return false;
    entries->handle.offset += entries->handle.size + SORTED_TRAILER;
    entries->handle.size += (change >> 1) ^ (0 - (change & 1));
    return true;
}

bool fr_sorted_next_entry(struct sorted_entries *entries)
{
    struct sorted_span *left = &entries->left;
    uint64_t shared, rest, size = 0;
    if (left->at == left->end)
        return false;
    entries->odd = true;
    if (!fr_sorted_take_varint(left, &shared) || !fr_sorted_take_varint(left, &rest) ||
        (!entries->is_index && !fr_sorted_take_varint(left, &size)))
        return false;
    if (shared > entries->key_size || rest > SORTED_KEY_MAX - shared || rest > (size_t)(left->end - left->at))
        return false;
    memcpy(entries->key + shared, left->at, (size_t)rest);
    entries->key_size = (size_t)(shared + rest);
    left->at += rest;
    if (entries->is_index) {
        if (!take_index_value(entries, shared))
            return false;
    } else if (size > (size_t)(left->end - left->at)) {
        return false;
    }
    entries->value = (struct sorted_span){left->at, left->at + size};
    left->at += size;
    entries->odd = false;
    return true;
}
