/* Large writes and reads in sequence that go around the system's page cache (O_DIRECT).
 *
 * Through the cache a byte costs a page to be found, a copy and the page's way to the disk: 0.2 ns
 * of processor time where the machine has the memory at hand, 1.4 where a host must give it first,
 * and 0.1 around it (tests/bench/README.md). What is written once and read at most once, by a fold,
 * gains nothing from the cache. Where a file system does not take such calls everything goes
 * through the cache; no caller sees a difference.
 *
 * Whole pages go around the cache, by a descriptor of their own; what is left at both ends goes
 * through it, so that a page is only ever written one way. It is the caller who syncs.
 *
 * Owner: the thread that writes or reads. */
#ifndef FR_DURABLE_DIRECT_H
#define FR_DURABLE_DIRECT_H

#include "base/file.h"

enum {
    FR_DIRECT_PAGE = 4096,      /* to which offset, length and address are aligned */
    FR_DIRECT_WINDOW = 1 << 20, /* of one write: 256 KiB cost three times as much a byte */
    FR_DIRECT_MIN = 4 << 20,    /* what is smaller stays in the cache, where it is read again */
};

struct fr_direct {
    const struct fr_disk *disk;
    const char *path; /* of the file, borrowed */
    int cached;       /* the caller's descriptor of it */
    uint64_t offset;  /* where the next byte goes, or the first of the window */
    int fd;           /* -1: everything goes through the cache */
    size_t filled;
    uint8_t *window;
};

/* Begins to write `size` bytes or more from direct->offset on; disk, path, cached and offset are
 * set. Less than FR_DIRECT_MIN goes through the cache. */
void fr_direct_begin(struct fr_direct *direct, uint64_t size);
/* Writes what follows. FR_E_NO_SPACE, FR_E_IO: how much was written is not said. */
enum fr_status fr_direct_put(struct fr_direct *direct, const void *bytes, size_t size,
                             struct fr_err *err) FR_MUST_CHECK;
/* Writes what the window has left; nothing follows. */
enum fr_status fr_direct_end(struct fr_direct *direct, struct fr_err *err) FR_MUST_CHECK;
void fr_direct_release(struct fr_direct *direct);

/* Reads the pages from `offset` on, which is a page's as `pages` is, until `size` bytes or the
 * file's end; returns how many, or -1 when this file cannot be read so. */
int64_t fr_direct_read(const char *path, void *pages, size_t size, uint64_t offset);

#endif
