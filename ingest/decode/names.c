/* Finds slot names by open addressing and by expectation, and keeps the duplicate set. See
 * names.h.
 *
 * The name table is filled once, from the config, so a plain mixing of the first and last eight
 * bytes suffices; the duplicate set is filled with names from records, so the place of a name
 * depends on a salt of the set's own (base/order.h), and whole names are compared. Without a
 * salt, a record could choose names that all share a place. */
#include "names.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

static uint64_t name_hash(const uint8_t *bytes, size_t size)
{
    uint64_t head = 0, tail = 0;
    memcpy(&head, bytes, size < 8 ? size : 8);
    if (size > 8)
        memcpy(&tail, bytes + size - 8, 8);
    return fr_fmix64(head ^ (tail * 0x9e3779b97f4a7c15ULL) ^ ((uint64_t)size << 56));
}

/* Encodes the key as the shortest MessagePack string. A longer encoding of the same key is found
 * by its hash. */
static void encode(struct fr_slot_name *out, const char *name, uint8_t size)
{
    uint8_t at = 0;
    if (size >= FR_NAME_MAX) {
        *out = (struct fr_slot_name){1, {0xc1}}; /* a byte with which no value begins */
        return;
    }
    if (size >= 32)
        out->bytes[at++] = 0xd9;
    out->bytes[at++] = size < 32 ? (uint8_t)(0xa0 | size) : size;
    memcpy(out->bytes + at, name, size);
    out->size = (uint8_t)(at + size);
}

void fr_decode_names_init(struct fr_slot_names *names, const struct fr_conf *conf)
{
    uint32_t size = 8;
    while (size < 2 * conf->n_slots)
        size *= 2;
    names->slots = conf->slots;
    names->n_slots = conf->n_slots;
    names->mask = size - 1;
    names->by_name = fr_alloc(size, sizeof(*names->by_name));
    names->by_index = fr_alloc(size, sizeof(*names->by_index));
    names->keys = fr_alloc((size_t)conf->n_slots + 1, sizeof(*names->keys));
    names->length = fr_alloc((size_t)conf->n_slots + 1, sizeof(*names->length));
    names->next = fr_alloc((size_t)conf->n_slots + FR_NAMES_BEGINS, sizeof(*names->next));
    names->encoded = fr_alloc((size_t)conf->n_slots + 1, sizeof(*names->encoded));
    for (uint32_t i = 0; i < size; i++)
        names->by_name[i] = names->by_index[i] = FR_NO_INDEX;
    for (uint32_t s = 0; s < conf->n_slots + FR_NAMES_BEGINS; s++)
        names->next[s] = FR_NO_INDEX;
    for (uint32_t s = 0; s < conf->n_slots; s++) {
        const struct fr_conf_slot *slot = &conf->slots[s];
        names->keys[s] = fr_conf_slot_key(slot);
        names->length[s] = (uint8_t)strlen(names->keys[s]);
        if (slot->source != FR_SOURCE_SAMPLE)
            continue;
        encode(&names->encoded[s], names->keys[s], names->length[s]);
        uint64_t at = name_hash((const uint8_t *)names->keys[s], names->length[s]);
        while (names->by_name[at & names->mask] != FR_NO_INDEX)
            at++;
        names->by_name[at & names->mask] = (int32_t)s;
        if (slot->index < 0)
            continue;
        for (at = fr_fmix64((uint64_t)slot->index); names->by_index[at & names->mask] != FR_NO_INDEX;)
            at++;
        names->by_index[at & names->mask] = (int32_t)s;
    }
}

void fr_decode_names_release(struct fr_slot_names *names)
{
    free(names->by_name);
    free(names->by_index);
    free(names->keys);
    free(names->length);
    free(names->next);
    free(names->encoded);
    memset(names, 0, sizeof(*names));
}

/* Compares short names by overlapping words, instead of memcmp: this saves 4 % of the time to
 * decode a wide sample (README). */
static inline bool same_bytes(const uint8_t *a, const uint8_t *b, size_t size)
{
    if (size >= 8) {
        for (size_t at = 0; at + 8 < size; at += 8)
            if (fr_load_u64(a + at) != fr_load_u64(b + at))
                return false;
        return fr_load_u64(a + size - 8) == fr_load_u64(b + size - 8);
    }
    if (size >= 4)
        return fr_load_u32(a) == fr_load_u32(b) && fr_load_u32(a + size - 4) == fr_load_u32(b + size - 4);
    return size == 0 || (a[0] == b[0] && a[size / 2] == b[size / 2] && a[size - 1] == b[size - 1]);
}

static inline bool is_key_of(const struct fr_slot_names *names, int32_t slot, const struct fr_token *key)
{
    if (key->kind == FR_TOKEN_STRING)
        return names->length[slot] == key->size &&
               same_bytes((const uint8_t *)names->keys[slot], key->bytes, key->size);
    return names->slots[slot].index >= 0 && (uint64_t)names->slots[slot].index == key->u;
}

int32_t fr_decode_names_find(struct fr_slot_names *names, const struct fr_token *key, uint32_t previous)
{
    int32_t *next = &names->next[previous];
    if (*next != FR_NO_INDEX && is_key_of(names, *next, key))
        return *next;
    bool named = key->kind == FR_TOKEN_STRING;
    const int32_t *table = named ? names->by_name : names->by_index;
    uint64_t at = named ? name_hash(key->bytes, key->size) : fr_fmix64(key->u);
    for (;; at++) { /* the loop ends, because at least half of the table is empty */
        int32_t slot = table[at & names->mask];
        if (slot == FR_NO_INDEX)
            return FR_NO_INDEX;
        if (is_key_of(names, slot, key))
            return *next = slot;
    }
}

void fr_key_set_release(struct fr_key_set *set)
{
    free(set->entries);
    fr_buffer_release(&set->bytes);
    memset(set, 0, sizeof(*set));
}

/* Returns the entry that holds the key, or else the free entry where it belongs. */
static struct fr_key_entry *place(const struct fr_key_set *set, uint64_t hash, const uint8_t *bytes, uint32_t size)
{
    /* the capacity is a power of two, 64 or more */
    for (uint64_t at = hash >> (64 - __builtin_ctzll(set->capacity));; at++) {
        struct fr_key_entry *entry = &set->entries[at & (set->capacity - 1)];
        if (entry->serial != set->serial)
            return entry;
        if (entry->hash == hash && entry->size == size && memcmp(set->bytes.data + entry->at, bytes, size) == 0)
            return entry;
    }
}

static void grow(struct fr_key_set *set)
{
    struct fr_key_entry *old = set->entries;
    size_t n = set->capacity;
    if (n == 0)
        set->order = fr_order_of(fr_order_random_salt());
    set->capacity = n ? 2 * n : 64;
    set->entries = fr_alloc(set->capacity, sizeof(*set->entries));
    for (size_t i = 0; i < n; i++) {
        if (old[i].serial == set->serial)
            *place(set, old[i].hash, set->bytes.data + old[i].at, old[i].size) = old[i];
    }
    free(old);
}

bool fr_key_set_add(struct fr_key_set *set, uint64_t serial, unsigned scope, const struct fr_token *key)
{
    FR_CHECK(serial != 0); /* 0 marks entries that were never used */
    if (set->serial != serial) {
        set->serial = serial;
        set->count = 0;
        fr_buffer_clear(&set->bytes);
    }
    if (2 * (set->count + 1) > set->capacity)
        grow(set);
    uint64_t hash = fr_order_hash(&set->order, fr_xxh3_seed(key->bytes, key->size, set->order.salt + scope));
    /* The scope is kept as the first byte of a name, so equal names of two scopes differ even if
     * their hashes are equal. */
    size_t at = set->bytes.size;
    fr_put_u8(&set->bytes, (uint8_t)scope);
    fr_buffer_append(&set->bytes, key->bytes, key->size);
    struct fr_key_entry *entry = place(set, hash, set->bytes.data + at, key->size + 1);
    if (entry->serial == serial) {
        set->bytes.size = at;
        return false;
    }
    *entry = (struct fr_key_entry){.serial = serial, .hash = hash, .at = at, .size = key->size + 1};
    set->count++;
    return true;
}
