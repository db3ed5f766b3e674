/* First values of weights. */
#ifndef FR_VOCABULARY_INIT_H
#define FR_VOCABULARY_INIT_H

#include "vocabulary/kinds.h"

/* KIND(name, text, takes a number, as the reference writes it); LAST is the last one's KIND. Rows
 * of tables take all but default. */
#define FR_ROW_INITS(KIND, LAST)                                                                                       \
    KIND(FR_INIT_ZEROS, "zeros", false, "`zeros`")                                                                     \
    KIND(FR_INIT_UNIFORM, "uniform", true, "`{uniform: a}`") /* +-a */                                                 \
    KIND(FR_INIT_NORMAL, "normal", true, "`{normal: sd}`")   /* standard deviation */                                  \
    /* cut at two standard deviations, drawn again */                                                                  \
    KIND(FR_INIT_TRUNCATED_NORMAL, "truncated_normal", true, "`{truncated_normal: sd}`")                               \
    /* +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010); rows: both fans are dim */                             \
    KIND(FR_INIT_XAVIER_UNIFORM, "xavier_uniform", false, "`xavier_uniform`")                                          \
    KIND(FR_INIT_XAVIER_NORMAL, "xavier_normal", false, "`xavier_normal`")                                             \
    /* +-sqrt(6 / fan_in) (He et al. 2015) */                                                                          \
    KIND(FR_INIT_KAIMING_UNIFORM, "kaiming_uniform", false, "`kaiming_uniform`")                                       \
    KIND(FR_INIT_KAIMING_NORMAL, "kaiming_normal", false, "`kaiming_normal`")                                          \
    LAST(FR_INIT_CONSTANT, "constant", true, "`{constant: x}`")
/* Layers: uniform +-1/sqrt(fan_in) unless the layer names another. */
#define FR_LAYER_INITS(KIND, LAST)                                                                                     \
    KIND(FR_INIT_DEFAULT, "default", false, "`default` (uniform ±1/√fan_in)")                                          \
    FR_ROW_INITS(KIND, LAST)
#define FR_INITS(KIND) FR_LAYER_INITS(KIND, KIND)

FR_KINDS(fr_init_kind, FR_INITS)

#define FR_INIT_SCALED(name, text, scaled, form)                                                                       \
    case name:                                                                                                         \
        return scaled;
static inline bool fr_init_takes_scale(enum fr_init_kind kind)
{
    switch (kind) {
        FR_INITS(FR_INIT_SCALED)
    }
    return false;
}

#define FR_INIT_FORM(name, text, scaled, form) ", " form
#define FR_INIT_FORM_LAST(name, text, scaled, form) " or " form
/* "`zeros`, .. or `{constant: x}`" */
#define FR_INIT_FORMS(LIST) (&LIST(FR_INIT_FORM, FR_INIT_FORM_LAST)[2])
#define FR_INIT_CHOICES(LIST) (&LIST(FR_KIND_CHOICE, FR_KIND_CHOICE)[1])

#endif
