/* Writes sorted files that RocksDB can read, for folds. Module-internal. */
#ifndef FR_DURABLE_SORTED_WRITER_H
#define FR_DURABLE_SORTED_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FR_SORTED_WRITER_KEY_MAX = 200 };

struct fr_sorted_writer;

/* Creates or empties the file. direct_bytes is the number of bytes expected that are not read soon:
 * those bypass the page cache (direct.h); 0: none. All functions return FR_E_IO, FR_E_NO_SPACE and
 * the other errors of fr_disk_write; after an error only fr_sorted_writer_free may be called. */
enum fr_status fr_sorted_writer_open(const char *path, uint64_t direct_bytes, struct fr_sorted_writer **out,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Adds an entry. Keys must ascend bytewise. The caller writes the value to *value before the next
 * call. */
enum fr_status fr_sorted_writer_put(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                    size_t value_size, uint8_t **value, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_sorted_writer_delete(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                       struct fr_err *err) FR_MUST_CHECK;
/* Completes the file, which must have at least one key. The file is not synced, because the ingest
 * syncs it. */
enum fr_status fr_sorted_writer_finish(struct fr_sorted_writer *sst, struct fr_err *err) FR_MUST_CHECK;
void fr_sorted_writer_free(struct fr_sorted_writer *sst);

#endif
