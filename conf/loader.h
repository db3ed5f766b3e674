/* The state of the loader, and functions that the readers of options share. Not public. */
#ifndef FR_CONF_LOADER_H
#define FR_CONF_LOADER_H

#include "base/arena.h"
#include "conf/conf.h"
#include "document.h"
#include "options.h"
#include "problem.h"

enum {
    FR_WIDTH_MAX = 1 << 16,  /* of a layer's units */
    FR_REFS_MAX = 1024,      /* of a layer */
    FR_PROPERTIES_MAX = 256, /* of ingest.kafka */
    FR_TOPICS_MAX = 64,
    FR_FILES_MAX = 1024,
    FR_HOSTS_MAX = 64,
};

/* A layer before the layers are sorted. Its references to layers are numbers of drafts and are
 * allocated in the arena. */
struct fr_layer_draft {
    struct fr_conf_layer layer;
    const struct fr_node *node, *argument;
    bool has_op;
    uint32_t n_lifted; /* inline operations that became separate layers */
    char path[FR_PATH_MAX];
};

struct fr_loader {
    struct fr_arena arena; /* nodes and drafts */
    struct fr_problems problems, warnings;
    struct fr_words words; /* scratch for reporting an unknown word */
    struct fr_conf *conf;
    /* At most FR_LAYERS_MAX drafts. The layers of the file come first; inline operations that
     * became layers are appended. */
    struct fr_layer_draft *drafts;
    uint32_t n_drafts;
    /* a layer or reference is missing, so no order can be found */
    bool drafts_broken;
    const struct fr_layer_draft **ordered; /* of conf->layers, once they are stored */
    /* the drafts of conf->losses, for their places in the file */
    struct fr_layer_draft *loss_drafts[FR_TASKS_MAX];
};

/* Report a problem of the loaded text: an error, a warning, and as an error a word that is none of
 * those in loader->words. */
#define fr_refuse(loader, ...) fr_problem(&(loader)->problems, __VA_ARGS__)
#define fr_warn(loader, ...) (void)fr_problem(&(loader)->warnings, __VA_ARGS__)
#define fr_refuse_unknown(loader, ...) fr_problem_unknown(&(loader)->problems, __VA_ARGS__, &(loader)->words)

/* expand.c: replaces `${NAME}` and `file:` in the tree. config: the file from which it was read, or
 * NULL. */
void fr_document_expand(struct fr_loader *loader, struct fr_node *root, const char *config);

/* unused.c: writes warnings; the configuration is complete. */
void fr_loader_warn_unused(struct fr_loader *loader, const struct fr_node *root);

void fr_loader_init(struct fr_loader *loader);
void fr_loader_release(struct fr_loader *loader);
/* Return zeroed memory, and a copied text, that the configuration owns. */
void *fr_loader_alloc(struct fr_loader *loader, size_t count, size_t size);
char *fr_loader_keep(struct fr_loader *loader, const char *text);

/* Set the option's own default, and those of all rows directly below the pattern. */
void fr_loader_default(struct fr_loader *loader, const struct fr_option *option, void *base);
void fr_loader_defaults(struct fr_loader *loader, const char *pattern, void *base);
/* Reads the map's keys, by the rows directly below the pattern, into the scope's struct. Every key
 * must be a row; rows are read in table order. */
void fr_loader_walk(struct fr_loader *loader, const char *pattern, const char *path, const struct fr_node *node,
                    void *base);
void fr_loader_read(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                    const char *path, void *base);
/* Returns the index of the entry that a reference names; FR_NO_INDEX after a problem. */
int32_t fr_loader_find(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                       const char *path);

/* Returns a text that is neither empty nor null; NULL after a problem. */
const char *fr_loader_text(struct fr_loader *loader, const struct fr_node *node, const char *path,
                           const char *expected);
/* Reports a node of another kind than expected; returns false. */
bool fr_loader_unlike(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *expected);
bool fr_loader_expect(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind);
bool fr_loader_name(struct fr_loader *loader, const struct fr_node *node, const char *path,
                    char out[static FR_NAME_MAX]);
/* Checks for a list or map with a number of entries in the range. */
bool fr_loader_sized(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind,
                     uint32_t min, uint32_t max);
/* Reports a text that occurs twice in a list that must not repeat: "every slot once". */
void fr_loader_twice(struct fr_loader *loader, const struct fr_node *node, const char *path, const char *what);
/* Returns the words, emptied. */
struct fr_words *fr_loader_words(struct fr_loader *loader);
bool fr_is_topic(const char *text);
void fr_path_join(char out[static FR_PATH_MAX], const char *path, const char *key);
/* Writes the path of an entry of the map or list. */
void fr_path_entry(char out[static FR_PATH_MAX], const char *path, const struct fr_node *node, uint32_t index);
void fr_path_index(char out[static FR_PATH_MAX], const char *path, uint32_t index);

#endif
