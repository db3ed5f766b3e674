/* A state directory, read for the tool: its newest durable epoch as images and sections. Read-only:
 * works while a daemon runs and on a damaged directory (then FR_E_CORRUPT contains the damage).
 * Private to tool.
 *
 * Memory: FR_STATE_PUBLIC keeps the published floats of every row, FR_STATE_PRIVATE whole rows and
 * pending keys, FR_STATE_KEY one key. Thread: one. Owns: all memory of the handle; bytes stay valid
 * until fr_tool_state_close. */
#ifndef FR_TOOL_STATE_READER_H
#define FR_TOOL_STATE_READER_H

#include "codec/codec.h"
#include "durable/durable.h"

enum fr_tool_state_depth { FR_STATE_SECTIONS, FR_STATE_KEY, FR_STATE_PUBLIC, FR_STATE_PRIVATE };

struct fr_tool_state_key {
    uint64_t key;
    /* the table, whatever the domain; of a block, FR_BLOCK_TABLES + its sub-table */
    uint32_t table;
    uint8_t kind;    /* enum fr_image_kind; absent only with FR_STATE_KEY */
    uint8_t reason;  /* enum fr_absent_reason; valid for absent keys */
    uint32_t count;  /* valid for pending keys */
    int64_t seen_ms; /* valid for pending keys */
    uint32_t size;   /* bytes in `bytes` */
    /* Of a row: struct fr_row_head, then floats (FR_STATE_PUBLIC: value_floats of them). */
    const uint8_t *bytes;
};

/* The one key that FR_STATE_KEY keeps. */
struct fr_tool_state_choice {
    uint32_t table;
    uint64_t key;
};

struct fr_tool_state_section {
    char name[FR_SECTION_NAME_MAX];
    struct fr_buffer bytes;
};

struct fr_tool_state {
    struct fr_durable *durable;
    struct fr_durable_status status;
    /* from the newest epoch's journal file; all zero when there is no epoch */
    struct fr_codec_settings settings;
    struct fr_tool_state_section *sections; /* ascending by name, each with its newest value */
    size_t n_sections, capacity_sections;
    struct fr_announcement announcement;
    /* Sections of dense parameters as last published, ascending by name. A parameter is missing
     * when the journal no longer contains what was published before its last change.
     * FR_STATE_PUBLIC only. */
    struct fr_tool_state_section *published;
    size_t n_published;
    bool published_found;
    struct fr_tool_state_key *keys; /* by table name, then key; blocks follow in the same order */
    size_t n_keys;
    uint64_t n_rows;

    uint32_t *table_rank; /* [n_tables] the position of the table when sorted by name */
    size_t capacity_keys;
    uint32_t *index; /* open addressing over keys; 0: free, else place + 1 */
    size_t index_size;
    enum fr_tool_state_depth depth;
    struct fr_tool_state_choice only; /* with FR_STATE_KEY */
    struct fr_arena arena;
    uint8_t *piece;
    size_t piece_left;
};

/* A state without any epoch can be opened: status.epoch is 0 and the rest is empty. */
enum fr_status fr_tool_state_open(const char *dir, enum fr_tool_state_depth depth, struct fr_tool_state **out,
                                  struct fr_err *err) FR_MUST_CHECK;
/* Opens a state with FR_STATE_KEY: `keys` has at most one key, which `choose` finds by the state's
 * model. `choose` is not called for a state without any epoch. */
enum fr_status fr_tool_state_open_key(const char *dir,
                                      enum fr_status (*choose)(void *self, const struct fr_codec_settings *settings,
                                                               struct fr_tool_state_choice *out, struct fr_err *err),
                                      void *self, struct fr_tool_state **out, struct fr_err *err) FR_MUST_CHECK;
void fr_tool_state_close(struct fr_tool_state *state);
/* NULL: there is no such section. */
const struct fr_buffer *fr_tool_state_find_section(const struct fr_tool_state *state, const char *name);

/* Writes the public dump of the state (codec/dump.h); summary may be NULL. FR_E_NOT_FOUND: the
 * journal no longer holds the dense parameters as they were published. `write` returns 0 to
 * continue; any other value ends the dump with FR_E_IO. */
struct fr_tool_state_summary {
    uint64_t n_dense, hash;
};
enum fr_status fr_tool_state_dump_public(const struct fr_tool_state *state,
                                         int (*write)(void *self, const void *bytes, size_t size), void *self,
                                         struct fr_tool_state_summary *summary, struct fr_err *err) FR_MUST_CHECK;
/* Writes everything that determines what the daemon does next, exactly. The closing line is
 * {"hash":"0x.."}: XXH3-64 of all bytes before it. The dump contains no wall time, timeline or
 * epoch number. Needs FR_STATE_PRIVATE. */
enum fr_status fr_tool_state_dump_private(const struct fr_tool_state *state,
                                          int (*write)(void *self, const void *bytes, size_t size), void *self,
                                          struct fr_err *err) FR_MUST_CHECK;
/* Writes the metrics of a state directory, also of a running daemon, in the form of GET /auc.
 * FR_E_NOT_FOUND: there is no state, or no epoch. */
enum fr_status fr_tool_metrics_document(const char *dir, struct fr_buffer *out, struct fr_err *err) FR_MUST_CHECK;

#endif
