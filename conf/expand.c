/* References inside values: `${NAME}` is an environment variable, `$${` is a literal `${`, and
 * `file:PATH` in a secret is the content of a file.
 *
 * References are replaced in the tree, after the YAML has been parsed and before any option is
 * read. So a value cannot become syntax, and all later code sees the replaced value. Model options
 * take no `${..}`, because the same file would be another model in another environment. Two options
 * that identify the model are exceptions: its name, which the state directory records, and
 * key_seed, a secret. Both are compared at every start, so another value is refused and never taken
 * over.
 *
 * A replaced text keeps the form in which it was written, and messages show that form. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "conf/conf.h"
#include "loader.h"

enum { NAME_MAX_BYTES = 128, KAFKA_DEPTH = 2 };
static const char FILE_PREFIX[] = "file:";

/* ---- ${NAME} ---- */

/* Returns the value of the variable that begins at `at` ("${"); NULL after a problem. *end: the
 * text after it. */
static const char *variable(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *at,
                            const char **end)
{
    char name[NAME_MAX_BYTES + 1];
    size_t size = strspn(at + 2, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    if (size == 0 || size > NAME_MAX_BYTES || at[2 + size] != '}' || (at[2] >= '0' && at[2] <= '9')) {
        fr_refuse(loader, node, path,
                  "`${` begins no variable; expected ${NAME} with a name of [A-Za-z0-9_], or $${ "
                  "for a written ${");
        return NULL;
    }
    memcpy(name, at + 2, size);
    name[size] = '\0';
    const char *value = getenv(name);
    if (!value)
        fr_refuse(loader, node, path, "the environment has no variable %s; set it, or write $${ for a written ${",
                  name);
    *end = at + 2 + size + 1;
    return value;
}

static void replace_text(struct fr_loader *loader, struct fr_node *node, const char *text, size_t size)
{
    if (!node->written)
        node->written = node->text;
    node->text = fr_node_copy_text(&loader->arena, text, size);
}

static void expand_variables(struct fr_loader *loader, struct fr_node *node, const char *path)
{
    struct fr_buffer text = {0};
    const char *from = node->text, *at;
    while ((at = strstr(from, "${")) != NULL) {
        bool escaped = at > from && at[-1] == '$';
        fr_buffer_append(&text, from, (size_t)(at - from));
        if (escaped) { /* the first of the two dollars is literal */
            fr_buffer_append(&text, "{", 1);
            from = at + 2;
            continue;
        }
        const char *value = variable(loader, node, path, at, &from);
        if (!value)
            goto out;
        fr_buffer_append(&text, value, strlen(value));
        if (text.size > FR_EXPANDED_MAX) {
            fr_refuse(loader, node, path, "longer than %d bytes once variables are replaced", FR_EXPANDED_MAX);
            goto out;
        }
    }
    fr_buffer_append(&text, from, strlen(from));
    replace_text(loader, node, (const char *)text.data, text.size);
out:
    fr_buffer_release(&text);
}

/* ---- file: ---- */

static bool readable_by_others(const char *path, unsigned *mode)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return false;
    *mode = (unsigned)status.st_mode & 07777;
    return (status.st_mode & S_IROTH) != 0;
}

static void read_secret(struct fr_loader *loader, struct fr_node *node, const char *path)
{
    const char *name = node->text + sizeof(FILE_PREFIX) - 1;
    struct fr_buffer bytes = {0};
    struct fr_err err = {0};
    unsigned mode = 0;
    if (fr_file_read(name, FR_EXPANDED_MAX, &bytes, &err) != FR_OK) {
        fr_refuse(loader, node, path, "%s", err.text);
        goto out;
    }
    size_t size = bytes.size;
    if (size > 0 && bytes.data[size - 1] == '\n')
        size -= size > 1 && bytes.data[size - 2] == '\r' ? 2 : 1;
    if (size > 0 && memchr(bytes.data, 0, size)) {
        fr_refuse(loader, node, path, "%s holds a NUL; expected a text", name);
        goto out;
    }
    if (readable_by_others(name, &mode))
        fr_warn(loader, node, path, "%s is readable by every user (mode %04o); chmod o-r it", name, mode);
    replace_text(loader, node, size > 0 ? (const char *)bytes.data : "", size);
out:
    fr_buffer_release(&bytes);
}

/* ---- the walk ---- */

struct walk {
    struct fr_loader *loader;
    const char *config; /* the file, or NULL */
    /* the warning was given that the file holds a secret and others can read it */
    bool reported;
};

static void check_literal(struct walk *walk, const struct fr_node *node, const char *path)
{
    unsigned mode = 0;
    if (walk->reported || node->written || node->text[0] == '\0' || !walk->config ||
        strcmp(node->source, walk->config) != 0 || !readable_by_others(walk->config, &mode))
        return;
    walk->reported = true;
    fr_warn(walk->loader, node, path,
            "a secret in a file that every user can read (mode %04o); chmod 600 it, or write ${NAME} or file:PATH",
            mode);
}

static void expand_scalar(struct walk *walk, struct fr_node *node, const char *path, bool identity, bool secret)
{
    if (identity && strstr(node->text, "${")) {
        fr_refuse(walk->loader, node, path,
                  "the model is made of this, and another environment would give another model; expected a value "
                  "without ${..}");
        return;
    }
    if (strstr(node->text, "${"))
        expand_variables(walk->loader, node, path);
    if (secret && strncmp(node->text, FILE_PREFIX, sizeof(FILE_PREFIX) - 1) == 0)
        read_secret(walk->loader, node, path);
    const char *property = strncmp(path, "ingest.kafka.", 13) == 0 ? path + 13 : NULL;
    if (secret && !(property && fr_conf_property_is_shown(property)))
        check_literal(walk, node, path);
}

/* The document's depth bounds the recursion. */
static void walk_node(struct walk *walk, struct fr_node *node, const char *path, bool identity)
{
    const struct fr_option *option = path[0] != '\0' ? fr_option_find(path) : NULL;
    bool seed = strcmp(path, "key_seed") == 0;
    identity = identity || (option && option->top && !seed);
    if (node->kind == FR_NODE_SCALAR)
        expand_scalar(walk, node, path, identity, seed || strncmp(path, "ingest.kafka.", 13) == 0);
    for (uint32_t i = 0; node->kind != FR_NODE_SCALAR && i < node->count; i++) {
        char below[FR_PATH_MAX];
        fr_path_entry(below, path, node, i);
        walk_node(walk, node->values[i], below, identity);
    }
}

void fr_document_expand(struct fr_loader *loader, struct fr_node *root, const char *config)
{
    struct walk walk = {.loader = loader, .config = config};
    walk_node(&walk, root, "", false);
}
