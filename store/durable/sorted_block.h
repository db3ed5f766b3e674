/* Blocks of RocksDB's sorted files, and the entries in them. Module-internal. sorted_file.c
 * describes the format. */
#ifndef FR_DURABLE_SORTED_BLOCK_H
#define FR_DURABLE_SORTED_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "durable/epoch.h"

enum {
    SORTED_FOOTER = 53,
    SORTED_FORMAT_VERSION = 5,
    SORTED_BLOCK_BYTES = 1 << 10, /* bytes of a data block; cold_tuning.c has the reason */
    /* entries from one complete key to the next, in data and index blocks */
    SORTED_RESTART_EVERY = 16,
    SORTED_CHECKSUM_XXH3 = 4,
    SORTED_COMPRESSION_NONE = 0,
    SORTED_TRAILER = 5,  /* bytes after a block: kind of compression, checksum */
    SORTED_SEQUENCE = 8, /* bytes after a key: kind, sequence number */
    SORTED_KIND_DELETED = 0,
    SORTED_KIND_PUT = 1,
    SORTED_KEY_MAX = 4 + FR_SECTION_NAME_MAX + SORTED_SEQUENCE,
};
#define SORTED_MAGIC UINT64_C(0x88e241b785f4cff7)

struct sorted_span {
    const uint8_t *at, *end;
};
bool fr_sorted_take_varint(struct sorted_span *span, uint64_t *out);

struct sorted_handle {
    uint64_t offset, size; /* size without the trailer */
};
bool fr_sorted_take_handle(struct sorted_span *span, struct sorted_handle *out);

/* Reads a block; `bytes` gets the block's size, and the trailer follows in memory. flags: those of
 * preadv2. false with errno EAGAIN: the read would have to wait. */
bool fr_sorted_load(int fd, struct sorted_handle at, int flags, struct fr_buffer *bytes);
/* The checksum of an uncompressed block. */
uint32_t fr_sorted_checksum(const uint8_t *block, size_t size);
/* Whether the trailer that follows the block has the checksum of its bytes and marks it as
 * uncompressed. */
bool fr_sorted_is_whole(const uint8_t *block, size_t size);

struct sorted_entries {
    struct sorted_span left;
    bool is_index; /* values are handles and have no size */
    bool odd;      /* the block ended at bytes that are not an entry */
    uint8_t key[SORTED_KEY_MAX];
    size_t key_size;
    struct sorted_span value;
    struct sorted_handle handle; /* value of an index entry */
};
bool fr_sorted_begin_entries(const uint8_t *block, size_t size, bool is_index, struct sorted_entries *out);
/* Moves to the next entry. false: there is none, or the block is odd. */
bool fr_sorted_next_entry(struct sorted_entries *entries);

#endif
