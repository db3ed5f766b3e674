/* Epochs as bytes: what the owner loop stages at a cut, what the journal holds, and what fold,
 * recovery and publisher read back.
 *
 * An epoch consists of its number, timeline, salt, the previous epoch's digest, key images (sorted
 * by table, then ascending by the key's hash in the state's order) and named sections (sorted by
 * name). Its bytes are a pure function of the staged set and the salt. Its digest is SHA-256 over
 * all its bytes; because the bytes contain the previous digest, the epochs form a chain.
 * docs/formats/state.md has the layout, tests/golden/epoch.bin is a golden file.
 *
 * A section is an absolute image. A section that an epoch does not hold keeps its value from the
 * newest earlier epoch that does. Fold, recovery and tools follow this rule, so an epoch needs to
 * hold only the sections that changed.
 *
 * A value whose parts change separately is stored as several sections, `<name>/<part>`. Its owner
 * lists the current parts in the section `<name>`; a part that is not listed has no meaning. */
#ifndef FR_DURABLE_EPOCH_H
#define FR_DURABLE_EPOCH_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/status.h"
#include "durable/image.h"

/* Two sections for each dense parameter, of which a delta may have 4096, and one for each task. A
 * section's name contains a parameter's. */
enum { FR_SECTIONS_MAX = 16384, FR_SECTION_NAME_MAX = 192 };

struct fr_stage_section {
    char name[FR_SECTION_NAME_MAX];
    struct fr_buffer bytes; /* memory is kept for the next epoch, also beyond n_sections */
};

/* Bytes of the head before each image in an epoch; bytes that a stage leaves free before its epoch
 * for the journal's record head. */
enum { FR_IMAGE_HEAD = 18, FR_STAGE_FRONT = 16 };

/* Filled by the owner loop, handed to the durable thread, then reused. Initialise with
 * fr_stage_init; zeroed memory is not enough. */
struct fr_stage {
    uint64_t epoch;
    uint64_t timeline;
    /* FR_STAGE_FRONT bytes, then the epoch as stored. From the cut on, the ordered images are in
     * their final place; once the epoch is encoded, all of it is there. */
    struct fr_buffer record;
    size_t n_ordered, ordered_bytes;
    uint32_t ordered_table; /* table of the last ordered image */
    struct fr_arena arena;  /* bytes of loose images */
    struct fr_image *loose;
    size_t n_loose, capacity_loose;
    size_t n_images; /* ordered and loose together */
    struct fr_stage_section *sections;
    size_t n_sections, capacity_sections;
    uint64_t image_bytes;
    /* The unused rest of an arena block that small images share. An arena request for each image
     * would cost 64 bytes each. */
    uint8_t *piece;
    size_t piece_left;
    /* The members from here on are not stored. They travel with the stage to the threads that wait
     * until the epoch is durable. */
    uint64_t dead_sequence;
    /* Once this epoch is durable, epochs up to this number may be published. Smaller than this
     * epoch while publishing is held. */
    uint64_t publishable;
    uint64_t cut_mono_ns;
    bool last; /* true in the last epoch of a drain */
};

void fr_stage_init(struct fr_stage *stage);
void fr_stage_clear(struct fr_stage *stage); /* empties the stage and keeps its memory */
void fr_stage_release(struct fr_stage *stage);
/* Bytes that the epoch takes in the journal. */
uint64_t fr_stage_bytes(const struct fr_stage *stage);
/* Ordered images are written directly where the epoch will have them. The caller knows their order,
 * ascending by (table, hash), and proceeds in three steps, before any loose image: reserve room for
 * at most `bytes` bytes; put each image there with fr_image_put; report the number of images, their
 * bytes and their last table with fr_stage_ordered. Loose images must belong to tables above that
 * last table (FR_CHECK by the encoder). */
uint8_t *fr_stage_reserve(struct fr_stage *stage, size_t bytes);
/* Allocates that room and touches it now, so that the first epochs cause no page faults there. */
void fr_stage_touch(struct fr_stage *stage, size_t bytes);
void fr_stage_ordered(struct fr_stage *stage, size_t n, size_t bytes, uint32_t last_table);
/* Writes the image's head. The image's bytes belong at the address that is returned. */
static inline uint8_t *fr_image_put(uint8_t *to, const struct fr_image *image)
{
    memcpy(to, &image->key, sizeof(image->key));
    memcpy(to + 8, &image->table, sizeof(image->table));
    memcpy(to + 12, &image->size, sizeof(image->size));
    to[16] = image->kind;
    to[17] = image->reason;
    return to + FR_IMAGE_HEAD;
}
/* Makes room for the bytes of one loose image (8-byte aligned); the caller fills them before the
 * stage is handed over. A key may be staged at most once. An absent image has a reason and no
 * bytes; any other image has bytes and no reason (FR_CHECK). image->bytes is not read. */
uint8_t *fr_stage_image(struct fr_stage *stage, const struct fr_image *image);
/* Returns the buffer of a new, empty section, valid until the next call. A name is [a-z_]+,
 * optionally followed by '/' and printable ASCII without blanks, at most FR_SECTION_NAME_MAX - 1
 * bytes in all. A second section of the same name is a bug (FR_CHECK by the encoder). */
struct fr_buffer *fr_stage_section(struct fr_stage *stage, const char *name);

/* Completes stage->record: after the FR_STAGE_FRONT bytes, which belong to the caller, the record
 * is the whole epoch. Sorts loose images in place, with scratch memory from the stage's arena. May
 * be called again. A loose key that was staged twice is a bug (FR_CHECK). */
void fr_epoch_complete(struct fr_stage *stage, const struct fr_order *order, const struct fr_sha256 *previous);

/* A checked view of an epoch's bytes; borrows them. */
struct fr_epoch {
    uint64_t epoch, timeline, salt;
    struct fr_sha256 previous, digest;
    uint64_t n_images;
    uint64_t n_sections;
    const uint8_t *images_begin, *images_end;
    const uint8_t *sections_begin, *sections_end;
};
/* Checks lengths and order and computes the digest. FR_E_CORRUPT: a check failed. */
enum fr_status fr_epoch_parse(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* Like fr_epoch_parse without computing the digest, which is all zeros: for bytes whose digest was
 * compared before. */
enum fr_status fr_epoch_view(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* Like fr_epoch_view without checking the images: for bytes that this process encoded and has kept
 * in memory since. */
enum fr_status fr_epoch_own(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* Iterates in (table, hash) order. *at = NULL begins; FR_EOF is returned at the end. */
enum fr_status fr_epoch_next(const struct fr_epoch *epoch, const uint8_t **at, struct fr_image *out);
/* FR_E_NOT_FOUND: the epoch has no section of this name. */
enum fr_status fr_epoch_section(const struct fr_epoch *epoch, const char *name, const uint8_t **bytes, size_t *size);
enum fr_status fr_epoch_next_section(const struct fr_epoch *epoch, const uint8_t **at, char name[FR_SECTION_NAME_MAX],
                                     const uint8_t **bytes, size_t *size);

/* ---- sections that two modules share ---- */

/* Section "announce": the content of the delta's commit record. The trainer writes the section, the
 * publisher reads it. */
enum { FR_ANNOUNCE_TASKS_MAX = 16, FR_ANNOUNCE_PARTITIONS_MAX = 4096 };
struct fr_announced_offset {
    char topic[250];
    int32_t partition;
    int64_t next_offset;
};

/* The order of offsets, for qsort: by topic, then partition. */
int fr_announced_offsets_compare(const void *left, const void *right);

struct fr_announced_snapshot {
    char name[192]; /* "": no snapshot */
    uint64_t bytes;
    struct fr_sha256 sha256; /* of the snapshot's manifest */
};

struct fr_announcement {
    int64_t watermark_ms;
    uint64_t samples;   /* samples trained in this history */
    int64_t wall_ms;    /* `t`: wall time of the cut; in lockstep, the watermark */
    bool publish_model; /* this epoch's delta contains the `model` record */
    bool publish_dense;
    uint32_t n_tasks;
    struct {
        char task[64];
        double auc; /* since the history began; NaN: undefined */
    } tasks[FR_ANNOUNCE_TASKS_MAX];
    uint32_t n_offsets;
    /* sorted by topic, then partition; owned by the code that filled the struct */
    struct fr_announced_offset *offsets;
    struct fr_announced_snapshot snapshot; /* the newest snapshot that replicas may fetch */
};
/* Offsets must be sorted and distinct, and names must not be empty (FR_CHECK). */
void fr_announcement_encode(const struct fr_announcement *announcement, struct fr_buffer *out);
/* out->offsets points to an array allocated from arena. Errors: FR_E_CORRUPT. */
enum fr_status fr_announcement_parse(const uint8_t *bytes, size_t size, struct fr_arena *arena,
                                     struct fr_announcement *out) FR_MUST_CHECK;

/* A section "dense/<parameter>" holds one parameter used for scoring; an epoch has the sections of
 * the parameters that changed. The trainer writes these sections; publisher, dump and replica tools
 * read them. */
#define FR_SECTION_DENSE "dense/"
struct fr_dense_view {
    char name[160];    /* <layer>/kernel, <layer>/bias, <layer>/0/kernel .. */
    uint32_t n_dims;   /* 1 or 2 */
    uint32_t shape[2]; /* n_values is their product; shape[1] is 1 when n_dims is 1 */
    uint64_t n_values;
    const float *values; /* unaligned in stored bytes: copy with memcpy */
    bool exact;          /* published as f32 whatever export.quantize is */
};
_Static_assert(sizeof(FR_SECTION_DENSE) + 160 <= FR_SECTION_NAME_MAX, "a parameter's name fits a section's");
/* Stages the section of the parameter. */
void fr_dense_stage(struct fr_stage *stage, const struct fr_dense_view *parameter);
static inline bool fr_is_dense_section(const char *name)
{
    return strncmp(name, FR_SECTION_DENSE, sizeof(FR_SECTION_DENSE) - 1) == 0;
}
/* Reads the parameter in a section for which fr_is_dense_section is true. Errors: FR_E_CORRUPT. */
enum fr_status fr_dense_parse(const char *section, const uint8_t *bytes, size_t size,
                              struct fr_dense_view *out) FR_MUST_CHECK;
/* Iterates the parameters of an epoch by name. *at = NULL begins; FR_EOF is returned at the end.
 * Errors: FR_E_CORRUPT. */
enum fr_status fr_epoch_next_dense(const struct fr_epoch *epoch, const uint8_t **at, struct fr_dense_view *out);

#endif
