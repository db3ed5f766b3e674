/* What the page at GET / is made of, besides /status and /auc: the page's own document, the model's
 * description (/model), and the history of numbers (/history).
 *
 * Thread: the one that publishes the documents (documents.h). */
#ifndef FR_DAEMON_PAGE_DOCUMENTS_H
#define FR_DAEMON_PAGE_DOCUMENTS_H

#include "metrics/freshness.h"
#include "metrics/history.h"

struct fr_service;
struct fr_service_status;

struct fr_page_documents { /* zeroed: there is no page */
    struct fr_history *history;
    struct fr_freshness_window *window;
};

/* Publishes /model and has /history served. service->http, freshness and documents exist. */
void fr_documents_page_open(struct fr_service *service);
/* Publishes GET / and, once a second, puts the numbers of `s` into the history. */
void fr_documents_page(struct fr_service *service, const struct fr_service_status *s);
/* After the HTTP server has ended. Without fr_documents_page_open: does nothing. */
void fr_documents_page_release(struct fr_page_documents *page);

#endif
