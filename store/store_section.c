/* See store/section.h. */
#include "store/section.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { VERSION = 3, CARRIED_BYTES = 24 };
_Static_assert(VERSION == 3 && FR_STORE_COUNTS == 12,
               "one more count is a new version: counts_of, docs/formats/state.md, docs/compatibility.md");

/* Counts of a table in a section of this version, of which later ones have more; 0: it is not
 * read. */
static uint32_t counts_of(uint32_t version)
{
    return version == 3 ? 12 : 0;
}

#define AT(member) (offsetof(struct fr_store_counts, member) / sizeof(uint64_t))
#define NAMED(member) [AT(member)] = #member
#define EXPIRED(reason) [AT(expired) + (reason)]
#define EXPIRED_BY(reason, text, ...) EXPIRED(reason) = "expired_" text,
const char *const fr_store_count_names[FR_STORE_COUNTS] = {NAMED(rows),
                                                           NAMED(pending),
                                                           NAMED(admitted),
                                                           NAMED(rejected),
                                                           NAMED(forgotten),
                                                           NAMED(unremembered),
                                                           EXPIRED(FR_ABSENT_SILENT) = "expired_none",
                                                           FR_REMOVALS(EXPIRED_BY)};

void fr_store_section_name(const char *kind, uint32_t domain, uint32_t n_domains, char name[FR_SECTION_NAME_MAX])
{
    snprintf(name, FR_SECTION_NAME_MAX, n_domains > 1 ? "%s/%" PRIu32 : "%s", kind, domain);
}

bool fr_store_section_is(const char *name, const char *kind, uint32_t *domain)
{
    size_t length = strlen(kind);
    if (strncmp(name, kind, length) != 0 || (name[length] != '\0' && name[length] != '/'))
        return false;
    *domain = 0;
    for (const char *at = name + length + 1; name[length] == '/' && (at == name + length + 1 || *at != '\0'); at++) {
        if (*at < '0' || *at > '9' || *domain >= FR_DOMAINS_MAX)
            return false;
        *domain = *domain * 10 + (uint32_t)(*at - '0');
    }
    return *domain < FR_DOMAINS_MAX;
}

void fr_store_section_encode(const struct fr_store_section *section, struct fr_buffer *out)
{
    fr_put_u32(out, VERSION);
    fr_put_u32(out, section->n_tables);
    for (uint32_t t = 0; t < section->n_tables; t++) {
        for (uint32_t i = 0; i < FR_STORE_COUNTS; i++)
            fr_put_u64(out, section->tables[t].counts.of[i]);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            fr_put_u64(out, section->tables[t].rows[s]);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            fr_put_u64(out, section->tables[t].pending[s]);
        fr_put_u32(out, section->tables[t].slice_bits);
    }
    fr_put_u64(out, section->n_carried);
    for (size_t i = 0; i < section->n_carried; i++) {
        fr_put_u32(out, section->carried[i].table);
        fr_put_u64(out, section->carried[i].key);
        fr_put_u64(out, (uint64_t)section->carried[i].seen_ms);
        fr_put_u32(out, section->carried[i].count);
    }
}

enum fr_status fr_store_section_parse(const uint8_t *bytes, size_t size, struct fr_store_section *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    struct fr_store_section read = {0};
    uint32_t n_counts = counts_of(fr_take_u32(&reader));
    if (!reader.failed && n_counts == 0)
        return FR_E_MISMATCH;
    read.n_tables = fr_take_u32(&reader);
    if (read.n_tables > FR_TABLES_MAX)
        return FR_E_CORRUPT;
    read.tables = fr_alloc(read.n_tables, sizeof(*read.tables));
    for (uint32_t t = 0; t < read.n_tables; t++) {
        for (uint32_t i = 0; i < n_counts; i++)
            read.tables[t].counts.of[i] = fr_take_u64(&reader);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            read.tables[t].rows[s] = fr_take_u64(&reader);
        for (uint32_t s = 0; s < FR_SHARDS; s++)
            read.tables[t].pending[s] = fr_take_u64(&reader);
        read.tables[t].slice_bits = fr_take_u32(&reader);
    }
    read.n_carried = fr_take_u64(&reader);
    size_t left = (size_t)(reader.end - reader.at);
    if (reader.failed || left % CARRIED_BYTES != 0 || read.n_carried != left / CARRIED_BYTES) {
        free(read.tables);
        return FR_E_CORRUPT;
    }
    read.carried = fr_alloc(read.n_carried + 1, sizeof(*read.carried));
    for (size_t i = 0; i < read.n_carried; i++) {
        struct fr_carried_key *key = &read.carried[i];
        key->table = fr_take_u32(&reader);
        key->key = fr_take_u64(&reader);
        key->seen_ms = (int64_t)fr_take_u64(&reader);
        key->count = fr_take_u32(&reader);
    }
    *out = read;
    return FR_OK;
}

void fr_store_section_release(struct fr_store_section *section)
{
    free(section->tables);
    free(section->carried);
    *section = (struct fr_store_section){0};
}
