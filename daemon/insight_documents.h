/* GET /insight and GET /feature (docs/http.md): the document that the trainer publishes, and
 * answers about one id. */
#ifndef FR_DAEMON_INSIGHT_DOCUMENTS_H
#define FR_DAEMON_INSIGHT_DOCUMENTS_H

struct fr_service;

/* Registers both paths with the server. service->http and service->trainer exist until the server
 * has ended. Main thread. */
void fr_documents_insight_open(struct fr_service *service);

#endif
