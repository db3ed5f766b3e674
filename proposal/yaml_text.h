/* The proposal as YAML. Private to proposal. */
#ifndef FR_PROPOSAL_YAML_TEXT_H
#define FR_PROPOSAL_YAML_TEXT_H

#include "kinds.h"

enum { FR_PROPOSAL_REASON_MAX = 512 /* as of the decoder */ };

struct fr_written {
    const struct fr_proposal_options *options;
    const struct fr_sampled *sampled;
    const struct fr_survey *survey;
    const struct fr_proposed *choices;
    char model[FR_PROPOSAL_MODEL_MAX + 1];
    /* how many records the decoder refuses with this configuration, and the reason of the first;
     * not written if `decoded` is false */
    bool decoded;
    uint64_t refused;
    char reason[FR_PROPOSAL_REASON_MAX];
};

void fr_proposal_write(const struct fr_written *written, struct fr_buffer *out);

#endif
