/* Descriptors of journal files. However many files the journal has, only a few are open at a time.
 *
 * A reader or writer calls fr_journal_use, which opens the file if necessary, and fr_journal_unuse.
 * A file without users stays open until its place is needed for another file; the least recently
 * used file is closed first (LRU). If all places are in use, more files are opened; the number of
 * threads bounds that, not the journal's size. An append syncs before it gives its file back, so
 * closing a file loses no write error.
 *
 * A writer also keeps a few descriptors of /dev/null. If the process has no descriptor left (HTTP
 * and Kafka take theirs from the same limit), one of these is closed for the journal. When a
 * journal file closes later, its descriptor becomes a spare one in place, so no other part of the
 * process can take it. Without spare descriptors an append could fail, and a failed append is
 * final.
 *
 * Thread: any. The mutex is held while a file is opened or closed, never while one is read, written
 * or synced. Epochs are of no concern here. */
#include "journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

enum {
    PLACES = 8,
    /* While a writer runs, a trimmed file can be read only as long as it stays open. */
    PLACES_READ_ONLY = 64,
    /* those that may need one at once: append, its folder, publisher, fold */
    SPARE = 4,
};

struct fr_descriptors {
    pthread_mutex_t lock;
    struct fr_journal_file *open[PLACES_READ_ONLY]; /* files that have a place */
    size_t n, places;
    uint64_t turn;
    bool writes;
    int spare[SPARE];
    size_t n_spare;
};

static void refill(struct fr_descriptors *descriptors)
{
    while (descriptors->writes && descriptors->n_spare < SPARE) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return;
        descriptors->spare[descriptors->n_spare++] = fd;
    }
}

struct fr_descriptors *fr_journal_descriptors_new(bool writes)
{
    struct fr_descriptors *descriptors = fr_alloc(1, sizeof(*descriptors));
    descriptors->writes = writes;
    descriptors->places = writes ? PLACES : PLACES_READ_ONLY;
    FR_CHECK(pthread_mutex_init(&descriptors->lock, NULL) == 0);
    refill(descriptors);
    return descriptors;
}

void fr_journal_descriptors_free(struct fr_descriptors *descriptors)
{
    if (!descriptors)
        return;
    for (size_t i = 0; i < descriptors->n_spare; i++)
        (void)close(descriptors->spare[i]);
    pthread_mutex_destroy(&descriptors->lock);
    free(descriptors);
}

/* By now all writes are synced, or cut off again, so a failing close loses nothing. */
static void close_file(const struct fr_journal *journal, struct fr_journal_file *file)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    if (descriptors->n_spare > 0 && descriptors->n_spare < SPARE && dup2(descriptors->spare[0], file->fd) == file->fd) {
        (void)fcntl(file->fd, F_SETFD, FD_CLOEXEC);
        descriptors->spare[descriptors->n_spare++] = file->fd;
    } else {
        (void)journal->disk->close(journal->disk->self, file->fd);
    }
    file->fd = -1;
    refill(descriptors);
}

static void leave_place(struct fr_descriptors *descriptors, const struct fr_journal_file *file)
{
    size_t i = 0;
    while (i < descriptors->n && descriptors->open[i] != file)
        i++;
    if (i < descriptors->n)
        descriptors->open[i] = descriptors->open[--descriptors->n];
}

/* Closes the least recently used file; false: all are in use. */
static bool make_place(const struct fr_journal *journal)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    struct fr_journal_file *oldest = NULL;
    for (size_t i = 0; i < descriptors->n; i++) {
        struct fr_journal_file *file = descriptors->open[i];
        if (file->users == 0 && (!oldest || file->turn < oldest->turn))
            oldest = file;
    }
    if (!oldest)
        return false;
    leave_place(descriptors, oldest);
    close_file(journal, oldest);
    return true;
}

/* After a failed open: if the reason was a lack of descriptors, makes one free if possible. */
static bool make_free(const struct fr_journal *journal)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    if (errno != EMFILE && errno != ENFILE)
        return false;
    bool made = make_place(journal);
    if (descriptors->n_spare == 0)
        return made;
    (void)close(descriptors->spare[--descriptors->n_spare]);
    return true;
}

bool fr_journal_descriptors_open(const struct fr_journal *journal, struct fr_journal_file *file, const char *path,
                                 int flags)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    pthread_mutex_lock(&descriptors->lock);
    file->turn = ++descriptors->turn;
    if (file->fd < 0) {
        if (descriptors->n == descriptors->places)
            (void)make_place(journal);
        do
            file->fd =
                journal->disk->open(journal->disk->self, path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        while (file->fd < 0 && make_free(journal));
        if (file->fd >= 0 && descriptors->n < descriptors->places)
            descriptors->open[descriptors->n++] = file;
    }
    bool opened = file->fd >= 0;
    if (opened)
        file->users++;
    pthread_mutex_unlock(&descriptors->lock);
    return opened;
}

void fr_journal_unuse(const struct fr_journal *journal, struct fr_journal_file *file)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    pthread_mutex_lock(&descriptors->lock);
    FR_CHECK(file->users > 0);
    file->users--;
    bool has_place = false;
    for (size_t i = 0; i < descriptors->n; i++)
        has_place |= descriptors->open[i] == file;
    if (file->users == 0 && !has_place)
        close_file(journal, file);
    pthread_mutex_unlock(&descriptors->lock);
}

void fr_journal_descriptors_forget(const struct fr_journal *journal, struct fr_journal_file *file)
{
    pthread_mutex_lock(&journal->descriptors->lock);
    leave_place(journal->descriptors, file);
    if (file->fd >= 0)
        close_file(journal, file);
    pthread_mutex_unlock(&journal->descriptors->lock);
}

int fr_journal_sync_dir(const struct fr_journal *journal)
{
    struct fr_descriptors *descriptors = journal->descriptors;
    int rc = journal->disk->sync_dir(journal->disk->self, journal->dir);
    if (rc == 0 || (errno != EMFILE && errno != ENFILE))
        return rc;
    /* The folder could not even be opened, so nothing was synced, and the sync below is the first
     * one, not a retry. */
    pthread_mutex_lock(&descriptors->lock);
    errno = EMFILE;
    if (make_free(journal))
        rc = journal->disk->sync_dir(journal->disk->self, journal->dir);
    int number = errno;
    refill(descriptors);
    pthread_mutex_unlock(&descriptors->lock);
    errno = number;
    return rc;
}
