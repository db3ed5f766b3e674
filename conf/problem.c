/* Collecting and writing problems, and the suggestion after "did you mean". This file does not know
 * any option. */
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "document.h"

enum {
    TEXT_MAX = 1024,
    EDIT_WORD_MAX = 64, /* names are shorter; longer words get no suggestion */
    EDIT_DISTANCE_MAX = 2,
    PREFIX_MIN = 3,
    EXPECTED_MAX = 28, /* longer lists are not printed */
    CUT_MIN = 80,      /* texts from this length on are cut in messages */
};

static bool comes_before(const struct fr_problem_entry *a, const struct fr_problem_entry *b)
{
    if (a->source != b->source)
        return false; /* the file comes first, then each --set in the order of arrival */
    return a->line != b->line ? a->line < b->line : a->column < b->column;
}

/* Replaces every quotation of the node's text, whole or cut, by what was written. A quotation ends
 * at a backquote; one that is cut has at least CUT_MIN bytes. */
static void show_as_written(const struct fr_node *node, char *text, size_t size)
{
    if (!node->written)
        return;
    size_t length = strlen(node->text), room;
    for (char *at = text; (at = strchr(at, '`')) != NULL; at++) {
        size_t same = 0;
        while (same < length && at[1 + same] == node->text[same])
            same++;
        char *end = at + 1 + same;
        if (*end != '`' || (same < length && same < CUT_MIN))
            continue;
        char rest[TEXT_MAX];
        snprintf(rest, sizeof(rest), "%s", end);
        room = size - (size_t)(at + 1 - text);
        snprintf(at + 1, room, "%.80s%s", node->written, rest);
        at = strchr(at + 1, '`');
        if (!at)
            return;
    }
}

bool fr_problem(struct fr_problems *problems, const struct fr_node *node, const char *path, const char *format, ...)
{
    if (problems->count == FR_PROBLEMS_MAX) {
        problems->dropped += 1;
        return false;
    }
    char text[TEXT_MAX];
    size_t used = 0;
    if (path[0] != '\0')
        used = (size_t)snprintf(text, sizeof(text), "%.*s: ", FR_PATH_MAX, path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, sizeof(text) - used, format, arguments);
    va_end(arguments);
    show_as_written(node, text, sizeof(text));
    struct fr_problem_entry entry = {
        .source = node->source, .line = node->line, .column = node->column, .text = fr_strdup(text)};
    size_t i = problems->count++;
    for (; i > 0 && comes_before(&entry, &problems->entries[i - 1]); i--)
        problems->entries[i] = problems->entries[i - 1];
    problems->entries[i] = entry;
    return false;
}

void fr_problems_write(const struct fr_problems *problems, const char *kind, struct fr_buffer *out)
{
    for (size_t i = 0; i < problems->count; i++) {
        const struct fr_problem_entry *entry = &problems->entries[i];
        fr_buffer_printf(out, "%s:%u:%u: %s%s\n", entry->source, entry->line, entry->column, kind, entry->text);
    }
    if (problems->dropped > 0)
        fr_buffer_printf(out, "and %zu more %s\n", problems->dropped, kind[0] ? "warnings" : "problems");
}

void fr_problems_release(struct fr_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        free(problems->entries[i].text);
    problems->count = 0;
    problems->dropped = 0;
}

void fr_words_add(struct fr_words *words, const char *text, size_t size)
{
    if (size > 0 && words->count < FR_WORDS_MAX) /* an empty name was refused before */
        words->items[words->count++] = (struct fr_word){text, size};
}

/* Levenshtein (1966), two rows. */
static size_t edit_distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[2][EDIT_WORD_MAX + 1];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i & 1], *above = rows[(i - 1) & 1];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return rows[na & 1][nb];
}

const struct fr_word *fr_words_nearest(const struct fr_words *words, const char *text)
{
    size_t size = strlen(text);
    const struct fr_word *nearest = NULL, *prefixed = NULL;
    size_t best = EDIT_DISTANCE_MAX + 1;
    if (size == 0 || size > EDIT_WORD_MAX)
        return NULL;
    for (size_t i = 0; i < words->count; i++) {
        const struct fr_word *word = &words->items[i];
        if (word->size == 0 || word->size > EDIT_WORD_MAX)
            continue;
        size_t distance = edit_distance(text, size, word->text, word->size);
        if (distance < best && distance < size && distance < word->size) {
            best = distance;
            nearest = word;
        }
        size_t shared = size < word->size ? size : word->size;
        if (!prefixed && shared >= PREFIX_MIN && memcmp(text, word->text, shared) == 0)
            prefixed = word;
    }
    return nearest ? nearest : prefixed;
}

void fr_problem_unknown(struct fr_problems *problems, const struct fr_node *node, const char *path, const char *what,
                        const struct fr_words *known)
{
    /* hostile input must not cost an unlimited number of edit distances */
    if (problems->count == FR_PROBLEMS_MAX) {
        problems->dropped += 1;
        return;
    }
    char expected[TEXT_MAX / 2] = "";
    size_t used = 0;
    if (known->count <= EXPECTED_MAX) {
        for (size_t i = 0; i < known->count && used < sizeof(expected) - 1; i++) {
            const char *joint = i == 0 ? "; expected " : i + 1 == known->count ? " or " : ", ";
            int n = snprintf(expected + used, sizeof(expected) - used, "%s%.*s", joint, (int)known->items[i].size,
                             known->items[i].text);
            used += (size_t)n;
        }
    }
    const struct fr_word *nearest = fr_words_nearest(known, node->text);
    if (nearest)
        fr_problem(problems, node, path, "%s `%.80s`%s; did you mean `%.*s`?", what, node->text, expected,
                   (int)nearest->size, nearest->text);
    else
        fr_problem(problems, node, path, "%s `%.80s`%s", what, node->text, expected);
}
