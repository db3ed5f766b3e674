/* Sections of an epoch that belong to one module each, parsed by their owners for printing:
 * "trainer" (trainer/section.h), "store" (store/section.h), "positions" (ingest/positions.h),
 * "metrics" (metrics/task.h). Another version is FR_E_MISMATCH; any other damage is FR_E_CORRUPT.
 * Private to tool. */
#ifndef FR_TOOL_STATE_SECTIONS_H
#define FR_TOOL_STATE_SECTIONS_H

#include "ingest/positions.h"
#include "metrics/task.h"
#include "state/state_reader.h"
#include "store/section.h"
#include "trainer/section.h"

enum fr_status fr_tool_trainer_section(const struct fr_tool_state *state, struct fr_trainer_history *out,
                                       struct fr_err *err) FR_MUST_CHECK;
/* The sections "store" of all domains as one: counts, rows and pending keys are sums. Where domains
 * differ in a table's slice_bits, the number is a hash of all of them. Release it on success. */
bool fr_tool_has_store_section(const struct fr_tool_state *state);
enum fr_status fr_tool_store_section(const struct fr_tool_state *state, struct fr_store_section *out,
                                     struct fr_err *err) FR_MUST_CHECK;
/* Release with fr_positions_release, also after an error. */
enum fr_status fr_tool_positions_section(const struct fr_tool_state *state, struct fr_positions *out,
                                         struct fr_err *err) FR_MUST_CHECK;

/* Calls visit for every task that the section "metrics" lists, in their order. */
struct fr_tool_metrics_task {
    const char *name;
    uint64_t image_hash; /* XXH3-64 of the task's image as stored */
    struct fr_task_result result;
};
enum fr_status fr_tool_visit_metrics(const struct fr_tool_state *state,
                                     void (*visit)(void *self, const struct fr_tool_metrics_task *task), void *self,
                                     struct fr_err *err) FR_MUST_CHECK;

#endif
