/* Inside of the loader: what the option table's `read` functions share. Not public. */
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
    FR_REF_TEXT_MAX = 2 * FR_NAME_MAX + 16,
};

/* A layer before the layers are sorted. Its references to layers are numbers of drafts; they live
 * in the arena. */
struct fr_layer_draft {
    struct fr_conf_layer layer;
    const struct fr_node *node, *argument;
    bool has_op;
    uint32_t n_lifted; /* inline operations that became layers of their own */
    char path[FR_PATH_MAX];
};

struct fr_loader {
    struct fr_arena arena; /* nodes and drafts */
    struct fr_problems problems;
    struct fr_words words; /* scratch of whoever is about to report an unknown one */
    struct fr_conf *conf;
    /* FR_LAYERS_MAX; inline operations are appended to those of the file */
    struct fr_layer_draft *drafts;
    uint32_t n_drafts;
    /* a layer or reference is missing: there is no order to find */
    bool drafts_broken;
    const struct fr_layer_draft **ordered; /* of conf->layers, once they are stored */
    struct fr_layer_draft **loss_drafts;   /* of conf->losses: their places */
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

/* Shapes of all layers, into their width and is_sequence; rules of tasks and losses about them.
 * False after a problem. */
bool fr_shapes_infer(struct fr_loader *loader);
/* Sorts the drafts so that a layer comes after what it reads and stores them in the conf; tasks and
 * losses, which hold numbers of drafts until then, follow. */
void fr_layers_store(struct fr_loader *loader);
/* The slots again, once all have their names: what buckets and crosses are computed from. */
void fr_slots_compute(struct fr_loader *loader, const struct fr_node *slots);
/* Ascending numbers, into the slot. */
void fr_read_boundaries(struct fr_loader *loader, const struct fr_node *list, const char *path,
                        struct fr_conf_slot *slot);
/* The transform of a dense slot as it is written: `json` with quoted names and without blanks. */
void fr_transforms_text(const struct fr_conf_slot *slot, bool json, struct fr_buffer *out);

/* Resolves one reference of the draft (of a loss: a draft that is no layer), appending drafts for
 * inline operations; false after a problem. */
bool fr_ref_resolve(struct fr_loader *loader, struct fr_layer_draft *draft, const struct fr_node *node,
                    struct fr_conf_ref *ref);
/* A draft for an inline operation of `outer`, with its references; its number, FR_NO_INDEX after a
 * problem. */
int32_t fr_layer_lift(struct fr_loader *loader, struct fr_layer_draft *outer, enum fr_layer_op op,
                      const struct fr_node *node);
int32_t fr_draft_find(const struct fr_loader *loader, const char *name, size_t size);
int32_t fr_slot_find(const struct fr_conf *conf, const char *name, size_t size);
/* A reference as the user writes it. */
void fr_ref_text(const struct fr_conf *conf, const struct fr_conf_ref *ref, char out[static FR_REF_TEXT_MAX]);

#define FR_READ(name)                                                                                                  \
    void name(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node, const char *path,  \
              void *scope)
FR_READ(fr_read_version);
FR_READ(fr_read_model_name);
FR_READ(fr_read_topic);
FR_READ(fr_read_topics);
FR_READ(fr_read_start);
FR_READ(fr_read_files);
FR_READ(fr_read_kafka);
FR_READ(fr_read_tables);
FR_READ(fr_read_parts);
FR_READ(fr_read_optimizer);
FR_READ(fr_read_init);
FR_READ(fr_read_slots);
FR_READ(fr_read_slot_table);
FR_READ(fr_read_transform);
FR_READ(fr_read_buckets);
FR_READ(fr_read_cross);
FR_READ(fr_read_labels);
FR_READ(fr_read_label_source);
FR_READ(fr_read_layers);
FR_READ(fr_read_layer_op);
FR_READ(fr_read_layer_units);
FR_READ(fr_read_tasks);
FR_READ(fr_read_task_label);
FR_READ(fr_read_task_logit);
FR_READ(fr_read_task_prob);
FR_READ(fr_read_task_loss);
FR_READ(fr_read_losses);
FR_READ(fr_read_loss_refs);
FR_READ(fr_read_listen);
FR_READ(fr_read_half_lives);
FR_READ(fr_read_gauc_by);

#endif
