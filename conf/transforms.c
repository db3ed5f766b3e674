/* Transforms of dense slots: how they are read and written, and how many numbers they make.
 *
 * A transform is a name, a map, or a list of these, applied in order. log1p and clip come first,
 * any number of them. standardize or bucketize, if present, is last, because the network applies
 * it. A time of day or of the week is alone: its result is a point on the unit circle, and no other
 * transform would keep it there. The arithmetic is in numerics/transform_values.h. */
#include <float.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "forms.h"

/* ---- numbers ---- */

static bool is_time(const struct fr_conf_slot *slot)
{
    return slot->n_steps > 0 && fr_transform_place(slot->steps[0].kind) == FR_TRANSFORMED_AS_TIME;
}

uint32_t fr_conf_slot_numbers(const struct fr_conf_slot *slot)
{
    return is_time(slot) ? 2 * slot->dim : slot->dim;
}

uint32_t fr_conf_slot_width(const struct fr_conf_slot *slot)
{
    uint32_t width = fr_conf_slot_numbers(slot);
    if (fr_transform_argument(slot->transform) == FR_TAKES_BOUNDARIES)
        width = slot->dim * (slot->n_boundaries + 1);
    return width + slot->indicator;
}

bool fr_conf_slot_keeps_missing(const struct fr_conf_slot *slot)
{
    return slot->indicator || (fr_transform_learns(slot->transform) && !slot->has_default);
}

/* ---- shown ---- */

struct fr_node *fr_boundaries_show(struct fr_tree *tree, const struct fr_conf_slot *slot)
{
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t i = 0; i < slot->n_boundaries; i++)
        fr_tree_put(tree, list, NULL, fr_tree_real(tree, slot->boundaries[i]));
    return list;
}

static struct fr_node *show_step(struct fr_tree *tree, const struct fr_conf_slot *slot, uint32_t index)
{
    const struct fr_conf_step *step = index < slot->n_steps ? &slot->steps[index] : NULL;
    enum fr_transform kind = step ? step->kind : slot->transform;
    const char *name = fr_transform_text(kind);
    struct fr_node *map = fr_tree_flow(tree, FR_NODE_MAP);
    struct fr_node *range = fr_tree_flow(tree, FR_NODE_LIST);
    switch (fr_transform_argument(kind)) {
    case FR_TAKES_NOTHING:
        return fr_tree_word(tree, name);
    case FR_TAKES_RANGE:
        FR_CHECK(step); /* what takes a range is a step; the network's own transforms do not */
        fr_tree_put(tree, range, NULL, fr_tree_real(tree, step->low));
        fr_tree_put(tree, range, NULL, fr_tree_real(tree, step->high));
        fr_tree_put(tree, map, name, range);
        break;
    case FR_TAKES_BOUNDARIES:
        fr_tree_put(tree, map, name, fr_boundaries_show(tree, slot));
        break;
    }
    return map;
}

FR_SHOW(transform)
{
    const struct fr_conf_slot *slot = scope;
    uint32_t count = slot->n_steps + (fr_transform_place(slot->transform) == FR_TRANSFORMED_IN_NETWORK);
    struct fr_node *list = fr_tree_flow(tree, FR_NODE_LIST);
    for (uint32_t i = 0; i < count; i++)
        fr_tree_put(tree, list, NULL, show_step(tree, slot, i));
    /* a single transform is shown alone, and so is `none` */
    return count > 1 ? list : show_step(tree, slot, 0);
}

/* ---- read ---- */

static const struct fr_option number = {.type = FR_OPTION_REAL, .min = -(double)FLT_MAX, .max = (double)FLT_MAX};

void fr_boundaries_read(struct fr_loader *loader, const struct fr_node *list, const char *path,
                        struct fr_conf_slot *slot)
{
    if (!fr_loader_sized(loader, list, path, FR_NODE_LIST, 1, FR_BOUNDARIES_MAX) || slot->boundaries)
        return;
    slot->boundaries = fr_loader_alloc(loader, list->count, sizeof(*slot->boundaries));
    slot->n_boundaries = list->count;
    for (uint32_t i = 0; i < list->count; i++) {
        fr_loader_read(loader, &number, list->values[i], path, &slot->boundaries[i]);
        if (i > 0 && !(slot->boundaries[i] > slot->boundaries[i - 1]))
            fr_refuse(loader, list->values[i], path, "boundary %.9g after %.9g; expected ascending ones",
                      (double)slot->boundaries[i], (double)slot->boundaries[i - 1]);
    }
}

static void read_clip(struct fr_loader *loader, const struct fr_node *list, const char *path, struct fr_conf_step *step)
{
    size_t problems = loader->problems.count;
    if (!fr_loader_sized(loader, list, path, FR_NODE_LIST, 2, 2))
        return;
    fr_loader_read(loader, &number, list->values[0], path, &step->low);
    fr_loader_read(loader, &number, list->values[1], path, &step->high);
    if (loader->problems.count == problems && !(step->low < step->high))
        fr_refuse(loader, list, path, "clip to [%.9g, %.9g]; expected the smaller bound first", (double)step->low,
                  (double)step->high);
}

/* Written as a map of one key: its numbers. */
static bool takes_numbers(enum fr_transform kind)
{
    return fr_transform_argument(kind) != FR_TAKES_NOTHING;
}

/* Finds the transform that a node names; false after a problem. *body: the map's value for it. */
static bool named(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                  const char *path, enum fr_transform *kind, const struct fr_node **body)
{
    bool map = node->kind == FR_NODE_MAP;
    *body = map && node->count == 1 ? node->values[0] : node; /* nothing is read from a name */
    if (map && node->count == 1 && fr_transform_parse(node->keys[0]->text, kind) && takes_numbers(*kind))
        return true;
    if (map && node->count != 1)
        return fr_refuse(loader, node, path, "a map that has not exactly one key; expected %s", option->form);
    if (node->kind != FR_NODE_SCALAR || (fr_transform_parse(node->text, kind) && takes_numbers(*kind)))
        return fr_loader_unlike(loader, node, path, option->form);
    const struct fr_option choice = {.type = FR_OPTION_CHOICE, .choices = FR_CHOICES(FR_TRANSFORMS)};
    size_t before = loader->problems.count + loader->problems.dropped;
    fr_loader_read(loader, &choice, node, path, kind);
    return loader->problems.count + loader->problems.dropped == before;
}

/* Says whether `kind` may stand at this place of `count`. */
static bool fits(struct fr_loader *loader, const struct fr_node *node, const char *path, enum fr_transform kind,
                 const uint32_t place[2])
{
    bool last = place[0] + 1 == place[1], alone = place[1] == 1;
    const char *name = fr_transform_text(kind);
    switch (fr_transform_place(kind)) {
    case FR_TRANSFORMED_IN_DECODER:
        break;
    case FR_TRANSFORMED_IN_NETWORK:
        return last || fr_refuse(loader, node, path, "`%s` before another transform; expected it last", name);
    case FR_TRANSFORMED_NOWHERE:
        return alone || fr_refuse(loader, node, path, "`%s` with another transform; expected it alone", name);
    case FR_TRANSFORMED_AS_TIME:
        return alone ||
               fr_refuse(loader, node, path,
                         "`%s` with another transform; expected it alone, the other in a slot of its own", name);
    }
    return true;
}

FR_READ(transform)
{
    struct fr_conf_slot *slot = scope;
    bool many = node->kind == FR_NODE_LIST;
    uint32_t count = many ? node->count : 1;
    if (many && !fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_STEPS_MAX))
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct fr_node *item = many ? node->values[i] : node, *body = NULL;
        enum fr_transform kind = FR_TRANSFORM_NONE;
        if (!named(loader, option, item, path, &kind, &body) ||
            !fits(loader, item, path, kind, (uint32_t[2]){i, count}))
            continue;
        switch (fr_transform_place(kind)) {
        case FR_TRANSFORMED_NOWHERE:
            break;
        case FR_TRANSFORMED_IN_DECODER:
        case FR_TRANSFORMED_AS_TIME:
            slot->steps[slot->n_steps++].kind = kind;
            break;
        case FR_TRANSFORMED_IN_NETWORK:
            slot->transform = kind;
            break;
        }
        switch (fr_transform_argument(kind)) {
        case FR_TAKES_NOTHING:
            break;
        case FR_TAKES_RANGE:
            read_clip(loader, body, path, &slot->steps[slot->n_steps - 1]);
            break;
        case FR_TAKES_BOUNDARIES:
            fr_boundaries_read(loader, body, path, slot);
            break;
        }
    }
}
