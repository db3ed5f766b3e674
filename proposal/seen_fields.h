/* What was seen of each field of the sampled records. Private to proposal. */
#ifndef FR_PROPOSAL_SEEN_FIELDS_H
#define FR_PROPOSAL_SEEN_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cursor.h"

enum {
    FR_FIELDS_MAX = 2048,     /* of different names; values of further ones are counted only */
    FR_FIELD_PLACES = 4096,   /* places of the hash table of names */
    FR_SKETCH_SIZE = 1024,    /* hashes kept of a field; a count below this is exact */
    FR_EXAMPLES_MAX = 2,      /* of different values */
    FR_EXAMPLE_BYTES = 24,    /* of each, before escapes */
    FR_EXAMPLE_TEXT_MAX = 112 /* with escapes, quotes and the dots of a cut */
};

/* The smallest hashes of a set: they give its size and how much of it another set has. Source:
 * Beyer, Haas, Reinwald, Sismanis, Gemulla, "On synopses for distinct-value estimation under
 * multiset operations", SIGMOD 2007 (KMV). */
struct fr_seen_sketch {
    uint64_t *hashes; /* [FR_SKETCH_SIZE], ascending */
    uint32_t n;
};

/* What was seen of scalars: of the values of a field, or of the elements of its lists. */
struct fr_seen_scalars {
    uint64_t nils, booleans, integers, floats, strings, others;
    uint64_t fractions;               /* floats that are no integer */
    uint64_t zeros, ones, minus_ones; /* numbers, or booleans */
    uint64_t seconds, milliseconds;   /* numbers that are Unix times of 2000 to 2100 */
    double min, max, sum;             /* of the numbers */
    /* strings by content: canonical integers; numbers with a fraction; dates; sentences; bytes of
     * all together */
    uint64_t decimals, fraction_texts, dates, sentences, bytes;
};

struct fr_seen_field {
    char *path;
    uint32_t path_size;
    bool shared; /* seen in the `shared` of a group */
    struct fr_seen_scalars value, element;
    uint64_t lists, empty_lists, weighted, objects; /* weighted: {"i": ids, "w": weights} */
    uint32_t length_min, length_max;                /* of lists with elements */
    struct fr_seen_sketch sketch;
    char examples[FR_EXAMPLES_MAX][FR_EXAMPLE_TEXT_MAX];
    uint32_t n_examples;
};

struct fr_seen_fields {
    struct fr_seen_field *fields;
    uint32_t n, capacity;
    uint16_t places[FR_FIELD_PLACES]; /* by the hash of the name, then the next free place: the
                                       * field's number and 1; 0: free */
    uint64_t passed_over;             /* values of fields beyond FR_FIELDS_MAX */
};

/* Returns the field of this name, a new one if it was not seen before; NULL: FR_FIELDS_MAX. Valid
 * until the next call. */
struct fr_seen_field *fr_seen_find(struct fr_seen_fields *fields, const void *path, size_t size);
void fr_seen_release(struct fr_seen_fields *fields);
/* Records the value whose first token was just read, and consumes the rest of the value. */
enum fr_status fr_seen_observe(struct fr_seen_field *field, struct fr_cursor *cursor,
                               const struct fr_token *first) FR_MUST_CHECK;
/* Returns how many values of the field there were, except nil. */
uint64_t fr_seen_present(const struct fr_seen_field *field);
/* Returns how many numbers were seen. */
uint64_t fr_seen_numbers(const struct fr_seen_scalars *scalars);
/* Returns the number of different hashes, exact below FR_SKETCH_SIZE. */
uint64_t fr_seen_distinct(const struct fr_seen_sketch *sketch);
/* Returns the share of a's set that b's has, and in *jaccard the size of the intersection by that
 * of the union; both are estimates. */
double fr_seen_contained(const struct fr_seen_sketch *a, const struct fr_seen_sketch *b, double *jaccard);

#endif
