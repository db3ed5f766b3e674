/* The page at GET / of freshetd: its scripts and styles, embedded at build, and its document, whose
 * head says in plain text what the daemon does, so that it is read without a script.
 *
 * Thread: any. The document is written to the caller's buffer only. */
#ifndef FR_PAGE_PAGE_H
#define FR_PAGE_PAGE_H

#include "metrics/http.h"

/* What GET / refers to: scripts, styles, the chart library and its licence. The table is static. */
const struct fr_http_asset *fr_page_assets(size_t *count);

struct fr_page_problem {
    const char *where, *text;
};
/* All texts are UTF-8, borrowed for the call, and escaped by the page. */
struct fr_page_head {
    const char *model, *version;
    const char *state; /* a sentence: "Running, ready." */
    size_t n_problems;
    const struct fr_page_problem *problems;
};
/* Appends the HTML document of GET /. */
void fr_page_document(const struct fr_page_head *head, struct fr_buffer *out);

#endif
