/* A rank of a job that mpirun starts: mpi_rank PART [NUMBER]. The part `suite` is that of
 * calls.h and what only large parts and several processes can show; the others are for
 * tests/integration/mpi.py, which looks at how the job ends, or measure. */
#include "exchange/mpi.h"

#include "exchange/calls.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/clock.h"

enum { LARGE_MAX = 6 << 20, LARGE_CALLS = 4, SMALL_BYTES = 256, ROWS_BYTES = 500000, LINE_MAX_BYTES = 2048 };
static const uint64_t patience_ns = 60000000000, deadline_ns = 1000000000;

static struct fr_exchange *exchange;
static uint32_t rank, size;
static long number; /* an argument */

/* Prints a line at once and whole: the launcher joins the output of all ranks. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

static uint64_t now_ns(void)
{
    return fr_mono_ns(fr_clock_system());
}

static void rest_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static enum fr_status gather(struct fr_err *err)
{
    uint32_t all[RANKS];
    enum fr_status status = fr_exchange_gather(exchange, &rank, sizeof(rank), all, err);
    for (uint32_t r = 0; status == FR_OK && r < size; r++)
        assert_int_equal(all[r], r);
    return status;
}

/* ---- the suite ---- */

FR_CASE(every_rank_gets_what_the_others_sent)
{
    struct worker worker;
    init(&worker, exchange);
    work(&worker);
    assert_int_equal(worker.err.status, FR_OK);
    assert_int_equal(worker.calls, CALLS);
    release(&worker);
}

static size_t large_size(uint32_t from, uint32_t to, enum fr_channel channel, uint64_t call)
{
    uint64_t h = fr_fmix64(from << 8 | to << 16 | (uint64_t)channel << 24 | call);
    return h % 4 == 0 ? 0 : h % LARGE_MAX;
}

static void fill_large(uint8_t *bytes, uint32_t from, uint32_t to, enum fr_channel channel, uint64_t call)
{
    for (size_t i = 0, n = large_size(from, to, channel, call); i < n; i++)
        bytes[i] = byte_of(from + 16 * (uint32_t)channel, to, call + i / 1000, i);
}

FR_CASE(large_parts_of_uneven_sizes_arrive_on_both_channels_aligned_and_the_own_part_is_not_copied)
{
    uint8_t *sent[2][RANKS], *wanted = malloc(LARGE_MAX);
    struct fr_err err = {0};
    for (int c = 0; c < 2; c++)
        for (uint32_t r = 0; r < size; r++)
            sent[c][r] = malloc(LARGE_MAX);
    for (uint64_t call = 0; call < LARGE_CALLS; call++) {
        struct fr_bytes parts[RANKS];
        for (enum fr_channel c = 0; c < 2; c++) {
            for (uint32_t r = 0; r < size; r++) {
                fill_large(sent[c][r], rank, r, c, call);
                parts[r] = (struct fr_bytes){sent[c][r], large_size(rank, r, c, call)};
            }
            assert_int_equal(fr_exchange_send(exchange, c, parts, &err), FR_OK);
        }
        for (int i = 0; i < 2; i++) {
            enum fr_channel c = (enum fr_channel)((rank + call + (uint64_t)i) % 2);
            assert_int_equal(fr_exchange_receive(exchange, c, parts, &err), FR_OK);
            assert_ptr_equal(parts[rank].data, sent[c][rank]);
            for (uint32_t r = 0; r < size; r++) {
                assert_int_equal(parts[r].size, large_size(r, rank, c, call));
                assert_int_equal((uintptr_t)parts[r].data % FR_EXCHANGE_ALIGNED, 0);
                fill_large(wanted, r, rank, c, call);
                assert_int_equal(parts[r].size > 0 ? memcmp(parts[r].data, wanted, parts[r].size) : 0, 0);
            }
        }
    }
    for (int c = 0; c < 2; c++)
        for (uint32_t r = 0; r < size; r++)
            free(sent[c][r]);
    free(wanted);
}

/* Rank 0 sends its keys only after its values and a gather have come back; the others sent their
 * keys first. */
FR_CASE(a_channel_does_not_wait_for_another_one)
{
    struct fr_err err = {0};
    struct fr_bytes out[RANKS], in[RANKS];
    uint64_t word = rank;
    for (uint32_t r = 0; r < size; r++)
        out[r] = (struct fr_bytes){(const uint8_t *)&word, sizeof(word)};
    for (int i = 0; i < 20; i++) {
        if (rank != 0)
            assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_KEYS, out, &err), FR_OK);
        assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_VALUES, out, &err), FR_OK);
        assert_int_equal(fr_exchange_receive(exchange, FR_CHANNEL_VALUES, in, &err), FR_OK);
        assert_int_equal(gather(&err), FR_OK);
        if (rank == 0)
            assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_KEYS, out, &err), FR_OK);
        assert_int_equal(fr_exchange_receive(exchange, FR_CHANNEL_KEYS, in, &err), FR_OK);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fr_load_u64(in[r].data), r);
    }
}

/* What a rank received stays while a faster rank sends the next call. */
FR_CASE(received_bytes_stay_until_the_next_send)
{
    struct fr_err err = {0};
    struct fr_bytes out[RANKS], in[RANKS];
    for (uint64_t call = 0; call < 20; call++) {
        uint64_t word = 1000 * call + rank;
        for (uint32_t r = 0; r < size; r++)
            out[r] = (struct fr_bytes){(const uint8_t *)&word, sizeof(word)};
        assert_int_equal(fr_exchange_send(exchange, FR_CHANNEL_KEYS, out, &err), FR_OK);
        assert_int_equal(fr_exchange_receive(exchange, FR_CHANNEL_KEYS, in, &err), FR_OK);
        if (rank == call % size)
            rest_ms(3);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fr_load_u64(in[r].data), 1000 * call + r);
    }
}

static int suite(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_what_the_others_sent),
        cmocka_unit_test(large_parts_of_uneven_sizes_arrive_on_both_channels_aligned_and_the_own_part_is_not_copied),
        cmocka_unit_test(a_channel_does_not_wait_for_another_one),
        cmocka_unit_test(received_bytes_stay_until_the_next_send),
    };
    return cmocka_run_group_tests_name("exchange over MPI", tests, NULL, NULL);
}

/* ---- how a job ends ---- */

static int sleep_for_ever(void)
{
    while (pause() != 0)
        continue;
    return 1;
}

/* Says what happened; the exchange ends the process. After an error it leaves time to be slow. */
static int end_by_exchange(const struct fr_err *err)
{
    rest_ms(err->status == FR_E_UNAVAILABLE ? 100 : 0);
    say("rank %" PRIu32 " has status %s: %s\n", rank, fr_status_name(err->status), err->text);
    return sleep_for_ever();
}

static int limit(void)
{
    struct fr_err err = {0};
    struct fr_bytes out[RANKS] = {0};
    out[size - 1] = (struct fr_bytes){(const uint8_t *)&err, (size_t)FR_EXCHANGE_PART_MAX + 1};
    bool fine = fr_exchange_send(exchange, FR_CHANNEL_KEYS, out, &err) == FR_E_LIMIT;
    return fine && strstr(err.text, "lower ingest.batch_size") ? 0 : 1;
}

static int uneven(void)
{
    uint8_t mine[64] = {0}, all[RANKS * 64];
    struct fr_err err = {0};
    enum fr_status status = fr_exchange_gather(exchange, mine, 8 + 8 * (rank > 0), all, &err);
    return status == FR_E_MISMATCH && strstr(err.text, "different versions of the program") ? 0 : 1;
}

/* Steps until something ends them. Rank 1 sleeps from step `number` on, if that is not 0. */
static int loop(void)
{
    struct worker worker;
    init(&worker, exchange);
    say("rank %" PRIu32 " is process %d\n", rank, (int)getpid());
    for (uint64_t call = 1; run_step(&worker, call) == FR_OK; call++) {
        if (rank == 1 && call == (uint64_t)number)
            return sleep_for_ever();
        rest_ms(1);
    }
    return end_by_exchange(&worker.err);
}

static void *stop_later(void *unused)
{
    (void)unused;
    rest_ms(100);
    fr_exchange_stop(exchange, (int)number);
    fr_exchange_stop(exchange, 1);
    return NULL;
}

/* The last rank stops the job while its owner waits for the others. */
static int stop(void)
{
    struct fr_err err = {0};
    pthread_t thread;
    if (rank != size - 1)
        return sleep_for_ever();
    if (pthread_create(&thread, NULL, stop_later, NULL) != 0 || gather(&err) != FR_E_CANCELLED)
        return 1;
    return end_by_exchange(&err);
}

/* Rank 0 leaves, rank 1 does not. */
static int stay(void)
{
    if (rank == 1)
        return sleep_for_ever();
    return 0;
}

/* ---- measurements ---- */

/* Nothing to train: a gather every 10 ms; and a rank that waits for another one all the time. */
static int idle(void)
{
    struct fr_err err = {0};
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ns = now_ns(), process_ns = fr_clock_process_ns();
        if (i == 1 && rank == 0)
            rest_ms(3000);
        for (int n = 0; n < (i == 0 ? 300 : 1); n++) {
            if (gather(&err) != FR_OK)
                return 1;
            rest_ms(i == 0 ? 10 : 0);
        }
        say("%s: rank %" PRIu32 " takes %.2f %% of a processor\n", i == 0 ? "idle" : "waiting", rank,
            100.0 * (double)(fr_clock_process_ns() - process_ns) / (double)(now_ns() - begin_ns));
    }
    return 0;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int times(void)
{
    static uint8_t bytes[ROWS_BYTES], all[RANKS * SMALL_BYTES];
    enum { N = 2000 };
    static uint64_t ns[N];
    struct fr_err err = {0};
    struct fr_bytes out[RANKS], in[RANKS];
    for (uint32_t r = 0; r < size; r++)
        out[r] = (struct fr_bytes){bytes, ROWS_BYTES};
    for (int what = 0; what < 2; what++) {
        for (int i = 0; i < N; i++) {
            uint64_t begin_ns = now_ns();
            enum fr_status status = what == 0 ? fr_exchange_gather(exchange, bytes, SMALL_BYTES, all, &err)
                                              : fr_exchange_send(exchange, FR_CHANNEL_VALUES, out, &err);
            if (status == FR_OK && what == 1)
                status = fr_exchange_receive(exchange, FR_CHANNEL_VALUES, in, &err);
            if (status != FR_OK)
                return end_by_exchange(&err);
            ns[i] = now_ns() - begin_ns;
        }
        qsort(ns, N, sizeof(*ns), ascending);
        if (rank == 0)
            say("%s: least %.1f us, median %.1f us, p99 %.1f us\n", what == 0 ? "gather of 256 B" : "parts of 0.5 MB",
                (double)ns[0] / 1e3, (double)ns[N / 2] / 1e3, (double)ns[N - N / 100] / 1e3);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*run)(void);
    const uint64_t *deadline_ns;
} parts[] = {
    {"suite", suite, &patience_ns}, {"limit", limit, &patience_ns}, {"uneven", uneven, &patience_ns},
    {"loop", loop, &deadline_ns},   {"stop", stop, &patience_ns},   {"stay", stay, &deadline_ns},
    {"idle", idle, &patience_ns},   {"times", times, &patience_ns},
};

int main(int argc, char **argv)
{
    size_t part = 0;
    struct fr_err err = {0};
    while (argc >= 2 && part < FR_ARRAY_LEN(parts) && strcmp(parts[part].name, argv[1]) != 0)
        part++;
    if (argc < 2 || part == FR_ARRAY_LEN(parts))
        return 2;
    number = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    struct fr_exchange_mpi_options options = {.deadline_ns = *parts[part].deadline_ns, .workers = 2};
    if (fr_exchange_mpi_open(&options, &exchange, &err) != FR_OK) {
        say("%s\n", err.text);
        return 1;
    }
    rank = fr_exchange_rank(exchange);
    size = fr_exchange_size(exchange);
    int code = size <= RANKS ? parts[part].run() : 1;
    if (code != 0)
        return code;
    fr_exchange_free(exchange);
    if (fr_exchange_mpi_open(&options, &exchange, &err) != FR_E_STATE)
        return 1;
    say("rank %" PRIu32 " has ended\n", rank);
    return 0;
}
