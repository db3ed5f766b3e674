/* Layers while they are read: drafts, references, order, shapes. Not public. */
#ifndef FR_CONF_LAYERS_H
#define FR_CONF_LAYERS_H

#include "loader.h"
#include "tree.h"

enum { FR_REF_TEXT_MAX = 2 * FR_NAME_MAX + 16 };

/* Infers the shapes of all layers (width and is_sequence), and applies the rules of tasks and
 * losses about shapes. False after a problem. */
bool fr_shapes_infer(struct fr_loader *loader);
/* Sorts the drafts so that a layer comes after the layers it reads, and stores them in the conf.
 * Tasks and losses, which contain numbers of drafts until then, are updated. */
void fr_layers_store(struct fr_loader *loader);

/* Replaces each {slots: all} in a layer's argument, or in the value of a role, by the references it
 * stands for (all_slots.c). Returns the argument itself if it has none; NULL after a problem. */
const struct fr_node *fr_layers_expand_slots(struct fr_loader *loader, const struct fr_layer_draft *draft,
                                             const struct fr_node *argument);
/* Resolves one reference of the draft (for a loss, a draft that is not a layer), and appends drafts
 * for inline operations. False after a problem. */
bool fr_ref_resolve(struct fr_loader *loader, struct fr_layer_draft *draft, const struct fr_node *node,
                    struct fr_conf_ref *ref);
/* The same for a name: slot, slot.part or layer. */
bool fr_ref_read(struct fr_loader *loader, const struct fr_layer_draft *draft, const struct fr_node *node,
                 struct fr_conf_ref *ref);
int32_t fr_slot_find(const struct fr_conf *conf, const char *name, size_t size);
/* Writes a reference in the user's form. */
void fr_ref_text(const struct fr_conf *conf, const struct fr_conf_ref *ref, char out[static FR_REF_TEXT_MAX]);
struct fr_node *fr_ref_show(struct fr_tree *tree, const struct fr_conf_ref *ref);

#endif
