/* The folder of a state's savepoints: names, requests and answers.
 *
 * Thread: any, except that only the fold thread answers requests. savepoint.c makes the
 * savepoints. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "durable/savepoint.h"

static const char request_end[] = ".request", failed_end[] = ".failed", part_end[] = ".part";

static bool is_name(const char *text, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return size > 0 && size < FR_SAVEPOINT_NAME_MAX && strspn(text, letters) >= size;
}

static enum fr_status file_of(const char *dir, const char *name, const char *end, char out[PATH_MAX],
                              struct fr_err *err)
{
    if (!is_name(name, strlen(name)))
        return fr_err_set(err, FR_E_INVALID,
                          "\"%.80s\" is no name for a savepoint: 1 to 64 letters, digits, '-' and '_'", name);
    int length = snprintf(out, PATH_MAX, "%s/savepoints/%s%s", dir, name, end);
    if (length < 0 || length >= PATH_MAX)
        return fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", dir);
    return FR_OK;
}

enum fr_status fr_savepoint_path(const char *dir, const char *name, char out[PATH_MAX], struct fr_err *err)
{
    return file_of(dir, name, "", out, err);
}

enum fr_status fr_savepoint_ask(const char *dir, const char *name, struct fr_err *err)
{
    char path[PATH_MAX], failed[PATH_MAX];
    enum fr_status status = fr_savepoint_path(dir, name, path, err);
    if (status == FR_OK && access(path, F_OK) == 0)
        return fr_err_set(err, FR_E_EXISTS, "%s exists: name another savepoint", path);
    if (status == FR_OK)
        status = file_of(dir, name, failed_end, failed, err);
    if (status == FR_OK)
        (void)unlink(failed); /* the answer to an earlier request of the same name */
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof(folder), "%s/savepoints", dir);
    FR_CHECK(status != FR_OK || (length > 0 && (size_t)length < sizeof(folder)));
    if (status == FR_OK)
        status = fr_dir_make(folder, err);
    if (status == FR_OK)
        status = file_of(dir, name, request_end, path, err);
    return status == FR_OK ? fr_file_replace(fr_disk_system(), path, "", 0, err) : status;
}

enum fr_status fr_savepoint_answered(const char *dir, const char *name, struct fr_err *err)
{
    char path[PATH_MAX], failed[PATH_MAX];
    enum fr_status status = fr_savepoint_path(dir, name, path, err);
    if (status == FR_OK)
        status = file_of(dir, name, failed_end, failed, err);
    if (status != FR_OK || access(path, F_OK) == 0)
        return status;
    struct fr_buffer reason = {0};
    struct fr_err unread = {0};
    status = fr_file_read_regular(failed, sizeof(err->text), &reason, &unread);
    if (status == FR_OK)
        status = fr_err_set(err, FR_E_STATE, "%.*s", (int)reason.size, (const char *)reason.data);
    else
        status = FR_AGAIN;
    fr_buffer_release(&reason);
    return status;
}

enum fr_status fr_savepoint_answer(const char *dir, const char *name, const char *reason, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = FR_OK;
    if (reason) {
        status = file_of(dir, name, failed_end, path, err);
        if (status == FR_OK)
            status = fr_file_replace(fr_disk_system(), path, reason, strlen(reason), err);
    }
    struct fr_err ignored = {0};
    enum fr_status named = file_of(dir, name, request_end, path, &ignored);
    if (named == FR_OK && unlink(path) != 0 && errno != ENOENT && status == FR_OK)
        status = fr_err_set(err, FR_E_IO, "cannot remove %s: %s", path, strerror(errno));
    return status;
}

/* Finds the next entry whose name consists of a valid name and `end`. Returns the length of the
 * name; 0 at the end of the folder. */
static size_t next_entry(DIR *folder, const char *end, char name[FR_SAVEPOINT_NAME_MAX])
{
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        size_t size = strlen(entry->d_name), tail = strlen(end);
        if (size <= tail || strcmp(entry->d_name + size - tail, end) != 0 || !is_name(entry->d_name, size - tail))
            continue;
        memcpy(name, entry->d_name, size - tail);
        name[size - tail] = '\0';
        return size - tail;
    }
    return 0;
}

static DIR *open_folder(const char *dir)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/savepoints", dir);
    return length > 0 && (size_t)length < sizeof(path) ? opendir(path) : NULL;
}

bool fr_savepoint_next_request(const char *dir, char name[FR_SAVEPOINT_NAME_MAX])
{
    DIR *folder = open_folder(dir);
    bool found = folder && next_entry(folder, request_end, name) > 0;
    if (folder)
        (void)closedir(folder);
    return found;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

enum fr_status fr_savepoint_names(const char *dir, char (**out)[FR_SAVEPOINT_NAME_MAX], size_t *n, struct fr_err *err)
{
    DIR *folder = open_folder(dir);
    *out = NULL;
    *n = 0;
    if (!folder && errno != ENOENT)
        return fr_err_set(err, FR_E_IO, "cannot list %s/savepoints: %s", dir, strerror(errno));
    char name[FR_SAVEPOINT_NAME_MAX];
    while (folder && next_entry(folder, "", name) > 0) {
        *out = fr_realloc(*out, *n + 1, sizeof(**out));
        memcpy((*out)[(*n)++], name, sizeof(name));
    }
    if (folder)
        (void)closedir(folder);
    if (*n > 0)
        qsort(*out, *n, sizeof(**out), compare_names);
    return FR_OK;
}

enum fr_status fr_savepoint_sweep(const struct fr_disk *disk, const char *dir, struct fr_err *err)
{
    DIR *folder = open_folder(dir);
    enum fr_status status = FR_OK;
    if (!folder)
        return errno == ENOENT ? FR_OK
                               : fr_err_set(err, FR_E_IO, "cannot list %s/savepoints: %s", dir, strerror(errno));
    char name[FR_SAVEPOINT_NAME_MAX], path[PATH_MAX];
    while (status == FR_OK && next_entry(folder, part_end, name) > 0) {
        status = file_of(dir, name, part_end, path, err);
        if (status == FR_OK)
            status = fr_dir_remove(disk, path, err);
    }
    (void)closedir(folder);
    return status;
}
