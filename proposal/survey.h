/* What the sampled records have in common: format, form, fields and labels. Private to proposal. */
#ifndef FR_PROPOSAL_SURVEY_H
#define FR_PROPOSAL_SURVEY_H

#include "seen_fields.h"
#include "sampled.h"

enum { FR_PATH_BYTES_MAX = 512 /* of a flat record; values with longer paths are passed over */ };

struct fr_survey {
    enum fr_format format;
    bool flat;           /* records are ordinary objects: ingest.envelope */
    uint64_t records;    /* in the format and the form of most */
    uint64_t unreadable; /* neither JSON nor MessagePack */
    uint64_t deviating;  /* of the other format, or of another form than most */
    uint64_t blocks;     /* of columns, which are not surveyed */
    uint64_t samples, groups;
    uint64_t timed;   /* samples or groups with a `t` */
    uint64_t weights; /* samples with a `w` */
    /* slots by their key; of flat records all values, by their path */
    struct fr_seen_fields fields;
    /* labels of `y` by their key; "" for a `y` that is a number, "0", "1", .. for one that is an
     * array */
    struct fr_seen_fields labels;
    uint64_t y_maps, y_numbers, y_arrays;
};

/* Looks at all records. Release with fr_survey_release, also after an error. */
enum fr_status fr_survey_make(const struct fr_sampled *sampled, struct fr_survey *out,
                              struct fr_err *err) FR_MUST_CHECK;
void fr_survey_release(struct fr_survey *survey);

#endif
