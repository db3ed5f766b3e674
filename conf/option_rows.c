/* Looks up rows of the option table by path, walks the rows below one, and reads the choices of a
 * row. The table itself is options.c. */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"
#include "options.h"
#include "problem.h"

const char *fr_option_key(const struct fr_option *option, const char *pattern)
{
    static const char any_optimizer[] = "optimizer.*.";
    size_t size = strlen(pattern), any = sizeof(any_optimizer) - 1;
    const char *key = option->path;
    if (strncmp(key, any_optimizer, any) == 0 && strncmp(pattern, "optimizer.", 10) == 0)
        return key + any;
    if (size > 0) {
        if (strncmp(key, pattern, size) != 0 || key[size] != '.')
            return NULL;
        key += size + 1;
    }
    return strchr(key, '.') ? NULL : key;
}

const struct fr_option *fr_option_next(const struct fr_option *last, const char *pattern)
{
    const struct fr_option *option = last ? last + 1 : fr_options;
    while (option < fr_options + fr_options_count && !fr_option_key(option, pattern))
        option++;
    return option < fr_options + fr_options_count ? option : NULL;
}

const char *fr_option_name(const struct fr_option *option)
{
    const char *dot = strrchr(option->path, '.');
    return dot ? dot + 1 : option->path;
}

bool fr_option_applies(const struct fr_option *option, const void *scope)
{
    return option->kinds == 0 || (option->kinds >> ((const struct fr_conf_slot *)scope)->kind & 1) != 0;
}

struct fr_entries fr_option_entries(const struct fr_option *option, const void *scope)
{
    char *place = (char *)(uintptr_t)scope + option->offset;
    return (struct fr_entries){option->inside ? place : *(char **)(void *)place,
                               *(const uint32_t *)(const void *)((const char *)scope + option->count)};
}

const struct fr_option *fr_option_find(const char *path)
{
    for (size_t i = 0; i < fr_options_count; i++) {
        if (strcmp(fr_options[i].path, path) == 0)
            return &fr_options[i];
    }
    return NULL;
}

void fr_option_bound(const struct fr_option *option, double value, char out[static FR_SCALAR_TEXT_MAX])
{
    if (option->type == FR_OPTION_DURATION)
        fr_scalar_format_duration((int64_t)value, out);
    else if (option->type == FR_OPTION_SIZE)
        fr_scalar_format_size((uint64_t)value, out);
    else if (value >= 18446744073709551615.0 && option->type == FR_OPTION_U64)
        /* UINT64_MAX is one more when it is a double */
        snprintf(out, FR_SCALAR_TEXT_MAX, "18446744073709551615");
    else
        snprintf(out, FR_SCALAR_TEXT_MAX, "%.*g", option->type == FR_OPTION_REAL ? 6 : 20, value);
}

/* Returns the choice at *at and moves *at after it; *later: the choice is marked `!`. */
static struct fr_word next_choice(const char **at, bool *later)
{
    struct fr_word word = {*at, strcspn(*at, "|")};
    *at += word.size + ((*at)[word.size] == '|');
    *later = word.text[word.size - 1] == '!';
    word.size -= *later;
    return word;
}

int fr_choice_find(const char *choices, const char *text, bool *later)
{
    for (int index = 0; *choices; index++) {
        struct fr_word word = next_choice(&choices, later);
        if (word.size == strlen(text) && memcmp(word.text, text, word.size) == 0)
            return index;
    }
    return -1;
}

void fr_choice_words(const char *choices, struct fr_words *words)
{
    bool later;
    while (*choices) {
        struct fr_word word = next_choice(&choices, &later);
        if (!later)
            fr_words_add(words, word.text, word.size);
    }
}

void fr_choice_name(const char *choices, int index, char out[static 32])
{
    bool later;
    struct fr_word word = next_choice(&choices, &later);
    for (int i = 0; i < index; i++)
        word = next_choice(&choices, &later);
    snprintf(out, 32, "%.*s", (int)word.size, word.text);
}
