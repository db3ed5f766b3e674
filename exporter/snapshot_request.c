/* Requests for a snapshot, which are files (snapshot.h): any process that may write into the state
 * directory can request a snapshot without a port.
 *
 * Thread: any; one thread answers. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/file.h"
#include "snapshot_folder.h"

static const char request_end[] = ".request", folder_name[] = "snapshots", good[] = "ok ";

static bool is_id(const char *text, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return size > 0 && size < FR_SNAPSHOT_ID_MAX && strspn(text, letters) >= size;
}

static enum fr_status file_of(const char *state_dir, const char *id, const char *end, char out[PATH_MAX],
                              struct fr_err *err)
{
    if (!is_id(id, strlen(id)))
        return fr_err_set(err, FR_E_INVALID, "\"%.80s\" names no request for a snapshot", id);
    int size = snprintf(out, PATH_MAX, "%s/%s/%s%s", state_dir, folder_name, id, end);
    return size > 0 && size < PATH_MAX ? FR_OK : fr_err_set(err, FR_E_LIMIT, "path too long: %.100s...", state_dir);
}

enum fr_status fr_snapshot_ask(const char *state_dir, const char *id, struct fr_err *err)
{
    char path[PATH_MAX];
    enum fr_status status = fr_snapshot_join(path, state_dir, folder_name, err);
    if (status == FR_OK)
        status = fr_dir_make(path, err);
    if (status == FR_OK)
        status = file_of(state_dir, id, request_end, path, err);
    return status == FR_OK ? fr_file_replace(fr_disk_system(), path, "", 0, err) : status;
}

enum fr_status fr_snapshot_answered(const char *state_dir, const char *id, char path[PATH_MAX], struct fr_err *err)
{
    char file[PATH_MAX];
    struct fr_buffer text = {0};
    struct fr_err unread = {0};
    enum fr_status status = file_of(state_dir, id, fr_snapshot_answer_end, file, err);
    if (status != FR_OK)
        return status;
    if (fr_file_read_regular(file, PATH_MAX, &text, &unread) != FR_OK) {
        fr_buffer_release(&text);
        return FR_AGAIN;
    }
    (void)unlink(file);
    fr_buffer_terminate(&text);
    const char *answer = (const char *)text.data;
    size_t head = sizeof(good) - 1;
    if (strncmp(answer, good, head) == 0 && text.size < PATH_MAX + head)
        memcpy(path, answer + head, text.size - head + 1);
    else
        status = fr_err_set(err, FR_E_STATE, "%s", answer);
    fr_buffer_release(&text);
    return status;
}

bool fr_snapshot_next_request(const char *state_dir, char id[FR_SNAPSHOT_ID_MAX])
{
    char path[PATH_MAX];
    struct fr_err ignored = {0};
    DIR *folder = fr_snapshot_join(path, state_dir, folder_name, &ignored) == FR_OK ? opendir(path) : NULL;
    const struct dirent *entry;
    bool found = false;
    while (folder && !found && (entry = readdir(folder)) != NULL) {
        size_t size = strlen(entry->d_name), tail = sizeof(request_end) - 1;
        if (size <= tail || strcmp(entry->d_name + size - tail, request_end) != 0 || !is_id(entry->d_name, size - tail))
            continue;
        memcpy(id, entry->d_name, size - tail);
        id[size - tail] = '\0';
        found = true;
    }
    if (folder)
        (void)closedir(folder);
    return found;
}

enum fr_status fr_snapshot_answer(const char *state_dir, const char *id, const char *path, const char *reason,
                                  struct fr_err *err)
{
    char file[PATH_MAX], text[PATH_MAX + sizeof(good)];
    int size = path ? snprintf(text, sizeof(text), "%s%s", good, path) : snprintf(text, sizeof(text), "%s", reason);
    enum fr_status status = file_of(state_dir, id, fr_snapshot_answer_end, file, err);
    if (status == FR_OK)
        status = fr_file_replace(fr_disk_system(), file, text, (size_t)size, err);
    struct fr_err ignored = {0};
    if (file_of(state_dir, id, request_end, file, &ignored) == FR_OK && unlink(file) != 0 && errno != ENOENT &&
        status == FR_OK)
        status = fr_err_set(err, FR_E_IO, "cannot remove %s: %s", file, strerror(errno));
    return status;
}
