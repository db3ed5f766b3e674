/* Configuration: one YAML file (DESIGN section 9) -> checked structs. Also the canonical model JSON (section 7, `cfg`)
 * and back.
 *
 * One table of options (conf/options.c) gives type, unit, range, default and reloadability; parsing, --print-config,
 * OPTIONS.md and the error texts all come from it. Every error of a file is reported in one go as `file:line:col: path:
 * problem; expected ..; did you mean ..?`. What the grammar knows but this version does not do yet is an error "not in
 * this version". Owns: a struct fr_conf owns all it points to; released by fr_conf_free. Immutable after load. Thread:
 * any, read-only. */
#ifndef FR_CONF_CONF_H
#define FR_CONF_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/status.h"

enum {
    FR_NAME_MAX = 64, /* [A-Za-z_][A-Za-z0-9_]*, including the NUL */
    FR_MODEL_MAX = 121,
    FR_TABLES_MAX = 64,
    FR_PARTS_MAX = 8,
    FR_SLOTS_MAX = 512,
    FR_LABELS_MAX = 16,
    FR_TASKS_MAX = 16,
    FR_LAYERS_MAX = 256,
    FR_DIM_MAX = 4096,
    FR_HALF_LIVES_MAX = 8,
    FR_NO_INDEX = -1,
    FR_CHUNK_ROWS = 128, /* C: rows of one matrix product, zero-padded (DESIGN section 10); fixed in this version */
};

enum fr_optimizer_kind { FR_OPT_SGD, FR_OPT_ADAGRAD, FR_OPT_ADAGRAD_ROWWISE, FR_OPT_ADAM, FR_OPT_FTRL };

struct fr_conf_optimizer {
    enum fr_optimizer_kind kind;
    float lr;           /* ftrl: alpha */
    float eps;          /* adagrad*, adam: 1e-8 */
    float initial;      /* adagrad*: accumulator start, 0 */
    float beta1, beta2; /* adam 0.9 0.999 */
    float beta, l1, l2; /* ftrl: beta 1, l1 0, l2 0 */
};

enum fr_init_kind {
    FR_INIT_ZEROS,
    FR_INIT_UNIFORM,
    FR_INIT_NORMAL,
    FR_INIT_DEFAULT /* layers: uniform +-1/sqrt(fan_in) */
};

struct fr_conf_init {
    enum fr_init_kind kind;
    float scale; /* normal: standard deviation; uniform: +-scale */
};

struct fr_conf_part {
    char name[FR_NAME_MAX]; /* "v" for the part of a bare dim */
    uint32_t dim;
    struct fr_conf_optimizer optimizer;
    struct fr_conf_init init; /* default normal 0.01; zeros for ftrl parts */
};

struct fr_conf_table {
    char name[FR_NAME_MAX];
    uint32_t n_parts;
    struct fr_conf_part parts[FR_PARTS_MAX];
    uint32_t admit_count;       /* exact-count gate threshold; 1: every key */
    uint64_t admit_count_max;   /* pending entries kept at most (admit: {count, count_max}); default 16777216 */
    int64_t admit_idle_ms;      /* pending entries idle longer are forgotten; default 1d */
    int64_t expire_idle_ms;     /* 0: never */
    uint32_t expire_every;      /* batches between slices, 16 */
    uint32_t expire_slice_rows; /* 65536 */
};

enum fr_slot_kind { FR_SLOT_SPARSE, FR_SLOT_SEQUENCE, FR_SLOT_DENSE };
enum fr_transform { FR_TRANSFORM_NONE, FR_TRANSFORM_LOG1P };

struct fr_conf_slot {
    char name[FR_NAME_MAX];
    enum fr_slot_kind kind;
    int32_t table;                /* FR_NO_INDEX for dense */
    char name_space[FR_NAME_MAX]; /* default: the table's name */
    uint64_t seed;                /* XXH3_64bits(name_space) */
    bool id_raw;                  /* `id: raw`: "5" stays a string */
    int64_t index;                /* integer slot key, FR_NO_INDEX when none */
    uint32_t max_ids;             /* sparse: 1024 */
    uint32_t max_len;             /* sequence: 50 */
    bool admit;                   /* false: `admit: never` */
    bool touch;
    uint32_t dim; /* dense */
    enum fr_transform transform;
    float default_value;
};

/* A vector a layer reads. */
enum fr_ref_kind { FR_REF_POOLED, FR_REF_DENSE, FR_REF_LAYER };
enum fr_pooling { FR_POOL_SUM, FR_POOL_MEAN };

struct fr_conf_ref {
    enum fr_ref_kind kind;
    int32_t index; /* slot (pooled, dense) or layer */
    int32_t part;  /* pooled: part of the slot's table */
    enum fr_pooling pooling;
};

enum fr_layer_op {
    FR_LAYER_CONCAT, /* any vectors -> one after the other */
    FR_LAYER_MLP,    /* concatenation of the arguments through dense layers of `units`; activation after each of them */
    FR_LAYER_DENSE,  /* concatenation of the arguments through one dense layer, `units`, `activation` (default none) */
    FR_LAYER_BI_INTERACTION, /* 1/2 ((sum v)^2 - sum v^2), equal dims (He and Chua 2017, eq. 4) */
    FR_LAYER_SUM,            /* elementwise sum of pooled slots (wide part): equal dims */
    FR_LAYER_ADD,            /* elementwise sum of layers or vectors: equal dims */
};
enum fr_activation { FR_ACT_NONE, FR_ACT_RELU };

struct fr_conf_layer {
    char name[FR_NAME_MAX];
    enum fr_layer_op op;
    uint32_t n_refs;
    struct fr_conf_ref *refs;
    uint32_t n_units; /* mlp: one per layer; dense: 1 */
    uint32_t units[16];
    enum fr_activation activation; /* mlp default relu */
    uint32_t line;                 /* of the layer in the file, for shape errors; 0 when from JSON */
};

struct fr_conf_label {
    char name[FR_NAME_MAX];
};

struct fr_conf_task {
    char name[FR_NAME_MAX];
    int32_t label;
    int32_t logit; /* layer, width 1 */
    float weight;  /* 1 */
};

enum fr_start { FR_START_EARLIEST, FR_START_LATEST };
enum fr_on_loss { FR_ON_LOSS_STOP, FR_ON_LOSS_EARLIEST, FR_ON_LOSS_LATEST };
enum fr_quantize { FR_QUANT_F32, FR_QUANT_F16 }; /* bf16, i8: not in this version */
enum fr_device { FR_DEVICE_AUTO, FR_DEVICE_CPU };

struct fr_conf_property { /* passed to librdkafka */
    char *name;
    char *value;
    uint32_t line;
};

struct fr_conf {
    char model[FR_MODEL_MAX];
    char *state_dir;
    uint64_t memory_limit; /* bytes; default 4GiB */
    uint64_t seed;         /* 1 */
    uint32_t threads;      /* 0: one worker per core */
    enum fr_device device; /* cuda: "not in this version" */
    uint32_t chunk_rows;   /* C, 128, fixed */
    struct {
        char *brokers;
        uint32_t n_topics; /* exactly one in this version */
        char **topics;
        int format; /* enum fr_format */
        enum fr_start start;
        enum fr_on_loss on_loss;
        char *dead_letter_topic; /* default <topic>.dead */
        uint32_t batch_size;
        int64_t batch_wait_ms;
        uint64_t record_max;
        uint32_t group_max;
        int64_t future_max_ms;
        bool strict;
        int64_t ready_lag_ms;
        uint32_t ring_batches; /* bounded ring between ingest and owner loop, 16 */
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
    uint32_t n_labels;
    struct fr_conf_label *labels;
    uint32_t n_layers; /* in evaluation order: a layer refers to earlier ones only (sorted by the loader; cycles are
                          errors) */
    struct fr_conf_layer *layers;
    struct fr_conf_optimizer dense_optimizer;
    uint32_t n_tasks;
    struct fr_conf_task *tasks;
    int64_t epoch_ms;         /* 1s */
    int64_t heartbeat_ms;     /* 10s */
    uint64_t epoch_bytes_max; /* dirty bytes that force a cut; default memory_limit/16 in [1MiB, 64MiB] */
    uint64_t unfolded_max;    /* default min(memory_limit/4, 512MiB) */
    uint64_t journal_max;     /* 4 * unfolded_max */
    struct {
        char *topic; /* default <model>.delta */
        enum fr_quantize quantize;
        int64_t dense_every_ms;
        uint32_t partitions; /* 4 */
        uint64_t piece_max;
        bool create;
        int64_t drain_timeout_ms;
        char *brokers; /* = ingest.brokers in this version */
    } export_;
    struct {
        char *listen_host;
        uint16_t listen_port; /* 0: any free port, printed in the log */
        uint32_t n_half_lives;
        int64_t half_life_ms[FR_HALF_LIVES_MAX];
        char half_life_name[FR_HALF_LIVES_MAX][24]; /* as written in the config: "1h" */
    } metrics;
};

struct fr_conf_load_options {
    const char *path;        /* file, for messages; read by the loader when text is NULL */
    const char *text;        /* or the text itself */
    const char *const *sets; /* --set path=value, applied before checks */
    size_t n_sets;
};

/* FR_E_INVALID with every error, one a line, appended to `problems` (never NULL); *out written only on success. */
enum fr_status fr_conf_load(const struct fr_conf_load_options *options, struct fr_conf **out,
                            struct fr_buffer *problems) FR_MUST_CHECK;
void fr_conf_free(struct fr_conf *conf);
/* The effective configuration as YAML that loads again (--print-config). Secrets (names with password/secret/key) as
 * "***". */
void fr_conf_print(const struct fr_conf *conf, struct fr_buffer *out);
/* Markdown of every option, generated from the table: conf/OPTIONS.md. */
void fr_conf_reference(struct fr_buffer *out);

/* Canonical model JSON (DESIGN section 7, `cfg`): sorted keys, no spaces, %.9g numbers, every default written out;
 * tables, slots, layers, labels, tasks as lists in their order; chunk rows and quantization. Only what determines
 * published values' meaning and scores (no optimizers, no brokers). Schema: conf/README.md,
 * "Model JSON". */
void fr_conf_model_json(const struct fr_conf *conf, struct fr_buffer *out);
/* The first 8 bytes of SHA-256 of that JSON, big-endian. */
uint64_t fr_conf_fingerprint(const struct fr_conf *conf);
/* A conf with only the model part filled (tables, slots, labels, layers, tasks, chunk_rows, model name empty). */
enum fr_status fr_conf_model_parse(const char *json, size_t size, struct fr_conf **out,
                                   struct fr_err *err) FR_MUST_CHECK;
/* What a resumed state also depends on beside the fingerprint (optimizers, init, gates, seed): canonical JSON, for
 * refusal with a diff. */
void fr_conf_training_json(const struct fr_conf *conf, struct fr_buffer *out);
/* First differing path of two JSON texts, for messages: "slots.3.max_len: 50 -> 60". */
void fr_conf_json_difference(const char *before, const char *after, struct fr_buffer *out);

#endif
