/* A file of properties, so that no password stands in an argument list: NAME=VALUE a line, blanks
 * around both left out, `#` or `!` before a comment. The value is the rest of the line as it
 * stands: no escapes, no continued lines, no references. `bootstrap.servers` is passed over where
 * brokers are given, so that the file of other Kafka tools can be used.
 *
 * Owner: none (functions only). */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/log.h"
#include "kafka_settings.h"

static char *trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t size = strlen(text); size > 0 && strchr(" \t\r", text[size - 1]); size--)
        text[size - 1] = '\0';
    return text;
}

static enum fr_status set_line(rd_kafka_conf_t *conf, char *line, bool brokers_given, struct fr_err *err)
{
    char *name = trim(line), *value = strchr(name, '=');
    if (name[0] == '\0' || name[0] == '#' || name[0] == '!')
        return FR_OK;
    if (!value || value == name) /* the line is not quoted, because it may be a secret */
        return fr_err_set(err, FR_E_INVALID, "expected NAME=VALUE");
    *value = '\0';
    name = trim(name);
    if (brokers_given && (strcmp(name, "bootstrap.servers") == 0 || strcmp(name, "metadata.broker.list") == 0))
        return FR_OK;
    enum fr_status status = fr_kafka_set(conf, name, trim(value + 1), err);
    if (status != FR_OK)
        (void)fr_err_wrap(err, "%s", name);
    return status;
}

/* Warns once in a process, which may open several clients. */
static void warn_of_mode(const char *path)
{
    static atomic_bool warned;
    struct stat status;
    char quoted[600];
    if (stat(path, &status) == 0 && (status.st_mode & S_IROTH) != 0 && !atomic_exchange(&warned, true))
        fr_log(FR_LOG_WARN, "kafka", "properties_readable",
               "file=%s mode=%04o problem=\"every user can read it; chmod o-r\"",
               fr_log_quote(quoted, sizeof(quoted), path), (unsigned)status.st_mode & 07777);
}

enum fr_status fr_kafka_set_file(rd_kafka_conf_t *conf, const char *path, bool brokers_given, struct fr_err *err)
{
    struct fr_buffer text = {0};
    enum fr_status status = fr_file_read(path, FR_KAFKA_FILE_MAX, &text, err);
    if (status == FR_OK)
        warn_of_mode(path);
    fr_put_u8(&text, 0);
    char *rest = (char *)text.data;
    unsigned number = 0;
    for (char *line; status == FR_OK && (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        status = set_line(conf, line, brokers_given, err);
        if (status != FR_OK)
            (void)fr_err_wrap(err, "%s:%u", path, number);
    }
    fr_buffer_release(&text);
    return status;
}
