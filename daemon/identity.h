/* Whether configuration and state belong together (identity.c). Thread: the one that recovers. */
#ifndef FR_DAEMON_IDENTITY_H
#define FR_DAEMON_IDENTITY_H

#include "conf/conf.h"
#include "durable/durable.h"
#include "trainer/trainer.h"
#include "trainer/training.h"

/* The delta side of a model: the configuration's name and partitions, and how it quantizes. */
#define FR_IDENTITY_DELTA "delta.json"

struct fr_identity {
    struct fr_training training;    /* the training settings that the state has recorded */
    struct fr_conf_changes changes; /* changes of the training settings, or of the model */
    bool other_model;               /* epochs so far are of another model record */
    struct fr_err err;              /* status FR_OK: configuration and state fit */
};

void fr_identity_release(struct fr_identity *identity);
/* Records what a state without epochs is made with. */
enum fr_status fr_identity_write(const struct fr_conf *conf, struct fr_durable *durable,
                                 struct fr_err *err) FR_MUST_CHECK;
/* Compares a state that has epochs with the configuration; `section` is its newest "training", or
 * NULL. FR_E_MISMATCH: the configuration changes what is fixed; identity->err says what. */
enum fr_status fr_identity_check(struct fr_identity *identity, const struct fr_conf *conf, struct fr_durable *durable,
                                 const uint8_t *section, size_t size) FR_MUST_CHECK;

/* A savepoint in directory `dir` from which a state will begin. */
struct fr_identity_source {
    struct fr_durable *durable;
    const char *dir;
    bool other; /* the state begins as another model (--as) */
};
/* Makes head and FR_IDENTITY_DELTA of a state that begins from a savepoint whose newest journal
 * file had the head `recorded`; *other: the savepoint is of another model. */
enum fr_status fr_identity_as(const struct fr_conf *conf, const struct fr_buffer *recorded, struct fr_buffer *head,
                              struct fr_buffer *delta, bool *other, struct fr_err *err) FR_MUST_CHECK;
/* Compares the savepoint with the configuration, before anything is made from the savepoint. */
enum fr_status fr_identity_fits(const struct fr_conf *conf, const struct fr_identity_source *savepoint,
                                struct fr_err *err) FR_MUST_CHECK;
/* Called after recovery: what changed is recorded with the next epoch. */
void fr_identity_adopt_changes(struct fr_identity *identity, const struct fr_conf *conf, const struct fr_clock *clock,
                               struct fr_trainer *trainer);
/* The head of every journal file: everything that its delta records depend on, except the
 * epochs. */
void fr_identity_head(const struct fr_conf *conf, const char *kernel, struct fr_buffer *out);

#endif
