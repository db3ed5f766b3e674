/* GET /model: the configured model as it is drawn by the page, and the limits that numbers of
 * /status are shown beside. It does not change while the daemon runs. */
#ifndef FR_DAEMON_MODEL_DOCUMENT_H
#define FR_DAEMON_MODEL_DOCUMENT_H

struct fr_service;

/* Publishes the document (docs/http.md, "/model"). service->http exists. */
void fr_documents_model(struct fr_service *service);

#endif
