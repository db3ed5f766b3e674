/* Readers of labels, tasks and auxiliary losses. Labels that samples carry come first, derived ones
 * after them. Until the layers are stored, tasks and losses hold numbers of drafts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "forms.h"
#include "layers.h"

/* ---- labels ---- */

/* Says whether a label needs itself, through `of` or `given`. Marks: 0 new, 1 in progress, 2
 * done. */
static bool is_circular(const struct fr_conf *conf, int32_t label, uint8_t *marks)
{
    if (label == FR_NO_INDEX || marks[label] == 2)
        return false;
    if (marks[label] == 1)
        return true;
    marks[label] = 1; /* the recursion is at most FR_LABELS_MAX deep */
    if (is_circular(conf, conf->labels[label].of, marks) || is_circular(conf, conf->labels[label].given, marks))
        return true;
    marks[label] = 2;
    return false;
}

static void sort_labels(struct fr_conf *conf)
{
    struct fr_conf_label sorted[FR_LABELS_MAX];
    int32_t place[FR_LABELS_MAX];
    uint32_t n = 0;
    for (int derived = 0; derived < 2; derived++) {
        for (uint32_t i = 0; i < conf->n_labels; i++) {
            if ((conf->labels[i].of != FR_NO_INDEX) != (derived == 1))
                continue;
            place[i] = (int32_t)n;
            sorted[n++] = conf->labels[i];
        }
        if (derived == 0)
            conf->n_sample_labels = n;
    }
    for (uint32_t i = 0; i < n; i++) {
        sorted[i].of = sorted[i].of == FR_NO_INDEX ? FR_NO_INDEX : place[sorted[i].of];
        sorted[i].given = sorted[i].given == FR_NO_INDEX ? FR_NO_INDEX : place[sorted[i].given];
    }
    memcpy(conf->labels, sorted, n * sizeof(*sorted));
}

FR_READ(label)
{
    if (((const struct fr_conf_label *)scope)->has_min && !fr_node_get(node, "of"))
        fr_refuse(loader, node, path, "min needs another label to compare; expected of: LABEL");
    const char *const carried[] = {"key", "negative"};
    for (size_t i = 0; i < FR_ARRAY_LEN(carried) && fr_node_get(node, "of"); i++)
        if (fr_node_get(node, carried[i]))
            fr_refuse(loader, node, path, "`%s` is only for labels that samples carry; remove it, or remove `of`",
                      carried[i]);
}

FR_READ(labels)
{
    struct fr_conf *conf = loader->conf;
    uint8_t marks[FR_LABELS_MAX] = {0};
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        if (is_circular(conf, (int32_t)i, marks)) {
            char at[FR_PATH_MAX];
            fr_path_entry(at, path, node, i);
            fr_refuse(loader, node->values[i], at, "the label needs itself; expected no cycle");
            break;
        }
    }
    fr_loader_label_keys(loader, node, path);
    sort_labels(conf);
}

/* ---- tasks ---- */

static void read_factor(struct fr_loader *loader, const struct fr_node *node, const char *path,
                        struct fr_conf_task *task)
{
    static const struct fr_option earlier = {.of = "tasks", .noun = "an earlier task"};
    struct fr_conf *conf = loader->conf;
    uint32_t count = conf->n_tasks;
    conf->n_tasks = (uint32_t)(task - conf->tasks);
    int32_t found = fr_loader_find(loader, &earlier, node, path);
    conf->n_tasks = count;
    if (found == FR_NO_INDEX)
        return;
    const struct fr_conf_task *factor = &conf->tasks[found];
    if (factor->n_prob > 0)
        fr_refuse(loader, node, path, "task `%s` is a product itself; expected one with a logit and its probability",
                  node->text);
    else if (fr_loss_prediction(factor->loss) == FR_PREDICTS_VALUE)
        fr_refuse(loader, node, path, "task `%s` predicts a value (%s); expected one with a logit and its probability",
                  node->text, fr_task_loss_text(factor->loss));
    for (uint32_t i = 0; i < task->n_prob; i++) {
        if (task->prob[i] == found)
            fr_loader_twice(loader, node, path, "task");
    }
    task->prob[task->n_prob++] = found;
}

FR_READ(task_prob)
{
    if (!fr_loader_sized(loader, node, path, FR_NODE_LIST, 1, FR_TASKS_MAX - 1))
        return;
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        read_factor(loader, node->values[i], at, scope);
    }
}

FR_SHOW(task_prob)
{
    const struct fr_conf_task *task = scope;
    return task->n_prob > 0 ? fr_tree_names(tree, "tasks", task->prob, task->n_prob) : NULL;
}

FR_READ(task_loss)
{
    struct fr_conf_task *task = scope;
    fr_loader_defaults(loader, "tasks.*.loss.focal", task);
    const struct fr_option choice = {
        .type = FR_OPTION_CHOICE, .choices = FR_CHOICES(FR_TASK_LOSSES), .offset = offsetof(struct fr_conf_task, loss)};
    if (node->kind == FR_NODE_SCALAR) {
        fr_loader_read(loader, &choice, node, path, task);
        return;
    }
    enum fr_task_loss loss;
    bool named = node->kind == FR_NODE_MAP && node->count == 1 && fr_task_loss_parse(node->keys[0]->text, &loss);
    const char *options = named ? fr_loss_options(loss) : NULL;
    if (!options) {
        fr_loader_unlike(loader, node, path, option->form);
        return;
    }
    char below[FR_PATH_MAX];
    fr_path_join(below, path, fr_task_loss_text(loss));
    task->loss = loss;
    fr_loader_walk(loader, options, below, node->values[0], task);
}

FR_SHOW(task_loss)
{
    const struct fr_conf_task *task = scope;
    const char *options = fr_loss_options(task->loss);
    struct fr_node *body = options ? fr_tree_scope(tree, options, task) : NULL;
    if (tree->view == FR_VIEW_TRAINING)
        return body;
    const char *name = fr_task_loss_text(task->loss);
    if (!body || tree->view == FR_VIEW_MODEL)
        return fr_tree_word(tree, name);
    struct fr_node *node = fr_tree_flow(tree, FR_NODE_MAP);
    fr_tree_put(tree, node, name, body);
    return node;
}

/* Reports a name that an earlier entry has. */
static void want_own_name(struct fr_loader *loader, const struct fr_node *node, const char *path,
                          const struct fr_option *option, const char *entry)
{
    const char *other = fr_option_entries(option, loader->conf).first;
    for (; other < entry && entry[0] != '\0'; other += option->size) {
        if (strcmp(other, entry) == 0)
            fr_refuse(loader, node, path, "the name `%s` is taken; expected every %s once", entry, option->noun);
    }
}

FR_READ(task)
{
    const struct fr_conf_task *task = scope;
    bool logit = fr_node_get(node, "logit") != NULL, prob = fr_node_get(node, "prob") != NULL;
    if (node->kind == FR_NODE_MAP && logit == prob)
        fr_refuse(loader, node, path, "%s; expected logit or prob",
                  logit ? "both logit and prob" : "neither logit nor prob");
    if (prob && !fr_loss_takes_product(task->loss))
        fr_refuse(loader, node, path, "a product of probabilities with another loss; expected %s", FR_PRODUCT_LOSSES);
    want_own_name(loader, node, path, option, task->name);
}

/* ---- auxiliary losses ---- */

static const char *const next_step_roles[] = {"states", "positives", "negatives"};

/* Collects the references in order, from a list or a map of roles. */
static bool loss_arguments(struct fr_loader *loader, const struct fr_node *node, const char *path,
                           enum fr_aux_loss kind, const struct fr_node *out[static 3])
{
    uint32_t count = fr_aux_loss_refs(kind);
    bool roles = fr_aux_loss_reads_steps(kind);
    if (!fr_loader_sized(loader, node, path, roles ? FR_NODE_MAP : FR_NODE_LIST, count, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = roles ? fr_node_get(node, next_step_roles[i]) : node->values[i];
        if (!out[i])
            return fr_refuse(loader, node, path, "no %s; expected {states: .., positives: .., negatives: ..}",
                             next_step_roles[i]);
    }
    return true;
}

static void read_refs(struct fr_loader *loader, struct fr_layer_draft *draft, struct fr_conf_loss *loss,
                      const struct fr_node *node, const char *kind)
{
    const struct fr_node *arguments[3] = {NULL};
    char path[FR_PATH_MAX];
    fr_path_join(path, draft->path, kind);
    if (loss->n_refs > 0)
        fr_refuse(loader, node, path, "a second kind in one loss; expected one");
    loss->n_refs = 0;
    if (!fr_aux_loss_parse(kind, &loss->kind) || !loss_arguments(loader, node, path, loss->kind, arguments))
        return;
    uint32_t count = fr_aux_loss_refs(loss->kind);
    for (uint32_t i = 0; i < count; i++) {
        if (!fr_ref_resolve(loader, draft, arguments[i], &loss->refs[i]))
            return;
    }
    loss->n_refs = count;
}

FR_SHOW(loss_refs)
{
    const struct fr_conf_loss *loss = scope;
    const char *kind = fr_option_name(option);
    bool roles = fr_aux_loss_reads_steps(loss->kind), training = tree->view == FR_VIEW_TRAINING;
    if (strcmp(kind, fr_aux_loss_text(loss->kind)) != 0)
        return NULL;
    struct fr_node *refs = fr_tree_flow(tree, roles && !training ? FR_NODE_MAP : FR_NODE_LIST);
    FR_CHECK(loss->n_refs <= FR_ARRAY_LEN(next_step_roles));
    for (uint32_t i = 0; i < loss->n_refs; i++) {
        char text[FR_REF_TEXT_MAX];
        fr_ref_text(tree->conf, &loss->refs[i], text);
        fr_tree_put(tree, refs, refs->kind == FR_NODE_MAP ? next_step_roles[i] : NULL,
                    training ? fr_tree_text(tree, text) : fr_ref_show(tree, &loss->refs[i]));
    }
    if (training)
        fr_tree_put(tree, map, "kind", fr_tree_word(tree, kind));
    return refs;
}

FR_READ(loss)
{
    struct fr_conf_loss *loss = scope;
    struct fr_layer_draft *draft = fr_arena_take(&loader->arena, sizeof(*draft));
    memset(draft, 0, sizeof(*draft));
    loader->loss_drafts[loss - loader->conf->losses] = draft;
    draft->node = node;
    memcpy(draft->layer.name, loss->name, sizeof(loss->name));
    snprintf(draft->path, sizeof(draft->path), "%s", path);
    loss->line = node->line;
    const struct fr_node *mse = fr_node_get(node, "mse"), *next_step = fr_node_get(node, "next_step");
    if (mse)
        read_refs(loader, draft, loss, mse, "mse");
    if (next_step)
        read_refs(loader, draft, loss, next_step, "next_step");
    if (node->kind == FR_NODE_MAP && !mse && !next_step)
        fr_refuse(loader, node, path, "no kind; expected mse or next_step");
    want_own_name(loader, node, path, option, loss->name);
}
