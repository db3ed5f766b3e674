/* Writes and reads that bypass the page cache (direct.h).
 *
 * Invariants: the window begins at a page boundary of the file, and only a full window bypasses the
 * cache. If the direct descriptor refuses a window (EINVAL: another alignment, or a file system
 * without O_DIRECT) or accepts only a part, it is closed and the window goes through the cache. Any
 * other error is returned.
 *
 * Nothing is synced or retried here. */
#define _GNU_SOURCE
#include "direct.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

#ifdef O_DIRECT
enum { AROUND_CACHE = O_DIRECT };
#else
enum { AROUND_CACHE = 0 };
#endif

/* ---- writing ---- */

void fr_direct_begin(struct fr_direct *direct, uint64_t size)
{
    direct->fd = -1;
    if (AROUND_CACHE && size >= FR_DIRECT_MIN)
        direct->fd =
            direct->disk->open(direct->disk->self, direct->path, O_WRONLY | AROUND_CACHE | O_CLOEXEC | O_NOFOLLOW, 0);
    if (direct->fd >= 0)
        direct->window = fr_alloc_aligned(FR_DIRECT_PAGE, FR_DIRECT_WINDOW);
}

static void stop_direct(struct fr_direct *direct)
{
    if (direct->fd >= 0)
        /* the caller syncs the file through its own descriptor */
        (void)direct->disk->close(direct->disk->self, direct->fd);
    direct->fd = -1;
}

/* Writes the full window; through the cache if the direct write fails. */
static enum fr_status write_window(struct fr_direct *direct, struct fr_err *err)
{
    const struct fr_disk *disk = direct->disk;
    if (direct->fd >= 0) {
        long n = disk->pwrite(disk->self, direct->fd, direct->window, FR_DIRECT_WINDOW, direct->offset);
        if (n == FR_DIRECT_WINDOW)
            return FR_OK;
        if (n < 0 && errno != EINVAL)
            return fr_disk_error(err, "write", direct->path, errno);
        stop_direct(direct);
    }
    return fr_disk_write(disk, direct->cached, direct->window, FR_DIRECT_WINDOW, direct->offset, direct->path, err);
}

enum fr_status fr_direct_put(struct fr_direct *direct, const void *bytes, size_t size, struct fr_err *err)
{
    const uint8_t *from = bytes;
    size_t to_page = (size_t)(-direct->offset % FR_DIRECT_PAGE);
    if (!direct->window || to_page > 0) {
        size_t n = !direct->window || size < to_page ? size : to_page;
        enum fr_status status = fr_disk_write(direct->disk, direct->cached, from, n, direct->offset, direct->path, err);
        if (status != FR_OK)
            return status;
        direct->offset += n;
        from += n;
        size -= n;
    }
    while (size > 0) {
        size_t room = FR_DIRECT_WINDOW - direct->filled, n = size < room ? size : room;
        memcpy(direct->window + direct->filled, from, n);
        direct->filled += n;
        from += n;
        size -= n;
        if (direct->filled < FR_DIRECT_WINDOW)
            break;
        enum fr_status status = write_window(direct, err);
        if (status != FR_OK)
            return status;
        direct->offset += FR_DIRECT_WINDOW;
        direct->filled = 0;
    }
    return FR_OK;
}

enum fr_status fr_direct_end(struct fr_direct *direct, struct fr_err *err)
{
    enum fr_status status =
        fr_disk_write(direct->disk, direct->cached, direct->window, direct->filled, direct->offset, direct->path, err);
    direct->offset += direct->filled;
    direct->filled = 0;
    return status;
}

void fr_direct_release(struct fr_direct *direct)
{
    stop_direct(direct);
    free(direct->window);
    direct->window = NULL;
}

/* ---- reading ---- */

int64_t fr_direct_read(const char *path, void *pages, size_t size, uint64_t offset)
{
    if (!AROUND_CACHE)
        return -1;
    int fd = open(path, O_RDONLY | AROUND_CACHE | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    uint8_t *to = pages;
    size_t done = 0;
    ssize_t n = 0;
    do {
        n = pread(fd, to + done, size - done, (off_t)(offset + done));
        done += n > 0 ? (size_t)n : 0;
    } while (done < size && (n < 0 ? errno == EINTR : n > 0 && n % FR_DIRECT_PAGE == 0));
    (void)close(fd);
    return n < 0 ? -1 : (int64_t)done;
}
