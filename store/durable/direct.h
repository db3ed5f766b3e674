/* Large sequential writes and reads that bypass the system's page cache (O_DIRECT).
 *
 * Through the cache, a byte costs finding a page, a copy and writing the page out: 0.2 ns of
 * processor time if the machine has the memory at hand, 1.4 ns if a host must provide it first.
 * Bypassing the cache costs 0.1 ns (tests/bench/README.md). Data that is written once and read at
 * most once, by a fold, does not profit from the cache. On a file system without O_DIRECT
 * everything goes through the cache, which makes no difference to callers.
 *
 * Whole pages bypass the cache through a descriptor of their own. The partial pages at both ends go
 * through the cache, so each page is written in one way only. The caller syncs.
 *
 * Owner: the thread that writes or reads. */
#ifndef FR_DURABLE_DIRECT_H
#define FR_DURABLE_DIRECT_H

#include "base/file.h"

enum {
    FR_DIRECT_PAGE = 4096, /* alignment of offset, length and address */
    /* bytes of one write; with 256 KiB a byte costs three times as much */
    FR_DIRECT_WINDOW = 1 << 20,
    FR_DIRECT_MIN = 4 << 20, /* smaller data stays in the cache, where it will be read again */
};

struct fr_direct {
    const struct fr_disk *disk;
    const char *path; /* path of the file, borrowed */
    int cached;       /* the caller's descriptor of the file, through the cache */
    uint64_t offset;  /* file offset of the next byte, or of the window's first byte */
    int fd;           /* -1: everything goes through the cache */
    size_t filled;
    uint8_t *window;
};

/* Begins a write of at least `size` bytes from direct->offset on. The caller has set disk, path,
 * cached and offset. Less than FR_DIRECT_MIN goes through the cache. */
void fr_direct_begin(struct fr_direct *direct, uint64_t size);
/* Writes the next bytes. After FR_E_NO_SPACE or FR_E_IO it is unknown how much was written. */
enum fr_status fr_direct_put(struct fr_direct *direct, const void *bytes, size_t size,
                             struct fr_err *err) FR_MUST_CHECK;
/* Writes the rest of the window. No more bytes may follow. */
enum fr_status fr_direct_end(struct fr_direct *direct, struct fr_err *err) FR_MUST_CHECK;
void fr_direct_release(struct fr_direct *direct);

/* Reads into `pages`, from `offset` on, both aligned to a page, until `size` bytes or the end of
 * the file. Returns the number of bytes, or -1 if the file cannot be read this way. */
int64_t fr_direct_read(const char *path, void *pages, size_t size, uint64_t offset);

#endif
