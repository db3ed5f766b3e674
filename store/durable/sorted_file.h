/* One sorted file of the cold store, read without RocksDB: point reads and ranges of
 * image keys. Module-internal.
 *
 * What RocksDB writes by cold_tuning.c's options is read (block based table, format version 5,
 * bytewise keys, no compression, XXH3 checksums, Bloom filter of cache lines, index whole or in
 * partitions); a file that differs is refused as it opens, and a block that differs as it is read.
 * RocksDB reads those. In memory are the filter and 8 bytes a block.
 *
 * Thread: open by one; then any number read. Owner: who counts its users (cold_files.c). */
#ifndef FR_DURABLE_SORTED_FILE_H
#define FR_DURABLE_SORTED_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "sorted_filter.h"

struct sorted_table; /* of an index: which blocks end in a table */

struct fr_sorted_file {
    uint64_t number;
    uint32_t users; /* the owner's */
    int fd;         /* -1: opened for each read */
    char *path;
    struct fr_buffer filter; /* the block that `lines` stand in */
    struct fr_sorted_lines lines;
    uint32_t *separators; /* [n_blocks]: upper halves of hashes that no later block has */
    uint32_t *offsets;    /* [n_blocks + 1] */
    uint32_t n_blocks, n_tables;
    struct sorted_table *tables;
};

/* NULL when the file is not there or not as above: errno ENOENT or EMFILE, else 0. */
struct fr_sorted_file *fr_sorted_open(const char *path, uint64_t number);
void fr_sorted_close(struct fr_sorted_file *file);
/* From now on it is opened for each read, as long as it has its name. Before anyone else reads. */
void fr_sorted_rest(struct fr_sorted_file *file);
/* A descriptor of it until it is given back; -1: there is none. */
int fr_sorted_use(const struct fr_sorted_file *file);
void fr_sorted_unuse(const struct fr_sorted_file *file, int fd);
size_t fr_sorted_bytes(const struct fr_sorted_file *file);

struct fr_sorted_key {
    uint64_t hash;
    uint32_t table;
    uint32_t line, probe; /* what the filter takes from it */
};
struct fr_sorted_key fr_sorted_key_of(uint32_t table, uint64_t hash);

static inline const uint8_t *fr_sorted_line(const struct fr_sorted_file *file, const struct fr_sorted_key *key)
{
    return file->lines.bytes + fr_sorted_filter_line(file->lines.n, key->line);
}

/* Whether the file may have the key: of those that it has not, hardly one. */
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
/* Asks the system for the block, for a read that follows. */
void fr_sorted_will_read(const struct fr_sorted_file *file, uint32_t block);

enum fr_sorted_answer {
    FR_SORTED_VALUE,
    FR_SORTED_DELETED,
    FR_SORTED_NONE,  /* the file has no such key */
    FR_SORTED_WAITS, /* the block is not in memory, and the caller would not wait */
    FR_SORTED_ODD,   /* the block is damaged, or says something that is not known here */
};
struct fr_sorted_value {
    const uint8_t *bytes; /* in the block */
    size_t size;
    struct fr_buffer block; /* owned; kept from read to read */
};
/* From that block on. */
enum fr_sorted_answer fr_sorted_get(const struct fr_sorted_file *file, const struct fr_sorted_key *key, uint32_t block,
                                    bool wait, struct fr_sorted_value *out);

/* Entries of a table in order of their hashes, from `first` to `last`. Of a key that stands more
 * than once the newest comes first. */
struct fr_sorted_walk;
struct fr_sorted_walk *fr_sorted_walk_new(const struct fr_sorted_file *file, uint32_t table, uint64_t first,
                                          uint64_t last);
void fr_sorted_walk_free(struct fr_sorted_walk *walk);
/* FR_SORTED_VALUE or FR_SORTED_DELETED: the next one, whose bytes stand until the next call;
 * FR_SORTED_NONE: the end. Does not use the value's block. */
enum fr_sorted_answer fr_sorted_walk_next(struct fr_sorted_walk *walk, uint64_t *hash, struct fr_sorted_value *out);

#endif
