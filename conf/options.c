/* See options.h. One row per option; the order of the rows is the order of reading, printing and of
 * the reference. */
#include "options.h"

#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "conf/conf.h"
#include "forms.h"

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
#define CARRIED (1u << FR_SOURCE_SAMPLE)
#define BUCKETS (1u << FR_SOURCE_BUCKETS)
#define CROSS (1u << FR_SOURCE_CROSS)
#define MODEL FR_VIEW_MODEL
#define TRAINING FR_VIEW_TRAINING

/* Columns: type, path, place, [range,] default, meaning, further fields. */
#define OPTION(t, p, x, ...)                                                                                           \
    {                                                                                                                  \
        .type = FR_OPTION_##t, .path = p, .text = x, __VA_ARGS__                                                       \
    }
#define ROW(t, p, o, d, x, ...) OPTION(t, p, x, .offset = o, .initial = d, __VA_ARGS__)
#define RANGED(t, p, o, lo, hi, d, x, ...) ROW(t, p, o, d, x, .min = lo, .max = hi, __VA_ARGS__)
#define GROUP(p, x, ...) OPTION(GROUP, p, x, __VA_ARGS__)
#define LATER(p, x) OPTION(LATER, p, x, )
#define SHOWN(p, f, r, x, ...) OPTION(CUSTOM, p, x, .form = f, .show = fr_option_show_##r, __VA_ARGS__)
#define CUSTOM(p, f, r, x, ...) SHOWN(p, f, r, x, .read = fr_option_read_##r, __VA_ARGS__)
#define OPTIMIZER(p, o, c, x, ...)                                                                                     \
    CUSTOM(p, "name, or `{name: {options}}`", optimizer, x, .offset = o, .choices = c, __VA_ARGS__)
#define INIT(p, o, list, x, ...)                                                                                       \
    CUSTOM(p, FR_INIT_FORMS(list), init, x, .offset = o, .choices = FR_INIT_CHOICES(list), __VA_ARGS__)
#define REF(p, o, to, n, f, x, ...) OPTION(REF, p, x, .offset = o, .of = to, .noun = n, .form = f, __VA_ARGS__)
/* Columns: path; scope, array, number, struct of one; fewest, most; form, meaning, further. */
#define ENTRIES(p, s, list, n, e, lo, hi, f, x, ...)                                                                   \
    RANGED(ENTRIES, p, IN(s, list), lo, hi, NULL, x, .count = IN(s, n), .size = sizeof(struct e), .form = f,           \
           __VA_ARGS__)

#define PART_INIT "`{normal: 0.01}`; ftrl, group_ftrl of width 1: `zeros`"
#define TRANSFORM_FORM                                                                                                 \
    "`none`, `log1p`, `{clip: [low, high]}`, `standardize`, `{bucketize: [b, ..]}`, `time_of_day`, `time_of_week`, "   \
    "or "                                                                                                              \
    "a list of them"
/* Rows of optimizers. */
#define RULE(t, kind, m, lo, hi, d, x, ...)                                                                            \
    RANGED(t, "optimizer." kind "." #m, IN(fr_optimizer, m), lo, hi, d, x, .views = TRAINING, __VA_ARGS__)
#define EVERY(t, m, lo, hi, d, x) RULE(t, "*", m, lo, hi, d, x, .quiet = true)
#define RATE(kind, d, x) RULE(REAL, kind, lr, FLT_MIN, 1e6, d, x)
/* A state fixes these rates, because all weights are computed from the rates and the
 * accumulators. */
#define FTRL_RATES(kind, d)                                                                                            \
    RULE(REAL, kind, lr, FLT_MIN, 1e6, "0.1", d, .fixed = "weights follow from it and the accumulators"),              \
        RULE(REAL, kind, beta, 0, 1e6, "1", "β", .fixed = "weights follow from it and the accumulators")
#define EPS(kind) RULE(REAL, kind, eps, FLT_MIN, 1, "1e-8", "added to the root")
#define MOMENTS(kind)                                                                                                  \
    RULE(REAL, kind, beta1, 0, 0.999999, "0.9", "decay of the mean"),                                                  \
        RULE(REAL, kind, beta2, 0, 0.999999, "0.999", "decay of the squares"), EPS(kind)
#define ACCUMULATOR(kind)                                                                                              \
    EPS(kind), RULE(REAL, kind, initial, 0, 1e6, "0", "accumulator at the start"),                                     \
        RULE(U64, kind, half_life, 0, 1e6, "0",                                                                        \
             "samples after which half of the accumulator is forgotten: of a row's own, or of the stream; 0: never",   \
             .quiet = true)
#define OPERATION(name, key, form, text, ...) CUSTOM("network.layers.*." key, form, layer_op, text, .views = MODEL),

const struct fr_option fr_options[] = {
    CUSTOM("version", "`1`", version, "version of this grammar", .top = MODEL | TRAINING, .required = true),
    ROW(NAME, "model", IN(fr_conf, model), NULL, "name of the model: label of every metric, part of topic names",
        .fixed = "it names what replicas follow", .form = "`[A-Za-z0-9_-]{1,120}`", .read = fr_option_read_model,
        .required = true),
    ROW(TEXT, "state_dir", IN(fr_conf, state_dir), NULL, "directory of the journal and the cold store; one daemon each",
        .required = true),
    RANGED(SIZE, "memory_limit", IN(fr_conf, memory_limit), MIB, 64 * TIB, "4GiB",
           "memory of the whole process, about; what else it needs leaves the rest to rows and indexes, and clean rows "
           "beyond that are in the cold store only"),
    RANGED(SIZE, "row_memory", IN(fr_conf, row_memory), 0, 64 * TIB, "0",
           "at most so much of it for rows and indexes; 0: what is left"),
    RANGED(SIZE, "memory_reserve", IN(fr_conf, memory_reserve), 0, 64 * TIB, "0",
           "part of `memory_limit` that rows and indexes get at the start, in huge pages; three epochs do, too"),
    RANGED(U64, "seed", IN(fr_conf, seed), 0, 18446744073709551615.0, "1", "of all initial weights", .top = TRAINING),
    CUSTOM("key_seed", "integer > 0, or text of at most 128 bytes", key_seed,
           "a secret that ids become keys with, for streams whose ids clients choose: without it they can know keys; "
           "part of the model, so readers of the delta topic know it",
           .computed = "none", .quiet = true, .top = MODEL),
    RANGED(U32, "threads", IN(fr_conf, threads), 0, 1024, "0",
           "workers; 0: one per core that affinity and quota of the process leave it"),
    CUSTOM("device", "`auto`, `cpu`, `cuda` or `cuda:N`", device,
           "where the network runs; `auto`: on the first card, where plug-in, driver and card are there, else the CPU",
           .initial = "auto"),
    RANGED(SIZE, "gpu_memory_limit", IN(fr_conf, gpu_memory_limit), 0, 64 * TIB, "0",
           "memory of the card for rows; those that others need it less than are brought from the host's when they are "
           "used; 0: four fifths of what is free at the start"),
    RANGED(DURATION, "epoch", IN(fr_conf, epoch_ms), 1, DAY, "1s", "time between cuts: durability and publishing"),
    RANGED(DURATION, "heartbeat", IN(fr_conf, heartbeat_ms), 1, DAY, "10s", "an epoch at least this often, even empty"),
    RANGED(SIZE, "epoch_bytes_max", IN(fr_conf, epoch_bytes_max), 64 * KIB, TIB, NULL,
           "memory for changes that forces a cut", .computed = "memory_limit/16 to 64MiB, memory_limit/32 to 256MiB"),
    RANGED(SIZE, "unfolded_max", IN(fr_conf, unfolded_max), 64 * KIB, TIB, NULL,
           "journal bytes that start a fold; twice that pauses reading; at least one epoch, which holds the layers' "
           "parameters and optimizer state",
           .computed = "min(memory_limit/4, 512MiB)"),
    RANGED(SIZE, "journal_max", IN(fr_conf, journal_max), 64 * KIB, 64 * TIB, NULL,
           "journal bytes on disk that pause reading", .computed = "4 * unfolded_max"),

    GROUP("savepoint", "copies of the state in `state_dir/savepoints`, made of links where they can be"),
    RANGED(DURATION, "savepoint.every", IN(fr_conf, savepoint.every_ms), 0, 366 * DAY, "0s",
           "time between savepoints by policy; 0: only those that `freshet savepoint` asks for"),
    RANGED(U32, "savepoint.keep", IN(fr_conf, savepoint.keep), 1, 10000, "3",
           "newest savepoints by policy that stay; those with a name of their own stay always"),
    ROW(BOOL, "savepoint.at_drain", IN(fr_conf, savepoint.at_drain), "false",
        "one by policy after the last epoch of a drain"),

    GROUP("snapshot", "what replicas begin with: directories of all that is served"),
    RANGED(DURATION, "snapshot.every", IN(fr_conf, snapshot.every_ms), 0, 366 * DAY, "0s",
           "time between snapshots by policy; 0: only those that `freshet snapshot` asks for"),
    RANGED(U32, "snapshot.keep", IN(fr_conf, snapshot.keep), 1, 10000, "3",
           "newest snapshots that stay, beside the one that commits announce"),
    ROW(BOOL, "snapshot.at_drain", IN(fr_conf, snapshot.at_drain), NULL,
        "one of the last epoch at the end of a drain, which ends when CURRENT names it and the hook has ended well",
        .computed = "`true` with `export.retention: snapshots`, else `false`"),
    ROW(TEXT, "snapshot.dir", IN(fr_conf, snapshot.dir), NULL, "directory of the snapshots; of one daemon",
        .computed = "`state_dir/snapshots`"),
    ROW(CHOICE, "snapshot.quantize", IN(fr_conf, snapshot.quantize), "export",
        "form of their values; `export`: that of the deltas, so that rows of both agree",
        .choices = FR_CHOICES(FR_SNAPSHOT_QUANTIZES)),
    RANGED(SIZE, "snapshot.rate", IN(fr_conf, snapshot.rate), 0, TIB, "64MiB",
           "bytes a second that a snapshot is written with at most; 0: without limit"),
    CUSTOM(
        "snapshot.hook", "list of texts: a command and its arguments", hook,
        "runs for each new snapshot, whose directory is appended as the last argument; commits announce the snapshot "
        "once it ended with exit status 0, which it is tried for again otherwise",
        .computed = "none: announced at once"),
    RANGED(DURATION, "snapshot.hook_timeout", IN(fr_conf, snapshot.hook_timeout_ms), 1, 7 * DAY, "30m",
           "time after which the hook is ended and has failed"),

    GROUP("ingest", "the sample log", .required = true),
    ROW(TEXT, "ingest.brokers", IN(fr_conf, ingest.brokers), NULL,
        "Kafka bootstrap servers, `host:port,host:port`; `files` alone need none: then no delta is published, and dead "
        "letters go to `dead_letters.jsonl` in state_dir",
        .computed = "none, with `files` alone"),
    CUSTOM("ingest.topic", "topic name", topic, "topic of the samples; this, `topics` or `files`"),
    CUSTOM("ingest.topics", "list of topic names", topics,
           "the same for several, at most 64; positions are per topic and partition"),
    ROW(CHOICE, "ingest.format", IN(fr_conf, ingest.format), "msgpack", "form of a record", .choices = "msgpack|json"),
    GROUP("ingest.envelope",
          "records are flat objects: keys of slots and labels are paths in them, as `user.id`, in place of `f` and `y`",
          .present = IN(fr_conf, ingest.envelope)),
    CUSTOM("ingest.envelope.t", "path of 1 to 128 bytes", sample_key,
           "event time: a Unix time in seconds (below 10^11, also with a fraction) or milliseconds",
           .offset = IN(fr_conf, ingest.envelope_t), .computed = "the Kafka timestamp"),
    CUSTOM("ingest.envelope.f", "`rest`, or path of 1 to 128 bytes", sample_key,
           "object whose keys are slots; `rest`: the record itself, except the event time and the labels",
           .offset = IN(fr_conf, ingest.envelope_f), .computed = "`rest`"),
    CUSTOM("ingest.start", "`earliest`, `latest`, Unix ms or `2026-01-02T03:04:05Z`", start,
           "where a state without positions begins; a time: at the first record whose Kafka timestamp is not before it",
           .initial = "earliest"),
    CUSTOM("ingest.files", "list of files", files,
           "JSON lines, plain, gzip or zstd, read in this order before Kafka, or alone"),
    ROW(CHOICE, "ingest.sampling", IN(fr_conf, ingest.sampling), "all",
        "what a sample's keep rate `s` corrects by 1/s: training and metrics, metrics only, or nothing",
        .choices = FR_CHOICES(FR_SAMPLINGS), .top = TRAINING),
    ROW(CHOICE, "ingest.on_loss", IN(fr_conf, ingest.on_loss), "stop", "what happens when the log lost unread records",
        .choices = FR_CHOICES(FR_ON_LOSSES)),
    ROW(TOPIC, "ingest.dead_letter_topic", IN(fr_conf, ingest.dead_letter_topic), NULL, "topic for malformed records",
        .computed = "`<first topic>.dead`; without topics `<model>.dead`"),
    RANGED(U32, "ingest.batch_size", IN(fr_conf, ingest.batch_size), 1, 65536, "256",
           "samples that close a batch once the model has grown up (`batch_warmup`)", .quiet = true, .top = TRAINING),
    GROUP("ingest.batch_warmup", "smaller batches while the model is young"),
    RANGED(U32, "ingest.batch_warmup.first", IN(fr_conf, ingest.batch_warmup_first), 0, 65536, NULL,
           "samples that close the first batches; 0: `batch_size` from the first on",
           .computed = "2; 8 where the layers learn more than 131072 numbers"),
    RANGED(U32, "ingest.batch_warmup.growth", IN(fr_conf, ingest.batch_warmup_growth), 1, 1048576, "16384",
           "after n samples a batch closes at n / growth of them or at `batch_size` (n / full)³, whichever is larger, "
           "but not below `first` nor above `batch_size`"),
    RANGED(U32, "ingest.batch_warmup.full", IN(fr_conf, ingest.batch_warmup_full), 1, 1073741824, "262144",
           "samples after which every batch is full; larger than `growth` times `batch_size`: growth alone decides"),
    RANGED(DURATION, "ingest.batch_wait", IN(fr_conf, ingest.batch_wait_ms), 0, HOUR, "20ms",
           "time that closes a batch"),
    RANGED(SIZE, "ingest.record_max", IN(fr_conf, ingest.record_max), KIB, 64 * MIB, "1MiB",
           "larger records are malformed"),
    RANGED(U32, "ingest.group_max", IN(fr_conf, ingest.group_max), 1, 65536, "4096", "larger groups are malformed"),
    RANGED(DURATION, "ingest.future_max", IN(fr_conf, ingest.future_max_ms), 0, 3650 * DAY, "1h",
           "event times further beyond the Kafka timestamp, or (but in lockstep) beyond this host's clock when the "
           "record comes, are refused"),
    RANGED(DURATION, "ingest.watermark_step_max", IN(fr_conf, ingest.watermark_step_max_ms), 0, 3650 * DAY, "0",
           "a batch raises the watermark by at most this, whatever its event times; the first of a history from their "
           "median; 0: no limit"),
    RANGED(
        REAL, "ingest.dense_max", IN(fr_conf, ingest.dense_max), FLT_MIN, FLT_MAX, "1e5",
        "a record with a larger number (its absolute value), as the network reads it (behind `clip` and `log1p`), is "
        "malformed; 1e15 for numbers that are standardized, none for those only read as buckets"),
    RANGED(
        REAL, "ingest.weight_max", IN(fr_conf, ingest.weight_max), FLT_MIN, FLT_MAX, "1e4",
        "a record with a larger weight `w`, or `w / s` (unless `sampling` is `none`), is malformed; so is one with a "
        "larger weight of an id (its absolute value), or a larger product of weights in a cross"),
    ROW(BOOL, "ingest.strict", IN(fr_conf, ingest.strict), "false",
        "names that the configuration does not have (slots, labels, tasks, envelope keys that do not begin with "
        "`x_`) make the record malformed instead of being ignored"),
    RANGED(
        REAL, "ingest.malformed_max", IN(fr_conf, ingest.malformed_max), 0, 1, "0.1",
        "share of a minute's records that may be malformed before `/healthz` is degraded; below 1, reading pauses when "
        "all records are refused: the first 1000 of a start, or 1000 in a row later (a bounded run ends with exit "
        "2); 1: passes over any number"),
    RANGED(DURATION, "ingest.ready_lag", IN(fr_conf, ingest.ready_lag_ms), 1, 3650 * DAY, "30s",
           "lag below which `/readyz` is 200"),
    RANGED(U32, "ingest.ring_batches", IN(fr_conf, ingest.ring_batches), 1, 4096, "16", "batches waiting for training"),
    GROUP("ingest.lockstep", "reproducible mode: fixed batches up to the end of the log, then exit 0",
          .present = IN(fr_conf, ingest.lockstep)),
    RANGED(U32, "ingest.lockstep.records", IN(fr_conf, ingest.lockstep_records), 1, 1048576, "128",
           "records of each partition in a batch"),
    RANGED(U32, "ingest.lockstep.epoch_batches", IN(fr_conf, ingest.lockstep_epoch_batches), 1, 1048576, "64",
           "batches between cuts"),
    CUSTOM("ingest.kafka", "map of librdkafka properties", kafka, "passed on to the Kafka client: security, timeouts",
           .open_keys = true),

    ENTRIES("tables", fr_conf, tables, n_tables, fr_conf_table, 0, FR_TABLES_MAX, "map name → table",
            "embedding tables", .named = true, .entry = fr_option_read_table, .top = MODEL | TRAINING),
    RANGED(U64, "tables.*.initial_capacity", IN(fr_conf_table, initial_capacity), 0, 1099511627776.0, "0",
           "keys that the index has room for from the start, 11 bytes each", .quiet = true),
    RANGED(U32, "tables.*.dim", IN(fr_conf_table, parts[0].dim), 1, FR_DIM_MAX, NULL,
           "width of a row of one part, named `v`; this or `parts`", .shorthand = true),
    OPTIMIZER("tables.*.optimizer", IN(fr_conf_table, parts[0].optimizer), FR_ROW_OPTIMIZERS,
              "update rule of that part", .initial = "adagrad", .shorthand = true),
    INIT("tables.*.init", IN(fr_conf_table, parts[0].init), FR_ROW_INITS, "initial weights of that part",
         .computed = PART_INIT, .shorthand = true),
    ENTRIES("tables.*.parts", fr_conf_table, parts, n_parts, fr_conf_part, 1, FR_PARTS_MAX, "map name → part",
            "segments of a row with their own update rule", .named = true, .inside = true, .entry = fr_option_read_part,
            .views = MODEL | TRAINING),
    RANGED(U32, "tables.*.parts.*.dim", IN(fr_conf_part, dim), 1, FR_DIM_MAX, NULL, "width", .required = true,
           .views = MODEL),
    OPTIMIZER("tables.*.parts.*.optimizer", IN(fr_conf_part, optimizer), FR_ROW_OPTIMIZERS, "update rule",
              .initial = "adagrad", .views = TRAINING),
    INIT("tables.*.parts.*.init", IN(fr_conf_part, init), FR_ROW_INITS, "initial weights", .computed = PART_INIT,
         .views = TRAINING),
    GROUP("tables.*.admit", "when a key gets a row", .views = TRAINING),
    RANGED(U32, "tables.*.admit.count", IN(fr_conf_table, admit_count), 1, 1000000, "1", "occurrences that admit a key",
           .views = TRAINING, .present = IN(fr_conf_table, admit_counts)),
    RANGED(U64, "tables.*.admit.count_max", IN(fr_conf_table, admit_count_max), 1, 1099511627776.0, "16777216",
           "keys counted at once", .quiet = true, .views = TRAINING, .present = IN(fr_conf_table, admit_counts)),
    RANGED(DURATION, "tables.*.admit.idle", IN(fr_conf_table, admit_idle_ms), 1, 3650 * DAY, "1d",
           "a count not seen for this long is forgotten", .quiet = true, .views = TRAINING,
           .present = IN(fr_conf_table, admit_counts)),
    GROUP(
        "tables.*.admit.sketch",
        "instead of `count`: approximate counts in fixed memory, never too low; not with `count`, `count_max`, `idle`",
        .views = TRAINING, .present = IN(fr_conf_table, admit_sketch)),
    RANGED(U32, "tables.*.admit.sketch.min", IN(fr_conf_table, admit_sketch_min), 1, 15, NULL,
           "occurrences that admit a key", .required = true, .views = TRAINING),
    RANGED(DURATION, "tables.*.admit.sketch.half_life", IN(fr_conf_table, admit_sketch_half_life_ms), SECOND,
           3650 * DAY, "1d", "event time after which counts are halved", .views = TRAINING,
           .fixed = "counters are dated by it"),
    RANGED(SIZE, "tables.*.admit.sketch.bytes", IN(fr_conf_table, admit_sketch_bytes), 64 * KIB, TIB, "64MiB",
           "memory of the counters, part of `memory_limit`; 8 bytes a key that comes within a few half-lives",
           .views = TRAINING, .fixed = "counters lie where it says"),
    RANGED(REAL, "tables.*.admit.probability", IN(fr_conf_table, admit_probability), FLT_MIN, 1, NULL,
           "instead of `count` or `sketch`: each occurrence admits its key with this probability",
           .form = "number > 0, at most 1", .views = TRAINING, .present = IN(fr_conf_table, admit_coins)),
    GROUP("tables.*.expire", "when a row is removed", .quiet = true, .views = TRAINING),
    RANGED(DURATION, "tables.*.expire.idle", IN(fr_conf_table, expire.idle.idle_ms), 0, 36500 * DAY, "0",
           "rows not trained for this long in event time; 0: never", .quiet = true, .views = TRAINING),
    RANGED(U32, "tables.*.expire.every", IN(fr_conf_table, expire_every), 1, 1048576, "16",
           "full batches of samples trained while `slice_rows` rows are looked at", .quiet = true, .views = TRAINING),
    RANGED(U32, "tables.*.expire.slice_rows", IN(fr_conf_table, expire_slice_rows), 1, 1073741824, "65536",
           "rows looked at in `every` batches, about, in slices spread over them", .quiet = true, .views = TRAINING),
    RANGED(REAL, "tables.*.expire.weak", IN(fr_conf_table, expire.weak.norm), FLT_MIN, 1e6, NULL,
           "rows go when the L2 norm of their published values is smaller", .views = TRAINING,
           .present = IN(fr_conf_table, expires.weak)),
    GROUP("tables.*.expire.score", "rows go by a decayed score of shows and clicks", .views = TRAINING,
          .present = IN(fr_conf_table, expires.score)),
    RANGED(REAL, "tables.*.expire.score.show_weight", IN(fr_conf_table, expire.score.show_weight), 0, 1e6, "0.1",
           "score of a trained occurrence", .views = TRAINING),
    RANGED(REAL, "tables.*.expire.score.click_weight", IN(fr_conf_table, expire.score.click_weight), 0, 1e6, "1",
           "score of a positive first label on top of that", .views = TRAINING),
    RANGED(DURATION, "tables.*.expire.score.half_life", IN(fr_conf_table, expire.score.half_life_ms), 0, 36500 * DAY,
           "30d", "event time without training that halves the score; 0: never", .views = TRAINING),
    RANGED(REAL, "tables.*.expire.score.min", IN(fr_conf_table, expire.score.min), FLT_MIN, 1e15, NULL,
           "rows with a smaller score go", .required = true, .views = TRAINING),
    RANGED(U64, "tables.*.expire.rows_max", IN(fr_conf_table, expire.capacity.rows_max), 1, 1099511627776.0, NULL,
           "of more rows, about those trained longest ago go", .views = TRAINING,
           .present = IN(fr_conf_table, expires.capacity)),

    ENTRIES("slots", fr_conf, slots, n_slots, fr_conf_slot, 1, FR_SLOTS_MAX, "map name → slot", "input fields",
            .named = true, .entry = fr_option_read_slot, .all = fr_option_read_slots, .required = true, .follows = true,
            .top = MODEL),
    ROW(CHOICE, "slots.*.kind", IN(fr_conf_slot, kind), "sparse", "ids, ordered ids, or floats",
        .choices = FR_CHOICES(FR_SLOT_KINDS), .views = MODEL),
    REF("slots.*.table", IN(fr_conf_slot, table), "tables", "a table", "name of a table", "where the ids are looked up",
        .kinds = SPARSE | SEQUENCE, .required = true, .views = MODEL),
    CUSTOM(
        "slots.*.buckets", "`{of: slot, boundaries: [b, ..]}`", buckets,
        "computed, not carried by samples: the id is the number of ascending boundaries (at most 255) at or below the "
        "number of a dense slot of `dim` 1, as samples carry it, before its transform; missing: no id",
        .kinds = SPARSE, .sources = BUCKETS, .views = MODEL),
    CUSTOM("slots.*.cross", "list of 2 to 4 sparse slots", cross,
           "computed, not carried by samples: an id for every combination of their ids, weights multiplied; none where "
           "one of them has none; the order of the slots matters; not of crosses",
           .kinds = SPARSE, .sources = CROSS, .views = MODEL),
    ROW(NAME, "slots.*.namespace", IN(fr_conf_slot, name_space), NULL,
        "slots share ids when they share table and namespace", .kinds = SPARSE | SEQUENCE,
        .computed = "the table's name; of `buckets` and `cross`: the slot's", .views = MODEL),
    ROW(SWITCH, "slots.*.id", IN(fr_conf_slot, id_raw), "auto",
        "`auto`: the string \"5\" is the integer 5; `raw`: it is not", .choices = "auto|raw",
        .kinds = SPARSE | SEQUENCE, .sources = CARRIED, .views = MODEL),
    CUSTOM("slots.*.key", "text of 1 to 128 bytes", sample_key, "key of the slot in samples, any text, as `user.id`",
           .offset = IN(fr_conf_slot, key), .computed = "the slot's name", .sources = CARRIED, .follows = true,
           .views = MODEL),
    RANGED(I64, "slots.*.index", IN(fr_conf_slot, index), 0, 2147483647, NULL, "integer key of the slot in samples",
           .computed = "none", .sources = CARRIED, .follows = true, .views = MODEL),
    RANGED(U32, "slots.*.max_ids", IN(fr_conf_slot, max_ids), 1, 65536, "1024", "ids kept of a sample, the last ones",
           .kinds = SPARSE, .sources = CARRIED | CROSS, .follows = true, .views = MODEL),
    RANGED(U32, "slots.*.max_len", IN(fr_conf_slot, max_len), 1, 65536, "50", "ids kept of a sample, the newest ones",
           .kinds = SEQUENCE, .follows = true, .views = MODEL),
    ROW(SWITCH, "slots.*.admit", IN(fr_conf_slot, admit), "auto", "`never`: this slot looks up only; others admit",
        .choices = "never|auto", .kinds = SPARSE | SEQUENCE),
    ROW(BOOL, "slots.*.touch", IN(fr_conf_slot, touch), "true", "a look-up keeps the row from expiring",
        .kinds = SPARSE | SEQUENCE),
    RANGED(U32, "slots.*.dim", IN(fr_conf_slot, dim), 1, FR_DIM_MAX, "1", "numbers per sample", .kinds = DENSE,
           .views = MODEL),
    CUSTOM(
        "slots.*.transform", TRANSFORM_FORM, transform,
        "of every number, one after the other: log(1 + x); cut to a range; last, if at all, `standardize`: minus the "
        "mean, by the deviation of earlier samples, cut to ±10, and 0 until 100 are counted; or `bucketize`: one-hot "
        "of its place among at most 255 ascending boundaries. Alone: sine and cosine of a Unix time (s or ms) on the "
        "day or the week, in UTC, weeks from Monday; packed columns are f32, which hold a time to about a minute",
        .initial = "none", .kinds = DENSE, .views = MODEL),
    RANGED(REAL, "slots.*.default", IN(fr_conf_slot, default_value), -FLT_MAX, FLT_MAX, NULL,
           "what a missing value reads as, before the transform; with `standardize` it then counts as a value given",
           .kinds = DENSE, .present = IN(fr_conf_slot, has_default), .views = MODEL,
           .computed =
               "0; with `standardize` missing values are left out of mean and deviation and read as 0 after it, times "
               "as (0, 0)"),
    ROW(BOOL, "slots.*.indicator", IN(fr_conf_slot, indicator), "false",
        "one more column behind the numbers: 1 where the value was missing", .kinds = DENSE, .views = MODEL),

    ENTRIES("labels", fr_conf, labels, n_labels, fr_conf_label, 1, FR_LABELS_MAX, "map name → `{}` or derived label",
            "labels; those without `of` are carried by samples, in the order of their arrays", .named = true,
            .mutual = true, .flow = true, .entry = fr_option_read_label, .all = fr_option_read_labels, .required = true,
            .follows = true, .top = MODEL),
    REF("labels.*.of", IN(fr_conf_label, of), "labels", "a label", "name of a label",
        "derived from that label; samples do not carry it", .views = MODEL),
    REF("labels.*.given", IN(fr_conf_label, given), "labels", "a label", "name of a label",
        "masked unless that label is 1", .views = MODEL),
    RANGED(REAL, "labels.*.min", IN(fr_conf_label, min), -(double)FLT_MAX, (double)FLT_MAX, NULL,
           "1 where the label of `of` is at least this, else 0", .present = IN(fr_conf_label, has_min), .views = MODEL),
    CUSTOM("labels.*.key", "text of 1 to 128 bytes", sample_key, "key of the label in samples, any text",
           .offset = IN(fr_conf_label, key), .computed = "the label's name", .follows = true, .views = MODEL),
    RANGED(REAL, "labels.*.negative", IN(fr_conf_label, negative), -(double)FLT_MAX, (double)FLT_MAX, NULL,
           "number by which samples say 0, not 1: -1 where labels are -1 and 1",
           .present = IN(fr_conf_label, has_negative), .computed = "none", .follows = true, .views = MODEL),

    GROUP("network", "the dense part of the model", .required = true, .top = TRAINING),
    OPTIMIZER("network.optimizer", IN(fr_conf, dense_optimizer), FR_LAYER_OPTIMIZERS, "update rule of the layers",
              .initial = "adam", .views = TRAINING),
    INIT("network.init", IN(fr_conf, dense_init), FR_LAYER_INITS,
         "initial weights of the layers; with any but `default` biases start at 0, but a `bias` layer at a constant "
         "asked for",
         .initial = "default"),
    RANGED(REAL, "network.clip_global_norm", IN(fr_conf, clip_global_norm), 0, 1e15, "0",
           "longest mean gradient of all layers together; 0: off", .quiet = true, .views = TRAINING),
    ROW(CHOICE, "network.precision", IN(fr_conf, precision), "f32",
        "what factors of the layers' products are rounded to while training; `bf16` needs AVX512_BF16, or a card",
        .choices = FR_CHOICES(FR_PRECISIONS), .quiet = true, .views = TRAINING),
    ENTRIES("network.layers", fr_conf, layers, n_layers, fr_conf_layer, 1, FR_LAYERS_MAX, "list of layers",
            "layers, in any order", .read = fr_option_read_layers, .required = true, .top = MODEL | TRAINING),
    ROW(NAME, "network.layers.*.name", IN(fr_conf_layer, name), NULL, "name, unlike that of any slot", .required = true,
        .views = MODEL | TRAINING),
    /* clang-format off */
    FR_LAYER_OPS(OPERATION)
    /* clang-format on */
    CUSTOM("network.layers.*.units", "integer, or list of at most 16", layer_units,
           "output widths: mlp, experts, attention (`[16]`); one: dense, gru", .takes = FR_LAYER_UNITS, .views = MODEL),
    ROW(CHOICE, "network.layers.*.activation", IN(fr_conf_layer, activation), NULL,
        "for mlp, dense, experts, attention, activate", .choices = FR_CHOICES(FR_ACTIVATIONS),
        .computed = "dense: none, others: relu", .takes = FR_LAYER_ACTIVATION, .views = MODEL),
    RANGED(U32, "network.layers.*.depth", IN(fr_conf_layer, depth), 1, 64, "1", "of cross", .takes = FR_LAYER_DEPTH,
           .views = MODEL),
    RANGED(U32, "network.layers.*.rank", IN(fr_conf_layer, rank), 0, FR_WIDTH_MAX, "0",
           "of cross: W is the product of two matrices of this rank; 0: full", .takes = FR_LAYER_RANK, .views = MODEL),
    RANGED(U32, "network.layers.*.count", IN(fr_conf_layer, count), 1, 256, NULL, "of experts", .takes = FR_LAYER_COUNT,
           .views = MODEL),
    RANGED(REAL, "network.layers.*.rate", IN(fr_conf_layer, rate), 0, 0.99, NULL, "of dropout", .takes = FR_LAYER_RATE,
           .views = MODEL),
    ROW(BOOL, "network.layers.*.softmax", IN(fr_conf_layer, softmax), "false",
        "of attention: scores sum to 1 over the sequence", .takes = FR_LAYER_SOFTMAX, .views = MODEL),
    INIT("network.layers.*.init", IN(fr_conf_layer, init), FR_LAYER_INITS, "initial weights of this layer",
         .computed = "`network.init`", .takes = FR_LAYER_INIT, .views = TRAINING),
    OPTIMIZER("network.layers.*.optimizer", IN(fr_conf_layer, optimizer), FR_LAYER_OPTIMIZERS,
              "update rule of this layer", .computed = "`network.optimizer`", .takes = FR_LAYER_OPTIMIZER,
              .present = IN(fr_conf_layer, has_optimizer), .views = TRAINING),
    LATER("network.layers.*.batch_norm", "normalisation"),

    ENTRIES("tasks", fr_conf, tasks, n_tasks, fr_conf_task, 1, FR_TASKS_MAX, "list of tasks", "what is predicted",
            .noun = "task", .entry = fr_option_read_task, .required = true, .top = MODEL | TRAINING),
    ROW(NAME, "tasks.*.name", IN(fr_conf_task, name), NULL, "name in metrics and scores", .required = true,
        .views = MODEL | TRAINING),
    REF("tasks.*.label", IN(fr_conf_task, label), "labels", "a label", "name of a label", "what it learns",
        .required = true, .views = MODEL),
    REF("tasks.*.logit", IN(fr_conf_task, logit), "network.layers", "a layer", "name of a layer of width 1",
        "its output before the sigmoid; this or `prob`", .views = MODEL),
    CUSTOM("tasks.*.prob", "list of earlier tasks", task_prob,
           "its probability is the product of theirs (ESMM, Ma et al. 2018)", .views = MODEL),
    CUSTOM("tasks.*.loss", FR_TASK_LOSSES_AND(" or `{focal: {gamma, alpha}}`"), task_loss,
           "`none`: measured only; `mse`: the score is the output itself; `pairwise`: order within a group (at most "
           "65,536 pairs of it)",
           .initial = "logloss", .views = MODEL | TRAINING, .as = "focal"),
    RANGED(REAL, "tasks.*.loss.focal.gamma", IN(fr_conf_task, focal_gamma), 0, 10, "2",
           "how much well predicted samples count less (Lin et al. 2017)", .views = TRAINING),
    RANGED(REAL, "tasks.*.loss.focal.alpha", IN(fr_conf_task, focal_alpha), 0, 1, "0.25", "weight of positives",
           .views = TRAINING),
    RANGED(REAL, "tasks.*.weight", IN(fr_conf_task, weight), 0, 1e6, "1", "its factor in the total", .views = TRAINING),
    ROW(BOOL, "tasks.*.bias_from_labels", IN(fr_conf_task, bias_from_labels), "true",
        FR_PRIOR_LOSSES_AND(": the bias the logit adds begins at the log-odds of the first labels")),
    ENTRIES("losses", fr_conf, losses, n_losses, fr_conf_loss, 0, FR_TASKS_MAX, "list of losses",
            "auxiliary losses, at most 16", .flow = true, .noun = "loss", .entry = fr_option_read_loss,
            .settled = "which parameters have a state follows from it", .top = TRAINING),
    ROW(NAME, "losses.*.name", IN(fr_conf_loss, name), NULL, "name", .required = true, .views = TRAINING),
    SHOWN("losses.*.mse", "`[a, b]`", loss_refs, "½|a − b|² of two vectors of one width", .views = TRAINING,
          .fixed = "which parameters have a state follows from it", .as = "refs"),
    SHOWN("losses.*.next_step", "`{states, positives, negatives}`", loss_refs,
          "a state predicts the next step of one sequence and not that of another (DIEN)", .views = TRAINING,
          .fixed = "which parameters have a state follows from it", .as = "refs"),
    RANGED(REAL, "losses.*.weight", IN(fr_conf_loss, weight), 0, 1e6, "1", "its factor in the total",
           .views = TRAINING),

    GROUP("export", "the delta topic"),
    ROW(TOPIC, "export.topic", IN(fr_conf, export_.topic), NULL, "topic of the deltas", .computed = "`<model>.delta`"),
    ROW(TEXT, "export.brokers", IN(fr_conf, export_.brokers), NULL,
        "Kafka bootstrap servers; those of `ingest` in this version", .computed = "`ingest.brokers`"),
    ROW(CHOICE, "export.quantize", IN(fr_conf, export_.quantize), "f32", "form of published values",
        .choices = FR_CHOICES(FR_QUANTIZES), .top = MODEL),
    RANGED(DURATION, "export.dense_every", IN(fr_conf, export_.dense_every_ms), 0, DAY, "1s",
           "time between publications of those parameters of layers that changed; 0: every epoch"),
    GROUP("export.average", "what is published of layers: a moving average of their parameters, not their last step"),
    RANGED(U64, "export.average.half_life", IN(fr_conf, export_.average_half_life), 0, 1e12, "0",
           "trained samples after which a value counts half in it; 0: parameters as they are, which metrics measure "
           "always",
           .settled = "parameters have an average or none from the first epoch on", .as = "average", .quiet = true,
           .top = TRAINING),
    RANGED(U32, "export.partitions", IN(fr_conf, export_.partitions), 1, 1024, "4",
           "partitions of a delta topic the daemon creates", .fixed = "rows go to partitions by it"),
    RANGED(SIZE, "export.piece_max", IN(fr_conf, export_.piece_max), 64 * KIB, 64 * MIB, "512KiB",
           "largest record; it holds the widest row, the model's description and a commit with the offsets of 4096 "
           "partitions"),
    ROW(CHOICE, "export.on_loss", IN(fr_conf, export_.on_loss), "rebase",
        "what happens when the topic lost its beginning, was deleted and created again or is new for the state: it is filled with the "
        "whole state as one merged epoch, or the daemon stops (exit 3)",
        .choices = FR_CHOICES(FR_DELTA_LOSSES)),
    RANGED(SIZE, "export.backlog_max", IN(fr_conf, export_.backlog_max), 0, TIB, "256MiB",
           "bytes of durable epochs (journal) that may wait for the topic one by one; what is beyond goes out merged: "
           "the newest image of each key; 0: any; not in lockstep"),
    ROW(CHOICE, "export.on_backlog", IN(fr_conf, export_.on_backlog), "merge",
        "what goes out beyond export.backlog_max: epochs merged, or the whole state as one epoch",
        .choices = FR_CHOICES(FR_BACKLOGS)),
    ROW(CHOICE, "export.retention", IN(fr_conf, export_.retention), "all",
        "what the topic keeps: everything, or what is newer than the oldest kept snapshot; needs `snapshot.every`",
        .choices = FR_CHOICES(FR_RETENTIONS)),
    ROW(CHOICE, "export.format", IN(fr_conf, export_.format), "delta",
        "`hps`: rows go to topics `hps_et.<model>.<table>` as well, for consumers of NVIDIA HPS, without tombstones",
        .choices = FR_CHOICES(FR_EXPORT_FORMATS)),
    ROW(BOOL, "export.create", IN(fr_conf, export_.create), "true", "create missing topics"),
    ROW(BOOL, "export.acknowledgements", IN(fr_conf, export_.acknowledgements), "false",
        "read which epochs replicas serve, for `/status` and series (docs/serving.md, \"The fleet\")"),
    ROW(TOPIC, "export.acknowledgement_topic", IN(fr_conf, export_.acknowledgement_topic), NULL,
        "topic on which replicas report the epoch they serve; set the same topic at the replicas",
        .computed = "`<model>.ack`"),
    RANGED(DURATION, "export.drain_timeout", IN(fr_conf, export_.drain_timeout_ms), 0, DAY, "60s",
           "longest drain: acknowledgements, the savepoint of `savepoint.at_drain`, the snapshot and hook of "
           "`snapshot.at_drain`"),
    LATER("export.state", "counters and `seen` in the deltas"),

    GROUP("metrics", "HTTP and the decayed metrics"),
    CUSTOM("metrics.listen", "`address:port`, port 0: any", listen, "address of the HTTP server",
           .initial = "127.0.0.1:8080"),
    CUSTOM("metrics.hosts", "list of host names", hosts,
           "names by which clients may call the HTTP server, beside its addresses and localhost", .computed = "none"),
    CUSTOM("metrics.auc_half_life", "list of durations", half_lives, "half-lives of the decayed metrics, in event time",
           .initial = "[5m, 1h, 1d]"),
    REF("metrics.gauc_by", IN(fr_conf, metrics.gauc_by), "slots", "a sparse slot", "name of a sparse slot",
        "AUC within samples of one id of this slot", .of_kinds = SPARSE, .computed = "none"),
    RANGED(U32, "metrics.gauc_groups_max", IN(fr_conf, metrics.gauc_groups_max), 1, 65536, "1024", "ids kept for it"),

    GROUP("insight", "what slots and layers look like while the model learns: `GET /insight`"),
    RANGED(DURATION, "insight.interval", IN(fr_conf, insight.interval_ms), 0, DAY, "1m",
           "time between two documents of `GET /insight`; 0: off"),
    RANGED(U32, "insight.importance", IN(fr_conf, insight.importance), 0, 1000000, "0",
           "every so many batches, measure how far AUC falls without each slot: one forward pass a slot; 0: never"),

    GROUP("scale", "the parts that a state can be divided into, and the processes that train them together"),
    RANGED(U32, "scale.domains", IN(fr_conf, domains), 1, FR_DOMAINS_MAX, "1",
           "key ranges of tables, and as many lanes of samples whose gradients are summed apart; divides "
           "`export.partitions`; more than 1: on the CPU",
           .quiet = true, .fixed = "tables, limits and sums are divided by it", .as = "domains", .top = TRAINING),
    RANGED(U32, "scale.ranks", IN(fr_conf, ranks), 1, FR_DOMAINS_MAX, "1",
           "processes that train one model together, which a launcher of MPI starts: `mpirun -n RANKS freshetd "
           "--config FILE`; at most `scale.domains`; a state keeps its number of ranks in this version"),
    RANGED(DURATION, "scale.deadline", IN(fr_conf, rank_deadline_ms), SECOND, HOUR, "20s",
           "the longest wait for another rank; after it the job ends with exit 75, to be started again"),

    GROUP("optimizer.sgd", "plain stochastic gradient descent"),
    RATE("sgd", "0.01", "step"),
    GROUP("optimizer.adagrad", "Adagrad (Duchi et al. 2011)"),
    RATE("adagrad", "0.05", "step"),
    ACCUMULATOR("adagrad"),
    GROUP("optimizer.adagrad_rowwise", "Adagrad with one accumulator a row: the mean of its squares"),
    RATE("adagrad_rowwise", "0.05", "step"),
    ACCUMULATOR("adagrad_rowwise"),
    GROUP("optimizer.adam", "Adam (Kingma and Ba 2015)"),
    RATE("adam", "0.001", "step"),
    MOMENTS("adam"),
    GROUP("optimizer.ftrl", "FTRL-Proximal (McMahan et al. 2013)"),
    FTRL_RATES("ftrl", "α of the paper"),
    GROUP("optimizer.momentum", "gradient descent with momentum, not Nesterov's"),
    RATE("momentum", "0.01", "step"),
    RULE(REAL, "momentum", momentum, 0, 0.999999, "0.9", "share of the last step that is kept"),
    GROUP("optimizer.rmsprop", "RMSProp (Tieleman and Hinton 2012)"),
    RATE("rmsprop", "0.01", "step"),
    RULE(REAL, "rmsprop", rho, 0, 0.999999, "0.99", "decay of the squares"),
    EPS("rmsprop"),
    GROUP("optimizer.adam_rowwise", "Adam with one second moment a row: the mean of its squares"),
    RATE("adam_rowwise", "0.001", "step"),
    MOMENTS("adam_rowwise"),
    GROUP("optimizer.group_ftrl", "FTRL with a penalty on the norm of a row: whole rows become zero"),
    FTRL_RATES("group_ftrl", "α"),
    RULE(REAL, "group_ftrl", l21, 0, 1e6, "0", "penalty of the norm"),
    GROUP("optimizer.adamw", "Adam with decoupled weight decay (Loshchilov and Hutter 2019)"),
    RATE("adamw", "0.001", "step"),
    MOMENTS("adamw"),
    RULE(REAL, "adamw", weight_decay, 0, 1e3, "0.01", "share of the weight that goes, times the step"),
    EVERY(REAL, l1, 0, 1e6, "0",
          "ftrl, group_ftrl: λ₁ of the algorithm; others: l1 · sign(weight) joins the mean gradient of a unit"),
    EVERY(REAL, l2, 0, 1e6, "0",
          "ftrl, group_ftrl: λ₂ of the algorithm; others: l2 · weight joins the mean gradient of a unit"),
    EVERY(REAL, clip_value, 0, 1e15, "0", "elements of the mean gradient of a unit are cut to ± this; 0: off"),
    EVERY(REAL, clip_norm, 0, 1e15, "0",
          "longest mean gradient of a unit, of a row's part or of a parameter of a layer; 0: off"),
    EVERY(U64, warmup_samples, 0, 1e15, "0", "trained samples over which the rate rises from 0; 0: off"),
    EVERY(U64, decay_samples, 0, 1e15, "0",
          "trained samples over which the rate is multiplied by decay_rate, smoothly; 0: off"),
    EVERY(REAL, decay_rate, FLT_MIN, 1, "0.5", "factor over decay_samples, at most 1"),
    EVERY(REAL, decay_floor, 0, 1, "0.1", "smallest factor the rate decays to: a stream has no end"),
    EVERY(BOOL, decay_all, 0, 0, "false",
          "layers: l1, l2 and weight_decay hold for biases, scales and slopes too, not for kernels only"),
};
const size_t fr_options_count = FR_ARRAY_LEN(fr_options);
