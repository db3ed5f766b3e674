/* Which RocksDB may open a cold store.
 *
 * RocksDB promises that a version reads what earlier versions wrote. It does not promise the
 * reverse; 7.8 (Debian 12) and 9.10 (Debian 13) read what the other one wrote, because the store
 * sets every option that decides the bytes of its files, and tests/distributions/exchange shows it.
 * A store that was last opened for writing by a version later than 9.10 and later than this
 * program's is refused before RocksDB opens it. RocksDB itself would report damage, or would read
 * data that it misunderstands.
 *
 * Each open for writing leaves a file OPTIONS-<number> that names the version. If there is none or
 * it names no version, RocksDB decides: RocksDB does not need the file either.
 *
 * Thread: the one that opens the store. Reads one directory and one small file. */
#include "cold_version.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum {
    OPTIONS_BYTES_MAX = 1 << 20, /* RocksDB writes some 10 KiB */
    NEWEST_MAJOR = 9,            /* of the versions that read each other's files */
    NEWEST_MINOR = 10,
};

struct version {
    unsigned long major, minor;
};

static bool is_later(struct version a, struct version b)
{
    return a.major > b.major || (a.major == b.major && a.minor > b.minor);
}

/* The number of the newest OPTIONS file; 0: there is none. */
static uint64_t newest_options(const char *path)
{
    uint64_t newest = 0;
    DIR *dir = opendir(path);
    for (const struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (strncmp(entry->d_name, "OPTIONS-", 8) != 0)
            continue;
        char *end = NULL;
        uint64_t number = strtoull(entry->d_name + 8, &end, 10);
        if (*end == '\0' && number > newest)
            newest = number;
    }
    if (dir)
        closedir(dir);
    return newest;
}

static bool parse_version(const char *text, struct version *out)
{
    char *dot = NULL, *end = NULL;
    out->major = strtoul(text, &dot, 10);
    if (dot == text || *dot != '.')
        return false;
    out->minor = strtoul(dot + 1, &end, 10);
    return end > dot + 1;
}

/* false: no file names a version. */
static bool last_version(const char *path, struct version *out)
{
    static const char before[] = "rocksdb_version=";
    char file[PATH_MAX];
    int length = snprintf(file, sizeof(file), "%s/OPTIONS-%06llu", path, (unsigned long long)newest_options(path));
    struct fr_buffer text = {0};
    struct fr_err unread = {0};
    bool found = false;
    if (length > 0 && (size_t)length < sizeof(file) && fr_file_read(file, OPTIONS_BYTES_MAX, &text, &unread) == FR_OK) {
        fr_buffer_terminate(&text);
        const char *at = strstr((const char *)text.data, before);
        found = at && parse_version(at + sizeof(before) - 1, out);
    }
    fr_buffer_release(&text);
    return found;
}

enum fr_status fr_cold_check_version(const char *path, struct fr_err *err)
{
    static const struct version own = {FR_ROCKSDB_MAJOR, FR_ROCKSDB_MINOR}, both = {NEWEST_MAJOR, NEWEST_MINOR};
    struct version last, most = is_later(own, both) ? own : both;
    if (!last_version(path, &last) || !is_later(last, most))
        return FR_OK;
    return fr_err_set(
        err, FR_E_MISMATCH,
        "the cold store %s was last written by RocksDB %lu.%lu; this program has RocksDB %lu.%lu and reads what versions "
        "up to %lu.%lu wrote: run a build with RocksDB %lu.%lu or later, or begin a state from a savepoint that an "
        "earlier version took (--restore)",
        path, last.major, last.minor, own.major, own.minor, most.major, most.minor, last.major, last.minor);
}
