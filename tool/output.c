/* Output of the tool's commands: complete writes, durations as a configuration writes them, files
 * that appear whole. A result that could not be written is always a failure of the command.
 *
 * Thread: one. */
#include "output.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "tool.h"

int fr_tool_fail(const char *command, const struct fr_err *err)
{
    fprintf(stderr, "freshet %s: %s\n", command, err->text);
    return FR_TOOL_FAILED;
}

int fr_tool_write_file(void *self, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, self) == size ? 0 : -1;
}

int fr_tool_write_stdout(void *self, const void *bytes, size_t size)
{
    (void)self;
    return fr_tool_write_file(stdout, bytes, size);
}

void fr_tool_duration_text(int64_t ms, char out[24])
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    size_t i = 0;
    while (i + 1 < FR_ARRAY_LEN(units) && ms % units[i].ms != 0)
        i++;
    snprintf(out, 24, "%" PRId64 "%s", ms / units[i].ms, units[i].unit);
}

static enum fr_status failed(const char *what, const char *path, struct fr_err *err)
{
    return fr_err_set(err, errno == ENOSPC ? FR_E_NO_SPACE : FR_E_IO, "%s %s: %s", what, path, strerror(errno));
}

enum fr_status fr_tool_replaced_open(const char *path, struct fr_tool_replaced *out, struct fr_err *err)
{
    size_t size = strlen(path) + sizeof(".tmp");
    struct fr_tool_replaced replaced = {.path = fr_strdup(path), .temporary = fr_alloc(1, size)};
    snprintf(replaced.temporary, size, "%s.tmp", path);
    replaced.file = fopen(replaced.temporary, "w");
    if (!replaced.file) {
        enum fr_status status = failed("opening", replaced.temporary, err);
        free(replaced.path);
        free(replaced.temporary);
        return status;
    }
    *out = replaced;
    return FR_OK;
}

enum fr_status fr_tool_replaced_commit(struct fr_tool_replaced *replaced, bool sync, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    if (fflush(replaced->file) != 0 || ferror(replaced->file) || (sync && fsync(fileno(replaced->file)) != 0))
        status = failed("writing", replaced->temporary, err);
    if (fclose(replaced->file) != 0 && status == FR_OK)
        status = failed("closing", replaced->temporary, err);
    replaced->file = NULL;
    if (status == FR_OK && rename(replaced->temporary, replaced->path) != 0)
        status = failed("renaming to", replaced->path, err);
    if (status == FR_OK) {
        free(replaced->temporary);
        replaced->temporary = NULL;
    }
    fr_tool_replaced_abandon(replaced);
    return status;
}

void fr_tool_replaced_abandon(struct fr_tool_replaced *replaced)
{
    if (replaced->file)
        (void)fclose(replaced->file);
    if (replaced->temporary)
        (void)unlink(replaced->temporary);
    free(replaced->temporary);
    free(replaced->path);
    *replaced = (struct fr_tool_replaced){0};
}
