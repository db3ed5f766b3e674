/* Large zeroed memory straight from the system. */
#ifndef FR_STORE_PAGES_H
#define FR_STORE_PAGES_H

#include <stddef.h>

/* Zeroed, 64-byte aligned; pages are touched only when used, so taking a large piece costs no
 * pause. Huge pages are asked for where a piece holds some. Refused memory ends the process
 * (FR_CHECK), as in fr_alloc. */
void *fr_pages_take(size_t size);
/* NULL: nothing. `size` as it was taken. */
void fr_pages_give(void *memory, size_t size);

#endif
