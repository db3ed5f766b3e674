/* GET /insight and GET /feature (docs/http.md): the trainer's document, and answers about an id. */
#ifndef FR_DAEMON_INSIGHT_DOCUMENTS_H
#define FR_DAEMON_INSIGHT_DOCUMENTS_H

struct fr_service;

/* Has both served. service->http and trainer exist until the server has ended. Main thread. */
void fr_documents_insight_open(struct fr_service *service);

#endif
