/* The table of replicas that acknowledge epochs, without Kafka. Times are milliseconds of a
 * monotonic clock. Owner: the thread of the reader (exporter/replicas.h). */
#ifndef FR_EXPORTER_REPLICA_TABLE_H
#define FR_EXPORTER_REPLICA_TABLE_H

#include "exporter/replicas.h"

struct fr_replicas_table;

/* The model's name is borrowed. */
struct fr_replicas_table *fr_replicas_table_new(const char *model);
void fr_replicas_table_free(struct fr_replicas_table *table);
/* Takes one record that was written `age_ms` ago (at least 0). */
void fr_replicas_table_take(struct fr_replicas_table *table, const void *bytes, size_t size, int64_t age_ms,
                            const struct fr_replicas_chain *chain, int64_t now_ms);
/* Removes the replicas that were silent for FR_REPLICA_FORGOTTEN_MS. */
void fr_replicas_table_forget(struct fr_replicas_table *table, int64_t now_ms);
/* Writes everything of *out except `problem`. */
void fr_replicas_table_describe(const struct fr_replicas_table *table, int64_t now_ms, struct fr_replicas_status *out);

#endif
