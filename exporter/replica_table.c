/* The replicas, each with its last acknowledgement: see replica_table.h.
 *
 * The table has a fixed size. While it is full, records of further replicas are counted and have no
 * effect: a program that invents names cannot push replicas out, and its names leave when they have
 * been silent for FR_REPLICA_FORGOTTEN_MS. A replica is found by a hash of its name, in an array
 * that is small enough to be searched from its beginning for each record.
 *
 * Owner: one thread. */
#include "replica_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define NAME(name, text) text,
const char *const fr_replicas_refusal_names[] = {FR_REPLICA_REFUSALS(NAME)};
#undef NAME

struct replica {
    struct fr_acknowledgement said;
    int64_t heard_ms;
};

struct fr_replicas_table {
    const char *model;
    uint32_t n;
    uint64_t left, forgotten, dropped, records, refused[FR_REPLICA_REFUSED_KINDS];
    uint64_t hashes[FR_REPLICAS_MAX]; /* [n] of the names */
    struct replica replicas[FR_REPLICAS_MAX];
};

struct fr_replicas_table *fr_replicas_table_new(const char *model)
{
    struct fr_replicas_table *table = fr_alloc(1, sizeof(*table));
    table->model = model;
    return table;
}

void fr_replicas_table_free(struct fr_replicas_table *table)
{
    free(table);
}

/* ---- records ---- */

/* The place of a name; n if there is none. */
static uint32_t find(const struct fr_replicas_table *table, const char *name, uint64_t hash)
{
    for (uint32_t i = 0; i < table->n; i++)
        if (table->hashes[i] == hash && strcmp(table->replicas[i].said.name, name) == 0)
            return i;
    return table->n;
}

/* Moves the last replica to the place of this one. */
static void remove_at(struct fr_replicas_table *table, uint32_t i)
{
    table->n -= 1;
    table->hashes[i] = table->hashes[table->n];
    table->replicas[i] = table->replicas[table->n];
}

/* Returns why a record has no effect; FR_REPLICA_REFUSED_KINDS: it has. */
static enum fr_replica_refusal judge(const struct fr_replicas_table *table, const void *bytes, size_t size,
                                     const struct fr_replicas_chain *chain, struct fr_acknowledgement *out)
{
    enum fr_status status = fr_acknowledgement_parse(bytes, size, table->model, out);
    if (status != FR_OK)
        return status == FR_E_MISMATCH ? FR_REPLICA_REFUSED_MODEL : FR_REPLICA_REFUSED_MALFORMED;
    if (out->timeline > chain->timeline)
        return FR_REPLICA_REFUSED_TIMELINE;
    if (out->timeline == chain->timeline && out->epoch > chain->durable)
        return FR_REPLICA_REFUSED_AHEAD;
    return FR_REPLICA_REFUSED_KINDS;
}

void fr_replicas_table_take(struct fr_replicas_table *table, const void *bytes, size_t size, int64_t age_ms,
                            const struct fr_replicas_chain *chain, int64_t now_ms)
{
    struct fr_acknowledgement said;
    table->records += 1;
    enum fr_replica_refusal refusal = judge(table, bytes, size, chain, &said);
    if (refusal != FR_REPLICA_REFUSED_KINDS) {
        table->refused[refusal] += 1;
        return;
    }
    uint64_t hash = fr_xxh3(said.name, strlen(said.name));
    uint32_t i = find(table, said.name, hash);
    if (said.leaving) {
        table->left += i < table->n;
        if (i < table->n)
            remove_at(table, i);
        return;
    }
    if (age_ms >= FR_REPLICA_FORGOTTEN_MS)
        return;
    if (i == FR_REPLICAS_MAX) {
        table->dropped += 1;
        return;
    }
    if (i == table->n)
        table->n += 1;
    table->hashes[i] = hash;
    table->replicas[i] = (struct replica){.said = said, .heard_ms = now_ms - age_ms};
}

void fr_replicas_table_forget(struct fr_replicas_table *table, int64_t now_ms)
{
    for (uint32_t i = 0; i < table->n;) {
        if (now_ms - table->replicas[i].heard_ms < FR_REPLICA_FORGOTTEN_MS) {
            i++;
            continue;
        }
        remove_at(table, i);
        table->forgotten += 1;
    }
}

/* ---- the status ---- */

static int order(bool first, bool second)
{
    return first ? -1 : second ? 1 : 0;
}

/* The slowest replica comes first; those that serve nothing yet come last. Names make the order
 * whole, so that lists of equal tables are equal. */
static int compare(const void *left, const void *right)
{
    const struct replica *a = *(const struct replica *const *)left, *b = *(const struct replica *const *)right;
    const struct fr_acknowledgement *x = &a->said, *y = &b->said;
    if ((x->epoch == 0) != (y->epoch == 0))
        return order(y->epoch == 0, x->epoch == 0);
    if (x->timeline != y->timeline)
        return order(x->timeline < y->timeline, true);
    if (x->epoch != y->epoch)
        return order(x->epoch < y->epoch, true);
    if (a->heard_ms != b->heard_ms)
        return order(a->heard_ms < b->heard_ms, true);
    return strcmp(x->name, y->name);
}

void fr_replicas_table_describe(const struct fr_replicas_table *table, int64_t now_ms, struct fr_replicas_status *out)
{
    const struct replica *sorted[FR_REPLICAS_MAX];
    out->count = table->n;
    out->silent = out->starting = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        sorted[i] = &table->replicas[i];
        out->silent += now_ms - table->replicas[i].heard_ms >= FR_REPLICA_SILENT_MS;
        out->starting += table->replicas[i].said.epoch == 0;
    }
    qsort(sorted, table->n, sizeof(sorted[0]), compare);
    out->n_listed = table->n < FR_REPLICAS_LISTED_MAX ? table->n : FR_REPLICAS_LISTED_MAX;
    for (uint32_t i = 0; i < out->n_listed; i++) {
        int64_t silence_ms = now_ms - sorted[i]->heard_ms;
        out->listed[i] = (struct fr_replica_standing){
            .said = sorted[i]->said, .silence_ms = silence_ms, .silent = silence_ms >= FR_REPLICA_SILENT_MS};
    }
    out->left = table->left;
    out->forgotten = table->forgotten;
    out->dropped = table->dropped;
    out->records = table->records;
    memcpy(out->refused, table->refused, sizeof(out->refused));
}
