/* The member `replicas` of /status, and the series about replicas (docs/http.md, "Replicas"). Main
 * thread. */
#ifndef FR_DAEMON_REPLICA_DOCUMENTS_H
#define FR_DAEMON_REPLICA_DOCUMENTS_H

#include "base/json.h"

struct fr_service;
struct fr_service_status;

/* Writes the member `replicas`; null if acknowledgements are not read. */
void fr_documents_replicas(const struct fr_service *service, const struct fr_service_status *s, struct fr_json *json);
/* Sets the series, unless acknowledgements are not read. */
void fr_documents_replica_series(const struct fr_service *service, const struct fr_service_status *s);

#endif
