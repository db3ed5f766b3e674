/* Slabs of equal rows: see slab.h. The chunk's header takes one cache line in front of its rows. */
#include "slab.h"

#include <string.h>

#include "base/check.h"
#include "pages.h"

enum { CACHE_LINE = 64, CHUNK_MIN = 4096, CHUNK_MAX = 8 * 1024 * 1024, CHUNK_ROWS_MIN = 4, GROWTH_SHARE = 4 };

struct fr_slab_chunk {
    struct fr_slab_chunk *next;
    size_t bytes;
    uint8_t padding[CACHE_LINE - sizeof(void *) - sizeof(size_t)];
};
_Static_assert(sizeof(struct fr_slab_chunk) == CACHE_LINE, "rows behind the header stay aligned");

void fr_slab_init(struct fr_slab *slab, size_t row_bytes)
{
    FR_CHECK(row_bytes > 0 && row_bytes % CACHE_LINE == 0 && row_bytes < SIZE_MAX / (2 * CHUNK_ROWS_MIN));
    *slab = (struct fr_slab){.row_bytes = row_bytes};
}

void fr_slab_release(struct fr_slab *slab)
{
    while (slab->chunks) {
        struct fr_slab_chunk *chunk = slab->chunks;
        slab->chunks = chunk->next;
        fr_pages_give(chunk, chunk->bytes);
    }
    *slab = (struct fr_slab){0};
}

static void add_chunk(struct fr_slab *slab)
{
    size_t bytes = slab->reserved / GROWTH_SHARE / CHUNK_MIN * CHUNK_MIN;
    if (bytes < CHUNK_MIN)
        bytes = CHUNK_MIN;
    if (bytes > CHUNK_MAX)
        bytes = CHUNK_MAX;
    size_t least = sizeof(struct fr_slab_chunk) + CHUNK_ROWS_MIN * slab->row_bytes;
    if (bytes < least)
        bytes = least;
    struct fr_slab_chunk *chunk = fr_pages_take(bytes);
    *chunk = (struct fr_slab_chunk){.next = slab->chunks, .bytes = bytes};
    slab->chunks = chunk;
    slab->reserved += bytes;
    slab->fresh = (uint8_t *)chunk + sizeof(*chunk);
    slab->fresh_end = (uint8_t *)chunk + bytes;
}

void *fr_slab_take(struct fr_slab *slab)
{
    void *row = slab->free_rows;
    if (row) {
        memcpy(&slab->free_rows, row, sizeof(slab->free_rows));
        return row;
    }
    if ((size_t)(slab->fresh_end - slab->fresh) < slab->row_bytes)
        add_chunk(slab);
    row = slab->fresh;
    slab->fresh += slab->row_bytes;
    return row;
}

void fr_slab_give(struct fr_slab *slab, void *row)
{
    memcpy(row, &slab->free_rows, sizeof(slab->free_rows));
    slab->free_rows = row;
}
