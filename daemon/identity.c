/* Model and state belong together: small files in the state directory record what it was made with,
 * and a configuration that says otherwise is refused.
 *
 * Thread: the one that recovers. It does not look into epochs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service.h"

/* Writes name when missing, refuses with the first difference when it says something else. */
static enum fr_status check_file(struct fr_service *service, const char *name, const struct fr_buffer *now,
                                 const char *remedy, struct fr_err *err)
{
    struct fr_buffer before = {0};
    enum fr_status status = fr_durable_read_file(service->durable, name, &before, err);
    if (status == FR_E_NOT_FOUND) {
        fr_buffer_release(&before);
        return fr_durable_write_file(service->durable, name, now->data, now->size, err);
    }
    if (status == FR_OK && (before.size != now->size || memcmp(before.data, now->data, now->size) != 0)) {
        struct fr_buffer difference = {0};
        struct fr_buffer after = {0};
        fr_put_u8(&before, 0);
        fr_buffer_append(&after, now->data, now->size);
        fr_put_u8(&after, 0);
        fr_conf_json_difference((const char *)before.data, (const char *)after.data, &difference);
        status =
            fr_err_set(err, FR_E_MISMATCH, "the configuration does not fit the state in %s: %.*s (recorded in %s). %s",
                       service->conf->state_dir, (int)difference.size, (const char *)difference.data, name, remedy);
        fr_buffer_release(&difference);
        fr_buffer_release(&after);
    }
    fr_buffer_release(&before);
    return status;
}

static const char *quantize_name(enum fr_quantize quantize)
{
    return quantize == FR_QUANT_F16 ? "f16" : "f32";
}

enum fr_status fr_identity_check(struct fr_service *service, struct fr_err *err)
{
    const char *remedy =
        "Go back to the recorded value, or give the changed model a new state_dir and a new export.topic "
        "(changing a trained model in place is not in this version)";
    struct fr_buffer text = {0};
    fr_conf_model_json(service->conf, &text);
    enum fr_status status = check_file(service, "model.json", &text, remedy, err);
    fr_buffer_clear(&text);
    if (status == FR_OK) {
        fr_conf_training_json(service->conf, &text);
        status = check_file(service, "training.json", &text, remedy, err);
        fr_buffer_clear(&text);
    }
    if (status == FR_OK) {
        fr_buffer_printf(&text, "{\"model\":\"%s\",\"partitions\":%u,\"quantize\":\"%s\"}", service->conf->model,
                         service->conf->export_.partitions, quantize_name(service->conf->export_.quantize));
        status = check_file(service, "delta.json", &text, remedy, err);
    }
    fr_buffer_release(&text);
    return status;
}

void fr_identity_head(const struct fr_conf *conf, const char *kernel, struct fr_buffer *out)
{
    struct fr_codec_settings settings = {.revision = FR_CODEC_REVISION,
                                         .np = conf->export_.partitions,
                                         .quantize =
                                             conf->export_.quantize == FR_QUANT_F16 ? FR_CODEC_F16 : FR_CODEC_F32,
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
