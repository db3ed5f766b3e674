/* What each layer operation takes, from the list in the vocabulary. */
#include "base/check.h"
#include "conf/conf.h"

#define RULE(name, text, form, meaning, ...) [name] = {__VA_ARGS__},

const struct fr_layer_rule *fr_layer_rule(enum fr_layer_op op)
{
    static const struct fr_layer_rule rules[] = {FR_LAYER_OPS(RULE)};
    FR_CHECK((size_t)op < FR_ARRAY_LEN(rules));
    return &rules[op];
}
