/* Lanes of batches. In lockstep the piece that a lane has of a batch is the same with and without
 * the other lanes, and after any kill; live only the order of samples changes. */
#define FR_TEST_LOG_PARTITIONS 7
#define FR_TEST_LOG_RECORDS 400
#include "fixture.h"

#include "base/hash.h"
#include "batch/records.h"
#include "files_of.h"

enum { LANES_MAX = 12, BATCHES_MAX = 4096 };

/* Pieces of the lanes that a reader gave, a line for each that is not empty. */
struct pieces {
    struct fr_buffer text[LANES_MAX];
    uint32_t n_batches;
};

static void pieces_release(struct pieces *pieces)
{
    for (uint32_t l = 0; l < LANES_MAX; l++)
        fr_buffer_release(&pieces->text[l]);
}

/* ---- the log ---- */

static uint32_t dice(uint64_t *state, uint32_t n)
{
    *state = fr_fmix64(*state + 0x9e3779b97f4a7c15);
    return (uint32_t)(*state % n);
}

static void put_sample(struct fr_buffer *text, struct fake_log *log, bool in_group)
{
    unsigned long long number = log->made++;
    fr_buffer_printf(text, "{\"t\":%llu,\"f\":{", (unsigned long long)T0 + number);
    if (!in_group)
        fr_buffer_printf(text, "\"user_id\":[%llu,%llu]", number, 7 * number);
    fr_buffer_printf(text, "},\"y\":{\"click\":%llu}}", number % 2);
}

static void put_group(struct fr_buffer *text, struct fake_log *log, uint32_t samples, uint32_t ids)
{
    fr_buffer_printf(text, "{\"shared\":{\"user_id\":[");
    for (uint32_t i = 0; i < ids; i++)
        fr_buffer_printf(text, "%s%u", i ? "," : "", i);
    fr_buffer_printf(text, "]},\"items\":[");
    for (uint32_t i = 0; i < samples; i++) {
        fr_buffer_printf(text, "%s", i ? "," : "");
        put_sample(text, log, true);
    }
    fr_buffer_printf(text, "]}");
}

static void put_block(struct fr_buffer *text, struct fake_log *log, uint32_t samples)
{
    fr_buffer_printf(text, "{\"n\":%u,\"cols\":{},\"y\":{\"click\":[", samples);
    for (uint32_t i = 0; i < samples; i++)
        fr_buffer_printf(text, "%s%u", i ? "," : "", i % 2);
    fr_buffer_printf(text, "]},\"t\":%llu}", (unsigned long long)T0 + (unsigned long long)log->made++);
}

static void append_text(struct fake_log *log, uint32_t partition, struct fr_buffer *text)
{
    struct log_partition *p = &log->partitions[partition];
    fr_put_u8(text, 0);
    assert_true(p->n < LOG_RECORDS);
    p->records[p->n++] =
        (struct log_record){.offset = p->high++, .timestamp_ms = T0 + 3600000, .value = (char *)text->data};
    p->available = p->n;
}

/* A record of any form. No two malformed ones follow each other, so each round of a batch of one
 * lane has a good one, also after a kill. */
static void append_any(struct fake_log *log, uint32_t partition, uint64_t *d)
{
    struct fr_buffer text = {0};
    uint32_t n = 1 + dice(d, 9);
    switch (dice(d, 7)) {
    case 0:
        append(log, partition, log->partitions[partition].n % 2 ? -1 : 1);
        return;
    case 1:
        append(log, partition, 0);
        return;
    case 2:
        put_sample(&text, log, false);
        break;
    case 3:
        append(log, partition, (int)n * 4);
        return;
    case 4:
        fr_buffer_printf(&text, "[");
        for (uint32_t g = 0; g < n; g++) {
            fr_buffer_printf(&text, "%s", g ? "," : "");
            put_group(&text, log, 1 + dice(d, 5), 3);
        }
        fr_buffer_printf(&text, "]");
        break;
    case 5:
        put_group(&text, log, n, 2);
        break;
    default:
        put_block(&text, log, n);
        break;
    }
    append_text(log, partition, &text);
}

static void fill_with_any(struct fake_log *log)
{
    uint64_t d = log->n_partitions;
    for (uint32_t p = 0; p < log->n_partitions; p++)
        for (uint32_t i = 0, n = 5 + dice(&d, 40); i < n; i++)
            append_any(log, p, &d);
}

/* Each partition but the last begins with malformed records, and has more of them later. */
static void fill_with_malformed(struct fake_log *log)
{
    uint64_t d = 77 + log->n_partitions;
    for (uint32_t p = 0; p < log->n_partitions; p++) {
        for (uint32_t i = 0, n = p + 1 < log->n_partitions ? 3 + 4 * p : 0; i < n; i++)
            append(log, p, -1);
        for (uint32_t i = 0; i < 8; i++) {
            append_any(log, p, &d);
            for (uint32_t k = dice(&d, 5); k > 0; k--)
                append(log, p, -1);
        }
        append(log, p, 2);
    }
}

/* Records at each limit of a batch that is divided by three or by twelve: samples, ids, bytes. */
static void fill_with_huge(struct fake_log *log)
{
    for (uint32_t p = 0; p < log->n_partitions; p++) {
        append(log, p, 3000);
        append(log, p, p % 2 ? 30000 : 4000);
        append(log, p, 7);
        for (uint32_t i = 0; i < 3; i++) {
            struct fr_buffer text = {0};
            put_group(&text, log, 300, 400);
            append_text(log, p, &text);
        }
        for (uint32_t i = 0; i < 3; i++) {
            struct fr_buffer text = {0};
            fr_buffer_printf(&text, "{\"x_pad\":\"%0*d\",\"y\":{\"click\":1}}", 300000, 0);
            append_text(log, p, &text);
        }
        append(log, p, -1);
    }
}

/* ---- a reader ---- */

struct reader {
    const char *options;
    void (*fill)(struct fake_log *log);
    uint32_t n_partitions, n_lanes, lane_first, lane_end;
    uint32_t kill_every; /* 0: never */
    char (*files)[64];   /* [n_files] paths */
    uint32_t n_files;
};

/* The rings get batches of so many lanes. */
static struct service *service_of(const struct reader *reader)
{
    struct service *s = service_new(reader->options, reader->n_partitions);
    s->dead.forget = true;
    s->conf->domains = reader->n_lanes;
    s->lane_first = reader->lane_first;
    s->lane_end = reader->lane_end;
    assert_true(fr_ingest_skip_parse("samples:0:3-4", &s->skips[0], &s->err));
    s->n_skips = reader->n_files == 0;
    for (uint32_t i = 0; i < reader->n_files; i++)
        add_path(s->conf, reader->files[i]);
    service_kill(s);
    reader->fill(&s->log);
    return s;
}

/* Writes the samples of the group; whether its values are shared is a fact of the batch. */
static void put_group_of(const struct fr_batch *batch, uint32_t group, struct fr_buffer *out)
{
    const struct fr_column *column = &batch->columns[0];
    fr_buffer_printf(out, " (");
    for (uint32_t i = batch->group_begin[group]; i < batch->group_begin[group + 1]; i++) {
        uint32_t entry = column->shared ? group : i, n_ids = column->begin[entry + 1] - column->begin[entry];
        assert_int_equal(batch->group_of[i], group);
        fr_buffer_printf(out, " %lld:%llx:%g:%u%u:%llx", (long long)(batch->t_ms[i] - T0),
                         (unsigned long long)batch->origin[i], (double)batch->labels[i], batch->use[i], batch->role[i],
                         (unsigned long long)fr_xxh3(column->keys + column->begin[entry], n_ids * sizeof(uint64_t)));
    }
    fr_buffer_printf(out, ")");
}

/* Writes the record of a group, which is of the lane, unless the group before has the same. */
static void put_record_of(const struct fr_batch *batch, uint32_t group, uint32_t lane, struct fr_buffer *out)
{
    uint32_t sample = batch->group_begin[group];
    const struct fr_batch_record *record = fr_batch_record_of(batch, sample);
    struct fr_record_parts parts;
    assert_int_equal(record->lane, lane);
    if (record->first_sample != sample)
        return;
    fr_batch_record_parts(batch, record, NULL, 0, &parts);
    fr_buffer_printf(out, " %u@%lld.%u=%x", record->stream_index, (long long)record->offset, record->first_item,
                     fr_crc32c(0, parts.value, parts.size));
}

static void put_position(const struct fr_batch_position *p, struct fr_buffer *out)
{
    fr_buffer_printf(out, " %u@%lld.%u:%lld:%lld:%x", p->stream_index, (long long)p->offset, p->item,
                     (long long)p->fingerprint.offset, (long long)p->fingerprint.timestamp_ms, p->fingerprint.crc32c);
    fr_buffer_printf(out, ":%llu:%llu:%llu:%llu:%llu:%llu", (unsigned long long)p->delivered,
                     (unsigned long long)p->decoded, (unsigned long long)p->dead_lettered,
                     (unsigned long long)p->samples, (unsigned long long)p->roles[FR_ROLE_TRAIN],
                     (unsigned long long)p->skipped);
}

static uint32_t lane_of_stream(const struct service *s, uint32_t stream_index)
{
    const struct fr_partition_position *p = &s->positions.partitions[stream_index];
    bool file = strncmp(p->topic, "file:", 5) == 0;
    return (uint32_t)((file ? fr_xxh3(p->topic, strlen(p->topic)) : (uint64_t)p->partition) % s->conf->domains);
}

static void put_pieces(struct service *s, const struct fr_batch *batch, struct pieces *pieces)
{
    assert_int_equal(batch->n_lanes, s->conf->domains);
    fr_ingest_adopt(s->ingest, &s->positions);
    for (uint32_t lane = 0; lane < batch->n_lanes; lane++) {
        struct fr_buffer *out = &pieces->text[lane];
        size_t head = out->size;
        fr_buffer_printf(out, "\n%u:", pieces->n_batches);
        size_t begin = out->size;
        for (uint32_t g = fr_batch_lane_begin(batch, lane); g < fr_batch_lane_begin(batch, lane + 1); g++) {
            put_record_of(batch, g, lane, out);
            put_group_of(batch, g, out);
        }
        for (uint32_t i = 0; i < batch->n_positions; i++)
            if (lane_of_stream(s, batch->positions[i].stream_index) == lane)
                put_position(&batch->positions[i], out);
        if (out->size == begin)
            out->size = head;
    }
    pieces->n_batches++;
}

static void read_all(const struct reader *reader, struct pieces *out)
{
    struct service *s = service_of(reader);
    assert_int_equal(service_start(s, false), FR_OK);
    while (!s->end_of_stream) {
        void *batch;
        assert_true(out->n_batches < BATCHES_MAX);
        if (fr_ingest_step(s->ingest, 0, &s->err) < 0)
            fail_msg("%s", s->err.text);
        if (fr_ring_pop(s->full, &batch, 0) != FR_OK)
            continue;
        put_pieces(s, batch, out);
        service_apply(s, batch);
        assert_true(fr_ring_try_push(s->empty, batch));
        if (reader->kill_every && s->n_batches % reader->kill_every == 0 && !s->end_of_stream) {
            service_kill(s);
            assert_int_equal(service_start(s, false), FR_OK);
        }
    }
    service_free(s);
}

static const char *text_of(struct fr_buffer *buffer)
{
    fr_put_u8(buffer, 0);
    buffer->size--;
    return (const char *)buffer->data;
}

/* Reads the lanes together, then each alone, then together with kills. */
static void expect_pieces_of_each_lane_alone(struct reader reader)
{
    struct pieces together = {0};
    uint32_t kill_every = reader.kill_every;
    reader.kill_every = 0;
    read_all(&reader, &together);
    for (uint32_t killed = 0; killed < 2; killed++) {
        reader.kill_every = killed * kill_every;
        for (reader.lane_first = 0; reader.lane_first < reader.n_lanes; reader.lane_first++) {
            struct pieces alone = {0};
            if (reader.lane_first > reader.n_partitions && reader.n_files == 0)
                continue; /* one empty lane is enough */
            reader.lane_end = reader.lane_first + 1;
            read_all(&reader, &alone);
            for (uint32_t l = 0; l < reader.n_lanes; l++)
                assert_string_equal(text_of(&alone.text[l]), l == reader.lane_first ? text_of(&together.text[l]) : "");
            pieces_release(&alone);
        }
    }
    struct pieces again = {0};
    reader.lane_first = reader.lane_end = 0;
    read_all(&reader, &again);
    for (uint32_t l = 0; l < reader.n_lanes; l++)
        assert_string_equal(text_of(&again.text[l]), text_of(&together.text[l]));
    assert_int_equal(again.n_batches, together.n_batches);
    pieces_release(&again);
    pieces_release(&together);
}

static void expect_pieces_of_logs(const char *options, void (*fill)(struct fake_log *log), uint32_t kill_every)
{
    static const uint32_t partitions[] = {1, 3, 7}, lanes[] = {1, 2, 3, LANES_MAX};
    for (size_t p = 0; p < FR_ARRAY_LEN(partitions); p++)
        for (size_t l = 0; l < FR_ARRAY_LEN(lanes); l++)
            expect_pieces_of_each_lane_alone((struct reader){.options = options,
                                                             .fill = fill,
                                                             .n_partitions = partitions[p],
                                                             .n_lanes = lanes[l],
                                                             .kill_every = kill_every});
}

FR_CASE(a_lane_gives_the_same_rounds_with_and_without_the_others)
{
    expect_pieces_of_logs(", batch_size: 32, lockstep: {records: 3, epoch_batches: 4}", fill_with_any, 3);
}

FR_CASE(a_lane_gives_the_same_young_batches_with_and_without_the_others)
{
    expect_pieces_of_logs(
        ", batch_size: 64, batch_warmup: {first: 6, growth: 4}, lockstep: {records: 4, epoch_batches: 4}",
        fill_with_any, 2);
}

FR_CASE(a_lane_of_malformed_records_gives_the_same_with_and_without_the_others)
{
    static const char *const options[] = {
        ", batch_size: 32, lockstep: {records: 3, epoch_batches: 4}",
        ", batch_size: 64, batch_warmup: {first: 6, growth: 4}, lockstep: {records: 4, epoch_batches: 4}"};
    for (size_t i = 0; i < FR_ARRAY_LEN(options); i++)
        for (uint32_t n_lanes = 2; n_lanes <= LANES_MAX; n_lanes += 5)
            expect_pieces_of_each_lane_alone((struct reader){.options = options[i],
                                                             .fill = fill_with_malformed,
                                                             .n_partitions = 7,
                                                             .n_lanes = n_lanes,
                                                             .kill_every = 2});
}

FR_CASE(a_lane_is_cut_at_its_share_of_each_limit)
{
    static const char options[] = ", record_max: 16MiB, lockstep: {records: 4, epoch_batches: 4}";
    for (uint32_t n_partitions = 1; n_partitions < 4; n_partitions += 2)
        for (uint32_t n_lanes = 3; n_lanes <= LANES_MAX; n_lanes += 9)
            expect_pieces_of_each_lane_alone((struct reader){.options = options,
                                                             .fill = fill_with_huge,
                                                             .n_partitions = n_partitions,
                                                             .n_lanes = n_lanes,
                                                             .kill_every = 1});
}

/* Each lane has its own turn of files, then its partitions. */
FR_CASE(a_lane_reads_its_files_with_and_without_the_others)
{
    struct service *s = service_new("", 0);
    char files[FILES][64];
    for (uint32_t i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u.jsonl", i);
        add_file(s, name, lines(100 * i, 5 + 7 * i));
        snprintf(files[i], sizeof(files[i]), "%s", path_of(s, i));
    }
    static const char *const options[] = {
        ", lockstep: {records: 4, epoch_batches: 4}",
        ", batch_size: 16, batch_warmup: {first: 4, growth: 4}, lockstep: {records: 4, epoch_batches: 4}"};
    for (size_t i = 0; i < FR_ARRAY_LEN(options); i++)
        for (uint32_t n_lanes = 1; n_lanes <= 4; n_lanes++)
            expect_pieces_of_each_lane_alone((struct reader){.options = options[i],
                                                             .fill = fill_with_any,
                                                             .n_partitions = 3,
                                                             .n_lanes = n_lanes,
                                                             .kill_every = 2,
                                                             .files = files,
                                                             .n_files = FILES});
    files_free(s);
}

static struct service *service_of_lanes(const char *options, uint32_t n_partitions, uint32_t n_lanes)
{
    struct service *s = service_new(options, n_partitions);
    s->conf->domains = n_lanes;
    service_kill(s);
    return s;
}

FR_CASE(a_round_is_made_lane_by_lane)
{
    struct service *s = service_of_lanes(", lockstep: {records: 2, epoch_batches: 4}", 3, 2);
    for (uint32_t i = 0; i < 9; i++)
        append(&s->log, i % 3, 1);
    service_serve(s);
    assert_string_equal(written(s), "batch 6: 0 3 2 5 1 4; 0@2.0 2@2.0 1@2.0\n"
                                    "batch 3: 6 8 7; 0@3.0 2@3.0 1@3.0\n"
                                    "batch 0 end:;\n");
}

/* Lane 0 has 12 samples in a record, lane 1 has twelve records of one sample. */
FR_CASE(a_young_lane_grows_with_its_own_samples)
{
    struct service *s = service_of_lanes(
        ", batch_size: 64, batch_warmup: {first: 3, growth: 2}, lockstep: {records: 2, epoch_batches: 4}", 2, 2);
    append(&s->log, 0, 12);
    for (uint32_t i = 0; i < 12; i++)
        append(&s->log, 1, 1);
    service_serve(s);
    /* lane 0: 2, 2, 2 (6 / 2 = 3 of both), 3, 3; lane 1: at most two records */
    assert_string_equal(written(s), "batch 4: 0 1 12 13; 0@0.2 1@2.0\n"
                                    "batch 4: 2 3 14 15; 0@0.4 1@4.0\n"
                                    "batch 4: 4 5 16 17; 0@0.6 1@6.0\n"
                                    "batch 5: 6 7 8 18 19; 0@0.9 1@8.0\n"
                                    "batch 5: 9 10 11 20 21; 0@1.0 1@10.0\n"
                                    "batch 2: 22 23; 1@12.0\n"
                                    "batch 0 end:;\n");
}

FR_CASE(each_lane_has_its_share_of_a_round_s_samples)
{
    struct service *s = service_of_lanes(", record_max: 16MiB, lockstep: {records: 2, epoch_batches: 4}", 2, 2);
    append(&s->log, 0, 40000);
    append(&s->log, 1, 5);
    append(&s->log, 1, 5);
    append(&s->log, 1, 5);
    service_serve(s);
    const uint32_t sizes[] = {32768 + 10, 40000 - 32768 + 5, 0};
    for (uint32_t i = 0; i < FR_ARRAY_LEN(sizes); i++)
        assert_int_equal(s->sizes[i], sizes[i]);
    assert_int_equal(s->n_batches, 3);
}

/* Whether a record of another lane was good is not known. */
FR_CASE(a_batch_of_lanes_does_not_wait_for_a_first_good_record)
{
    struct service *s = service_of_lanes(", lockstep: {records: 1, epoch_batches: 4}", 2, 2);
    for (int i = 0; i < 3; i++)
        append(&s->log, 0, i < 2 ? -1 : 1);
    append(&s->log, 1, -1);
    append(&s->log, 1, 1);
    service_serve(s);
    assert_string_equal(written(s), "batch 0:; 0@1.0 1@1.0\nbatch 1: 1; 0@2.0 1@2.0\nbatch 1: 0; 0@3.0\n"
                                    "batch 0 end:;\n");
    assert_int_equal(s->dead.n, 3);
    assert_false(s->dead.withheld);
}

/* Their letters wait, although batches have their positions, unless an epoch needs them. */
FR_CASE(refused_records_in_a_row_end_the_run_of_lanes)
{
    struct service *s = service_of_lanes(", lockstep: {records: 8, epoch_batches: 4}", 3, 2);
    s->dead.forget = true;
    for (uint32_t i = 0; i < 1002; i++)
        append(&s->log, i % 3, -1);
    assert_int_equal(service_start(s, false), FR_OK);
    enum fr_status status = FR_OK;
    for (uint32_t i = 0; i < 4000 && status >= 0 && status != FR_EOF; i++)
        status = service_step(s, RING);
    assert_int_equal(status, FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "all 1000 records since the start are malformed"));
    assert_true(s->n_batches > 0 && s->dead.withheld && s->dead.made <= 1000);
    fr_ingest_release_letters(s->ingest);
    assert_false(s->dead.withheld);
}

/* Two records of a lane exceed a twelfth of the limit, one does not. */
FR_CASE(each_lane_has_its_share_of_ids_and_bytes)
{
    for (int bytes = 0; bytes < 2; bytes++) {
        struct service *s = service_of_lanes(", lockstep: {records: 4, epoch_batches: 4}", 2, LANES_MAX);
        for (uint32_t i = 0; i < 4; i++) {
            struct fr_buffer text = {0};
            if (bytes)
                fr_buffer_printf(&text, "{\"x_pad\":\"%0*d\",\"f\":{},\"y\":{\"click\":1}}", 400000, 0);
            else
                put_group(&text, &s->log, 200, 300);
            append_text(&s->log, i % 2, &text);
        }
        service_serve(s);
        assert_int_equal(s->n_batches, 3);
        assert_int_equal(s->sizes[0], bytes ? 2 : 400);
        assert_int_equal(s->sizes[1], s->sizes[0]);
        service_free(s);
    }
}

/* Records come from the partitions in turn. */
FR_CASE(live_only_the_order_of_samples_changes)
{
    struct fr_buffer one = {0};
    for (uint32_t n_lanes = 1; n_lanes <= 3; n_lanes++) {
        struct service *s = service_of_lanes(", batch_size: 6", 4, n_lanes);
        for (uint32_t i = 0; i < 24; i++)
            append(&s->log, i % 4, i == 9 ? -1 : i == 10 ? 3 : 1);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        const char *first = n_lanes == 1   ? "batch 6: 0 1 2 3 4 5;"
                            : n_lanes == 2 ? "batch 6: 0 2 4 1 3 5;"
                                           : "batch 6: 0 3 4 1 5 2;";
        assert_memory_equal(written(s), first, strlen(first));
        struct fr_buffer ledger = {0};
        fr_positions_encode(&s->positions, &ledger);
        if (n_lanes == 1)
            fr_buffer_append(&one, ledger.data, ledger.size);
        assert_int_equal(ledger.size, one.size);
        assert_memory_equal(ledger.data, one.data, one.size);
        assert_int_equal(s->dead.n, 1);
        fr_buffer_release(&ledger);
        service_free(s);
    }
    fr_buffer_release(&one);
}

/* The batch of all processes has six samples, so a reader of half of the lanes gives three. */
FR_CASE(live_streams_of_other_lanes_are_not_read)
{
    struct service *s = service_of_lanes(", batch_size: 6", 4, 4);
    s->lane_first = 1;
    s->lane_end = 3;
    for (uint32_t i = 0; i < 12; i++)
        append(&s->log, i % 4, 1);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_string_equal(written(s), "batch 3: 1 5 2; 1@2.0 2@1.0\nbatch 3: 9 6 10; 2@3.0 1@3.0\nbatch 0 end:;\n");
    assert_true(s->log.partitions[0].begun < 0 && s->log.partitions[3].begun < 0);
    assert_string_equal(s->ends, "partitions 2\nsamples 1 3\nsamples 2 3\n");
}

/* Such a reader has the end of the run at once, also after a restart. */
FR_CASE(lanes_without_a_partition_end_the_run_again_and_again)
{
    char ends[] = "partitions 0\n";
    for (int start = 0; start < 2; start++) {
        struct service *s = service_of_lanes(", batch_size: 6", 3, 4);
        s->lane_first = 3;
        s->lane_end = 4;
        s->ends = start > 0 ? fr_strdup(ends) : NULL;
        append(&s->log, 0, 1);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_string_equal(written(s), "batch 0 end:;\n");
        assert_string_equal(s->ends, ends);
        service_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(a_lane_gives_the_same_rounds_with_and_without_the_others),
        SERVICE_CASE(a_lane_gives_the_same_young_batches_with_and_without_the_others),
        SERVICE_CASE(a_lane_is_cut_at_its_share_of_each_limit),
        SERVICE_CASE(a_lane_reads_its_files_with_and_without_the_others),
        SERVICE_CASE(a_round_is_made_lane_by_lane),
        SERVICE_CASE(a_young_lane_grows_with_its_own_samples),
        SERVICE_CASE(each_lane_has_its_share_of_a_round_s_samples),
        SERVICE_CASE(a_batch_of_lanes_does_not_wait_for_a_first_good_record),
        SERVICE_CASE(refused_records_in_a_row_end_the_run_of_lanes),
        SERVICE_CASE(a_lane_of_malformed_records_gives_the_same_with_and_without_the_others),
        SERVICE_CASE(each_lane_has_its_share_of_ids_and_bytes),
        SERVICE_CASE(live_only_the_order_of_samples_changes),
        SERVICE_CASE(live_streams_of_other_lanes_are_not_read),
        SERVICE_CASE(lanes_without_a_partition_end_the_run_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
