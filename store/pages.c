/* Large zeroed memory straight from the system (mmap), small pieces from the heap.
 *
 * calloc does not serve the large ones: after a large block was freed, glibc raises its mmap
 * threshold and takes the next one from the heap, with a memset of all of it, so that an index that
 * doubles would pause. Huge pages gain 5-15 % on random access (measured for the index prototype).
 *
 * Thread: any. It does not keep freed pieces. */
#include "pages.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"

enum { MAPPED_MIN = 256 * 1024, CACHE_LINE = 64 };

void *fr_pages_take(size_t size)
{
    if (size < MAPPED_MIN)
        return fr_alloc_aligned(CACHE_LINE, size);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FR_CHECK(memory != MAP_FAILED); /* memory refused: crash-only, as in fr_alloc */
    /* A refusal costs speed only. Neighbouring pieces merge in the kernel, so pieces need no
     * alignment of their own. */
    (void)madvise(memory, size, MADV_HUGEPAGE);
    return memory;
}

void fr_pages_give(void *memory, size_t size)
{
    if (!memory)
        return;
    if (size < MAPPED_MIN) {
        free(memory);
        return;
    }
    int rc = munmap(memory, size);
    FR_CHECK(rc == 0);
}
