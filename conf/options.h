/* The table of options: one row per option contains its path, type, range, default and meaning.
 * Reading, printing, the reference and the error texts walk it; no other code lists the options.
 *
 * A path is dotted; `*` stands for a name that the user chooses or for a list index. Rows below a
 * path are stored relative to one struct (its scope): top-level rows in struct fr_conf, `tables.*`
 * in struct fr_conf_table, and so on. `optimizer.<kind>` is the scope of every optimizer, wherever
 * it is written, and `optimizer.*` has the options common to all. Rows are read in table order, so
 * an entry that is referred to comes before the entries that refer to it. */
#ifndef FR_CONF_OPTIONS_H
#define FR_CONF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "scalar.h"

struct fr_loader;
struct fr_node;
struct fr_tree;
struct fr_words;

struct fr_option;

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
    FR_OPTION_REF,      /* int32_t, index of a named entry; FR_NO_INDEX when not given */
    FR_OPTION_ENTRIES,  /* structs, each a scope of its own: a map by name, or a list */
    /* handled by `read` and `show`; without `read`, by the entry that contains it */
    FR_OPTION_CUSTOM,
    FR_OPTION_LATER, /* in the grammar, not in this version */
};

/* The views in which a loaded configuration is shown (tree.h). */
enum fr_view { FR_VIEW_CONFIG = 1 << 0, FR_VIEW_MODEL = 1 << 1, FR_VIEW_TRAINING = 1 << 2 };

/* Reads the node into the scope's struct, or reports the problem. */
typedef void fr_option_read(struct fr_loader *loader, const struct fr_option *option, const struct fr_node *node,
                            const char *path, void *scope);
/* Returns the option's value in the scope as a node, NULL for nothing; the map is its future
 * parent. */
typedef struct fr_node *fr_option_show(struct fr_tree *tree, const struct fr_option *option, const void *scope,
                                       struct fr_node *map);

struct fr_option {
    const char *path;
    enum fr_option_type type;
    size_t offset;        /* in the scope's struct */
    double min, max;      /* inclusive; of entries: how many */
    const char *initial;  /* default, as written; NULL: none */
    const char *computed; /* the reference's text in place of a default */
    const char *choices;  /* "a|b|c!": in enum order, `!` is not in this version */
    const char *form;     /* the reference's text for what is expected */
    unsigned kinds;       /* slots: one bit per enum fr_slot_kind that has it; 0: all */
    unsigned sources;     /* slots: one bit per enum fr_slot_source that has it; 0: all */
    unsigned takes;       /* layers: the enum fr_layer_option it is */
    unsigned views, top;  /* enum fr_view: the views that have it; the views at whose top it is */
    const char *as;       /* its name in the training record, if different */
    /* `fixed`: why an existing state cannot take another value; `settled`: why it can neither gain
     * nor lose the option. NULL: a restart takes it over (compare.c). They apply to rows of the
     * training record; all rows of the model are fixed. */
    const char *fixed, *settled;
    /* For rows of the model record, which are otherwise fixed: a restart takes over another value,
     * and for a list of entries, added, removed or reordered ones. Replicas get another model
     * record. */
    bool follows;
    bool required;
    /* left out of the training record at its default, and of the model record when absent */
    bool quiet;
    bool shorthand; /* accepted, shown in its long form */
    bool open_keys; /* keys are free text that may hold dots */
    size_t present; /* offset of a bool: the option was given; 0: none */

    /* of: path of the row whose entries a reference names. noun: what messages call such an entry,
     * with its article in a reference ("a table"), without it in entries ("task"). */
    const char *of, *noun;
    unsigned of_kinds; /* a reference to a slot: one bit per kind that it may name; 0: all */

    /* entries: offset of their number (uint32_t), bytes of one entry */
    size_t count, size;
    /* entries are a map in the file; its keys are their names, which begin their structs */
    bool named;
    bool mutual; /* an entry may refer to a later one: all names are read first */
    bool inside; /* the entries are an array in the scope itself */
    bool flow;   /* each entry is written on one line */
    /* called after each entry, and after all of them; NULL: nothing is called */
    fr_option_read *entry, *all;

    fr_option_read *read; /* NULL: by type */
    fr_option_show *show;
    const char *text;
};

struct fr_entries {
    char *first;
    uint32_t count;
};

extern const struct fr_option fr_options[];
extern const size_t fr_options_count;

/* The last part of a row's path, when the row lies directly below `pattern` ("" is the top); else
 * NULL. */
const char *fr_option_key(const struct fr_option *option, const char *pattern);
const struct fr_option *fr_option_find(const char *path);
/* The first row directly below the pattern (last is NULL), or the next one; NULL: no more. */
const struct fr_option *fr_option_next(const struct fr_option *last, const char *pattern);
/* The last part of a row's path. */
const char *fr_option_name(const struct fr_option *option);
/* Returns whether the option makes sense for the slot's kind. */
bool fr_option_applies(const struct fr_option *option, const void *scope);
struct fr_entries fr_option_entries(const struct fr_option *option, const void *scope);

/* A bound of a number's range as the user would write it. */
void fr_option_bound(const struct fr_option *option, double value, char out[static FR_SCALAR_TEXT_MAX]);

/* Index of `text` among choices, -1 when unknown; *later: marked `!`. */
int fr_choice_find(const char *choices, const char *text, bool *later);
/* Lists all choices of this version. */
void fr_choice_words(const char *choices, struct fr_words *words);
/* The i-th choice without its mark, NUL-terminated in out. */
void fr_choice_name(const char *choices, int index, char out[static 32]);

#endif
