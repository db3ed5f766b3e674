/* The table of options: one row per option says its path, type, range, default and meaning.
 * Reading, printing, the reference and the error texts walk it; nothing else knows the list.
 *
 * A path is dotted; `*` stands for a name the user chooses or for a list index. Rows below a path
 * are stored relative to one struct (its scope): top-level rows in struct fr_conf, `tables.*` in
 * struct fr_conf_table, and so on. `optimizer.<kind>` is the scope of every optimizer, wherever it
 * is written, and `optimizer.*` says what all of them have. Rows are read in table order, so what
 * is referred to comes before what refers. */
#ifndef FR_CONF_OPTIONS_H
#define FR_CONF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "scalar.h"

struct fr_loader;
struct fr_node;
struct fr_printer;

enum fr_option_type {
    FR_OPTION_GROUP,    /* a map of further options in the same struct */
    FR_OPTION_NAME,     /* char[FR_NAME_MAX] */
    FR_OPTION_TEXT,     /* char * */
    FR_OPTION_TOPIC,    /* char *, a Kafka topic name */
    FR_OPTION_BOOL,     /* bool */
    FR_OPTION_SWITCH,   /* bool, written as one of two choices */
    FR_OPTION_CHOICE,   /* enum, written as one of `choices` */
    FR_OPTION_U32,      /* uint32_t */
    FR_OPTION_U64,      /* uint64_t */
    FR_OPTION_I64,      /* int64_t >= 0, FR_NO_INDEX when not given */
    FR_OPTION_REAL,     /* float */
    FR_OPTION_DURATION, /* int64_t, ms */
    FR_OPTION_SIZE,     /* uint64_t, bytes */
    FR_OPTION_CUSTOM,   /* `read` and `write` know */
    FR_OPTION_LATER,    /* grammar that this version does not do */
};

/* A choice that is stored nowhere (there is only one in this version). */
#define FR_NOWHERE ((size_t)-1)

struct fr_option {
    const char *path;
    enum fr_option_type type;
    size_t offset;        /* in the scope's struct */
    double min, max;      /* inclusive */
    const char *initial;  /* default, as written; NULL: none */
    const char *computed; /* what the reference says instead of a default */
    const char *choices;  /* "a|b|c!": in enum order, `!` is not in this version */
    const char *form;     /* custom: what the reference says is expected */
    unsigned kinds;       /* slots: bit per enum fr_slot_kind it is for; 0: all */
    bool required;
    bool shorthand; /* accepted, printed in its long form */
    bool open_keys; /* keys are free text that may hold dots */
    bool reloadable;
    size_t present;                   /* offset of a bool that says it was given; 0: none */
    bool (*given)(const void *scope); /* custom: whether there is anything to print; NULL: always */
    void (*read)(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node, const char *path,
                 void *scope);
    void (*write)(struct fr_printer *printer, const struct fr_option *option, const void *scope);
    const char *text;
};

extern const struct fr_option fr_options[];
extern const size_t fr_options_count;

/* The last part of a row's path, when the row lies directly below `pattern` ("" is the top); else
 * NULL. */
const char *fr_option_key(const struct fr_option *option, const char *pattern);
const struct fr_option *fr_option_find(const char *path);

/* A bound of a number's range as the user would write it. */
void fr_option_bound(const struct fr_option *option, double value, char out[static FR_SCALAR_TEXT_MAX]);

/* Index of `text` among choices, -1 when unknown; *later: marked `!`. */
int fr_choice_find(const char *choices, const char *text, bool *later);
/* The i-th choice without its mark, NUL-terminated in out. */
void fr_choice_name(const char *choices, int index, char out[static 32]);

#endif
