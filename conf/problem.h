/* The problems of a configuration: every problem is kept, sorted by place, and written at the end
 * as `file:line:col: path: problem; expected ..; did you mean ..?`.
 *
 * Owns: its texts. Thread: one owner. */
#ifndef FR_CONF_PROBLEM_H
#define FR_CONF_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum {
    FR_PROBLEMS_MAX = 100, /* more would not be read at a time */
    FR_WORDS_MAX = 1024,   /* exceeds all slots and layers together */
    FR_PATH_MAX = 512,     /* a longer path is cut in messages */
};

struct fr_node;

struct fr_problem_entry {
    const char *source; /* borrowed from the node */
    uint32_t line, column;
    char *text;
};

struct fr_problems {
    size_t count;   /* kept */
    size_t dropped; /* beyond FR_PROBLEMS_MAX */
    struct fr_problem_entry entries[FR_PROBLEMS_MAX];
};

/* The words from which a suggestion is chosen. */
struct fr_word {
    const char *text;
    size_t size;
};

struct fr_words {
    size_t count;
    struct fr_word items[FR_WORDS_MAX];
};

/* Returns false, so that a caller that must stop can return it. If the node's text was made from
 * references, the message quotes them as they are written, and not their values, which may be
 * secret. */
bool fr_problem(struct fr_problems *problems, const struct fr_node *node, const char *path, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Writes "<what> `word`; expected a, b or c; did you mean `a`?". */
void fr_problem_unknown(struct fr_problems *problems, const struct fr_node *node, const char *path, const char *what,
                        const struct fr_words *known);
/* `kind` comes before each text: "" or "warning: ". */
void fr_problems_write(const struct fr_problems *problems, const char *kind, struct fr_buffer *out);
void fr_problems_release(struct fr_problems *problems);

void fr_words_add(struct fr_words *words, const char *text, size_t size);
/* Returns the known word that is within edit distance 2 (and shorter than the word), or that is a
 * prefix of the word or has it as a prefix; NULL if none. */
const struct fr_word *fr_words_nearest(const struct fr_words *words, const char *text);

#endif
