/* Reads a state directory into memory: the walk of recovery without a store.
 *
 * Images come from the cold store first, then epoch by epoch, and a later image replaces an earlier
 * one: an open-addressing index over (table, key) finds its place. At the end, absences are removed
 * and the rest is sorted once, by table name and key, which is the order of both dumps. Sections
 * are copied as they are; code that needs a section parses it (state_sections.c).
 *
 * Published dense parameters may be older than the newest epoch of a running daemon
 * (export.dense_every). Those that changed since are searched in the journal backwards, as the
 * values that a replica holds.
 *
 * Thread: one. Reading does not write, lock or wait. */
#include "state/state_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "state/state_sections.h"
#include "store/store.h"

enum { KEYS_MIN = 1024, SECTIONS_MIN = 64, PIECE_BYTES = 1 << 20 };
#define KEYS_MAX ((size_t)UINT32_MAX / 2)

/* ---- the index ---- */

static size_t slot_of(const struct fr_tool_state *state, uint32_t table, uint64_t key)
{
    size_t mask = state->index_size - 1;
    size_t slot = (size_t)fr_fmix64(key + table) & mask;
    while (state->index[slot] != 0) {
        const struct fr_tool_state_key *held = &state->keys[state->index[slot] - 1];
        if (held->key == key && held->table == table)
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static void grow(struct fr_tool_state *state)
{
    state->capacity_keys = state->capacity_keys ? 2 * state->capacity_keys : KEYS_MIN;
    state->keys = fr_realloc(state->keys, state->capacity_keys, sizeof(*state->keys));
    free(state->index);
    state->index_size = 2 * state->capacity_keys;
    state->index = fr_alloc(state->index_size, sizeof(*state->index));
    for (size_t i = 0; i < state->n_keys; i++)
        state->index[slot_of(state, state->keys[i].table, state->keys[i].key)] = (uint32_t)i + 1;
}

static struct fr_tool_state_key *find_or_add(struct fr_tool_state *state, uint32_t table, uint64_t key)
{
    if (state->n_keys == state->capacity_keys)
        grow(state);
    size_t slot = slot_of(state, table, key);
    if (state->index[slot] == 0) {
        state->keys[state->n_keys++] = (struct fr_tool_state_key){.key = key, .table = table, .kind = FR_IMAGE_ABSENT};
        state->index[slot] = (uint32_t)state->n_keys;
    }
    return &state->keys[state->index[slot] - 1];
}

static uint8_t *take_bytes(struct fr_tool_state *state, size_t size)
{
    if (size > state->piece_left) {
        state->piece_left = size > PIECE_BYTES ? size : PIECE_BYTES;
        state->piece = fr_arena_take(&state->arena, state->piece_left);
    }
    uint8_t *bytes = state->piece;
    state->piece += size;
    state->piece_left -= size;
    return bytes;
}

static enum fr_status take_row(struct fr_tool_state *state, struct fr_tool_state_key *key, const struct fr_image *image)
{
    size_t published = FR_ROW_IMAGE_HEAD + (size_t)state->settings.tables[key->table].value_floats * sizeof(float);
    if (image->size < published || (image->size - FR_ROW_IMAGE_HEAD) % sizeof(float) != 0)
        return FR_E_CORRUPT;
    uint32_t size = state->depth == FR_STATE_PUBLIC ? (uint32_t)published : image->size;
    uint8_t *bytes = key->size == size ? (uint8_t *)(uintptr_t)key->bytes : take_bytes(state, size);
    memcpy(bytes, image->bytes, size);
    key->bytes = bytes;
    key->size = size;
    return FR_OK;
}

/* Keeps blocks of a gate's counters next to the keys. Only the private dump shows them. */
static enum fr_status take_block(struct fr_tool_state *state, const struct fr_image *image)
{
    if (image->table < FR_BLOCK_TABLES || fr_subtable_table(image->table) >= state->settings.n_tables)
        return FR_E_CORRUPT;
    if (state->depth != FR_STATE_PRIVATE)
        return FR_OK;
    struct fr_tool_state_key *key = find_or_add(state, image->table, image->key);
    bool again = key->bytes && key->size == image->size;
    uint8_t *bytes = again ? (uint8_t *)(uintptr_t)key->bytes : take_bytes(state, image->size);
    memcpy(bytes, image->bytes, image->size);
    key->kind = image->kind;
    key->bytes = bytes;
    key->size = image->size;
    return FR_OK;
}

static bool is_wanted(const struct fr_tool_state *state, uint32_t table, uint64_t key)
{
    return state->depth != FR_STATE_KEY || (table == state->only.table && key == state->only.key);
}

static enum fr_status visit_image(void *self, size_t thread, const struct fr_image *image)
{
    (void)thread; /* one thread, for an exact order */
    struct fr_tool_state *state = self;
    uint32_t table = fr_subtable_table(image->table);
    if (image->kind == FR_IMAGE_BLOCK && state->n_keys < KEYS_MAX)
        return state->depth == FR_STATE_KEY ? FR_OK : take_block(state, image);
    if (!is_wanted(state, table, image->key))
        return FR_OK;
    if (image->table >= FR_BLOCK_TABLES || table >= state->settings.n_tables || state->n_keys >= KEYS_MAX)
        return FR_E_CORRUPT;
    if (image->kind == FR_IMAGE_PENDING && image->size != FR_PENDING_IMAGE_SIZE)
        return FR_E_CORRUPT;
    struct fr_tool_state_key *key = find_or_add(state, table, image->key);
    key->kind = image->kind;
    key->reason = image->reason;
    if (image->kind == FR_IMAGE_ROW)
        return take_row(state, key, image);
    if (image->kind == FR_IMAGE_PENDING)
        fr_pending_load(image->bytes, &key->seen_ms, &key->count);
    return FR_OK;
}

static enum fr_status visit_section(void *self, const char *name, const uint8_t *bytes, size_t size)
{
    struct fr_tool_state *state = self;
    if (state->n_sections == state->capacity_sections) {
        state->capacity_sections = state->capacity_sections ? 2 * state->capacity_sections : SECTIONS_MIN;
        state->sections = fr_realloc(state->sections, state->capacity_sections, sizeof(*state->sections));
    }
    struct fr_tool_state_section *section = &state->sections[state->n_sections++];
    *section = (struct fr_tool_state_section){.bytes = {0}};
    snprintf(section->name, sizeof(section->name), "%s", name);
    fr_buffer_append(&section->bytes, bytes, size);
    return FR_OK;
}

const struct fr_buffer *fr_tool_state_find_section(const struct fr_tool_state *state, const char *name)
{
    for (size_t i = 0; i < state->n_sections; i++)
        if (strcmp(state->sections[i].name, name) == 0)
            return &state->sections[i].bytes;
    return NULL;
}

/* ---- after all images ---- */

/* Restores keys that wait for their pending image (store/cut.c): their image is absent, and the
 * section "store" says that they are pending. */
static enum fr_status take_carried(struct fr_tool_state *state, struct fr_err *err)
{
    struct fr_store_section store = {0};
    if (!fr_tool_has_store_section(state))
        return FR_OK;
    enum fr_status status = fr_tool_store_section(state, &store, err);
    for (size_t i = 0; status == FR_OK && i < store.n_carried; i++) {
        const struct fr_carried_key *carried = &store.carried[i];
        uint32_t table = fr_subtable_table(carried->table);
        if (carried->table >= FR_BLOCK_TABLES || table >= state->settings.n_tables) {
            status = fr_err_set(err, FR_E_CORRUPT, "section \"store\" names table %" PRIu32, carried->table);
            break;
        }
        if (!is_wanted(state, table, carried->key))
            continue;
        struct fr_tool_state_key *key = find_or_add(state, table, carried->key);
        key->kind = FR_IMAGE_PENDING;
        key->count = carried->count;
        key->seen_ms = carried->seen_ms;
    }
    fr_store_section_release(&store);
    return status;
}

static int compare_names(const void *left, const void *right)
{
    const struct fr_codec_table *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static void rank_tables(struct fr_tool_state *state)
{
    uint32_t n = state->settings.n_tables;
    const struct fr_codec_table **tables = fr_alloc(n ? n : 1, sizeof(*tables));
    state->table_rank = fr_alloc(n ? n : 1, sizeof(*state->table_rank));
    for (uint32_t i = 0; i < n; i++)
        tables[i] = &state->settings.tables[i];
    qsort(tables, n, sizeof(*tables), compare_names);
    for (uint32_t i = 0; i < n; i++)
        state->table_rank[tables[i] - state->settings.tables] = i;
    free(tables);
}

static uint32_t without_domain(uint32_t number)
{
    return (number & FR_BLOCK_TABLES) | fr_subtable_table(number);
}

/* Compares by the order of the dumps. During sorting, `table` holds the table's rank. Blocks come
 * after all keys; blocks of one number in several domains come by domain. */
static int compare_keys(const void *left, const void *right)
{
    const struct fr_tool_state_key *a = left, *b = right;
    if (without_domain(a->table) != without_domain(b->table))
        return without_domain(a->table) < without_domain(b->table) ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->table > b->table) - (a->table < b->table);
}

/* Replaces the table in a number of a table or of a block. */
static uint32_t with_table(uint32_t number, const uint32_t *tables)
{
    return number - fr_subtable_table(number) + tables[fr_subtable_table(number)];
}

static void sort_keys(struct fr_tool_state *state)
{
    uint32_t n_tables = state->settings.n_tables;
    size_t n = 0;
    for (size_t i = 0; i < state->n_keys; i++) {
        struct fr_tool_state_key key = state->keys[i];
        if ((key.kind == FR_IMAGE_ABSENT && state->depth != FR_STATE_KEY) ||
            (key.kind == FR_IMAGE_PENDING && state->depth == FR_STATE_PUBLIC))
            continue;
        state->n_rows += key.kind == FR_IMAGE_ROW;
        key.table = with_table(key.table, state->table_rank);
        state->keys[n++] = key;
    }
    state->n_keys = n;
    free(state->index); /* the places have changed */
    state->index = NULL;
    if (n > 1)
        qsort(state->keys, n, sizeof(*state->keys), compare_keys);
    uint32_t *table_of = fr_alloc(n_tables ? n_tables : 1, sizeof(*table_of));
    for (uint32_t t = 0; t < n_tables; t++)
        table_of[state->table_rank[t]] = t;
    for (size_t i = 0; i < n; i++)
        state->keys[i].table = with_table(state->keys[i].table, table_of);
    free(table_of);
}

/* ---- the dense parameters that replicas hold ---- */

/* States of a parameter in the backward search. Epochs after the newest one that published dense
 * parameters show which parameters changed since; that epoch and older ones have their published
 * values. */
enum found { UNCHANGED, CHANGED, FOUND };

struct publication {
    struct fr_tool_state *state;
    /* the present epoch is the newest that published dense parameters, or an older one */
    bool publishing;
    enum found *of; /* [state->n_published] */
    size_t n_changed;
};

static struct fr_tool_state_section *find_published(struct fr_tool_state *state, const char *parameter, size_t *place)
{
    for (size_t i = 0; i < state->n_published; i++)
        if (strcmp(state->published[i].name + sizeof(FR_SECTION_DENSE) - 1, parameter) == 0) {
            *place = i;
            return &state->published[i];
        }
    return NULL;
}

static enum fr_status look_at_epoch(struct publication *look, const struct fr_epoch *epoch, struct fr_err *err)
{
    const uint8_t *section, *at = NULL;
    size_t size, place;
    struct fr_arena arena = {.block_size = 4096};
    struct fr_announcement *announcement = fr_alloc(1, sizeof(*announcement));
    enum fr_status status = fr_epoch_section(epoch, "announce", &section, &size);
    if (status == FR_OK)
        status = fr_announcement_parse(section, size, &arena, announcement);
    look->publishing = look->publishing || (status == FR_OK && announcement->publish_dense);
    free(announcement);
    fr_arena_release(&arena);
    struct fr_dense_view view;
    while (status == FR_OK && (status = fr_epoch_next_dense(epoch, &at, &view)) == FR_OK) {
        struct fr_tool_state_section *published = find_published(look->state, view.name, &place);
        if (!published)
            continue;
        if (!look->publishing) {
            look->n_changed += look->of[place] == UNCHANGED;
            look->of[place] = CHANGED;
        } else if (look->of[place] == CHANGED) {
            status = fr_epoch_section(epoch, published->name, &section, &size);
            fr_buffer_clear(&published->bytes);
            fr_buffer_append(&published->bytes, section, size);
            look->of[place] = FOUND;
            look->n_changed--;
        }
    }
    return status == FR_EOF
               ? FR_OK
               : fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " does not parse, or announces nothing", epoch->epoch);
}

static void copy_dense(struct fr_tool_state *state)
{
    state->published = fr_alloc(state->n_sections, sizeof(*state->published));
    for (size_t i = 0; i < state->n_sections; i++) {
        const struct fr_tool_state_section *from = &state->sections[i];
        if (!fr_is_dense_section(from->name))
            continue;
        struct fr_tool_state_section *to = &state->published[state->n_published++];
        memcpy(to->name, from->name, sizeof(to->name));
        fr_buffer_append(&to->bytes, from->bytes.data, from->bytes.size);
    }
}

static enum fr_status find_published_dense(struct fr_tool_state *state, struct fr_err *err)
{
    struct fr_trainer_history trainer;
    enum fr_status status = fr_tool_trainer_section(state, &trainer, err);
    if (status != FR_OK)
        return status;
    copy_dense(state);
    state->published_found = trainer.dense_published;
    struct publication look = {.state = state};
    look.of = fr_alloc(state->n_published + 1, sizeof(*look.of));
    struct fr_buffer bytes = {0};
    for (uint64_t e = state->status.epoch; e >= state->status.journal_first && e > 0 && status == FR_OK; e--) {
        struct fr_epoch epoch;
        if (state->published_found)
            break;
        fr_buffer_clear(&bytes);
        status = fr_durable_read_epoch(state->durable, e, &bytes, NULL, err);
        if (status == FR_OK && fr_epoch_parse(bytes.data, bytes.size, &epoch) != FR_OK)
            status = fr_err_set(err, FR_E_CORRUPT, "epoch %" PRIu64 " does not parse", e);
        if (status == FR_OK)
            status = look_at_epoch(&look, &epoch, err);
        state->published_found = status == FR_OK && look.publishing && look.n_changed == 0;
    }
    free(look.of);
    fr_buffer_release(&bytes);
    return status == FR_E_NOT_FOUND ? FR_OK : status; /* the daemon trimmed it during the search */
}

/* ---- open ---- */

static enum fr_status read_head(struct fr_tool_state *state, struct fr_err *err)
{
    struct fr_buffer head = {0};
    enum fr_status status = fr_durable_newest_head(state->durable, &head, err);
    if (status == FR_OK) {
        status = fr_codec_settings_parse(head.data, head.size, &state->settings);
        if (status != FR_OK)
            fr_err_set(err, status, "the head of the journal file of epoch %" PRIu64 " does not parse (%s)",
                       state->status.epoch, fr_status_name(status));
    }
    fr_buffer_release(&head);
    return status;
}

static enum fr_status read_announcement(struct fr_tool_state *state, struct fr_err *err)
{
    const struct fr_buffer *section = fr_tool_state_find_section(state, "announce");
    if (!section || fr_announcement_parse(section->data, section->size, &state->arena, &state->announcement) != FR_OK)
        return fr_err_set(err, FR_E_CORRUPT, "the section \"announce\" is missing or does not parse");
    return FR_OK;
}

typedef enum fr_status choose_key(void *self, const struct fr_codec_settings *settings,
                                  struct fr_tool_state_choice *out, struct fr_err *err);

static enum fr_status read_state(struct fr_tool_state *state, choose_key *choose, void *self, struct fr_err *err)
{
    struct fr_restore_visitor visitor = {
        .self = state, .image = state->depth == FR_STATE_SECTIONS ? NULL : visit_image, .section = visit_section};
    enum fr_status status = read_head(state, err);
    if (status == FR_OK && choose)
        status = choose(self, &state->settings, &state->only, err);
    if (status == FR_OK)
        status = fr_durable_restore(state->durable, &visitor, err);
    if (status == FR_OK)
        status = read_announcement(state, err);
    if (status == FR_OK && (state->depth == FR_STATE_PRIVATE || state->depth == FR_STATE_KEY))
        status = take_carried(state, err);
    if (status != FR_OK)
        return status;
    rank_tables(state);
    sort_keys(state);
    return state->depth == FR_STATE_PUBLIC ? find_published_dense(state, err) : FR_OK;
}

static enum fr_status open_state(const char *dir, enum fr_tool_state_depth depth, choose_key *choose, void *self,
                                 struct fr_tool_state **out, struct fr_err *err)
{
    struct fr_tool_state *state = fr_alloc(1, sizeof(*state));
    state->depth = depth;
    struct fr_durable_options options = {.dir = dir, .read_only = true};
    enum fr_status status = fr_durable_open(&options, &state->durable, err);
    if (status == FR_OK) {
        fr_durable_get_status(state->durable, &state->status);
        if (state->status.epoch > 0)
            status = read_state(state, choose, self, err);
    }
    if (status != FR_OK) {
        fr_tool_state_close(state);
        return status;
    }
    *out = state;
    return FR_OK;
}

enum fr_status fr_tool_state_open(const char *dir, enum fr_tool_state_depth depth, struct fr_tool_state **out,
                                  struct fr_err *err)
{
    return open_state(dir, depth, NULL, NULL, out, err);
}

enum fr_status fr_tool_state_open_key(const char *dir, choose_key *choose, void *self, struct fr_tool_state **out,
                                      struct fr_err *err)
{
    return open_state(dir, FR_STATE_KEY, choose, self, out, err);
}

void fr_tool_state_close(struct fr_tool_state *state)
{
    if (!state)
        return;
    fr_durable_close(state->durable);
    fr_codec_settings_release(&state->settings);
    for (size_t i = 0; i < state->n_sections; i++)
        fr_buffer_release(&state->sections[i].bytes);
    for (size_t i = 0; i < state->n_published; i++)
        fr_buffer_release(&state->published[i].bytes);
    free(state->sections);
    free(state->published);
    free(state->keys);
    free(state->index);
    free(state->table_rank);
    fr_arena_release(&state->arena);
    free(state);
}
