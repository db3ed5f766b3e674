/* Private to kafka: setting one property, and those of a file. */
#ifndef FR_KAFKA_SETTINGS_H
#define FR_KAFKA_SETTINGS_H

#include "kafka/kafka.h"

/* FR_E_INVALID: the text has the value only where it may be shown. */
enum fr_status fr_kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                            struct fr_err *err) FR_MUST_CHECK;
/* Errors: FR_E_INVALID with FILE:LINE, and those of fr_file_read. */
enum fr_status fr_kafka_set_file(rd_kafka_conf_t *conf, const char *path, bool brokers_given,
                                 struct fr_err *err) FR_MUST_CHECK;
/* FR_E_INVALID: a login or a certificate is not what the other settings need; the text begins with
 * the property. `mechanism_given`: sasl.mechanism was set, or that is not known. */
enum fr_status fr_kafka_check_login(const rd_kafka_conf_t *conf, bool mechanism_given,
                                    struct fr_err *err) FR_MUST_CHECK;

#endif
