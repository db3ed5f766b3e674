/* What `--check` finds beyond the grammar of the configuration (config_check.c). */
#ifndef FR_DAEMON_CONFIG_CHECK_H
#define FR_DAEMON_CONFIG_CHECK_H

#include "conf/conf.h"

/* Writes every problem of the Kafka clients' settings, one line each; false if there is one. */
bool fr_service_check_clients(const struct fr_conf *conf, const char *config, struct fr_buffer *out);
/* Writes a warning for each thing that never learns; other tasks of the model may be fine. */
void fr_service_check_warnings(const struct fr_conf *conf, const char *config, struct fr_buffer *out);

#endif
