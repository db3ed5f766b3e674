/* Inside of the loader: what the option table's `read` functions share. Not public. */
#ifndef FR_CONF_LOADER_H
#define FR_CONF_LOADER_H

#include "base/arena.h"
#include "conf/conf.h"
#include "document.h"
#include "options.h"
#include "problem.h"

enum {
    FR_UNITS_MAX = 16,       /* of an mlp */
    FR_WIDTH_MAX = 1 << 16,  /* of a layer's units */
    FR_REFS_MAX = 1024,      /* of a layer */
    FR_PROPERTIES_MAX = 256, /* of ingest.kafka */
};

struct fr_loader {
    struct fr_arena arena; /* nodes and drafts */
    struct fr_problems problems;
    struct fr_words words; /* scratch of whoever is about to report an unknown one */
    struct fr_conf *conf;
};

/* A layer before its references are resolved. */
struct fr_layer_draft {
    struct fr_conf_layer layer;
    const struct fr_node *node, *argument;
    bool has_op, has_units, has_activation;
    char path[FR_PATH_MAX];
};

/* Where a map of options is read into. */
struct fr_scope {
    const char *pattern; /* rows of the table: "slots.*" */
    const char *path;    /* as the user wrote it: "slots.price" */
    const struct fr_node *node;
    void *base;
};

void fr_loader_defaults(struct fr_loader *loader, const char *pattern, void *base);
/* Every key of the map must be a row; rows are read in table order. */
void fr_loader_walk(struct fr_loader *loader, const struct fr_scope *scope);
void fr_loader_read(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                    const char *path, void *base);
/* The model sections only (tables .. tasks, export.quantize), for the model JSON. */
void fr_loader_model(struct fr_loader *loader, const struct fr_node *root);
void fr_loader_release(struct fr_loader *loader);

/* A text that is not empty and not null; NULL and a problem otherwise. */
const char *fr_loader_text(struct fr_loader *loader, const struct fr_node *node, const char *path,
                           const char *expected);
bool fr_loader_expect(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_node_kind kind);
bool fr_loader_name(struct fr_loader *loader, const struct fr_node *node, const char *path,
                    char out[static FR_NAME_MAX]);
bool fr_loader_count(struct fr_loader *loader, const struct fr_node *node, const char *path, uint32_t min,
                     uint32_t max);
bool fr_is_topic(const char *text);
void fr_path_join(char out[static FR_PATH_MAX], const char *path, const char *key);
void fr_path_index(char out[static FR_PATH_MAX], const char *path, uint32_t index);

/* Widths of all layers (vector lengths), checking every layer's shape rule; a problem names the layer. False when there
 * was one. */
bool fr_shapes_check(const struct fr_conf *conf, struct fr_problems *problems, const struct fr_node *at);
/* Sorts the drafts so that a layer comes after what it reads, resolves references and stores them in the conf. */
void fr_layers_store(struct fr_loader *loader, struct fr_layer_draft *drafts, uint32_t count);

extern const char fr_layer_ops[]; /* choices, in enum order */
extern const char fr_layer_activations[];

#define FR_READ(name)                                                                                                  \
    void name(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node, const char *path,  \
              void *scope)
FR_READ(fr_read_version);
FR_READ(fr_read_model_name);
FR_READ(fr_read_topic);
FR_READ(fr_read_topics);
FR_READ(fr_read_kafka);
FR_READ(fr_read_tables);
FR_READ(fr_read_parts);
FR_READ(fr_read_optimizer);
FR_READ(fr_read_init);
FR_READ(fr_read_slots);
FR_READ(fr_read_slot_table);
FR_READ(fr_read_labels);
FR_READ(fr_read_layers);
FR_READ(fr_read_layer_op);
FR_READ(fr_read_layer_units);
FR_READ(fr_read_tasks);
FR_READ(fr_read_task_label);
FR_READ(fr_read_task_logit);
FR_READ(fr_read_losses);
FR_READ(fr_read_listen);
FR_READ(fr_read_half_lives);

#endif
