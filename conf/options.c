/* See options.h. One row an option; the order is the order of reading, printing and of the
 * reference. */
#include "options.h"

#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"
#include "loader.h"
#include "printer.h"

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)
#define TIB (1024.0 * GIB)
#define SECOND 1000.0
#define HOUR (3600.0 * SECOND)
#define DAY (24.0 * HOUR)

#define IN(scope, member) offsetof(struct scope, member)
#define SPARSE (1u << FR_SLOT_SPARSE)
#define SEQUENCE (1u << FR_SLOT_SEQUENCE)
#define DENSE (1u << FR_SLOT_DENSE)

/* Columns: path, place, [range,] default, meaning, further fields. */
#define ROW(t, p, o, d, x, ...)                                                                                        \
    {                                                                                                                  \
        .type = t, .path = p, .offset = o, .initial = d, .text = x, __VA_ARGS__                                        \
    }
#define RANGED(t, p, o, lo, hi, d, x, ...)                                                                             \
    {                                                                                                                  \
        .type = t, .path = p, .offset = o, .min = lo, .max = hi, .initial = d, .text = x, __VA_ARGS__                  \
    }
#define GROUP(p, x, ...)                                                                                               \
    {                                                                                                                  \
        .type = FR_OPTION_GROUP, .path = p, .text = x, __VA_ARGS__                                                     \
    }
#define LATER(p, x)                                                                                                    \
    {                                                                                                                  \
        .type = FR_OPTION_LATER, .path = (p), .text = (x)                                                              \
    }
#define CUSTOM(p, o, f, r, w, x, ...)                                                                                  \
    {                                                                                                                  \
        .type = FR_OPTION_CUSTOM, .path = p, .offset = o, .form = f, .read = r, .write = w, .text = x, __VA_ARGS__     \
    }

#define OPTIMIZER_FORM "name, or `{name: {options}}`"
#define TRANSFORM_FORM                                                                                                 \
    "`none`, `log1p`, `{clip: [low, high]}`, `standardize`, `{bucketize: [b, ..]}`, `time_of_day`, `time_of_week`, "   \
    "or "                                                                                                              \
    "a list of them"
#define BUCKETS_FORM "`{of: slot, boundaries: [b, ..]}`"
#define CROSS_FORM "list of 2 to 4 sparse slots"
#define LOSS_FORM "`logloss`, `none`, `mse`, `pairwise`, `focal` or `{focal: {gamma, alpha}}`"
#define HALF_LIFE "samples after which half of the accumulator is forgotten: of a row's own, or of the stream; 0: never"
#define U32 FR_OPTION_U32
#define U64 FR_OPTION_U64
#define REAL FR_OPTION_REAL
#define DURATION FR_OPTION_DURATION
#define SIZE FR_OPTION_SIZE
#define CHOICE FR_OPTION_CHOICE
#define LAYER(member) offsetof(struct fr_layer_draft, layer.member)
#define OPERATION(name, key, form, text, ...) CUSTOM("network.layers.*." key, 0, form, fr_read_layer_op, NULL, text),

const struct fr_option fr_options[] = {
    CUSTOM("version", 0, "`1`", fr_read_version, fr_write_version, "version of this grammar", .required = true),
    CUSTOM("model", IN(fr_conf, model), "`[A-Za-z0-9_-]{1,120}`", fr_read_model_name, fr_write_model_name,
           "name of the model: label of every metric, part of topic names", .required = true),
    ROW(FR_OPTION_TEXT, "state_dir", IN(fr_conf, state_dir), NULL,
        "directory of the journal and the cold store; one daemon each", .required = true),
    RANGED(SIZE, "memory_limit", IN(fr_conf, memory_limit), MIB, 64 * TIB, "4GiB",
           "memory for rows, indexes and staging"),
    RANGED(U64, "seed", IN(fr_conf, seed), 0, 18446744073709551615.0, "1", "seed of all initial weights"),
    RANGED(U32, "threads", IN(fr_conf, threads), 0, 1024, "0", "workers; 0: one per core"),
    ROW(CHOICE, "device", IN(fr_conf, device), "auto", "where the network runs",
        .choices = FR_CHOICES_AND(FR_DEVICES, "|cuda!")),
    RANGED(DURATION, "epoch", IN(fr_conf, epoch_ms), 1, DAY, "1s", "time between cuts: durability and publishing"),
    RANGED(DURATION, "heartbeat", IN(fr_conf, heartbeat_ms), 1, DAY, "10s",
           "an epoch at least this often, possibly empty"),
    RANGED(SIZE, "epoch_bytes_max", IN(fr_conf, epoch_bytes_max), 64 * KIB, TIB, NULL, "changed bytes that force a cut",
           .computed = "memory_limit/16 within 1MiB..64MiB"),
    RANGED(SIZE, "unfolded_max", IN(fr_conf, unfolded_max), 64 * KIB, TIB, NULL,
           "journal bytes that start a fold; twice that pauses reading; at least one epoch, which holds the layers' "
           "parameters and optimizer state",
           .computed = "min(memory_limit/4, 512MiB)"),
    RANGED(SIZE, "journal_max", IN(fr_conf, journal_max), 64 * KIB, 64 * TIB, NULL,
           "journal bytes on disk that pause reading", .computed = "4 * unfolded_max"),

    GROUP("ingest", "the sample log", .required = true),
    ROW(FR_OPTION_TEXT, "ingest.brokers", IN(fr_conf, ingest.brokers), NULL,
        "Kafka bootstrap servers, `host:port,host:port`", .required = true),
    CUSTOM("ingest.topic", 0, "topic name", fr_read_topic, fr_write_topic,
           "topic of the samples; this, `topics` or `files`", .given = fr_given_topic),
    CUSTOM("ingest.topics", 0, "list of topic names", fr_read_topics, fr_write_topics,
           "the same for several, at most 64; positions are per topic and partition", .given = fr_given_topics),
    ROW(CHOICE, "ingest.format", IN(fr_conf, ingest.format), "msgpack", "form of a record", .choices = "msgpack|json"),
    CUSTOM("ingest.start", IN(fr_conf, ingest.start), "`earliest`, `latest`, Unix ms or `2026-01-02T03:04:05Z`",
           fr_read_start, fr_write_start,
           "where a state without positions begins; a time: at the first record whose Kafka timestamp is not before it",
           .initial = "earliest"),
    CUSTOM("ingest.files", 0, "list of files", fr_read_files, fr_write_files,
           "JSON lines, plain or gzip, read in this order before Kafka, or alone", .given = fr_given_files),
    ROW(CHOICE, "ingest.sampling", IN(fr_conf, ingest.sampling), "all",
        "what a sample's keep rate `s` corrects by 1/s: training and metrics, metrics only, or nothing",
        .choices = FR_CHOICES(FR_SAMPLINGS)),
    ROW(CHOICE, "ingest.on_loss", IN(fr_conf, ingest.on_loss), "stop", "what happens when the log lost unread records",
        .choices = FR_CHOICES(FR_ON_LOSSES)),
    ROW(FR_OPTION_TOPIC, "ingest.dead_letter_topic", IN(fr_conf, ingest.dead_letter_topic), NULL,
        "topic for malformed records", .computed = "`<first topic>.dead`; without topics `<model>.dead`"),
    RANGED(U32, "ingest.batch_size", IN(fr_conf, ingest.batch_size), 1, 65536, "256",
           "samples that close a batch once the model has grown up (`batch_warmup`)"),
    GROUP("ingest.batch_warmup", "smaller batches while the model is young"),
    RANGED(U32, "ingest.batch_warmup.first", IN(fr_conf, ingest.batch_warmup_first), 0, 65536, "1",
           "samples that close the first batches; 0: `batch_size` from the first on"),
    RANGED(U32, "ingest.batch_warmup.growth", IN(fr_conf, ingest.batch_warmup_growth), 1, 1048576, "16384",
           "after n samples a batch closes at n / growth of them, if that is between `first` and `batch_size`"),
    RANGED(DURATION, "ingest.batch_wait", IN(fr_conf, ingest.batch_wait_ms), 0, HOUR, "20ms",
           "time that closes a batch"),
    RANGED(SIZE, "ingest.record_max", IN(fr_conf, ingest.record_max), KIB, 64 * MIB, "1MiB",
           "larger records are malformed"),
    RANGED(U32, "ingest.group_max", IN(fr_conf, ingest.group_max), 1, 65536, "4096", "larger groups are malformed"),
    RANGED(DURATION, "ingest.future_max", IN(fr_conf, ingest.future_max_ms), 0, 3650 * DAY, "1h",
           "event times further beyond the Kafka timestamp are malformed"),
    RANGED(
        REAL, "ingest.dense_max", IN(fr_conf, ingest.dense_max), FLT_MIN, FLT_MAX, "1e5",
        "a record with a larger number (its absolute value), as the network reads it (behind `clip` and `log1p`), is "
        "malformed; 1e15 for "
        "numbers that are standardized, none for those only read as buckets"),
    RANGED(REAL, "ingest.weight_max", IN(fr_conf, ingest.weight_max), FLT_MIN, FLT_MAX, "1e4",
           "a record with a larger weight `w`, or `w / s` (unless `sampling` is `none`), is malformed"),
    ROW(FR_OPTION_BOOL, "ingest.strict", IN(fr_conf, ingest.strict), "false",
        "unknown slots are malformed, not ignored"),
    RANGED(DURATION, "ingest.ready_lag", IN(fr_conf, ingest.ready_lag_ms), 1, 3650 * DAY, "30s",
           "lag below which `/readyz` is 200"),
    RANGED(U32, "ingest.ring_batches", IN(fr_conf, ingest.ring_batches), 1, 4096, "16", "batches waiting for training"),
    GROUP("ingest.lockstep", "reproducible mode: fixed batches up to the end of the log, then exit 0",
          .present = IN(fr_conf, ingest.lockstep)),
    RANGED(U32, "ingest.lockstep.records", IN(fr_conf, ingest.lockstep_records), 1, 1048576, "128",
           "records of each partition in a batch"),
    RANGED(U32, "ingest.lockstep.epoch_batches", IN(fr_conf, ingest.lockstep_epoch_batches), 1, 1048576, "64",
           "batches between cuts"),
    CUSTOM("ingest.kafka", 0, "map of librdkafka properties", fr_read_kafka, fr_write_kafka,
           "passed on to the Kafka client: security, timeouts", .open_keys = true),
    LATER("ingest.watermark_step_max", "limit of the watermark's rise per batch"),

    CUSTOM("tables", 0, "map name → table", fr_read_tables, fr_write_tables, "embedding tables"),
    RANGED(U32, "tables.*.dim", IN(fr_conf_table, parts[0].dim), 1, FR_DIM_MAX, NULL,
           "width of a row of one part, named `v`; this or `parts`", .shorthand = true),
    CUSTOM("tables.*.optimizer", IN(fr_conf_table, parts[0].optimizer), OPTIMIZER_FORM, fr_read_optimizer, NULL,
           "update rule of that part", .choices = FR_ROW_OPTIMIZERS, .initial = "adagrad", .shorthand = true),
    CUSTOM("tables.*.init", IN(fr_conf_table, parts[0].init), FR_INIT_FORMS(FR_ROW_INITS), fr_read_init, NULL,
           "initial weights of that part", .choices = FR_INIT_CHOICES(FR_ROW_INITS),
           .computed = "`{normal: 0.01}`; ftrl, group_ftrl of width 1: `zeros`", .shorthand = true),
    CUSTOM("tables.*.parts", 0, "map name → part", fr_read_parts, fr_write_parts,
           "segments of a row with their own update rule"),
    RANGED(U32, "tables.*.parts.*.dim", IN(fr_conf_part, dim), 1, FR_DIM_MAX, NULL, "width", .required = true),
    CUSTOM("tables.*.parts.*.optimizer", IN(fr_conf_part, optimizer), OPTIMIZER_FORM, fr_read_optimizer,
           fr_write_optimizer, "update rule", .choices = FR_ROW_OPTIMIZERS, .initial = "adagrad"),
    CUSTOM("tables.*.parts.*.init", IN(fr_conf_part, init), FR_INIT_FORMS(FR_ROW_INITS), fr_read_init, fr_write_init,
           "initial weights", .choices = FR_INIT_CHOICES(FR_ROW_INITS),
           .computed = "`{normal: 0.01}`; ftrl, group_ftrl of width 1: `zeros`"),
    GROUP("tables.*.admit", "when a key gets a row"),
    RANGED(U32, "tables.*.admit.count", IN(fr_conf_table, admit_count), 1, 1000000, "1",
           "occurrences that admit a key"),
    RANGED(U64, "tables.*.admit.count_max", IN(fr_conf_table, admit_count_max), 1, 1099511627776.0, "16777216",
           "keys counted at once"),
    RANGED(DURATION, "tables.*.admit.idle", IN(fr_conf_table, admit_idle_ms), 1, 3650 * DAY, "1d",
           "a count not seen for this long is forgotten"),
    LATER("tables.*.admit.sketch", "approximate counts in fixed memory"),
    LATER("tables.*.admit.probability", "admission by a coin"),
    GROUP("tables.*.expire", "when a row is removed"),
    RANGED(DURATION, "tables.*.expire.idle", IN(fr_conf_table, expire_idle_ms), 0, 36500 * DAY, "0",
           "rows not trained for this long in event time; 0: never"),
    RANGED(U32, "tables.*.expire.every", IN(fr_conf_table, expire_every), 1, 1048576, "16",
           "samples trained between slices, in full batches (`ingest.batch_size`)"),
    RANGED(U32, "tables.*.expire.slice_rows", IN(fr_conf_table, expire_slice_rows), 1, 1073741824, "65536",
           "rows looked at in a slice, about"),
    LATER("tables.*.expire.rows_max", "capacity"),
    LATER("tables.*.expire.weak", "removal by weight norm"),
    LATER("tables.*.expire.score", "removal by decayed show/click score"),

    CUSTOM("slots", 0, "map name → slot", fr_read_slots, fr_write_slots, "input fields", .required = true),
    ROW(CHOICE, "slots.*.kind", IN(fr_conf_slot, kind), "sparse", "ids, ordered ids, or floats",
        .choices = FR_CHOICES(FR_SLOT_KINDS)),
    CUSTOM("slots.*.table", IN(fr_conf_slot, table), "name of a table", fr_read_slot_table, fr_write_slot_table,
           "where the ids are looked up", .kinds = SPARSE | SEQUENCE, .required = true),
    CUSTOM(
        "slots.*.buckets", 0, BUCKETS_FORM, fr_read_buckets, fr_write_buckets,
        "computed, not carried by samples: the id is the number of ascending boundaries (at most 255) at or below the "
        "number of a dense slot of `dim` 1, as samples carry it, before its transform; missing: no id",
        .kinds = SPARSE, .given = fr_given_buckets),
    CUSTOM("slots.*.cross", 0, CROSS_FORM, fr_read_cross, fr_write_cross,
           "computed, not carried by samples: an id for every combination of their ids, weights multiplied; none where "
           "one of them has none; the order of the slots matters; not of crosses",
           .kinds = SPARSE, .given = fr_given_cross),
    ROW(FR_OPTION_NAME, "slots.*.namespace", IN(fr_conf_slot, name_space), NULL,
        "slots share ids when they share table and namespace", .kinds = SPARSE | SEQUENCE,
        .computed = "the table's name; of `buckets` and `cross`: the slot's"),
    ROW(FR_OPTION_SWITCH, "slots.*.id", IN(fr_conf_slot, id_raw), "auto",
        "`auto`: the string \"5\" is the integer 5; `raw`: it is not", .choices = "auto|raw",
        .kinds = SPARSE | SEQUENCE, .given = fr_given_id),
    RANGED(FR_OPTION_I64, "slots.*.index", IN(fr_conf_slot, index), 0, 2147483647, NULL,
           "integer key of the slot in samples", .computed = "none"),
    RANGED(U32, "slots.*.max_ids", IN(fr_conf_slot, max_ids), 1, 65536, "1024", "ids kept of a sample, the last ones",
           .kinds = SPARSE, .given = fr_given_max_ids),
    RANGED(U32, "slots.*.max_len", IN(fr_conf_slot, max_len), 1, 65536, "50", "ids kept of a sample, the newest ones",
           .kinds = SEQUENCE),
    ROW(FR_OPTION_SWITCH, "slots.*.admit", IN(fr_conf_slot, admit), "auto",
        "`never`: this slot looks up only; others admit", .choices = "never|auto", .kinds = SPARSE | SEQUENCE),
    ROW(FR_OPTION_BOOL, "slots.*.touch", IN(fr_conf_slot, touch), "true", "a look-up keeps the row from expiring",
        .kinds = SPARSE | SEQUENCE),
    RANGED(U32, "slots.*.dim", IN(fr_conf_slot, dim), 1, FR_DIM_MAX, "1", "numbers per sample", .kinds = DENSE),
    CUSTOM(
        "slots.*.transform", 0, TRANSFORM_FORM, fr_read_transform, fr_write_transform,
        "of every number, one after the other: log(1 + x); cut to a range; last, if at all, `standardize`: minus the "
        "mean, by the deviation of earlier samples, cut to ±10, and 0 until 100 are counted; or `bucketize`: one-hot "
        "of its place among at most 255 ascending boundaries. Alone: sine and cosine of a Unix time (s or ms) on the "
        "day or the week, in UTC, weeks from Monday; packed columns are f32, which hold a time to about a minute",
        .initial = "none", .kinds = DENSE),
    RANGED(REAL, "slots.*.default", IN(fr_conf_slot, default_value), -FLT_MAX, FLT_MAX, NULL,
           "what a missing value reads as, before the transform; with `standardize` it then counts as a value given",
           .kinds = DENSE, .present = IN(fr_conf_slot, has_default),
           .computed =
               "0; with `standardize` missing values are left out of mean and deviation and read as 0 behind it, "
               "times as (0, 0)"),
    ROW(FR_OPTION_BOOL, "slots.*.indicator", IN(fr_conf_slot, indicator), "false",
        "one more column behind the numbers: 1 where the value was missing", .kinds = DENSE),

    CUSTOM("labels", 0, "map name → `{}` or derived label", fr_read_labels, fr_write_labels,
           "labels; those without `of` are carried by samples, in the order of their arrays", .required = true),
    CUSTOM("labels.*.of", IN(fr_conf_label, of), "name of a label", fr_read_label_source, NULL,
           "derived from that label; samples do not carry it"),
    CUSTOM("labels.*.given", IN(fr_conf_label, given), "name of a label", fr_read_label_source, NULL,
           "masked unless that label is 1"),
    RANGED(REAL, "labels.*.min", IN(fr_conf_label, min), -(double)FLT_MAX, (double)FLT_MAX, NULL,
           "1 where the label of `of` is at least this, else 0", .present = IN(fr_conf_label, has_min)),

    GROUP("network", "the dense part of the model", .required = true),
    CUSTOM("network.optimizer", IN(fr_conf, dense_optimizer), OPTIMIZER_FORM, fr_read_optimizer, fr_write_optimizer,
           "update rule of the layers", .choices = FR_LAYER_OPTIMIZERS, .initial = "adam"),
    CUSTOM("network.init", IN(fr_conf, dense_init), FR_INIT_FORMS(FR_LAYER_INITS), fr_read_init, fr_write_init,
           "initial weights of the layers; with any but `default` biases start at 0, but a `bias` layer at a constant "
           "asked for",
           .choices = FR_INIT_CHOICES(FR_LAYER_INITS), .initial = "default"),
    RANGED(REAL, "network.clip_global_norm", IN(fr_conf, clip_global_norm), 0, 1e15, "0",
           "longest mean gradient of all layers together; 0: off"),
    CUSTOM("network.layers", 0, "list of layers", fr_read_layers, fr_write_layers, "layers, in any order",
           .required = true),
    ROW(FR_OPTION_NAME, "network.layers.*.name", LAYER(name), NULL, "name, unlike that of any slot", .required = true),
    FR_LAYER_OPS(OPERATION) CUSTOM("network.layers.*.units", 0, "integer, or list of at most 16", fr_read_layer_units,
                                   NULL, "output widths: mlp, experts, attention (`[16]`); one: dense, gru"),
    ROW(CHOICE, "network.layers.*.activation", LAYER(activation), NULL, "for mlp, dense, experts, attention, activate",
        .choices = FR_CHOICES(FR_ACTIVATIONS), .computed = "dense: none, others: relu"),
    RANGED(U32, "network.layers.*.depth", LAYER(depth), 1, 64, NULL, "of cross", .computed = "1"),
    RANGED(U32, "network.layers.*.rank", LAYER(rank), 0, FR_WIDTH_MAX, NULL,
           "of cross: W is the product of two matrices of this rank; 0: full", .computed = "0"),
    RANGED(U32, "network.layers.*.count", LAYER(count), 1, 256, NULL, "of experts"),
    RANGED(REAL, "network.layers.*.rate", LAYER(rate), 0, 0.99, NULL, "of dropout"),
    ROW(FR_OPTION_BOOL, "network.layers.*.softmax", LAYER(softmax), NULL,
        "of attention: scores sum to 1 over the sequence", .computed = "`false`"),
    CUSTOM("network.layers.*.init", LAYER(init), FR_INIT_FORMS(FR_LAYER_INITS), fr_read_init, NULL,
           "initial weights of this layer", .choices = FR_INIT_CHOICES(FR_LAYER_INITS), .computed = "`network.init`"),
    CUSTOM("network.layers.*.optimizer", LAYER(optimizer), OPTIMIZER_FORM, fr_read_optimizer, fr_write_optimizer,
           "update rule of this layer", .choices = FR_LAYER_OPTIMIZERS, .computed = "`network.optimizer`"),
    LATER("network.layers.*.max", "elementwise maximum"),
    LATER("network.layers.*.batch_norm", "normalisation"),

    CUSTOM("tasks", 0, "list of tasks", fr_read_tasks, fr_write_tasks, "what is predicted", .required = true),
    ROW(FR_OPTION_NAME, "tasks.*.name", IN(fr_conf_task, name), NULL, "name in metrics and scores", .required = true),
    CUSTOM("tasks.*.label", IN(fr_conf_task, label), "name of a label", fr_read_task_label, fr_write_task_label,
           "what it learns", .required = true),
    CUSTOM("tasks.*.logit", IN(fr_conf_task, logit), "name of a layer of width 1", fr_read_task_logit,
           fr_write_task_logit, "its output before the sigmoid; this or `prob`", .given = fr_given_logit),
    CUSTOM("tasks.*.prob", 0, "list of earlier tasks", fr_read_task_prob, fr_write_task_prob,
           "its probability is the product of theirs (ESMM, Ma et al. 2018)", .given = fr_given_prob),
    CUSTOM("tasks.*.loss", IN(fr_conf_task, loss), LOSS_FORM, fr_read_task_loss, fr_write_task_loss,
           "`none`: measured only; `mse`: the score is the output itself; `pairwise`: order within a group (at most "
           "65,536 pairs of it)",
           .initial = "logloss"),
    RANGED(REAL, "tasks.*.loss.focal.gamma", IN(fr_conf_task, focal_gamma), 0, 10, "2",
           "how much well predicted samples count less (Lin et al. 2017)"),
    RANGED(REAL, "tasks.*.loss.focal.alpha", IN(fr_conf_task, focal_alpha), 0, 1, "0.25", "weight of positives"),
    RANGED(REAL, "tasks.*.weight", IN(fr_conf_task, weight), 0, 1e6, "1", "factor of its loss in the total"),
    ROW(FR_OPTION_BOOL, "tasks.*.bias_from_labels", IN(fr_conf_task, bias_from_labels), "true",
        "logloss, focal: the bias the logit adds begins at the log-odds of the first labels"),
    CUSTOM("losses", 0, "list of losses", fr_read_losses, fr_write_losses, "auxiliary losses, at most 16"),
    ROW(FR_OPTION_NAME, "losses.*.name", IN(fr_conf_loss, name), NULL, "name", .required = true),
    CUSTOM("losses.*.mse", 0, "`[a, b]`", fr_read_loss_refs, NULL, "½|a − b|² of two vectors of one width"),
    CUSTOM("losses.*.next_step", 0, "`{states, positives, negatives}`", fr_read_loss_refs, NULL,
           "a state predicts the next step of one sequence and not that of another (DIEN)"),
    RANGED(REAL, "losses.*.weight", IN(fr_conf_loss, weight), 0, 1e6, "1", "factor of its loss in the total"),

    GROUP("export", "the delta topic"),
    ROW(FR_OPTION_TOPIC, "export.topic", IN(fr_conf, export_.topic), NULL, "topic of the deltas",
        .computed = "`<model>.delta`"),
    ROW(FR_OPTION_TEXT, "export.brokers", IN(fr_conf, export_.brokers), NULL,
        "Kafka bootstrap servers; those of `ingest` in this version", .computed = "`ingest.brokers`"),
    ROW(CHOICE, "export.quantize", IN(fr_conf, export_.quantize), "f32", "form of published values",
        .choices = FR_CHOICES_AND(FR_QUANTIZES, "|bf16!|i8!")),
    RANGED(DURATION, "export.dense_every", IN(fr_conf, export_.dense_every_ms), 0, DAY, "1s",
           "time between publications of those parameters of layers that changed; 0: every epoch"),
    GROUP("export.average", "what is published of layers: a moving average of their parameters, not their last step"),
    RANGED(U64, "export.average.half_life", IN(fr_conf, export_.average_half_life), 0, 1e12, "0",
           "trained samples after which a value counts half in it; 0: parameters as they are, which metrics measure "
           "always"),
    RANGED(U32, "export.partitions", IN(fr_conf, export_.partitions), 1, 4096, "4",
           "partitions of a delta topic the daemon creates"),
    RANGED(SIZE, "export.piece_max", IN(fr_conf, export_.piece_max), 4 * KIB, 64 * MIB, "512KiB", "largest record"),
    ROW(FR_OPTION_BOOL, "export.create", IN(fr_conf, export_.create), "true", "create missing topics"),
    RANGED(DURATION, "export.drain_timeout", IN(fr_conf, export_.drain_timeout_ms), 0, DAY, "60s",
           "longest wait for acknowledgements on SIGTERM"),
    LATER("export.format", "rows in the layout of other consumers (hps)"),
    LATER("export.state", "counters and `seen` in the deltas"),
    LATER("export.snapshot_dir", "snapshots"),
    LATER("export.snapshot_every", "snapshots"),
    LATER("export.snapshot_keep", "snapshots"),
    LATER("export.snapshot_hook", "snapshots"),
    LATER("savepoints", "restorable copies of the whole state"),

    GROUP("metrics", "HTTP and the decayed metrics"),
    CUSTOM("metrics.listen", 0, "`host:port`, port 0: any", fr_read_listen, fr_write_listen,
           "address of the HTTP server", .initial = "127.0.0.1:8080"),
    CUSTOM("metrics.auc_half_life", 0, "list of durations", fr_read_half_lives, fr_write_half_lives,
           "half-lives of the decayed metrics, in event time", .initial = "[5m, 1h, 1d]"),
    CUSTOM("metrics.gauc_by", IN(fr_conf, metrics.gauc_by), "name of a sparse slot", fr_read_gauc_by, fr_write_gauc_by,
           "AUC within samples of one id of this slot", .given = fr_given_gauc_by, .computed = "none"),
    RANGED(U32, "metrics.gauc_groups_max", IN(fr_conf, metrics.gauc_groups_max), 1, 65536, "1024", "ids kept for it"),

    GROUP("optimizer.sgd", "plain stochastic gradient descent"),
    RANGED(REAL, "optimizer.sgd.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.01", "step"),
    GROUP("optimizer.adagrad", "Adagrad (Duchi et al. 2011)"),
    RANGED(REAL, "optimizer.adagrad.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.05", "step"),
    RANGED(REAL, "optimizer.adagrad.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    RANGED(REAL, "optimizer.adagrad.initial", IN(fr_optimizer, initial), 0, 1e6, "0", "accumulator at the start"),
    RANGED(U64, "optimizer.adagrad.half_life", IN(fr_optimizer, half_life), 0, 1e6, "0", HALF_LIFE),
    GROUP("optimizer.adagrad_rowwise", "Adagrad with one accumulator a row: the mean of its squares"),
    RANGED(REAL, "optimizer.adagrad_rowwise.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.05", "step"),
    RANGED(REAL, "optimizer.adagrad_rowwise.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    RANGED(REAL, "optimizer.adagrad_rowwise.initial", IN(fr_optimizer, initial), 0, 1e6, "0",
           "accumulator at the start"),
    RANGED(U64, "optimizer.adagrad_rowwise.half_life", IN(fr_optimizer, half_life), 0, 1e6, "0", HALF_LIFE),
    GROUP("optimizer.adam", "Adam (Kingma and Ba 2015)"),
    RANGED(REAL, "optimizer.adam.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.001", "step"),
    RANGED(REAL, "optimizer.adam.beta1", IN(fr_optimizer, beta1), 0, 0.999999, "0.9", "decay of the mean"),
    RANGED(REAL, "optimizer.adam.beta2", IN(fr_optimizer, beta2), 0, 0.999999, "0.999", "decay of the squares"),
    RANGED(REAL, "optimizer.adam.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    GROUP("optimizer.ftrl", "FTRL-Proximal (McMahan et al. 2013)"),
    RANGED(REAL, "optimizer.ftrl.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.1", "α of the paper"),
    RANGED(REAL, "optimizer.ftrl.beta", IN(fr_optimizer, beta), 0, 1e6, "1", "β"),
    GROUP("optimizer.momentum", "gradient descent with momentum, not Nesterov's"),
    RANGED(REAL, "optimizer.momentum.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.01", "step"),
    RANGED(REAL, "optimizer.momentum.momentum", IN(fr_optimizer, momentum), 0, 0.999999, "0.9",
           "share of the last step that is kept"),
    GROUP("optimizer.rmsprop", "RMSProp (Tieleman and Hinton 2012)"),
    RANGED(REAL, "optimizer.rmsprop.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.01", "step"),
    RANGED(REAL, "optimizer.rmsprop.rho", IN(fr_optimizer, rho), 0, 0.999999, "0.99", "decay of the squares"),
    RANGED(REAL, "optimizer.rmsprop.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    GROUP("optimizer.adam_rowwise", "Adam with one second moment a row: the mean of its squares"),
    RANGED(REAL, "optimizer.adam_rowwise.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.001", "step"),
    RANGED(REAL, "optimizer.adam_rowwise.beta1", IN(fr_optimizer, beta1), 0, 0.999999, "0.9", "decay of the mean"),
    RANGED(REAL, "optimizer.adam_rowwise.beta2", IN(fr_optimizer, beta2), 0, 0.999999, "0.999", "decay of the squares"),
    RANGED(REAL, "optimizer.adam_rowwise.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    GROUP("optimizer.group_ftrl", "FTRL with a penalty on the norm of a row: whole rows become zero"),
    RANGED(REAL, "optimizer.group_ftrl.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.1", "α"),
    RANGED(REAL, "optimizer.group_ftrl.beta", IN(fr_optimizer, beta), 0, 1e6, "1", "β"),
    RANGED(REAL, "optimizer.group_ftrl.l21", IN(fr_optimizer, l21), 0, 1e6, "0", "penalty of the norm"),
    GROUP("optimizer.adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2019)"),
    RANGED(REAL, "optimizer.adamw.lr", IN(fr_optimizer, lr), FLT_MIN, 1e6, "0.001", "step"),
    RANGED(REAL, "optimizer.adamw.beta1", IN(fr_optimizer, beta1), 0, 0.999999, "0.9", "decay of the mean"),
    RANGED(REAL, "optimizer.adamw.beta2", IN(fr_optimizer, beta2), 0, 0.999999, "0.999", "decay of the squares"),
    RANGED(REAL, "optimizer.adamw.eps", IN(fr_optimizer, eps), FLT_MIN, 1, "1e-8", "added to the root"),
    RANGED(REAL, "optimizer.adamw.weight_decay", IN(fr_optimizer, weight_decay), 0, 1e3, "0.01",
           "share of the weight that goes, times the step"),
    RANGED(REAL, "optimizer.*.l1", IN(fr_optimizer, l1), 0, 1e6, "0",
           "ftrl, group_ftrl: λ₁ of the algorithm; others: l1 · sign(weight) joins the mean gradient of a unit"),
    RANGED(REAL, "optimizer.*.l2", IN(fr_optimizer, l2), 0, 1e6, "0",
           "ftrl, group_ftrl: λ₂ of the algorithm; others: l2 · weight joins the mean gradient of a unit"),
    RANGED(REAL, "optimizer.*.clip_value", IN(fr_optimizer, clip_value), 0, 1e15, "0",
           "elements of the mean gradient of a unit are cut to ± this; 0: off"),
    RANGED(REAL, "optimizer.*.clip_norm", IN(fr_optimizer, clip_norm), 0, 1e15, "0",
           "longest mean gradient of a unit, of a row's part or of a parameter of a layer; 0: off"),
    RANGED(U64, "optimizer.*.warmup_samples", IN(fr_optimizer, warmup_samples), 0, 1e15, "0",
           "trained samples over which the rate rises from 0; 0: off"),
    RANGED(U64, "optimizer.*.decay_samples", IN(fr_optimizer, decay_samples), 0, 1e15, "0",
           "trained samples over which the rate is multiplied by decay_rate, smoothly; 0: off"),
    RANGED(REAL, "optimizer.*.decay_rate", IN(fr_optimizer, decay_rate), FLT_MIN, 1, "0.5",
           "factor over decay_samples, at most 1"),
    RANGED(REAL, "optimizer.*.decay_floor", IN(fr_optimizer, decay_floor), 0, 1, "0.1",
           "smallest factor the rate decays to: a stream has no end"),
    ROW(FR_OPTION_BOOL, "optimizer.*.decay_all", IN(fr_optimizer, decay_all), "false",
        "layers: l1, l2 and weight_decay hold for biases, scales and slopes too, not for kernels only"),
};
const size_t fr_options_count = FR_ARRAY_LEN(fr_options);

const char *fr_option_key(const struct fr_option *option, const char *pattern)
{
    static const char any_optimizer[] = "optimizer.*.";
    size_t size = strlen(pattern), any = sizeof(any_optimizer) - 1;
    const char *key = option->path;
    if (strncmp(key, any_optimizer, any) == 0 && strncmp(pattern, "optimizer.", 10) == 0)
        return key + any;
    if (size > 0) {
        if (strncmp(key, pattern, size) != 0 || key[size] != '.')
            return NULL;
        key += size + 1;
    }
    return strchr(key, '.') ? NULL : key;
}

const struct fr_option *fr_option_find(const char *path)
{
    for (size_t i = 0; i < fr_options_count; i++) {
        if (strcmp(fr_options[i].path, path) == 0)
            return &fr_options[i];
    }
    return NULL;
}

void fr_option_bound(const struct fr_option *option, double value, char out[static FR_SCALAR_TEXT_MAX])
{
    if (option->type == FR_OPTION_DURATION)
        fr_scalar_format_duration((int64_t)value, out);
    else if (option->type == FR_OPTION_SIZE)
        fr_scalar_format_size((uint64_t)value, out);
    else if (value >= 18446744073709551615.0 && option->type == FR_OPTION_U64)
        snprintf(out, FR_SCALAR_TEXT_MAX, "18446744073709551615"); /* as a double it is one more */
    else
        snprintf(out, FR_SCALAR_TEXT_MAX, "%.*g", option->type == FR_OPTION_REAL ? 6 : 20, value);
}

int fr_choice_find(const char *choices, const char *text, bool *later)
{
    size_t size = strlen(text);
    int index = 0;
    for (const char *at = choices;; index++) {
        size_t length = strcspn(at, "|");
        bool marked = length > 0 && at[length - 1] == '!';
        if (length - marked == size && memcmp(at, text, size) == 0) {
            *later = marked;
            return index;
        }
        if (at[length] == '\0')
            return -1;
        at += length + 1;
    }
}

void fr_choice_name(const char *choices, int index, char out[static 32])
{
    const char *at = choices;
    for (int i = 0; i < index; i++) {
        at = strchr(at, '|');
        FR_CHECK(at != NULL);
        at++;
    }
    size_t size = strcspn(at, "|!");
    FR_CHECK(size < 32);
    memcpy(out, at, size);
    out[size] = '\0';
}
