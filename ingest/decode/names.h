/* Finds the slot number of a slot's key, and keeps the set of keys that a map has had so far.
 * Computed slots have no key.
 *
 * Producers write the slots of every sample in the same order, so the first guess is the slot
 * that followed the previous slot in the last sample. Only a wrong guess needs a hash.
 *
 * Owner: the decoder. */
#ifndef FR_DECODE_NAMES_H
#define FR_DECODE_NAMES_H

#include "base/buffer.h"
#include "base/cursor.h"
#include "base/order.h"
#include "conf/conf.h"

/* Numbers of the beginnings of maps, which follow the numbers of slots: a guess depends on the
 * slot before, or, for the first slot of a map, on the kind of map. */
enum { FR_NAMES_OWN, FR_NAMES_SHARED, FR_NAMES_BEGINS };

struct fr_slot_name {
    uint8_t size;
    uint8_t bytes[FR_NAME_MAX + 2]; /* empty for a longer key, which is found by its hash */
};

struct fr_slot_names {
    const struct fr_conf_slot *slots; /* borrowed */
    uint32_t n_slots;
    uint32_t mask;    /* of both tables: a power of two above twice the slots, less 1 */
    int32_t *by_name; /* slot by hash of its name; FR_NO_INDEX: empty */
    /* slot by hash of its index, for slots that declare one; FR_NO_INDEX: empty */
    int32_t *by_index;
    const char **keys;            /* [n_slots] keys in samples, borrowed */
    uint8_t *length;              /* [n_slots] of the keys */
    int32_t *next;                /* [n_slots + FR_NAMES_BEGINS] slot seen last after this one */
    struct fr_slot_name *encoded; /* [n_slots] the key as a MessagePack string */
};

void fr_decode_names_init(struct fr_slot_names *names, const struct fr_conf *conf);
void fr_decode_names_release(struct fr_slot_names *names);
/* Returns the slot number of a string or unsigned integer key; FR_NO_INDEX: no slot has it.
 * `previous`: the slot before it in this map, or n_slots + FR_NAMES_*. */
int32_t fr_decode_names_find(struct fr_slot_names *names, const struct fr_token *key, uint32_t previous);
/* Returns the slot number if the next key is the guessed name in MessagePack, and consumes that
 * key; otherwise returns FR_NO_INDEX and consumes nothing. */
static inline int32_t fr_decode_names_expect(const struct fr_slot_names *names, struct fr_cursor *cursor,
                                             uint32_t previous)
{
    int32_t guess = names->next[previous];
    if (guess == FR_NO_INDEX || !fr_cursor_take(cursor, names->encoded[guess].bytes, names->encoded[guess].size))
        return FR_NO_INDEX;
    return guess;
}

struct fr_key_entry {
    uint64_t serial;
    uint64_t hash;
    size_t at; /* into bytes */
    uint32_t size;
};

/* Keys without a number (unknown slots, x_ keys), kept only to find duplicates. A new serial
 * empties the set. */
struct fr_key_set {
    struct fr_key_entry *entries;
    size_t capacity; /* power of two or 0 */
    size_t count;
    uint64_t serial;
    struct fr_order order; /* the order of places, with a salt of its own */
    struct fr_buffer bytes;
};

void fr_key_set_release(struct fr_key_set *set);
/* Adds a key; false: the set has it already. Keys of different `scope` (0 or 1: levels of maps that
 * are open at the same time) are different keys. */
bool fr_key_set_add(struct fr_key_set *set, uint64_t serial, unsigned scope, const struct fr_token *key);

#endif
