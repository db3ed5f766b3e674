/* Whether configuration and state belong together. Small files record the settings with which the
 * state began: model.json (what replicas hold), training.json (how the model is trained),
 * delta.json (how deltas are encoded). While the state has no epoch they are rewritten at each
 * start.
 *
 * Afterwards most settings of the model are fixed. Settings of training, and settings of the model
 * on which nothing in the state depends, may change at a start. The section "training" of the first
 * epoch that is trained with a change records it (trainer/training.h). That section takes
 * precedence over training.json. The model record in the head of the newest journal file takes
 * precedence over model.json, which is updated at the next start; so after a kill the state is that
 * of the old or of the new model, together with its epochs. The first epoch with another model
 * record publishes it.
 *
 * Thread: the one that recovers. The module conf decides which changes a state can adopt. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "codec/codec.h"
#include "identity.h"

/* Limits of texts, so that the remedy at the end of a refusal fits fr_err. */
enum { LISTED_BYTES = 320, QUOTED_MAX = 1000 };

_Static_assert((int)FR_QUANT_F32 == FR_CODEC_F32 && (int)FR_QUANT_F16 == FR_CODEC_F16 &&
                   (int)FR_QUANT_BF16 == FR_CODEC_BF16 && (int)FR_QUANT_I8 == FR_CODEC_I8,
               "one list of quantizations");

static void write_model(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_conf_model_json(conf, out);
}

static void write_training(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_conf_training_json(conf, out);
}

static void write_delta(const struct fr_conf *conf, struct fr_buffer *out)
{
    fr_buffer_printf(out, "{\"model\":\"%s\",\"partitions\":%u,\"quantize\":\"%s\"}", conf->model,
                     conf->export_.partitions, fr_codec_quantize_name((enum fr_codec_quantize)conf->export_.quantize));
}

static const struct identity_file {
    const char *name;
    void (*write)(const struct fr_conf *conf, struct fr_buffer *out);
    enum fr_status (*compare)(const char *before, const char *after, struct fr_conf_changes *out, struct fr_err *err);
} files[] = {
    {"model.json", write_model, fr_conf_compare_models},
    {"training.json", write_training, fr_conf_compare_training},
    {FR_IDENTITY_DELTA, write_delta, fr_conf_compare_models},
};

enum fr_status fr_identity_as(const struct fr_conf *conf, const struct fr_buffer *recorded, struct fr_buffer *head,
                              struct fr_buffer *delta, bool *other, struct fr_err *err)
{
    struct fr_codec_settings settings = {0};
    if (fr_codec_settings_parse(recorded->data, recorded->size, &settings) != FR_OK)
        return fr_err_set(err, FR_E_CORRUPT, "the savepoint's %s cannot be read", "journal.head");
    *other = strcmp(settings.model, conf->model) != 0;
    snprintf(settings.model, sizeof(settings.model), "%s", conf->model);
    settings.np = conf->export_.partitions;
    settings.piece_max = conf->export_.piece_max;
    fr_codec_settings_encode(&settings, head);
    fr_codec_settings_release(&settings);
    write_delta(conf, delta);
    return FR_OK;
}

void fr_identity_release(struct fr_identity *identity)
{
    fr_trainer_training_release(&identity->training);
}

enum fr_status fr_identity_write(const struct fr_conf *conf, struct fr_durable *durable, struct fr_err *err)
{
    enum fr_status status = FR_OK;
    for (size_t i = 0; i < FR_ARRAY_LEN(files) && status == FR_OK; i++) {
        struct fr_buffer text = {0};
        files[i].write(conf, &text);
        status = fr_durable_write_file(durable, files[i].name, text.data, text.size, err);
        fr_buffer_release(&text);
    }
    return status;
}

/* ---- comparing a configuration with a state ---- */

/* What a configuration is compared with: a state, or the savepoint from which a state will
 * begin. */
struct compared {
    const struct fr_conf *conf;
    struct fr_durable *durable;
    const char *dir;
    struct fr_buffer newest; /* model record of the newest epoch, terminated; empty: none */
};

/* The model record in the head of the newest epoch's journal file, terminated; it stays empty where
 * there is none. */
static enum fr_status read_newest_model(struct compared *with, struct fr_err *err)
{
    struct fr_buffer head = {0};
    struct fr_codec_settings settings = {0};
    enum fr_status status = fr_durable_newest_head(with->durable, &head, err);
    if (status == FR_OK && fr_codec_settings_parse(head.data, head.size, &settings) != FR_OK)
        status = fr_err_set(err, FR_E_CORRUPT,
                            "the head of the newest journal file in %s cannot be read; restore the directory from a "
                            "savepoint or a copy",
                            with->dir);
    if (status == FR_OK) {
        fr_buffer_append(&with->newest, settings.cfg, settings.cfg_size);
        fr_buffer_terminate(&with->newest);
    }
    fr_codec_settings_release(&settings);
    fr_buffer_release(&head);
    return status == FR_E_NOT_FOUND ? FR_OK : status;
}

static enum fr_status compare_file(struct fr_identity *identity, const struct compared *with,
                                   const struct identity_file *file, struct fr_err *err)
{
    struct fr_buffer before = {0}, now = {0};
    enum fr_status status = fr_durable_read_file(with->durable, file->name, &before, err);
    if (status == FR_E_NOT_FOUND)
        status = fr_err_set(err, FR_E_CORRUPT,
                            "%s holds epochs and no %s, which records how they were made: put the file back from a "
                            "copy of the directory, or begin again with another state_dir and export.topic",
                            with->dir, file->name);
    bool training = file->write == write_training;
    if (status == FR_OK && file->write == write_model && with->newest.size > 0) {
        fr_buffer_clear(&before);
        fr_buffer_append(&before, with->newest.data, with->newest.size);
    }
    if (status == FR_OK && training && identity->training.settings.size == 0)
        fr_buffer_append(&identity->training.settings, before.data, before.size);
    if (status == FR_OK) {
        fr_buffer_terminate(training ? &identity->training.settings : &before);
        file->write(with->conf, &now);
        fr_buffer_terminate(&now);
        const struct fr_buffer *recorded = training ? &identity->training.settings : &before;
        identity->other_model |=
            file->write == write_model && strcmp((const char *)recorded->data, (const char *)now.data) != 0;
        status = file->compare((const char *)recorded->data, (const char *)now.data, &identity->changes, err);
        if (status != FR_OK)
            fr_err_wrap(err, "%s in %s", file->name, with->dir);
    }
    fr_buffer_release(&before);
    fr_buffer_release(&now);
    return status == FR_E_INVALID ? FR_E_CORRUPT : status;
}

/* Returns the first change that is refused. */
static const char *first_refused(const struct fr_conf_changes *changes)
{
    for (uint32_t i = 0; i < changes->n && i < FR_CONF_CHANGES_MAX; i++)
        if (changes->list[i].refused)
            return changes->list[i].text;
    return "";
}

/* Compares model.json with the model record of the newest journal file, so that a model.json of
 * another state is refused even if the configuration fits it. A model.json that is older than a
 * change is updated. */
static enum fr_status check_head(const struct compared *with, struct fr_err *err)
{
    struct fr_buffer recorded = {0};
    struct fr_conf_changes *changes = fr_alloc(1, sizeof(*changes));
    const char *newest = (const char *)with->newest.data;
    enum fr_status status = fr_durable_read_file(with->durable, files[0].name, &recorded, err);
    if (status == FR_OK) {
        fr_buffer_terminate(&recorded);
        status = files[0].compare((const char *)recorded.data, newest, changes, err);
        if (status != FR_OK)
            fr_err_wrap(err, "%s in %s", files[0].name, with->dir);
        status = status == FR_E_INVALID ? FR_E_CORRUPT : status;
    }
    if (status == FR_OK && changes->n_refused > 0)
        status =
            fr_err_set(err, FR_E_CORRUPT,
                       "the epochs in %s are of another model than its %s (%.200s): files of two states are mixed; "
                       "restore all of the directory from one copy",
                       with->dir, files[0].name, first_refused(changes));
    else if (status == FR_OK && changes->n > 0) /* the next change is compared with this record */
        status = fr_durable_write_file(with->durable, files[0].name, newest, strlen(newest), err);
    free(changes);
    fr_buffer_release(&recorded);
    return status;
}

static uint32_t kept(const struct fr_conf_changes *changes)
{
    return changes->n < FR_CONF_CHANGES_MAX ? changes->n : FR_CONF_CHANGES_MAX;
}

/* Lists the changes that are refused, or those that could be adopted: at least one, and as many as
 * have room. */
static void list_changes(const struct fr_conf_changes *changes, bool refused, struct fr_buffer *out)
{
    uint32_t left = refused ? changes->n_refused : changes->n - changes->n_refused;
    struct fr_buffer one = {0};
    for (uint32_t i = 0; i < kept(changes); i++) {
        const struct fr_conf_change *change = &changes->list[i];
        if ((change->refused != NULL) != refused)
            continue;
        fr_buffer_clear(&one);
        fr_buffer_printf(&one, "%s%.*s", out->size ? "; " : "", LISTED_BYTES / 2, change->text);
        if (refused)
            fr_buffer_printf(&one, " (%s)", change->refused);
        if (out->size > 0 && out->size + one.size > LISTED_BYTES)
            break;
        fr_buffer_append(out, one.data, one.size);
        left--;
    }
    if (left > 0)
        fr_buffer_printf(out, " and %" PRIu32 " more, which are in the log", left);
    fr_buffer_terminate(out);
    fr_buffer_release(&one);
}

static void log_changes(const struct fr_conf_changes *changes)
{
    char text[QUOTED_MAX], why[QUOTED_MAX];
    for (uint32_t i = 0; i < kept(changes); i++) {
        const struct fr_conf_change *change = &changes->list[i];
        fr_log(change->refused ? FR_LOG_WARN : FR_LOG_INFO, "daemon", "change", "what=%s class=%s why=%s",
               fr_log_quote(text, sizeof(text), change->text),
               change->refused ? "fixed"
               : change->model ? "model"
                               : "training",
               fr_log_quote(why, sizeof(why), change->refused ? change->refused : "a state takes it over at a start"));
    }
}

static enum fr_status refuse(const struct fr_conf_changes *changes, const char *dir, struct fr_err *err)
{
    struct fr_buffer fixed = {0}, training = {0};
    list_changes(changes, true, &fixed);
    list_changes(changes, false, &training);
    enum fr_status status = fr_err_set(
        err, FR_E_MISMATCH,
        "the configuration does not fit the model in %s. Fixed in a state: %s. %s%s%sGo back to the recorded values of "
        "what is fixed, or give the changed model a new state_dir and a new export.topic",
        dir, (const char *)fixed.data, training.size ? "Changed too, which a start may: " : "",
        training.size ? (const char *)training.data : "", training.size ? ". " : "");
    fr_buffer_release(&fixed);
    fr_buffer_release(&training);
    return status;
}

enum fr_status fr_identity_check(struct fr_identity *identity, const struct fr_conf *conf, struct fr_durable *durable,
                                 const uint8_t *section, size_t size)
{
    struct fr_err *err = &identity->err;
    enum fr_status status = section ? fr_trainer_training_parse(section, size, &identity->training) : FR_OK;
    if (status != FR_OK)
        return fr_err_set(err, status, "the section \"" FR_SECTION_TRAINING "\" was refused (%s)",
                          fr_status_name(status));
    struct compared with = {.conf = conf, .durable = durable, .dir = conf->state_dir};
    status = read_newest_model(&with, err);
    for (size_t i = 0; i < FR_ARRAY_LEN(files) && status == FR_OK; i++)
        status = compare_file(identity, &with, &files[i], err);
    if (status == FR_OK && with.newest.size > 0)
        status = check_head(&with, err);
    fr_buffer_release(&with.newest);
    if (status != FR_OK || identity->changes.n == 0)
        return status;
    log_changes(&identity->changes);
    return identity->changes.n_refused > 0 ? refuse(&identity->changes, with.dir, err) : FR_OK;
}

static enum fr_status keep_training(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    return strcmp(name, FR_SECTION_TRAINING) == 0 ? fr_trainer_training_parse(bytes, size, self) : FR_OK;
}

enum fr_status fr_identity_fits(const struct fr_conf *conf, const struct fr_identity_source *savepoint,
                                struct fr_err *err)
{
    /* identity of the savepoint alone */
    struct fr_identity *identity = fr_alloc(1, sizeof(*identity));
    struct fr_durable_view *view = NULL;
    struct fr_durable_folded_epoch folded;
    struct compared with = {.conf = conf, .durable = savepoint->durable, .dir = savepoint->dir};
    enum fr_status status = fr_durable_view_open(savepoint->durable, &view, &folded, err);
    if (status == FR_OK)
        status = fr_durable_view_sections(view, keep_training, &identity->training, err);
    if (status == FR_OK)
        status = read_newest_model(&with, err);
    for (size_t i = 0; i < FR_ARRAY_LEN(files) && status == FR_OK; i++)
        /* a model under --as gets a delta.json of its own */
        if (!savepoint->other || strcmp(files[i].name, FR_IDENTITY_DELTA) != 0)
            status = compare_file(identity, &with, &files[i], err);
    if (status == FR_OK && identity->changes.n_refused > 0) {
        log_changes(&identity->changes);
        status = refuse(&identity->changes, with.dir, err);
    }
    fr_buffer_release(&with.newest);
    fr_durable_view_close(view);
    fr_identity_release(identity);
    free(identity);
    return status;
}

void fr_identity_adopt_changes(struct fr_identity *identity, const struct fr_conf *conf, const struct fr_clock *clock,
                               struct fr_trainer *trainer)
{
    struct fr_training *training = &identity->training;
    if (identity->other_model)
        fr_trainer_other_model(trainer);
    if (identity->changes.n == 0)
        return;
    struct fr_trainer_status *now = fr_alloc(1, sizeof(*now));
    fr_trainer_get_status(trainer, now);
    uint64_t epoch = now->epoch + 1;
    int64_t watermark_ms = now->history.watermark_ms == INT64_MIN ? 0 : now->history.watermark_ms;
    free(now);
    int64_t time_ms = conf->ingest.lockstep ? watermark_ms : fr_wall_ms(clock);
    for (uint32_t i = 0; i < kept(&identity->changes); i++)
        fr_trainer_training_add(training, epoch, time_ms, identity->changes.list[i].text);
    training->forgotten += identity->changes.n - kept(&identity->changes);
    fr_buffer_clear(&training->settings);
    write_training(conf, &training->settings);
    struct fr_buffer section = {0};
    fr_trainer_training_encode(training, &section);
    fr_trainer_carry(trainer, FR_SECTION_TRAINING, &section);
    fr_buffer_release(&section);
    fr_log(FR_LOG_INFO, "daemon", "changes_taken", "changes=%" PRIu32 " since_epoch=%" PRIu64, identity->changes.n,
           epoch);
}

/* ---- the head of journal files ---- */

void fr_identity_head(const struct fr_conf *conf, const char *kernel, struct fr_buffer *out)
{
    struct fr_codec_settings settings = {.revision = FR_CODEC_REVISION,
                                         .np = conf->export_.partitions,
                                         .quantize = (enum fr_codec_quantize)conf->export_.quantize,
                                         .piece_max = conf->export_.piece_max,
                                         .fp = fr_conf_fingerprint(conf)};
    snprintf(settings.model, sizeof(settings.model), "%s", conf->model);
    snprintf(settings.kernel, sizeof(settings.kernel), "%s", kernel);
    struct fr_buffer cfg = {0};
    fr_conf_model_json(conf, &cfg);
    settings.cfg = (char *)cfg.data;
    settings.cfg_size = cfg.size;
    settings.n_tables = conf->n_tables;
    settings.tables = fr_alloc(conf->n_tables ? conf->n_tables : 1, sizeof(*settings.tables));
    for (uint32_t i = 0; i < conf->n_tables; i++) {
        memcpy(settings.tables[i].name, conf->tables[i].name, FR_NAME_MAX);
        settings.tables[i].n_parts = conf->tables[i].n_parts;
        for (uint32_t p = 0; p < conf->tables[i].n_parts; p++) {
            memcpy(settings.tables[i].parts[p].name, conf->tables[i].parts[p].name, FR_NAME_MAX);
            settings.tables[i].parts[p].dim = conf->tables[i].parts[p].dim;
            settings.tables[i].value_floats += conf->tables[i].parts[p].dim;
        }
    }
    fr_codec_settings_encode(&settings, out);
    free(settings.tables);
    fr_buffer_release(&cfg);
}
