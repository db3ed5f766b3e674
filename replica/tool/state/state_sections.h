/* Sections of an epoch that belong to one module each, read for printing: "trainer"
 * (trainer/section.h), "store" (store/section.h), "metrics" (metrics/task.h). Every length is
 * checked; another version is FR_E_MISMATCH, anything else that does not fit FR_E_CORRUPT. Private
 * to replica/tool. */
#ifndef FR_TOOL_STATE_SECTIONS_H
#define FR_TOOL_STATE_SECTIONS_H

#include "base/buffer.h"
#include "base/status.h"
#include "metrics/task.h"
#include "trainer/section.h"

enum { FR_STORE_COUNTERS = 12 };

enum fr_status fr_tool_trainer_section(const struct fr_buffer *section, struct fr_trainer_section *out,
                                       struct fr_err *err) FR_MUST_CHECK;

struct fr_tool_store_carried {
    uint64_t key;
    int64_t seen_ms;
    uint32_t table, count;
};
struct fr_tool_store_section_table {
    uint64_t counters[FR_STORE_COUNTERS];
    uint32_t slice_bits;
};

struct fr_tool_store_section {
    uint32_t n_tables;
    struct fr_tool_store_section_table *tables; /* owned */
    uint64_t n_carried;
    const uint8_t *carried; /* borrows the section */
};
extern const char *const fr_tool_store_counter_names[FR_STORE_COUNTERS]; /* rows, pending, .. */
enum fr_status fr_tool_store_section_parse(const struct fr_buffer *section, struct fr_tool_store_section *out,
                                           struct fr_err *err) FR_MUST_CHECK;
struct fr_tool_store_carried fr_tool_store_section_carried(const struct fr_tool_store_section *section, uint64_t i);
void fr_tool_store_section_release(struct fr_tool_store_section *section);

/* Calls visit for every task in turn that the section "metrics" lists. */
struct fr_tool_metrics_task {
    char name[64];
    uint64_t image_hash; /* XXH3-64 of the task's image as stored */
    struct fr_task_result result;
};
struct fr_tool_state;
enum fr_status fr_tool_visit_metrics(const struct fr_tool_state *state,
                                     void (*visit)(void *self, const struct fr_tool_metrics_task *task), void *self,
                                     struct fr_err *err) FR_MUST_CHECK;

#endif
