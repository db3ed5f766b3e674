/* The status of ingest without its lists, so that a case need not release it. */
#ifndef FR_TESTS_INGEST_STATUS_OF_H
#define FR_TESTS_INGEST_STATUS_OF_H

#include "fixture.h"

static inline struct fr_ingest_status status_of(struct service *s)
{
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    struct fr_ingest_status copy = status;
    fr_ingest_status_release(&status);
    copy.partitions = NULL;
    copy.present = NULL;
    return copy;
}

#endif
