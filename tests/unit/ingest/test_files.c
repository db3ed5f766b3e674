/* Files before the topics: lines as records, restarts, what a changed file does, when the topics
 * take over. */
#include "files_of.h"

/* ---- reading ---- */

FR_CASE(files_are_read_in_order_before_the_topics)
{
    struct service *s = service_new(", batch_size: 2", 2);
    add_file(s, "z.jsonl", lines(10, 3));
    add_file(s, "a.jsonl.gz", lines(20, 3));
    append(&s->log, 0, 1);
    append(&s->log, 1, 1);
    service_serve(s);
    assert_string_equal(written(s), "batch 2: 10 11; 0@2.0\n"
                                    "batch 2: 12 20; 0@3.0 1@1.0\n"
                                    "batch 2: 21 22; 1@3.0\n"
                                    "batch 2: 0 1; 2@1.0 3@1.0\n");
    char topic[FR_TOPIC_MAX];
    snprintf(topic, sizeof(topic), "file:%s", path_of(s, 1));
    assert_string_equal(s->positions.partitions[1].topic, topic);
    assert_int_equal(s->positions.partitions[1].partition, 0);
    assert_int_equal(s->positions.partitions[1].fingerprint_offset, 2);
    assert_int_equal(s->positions.partitions[1].delivered, 3);
    files_free(s);
}

FR_CASE(lines_are_json_whatever_the_topics_hold)
{
    struct service *s = service_new(", batch_size: 1", 1);
    s->conf->ingest.format = FR_FORMAT_MSGPACK;
    s->conf->ingest.malformed_max = 1;
    add_file(s, "a.jsonl", lines(0, 2));
    append(&s->log, 0, 1); /* JSON is malformed in the topic */
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, 2);
    assert_int_equal(s->positions.partitions[1].dead_lettered, 1);
    files_free(s);
}

FR_CASE(a_file_of_other_lines_is_named_as_what_is_to_be_corrected)
{
    for (int packed = 0; packed < 2; packed++) {
        struct service *s = service_new(", batch_size: 1", 1);
        add_file(s, "a.csv",
                 packed ? "\x81\n\x81\n\x81\n\x81\n\x81\n\x81\n\x81\n\x81\n\x81\n\x81\n"
                        : "a\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        assert_int_equal(service_start(s, true), FR_OK);
        assert_int_equal(run_to_failure(s), FR_E_INVALID);
        if (!strstr(s->err.text, "correct the file (ingest.files hold JSON lines) and restart"))
            fail_msg("%s", s->err.text);
        assert_null(strstr(s->err.text, "ingest.format"));
        files_free(s);
    }
}

FR_CASE(odd_lines_are_read_as_they_should_be)
{
    struct service *s = service_new(", batch_size: 100", 1);
    static char text[131072];
    const char *sample = "{\"t\":1700000000001,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}";
    /* CRLF, blank lines, several samples in a line, no newline at the end. */
    snprintf(text, sizeof(text), "%s\r\n\n \t\r\n[%s,%s]\n%s", sample, sample, sample, sample);
    add_file(s, "a.jsonl", text);
    add_file(s, "empty.jsonl", "");
    add_file(s, "empty.jsonl.gz", "");
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, 4);
    assert_int_equal(s->positions.partitions[0].delivered, 3);
    assert_int_equal(s->positions.partitions[0].offset, 5); /* blank lines have a number */
    assert_int_equal(s->dead.n, 0);
    files_free(s);
}

FR_CASE(a_malformed_line_is_a_dead_letter_with_its_place)
{
    struct service *s = service_new(", batch_size: 100", 1);
    static char text[131072];
    snprintf(text, sizeof(text), "%snonsense\n{\"f\":{\"user_id\":1},\"y\":{\"click\":1}}\n%s", lines(0, 1),
             "{\"t\":99700000000000,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}\n");
    add_file(s, "a.jsonl", text);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(s->dead.n, 3);
    assert_string_equal(s->dead.letters[0].topic, s->positions.partitions[0].topic);
    assert_int_equal(s->dead.letters[0].offset, 1);
    assert_string_equal(s->dead.letters[0].value, "nonsense");
    assert_int_equal(s->dead.letters[1].offset, 2); /* `t` is missing and there is no other time */
    /* a line has no timestamp, so `t` is compared with the clock only */
    assert_int_equal(s->dead.letters[2].offset, 3);
    assert_non_null(strstr(s->dead.letters[2].reason, "after the clock of the host that read it"));
    assert_int_equal(s->positions.partitions[0].trained, 1);
    files_free(s);
}

FR_CASE(a_line_over_record_max_goes_without_its_value)
{
    for (int zipped = 0; zipped < 2; zipped++) {
        struct service *s = service_new(", batch_size: 1, record_max: 1KiB", 1);
        size_t size = 3 << 20;
        struct fr_buffer text = {0};
        fr_buffer_append(&text, lines(0, 1), strlen(lines(0, 1)));
        memset(fr_buffer_reserve(&text, size), 'x', size);
        text.size += size;
        fr_put_u8(&text, 0);
        const char *name = zipped ? "a.jsonl.gz" : "a.jsonl";
        add_file(s, name, (const char *)text.data);
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_int_equal(s->dead.n, 1);
        assert_false(s->dead.letters[0].has_value);
        assert_string_equal(s->dead.letters[0].header, "freshet.length=3145728");
        assert_non_null(strstr(s->dead.letters[0].reason, "3145728 bytes, more than ingest.record_max"));
        service_kill(s); /* the checksum of the long line is the fingerprint now */
        assert_int_equal(service_start(s, true), FR_OK);
        service_run(s);
        assert_int_equal(s->positions.partitions[0].trained, 1);
        assert_int_equal(s->positions.partitions[0].dead_lettered, 1);
        service_kill(s);
        free(s->ends); /* begins another run, in which the file may have another size */
        s->ends = NULL;
        text.data[text.size - 1000000] = 'y';
        (zipped ? write_gzip : write_plain)(path_of(s, 0), (const char *)text.data, text.size - 1);
        fr_buffer_release(&text);
        assert_int_equal(service_start(s, true), FR_OK);
        assert_int_equal(run_to_failure(s), FR_E_MISMATCH);
        files_free(s);
    }
}

/* ---- restarts ---- */

FR_CASE(killed_anywhere_every_line_takes_effect_once)
{
    for (uint32_t kill_every = 1; kill_every < 6; kill_every++) {
        struct service *s = service_new(", batch_size: 3", 2);
        char text[4096];
        snprintf(text, sizeof(text), "%sbroken\n\n[]\n", lines(100, 20));
        add_file(s, "a.jsonl.gz", text);
        add_file(s, "b.jsonl", lines(200, 11));
        for (int i = 0; i < 10; i++)
            append(&s->log, (uint32_t)i % 2, 1);
        assert_int_equal(service_start(s, true), FR_OK);
        while (!s->end_of_stream) {
            uint32_t before = s->n_batches;
            assert_true(service_step(s, 1) >= 0);
            if (s->n_batches > before && s->n_batches % kill_every == 0 && !s->end_of_stream) {
                service_kill(s);
                free(s->ends);
                s->ends = NULL;
                assert_int_equal(service_start(s, true), FR_OK);
            }
        }
        const uint64_t wanted[] = {20, 11, 5, 5};
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(s->positions.partitions[i].trained, wanted[i]);
        assert_int_equal(s->positions.partitions[0].delivered, 22);
        assert_int_equal(s->positions.partitions[0].dead_lettered, 1);
        files_free(s);
    }
}

FR_CASE(a_restart_inside_a_line_skips_the_items_in_effect)
{
    struct service *s = service_new(", batch_size: 2", 1);
    const char *one = "{\"t\":1700000000001,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}";
    static char text[131072];
    snprintf(text, sizeof(text), "[%s,%s,%s,%s,%s]\n%s\n", one, one, one, one, one, one);
    add_file(s, "a.jsonl", text);
    assert_int_equal(service_start(s, true), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    assert_int_equal(s->positions.partitions[0].item, 2);
    service_kill(s);
    assert_int_equal(service_start(s, true), FR_OK);
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, 6);
    assert_int_equal(s->positions.partitions[0].delivered, 2);
    files_free(s);
}

FR_CASE(a_restart_deep_in_a_file_passes_over_it_in_slices)
{
    enum { DEEP = 70000, PAD = 1000 };
    struct service *s = service_new(", batch_size: 1024", 1);
    struct fr_buffer text = {0};
    for (uint32_t i = 0; i < DEEP; i++)
        fr_buffer_printf(&text, "%*s%s", PAD, "", lines(i % 100, 1));
    fr_put_u8(&text, 0);
    add_file(s, "a.jsonl.gz", (const char *)text.data);
    fr_buffer_release(&text);
    assert_int_equal(service_start(s, true), FR_OK);
    while (s->n_batches < DEEP / 1024) /* all but the last, which is not full */
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    assert_int_equal(service_start(s, true), FR_OK);
    uint32_t before = s->n_batches, slices = 0;
    /* no call reads for long, so that the watchdog stays quiet and a stop takes effect */
    while (s->n_batches == before) {
        slices += service_step(s, 1) == FR_AGAIN;
        assert_true(slices < 100);
    }
    assert_in_range(slices, 2, 3); /* of 32 MiB */
    service_run(s);
    assert_int_equal(s->positions.partitions[0].trained, DEEP);
    assert_int_equal(s->positions.partitions[0].delivered, DEEP);
    files_free(s);
}

FR_CASE(lockstep_gives_each_file_its_own_batches_whenever_it_is_killed)
{
    static const char batches[] = "batch 2: 10 11; 0@2.0\n"
                                  /* the file's end is seen only in the next round */
                                  "batch 2: 12 13; 0@4.0\n"
                                  "batch 2: 20 21; 1@2.0\n"
                                  "batch 1: 22; 1@3.0\n"
                                  "batch 3: 0 1 2; 2@1.0 3@2.0\n"
                                  "batch 0 end:;\n";
    for (uint32_t kill_at = 0; kill_at < 6; kill_at++) {
        struct service *s = service_new(", lockstep: {records: 2, epoch_batches: 4}", 2);
        add_file(s, "a b 0.jsonl", lines(10, 4));
        add_file(s, "b.jsonl.gz", lines(20, 3));
        append(&s->log, 0, 1);
        append(&s->log, 1, 1);
        append(&s->log, 1, 1);
        assert_int_equal(service_start(s, false), FR_OK);
        while (s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        if (kill_at) {
            service_kill(s);
            assert_int_equal(service_start(s, false), FR_OK);
        }
        service_run(s);
        assert_string_equal(written(s), batches);
        files_free(s);
    }
}

FR_CASE(young_lockstep_batches_do_not_span_files)
{
    for (uint32_t kill_at = 0; kill_at < 5; kill_at++) {
        struct service *s =
            service_new(", batch_warmup: {first: 3, growth: 64}, lockstep: {records: 8, epoch_batches: 4}", 2);
        add_file(s, "a.jsonl", lines(10, 4));
        add_file(s, "b.jsonl.gz", lines(20, 2));
        append(&s->log, 0, 1);
        append(&s->log, 1, 1);
        append(&s->log, 1, 1);
        assert_int_equal(service_start(s, false), FR_OK);
        while (s->n_batches < kill_at)
            assert_true(service_step(s, 1) >= 0);
        if (kill_at) {
            service_kill(s);
            assert_int_equal(service_start(s, false), FR_OK);
        }
        service_run(s);
        assert_string_equal(written(s), "batch 3: 10 11 12; 0@3.0\n"
                                        "batch 1: 13; 0@4.0\n"
                                        "batch 2: 20 21; 1@2.0\n"
                                        "batch 3: 0 1 2; 2@1.0 3@2.0\n"
                                        "batch 0 end:;\n");
        files_free(s);
    }
}

FR_CASE(a_file_that_changed_size_within_a_bounded_run_is_refused)
{
    struct service *s = service_new(", lockstep: {records: 2, epoch_batches: 4}", 1);
    add_file(s, "a.jsonl", lines(0, 4));
    assert_int_equal(service_start(s, false), FR_OK);
    while (s->n_batches < 1)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    write_plain(path_of(s, 0), lines(0, 5), strlen(lines(0, 5)));
    assert_int_equal(service_start(s, false), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "when the ends of this run were fixed"));
    service_kill(s);
    write_plain(path_of(s, 0), lines(0, 4), strlen(lines(0, 4)));
    add_file(s, "b.jsonl", lines(0, 1));
    assert_int_equal(service_start(s, false), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "b.jsonl was added after the ends of this run were fixed"));
    files_free(s);
}

/* ---- files that are not what they were ---- */

FR_CASE(a_changed_file_is_refused)
{
    struct service *s = half_read("a.jsonl");
    write_plain(path_of(s, 0), lines(1, 10), strlen(lines(1, 10)));
    assert_int_equal(service_start(s, false), FR_OK);
    assert_int_equal(run_to_failure(s), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "line 3 of "));
    assert_non_null(strstr(s->err.text, "another state_dir"));
    assert_int_equal(s->n_batches, 1);
    files_free(s);
}

FR_CASE(a_file_that_was_cut_is_refused)
{
    struct service *s = half_read("a.jsonl");
    write_plain(path_of(s, 0), lines(0, 3), strlen(lines(0, 3)));
    assert_int_equal(service_start(s, false), FR_OK);
    assert_int_equal(run_to_failure(s), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "ends after 3 lines, 4 of it were read"));
    files_free(s);
}

FR_CASE(a_file_cut_before_a_line_that_was_half_read_is_refused)
{
    const char *one = "{\"t\":1700000000001,\"f\":{\"user_id\":1},\"y\":{\"click\":1}}";
    static char text[131072];
    for (int before = 0; before < 2; before++) {
        struct service *s = service_new(", batch_size: 2", 1);
        snprintf(text, sizeof(text), "%s[%s,%s,%s,%s,%s]\n", before ? lines(0, 1) : "", one, one, one, one, one);
        add_file(s, "a.jsonl", text);
        assert_int_equal(service_start(s, false), FR_OK);
        while (s->n_batches < 1)
            assert_true(service_step(s, 1) >= 0);
        service_kill(s);
        write_plain(path_of(s, 0), lines(0, 1), before ? strlen(lines(0, 1)) : 0);
        assert_int_equal(service_start(s, false), FR_OK);
        assert_int_equal(run_to_failure(s), FR_E_MISMATCH);
        files_free(s);
    }
}

FR_CASE(a_gzip_file_that_is_cut_or_damaged_stops_the_service)
{
    for (int damaged = 0; damaged < 2; damaged++) {
        struct service *s = service_new(", batch_size: 4", 1);
        add_file(s, "a.jsonl.gz", lines(0, 500));
        static char bytes[65536];
        int file = open(path_of(s, 0), O_RDONLY);
        ssize_t size = read(file, bytes, sizeof(bytes));
        assert_true(file >= 0 && size > 100 && close(file) == 0);
        if (damaged)
            bytes[size / 2] ^= 0x55;
        write_plain(path_of(s, 0), bytes, (size_t)(damaged ? size : size / 2));
        assert_int_equal(service_start(s, true), FR_OK);
        assert_int_equal(run_to_failure(s), FR_E_CORRUPT);
        assert_non_null(strstr(s->err.text, "is damaged or cut off after line"));
        files_free(s);
    }
}

FR_CASE(an_absent_file_is_waited_for)
{
    struct service *s = service_new(", batch_size: 1", 1);
    add_file(s, "a.jsonl", NULL);
    add_file(s, "b.jsonl", lines(1, 1));
    append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_E_UNAVAILABLE);
    assert_non_null(strstr(s->err.text, "a.jsonl: No such file"));
    write_plain(path_of(s, 0), lines(0, 1), strlen(lines(0, 1)));
    assert_int_equal(fr_ingest_start(s->ingest, &s->err), FR_OK);
    (void)unlink(path_of(s, 1)); /* gone before its turn */
    service_run(s);
    assert_int_equal(s->n_batches, 1);
    struct fr_ingest_status status;
    fr_ingest_get_status(s->ingest, &status);
    assert_non_null(strstr(status.problem, "b.jsonl: No such file"));
    assert_false(status.at_end);
    fr_ingest_status_release(&status);
    write_plain(path_of(s, 1), lines(1, 1), strlen(lines(1, 1)));
    fr_clock_fake_advance_ms(&s->clock, 1000);
    service_run(s);
    assert_int_equal(s->n_batches, 3);
    fr_ingest_get_status(s->ingest, &status);
    assert_string_equal(status.problem, "");
    assert_true(status.at_end);
    fr_ingest_status_release(&status);
    files_free(s);
}

/* ---- taking over ---- */

FR_CASE(start_is_decided_before_the_first_line)
{
    struct service *s = service_new(", batch_size: 1, start: latest", 1);
    add_file(s, "a.jsonl", lines(100, 5));
    append(&s->log, 0, 1); /* before the start: `latest` leaves it out */
    assert_int_equal(service_start(s, false), FR_OK);
    append(&s->log, 0, 1); /* while files are read */
    while (s->n_batches < 2)
        assert_true(service_step(s, 1) >= 0);
    service_kill(s);
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[0].trained, 5);
    assert_int_equal(s->positions.partitions[1].trained, 2);
    assert_int_equal(s->positions.partitions[1].offset, 3);
    files_free(s);
}

FR_CASE(records_deleted_while_files_are_read_are_a_loss)
{
    struct service *s = service_new(", batch_size: 1, on_loss: earliest", 1);
    add_file(s, "a.jsonl", lines(100, 5));
    for (int i = 0; i < 5; i++)
        append(&s->log, 0, 1);
    assert_int_equal(service_start(s, false), FR_OK);
    delete_before(&s->log, 0, 3);
    service_run(s);
    assert_int_equal(s->positions.partitions[1].lost, 3);
    assert_int_equal(s->positions.partitions[1].trained, 2);
    files_free(s);
}

FR_CASE(files_behind_us_need_not_be_there_and_no_other_may_come)
{
    struct service *s = service_new(", batch_size: 1", 1);
    add_file(s, "a.jsonl", lines(100, 2));
    append(&s->log, 0, 1);
    service_serve(s);
    service_kill(s);
    (void)unlink(path_of(s, 0));
    append(&s->log, 0, 1);
    service_serve(s);
    assert_int_equal(s->positions.partitions[1].trained, 2);
    service_kill(s);
    add_file(s, "b.jsonl", lines(200, 1));
    assert_int_equal(service_start(s, false), FR_E_MISMATCH);
    assert_non_null(strstr(s->err.text, "b.jsonl was not read before the topics were"));
    files_free(s);
}

FR_CASE(files_alone_are_a_run)
{
    for (int until_end = 0; until_end < 2; until_end++) {
        struct service *s = service_new(", batch_size: 4, batch_wait: 20ms", 0);
        add_file(s, "a.jsonl", lines(0, 5));
        assert_int_equal(service_start(s, until_end), FR_OK);
        service_run(s);
        fr_clock_fake_advance_ms(&s->clock, 20);
        service_run(s);
        assert_int_equal(s->positions.partitions[0].trained, 5);
        assert_int_equal(s->end_of_stream, until_end);
        files_free(s);
    }
}

/* What a case logs goes to a file. */
static int begin_capture(FILE *file)
{
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    return saved;
}

static void end_capture(int saved)
{
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
}

static uint32_t count_lines(FILE *file, const char *event)
{
    char line[4096];
    uint32_t n = 0;
    rewind(file);
    while (fgets(line, sizeof(line), file))
        n += strstr(line, event) != NULL;
    return n;
}

/* Files and topics have a decoder each, with names of its own. */
FR_CASE(unknown_names_of_topics_are_reported_after_those_of_files)
{
    static const char *const texts[] = {"{\"t\":1700000000001,\"f\":{\"user_id\":1,\"first\":1,\"second\":2}}\n",
                                        "[{\"t\":1700000000002,\"f\":{\"user_id\":2,\"third\":3}}]"};
    struct service *s = service_new(", batch_size: 1", 1);
    struct log_partition *p = &s->log.partitions[0];
    FILE *file = tmpfile();
    assert_non_null(file);
    add_file(s, "a.jsonl", texts[0]);
    append(&s->log, 0, 1);
    free(p->records[0].value);
    p->records[0].value = fr_strdup(texts[1]);
    int saved = begin_capture(file);
    service_serve(s);
    end_capture(saved);
    assert_int_equal(count_lines(file, "event=unknown_slot name=\"first\" topic=file:"), 1);
    assert_int_equal(count_lines(file, "event=unknown_slot name=\"second\" topic=file:"), 1);
    assert_int_equal(count_lines(file, "event=unknown_slot name=\"third\" topic=samples"), 1);
    (void)fclose(file);
    files_free(s);
}

FR_CASE(a_directory_is_not_a_file)
{
    struct service *s = service_new("", 1);
    add_path(s->conf, "/tmp");
    assert_int_equal(service_start(s, false), FR_E_INVALID);
    assert_non_null(strstr(s->err.text, "/tmp is not a regular file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SERVICE_CASE(files_are_read_in_order_before_the_topics),
        SERVICE_CASE(lines_are_json_whatever_the_topics_hold),
        SERVICE_CASE(a_file_of_other_lines_is_named_as_what_is_to_be_corrected),
        SERVICE_CASE(odd_lines_are_read_as_they_should_be),
        SERVICE_CASE(a_malformed_line_is_a_dead_letter_with_its_place),
        SERVICE_CASE(a_line_over_record_max_goes_without_its_value),
        SERVICE_CASE(killed_anywhere_every_line_takes_effect_once),
        SERVICE_CASE(a_restart_inside_a_line_skips_the_items_in_effect),
        SERVICE_CASE(a_restart_deep_in_a_file_passes_over_it_in_slices),
        SERVICE_CASE(lockstep_gives_each_file_its_own_batches_whenever_it_is_killed),
        SERVICE_CASE(young_lockstep_batches_do_not_span_files),
        SERVICE_CASE(a_file_that_changed_size_within_a_bounded_run_is_refused),
        SERVICE_CASE(a_changed_file_is_refused),
        SERVICE_CASE(a_file_that_was_cut_is_refused),
        SERVICE_CASE(a_file_cut_before_a_line_that_was_half_read_is_refused),
        SERVICE_CASE(a_gzip_file_that_is_cut_or_damaged_stops_the_service),
        SERVICE_CASE(an_absent_file_is_waited_for),
        SERVICE_CASE(start_is_decided_before_the_first_line),
        SERVICE_CASE(records_deleted_while_files_are_read_are_a_loss),
        SERVICE_CASE(files_behind_us_need_not_be_there_and_no_other_may_come),
        SERVICE_CASE(files_alone_are_a_run),
        SERVICE_CASE(unknown_names_of_topics_are_reported_after_those_of_files),
        SERVICE_CASE(a_directory_is_not_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
