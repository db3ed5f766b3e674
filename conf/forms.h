/* Forms of values that one option has, or a few: how each is read from a node and shown as one. The
 * option table refers to them; each is defined in the file of its subject. Not public. */
#ifndef FR_CONF_FORMS_H
#define FR_CONF_FORMS_H

#include "loader.h"
#include "tree.h"

#define FR_UNUSED __attribute__((unused))
#define FR_READ(name)                                                                                                  \
    void fr_option_read_##name(struct fr_loader *loader FR_UNUSED, const struct fr_option *option FR_UNUSED,           \
                               const struct fr_node *node, const char *path FR_UNUSED, void *scope FR_UNUSED)
#define FR_SHOW(name)                                                                                                  \
    struct fr_node *fr_option_show_##name(struct fr_tree *tree, const struct fr_option *option FR_UNUSED,              \
                                          const void *scope FR_UNUSED, struct fr_node *map FR_UNUSED)
#define FR_FORM(name)                                                                                                  \
    FR_READ(name);                                                                                                     \
    FR_SHOW(name)

/* option_forms.c */
FR_FORM(version);
FR_READ(model);
FR_FORM(key_seed);
FR_FORM(device);
FR_FORM(topic);
FR_FORM(topics);
FR_FORM(start);
FR_FORM(files);
FR_FORM(kafka);
FR_FORM(listen);
FR_FORM(hosts);
FR_FORM(hook);
FR_FORM(half_lives);
/* update_rules.c */
FR_FORM(optimizer);
FR_FORM(init);
/* tables_slots.c: called after one part, table or slot, and after all slots */
FR_READ(part);
FR_READ(table);
FR_READ(slot);
FR_READ(slots);
/* transforms.c, computed_slots.c */
FR_FORM(transform);
FR_FORM(buckets);
FR_FORM(cross);
/* sample_keys.c */
FR_FORM(sample_key);
/* layers.c */
FR_READ(layers);
FR_FORM(layer_op);
FR_FORM(layer_units);
/* tasks.c: called after one label, task or loss, and after all labels */
FR_READ(label);
FR_READ(labels);
FR_READ(task);
FR_FORM(task_prob);
FR_FORM(task_loss);
FR_READ(loss);
FR_SHOW(loss_refs);

/* Checks that every key in samples is unique. */
void fr_loader_slot_keys(struct fr_loader *loader, const struct fr_node *node, const char *path);
void fr_loader_label_keys(struct fr_loader *loader, const struct fr_node *node, const char *path);
/* Checks that no path of a flat record leads through the value of another. */
void fr_loader_check_paths(struct fr_loader *loader, const struct fr_node *root);

/* Ascending numbers, into the slot and out of it. */
void fr_boundaries_read(struct fr_loader *loader, const struct fr_node *list, const char *path,
                        struct fr_conf_slot *slot);
struct fr_node *fr_boundaries_show(struct fr_tree *tree, const struct fr_conf_slot *slot);

#endif
