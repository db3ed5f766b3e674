/* Names that users write, each kind of them one list: the list makes the enum, the text, the way
 * back and the choices that messages and OPTIONS.md show.
 *
 * A list is a macro that calls KIND(enumerator, "text", ..) once a name; further columns are its
 * own. What other modules ask of a name is a column (FR_KIND_COLUMN), behaviour a switch without a
 * default: a new row is a compile error until it has its columns and its cases. Nobody compares a
 * kind with one of its names (tests/style/kinds). Valid as C17 and as CUDA C++. Thread: any. */
#ifndef FR_VOCABULARY_KINDS_H
#define FR_VOCABULARY_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define FR_KIND_MEMBER(name, ...) name,
#define FR_KIND_CASE(name, ...) case name:
#define FR_KIND_CHOICE(name, text, ...) "|" text
#define FR_KIND_TEXT(name, text, ...)                                                                                  \
    case name:                                                                                                         \
        return text;
#define FR_KIND_PARSE(name, text, ...)                                                                                 \
    if (strcmp(word, text) == 0) {                                                                                     \
        *out = name;                                                                                                   \
        return true;                                                                                                   \
    }

#ifdef __CUDACC__
#define FR_KIND_FUNCTION static __host__ __device__ inline
#else
#define FR_KIND_FUNCTION static inline
#endif
/* A column of the list: function(name) gives what CASE(name, text, ..) returns for each row. CASE
 * names every column up to its own, so that a row without it does not compile. */
#define FR_KIND_COLUMN(result, function, kind, LIST, CASE)                                                             \
    FR_KIND_FUNCTION result function(enum kind name)                                                                   \
    {                                                                                                                  \
        switch (name) {                                                                                                \
            LIST(CASE)                                                                                                 \
        }                                                                                                              \
        return (result)0;                                                                                              \
    }

#define FR_KIND_COMMA(name, text, ...) ", " text
#define FR_KIND_OR(name, text, ...) " or " text
#define FR_KIND_QUOTED(name, text, ...) " `" text "`"

/* "a|b|c", in the order of the list; a literal `more` behind it: "|d!", not in this version. */
/* Two literals become one. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_CHOICES_AND(LIST, more) (&LIST(FR_KIND_CHOICE) more[1])
#define FR_CHOICES(LIST) FR_CHOICES_AND(LIST, "")

/* enum kind is there: kind_text gives a name, kind_parse finds it (false: no such name). */
#define FR_KIND_WORDS(kind, LIST)                                                                                      \
    static inline const char *kind##_text(enum kind name)                                                              \
    {                                                                                                                  \
        switch (name) {                                                                                                \
            LIST(FR_KIND_TEXT)                                                                                         \
        }                                                                                                              \
        return NULL;                                                                                                   \
    }                                                                                                                  \
    static inline bool kind##_parse(const char *word, enum kind *out) /* NOLINT(bugprone-macro-parentheses) */         \
    {                                                                                                                  \
        LIST(FR_KIND_PARSE)                                                                                            \
        return false;                                                                                                  \
    }
#define FR_KINDS(kind, LIST)                                                                                           \
    enum kind { LIST(FR_KIND_MEMBER) };                                                                                \
    FR_KIND_WORDS(kind, LIST)

#endif
