/* How RocksDB is set up for tables larger than memory.
 *
 * Reads. A point read asks the files of level 0 and one file of each level below; bloom filters
 * of 10 bits a key let all but 1 % of the files that lack the key out, so a new key costs hardly
 * a read and a known one costs one block. Filters and indexes are partitioned: in pieces of a
 * block's size they fit into any cache, whereas a whole one (1.3 MB for a million rows) is
 * larger than the cache's shards and was read again for every key (50 us of CPU a key;
 * partitioned 7 for a known key and 1.2 for a new one, 2 M rows of 92 bytes, 64 MiB of cache).
 * They live in the block cache with high priority (about 2 bytes a row). Blocks of 8 KiB were no
 * better (7 to 8 us). Keys are hashes, so a block's neighbours are of no use and data blocks go
 * first. The cache's limit is not strict: strict makes a read fail, a compaction's too, when
 * what is pinned does not fit, and that would end the service. What it holds is counted
 * (fr_cold_memory).
 *
 * Writes. A fold spans the whole key space, so it lands in level 0 as unfolded_max / 256 MiB
 * files and is merged with all of the base level. With dynamic levels the base is as large as
 * what level 0 brings (1 GiB) and each level below is eight times larger: a table of 100 GB has
 * three levels below level 0 (1.5, 12, 100 GB). Bytes written per folded byte: 1 (the fold) + 2
 * (level 0 and base are of a size) + 2 x 5 (half of the factor, and one) = 13 or so, and at most
 * 1/8 of the space is stale. RocksDB's defaults gave 20 to 30. Level 0 to the base level cannot
 * be split by files, so it is split by ranges (subcompactions). Without compression: rows are
 * floats of random low bits.
 *
 * Thread: open's. */
#include "cold_rocks.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"

enum {
    CACHE_DEFAULT = 8 << 20,
    BLOCK_BYTES = 4 << 10,
    BLOOM_BITS = 10,
    LOG_BYTES = 4 << 20,
    LOG_FILES = 3,
    WARN_LEVEL = 2,
    COMPACTION_TRIGGER = 4, /* files of level 0: two folds */
    LEVEL_FACTOR = 8,
    TARGET_FILE_BYTES = 64 << 20,
    BASE_LEVEL_BYTES = 1 << 30,
    READAHEAD_BYTES = 2 << 20,
    SYNC_BYTES = 1 << 20, /* written files reach the disk evenly, not at the end */
    COMPACTIONS_MIN = 2,
    COMPACTIONS_MAX = 4,
    /* Of the process's descriptors: what journal, Kafka and HTTP need at least, and below what
     * nothing of use is left for sorted files. */
    FILES_REST = 96,
    FILES_MIN = 32,
    FILES_MAX = 1 << 20,
};

/* Half of the descriptors that the process may have: each read may need its own file. */
static enum fr_status choose_max_open_files(int *out, struct fr_err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return fr_err_set(err, FR_E_IO, "cannot read the limit of open files: %s", strerror(errno));
    rlim_t files = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > FILES_MAX ? FILES_MAX : limit.rlim_cur;
    rlim_t share = files > 2 * FILES_REST ? files / 2 : files > FILES_REST ? files - FILES_REST : 0;
    if (share < FILES_MIN)
        return fr_err_set(err, FR_E_LIMIT,
                          "the process may open %" PRIu64 " files, at least %d are needed: raise its limit "
                          "(LimitNOFILE= of systemd, ulimit -n)",
                          (uint64_t)files, FILES_REST + FILES_MIN);
    *out = (int)share;
    return FR_OK;
}

static rocksdb_block_based_table_options_t *make_blocks(rocksdb_cache_t *cache)
{
    rocksdb_block_based_table_options_t *blocks = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(blocks, cache);
    rocksdb_block_based_options_set_block_size(blocks, BLOCK_BYTES);
    rocksdb_block_based_options_set_filter_policy(blocks, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
    rocksdb_block_based_options_set_index_type(blocks, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(blocks, 1);
    rocksdb_block_based_options_set_metadata_block_size(blocks, BLOCK_BYTES);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(blocks, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(blocks, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(blocks, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(blocks, 1);
    return blocks;
}

static void set_compaction(rocksdb_options_t *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int jobs = cores / 2 < COMPACTIONS_MIN   ? COMPACTIONS_MIN
               : cores / 2 > COMPACTIONS_MAX ? COMPACTIONS_MAX
                                             : (int)(cores / 2);
    /* Given one of the two, RocksDB 7.8 takes 1 for the other and not max_background_jobs. Nothing
     * flushes; 7.8.3 has errors with more than one. */
    rocksdb_options_set_max_background_flushes(options, 1);
    rocksdb_options_set_max_background_compactions(options, jobs);
    rocksdb_options_set_max_subcompactions(options, (uint32_t)jobs);
    rocksdb_options_set_level0_file_num_compaction_trigger(options, COMPACTION_TRIGGER);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_max_bytes_for_level_base(options, BASE_LEVEL_BYTES);
    rocksdb_options_set_max_bytes_for_level_multiplier(options, LEVEL_FACTOR);
    rocksdb_options_set_target_file_size_base(options, TARGET_FILE_BYTES);
    rocksdb_options_compaction_readahead_size(options, READAHEAD_BYTES);
    rocksdb_options_set_bytes_per_sync(options, SYNC_BYTES);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
}

enum fr_status fr_cold_tune(struct fr_cold *cold, uint64_t cache_bytes, struct fr_err *err)
{
    int max_open_files = 0;
    enum fr_status status = choose_max_open_files(&max_open_files, err);
    if (status != FR_OK)
        return status;
    cold->cache = rocksdb_cache_create_lru(cache_bytes ? (size_t)cache_bytes : CACHE_DEFAULT);
    cold->options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(cold->options, 1);
    rocksdb_options_set_paranoid_checks(cold->options, 1);
    rocksdb_options_set_max_open_files(cold->options, max_open_files);
    set_compaction(cold->options);
    rocksdb_options_set_info_log_level(cold->options, WARN_LEVEL);
    rocksdb_options_set_max_log_file_size(cold->options, LOG_BYTES);
    rocksdb_options_set_keep_log_file_num(cold->options, LOG_FILES);
    rocksdb_block_based_table_options_t *blocks = make_blocks(cold->cache);
    rocksdb_options_set_block_based_table_factory(cold->options, blocks);
    rocksdb_block_based_options_destroy(blocks);
    return FR_OK;
}
