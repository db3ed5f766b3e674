/* Counts what the heap holds. When this library is preloaded (LD_PRELOAD), it keeps the bytes of
 * all blocks in use at the beginning of the file that FRESHET_HEAP names (a native 64-bit integer).
 *
 * Resident memory shows leaks badly, because an allocator takes and keeps megabytes of pages as
 * threads happen to meet. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static _Atomic int64_t early;
static _Atomic int64_t *in_use = &early;

/* Before threads begin. */
__attribute__((constructor)) static void open_count(void)
{
    const char *path = getenv("FRESHET_HEAP");
    int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    void *page = fd >= 0 && ftruncate(fd, sizeof(early)) == 0
                     ? mmap(NULL, sizeof(early), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (page == MAP_FAILED) {
        fprintf(stderr, "heap_shim: FRESHET_HEAP names no file that can be written\n");
        _exit(1);
    }
    (void)close(fd);
    in_use = page;
    atomic_store(in_use, atomic_load(&early));
}

static void *taken(void *block)
{
    atomic_fetch_add_explicit(in_use, (int64_t)malloc_usable_size(block), memory_order_relaxed);
    return block;
}

static void *given(void *block)
{
    atomic_fetch_sub_explicit(in_use, (int64_t)malloc_usable_size(block), memory_order_relaxed);
    return block;
}

void *malloc(size_t size)
{
    return taken(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return taken(__libc_calloc(n, size));
}

void *realloc(void *block, size_t size)
{
    int64_t before = (int64_t)malloc_usable_size(block);
    void *moved = __libc_realloc(block, size);
    if (moved || size == 0)
        atomic_fetch_add_explicit(in_use, (int64_t)malloc_usable_size(moved) - before, memory_order_relaxed);
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    return taken(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

void free(void *block)
{
    __libc_free(given(block));
}
