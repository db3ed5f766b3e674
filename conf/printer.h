/* Inside of the printer: what the option table's `write` functions share. Not public. */
#ifndef FR_CONF_PRINTER_H
#define FR_CONF_PRINTER_H

#include "base/buffer.h"
#include "conf/conf.h"
#include "options.h"

enum { FR_INDENT = 2 };

struct fr_printer {
    const struct fr_conf *conf;
    struct fr_buffer *out;
    unsigned indent; /* in spaces, of the current map's keys */
};

void fr_print_key(struct fr_printer *printer, const char *key);
/* Double-quoted, with escapes. */
void fr_print_text(struct fr_printer *printer, const char *text);
/* A name the user chose, as a key. */
void fr_print_name(struct fr_printer *printer, const char *name);
/* An entry of a map of structs: "name:" and the rows below pattern. */
void fr_print_entry(struct fr_printer *printer, const char *name, const char *pattern, const void *entry);
/* All rows directly below pattern, in table order. */
void fr_print_scope(struct fr_printer *printer, const char *pattern, const void *base);
/* NUL after the text, outside its size, for callers that print it as a string. */
void fr_buffer_terminate(struct fr_buffer *buffer);

#define FR_WRITE(name) void name(struct fr_printer *printer, const struct fr_option *option, const void *scope)
FR_WRITE(fr_write_version);
FR_WRITE(fr_write_model_name);
FR_WRITE(fr_write_topic);
FR_WRITE(fr_write_topics);
FR_WRITE(fr_write_start);
FR_WRITE(fr_write_files);
FR_WRITE(fr_write_kafka);
FR_WRITE(fr_write_tables);
FR_WRITE(fr_write_parts);
FR_WRITE(fr_write_optimizer);
FR_WRITE(fr_write_init);
FR_WRITE(fr_write_slots);
FR_WRITE(fr_write_slot_table);
FR_WRITE(fr_write_transform);
FR_WRITE(fr_write_buckets);
FR_WRITE(fr_write_cross);
FR_WRITE(fr_write_labels);
FR_WRITE(fr_write_layers);
FR_WRITE(fr_write_tasks);
FR_WRITE(fr_write_task_label);
FR_WRITE(fr_write_task_logit);
FR_WRITE(fr_write_task_prob);
FR_WRITE(fr_write_task_loss);
FR_WRITE(fr_write_losses);
FR_WRITE(fr_write_listen);
FR_WRITE(fr_write_half_lives);
FR_WRITE(fr_write_gauc_by);

bool fr_given_topic(const void *scope);
bool fr_given_topics(const void *scope);
bool fr_given_files(const void *scope);
bool fr_given_id(const void *scope);
bool fr_given_max_ids(const void *scope);
bool fr_given_buckets(const void *scope);
bool fr_given_cross(const void *scope);
bool fr_given_logit(const void *scope);
bool fr_given_prob(const void *scope);
bool fr_given_gauc_by(const void *scope);

#endif
