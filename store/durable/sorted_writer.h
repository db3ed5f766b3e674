/* Sorted files as RocksDB reads them, for folds. Module-internal. */
#ifndef FR_DURABLE_SORTED_WRITER_H
#define FR_DURABLE_SORTED_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { FR_SORTED_WRITER_KEY_MAX = 200 };

struct fr_sorted_writer;

/* Makes or empties the file, and expects direct_bytes of it that nobody reads soon: they go around
 * the page cache (direct.h); 0: none do. FR_E_IO, FR_E_NO_SPACE and what else fr_disk_write
 * returns, here and below; afterwards only free. */
enum fr_status fr_sorted_writer_open(const char *path, uint64_t direct_bytes, struct fr_sorted_writer **out,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Keys ascend by bytes. *value: where the caller writes the value, before the next call. */
enum fr_status fr_sorted_writer_put(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                    size_t value_size, uint8_t **value, struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_sorted_writer_delete(struct fr_sorted_writer *sst, const uint8_t *key, size_t key_size,
                                       struct fr_err *err) FR_MUST_CHECK;
/* There is a key. The file is whole, but not synced: the ingest does that. */
enum fr_status fr_sorted_writer_finish(struct fr_sorted_writer *sst, struct fr_err *err) FR_MUST_CHECK;
void fr_sorted_writer_free(struct fr_sorted_writer *sst);

#endif
