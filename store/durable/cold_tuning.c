/* RocksDB's options for tables larger than memory.
 *
 * Reads. A point read asks the files of level 0 and one file of each lower level. Bloom filters
 * exclude most files that lack the key: all but 1 % with 10 bits a key, all but 0.1 % with 16 bits,
 * which the files of folds have, because a read asks a dozen of them. So a new key costs hardly any
 * read, and a known key costs one block, which is copied and checked as a whole for one row; blocks
 * therefore have 1 KiB. Filters and block offsets are in memory, 2.1 to 2.9 bytes a row, held by
 * cold_files.c; RocksDB has only a small cache for those that a merge is using. Keys are hashes, so
 * neighbours in a block are of no use and there is no cache of data blocks; the system's page cache
 * holds them. Reads through mmap were 1 us faster, but the pages they touch would count as resident
 * memory.
 *
 * Writes. A fold spans the whole key space, so its files land in level 0, and a compaction merges
 * them with the entire next level. Compactions cost processor time, as reads do. 24 files of level
 * 0 are merged at once, and the next level may have 64 folds of unfolded_max before a level is
 * inserted. Bytes written per folded byte are 1 (the fold) and about 4; with four files and a base
 * level of 1 GiB they were 17, for a table of 16 such merges. Each further file in level 0 costs a
 * read one filter line, memory for that filter, and a walk one seek. Merging small folds is cheap,
 * so four of those suffice. Larger tables get levels with a factor of 8, each of which adds 5. A
 * compaction from level 0 to the base level cannot be divided by files, so it is divided by ranges
 * (subcompactions). There is no compression, because rows are floats with random low bits.
 *
 * Format. Every option that decides the bytes of a sorted file is set here, even where it equals
 * RocksDB's default. Defaults differ between versions (9.10 uses another table format than 7.8, and
 * sizes filters by malloc's block sizes), and a state must open under each version, in both
 * directions.
 *
 * Thread: the one that opens the store. */
#include "cold_rocks.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/machine.h"
#include "durable/durable.h"
#include "sorted_block.h"

enum {
    CACHE_BYTES = 4 << 20, /* of indexes in use */
    BLOOM_BITS = 10,
    DEVIATION_PERCENT = 10, /* of a block's size: a block may be closed this much earlier */
    LEVELS = 7,
    LOG_BYTES = 4 << 20,
    LOG_FILES = 3,
    WARN_LEVEL = 2,
    COMPACTION_TRIGGER = 24, /* files of level 0 */
    COMPACTION_TRIGGER_SMALL = 4,
    FOLD_SMALL = 4 << 20,
    BASE_FOLDS = 64,
    LEVEL_FACTOR = 8,
    TARGET_FILE_BYTES = 64 << 20,
    FOLD_DEFAULT = 64 << 20,
    READAHEAD_BYTES = 512 << 10, /* for each input of a compaction */
    SYNC_BYTES = 1 << 20,        /* written files reach the disk evenly instead of at the end */
    /* Nothing is put. After a compaction found no room, it waits for this much room in addition to
     * its own size. */
    WRITE_BUFFER_BYTES = 1 << 20,
    COMPACTIONS_MIN = 2,
    COMPACTIONS_MAX = 4,
    /* Of the process's descriptors: how many journal, Kafka and HTTP need at least, and the
     * smallest number that is useful for sorted files. */
    FILES_REST = 96,
    FILES_MIN = 32,
    FILES_MAX = 1 << 20,
    FILES_IDLE_MS = 60000,   /* a state that fits in memory reads the files only at its start */
    FILES_ROCKSDB_MAX = 256, /* files that RocksDB opens: a merge of level 0 has some dozens */
    /* A read-only store opens all files at once, because the writer's compactions remove some of
     * them later. */
    FILES_ALL = -1,
};

/* Takes half of the descriptors that the process may have. Most are for point reads, which keep
 * every file open; the rest is for RocksDB's merges and walks. */
static enum fr_status choose_open_files(struct fr_cold *cold, int *rocksdb, struct fr_err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fr_err_set(err, FR_E_IO, "cannot read the limit of open files: %s", strerror(errno));
    _Static_assert(FILES_REST + FILES_MIN == FR_DURABLE_FILES_MIN, "what a start asks for");
    rlim_t files = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > FILES_MAX ? FILES_MAX : limit.rlim_cur;
    rlim_t share = files > 2 * FILES_REST ? files / 2 : files > FILES_REST ? files - FILES_REST : 0;
    if (share < FILES_MIN)
        return fr_err_set(err, FR_E_LIMIT,
                          "the process may open %" PRIu64 " files, at least %d are needed: raise its limit "
                          "(LimitNOFILE= of systemd, ulimit -n)",
                          (uint64_t)files, FR_DURABLE_FILES_MIN);
    rlim_t own = share / 2 > FILES_ROCKSDB_MAX ? FILES_ROCKSDB_MAX : share / 2;
    *rocksdb = (int)own;
    cold->files_max = (uint32_t)(share - own);
    cold->files_idle_ms = FILES_IDLE_MS;
    return FR_OK;
}

/* Limits of the base level's size: a compaction of all of it must find room on the disk. */
static const uint64_t base_bytes_min = 64 << 20, base_bytes_max = (uint64_t)4 << 30;

/* Options that the C interface of 7.8 cannot set. */
static const char uncallable[] = "block_based_table_factory={optimize_filters_for_memory=false;block_align=false;"
                                 "index_shortening=kShortenSeparators};"
                                 /* the options file is never read, but 9.10 insists on it */
                                 "fail_if_options_file_error=false";

static void set_blocks(rocksdb_options_t *options, rocksdb_cache_t *cache, int bloom_bits)
{
    rocksdb_block_based_table_options_t *blocks = rocksdb_block_based_options_create();
    if (cache) {
        rocksdb_block_based_options_set_block_cache(blocks, cache);
        rocksdb_block_based_options_set_cache_index_and_filter_blocks(blocks, 1);
    } else {
        rocksdb_block_based_options_set_no_block_cache(blocks, 1);
    }
    rocksdb_block_based_options_set_format_version(blocks, SORTED_FORMAT_VERSION);
    rocksdb_block_based_options_set_checksum(blocks, SORTED_CHECKSUM_XXH3);
    rocksdb_block_based_options_set_block_size(blocks, SORTED_BLOCK_BYTES);
    rocksdb_block_based_options_set_block_size_deviation(blocks, DEVIATION_PERCENT);
    rocksdb_block_based_options_set_block_restart_interval(blocks, SORTED_RESTART_EVERY);
    rocksdb_block_based_options_set_use_delta_encoding(blocks, 1);
    rocksdb_block_based_options_set_data_block_index_type(
        blocks, rocksdb_block_based_table_data_block_index_type_binary_search);
    rocksdb_block_based_options_set_index_type(blocks, rocksdb_block_based_table_index_type_binary_search);
    rocksdb_block_based_options_set_index_block_restart_interval(blocks, SORTED_RESTART_EVERY);
    rocksdb_block_based_options_set_filter_policy(blocks, rocksdb_filterpolicy_create_bloom_full(bloom_bits));
    rocksdb_block_based_options_set_whole_key_filtering(blocks, 1);
    rocksdb_block_based_options_set_partition_filters(blocks, 0);
    rocksdb_options_set_block_based_table_factory(options, blocks);
    rocksdb_block_based_options_destroy(blocks);
}

enum fr_status fr_cold_set_format(rocksdb_options_t **options, rocksdb_cache_t *cache, int bloom_bits,
                                  struct fr_err *err)
{
    char *text = NULL;
    rocksdb_options_t *whole = rocksdb_options_create();
    set_blocks(*options, cache, bloom_bits);
    rocksdb_options_set_compression(*options, rocksdb_no_compression);
    rocksdb_options_set_bottommost_compression(*options, rocksdb_no_compression);
    rocksdb_get_options_from_string(*options, uncallable, whole, &text);
    rocksdb_options_destroy(*options);
    *options = whole;
    return text ? fr_cold_error(text, "set up", "of this version of RocksDB", err) : FR_OK;
}

static void set_compaction(rocksdb_options_t *options, uint64_t fold_bytes)
{
    uint64_t base = fold_bytes < base_bytes_max / BASE_FOLDS ? fold_bytes * BASE_FOLDS : base_bytes_max;
    int cores = (int)fr_machine_processors(fr_machine());
    int jobs = cores / 2 < COMPACTIONS_MIN   ? COMPACTIONS_MIN
               : cores / 2 > COMPACTIONS_MAX ? COMPACTIONS_MAX
                                             : cores / 2;
    /* If only one of the two is set, RocksDB 7.8 sets the other to 1 and ignores
     * max_background_jobs. Nothing is flushed, and 7.8.3 fails with more than one flush thread. */
    rocksdb_options_set_max_background_flushes(options, 1);
    rocksdb_options_set_max_background_compactions(options, jobs);
    rocksdb_options_set_max_subcompactions(options, (uint32_t)jobs);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, fold_bytes < FOLD_SMALL ? COMPACTION_TRIGGER_SMALL
                                                                                            : COMPACTION_TRIGGER);
    rocksdb_options_set_compaction_style(options, rocksdb_level_compaction);
    rocksdb_options_set_num_levels(options, LEVELS);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_max_bytes_for_level_base(options, base < base_bytes_min ? base_bytes_min : base);
    rocksdb_options_set_max_bytes_for_level_multiplier(options, LEVEL_FACTOR);
    rocksdb_options_set_target_file_size_base(options, TARGET_FILE_BYTES);
    rocksdb_options_compaction_readahead_size(options, READAHEAD_BYTES);
    rocksdb_options_set_bytes_per_sync(options, SYNC_BYTES);
}

enum fr_status fr_cold_tune(struct fr_cold *cold, uint64_t fold_bytes, bool read_only, struct fr_err *err)
{
    int max_open_files = FILES_ALL;
    enum fr_status status = read_only ? FR_OK : choose_open_files(cold, &max_open_files, err);
    if (status != FR_OK)
        return status;
    cold->cache = read_only ? NULL : rocksdb_cache_create_lru(CACHE_BYTES);
    cold->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(cold->options, 1);
    rocksdb_options_set_paranoid_checks(cold->options, 1);
    rocksdb_options_set_max_open_files(cold->options, max_open_files);
    set_compaction(cold->options, fold_bytes ? fold_bytes : FOLD_DEFAULT);
    rocksdb_options_set_write_buffer_size(cold->options, WRITE_BUFFER_BYTES);
    rocksdb_options_set_info_log_level(cold->options, WARN_LEVEL);
    rocksdb_options_set_max_log_file_size(cold->options, LOG_BYTES);
    rocksdb_options_set_keep_log_file_num(cold->options, LOG_FILES);
    return fr_cold_set_format(&cold->options, cold->cache, BLOOM_BITS, err);
}
