/* Epochs as bytes: what the owner loop stages at a cut, what the journal holds, what fold, recovery
 * and publisher read back.
 *
 * An epoch is its number, timeline, salt, previous digest, key images (sorted by table, then by the
 * key's hash in the state's order, ascending: the bytes are a pure function of staged set and
 * salt), and named sections (sorted by name). Its digest is SHA-256 over all its bytes, which hold
 * the previous digest: a chain. docs/formats/state.md has the layout, tests/golden/epoch.bin is a
 * golden file.
 *
 * A section is an absolute image. One that an epoch does not hold keeps the value the newest epoch
 * before gave it. Fold, recovery and tools go by that, so an epoch needs to carry what changed
 * only.
 *
 * What belongs together but changes apart is several sections, `<name>/<part>`; an owner's list of
 * its parts stands in its own section `<name>`, so that parts that are no longer listed mean
 * nothing. */
#ifndef FR_DURABLE_EPOCH_H
#define FR_DURABLE_EPOCH_H

#include "base/arena.h"
#include "base/buffer.h"
#include "base/hash.h"
#include "base/order.h"
#include "base/status.h"
#include "durable/image.h"

/* Sections: two per dense parameter, of which a delta may have 4096, and one per task; names hold a
 * parameter's. */
enum { FR_SECTIONS_MAX = 16384, FR_SECTION_NAME_MAX = 192 };

struct fr_stage_section {
    char name[FR_SECTION_NAME_MAX];
    struct fr_buffer bytes; /* kept beyond n_sections too, for the next epoch */
};

/* Bytes in front of an image, as epochs store it; room that a stage leaves in front of its epoch
 * for the journal. */
enum { FR_IMAGE_HEAD = 18, FR_STAGE_FRONT = 16 };

/* Filled by the owner loop, handed to the durable thread, reused. Not zero-initialised by hand:
 * fr_stage_init. */
struct fr_stage {
    uint64_t epoch;
    uint64_t timeline;
    /* FR_STAGE_FRONT bytes and then the epoch as stored: from the cut on its ordered images in
     * their place, and all of it once it is encoded. */
    struct fr_buffer record;
    size_t n_ordered, ordered_bytes;
    uint32_t ordered_table; /* the last */
    struct fr_arena arena;  /* bytes of loose images */
    struct fr_image *loose;
    size_t n_loose, capacity_loose;
    size_t n_images; /* of both kinds */
    struct fr_stage_section *sections;
    size_t n_sections, capacity_sections;
    uint64_t image_bytes;
    /* Free rest of the arena piece that small images share (an arena request of its own would cost
     * 64 bytes each). */
    uint8_t *piece;
    size_t piece_left;
    /* Not stored; carried along for those who wait for durability. */
    uint64_t dead_sequence;
    /* once this one is durable, epochs up to here may be published; older while that is held */
    uint64_t publishable;
    uint64_t cut_mono_ns;
    bool last; /* the drain's last epoch */
};

void fr_stage_init(struct fr_stage *stage);
void fr_stage_clear(struct fr_stage *stage); /* keeps memory */
void fr_stage_release(struct fr_stage *stage);
/* What the epoch takes in the journal. */
uint64_t fr_stage_bytes(const struct fr_stage *stage);
/* Images whose order the caller knows, ascending by (table, hash), are written where the epoch will
 * have them: room for at most `bytes` bytes of them comes first, before any loose image. There the
 * caller puts each with fr_image_put, and says how many there are, how many bytes they take and
 * their last table; loose images must be of tables above that (FR_CHECK, by the encoder). */
uint8_t *fr_stage_reserve(struct fr_stage *stage, size_t bytes);
/* Takes that room and touches it now, so that the first epochs meet no page faults there. */
void fr_stage_touch(struct fr_stage *stage, size_t bytes);
void fr_stage_ordered(struct fr_stage *stage, size_t n, size_t bytes, uint32_t last_table);
/* Writes the image's head; its bytes belong behind it, at what is returned. */
static inline uint8_t *fr_image_put(uint8_t *to, const struct fr_image *image)
{
    memcpy(to, &image->key, sizeof(image->key));
    memcpy(to + 8, &image->table, sizeof(image->table));
    memcpy(to + 12, &image->size, sizeof(image->size));
    to[16] = image->kind;
    to[17] = image->reason;
    return to + FR_IMAGE_HEAD;
}
/* Makes room for the bytes of one image (8-byte aligned); the caller fills them before the stage is
 * handed over. A key comes at most once per stage. An absent image has a reason and no bytes,
 * another has bytes and no reason (FR_CHECK). image->bytes is not read. */
uint8_t *fr_stage_image(struct fr_stage *stage, const struct fr_image *image);
/* Gives the buffer of a new, empty section, valid until the next call. A name is [a-z_]+, then
 * perhaps '/' and printable ASCII without blanks, in all at most FR_SECTION_NAME_MAX - 1 bytes. A
 * second section of the same name is a bug (FR_CHECK, by the encoder). */
struct fr_buffer *fr_stage_section(struct fr_stage *stage, const char *name);

/* Makes stage->record whole: behind FR_STAGE_FRONT bytes that are the caller's it is the epoch
 * (sorts loose images in place; scratch memory comes from the stage's arena). It may be done
 * again. A loose key staged twice is a bug (FR_CHECK). */
void fr_epoch_complete(struct fr_stage *stage, const struct fr_order *order, const struct fr_sha256 *previous);
/* The same, and appends the epoch's bytes to out. */
void fr_epoch_encode(struct fr_stage *stage, const struct fr_order *order, const struct fr_sha256 *previous,
                     struct fr_buffer *out);

/* A checked view of an epoch's bytes; borrows them. */
struct fr_epoch {
    uint64_t epoch, timeline, salt;
    struct fr_sha256 previous, digest;
    uint64_t n_images;
    uint64_t n_sections;
    const uint8_t *images_begin, *images_end;
    const uint8_t *sections_begin, *sections_end;
};
/* Checks lengths and order; FR_E_CORRUPT otherwise. Computes the digest. */
enum fr_status fr_epoch_parse(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* The same, and the digest is not computed but zeros: for bytes whose digest was compared
 * before. */
enum fr_status fr_epoch_view(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* The same for bytes that this process encoded and did not let go: its images are not
 * checked. */
enum fr_status fr_epoch_own(const void *bytes, size_t size, struct fr_epoch *out) FR_MUST_CHECK;
/* A view of what fr_stage_ordered has taken, for fr_epoch_next. */
struct fr_epoch fr_stage_view(const struct fr_stage *stage);
/* Iterates in (table, hash) order: *at = NULL begins, FR_EOF comes at the end. */
enum fr_status fr_epoch_next(const struct fr_epoch *epoch, const uint8_t **at, struct fr_image *out);
/* FR_E_NOT_FOUND when the epoch has no such section. */
enum fr_status fr_epoch_section(const struct fr_epoch *epoch, const char *name, const uint8_t **bytes, size_t *size);
enum fr_status fr_epoch_next_section(const struct fr_epoch *epoch, const uint8_t **at, char name[FR_SECTION_NAME_MAX],
                                     const uint8_t **bytes, size_t *size);

/* ---- sections that two modules share ---- */

/* Section "announce" is what the commit record of the delta says. The trainer writes it, the
 * publisher reads it. */
enum { FR_ANNOUNCE_TASKS_MAX = 16, FR_ANNOUNCE_PARTITIONS_MAX = 4096 };
struct fr_announced_offset {
    char topic[250];
    int32_t partition;
    int64_t next_offset;
};

struct fr_announced_snapshot {
    char name[192]; /* "": none */
    uint64_t bytes;
    struct fr_sha256 sha256; /* of its manifest */
};

struct fr_announcement {
    int64_t watermark_ms;
    uint64_t samples;   /* trained in this history */
    int64_t wall_ms;    /* `t`: wall time of the cut; lockstep: the watermark */
    bool publish_model; /* this epoch's delta carries the `model` record */
    bool publish_dense;
    uint32_t n_tasks;
    struct {
        char task[64];
        double auc; /* lifetime; NaN: undefined */
    } tasks[FR_ANNOUNCE_TASKS_MAX];
    uint32_t n_offsets;
    /* owned by whoever filled it; sorted by topic, then partition */
    struct fr_announced_offset *offsets;
    struct fr_announced_snapshot snapshot; /* the newest that replicas may fetch */
};
/* Offsets must be sorted and distinct, names not empty (FR_CHECK). */
void fr_announcement_encode(const struct fr_announcement *announcement, struct fr_buffer *out);
/* offsets points into an array taken from arena. FR_E_CORRUPT. */
enum fr_status fr_announcement_parse(const uint8_t *bytes, size_t size, struct fr_arena *arena,
                                     struct fr_announcement *out) FR_MUST_CHECK;

/* Sections "dense/<parameter>" hold a scoring parameter each, in the epochs since which it changed.
 * The trainer writes them; publisher, dump and replica tools read them. */
#define FR_SECTION_DENSE "dense/"
struct fr_dense_view {
    char name[160];    /* <layer>/kernel, <layer>/bias, <layer>/0/kernel .. */
    uint32_t n_dims;   /* 1 or 2 */
    uint32_t shape[2]; /* n_values is their product; shape[1] is 1 when n_dims is 1 */
    uint64_t n_values;
    const float *values; /* may be unaligned in stored bytes: copy with memcpy */
    bool exact;          /* published as f32 whatever export.quantize says */
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
/* Iterates the parameters of an epoch by name: *at = NULL begins, FR_EOF comes at the end. Errors:
 * FR_E_CORRUPT. */
enum fr_status fr_epoch_next_dense(const struct fr_epoch *epoch, const uint8_t **at, struct fr_dense_view *out);

#endif
