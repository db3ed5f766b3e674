/* The document of GET /auc, from a daemon, a state directory or a file, read into figures. Private
 * to tool.
 *
 * Thread: one. */
#ifndef FR_TOOL_COMPARE_DOCUMENT_H
#define FR_TOOL_COMPARE_DOCUMENT_H

#include "base/buffer.h"
#include "base/status.h"

enum { FR_COMPARED = 5, FR_COMPARE_TEXT_MAX = 128, FR_COMPARE_FIGURES_MAX = 512 };
/* The names of a figure's values, as in the document. */
extern const char *const fr_tool_compared[FR_COMPARED];

/* Figures of one task and one window: "lifetime", or a half-life as the document writes it. NaN:
 * undefined. */
struct fr_tool_figures {
    char task[FR_COMPARE_TEXT_MAX], window[FR_COMPARE_TEXT_MAX];
    double values[FR_COMPARED];
};

struct fr_tool_document {
    char model[FR_COMPARE_TEXT_MAX];
    uint64_t timeline, epoch;
    struct fr_tool_figures *figures; /* owned */
    size_t n_figures;
};

/* Reads the document at `place`: http://HOST:PORT[/PATH] (default path: /auc), a state directory,
 * or a file that contains the document. Errors: FR_E_UNAVAILABLE, FR_E_NOT_FOUND, FR_E_INVALID (not
 * such a document), FR_E_IO. */
enum fr_status fr_tool_document_read(const char *place, struct fr_tool_document *out, struct fr_err *err) FR_MUST_CHECK;
void fr_tool_document_release(struct fr_tool_document *document);

/* fetch.c: the body of a response with status 200. */
enum fr_status fr_tool_fetch(const char *url, struct fr_buffer *body, struct fr_err *err) FR_MUST_CHECK;

#endif
