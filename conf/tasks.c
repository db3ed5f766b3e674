/* Readers of labels, tasks and auxiliary losses. Labels that samples carry come first, derived ones
 * after them. Until the layers are stored, tasks and losses hold numbers of drafts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"

/* ---- labels ---- */

static int32_t find_label(struct fr_loader *loader, const struct fr_node *node, const char *path)
{
    const struct fr_conf *conf = loader->conf;
    if (!fr_loader_text(loader, node, path, "the name of a label"))
        return FR_NO_INDEX;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        fr_words_add(known, conf->labels[i].name, strlen(conf->labels[i].name));
        if (strcmp(conf->labels[i].name, node->text) == 0)
            return (int32_t)i;
    }
    fr_problem_unknown(&loader->problems, node, path, "unknown label", known);
    return FR_NO_INDEX;
}

FR_READ(fr_read_label_source)
{
    *(int32_t *)(void *)((char *)scope + option->offset) = find_label(loader, node, path);
}

/* A label that needs itself, through `of` or `given`. Marks: 0 new, 1 on the way, 2 done. */
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

FR_READ(fr_read_labels)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_MAP) || !fr_loader_count(loader, node, path, 1, FR_LABELS_MAX))
        return;
    char at[FR_PATH_MAX];
    conf->labels = fr_alloc(node->count, sizeof(*conf->labels));
    /* all names first: a label may refer to a later one */
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_label *label = &conf->labels[conf->n_labels++];
        fr_path_join(at, path, node->keys[i]->text);
        fr_loader_name(loader, node->keys[i], at, label->name);
        label->of = label->given = FR_NO_INDEX;
    }
    for (uint32_t i = 0; i < node->count; i++) {
        fr_path_join(at, path, node->keys[i]->text);
        fr_loader_walk(loader, &(struct fr_scope){"labels.*", at, node->values[i], &conf->labels[i]});
        if (conf->labels[i].has_min && !fr_node_get(node->values[i], "of"))
            fr_problem(&loader->problems, node->values[i], at,
                       "min needs another label to compare; expected of: LABEL");
    }
    uint8_t marks[FR_LABELS_MAX] = {0};
    for (uint32_t i = 0; i < conf->n_labels; i++) {
        if (is_circular(conf, (int32_t)i, marks)) {
            fr_path_join(at, path, node->keys[i]->text);
            fr_problem(&loader->problems, node->values[i], at, "the label needs itself; expected no cycle");
            break;
        }
    }
    sort_labels(conf);
}

/* ---- tasks ---- */

FR_READ(fr_read_task_label)
{
    (void)option;
    ((struct fr_conf_task *)scope)->label = find_label(loader, node, path);
}

FR_READ(fr_read_task_logit)
{
    (void)option;
    struct fr_conf_task *task = scope;
    if (!fr_loader_text(loader, node, path, "the name of a layer"))
        return;
    task->logit = fr_draft_find(loader, node->text, strlen(node->text));
    if (task->logit != FR_NO_INDEX)
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    for (uint32_t i = 0; i < loader->n_drafts; i++)
        fr_words_add(known, loader->drafts[i].layer.name, strlen(loader->drafts[i].layer.name));
    fr_problem_unknown(&loader->problems, node, path, "unknown layer", known);
}

static void read_factor(struct fr_loader *loader, const struct fr_node *node, const char *path,
                        struct fr_conf_task *task)
{
    const struct fr_conf *conf = loader->conf;
    const char *text = fr_loader_text(loader, node, path, "the name of an earlier task");
    if (!text)
        return;
    struct fr_words *known = &loader->words;
    known->count = 0;
    int32_t found = FR_NO_INDEX;
    for (uint32_t i = 0; &conf->tasks[i] != task; i++) {
        fr_words_add(known, conf->tasks[i].name, strlen(conf->tasks[i].name));
        if (strcmp(conf->tasks[i].name, text) == 0)
            found = (int32_t)i;
    }
    if (found == FR_NO_INDEX) {
        fr_problem_unknown(&loader->problems, node, path, "unknown earlier task", known);
        return;
    }
    if (conf->tasks[found].n_prob > 0 || conf->tasks[found].loss == FR_LOSS_MSE)
        fr_problem(&loader->problems, node, path, "task `%s` %s; expected one with a logit and its probability", text,
                   conf->tasks[found].n_prob > 0 ? "is a product itself" : "predicts a value (mse)");
    for (uint32_t i = 0; i < task->n_prob; i++) {
        if (task->prob[i] == found)
            fr_problem(&loader->problems, node, path, "`%s` is there twice; expected every task once", text);
    }
    task->prob[task->n_prob++] = found;
}

FR_READ(fr_read_task_prob)
{
    (void)option;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) ||
        !fr_loader_count(loader, node, path, 1, FR_TASKS_MAX - 1))
        return;
    for (uint32_t i = 0; i < node->count; i++) {
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        read_factor(loader, node->values[i], at, scope);
    }
}

FR_READ(fr_read_task_loss)
{
    struct fr_conf_task *task = scope;
    const struct fr_option choice = {
        .type = FR_OPTION_CHOICE, .choices = FR_CHOICES(FR_TASK_LOSSES), .offset = offsetof(struct fr_conf_task, loss)};
    if (node->kind == FR_NODE_SCALAR) {
        fr_loader_read(loader, &choice, node, path, task);
        return;
    }
    const struct fr_node *body = fr_node_get(node, "focal");
    if (!body || node->count != 1) {
        fr_problem(&loader->problems, node, path, "%s; expected %s", fr_node_kind_name(node), option->form);
        return;
    }
    char below[FR_PATH_MAX];
    fr_path_join(below, path, "focal");
    task->loss = FR_LOSS_FOCAL;
    fr_loader_walk(loader, &(struct fr_scope){"tasks.*.loss.focal", below, body, task});
}

static void finish_task(struct fr_loader *loader, const struct fr_node *node, const char *path, uint32_t index)
{
    const struct fr_conf *conf = loader->conf;
    const struct fr_conf_task *task = &conf->tasks[index];
    bool logit = fr_node_get(node, "logit") != NULL, prob = fr_node_get(node, "prob") != NULL;
    if (node->kind == FR_NODE_MAP && logit == prob)
        fr_problem(&loader->problems, node, path, "%s; expected logit or prob",
                   logit ? "both logit and prob" : "neither logit nor prob");
    if (prob && task->loss != FR_LOSS_LOGLOSS && task->loss != FR_LOSS_NONE)
        fr_problem(&loader->problems, node, path,
                   "a product of probabilities with another loss; expected logloss or none");
    for (uint32_t j = 0; j < index && task->name[0] != '\0'; j++) {
        if (strcmp(conf->tasks[j].name, task->name) == 0)
            fr_problem(&loader->problems, node, path, "the name `%s` is taken; expected every task once", task->name);
    }
}

FR_READ(fr_read_tasks)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 1, FR_TASKS_MAX))
        return;
    conf->tasks = fr_alloc(node->count, sizeof(*conf->tasks));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_task *task = &conf->tasks[conf->n_tasks++];
        char at[FR_PATH_MAX];
        fr_path_index(at, path, i);
        task->label = FR_NO_INDEX;
        task->logit = FR_NO_INDEX;
        fr_loader_defaults(loader, "tasks.*", task);
        fr_loader_defaults(loader, "tasks.*.loss.focal", task);
        fr_loader_walk(loader, &(struct fr_scope){"tasks.*", at, node->values[i], task});
        finish_task(loader, node->values[i], at, i);
    }
}

/* ---- auxiliary losses ---- */

static const char *const next_step_roles[] = {"states", "positives", "negatives"};

/* The references in order; the list of mse, the map of next_step. */
static bool loss_arguments(struct fr_loader *loader, const struct fr_node *node, const char *path, bool mse,
                           const struct fr_node *out[static 3])
{
    uint32_t count = mse ? 2 : 3;
    if (!fr_loader_expect(loader, node, path, mse ? FR_NODE_LIST : FR_NODE_MAP) ||
        !fr_loader_count(loader, node, path, count, count))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        out[i] = mse ? node->values[i] : fr_node_get(node, next_step_roles[i]);
        if (!out[i]) {
            fr_problem(&loader->problems, node, path, "no %s; expected {states: .., positives: .., negatives: ..}",
                       next_step_roles[i]);
            return false;
        }
    }
    return true;
}

FR_READ(fr_read_loss_refs)
{
    struct fr_conf_loss *loss = scope;
    const struct fr_node *arguments[3] = {NULL};
    struct fr_layer_draft *draft = loader->loss_drafts[loss - loader->conf->losses];
    bool mse = strcmp(fr_option_key(option, "losses.*"), "mse") == 0;
    if (loss->n_refs > 0)
        fr_problem(&loader->problems, node, path, "a second kind in one loss; expected one");
    loss->kind = mse ? FR_AUX_MSE : FR_AUX_NEXT_STEP;
    loss->n_refs = 0;
    if (!loss_arguments(loader, node, path, mse, arguments))
        return;
    memcpy(draft->layer.name, loss->name, sizeof(loss->name));
    uint32_t count = mse ? 2 : 3;
    for (uint32_t i = 0; i < count; i++) {
        if (!fr_ref_resolve(loader, draft, arguments[i], &loss->refs[i]))
            return;
    }
    loss->n_refs = count;
}

FR_READ(fr_read_losses)
{
    (void)option, (void)scope;
    struct fr_conf *conf = loader->conf;
    if (!fr_loader_expect(loader, node, path, FR_NODE_LIST) || !fr_loader_count(loader, node, path, 0, FR_TASKS_MAX))
        return;
    conf->losses = fr_alloc(node->count + 1, sizeof(*conf->losses));
    loader->loss_drafts = fr_arena_take(&loader->arena, (node->count + 1) * sizeof(*loader->loss_drafts));
    for (uint32_t i = 0; i < node->count; i++) {
        struct fr_conf_loss *loss = &conf->losses[conf->n_losses++];
        struct fr_layer_draft *draft = fr_arena_take(&loader->arena, sizeof(*draft));
        memset(draft, 0, sizeof(*draft));
        loader->loss_drafts[i] = draft;
        draft->node = node->values[i];
        fr_path_index(draft->path, path, i);
        loss->line = draft->node->line;
        fr_loader_defaults(loader, "losses.*", loss);
        fr_loader_walk(loader, &(struct fr_scope){"losses.*", draft->path, draft->node, loss});
        if (draft->node->kind == FR_NODE_MAP && !fr_node_get(draft->node, "mse") &&
            !fr_node_get(draft->node, "next_step"))
            fr_problem(&loader->problems, draft->node, draft->path, "no kind; expected mse or next_step");
        for (uint32_t j = 0; j < i && loss->name[0] != '\0'; j++) {
            if (strcmp(conf->losses[j].name, loss->name) == 0)
                fr_problem(&loader->problems, draft->node, draft->path,
                           "the name `%s` is taken; expected every loss once", loss->name);
        }
    }
}
