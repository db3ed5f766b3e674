/* Configuration: one YAML file (docs/commands.md, "The configuration file") becomes checked
 * structs, and their model part is converted to and from canonical JSON (docs/formats/deltas.md,
 * "Model JSON").
 *
 * One table of options (conf/options.c) gives type, unit, range, default and reloadability.
 * Parsing, --print-config, OPTIONS.md and the error texts all come from it. All errors of a file
 * are reported at once as `file:line:col: path: problem; expected ..; did you mean ..?`. What the
 * grammar contains and this version does not implement is an error "not in this version".
 *
 * Owns: a struct fr_conf owns everything it points to; fr_conf_free releases it. It is immutable
 * after it is loaded.
 *
 * Thread: any, read-only. */
#ifndef FR_CONF_CONF_H
#define FR_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/status.h"
#include "vocabulary/activation.h"
#include "vocabulary/init.h"
#include "vocabulary/layer.h"
#include "vocabulary/loss.h"
#include "vocabulary/optimizer.h"
#include "vocabulary/pooling.h"
#include "vocabulary/removal.h"
#include "vocabulary/setting.h"
#include "vocabulary/slot.h"

enum {
    FR_NAME_MAX = 64, /* [A-Za-z_][A-Za-z0-9_]*, including the NUL */
    FR_MODEL_MAX = 121,
    FR_KEY_SEED_MAX = 128,
    FR_SAMPLE_KEY_MAX = 128, /* bytes of the name of a slot or label in samples */
    FR_FLAT_DOTS_MAX = 5,    /* of the path of a value in a flat record */
    /* bytes of a path in ingest.files, which is part of a position's name */
    FR_FILE_PATH_MAX = 244,
    FR_HOOK_ARGUMENTS_MAX = 64,
    FR_TABLES_MAX = 64,
    FR_PARTS_MAX = 8,
    FR_SLOTS_MAX = 512,
    FR_LABELS_MAX = 16,
    FR_TASKS_MAX = 16,
    FR_LAYERS_MAX = 256,
    FR_DIM_MAX = 4096,
    FR_DOMAINS_MAX = 64,
    FR_HALF_LIVES_MAX = 8,
    FR_STEPS_MAX = 8,        /* steps of a slot's transform: twice as many as anyone has needed */
    FR_BOUNDARIES_MAX = 255, /* boundaries of a bucketize transform or of a slot of buckets */
    FR_CROSS_MAX = 4,        /* slots of a cross: the number of its ids is the product of theirs */
    FR_NO_INDEX = -1,
    /* C: rows of one matrix product, zero-padded (docs/architecture.md, "Exactness"); fixed in this
     * version */
    FR_CHUNK_ROWS = 128,
};

struct fr_conf_init {
    enum fr_init_kind kind;
    /* normal, truncated_normal: standard deviation; uniform: +-scale; constant: the value; others:
     * unused */
    float scale;
};

struct fr_conf_part {
    char name[FR_NAME_MAX]; /* "v" for the part of a bare dim */
    uint32_t dim;
    struct fr_optimizer optimizer;
    struct fr_conf_init init; /* default normal 0.01; zeros for ftrl parts of dim 1 */
};

/* Names cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define FR_CONF_EXPIRY(name, text, number, rule) struct fr_expire_##rule rule;
#define FR_CONF_EXPIRY_GIVEN(name, text, number, rule) bool rule;
/* NOLINTEND(bugprone-macro-parentheses) */

struct fr_conf_table {
    char name[FR_NAME_MAX];
    uint32_t n_parts;
    struct fr_conf_part parts[FR_PARTS_MAX];
    /* A table has one of three gates: exact counts, a sketch, or a probability. */
    bool admit_counts, admit_sketch, admit_coins;
    uint32_t admit_count; /* exact-count gate threshold; 1: every key */
    /* The most pending entries that are kept (admit: {count, count_max}); default 16777216. */
    uint64_t admit_count_max;
    int64_t admit_idle_ms; /* pending entries idle longer are forgotten; default 1d */
    uint32_t admit_sketch_min;
    int64_t admit_sketch_half_life_ms;
    uint64_t admit_sketch_bytes;
    float admit_probability;
    struct {
        FR_EXPIRIES(FR_CONF_EXPIRY)
    } expire;
    struct {
        FR_EXPIRIES(FR_CONF_EXPIRY_GIVEN)
    } expires;                  /* what is configured explicitly: it is printed */
    uint32_t expire_every;      /* in full batches of trained samples; default 16 */
    uint32_t expire_slice_rows; /* rows examined during that many batches; default 65536 */
    uint64_t initial_capacity;  /* keys for which the index has room from the start; default 0 */
};

struct fr_conf_step {
    enum fr_transform kind; /* log1p, clip, time_of_day, time_of_week */
    float low, high;        /* clip */
};

/* Where a slot's values come from. */
enum fr_slot_source {
    FR_SOURCE_SAMPLE, /* the samples carry them */
    /* sparse: the number of boundaries <= x, where x is a dense slot of one number before its
     * transform */
    FR_SOURCE_BUCKETS,
    FR_SOURCE_CROSS, /* sparse: an id for each combination of ids of several sparse slots */
};

struct fr_conf_slot {
    char name[FR_NAME_MAX];
    enum fr_slot_kind kind;
    int32_t table;                /* FR_NO_INDEX for dense */
    char name_space[FR_NAME_MAX]; /* default: the table's name; of a computed slot: its own */
    uint64_t seed;                /* XXH3_64bits_withSeed(name_space, key_seed_number) */
    bool id_raw;                  /* `id: raw`: "5" stays a string */
    char *key;                    /* its name in samples; NULL: `name` */
    int64_t index;                /* integer slot key, FR_NO_INDEX when none */
    uint32_t max_ids;             /* sparse: 1024; buckets: 1 */
    uint32_t max_len;             /* sequence: 50 */
    bool admit;                   /* false: `admit: never` */
    bool touch;
    enum fr_slot_source source;
    /* buckets: 1 dense slot; cross: 2 to FR_CROSS_MAX sparse slots, none of which is a cross */
    uint32_t n_sources;
    int32_t sources[FR_CROSS_MAX];
    uint32_t dim; /* dense: numbers per sample, as in the samples */
    uint32_t n_steps;
    struct fr_conf_step steps[FR_STEPS_MAX];
    enum fr_transform transform; /* the transform in the network: none, standardize or bucketize */
    uint32_t n_boundaries;       /* bucketize and buckets: ascending, 1 to FR_BOUNDARIES_MAX */
    float *boundaries;
    /* What a missing value reads as, before the steps. Without a default: 0 after standardize, and
     * (0, 0) for a time. */
    bool has_default;
    float default_value;
    bool indicator; /* adds one column: 1 where the value was missing */
};

/* What a layer reads. A vector has one row per sample. A sequence has one row per step, [T, width],
 * ragged. */
enum fr_ref_kind {
    FR_REF_POOLED,   /* a slot's rows pooled: vector */
    FR_REF_DENSE,    /* vector */
    FR_REF_LAYER,    /* vector or sequence, as the layer says */
    FR_REF_SEQUENCE, /* a sequence slot's rows, step by step, oldest first */
};
struct fr_conf_ref {
    enum fr_ref_kind kind;
    int32_t index; /* slot (pooled, dense, sequence) or layer */
    int32_t part;  /* pooled, sequence: part of the slot's table */
    enum fr_pooling pooling;
};

enum { FR_UNITS_MAX = 16 };

struct fr_conf_layer {
    char name[FR_NAME_MAX];
    enum fr_layer_op op;
    uint32_t n_refs;
    struct fr_conf_ref *refs;
    /* Refs of role r are [role_begin[r], role_begin[r + 1]); operations without roles have one
     * role. attention, augru: query, keys; mixture: gate, experts. */
    uint32_t role_begin[FR_LAYER_ROLES + 1];
    uint32_t n_units; /* mlp, experts, attention (default 1 of 16): one per layer; dense, gru: 1 */
    uint32_t units[FR_UNITS_MAX];
    enum fr_activation activation; /* mlp, experts, attention: relu; dense: none */
    uint32_t depth, rank;          /* cross: 1; 0: full */
    uint32_t count;                /* experts */
    float rate;                    /* dropout */
    bool softmax;                  /* attention: false */
    /* FR_INIT_DEFAULT: uniform +-1/sqrt(fan_in), kernel and bias; else biases are 0 */
    struct fr_conf_init init;
    bool has_optimizer; /* its own; else network.optimizer */
    struct fr_optimizer optimizer;
    uint32_t line; /* of the layer in the file, for shape errors; 0 when from JSON */
    /* Inferred by the loader (both from YAML and from JSON). */
    uint32_t width;
    bool is_sequence;
};

/* Labels that samples carry come first, in the order of the samples' arrays; derived labels follow.
 * Within each group the loader keeps the order of the file. The labels of a batch hold all of
 * them. */
struct fr_conf_label {
    char name[FR_NAME_MAX];
    char *key;  /* its name in samples; NULL: `name` */
    int32_t of; /* the label it is derived from; FR_NO_INDEX: samples carry it */
    /* The label is masked unless that label is 1 (after its own derivation); FR_NO_INDEX: never
     * masked. */
    int32_t given;
    bool has_min; /* 1 where the source is >= min, else 0 */
    float min;
    bool has_negative; /* samples write that number for 0 */
    float negative;
};

struct fr_conf_task {
    char name[FR_NAME_MAX];
    int32_t label;
    int32_t logit; /* layer, width 1; FR_NO_INDEX with prob */
    /* number of earlier tasks with a logit whose probabilities are multiplied (ESMM) */
    uint32_t n_prob;
    int32_t prob[FR_TASKS_MAX];
    enum fr_task_loss loss;
    float weight; /* 1 */
    /* true: the bias added to the logit begins at the log-odds of the first labels */
    bool bias_from_labels;
    float focal_gamma, focal_alpha; /* 2, 0.25 */
};

struct fr_conf_loss {
    char name[FR_NAME_MAX];
    enum fr_aux_loss kind;
    uint32_t n_refs;
    struct fr_conf_ref refs[3];
    float weight;
    uint32_t line;
};

enum fr_start { FR_START_EARLIEST, FR_START_LATEST, FR_START_TIME };
struct fr_conf_property { /* passed to librdkafka */
    char *name;
    char *value;
    char *place; /* file:line:column */
};

struct fr_conf {
    struct fr_arena arena; /* owns everything that this struct points to */
    char model[FR_MODEL_MAX];
    char *state_dir;
    uint64_t memory_limit;   /* bytes; default 4GiB */
    uint64_t row_memory;     /* bytes; 0: the rest of memory_limit */
    uint64_t memory_reserve; /* bytes reserved at the start; 0 */
    uint64_t seed;           /* 1 */
    /* The secret for id -> key: its text (NULL: none) and the number made from it (0: none). */
    char *key_seed;
    uint64_t key_seed_number;
    uint32_t threads; /* 0: one worker per core */
    enum fr_device device;
    uint32_t device_card;      /* cuda:N */
    uint64_t gpu_memory_limit; /* bytes of rows on the card; 0: most of its memory */
    uint32_t chunk_rows;       /* C, 128, fixed */
    struct {
        char *brokers;
        uint32_t n_topics; /* at least one */
        char **topics;
        int format; /* enum fr_format */
        /* `envelope: {t, f}` present: records are flat. Paths; NULL: the Kafka timestamp, and all
         * keys of the record. */
        bool envelope;
        char *envelope_t, *envelope_f;
        enum fr_start start;
        int64_t start_ms; /* with FR_START_TIME: first record at or after this Kafka timestamp */
        /* `files`: JSON lines (.gz or not), read in order before Kafka; see docs/operating.md. */
        uint32_t n_files;
        char **files;
        enum fr_sampling sampling; /* all: training and metrics */
        enum fr_on_loss on_loss;
        char *dead_letter_topic; /* default <first topic>.dead */
        uint32_t batch_size;
        /* A batch closes at n / growth samples, where n is the number of samples in all batches
         * before it; at least `first`, at most batch_size. */
        uint32_t batch_warmup_first; /* 0: every batch has batch_size */
        uint32_t batch_warmup_growth, batch_warmup_full;
        int64_t batch_wait_ms;
        uint64_t record_max;
        uint32_t group_max;
        int64_t future_max_ms;
        int64_t watermark_step_max_ms; /* 0: no limit */
        /* limit of |x| of a dense value as the network reads it, 1e5 */
        float dense_max;
        /* limit of w, and of w/s where sampling corrects training, 1e4 */
        float weight_max;
        bool strict;
        /* The share of malformed records in a minute above which /healthz is degraded, 0.1. 1:
         * never degraded, and a start that reads nothing but malformed records continues. */
        float malformed_max;
        int64_t ready_lag_ms;
        uint32_t ring_batches; /* ring between ingest and owner loop, in batches; default 16 */
        bool lockstep;         /* `lockstep: {records, epoch_batches}` present */
        uint32_t lockstep_records;
        uint32_t lockstep_epoch_batches;
        size_t n_kafka;
        struct fr_conf_property *kafka;
    } ingest;
    uint32_t n_tables;
    struct fr_conf_table *tables;
    uint32_t n_slots;
    struct fr_conf_slot *slots;
    uint32_t n_labels;        /* all */
    uint32_t n_sample_labels; /* the first n labels, which samples carry */
    struct fr_conf_label *labels;
    /* In evaluation order: a layer refers to earlier layers only (sorted by the loader; cycles are
     * errors). */
    uint32_t n_layers;
    struct fr_conf_layer *layers;
    struct fr_optimizer dense_optimizer; /* network.optimizer */
    /* limit of the norm of all layers' mean gradients together; 0: off */
    float clip_global_norm;
    struct fr_conf_init dense_init; /* network.init */
    /* network.precision, for training; readers of a model score in f32. */
    enum fr_precision precision;
    uint32_t n_tasks;
    struct fr_conf_task *tasks;
    uint32_t n_losses;
    struct fr_conf_loss *losses;
    int64_t epoch_ms;     /* 1s */
    int64_t heartbeat_ms; /* 10s */
    /* Dirty bytes that force a cut; default memory_limit/16 in [1MiB, 64MiB], /32 up to 256MiB. */
    uint64_t epoch_bytes_max;
    uint64_t unfolded_max; /* default min(memory_limit/4, 512MiB) */
    uint64_t journal_max;  /* 4 * unfolded_max */
    struct {
        int64_t every_ms; /* 0: only on request */
        uint32_t keep;
        bool at_drain;
    } savepoint;
    struct {
        int64_t every_ms; /* 0: only on request */
        uint32_t keep;
        bool at_drain; /* default: true if export.retention is snapshots */
        char *dir;     /* default state_dir/snapshots */
        enum fr_snapshot_quantize quantize;
        uint64_t rate; /* bytes per second; 0: unlimited */
        uint32_t n_hook;
        char **hook; /* a command and its arguments */
        int64_t hook_timeout_ms;
    } snapshot;
    /* Bytes of the layers' parameters and optimizer state that an epoch with training contains. */
    uint64_t dense_bytes;
    uint64_t dense_parameters; /* numbers learned by the layers */
    struct {
        char *topic; /* default <model>.delta */
        enum fr_quantize quantize;
        int64_t dense_every_ms;
        /* in trained samples; 0: layers are published without averaging */
        uint64_t average_half_life;
        uint32_t partitions; /* 4 */
        uint64_t piece_max;
        enum fr_delta_loss on_loss;
        uint64_t backlog_max;
        enum fr_backlog on_backlog;
        enum fr_retention retention;
        enum fr_export_format format;
        bool create;
        int64_t drain_timeout_ms;
        bool acknowledgements;       /* read what replicas report */
        char *acknowledgement_topic; /* default <model>.ack */
        /* = ingest.brokers in this version; NULL: nothing is published */
        char *brokers;
    } export_;
    struct {
        char *listen_host;
        uint16_t listen_port; /* 0: any free port, printed in the log */
        uint32_t n_hosts;
        char **hosts; /* names allowed in Host, besides addresses and localhost */
        uint32_t n_half_lives;
        int64_t half_life_ms[FR_HALF_LIVES_MAX];
        char half_life_name[FR_HALF_LIVES_MAX][24]; /* as written in the config: "1h" */
        int32_t gauc_by;                            /* sparse slot; FR_NO_INDEX: no GAUC */
        uint32_t gauc_groups_max;                   /* groups kept, 1024 */
    } metrics;
    struct {
        int64_t interval_ms; /* 0: off */
        uint32_t importance; /* measured every so many batches; 0: never */
    } insight;
    /* D: key ranges (domains) and sample streams (lanes) of the state; 1 if not given. Divides
     * export_.partitions. */
    uint32_t domains;
    uint32_t ranks;           /* processes that train the model together, at most `domains`; 1 */
    int64_t rank_deadline_ms; /* the longest wait for another rank */
};

/* Returns the number of domains: at least 1, also of a conf that did not come from the loader. */
static inline uint32_t fr_conf_domains(const struct fr_conf *conf)
{
    return conf->domains > 1 ? conf->domains : 1;
}

/* Returns what an operation takes. */
const struct fr_layer_rule *fr_layer_rule(enum fr_layer_op op);

/* The shape of a reference: a vector [width], or a sequence [T, width]. */
struct fr_conf_shape {
    uint32_t width;
    bool is_sequence;
};
struct fr_conf_shape fr_conf_ref_shape(const struct fr_conf *conf, const struct fr_conf_ref *ref);
/* Returns the sum of the widths of a layer's references of one role. */
uint32_t fr_conf_role_width(const struct fr_conf *conf, const struct fr_conf_layer *layer, uint32_t role);

/* Reads a time in the form of ingest.start: `2026-01-02T03:04:05Z` (UTC, `.678` allowed before the
 * Z) or Unix ms. False: anything else, including an integer so small that it must be seconds. */
bool fr_conf_time(const char *text, int64_t *ms);

/* Returns the numbers of a dense slot per entry of a batch: dim, or 2 dim for a time. */
uint32_t fr_conf_slot_numbers(const struct fr_conf_slot *slot);
/* Return the name of the slot or label in samples. */
const char *fr_conf_slot_key(const struct fr_conf_slot *slot);
const char *fr_conf_label_key(const struct fr_conf_label *label);
/* With ingest.envelope: the path of the object whose keys are slots; NULL: the record itself. */
const char *fr_conf_envelope_features(const struct fr_conf *conf);
/* Returns the width of a dense slot as a vector: fr_conf_slot_numbers, or dim * (n_boundaries + 1);
 * one more with an indicator. */
uint32_t fr_conf_slot_width(const struct fr_conf_slot *slot);
/* Returns whether the model keeps statistics of the slot's numbers. */
static inline bool fr_conf_slot_learns(const struct fr_conf_slot *slot)
{
    return fr_slot_has_numbers(slot->kind) && fr_transform_learns(slot->transform);
}
/* Returns whether missing values of a dense slot are NaN in the batch, because the network needs to
 * distinguish them; otherwise they are what the default becomes. */
bool fr_conf_slot_keeps_missing(const struct fr_conf_slot *slot);

struct fr_conf_load_options {
    /* file name, for messages; the loader reads the file when `text` is NULL */
    const char *path;
    const char *text;        /* the text itself, or NULL */
    const char *const *sets; /* --set path=value, applied before checks */
    size_t n_sets;
    /* Receives warnings about valid options that look wrong, one per line; NULL: none are
     * wanted. */
    struct fr_buffer *warnings;
};

/* FR_E_INVALID: all errors, one per line, are appended to `problems` (never NULL). *out is written
 * only on success. */
enum fr_status fr_conf_load(const struct fr_conf_load_options *options, struct fr_conf **out,
                            struct fr_buffer *problems) FR_MUST_CHECK;
void fr_conf_free(struct fr_conf *conf);
/* Writes the effective configuration as YAML that loads again (--print-config), except for secrets:
 * key_seed and every Kafka property that is not known to be public become "***", which no loader
 * accepts. */
/* Returns whether the value of this Kafka property may be shown; every other value may be a
 * secret. */
bool fr_conf_property_is_shown(const char *name);
/* Returns whether the text is a list of brokers; otherwise `problem` contains the fault and the
 * expected form. */
bool fr_conf_brokers_are_sound(const char *text, char *problem, size_t size);
void fr_conf_print(const struct fr_conf *conf, struct fr_buffer *out);

/* Writes canonical model JSON (docs/formats/deltas.md, "Model JSON"): sorted keys, no spaces, %.9g
 * numbers, every default written out; tables, slots, layers, labels and tasks as lists in their
 * order; chunk rows and quantization. It contains only what determines the meaning of published
 * values and the scores (no optimizers, no brokers). */
void fr_conf_model_json(const struct fr_conf *conf, struct fr_buffer *out);
/* Returns the first 8 bytes of SHA-256 of that JSON, big-endian. */
uint64_t fr_conf_fingerprint(const struct fr_conf *conf);
/* Makes a configuration in which only the model part is filled (tables, slots, labels, layers,
 * tasks, chunk_rows); the model's name is empty. */
enum fr_status fr_conf_model_parse(const char *json, size_t size, struct fr_conf **out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* Writes the other options on which training depends (optimizers, first values, gates, expiry,
 * seed) as canonical JSON in the same style. Most of them can change on an existing model. */
void fr_conf_training_json(const struct fr_conf *conf, struct fr_buffer *out);

/* The differences between a configuration and an existing model. */
enum { FR_CONF_CHANGES_MAX = 64 }; /* differences kept; the others are counted */
struct fr_conf_change {
    char text[448]; /* "network.optimizer.lr: 0.001 -> 0.002", "slots.age: added" */
    bool model;     /* true: part of what replicas hold; false: part of training */
    /* why an existing state cannot take it over; NULL: a start takes it over */
    const char *refused;
};
struct fr_conf_changes {
    uint32_t n, n_refused;
    struct fr_conf_change list[FR_CONF_CHANGES_MAX];
};
/* Add the differences between two texts of fr_conf_model_json or of fr_conf_training_json.
 * FR_E_INVALID: a text is not JSON. */
enum fr_status fr_conf_compare_models(const char *before, const char *after, struct fr_conf_changes *out,
                                      struct fr_err *err) FR_MUST_CHECK;
enum fr_status fr_conf_compare_training(const char *before, const char *after, struct fr_conf_changes *out,
                                        struct fr_err *err) FR_MUST_CHECK;

#endif
