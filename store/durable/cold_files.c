/* The sorted files of the cold store, opened for point reads (sorted_file.h).
 *
 * RocksDB provides the list of live files of one version, level by level; those of level 0 are
 * listed newest first. Each ingest and each end of a compaction makes a version with a new number.
 * Every reader first compares that number, so a fold is visible as soon as it is ingested.
 * Neighbours in the list whose keys do not overlap form one run, in which at most one file has a
 * given key: the files of a fold, or a level. An earlier run has newer images.
 *
 * The files of a view stay readable while the view is held, whatever RocksDB removes, because they
 * are open. A file that a compaction has replaced keeps its disk space until the next read, or
 * until a request for the store's status calls fr_cold_files_tend.
 *
 * Files beyond files_max are opened for each read. There is no view, and RocksDB reads instead,
 * while a file has an unknown format, there are more runs than a view can hold, or the process has
 * no descriptor left.
 *
 * Thread: any. The mutex is held while a view is made, which opens the new files. Rows are not read
 * here. */
#include "cold_files.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"

/* a compaction may remove a file after it was listed and before it was opened */
enum { TRIES = 3 };

struct fr_cold_files {
    struct fr_cold *cold;
    pthread_mutex_t lock;
    struct cold_view *view; /* the newest view; NULL: there is none for `version` */
    uint64_t version;
    uint64_t bytes;   /* memory of the newest view's files */
    uint64_t used_ms; /* when a view was last held */
};

struct fr_cold_files *fr_cold_files_new(struct fr_cold *cold)
{
    struct fr_cold_files *files = fr_alloc(1, sizeof(*files));
    *files = (struct fr_cold_files){.cold = cold, .version = UINT64_MAX};
    FR_CHECK(pthread_mutex_init(&files->lock, NULL) == 0);
    return files;
}

/* ---- views ---- */

static void release_view(struct cold_view *view)
{
    if (!view || --view->users > 0)
        return;
    for (uint32_t i = 0; i < view->n_files; i++)
        if (view->files[i].file && --view->files[i].file->users == 0)
            fr_sorted_close(view->files[i].file);
    free(view->files);
    free(view);
}

void fr_cold_files_free(struct fr_cold_files *files)
{
    if (!files)
        return;
    release_view(files->view);
    pthread_mutex_destroy(&files->lock);
    free(files);
}

static struct fr_sorted_file *known_file(const struct cold_view *view, uint64_t number)
{
    for (uint32_t i = 0; view && i < view->n_files; i++)
        if (view->files[i].file->number == number)
            return view->files[i].file;
    return NULL;
}

static struct cold_bound bound_of(const char *key, size_t size)
{
    uint8_t bytes[COLD_KEY_SIZE] = {0};
    memcpy(bytes, key, size < COLD_KEY_SIZE ? size : COLD_KEY_SIZE);
    return (struct cold_bound){.table = (uint32_t)cold_take_be(bytes, 4), .hash = cold_take_be(bytes + 4, 8)};
}

static void list_file(const struct fr_cold_files *files, const rocksdb_livefiles_t *list, int i, struct cold_file *to)
{
    size_t size;
    const char *name = rocksdb_livefiles_name(list, i); /* "/000123.sst" */
    const char *key = rocksdb_livefiles_smallestkey(list, i, &size);
    to->first = bound_of(key, size);
    key = rocksdb_livefiles_largestkey(list, i, &size);
    to->last = bound_of(key, size);
    to->level = (uint32_t)rocksdb_livefiles_level(list, i);
    to->number = strtoull(name + strspn(name, "/"), NULL, 10);
    to->file = known_file(files->view, to->number);
    if (to->file)
        to->file->users++;
}

/* false: errno has the reason, as with fr_sorted_open. */
static bool open_file(const struct fr_cold_files *files, struct cold_file *to)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%06" PRIu64 ".sst", files->cold->path, to->number);
    FR_CHECK(length > 0 && (size_t)length < sizeof(path));
    to->file = fr_sorted_open(path, to->number);
    if (to->file)
        to->file->users++;
    return to->file != NULL;
}

static int compare_files(const void *a, const void *b)
{
    const struct cold_bound *x = &((const struct cold_file *)a)->first, *y = &((const struct cold_file *)b)->first;
    return cold_is_behind(x->table, x->hash, y) - cold_is_less(x->table, x->hash, y);
}

static bool overlap(const struct cold_file *a, const struct cold_file *b)
{
    return !cold_is_less(a->last.table, a->last.hash, &b->first) &&
           !cold_is_less(b->last.table, b->last.hash, &a->first);
}

/* false: there are too many runs. */
static bool make_runs(struct cold_view *view)
{
    for (uint32_t i = 0; i < view->n_files; i++) {
        struct cold_run *run = view->n_runs ? &view->runs[view->n_runs - 1] : NULL;
        bool joins = run && view->files[i].level == view->files[run->begin].level;
        /* the files of a lower level never overlap, and their list may be long */
        for (uint32_t k = run ? run->begin : 0; joins && view->files[i].level == 0 && k < run->end; k++)
            joins = !overlap(&view->files[k], &view->files[i]);
        if (joins) {
            run->end = i + 1;
            continue;
        }
        if (view->n_runs == COLD_RUNS_MAX)
            return false;
        view->runs[view->n_runs++] = (struct cold_run){i, i + 1};
    }
    for (uint32_t r = 0; r < view->n_runs; r++)
        qsort(view->files + view->runs[r].begin, view->runs[r].end - view->runs[r].begin, sizeof(*view->files),
              compare_files);
    return true;
}

static uint64_t view_bytes(const struct cold_view *view)
{
    uint64_t bytes = sizeof(*view) + view->n_files * sizeof(*view->files);
    for (uint32_t i = 0; i < view->n_files; i++)
        bytes += fr_sorted_bytes(view->files[i].file);
    return bytes;
}

static struct cold_view *list_files(const struct fr_cold_files *files)
{
    struct cold_view *view = fr_alloc(1, sizeof(*view));
    const rocksdb_livefiles_t *list = rocksdb_livefiles(files->cold->db);
    int n = rocksdb_livefiles_count(list);
    *view = (struct cold_view){.n_files = n > 0 ? (uint32_t)n : 0, .users = 1};
    view->files = fr_alloc((size_t)view->n_files + 1, sizeof(*view->files));
    for (int i = 0; i < n; i++)
        list_file(files, list, i, &view->files[i]);
    rocksdb_livefiles_destroy(list);
    return view;
}

/* Makes the view the present one. Files that are gone are closed before new ones are opened, so
 * that their filters are not in memory at the same time. If RocksDB has changed the version
 * meanwhile, there is no view, and errno is ENOENT. */
static void make_view(struct fr_cold_files *files)
{
    struct cold_view *view = list_files(files);
    uint32_t n_open = 0;
    bool good = true;
    int error = 0;
    release_view(files->view);
    for (uint32_t i = 0; i < view->n_files; i++)
        n_open += view->files[i].file && view->files[i].file->fd >= 0;
    for (uint32_t i = 0; i < view->n_files && good; i++) {
        bool is_new = !view->files[i].file;
        good = !is_new || open_file(files, &view->files[i]);
        error = good ? 0 : errno;
        if (good && is_new && n_open++ >= files->cold->files_max)
            fr_sorted_rest(view->files[i].file);
    }
    files->view = view;
    if (good && make_runs(view))
        return;
    release_view(view);
    files->view = NULL;
    errno = error;
}

static void update_view(struct fr_cold_files *files, uint64_t version)
{
    for (int i = 0; i < TRIES; i++) {
        make_view(files);
        if (files->view || errno != ENOENT)
            break;
    }
    files->version = version;
    files->bytes = files->view ? view_bytes(files->view) : 0;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    FR_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void follow_store(struct fr_cold_files *files)
{
    uint64_t version;
    if (rocksdb_property_int(files->cold->db, "rocksdb.current-super-version-number", &version) != 0)
        version = UINT64_MAX;
    if (version != files->version)
        update_view(files, version);
}

void fr_cold_files_tend(struct fr_cold_files *files)
{
    pthread_mutex_lock(&files->lock);
    if (files->view && now_ms() - files->used_ms >= files->cold->files_idle_ms) {
        release_view(files->view);
        files->view = NULL;
        files->version = UINT64_MAX;
        files->bytes = 0;
    } else if (files->view) {
        follow_store(files);
    }
    pthread_mutex_unlock(&files->lock);
}

const struct cold_view *fr_cold_files_hold(struct fr_cold_files *files)
{
    pthread_mutex_lock(&files->lock);
    files->used_ms = now_ms();
    follow_store(files);
    struct cold_view *view = files->view;
    if (view)
        view->users++;
    pthread_mutex_unlock(&files->lock);
    return view;
}

void fr_cold_files_give(struct fr_cold_files *files, const struct cold_view *view)
{
    pthread_mutex_lock(&files->lock);
    release_view((struct cold_view *)(uintptr_t)view);
    pthread_mutex_unlock(&files->lock);
}

uint64_t fr_cold_files_bytes(struct fr_cold_files *files)
{
    pthread_mutex_lock(&files->lock);
    uint64_t bytes = files->bytes;
    pthread_mutex_unlock(&files->lock);
    return bytes;
}
