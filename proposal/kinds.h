/* Which slot, label or time each surveyed field becomes, and what speaks against that. Private to
 * proposal. */
#ifndef FR_PROPOSAL_KINDS_H
#define FR_PROPOSAL_KINDS_H

#include "conf/conf.h"
#include "survey.h"

enum fr_proposed_kind {
    FR_PROPOSED_LEFT_OUT,
    FR_PROPOSED_LABEL,
    FR_PROPOSED_EVENT_TIME, /* of flat records */
    FR_PROPOSED_ID,
    FR_PROPOSED_IDS,      /* several in any order */
    FR_PROPOSED_SEQUENCE, /* several, the oldest first */
    FR_PROPOSED_NUMBER,
    FR_PROPOSED_TIME, /* a number that is a time, and not the event time */
};

/* In place of an index: none, and the table that fields with few values share. */
#define FR_PROPOSED_NONE UINT32_MAX
#define FR_PROPOSED_CONTEXT (UINT32_MAX - 1)

struct fr_proposed_field {
    const struct fr_seen_field *field;
    enum fr_proposed_kind kind;
    char name[FR_NAME_MAX]; /* of the slot or label, unique; empty if left out */
    uint32_t dim;           /* numbers: of a value */
    uint32_t max_len;       /* sequences */
    bool log1p;             /* numbers */
    /* ids: index of the field that gives the table its name, or FR_PROPOSED_CONTEXT */
    uint32_t table;
    const char *why;         /* static; why the field is left out */
    struct fr_buffer unsure; /* one doubt a line */
};

struct fr_proposed {
    /* of all fields; of flat records labels and the event time, too */
    struct fr_proposed_field *slots;
    struct fr_proposed_field *labels;
    uint32_t n_slots, n_labels;
    uint32_t gauc_by; /* slot of a user's id; FR_PROPOSED_NONE: none */
};

/* Decides about every field. FR_E_INVALID: there is no label. Borrows the survey. Release with
 * fr_proposed_release, also after an error. */
enum fr_status fr_proposed_make(const struct fr_survey *survey, const struct fr_proposal_options *options,
                                struct fr_proposed *out, struct fr_err *err) FR_MUST_CHECK;
void fr_proposed_release(struct fr_proposed *choices);
/* Returns whether the choice is a slot with ids. */
bool fr_proposed_has_ids(const struct fr_proposed_field *choice);
/* Returns how many samples or groups could have had the field. */
uint64_t fr_survey_holders(const struct fr_survey *survey, const struct fr_seen_field *field);
/* Returns the index in the list, which ends with NULL, of the first word that the name has;
 * the length of the list: none. Words are separated by other characters, or begin with a capital:
 * userId has user and id. */
uint32_t fr_proposed_name_word(const char *name, const char *const *list);
/* Chooses event time and labels of flat records (choose_labels.c), and the labels of samples. */
enum fr_status fr_proposed_labels(const struct fr_survey *survey, const struct fr_proposal_options *options,
                                  struct fr_proposed *out, struct fr_err *err) FR_MUST_CHECK;
void fr_proposed_event_time(const struct fr_survey *survey, struct fr_proposed *out);
/* Gives choices of ids their tables, and all choices unique names (tables.c). */
void fr_proposed_tables(struct fr_proposed *choices);
void fr_proposed_names(struct fr_proposed *choices);

#endif
