/* One sorted file of the cold store, read without RocksDB: point reads and ranges of image keys.
 * Module-internal.
 *
 * The code reads files that RocksDB writes with the options of cold_tuning.c: block based table,
 * format version 5, bytewise keys, no compression, XXH3 checksums, Bloom filter in cache lines,
 * index whole or in partitions. A file that differs is refused when it is opened, and a block that
 * differs when it is read; RocksDB reads those. The filter and 8 bytes per block are kept in
 * memory.
 *
 * Thread: one opens the file; then any number read it. Owner: the code that counts its users
 * (cold_files.c). */
#ifndef FR_DURABLE_SORTED_FILE_H
#define FR_DURABLE_SORTED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "sorted_filter.h"

struct sorted_table; /* one table of the index: the blocks that end in this table */

struct fr_sorted_file {
    uint64_t number;
    uint32_t users; /* used by the owner */
    int fd;         /* -1: the file is opened for each read */
    char *path;
    struct fr_buffer filter; /* the block that contains `lines` */
    struct fr_sorted_lines lines;
    /* [n_blocks]: the upper half of a hash below which no later block has a key */
    uint32_t *separators;
    uint32_t *offsets; /* [n_blocks + 1] */
    uint32_t n_blocks, n_tables;
    struct sorted_table *tables;
};

/* NULL with errno ENOENT or EMFILE: the file could not be opened. NULL with errno 0: the file
 * differs from the format above. */
struct fr_sorted_file *fr_sorted_open(const char *path, uint64_t number);
void fr_sorted_close(struct fr_sorted_file *file);
/* Closes the descriptor: from now on the file is opened for each read, as long as it has its name.
 * Call before any other thread reads. */
void fr_sorted_rest(struct fr_sorted_file *file);
/* Returns a descriptor of the file, valid until fr_sorted_unuse; -1: there is none. */
int fr_sorted_use(const struct fr_sorted_file *file);
void fr_sorted_unuse(const struct fr_sorted_file *file, int fd);
size_t fr_sorted_bytes(const struct fr_sorted_file *file);

struct fr_sorted_key {
    uint64_t hash;
    uint32_t table;
    uint32_t line, probe; /* halves of the filter's hash of the key */
};
struct fr_sorted_key fr_sorted_key_of(uint32_t table, uint64_t hash);

static inline const uint8_t *fr_sorted_line(const struct fr_sorted_file *file, const struct fr_sorted_key *key)
{
    return file->lines.bytes + fr_sorted_filter_line(file->lines.n, key->line);
}

/* Whether the file may have the key. For nearly all keys that the file does not have, the result is
 * false. */
static inline bool fr_sorted_may_have(const struct fr_sorted_file *file, const struct fr_sorted_key *key)
{
    const uint8_t *line = fr_sorted_line(file, key);
    uint32_t probe = key->probe;
    for (uint32_t i = 0; i < file->lines.n_probes; i++, probe = fr_sorted_filter_next(probe)) {
        uint32_t bit = fr_sorted_filter_bit(probe);
        if (!(line[bit / 8] >> bit % 8 & 1))
            return false;
    }
    return true;
}

/* The first block that can have the key. */
uint32_t fr_sorted_block(const struct fr_sorted_file *file, const struct fr_sorted_key *key);
/* Asks the system to fetch the block, which will be read soon. */
void fr_sorted_will_read(const struct fr_sorted_file *file, uint32_t block);

enum fr_sorted_answer {
    FR_SORTED_VALUE,
    FR_SORTED_DELETED,
    FR_SORTED_NONE,  /* the file has no such key */
    FR_SORTED_WAITS, /* the block is not in memory, and the caller did not want to wait */
    FR_SORTED_ODD,   /* the block is damaged, or has content of an unknown format */
};
struct fr_sorted_value {
    const uint8_t *bytes; /* points into the block */
    size_t size;
    struct fr_buffer block; /* owned; its memory is kept from read to read */
};
/* Searches for the key, from `block` on. */
enum fr_sorted_answer fr_sorted_get(const struct fr_sorted_file *file, const struct fr_sorted_key *key, uint32_t block,
                                    bool wait, struct fr_sorted_value *out);

/* A walk over the entries of a table in hash order, from `first` to `last`. If a key occurs more
 * than once, the newest entry comes first. */
struct fr_sorted_walk;
struct fr_sorted_walk *fr_sorted_walk_new(const struct fr_sorted_file *file, uint32_t table, uint64_t first,
                                          uint64_t last);
void fr_sorted_walk_free(struct fr_sorted_walk *walk);
/* Moves to the next entry. FR_SORTED_VALUE or FR_SORTED_DELETED: there is one, whose bytes are
 * valid until the next call. FR_SORTED_NONE: the end. The `block` of *out is not used. */
enum fr_sorted_answer fr_sorted_walk_next(struct fr_sorted_walk *walk, uint64_t *hash, struct fr_sorted_value *out);

#endif
