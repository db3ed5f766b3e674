/* Checks the login and the certificates in a client's settings: a mechanism, a user and a password
 * are set, and the files can be read. Messages name the property, before librdkafka reports the
 * problem in words of its own.
 *
 * Owner: none (functions only). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "kafka_settings.h"

enum { VALUE_MAX = 1024, CERTIFICATE_LOOK = 1 << 16 };

static const char *value_of(const rd_kafka_conf_t *conf, const char *name, char *value)
{
    size_t size = VALUE_MAX;
    value[0] = '\0';
    if (rd_kafka_conf_get(conf, name, value, &size) != RD_KAFKA_CONF_OK)
        value[0] = '\0';
    return value;
}

static bool is_set(const rd_kafka_conf_t *conf, const char *name)
{
    char value[VALUE_MAX];
    return value_of(conf, name, value)[0] != '\0';
}

static enum fr_status check_login(const rd_kafka_conf_t *conf, const char *protocol, bool mechanism_given,
                                  struct fr_err *err)
{
    char mechanism[VALUE_MAX];
    if (!mechanism_given)
        return fr_err_set(
            err, FR_E_INVALID,
            "security.protocol: %s needs sasl.mechanism, which is missing; expected PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512, OAUTHBEARER or GSSAPI",
            protocol);
    value_of(conf, "sasl.mechanisms", mechanism);
    if (strcmp(mechanism, "PLAIN") != 0 && strncmp(mechanism, "SCRAM-", 6) != 0)
        return FR_OK;
    bool user = is_set(conf, "sasl.username"), password = is_set(conf, "sasl.password");
    if (user && password)
        return FR_OK;
    return fr_err_set(err, FR_E_INVALID, "sasl.mechanism: %s needs %s, missing here", mechanism,
                      user       ? "sasl.password"
                      : password ? "sasl.username"
                                 : "sasl.username and sasl.password");
}

/* Checks that the file that the property names can be read and, if `pem` is set, that it is PEM. */
static enum fr_status check_file(const rd_kafka_conf_t *conf, const char *name, bool pem, struct fr_err *err)
{
    char path[VALUE_MAX];
    struct stat status;
    if (!is_set(conf, name))
        return FR_OK;
    value_of(conf, name, path);
    if (strcmp(path, "probe") == 0 && strcmp(name, "ssl.ca.location") == 0)
        return FR_OK;
    FILE *file = stat(path, &status) == 0 && S_ISDIR(status.st_mode) ? NULL : fopen(path, "rbe");
    if (!file && stat(path, &status) == 0 && S_ISDIR(status.st_mode))
        return pem && strcmp(name, "ssl.ca.location") == 0
                   ? FR_OK
                   : fr_err_set(err, FR_E_INVALID, "%s: %s is a directory", name, path);
    if (!file)
        return fr_err_set(err, FR_E_INVALID, "%s: cannot open %s: %s", name, path, strerror(errno));
    char *bytes = fr_alloc(CERTIFICATE_LOOK + 1, 1);
    size_t size = fread(bytes, 1, CERTIFICATE_LOOK, file);
    (void)fclose(file);
    for (size_t i = 0; i < size; i++)
        bytes[i] = bytes[i] ? bytes[i] : ' ';
    bool found = strstr(bytes, "-----BEGIN ") != NULL;
    free(bytes);
    if (pem && !found)
        return fr_err_set(err, FR_E_INVALID, "%s: %s is not PEM: it has no line `-----BEGIN ...`%s", name, path,
                          size == 0 ? ", and is empty" : "");
    return FR_OK;
}

enum fr_status fr_kafka_check_login(const rd_kafka_conf_t *conf, bool mechanism_given, struct fr_err *err)
{
    static const struct {
        const char *name;
        bool pem;
    } files[] = {{"ssl.ca.location", true},
                 {"ssl.certificate.location", true},
                 {"ssl.key.location", true},
                 {"ssl.crl.location", true},
                 {"ssl.keystore.location", false}};
    char protocol[VALUE_MAX];
    value_of(conf, "security.protocol", protocol);
    enum fr_status status = FR_OK;
    if (strncmp(protocol, "sasl_", 5) == 0)
        status = check_login(conf, protocol, mechanism_given, err);
    for (size_t i = 0; status == FR_OK && strstr(protocol, "ssl") && i < FR_ARRAY_LEN(files); i++)
        status = check_file(conf, files[i].name, files[i].pem, err);
    return status;
}
