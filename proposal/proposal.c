/* From a sample of records to a configuration: sample, survey, choices, text; then the text is
 * loaded as any configuration is, and the decoder reads the sample with it, so that the head of the
 * proposal says how many records the configuration refuses.
 *
 * Owner: the caller's thread. */
#include "proposal/proposal.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"
#include "decode/decoder.h"
#include "kinds.h"
#include "sampled.h"
#include "survey.h"
#include "yaml_text.h"

/* Writes the model's name: the option, or the name of the topic or file with what a model's name
 * cannot have replaced. */
static void name_model(const struct fr_proposal_options *options, char out[FR_PROPOSAL_MODEL_MAX + 1])
{
    const char *from = options->model ? options->model : options->file ? options->file : options->topic;
    const char *slash = options->model ? NULL : strrchr(from, '/');
    size_t n = 0;
    from = slash ? slash + 1 : from;
    for (; from[n] && n < FR_PROPOSAL_MODEL_MAX; n++) {
        char c = from[n];
        bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        if (options->file && !options->model && c == '.')
            break; /* the ending of a file */
        out[n] = c;
        if (!kept && !options->model)
            out[n] = '-';
    }
    out[n] = '\0';
    if (n == 0)
        snprintf(out, FR_PROPOSAL_MODEL_MAX + 1, "model");
}

/* Loads the text. If it is refused, an argument is wrong (the brokers, the model), or this
 * module. */
static enum fr_status load(const struct fr_buffer *text, struct fr_conf **out, struct fr_err *err)
{
    struct fr_buffer problems = {0}, copy = {0};
    fr_buffer_append(&copy, text->data, text->size);
    fr_buffer_terminate(&copy);
    struct fr_conf_load_options options = {.path = "proposal", .text = (const char *)copy.data};
    enum fr_status status = fr_conf_load(&options, out, &problems);
    if (status != FR_OK) {
        while (problems.size > 0 && problems.data[problems.size - 1] == '\n')
            problems.size--;
        (void)fr_err_set(err, status, "the proposal is refused; correct the argument if one is named: %.*s",
                         (int)problems.size, (const char *)problems.data);
    }
    fr_buffer_release(&problems);
    fr_buffer_release(&copy);
    return status;
}

/* Decodes the sample as the daemon would, and counts what it refuses. */
static void try_decoder(const struct fr_conf *conf, struct fr_written *written)
{
    const struct fr_sampled *sampled = written->sampled;
    struct fr_decoder *decoder = fr_decoder_new(conf);
    for (size_t i = 0; i < sampled->n; i++) {
        const struct fr_sampled_record *r = &sampled->records[i];
        struct fr_record record = {
            .value = sampled->bytes.data + r->at, .size = r->size, .timestamp_ms = r->timestamp_ms};
        const char *why = "";
        uint32_t n = 0;
        if (fr_decode_record(decoder, &record, &n, &why) == FR_OK)
            continue;
        if (written->refused++ == 0)
            snprintf(written->reason, sizeof(written->reason), "%s", why);
    }
    written->decoded = true;
    fr_decoder_free(decoder);
}

static enum fr_status write_checked(struct fr_written *written, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_buffer text = {0};
    struct fr_conf *conf = NULL;
    fr_proposal_write(written, &text);
    enum fr_status status = load(&text, &conf, err);
    if (status == FR_OK) {
        try_decoder(conf, written);
        fr_proposal_write(written, out);
    }
    fr_conf_free(conf);
    fr_buffer_release(&text);
    return status;
}

static enum fr_status refuse_empty(const struct fr_proposal_options *options, const struct fr_sampled *sampled,
                                   struct fr_err *err)
{
    const char *deleting = sampled->without_value ? " with a value" : "";
    if (options->file)
        return fr_err_set(err, FR_E_INVALID, "%s has no records: name a file of JSON lines", options->file);
    return fr_err_set(err, FR_E_UNAVAILABLE,
                      "topic %s has no records%s: write some samples to it (`freshet produce`, or your producer), then "
                      "run this again",
                      options->topic, deleting);
}

enum fr_status fr_proposal_make(const struct fr_proposal_options *options, struct fr_buffer *out, struct fr_err *err)
{
    struct fr_proposal_options own = *options;
    own.records = options->records ? options->records : FR_PROPOSAL_RECORDS;
    struct fr_sampled sampled = {0};
    struct fr_survey survey = {0};
    struct fr_proposed choices = {0};
    struct fr_written written = {.options = &own, .sampled = &sampled, .survey = &survey, .choices = &choices};
    name_model(&own, written.model);
    enum fr_status status = own.file ? fr_sampled_file(&own, &sampled, err) : fr_sampled_topic(&own, &sampled, err);
    if (status == FR_OK && sampled.n == 0)
        status = refuse_empty(&own, &sampled, err);
    if (status == FR_OK)
        status = fr_survey_make(&sampled, &survey, err);
    if (status == FR_OK)
        status = fr_proposed_make(&survey, &own, &choices, err);
    if (status == FR_OK)
        status = write_checked(&written, out, err);
    fr_proposed_release(&choices);
    fr_survey_release(&survey);
    fr_sampled_release(&sampled);
    return status;
}
