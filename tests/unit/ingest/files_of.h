/* Files of a service of the fixture: made, written, read to a failure. */
#ifndef FR_TESTS_INGEST_FILES_OF_H
#define FR_TESTS_INGEST_FILES_OF_H

#include "fixture.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

static inline const char *path_of(const struct service *s, uint32_t file)
{
    return s->conf->ingest.files[file];
}

static inline void write_plain(const char *path, const char *bytes, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(file >= 0 && write(file, bytes, size) == (ssize_t)size && close(file) == 0);
}

static inline void write_gzip(const char *path, const char *bytes, size_t size)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)size), size);
    assert_int_equal(gzclose(file), Z_OK);
}

static inline void add_path(struct fr_conf *conf, const char *path)
{
    size_t size = strlen(path) + 1;
    if (!conf->ingest.files)
        conf->ingest.files = fr_arena_take(&conf->arena, FILES * sizeof(*conf->ingest.files));
    assert_true(conf->ingest.n_files < FILES);
    conf->ingest.files[conf->ingest.n_files++] = memcpy(fr_arena_take(&conf->arena, size), path, size);
}

/* Adds a file of the given content to ingest.files; a name that ends with .gz is compressed. */
static inline void add_file(struct service *s, const char *name, const char *content)
{
    char path[64];
    if (!s->dir[0]) {
        snprintf(s->dir, sizeof(s->dir), "/tmp/ingest-XXXXXX");
        assert_non_null(mkdtemp(s->dir));
    }
    snprintf(path, sizeof(path), "%s/%s", s->dir, name);
    add_path(s->conf, path);
    if (content && strstr(name, ".gz"))
        write_gzip(path, content, strlen(content));
    else if (content)
        write_plain(path, content, strlen(content));
}

static inline void files_free(struct service *s)
{
    for (uint32_t i = 0; i < s->conf->ingest.n_files; i++)
        (void)unlink(path_of(s, i));
    if (s->dir[0])
        assert_int_equal(rmdir(s->dir), 0);
}

/* n lines of one sample, event times T0 + first, T0 + first + 1, ... */
static inline const char *lines(uint32_t first, uint32_t n)
{
    static char text[65536];
    size_t size = 0;
    text[0] = 0;
    for (uint32_t i = first; i < first + n; i++)
        size += (size_t)snprintf(text + size, sizeof(text) - size,
                                 "{\"t\":%lld,\"f\":{\"user_id\":%u},\"y\":{\"click\":1}}\n", T0 + (long long)i, i);
    return text;
}

static inline enum fr_status run_to_failure(struct service *s)
{
    enum fr_status status = FR_OK;
    for (int i = 0; i < 1000 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    return status;
}

/* Four of ten lines took effect, then the process was killed. */
static inline struct service *half_read(const char *name)
{
    struct service *s = service_new(", batch_size: 4", 1);
    add_file(s, name, lines(0, 10));
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    return s;
}

#endif
