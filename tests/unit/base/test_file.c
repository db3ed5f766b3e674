/* base/file.h: whole writes, atomic replacement with a fault in every step, limits, locks. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

/* A directory of its own for every case. */
struct place {
    char root[64];
    char path[128];
};

FR_FIXTURE(make_place)
{
    struct place *place = calloc(1, sizeof(*place));
    if (!place)
        return -1;
    strcpy(place->root, "/tmp/fr_file_XXXXXX");
    if (!mkdtemp(place->root))
        return -1;
    snprintf(place->path, sizeof(place->path), "%s/file", place->root);
    *state = place;
    return 0;
}

FR_FIXTURE(remove_place)
{
    struct place *place = *state;
    static const char *const names[] = {"file", "file.tmp", "link", "a/b/c", "a/b", "a"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[160];
        snprintf(path, sizeof(path), "%s/%s", place->root, names[i]);
        (void)remove(path);
    }
    int rc = rmdir(place->root);
    free(place);
    return rc;
}

static void assert_content(const char *path, const char *expected)
{
    struct fr_buffer buffer = {0};
    struct fr_err err;
    assert_int_equal(fr_file_read(path, 1 << 20, &buffer, &err), FR_OK);
    assert_int_equal(buffer.size, strlen(expected));
    assert_memory_equal(buffer.data, expected, buffer.size);
    fr_buffer_release(&buffer);
}

/* ---- a disk that fails its nth call and writes in pieces ---- */

struct faulty {
    struct fr_disk disk;
    int countdown; /* calls that still succeed; -1: all */
    int number;    /* errno of the failure */
    size_t chunk;
    int syncs, sync_dirs, unlinks, open_files;
    char log[64]; /* one letter a call, in order */
};

static int faulty_step(struct faulty *faulty, char letter)
{
    size_t size = strlen(faulty->log);
    if (size + 1 < sizeof(faulty->log))
        faulty->log[size] = letter;
    if (faulty->countdown == 0) {
        faulty->countdown = -1; /* only one call fails; the calls after it clean up */
        errno = faulty->number;
        return -1;
    }
    if (faulty->countdown > 0)
        faulty->countdown -= 1;
    return 0;
}

static int faulty_open(void *self, const char *path, int flags, unsigned mode)
{
    struct faulty *faulty = self;
    if (faulty_step(faulty, 'o') != 0)
        return -1;
    faulty->open_files += 1;
    return fr_disk_system()->open(NULL, path, flags, mode);
}

static int faulty_close(void *self, int fd)
{
    struct faulty *faulty = self;
    faulty->open_files -= 1;
    int rc = fr_disk_system()->close(NULL, fd);
    return faulty_step(faulty, 'c') != 0 ? -1 : rc;
}

static long faulty_pwrite(void *self, int fd, const void *bytes, size_t size, uint64_t offset)
{
    struct faulty *faulty = self;
    if (faulty_step(faulty, 'w') != 0)
        return -1;
    return fr_disk_system()->pwrite(NULL, fd, bytes, size < faulty->chunk ? size : faulty->chunk, offset);
}

static int faulty_fdatasync(void *self, int fd)
{
    struct faulty *faulty = self;
    faulty->syncs += 1;
    return faulty_step(faulty, 's') != 0 ? -1 : fr_disk_system()->fdatasync(NULL, fd);
}

static int faulty_ftruncate(void *self, int fd, uint64_t size)
{
    return faulty_step(self, 't') != 0 ? -1 : fr_disk_system()->ftruncate(NULL, fd, size);
}

static int faulty_rename(void *self, const char *from, const char *to)
{
    return faulty_step(self, 'r') != 0 ? -1 : fr_disk_system()->rename(NULL, from, to);
}

static int faulty_unlink(void *self, const char *path)
{
    struct faulty *faulty = self;
    faulty->unlinks += 1;
    return fr_disk_system()->unlink(NULL, path);
}

static int faulty_sync_dir(void *self, const char *path)
{
    struct faulty *faulty = self;
    faulty->sync_dirs += 1;
    return faulty_step(faulty, 'd') != 0 ? -1 : fr_disk_system()->sync_dir(NULL, path);
}

static struct faulty faulty_disk(void)
{
    return (struct faulty){
        .disk = {.open = faulty_open,
                 .close = faulty_close,
                 .pwrite = faulty_pwrite,
                 .fdatasync = faulty_fdatasync,
                 .ftruncate = faulty_ftruncate,
                 .rename = faulty_rename,
                 .unlink = faulty_unlink,
                 .sync_dir = faulty_sync_dir},
        .countdown = -1,
        .number = EIO,
        .chunk = SIZE_MAX,
    };
}

/* ---- replacement ---- */

FR_CASE(replace_creates_and_overwrites_with_mode_0600)
{
    struct place *place = *state;
    struct fr_err err;
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "first, longer", 13, &err), FR_OK);
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "second", 6, &err), FR_OK);
    assert_content(place->path, "second");
    struct stat info;
    assert_int_equal(stat(place->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    char temporary[160];
    snprintf(temporary, sizeof(temporary), "%s.tmp", place->path);
    assert_int_not_equal(access(temporary, F_OK), 0);
}

FR_CASE(replace_syncs_the_file_before_the_rename_and_the_directory_after)
{
    struct place *place = *state;
    struct faulty faulty = faulty_disk();
    struct fr_err err;
    faulty.disk.self = &faulty;
    assert_int_equal(fr_file_replace(&faulty.disk, place->path, "x", 1, &err), FR_OK);
    assert_string_equal(faulty.log, "owscrd");
}

FR_CASE(a_replacement_that_fails_anywhere_leaves_old_or_new_content)
{
    struct place *place = *state;
    struct fr_err err;
    for (int step = 0; step < 6; step++) {
        assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "old", 3, &err), FR_OK);
        struct faulty faulty = faulty_disk();
        faulty.disk.self = &faulty;
        faulty.countdown = step;
        assert_int_equal(fr_file_replace(&faulty.disk, place->path, "new", 3, &err), FR_E_IO);
        assert_int_equal(err.status, FR_E_IO);
        assert_non_null(strstr(err.text, place->root));
        assert_content(place->path, step < 5 ? "old" : "new");
        assert_int_equal(faulty.open_files, 0);
        assert_true(faulty.syncs <= 1 && faulty.sync_dirs <= 1); /* never retried */
        assert_int_equal(faulty.unlinks, step < 5 ? 1 : 0);
    }
}

FR_CASE(a_full_disk_is_distinguished_from_a_broken_one)
{
    struct place *place = *state;
    struct fr_err err;
    const int numbers[] = {ENOSPC, EDQUOT};
    for (int i = 0; i < 2; i++)
        for (int step = 1; step <= 2; step++) { /* write, sync */
            struct faulty faulty = faulty_disk();
            faulty.disk.self = &faulty;
            faulty.countdown = step;
            faulty.number = numbers[i];
            assert_int_equal(fr_file_replace(&faulty.disk, place->path, "new", 3, &err), FR_E_NO_SPACE);
            assert_non_null(strstr(err.text, "free space"));
        }
}

FR_CASE(replace_does_not_follow_a_planted_link)
{
    struct place *place = *state;
    struct fr_err err;
    char temporary[160], victim[160];
    snprintf(temporary, sizeof(temporary), "%s.tmp", place->path);
    snprintf(victim, sizeof(victim), "%s/link", place->root);
    assert_int_equal(fr_file_replace(fr_disk_system(), victim, "precious", 8, &err), FR_OK);
    assert_int_equal(symlink(victim, temporary), 0);
    assert_int_not_equal(fr_file_replace(fr_disk_system(), place->path, "new", 3, &err), FR_OK);
    assert_content(victim, "precious");
}

FR_CASE(replace_without_its_directory_says_not_found)
{
    struct place *place = *state;
    struct fr_err err;
    char path[160];
    snprintf(path, sizeof(path), "%s/none/file", place->root);
    assert_int_equal(fr_file_replace(fr_disk_system(), path, "x", 1, &err), FR_E_NOT_FOUND);
    char longer[6000];
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(fr_file_replace(fr_disk_system(), longer, "x", 1, &err), FR_E_LIMIT);
}

/* ---- writes ---- */

FR_CASE(short_writes_are_continued)
{
    struct place *place = *state;
    struct faulty faulty = faulty_disk();
    struct fr_err err;
    faulty.disk.self = &faulty;
    faulty.chunk = 3;
    assert_int_equal(fr_file_replace(&faulty.disk, place->path, "0123456789", 10, &err), FR_OK);
    assert_content(place->path, "0123456789");
    assert_string_equal(faulty.log, "owwwwscrd");
}

FR_CASE(a_write_without_progress_ends)
{
    struct place *place = *state;
    struct faulty faulty = faulty_disk();
    struct fr_err err;
    faulty.disk.self = &faulty;
    faulty.chunk = 0;
    assert_int_equal(fr_file_replace(&faulty.disk, place->path, "x", 1, &err), FR_E_NO_SPACE);
}

FR_CASE(an_offset_beyond_what_files_have_is_refused)
{
    struct fr_err err;
    assert_int_equal(fr_disk_write(fr_disk_system(), -1, "x", 1, UINT64_MAX, "f", &err), FR_E_LIMIT);
    /* EBADF */
    assert_int_equal(fr_disk_write(fr_disk_system(), -1, "x", 1, 0, "f", &err), FR_E_IO);
    assert_int_equal(fr_disk_write(fr_disk_system(), -1, NULL, 0, 0, "f", &err), FR_OK);
}

/* ---- reads ---- */

FR_CASE(read_appends_up_to_exactly_the_limit)
{
    struct place *place = *state;
    struct fr_buffer buffer = {0};
    struct fr_err err;
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "0123456789", 10, &err), FR_OK);
    fr_put_u8(&buffer, '>');
    assert_int_equal(fr_file_read(place->path, 10, &buffer, &err), FR_OK);
    assert_int_equal(buffer.size, 11);
    assert_memory_equal(buffer.data, ">0123456789", 11);
    assert_int_equal(fr_file_read(place->path, 9, &buffer, &err), FR_E_LIMIT);
    assert_int_equal(buffer.size, 11); /* a failed read leaves the buffer as it was */
    assert_int_equal(fr_file_read(place->path, 0, &buffer, &err), FR_E_LIMIT);
    fr_buffer_release(&buffer);
}

FR_CASE(read_takes_large_and_empty_files)
{
    struct place *place = *state;
    struct fr_buffer buffer = {0};
    struct fr_err err;
    size_t size = 300001;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + i / 255);
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, bytes, size, &err), FR_OK);
    assert_int_equal(fr_file_read(place->path, SIZE_MAX, &buffer, &err), FR_OK);
    assert_int_equal(buffer.size, size);
    assert_memory_equal(buffer.data, bytes, size);
    free(bytes);
    fr_buffer_clear(&buffer);
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, NULL, 0, &err), FR_OK);
    assert_int_equal(fr_file_read(place->path, 0, &buffer, &err), FR_OK);
    assert_int_equal(buffer.size, 0);
    fr_buffer_release(&buffer);
}

FR_CASE(a_file_without_a_size_is_read_to_its_end)
{
    struct fr_buffer buffer = {0};
    struct fr_err err;
    assert_int_equal(fr_file_read("/proc/self/status", 1 << 20, &buffer, &err), FR_OK);
    assert_true(buffer.size > 100);
    fr_buffer_release(&buffer);
}

/* Reading a pipe that nobody writes to would never end. */
FR_CASE(what_is_no_regular_file_is_refused_where_others_put_files)
{
    struct place *place = *state;
    struct fr_buffer bytes = {0};
    struct fr_err err = {0};
    int fd = -1;
    alarm(20);
    assert_int_equal(mkfifo(place->path, 0600), 0);
    assert_int_equal(fr_file_open_regular(place->path, &fd, &err), FR_E_CORRUPT);
    assert_non_null(strstr(err.text, "is not a regular file"));
    assert_int_equal(fr_file_read_regular(place->path, 100, &bytes, NULL), FR_E_CORRUPT);
    assert_int_equal(fr_file_read_regular("/dev/null", 100, &bytes, NULL), FR_E_CORRUPT);
    assert_int_equal(fr_file_read_regular(place->root, 100, &bytes, NULL), FR_E_CORRUPT);
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(fr_file_read_regular(place->path, 100, &bytes, NULL), FR_E_NOT_FOUND);
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "abc", 3, NULL), FR_OK);
    assert_int_equal(fr_file_read_regular(place->path, 3, &bytes, NULL), FR_OK);
    assert_int_equal(bytes.size, 3);
    fr_buffer_release(&bytes);
    alarm(0);
}

FR_CASE(read_distinguishes_missing_from_unreadable)
{
    struct place *place = *state;
    struct fr_buffer buffer = {0};
    struct fr_err err;
    assert_int_equal(fr_file_read(place->path, 100, &buffer, &err), FR_E_NOT_FOUND);
    assert_non_null(strstr(err.text, place->path));
    /* a directory */
    assert_int_equal(fr_file_read(place->root, 100, &buffer, &err), FR_E_MISMATCH);
    fr_buffer_release(&buffer);
}

/* ---- directories, locks, space ---- */

FR_CASE(dir_make_makes_parents_with_mode_0700_and_accepts_existing)
{
    struct place *place = *state;
    struct fr_err err;
    char path[160];
    snprintf(path, sizeof(path), "%s/a//b/c/", place->root);
    assert_int_equal(fr_dir_make(path, &err), FR_OK);
    assert_int_equal(fr_dir_make(path, &err), FR_OK);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(fr_dir_make("/", &err), FR_OK);
    assert_int_equal(fr_dir_make(".", &err), FR_OK);
    assert_int_equal(fr_dir_make("", &err), FR_E_LIMIT);
}

FR_CASE(dir_make_does_not_take_a_file_for_a_directory)
{
    struct place *place = *state;
    struct fr_err err;
    char path[160];
    assert_int_equal(fr_file_replace(fr_disk_system(), place->path, "x", 1, &err), FR_OK);
    assert_int_equal(fr_dir_make(place->path, &err), FR_E_MISMATCH);
    snprintf(path, sizeof(path), "%s/below", place->path);
    assert_int_equal(fr_dir_make(path, &err), FR_E_MISMATCH);
}

/* Every error, except an error of the disk itself, has a class of its own. */
FR_CASE(what_a_restart_cannot_mend_is_no_error_of_the_disk)
{
    static const struct {
        int number;
        enum fr_status status;
        const char *remedy;
    } errors[] = {
        {ENOSPC, FR_E_NO_SPACE, "free space"},
        {EDQUOT, FR_E_NO_SPACE, "free space"},
        {ENOENT, FR_E_NOT_FOUND, ""},
        {EACCES, FR_E_DENIED, "owner and mode"},
        {EPERM, FR_E_DENIED, "owner and mode"},
        {EROFS, FR_E_DENIED, "owner and mode"},
        {ELOOP, FR_E_DENIED, "symbolic links"},
        {ENOTDIR, FR_E_MISMATCH, "correct the path"},
        {EISDIR, FR_E_MISMATCH, ""},
        {EFBIG, FR_E_LIMIT, "ulimit -f"},
        {ENAMETOOLONG, FR_E_LIMIT, "use a shorter path"},
        {EMFILE, FR_E_NO_DESCRIPTORS, "ulimit -n"},
        {ENFILE, FR_E_NO_DESCRIPTORS, "ulimit -n"},
        {EIO, FR_E_IO, ""},
    };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct fr_err err = {0};
        assert_int_equal(fr_disk_error(&err, "open", "place", errors[i].number), errors[i].status);
        assert_non_null(strstr(err.text, "cannot open place: "));
        assert_non_null(strstr(err.text, errors[i].remedy));
    }
}

/* ---- trees ---- */

static int fails_to_walk; /* errno; 0: it does not */

FTSENT *__real_fts_read(FTS *walk);
FTSENT *__wrap_fts_read(FTS *walk);

FTSENT *__wrap_fts_read(FTS *walk)
{
    if (fails_to_walk == 0)
        return __real_fts_read(walk);
    (void)__real_fts_read(walk); /* fts_close frees what was begun */
    errno = fails_to_walk;
    return NULL;
}

struct tree {
    char root[96], below[128], file[160], link[128];
};

static struct tree make_tree(const struct place *place)
{
    struct tree tree;
    struct fr_err err = {0};
    snprintf(tree.root, sizeof(tree.root), "%s/tree", place->root);
    snprintf(tree.below, sizeof(tree.below), "%s/below", tree.root);
    snprintf(tree.file, sizeof(tree.file), "%s/file", tree.below);
    snprintf(tree.link, sizeof(tree.link), "%s/link", tree.root);
    assert_int_equal(fr_dir_make(tree.below, &err), FR_OK);
    assert_int_equal(fr_file_replace(fr_disk_system(), tree.file, "x", 1, &err), FR_OK);
    assert_int_equal(symlink(place->root, tree.link), 0);
    return tree;
}

static bool is_whole(const struct tree *tree)
{
    struct stat info;
    return access(tree->file, F_OK) == 0 && lstat(tree->link, &info) == 0;
}

FR_CASE(a_tree_goes_after_its_directory_was_synced)
{
    struct faulty faulty = faulty_disk();
    struct fr_err err = {0};
    faulty.disk.self = &faulty;
    faulty.countdown = 0;
    struct tree tree = make_tree(*state);
    assert_int_equal(fr_dir_remove(&faulty.disk, tree.root, &err), FR_E_IO);
    assert_true(is_whole(&tree));
    assert_int_equal(fr_dir_remove(&faulty.disk, tree.root, &err), FR_OK);
    assert_int_not_equal(access(tree.root, F_OK), 0);
    assert_int_equal(faulty.sync_dirs, 2);
    assert_int_equal(fr_dir_remove(&faulty.disk, tree.root, &err), FR_OK); /* nothing is there */
    assert_int_equal(faulty.sync_dirs, 2);
}

FR_CASE(a_walk_that_fails_is_no_removed_tree)
{
    struct fr_err err = {0};
    struct tree tree = make_tree(*state);
    fails_to_walk = ENOMEM;
    assert_int_equal(fr_dir_remove(fr_disk_system(), tree.root, &err), FR_E_IO);
    fails_to_walk = 0;
    assert_true(is_whole(&tree));
    assert_int_equal(fr_dir_remove(fr_disk_system(), tree.root, &err), FR_OK);
}

FR_CASE(a_lock_is_exclusive_and_names_its_holder)
{
    struct place *place = *state;
    struct fr_err err;
    int fd = -1, second = -1;
    assert_int_equal(fr_file_lock(place->path, &fd, &err), FR_OK);
    assert_true(fd >= 0);
    assert_int_equal(fr_file_lock(place->path, &second, &err), FR_E_BUSY);
    assert_int_equal(second, -1);
    char holder[64];
    snprintf(holder, sizeof(holder), "process %ld;", (long)getpid());
    assert_non_null(strstr(err.text, holder));
    close(fd);
    assert_int_equal(fr_file_lock(place->path, &second, &err), FR_OK);
    close(second);
}

FR_CASE(a_lock_ends_with_its_process)
{
    struct place *place = *state;
    struct fr_err err;
    int fd = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(fr_file_lock(place->path, &fd, &err) == FR_OK ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    /* the stale pid in the file has no effect */
    assert_int_equal(fr_file_lock(place->path, &fd, &err), FR_OK);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    close(fd);
}

FR_CASE(a_path_is_resolved_as_far_as_it_is_there)
{
    struct place *place = *state;
    char link[160], path[PATH_MAX + 40], real[PATH_MAX], found[PATH_MAX];
    assert_non_null(realpath(place->root, real));
    snprintf(link, sizeof(link), "%s/link", place->root);
    assert_int_equal(symlink(".", link), 0);
    static const char *const ends[][2] = {
        {"", ""}, {"/", ""}, {"/link", ""}, {"/link/link/", ""}, {"/link/new", "/new"}, {"/link//new/b/", "/new/b/"}};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        char expected[PATH_MAX + 40];
        snprintf(path, sizeof(path), "%s%s", place->root, ends[i][0]);
        snprintf(expected, sizeof(expected), "%s%s", real, ends[i][1]);
        assert_true(fr_file_resolve(path, found));
        assert_string_equal(found, expected);
    }
    assert_true(fr_file_resolve("/", found) && strcmp(found, "/") == 0);
    assert_true(fr_file_resolve("/fr_no_such/x", found) && strcmp(found, "/fr_no_such/x") == 0);
    assert_non_null(getcwd(real, sizeof(real)));
    snprintf(path, sizeof(path), "%s/fr_no_such", real);
    assert_true(fr_file_resolve("fr_no_such", found));
    assert_string_equal(found, path);
    assert_true(fr_file_is_within("/a/b", "/a") && fr_file_is_within("/a", "/a") && fr_file_is_within("/a", "/"));
    assert_false(fr_file_is_within("/ab", "/a") || fr_file_is_within("/a", "/a/b"));
}

FR_CASE(free_space_is_known)
{
    struct place *place = *state;
    struct fr_err err;
    uint64_t bytes = 0;
    assert_int_equal(fr_disk_free_bytes(place->root, &bytes, &err), FR_OK);
    assert_true(bytes > 0);
    assert_int_equal(fr_disk_free_bytes("/nonexistent/place", &bytes, &err), FR_E_NOT_FOUND);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(replace_creates_and_overwrites_with_mode_0600),
        CASE(replace_syncs_the_file_before_the_rename_and_the_directory_after),
        CASE(a_replacement_that_fails_anywhere_leaves_old_or_new_content),
        CASE(a_full_disk_is_distinguished_from_a_broken_one),
        CASE(replace_does_not_follow_a_planted_link),
        CASE(replace_without_its_directory_says_not_found),
        CASE(short_writes_are_continued),
        CASE(a_write_without_progress_ends),
        CASE(an_offset_beyond_what_files_have_is_refused),
        CASE(read_appends_up_to_exactly_the_limit),
        CASE(read_takes_large_and_empty_files),
        CASE(a_file_without_a_size_is_read_to_its_end),
        CASE(what_is_no_regular_file_is_refused_where_others_put_files),
        CASE(read_distinguishes_missing_from_unreadable),
        CASE(dir_make_makes_parents_with_mode_0700_and_accepts_existing),
        CASE(dir_make_does_not_take_a_file_for_a_directory),
        CASE(what_a_restart_cannot_mend_is_no_error_of_the_disk),
        CASE(a_tree_goes_after_its_directory_was_synced),
        CASE(a_walk_that_fails_is_no_removed_tree),
        CASE(a_lock_is_exclusive_and_names_its_holder),
        CASE(a_lock_ends_with_its_process),
        CASE(a_path_is_resolved_as_far_as_it_is_there),
        CASE(free_space_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
