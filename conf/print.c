/* --print-config: the effective configuration as YAML in its long form, every default written out.
 * Loading it again
 * gives an equal configuration, except for masked secrets. Texts are always quoted, so that none is
 * taken for a number or null. */
#include "printer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "loader.h"
#include "scalar.h"

void fr_buffer_terminate(struct fr_buffer *buffer)
{
    *fr_buffer_reserve(buffer, 1) = '\0';
}

void fr_print_key(struct fr_printer *printer, const char *key)
{
    fr_buffer_printf(printer->out, "%*s%s:", (int)printer->indent, "", key);
}

void fr_print_text(struct fr_printer *printer, const char *text)
{
    fr_buffer_append(printer->out, "\"", 1);
    for (const char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fr_buffer_printf(printer->out, "\\%c", *at);
        else if ((unsigned char)*at < 0x20 || *at == 0x7f)
            fr_buffer_printf(printer->out, "\\x%02X", (unsigned char)*at);
        else
            fr_buffer_append(printer->out, at, 1);
    }
    fr_buffer_append(printer->out, "\"", 1);
}

static void print_value(struct fr_printer *printer, const struct fr_option *option, const void *base)
{
    struct fr_buffer *out = printer->out;
    const char *place = (const char *)base + (option->offset == FR_NOWHERE ? 0 : option->offset);
    char text[FR_SCALAR_TEXT_MAX];
    switch (option->type) {
    case FR_OPTION_NAME:
        fr_print_text(printer, place);
        break;
    case FR_OPTION_TEXT:
    case FR_OPTION_TOPIC:
        fr_print_text(printer, *(char *const *)(const void *)place);
        break;
    case FR_OPTION_BOOL:
        fr_buffer_printf(out, "%s", *(const bool *)place ? "true" : "false");
        break;
    case FR_OPTION_SWITCH:
    case FR_OPTION_CHOICE:
        fr_choice_name(option->choices,
                       option->offset == FR_NOWHERE       ? 0
                       : option->type == FR_OPTION_SWITCH ? *(const bool *)place
                                                          : *(const int *)(const void *)place,
                       text);
        fr_buffer_printf(out, "%s", text);
        break;
    case FR_OPTION_U32:
        fr_buffer_printf(out, "%" PRIu32, *(const uint32_t *)(const void *)place);
        break;
    case FR_OPTION_U64:
        fr_buffer_printf(out, "%" PRIu64, *(const uint64_t *)(const void *)place);
        break;
    case FR_OPTION_I64:
        fr_buffer_printf(out, "%" PRId64, *(const int64_t *)(const void *)place);
        break;
    case FR_OPTION_REAL:
        fr_buffer_printf(out, "%.9g", (double)*(const float *)(const void *)place);
        break;
    case FR_OPTION_DURATION:
        fr_scalar_format_duration(*(const int64_t *)(const void *)place, text);
        fr_buffer_printf(out, "%s", text);
        break;
    case FR_OPTION_SIZE:
        fr_scalar_format_size(*(const uint64_t *)(const void *)place, text);
        fr_buffer_printf(out, "%s", text);
        break;
    default:
        FR_CHECK(!"a row without a value");
    }
}

static bool is_shown(const struct fr_option *option, const void *base)
{
    if (option->type == FR_OPTION_LATER || option->shorthand || (option->type == FR_OPTION_CUSTOM && !option->write))
        return false;
    if (option->kinds != 0 && !(option->kinds >> ((const struct fr_conf_slot *)base)->kind & 1))
        return false;
    if (option->present && !*(const bool *)((const char *)base + option->present))
        return false;
    if (option->given && !option->given(base))
        return false;
    return option->type != FR_OPTION_I64 ||
           *(const int64_t *)(const void *)((const char *)base + option->offset) != FR_NO_INDEX;
}

void fr_print_scope(struct fr_printer *printer, const char *pattern, const void *base)
{
    for (size_t i = 0; i < fr_options_count; i++) {
        const struct fr_option *option = &fr_options[i];
        const char *key = fr_option_key(option, pattern);
        if (!key || !is_shown(option, base))
            continue;
        fr_print_key(printer, key);
        if (option->type == FR_OPTION_CUSTOM) {
            option->write(printer, option, base);
            continue;
        }
        fr_buffer_append(printer->out, option->type == FR_OPTION_GROUP ? "\n" : " ", 1);
        if (option->type != FR_OPTION_GROUP) {
            print_value(printer, option, base);
            fr_buffer_append(printer->out, "\n", 1);
            continue;
        }
        printer->indent += FR_INDENT;
        fr_print_scope(printer, option->path, base);
        printer->indent -= FR_INDENT;
    }
}

void fr_conf_print(const struct fr_conf *conf, struct fr_buffer *out)
{
    struct fr_printer printer = {.conf = conf, .out = out};
    fr_print_scope(&printer, "", conf);
    fr_buffer_terminate(out);
}

void fr_print_name(struct fr_printer *printer, const char *name)
{
    bool null = strcmp(name, "null") == 0; /* without quotes it would be no name */
    fr_buffer_printf(printer->out, null ? "%*s\"%s\"" : "%*s%s", (int)printer->indent, "", name);
}

void fr_print_entry(struct fr_printer *printer, const char *name, const char *pattern, const void *entry)
{
    printer->indent += FR_INDENT;
    fr_print_name(printer, name);
    fr_buffer_append(printer->out, ":\n", 2);
    printer->indent += FR_INDENT;
    fr_print_scope(printer, pattern, entry);
    printer->indent -= 2 * FR_INDENT;
}

/* ---- rows with a form of their own; each writes what follows "key:", with the line's end (the model's: print_model.c) ---- */

FR_WRITE(fr_write_version)
{
    (void)option, (void)scope;
    fr_buffer_printf(printer->out, " 1\n");
}

FR_WRITE(fr_write_model_name)
{
    (void)option, (void)scope;
    fr_buffer_printf(printer->out, " \"%s\"\n", printer->conf->model);
}

bool fr_given_topic(const void *scope)
{
    return ((const struct fr_conf *)scope)->ingest.n_topics == 1;
}

bool fr_given_topics(const void *scope)
{
    return ((const struct fr_conf *)scope)->ingest.n_topics > 1;
}

bool fr_given_files(const void *scope)
{
    return ((const struct fr_conf *)scope)->ingest.n_files > 0;
}

bool fr_given_gauc_by(const void *scope)
{
    return ((const struct fr_conf *)scope)->metrics.gauc_by != FR_NO_INDEX;
}

FR_WRITE(fr_write_topic)
{
    (void)option, (void)scope;
    fr_buffer_printf(printer->out, " \"%s\"\n", printer->conf->ingest.topics[0]);
}

static void print_texts(struct fr_printer *printer, char *const *texts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        fr_buffer_printf(printer->out, i ? ", " : " [");
        fr_print_text(printer, texts[i]);
    }
    fr_buffer_printf(printer->out, "]\n");
}

FR_WRITE(fr_write_topics)
{
    (void)option, (void)scope;
    print_texts(printer, printer->conf->ingest.topics, printer->conf->ingest.n_topics);
}

FR_WRITE(fr_write_files)
{
    (void)option, (void)scope;
    print_texts(printer, printer->conf->ingest.files, printer->conf->ingest.n_files);
}

FR_WRITE(fr_write_start)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    if (conf->ingest.start == FR_START_TIME)
        fr_buffer_printf(printer->out, " %" PRId64 "\n", conf->ingest.start_ms);
    else
        fr_buffer_printf(printer->out, " %s\n", conf->ingest.start == FR_START_EARLIEST ? "earliest" : "latest");
}

static bool is_secret(const char *name)
{
    return strstr(name, "password") || strstr(name, "secret") || strstr(name, "key") ||
           strstr(name, "oauthbearer.config");
}

FR_WRITE(fr_write_kafka)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    fr_buffer_printf(printer->out, conf->ingest.n_kafka ? "\n" : " {}\n");
    printer->indent += FR_INDENT;
    for (size_t i = 0; i < conf->ingest.n_kafka; i++) {
        const struct fr_conf_property *property = &conf->ingest.kafka[i];
        fr_print_key(printer, property->name);
        fr_buffer_append(printer->out, " ", 1);
        fr_print_text(printer, is_secret(property->name) ? "***" : property->value);
        fr_buffer_append(printer->out, "\n", 1);
    }
    printer->indent -= FR_INDENT;
}

FR_WRITE(fr_write_listen)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    bool ipv6 = strchr(conf->metrics.listen_host, ':') != NULL;
    char text[320];
    snprintf(text, sizeof(text), "%s%s%s:%u", ipv6 ? "[" : "", conf->metrics.listen_host, ipv6 ? "]" : "",
             conf->metrics.listen_port);
    fr_buffer_append(printer->out, " ", 1);
    fr_print_text(printer, text);
    fr_buffer_append(printer->out, "\n", 1);
}

FR_WRITE(fr_write_half_lives)
{
    (void)option, (void)scope;
    const struct fr_conf *conf = printer->conf;
    for (uint32_t i = 0; i < conf->metrics.n_half_lives; i++)
        fr_buffer_printf(printer->out, "%s%s", i ? ", " : " [", conf->metrics.half_life_name[i]);
    fr_buffer_printf(printer->out, "]\n");
}

FR_WRITE(fr_write_gauc_by)
{
    (void)option, (void)scope;
    fr_buffer_printf(printer->out, " \"%s\"\n", printer->conf->slots[printer->conf->metrics.gauc_by].name);
}
