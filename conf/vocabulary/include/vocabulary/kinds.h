/* Names that users write, one list per kind: the list makes the enum, the text, the conversion from
 * text and the choices that messages and OPTIONS.md show.
 *
 * A list is a macro that calls KIND(enumerator, "text", ..) once per name; further columns are its
 * own. A property of a name that other modules need is a column (FR_KIND_COLUMN); behaviour is a
 * switch without a default. So a new row is a compile error until it has its columns and its cases.
 * Code never compares a kind with one of its names (tests/style/kinds). Valid as C17 and as CUDA
 * C++. Thread: any. */
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
/* A column of the list: function(name) returns what CASE(name, text, ..) returns for the row. CASE
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

/* "a|b|c", in the order of the list, then the literal `more`: "|d!", not in this version. */
/* Two literals become one. NOLINTNEXTLINE(bugprone-macro-parentheses) */
#define FR_CHOICES_AND(LIST, more) (&LIST(FR_KIND_CHOICE) more[1])
#define FR_CHOICES(LIST) FR_CHOICES_AND(LIST, "")

/* Defines kind_text, which returns a name, and kind_parse, which finds it (false: no such name).
 * enum kind exists already. */
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
