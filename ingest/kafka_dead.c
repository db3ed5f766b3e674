/* Dead letters to Kafka: at least once, never lost while the process lives; the position of a
 * refused record waits for its letter (docs/architecture.md, "Dead letters").
 *
 * A letter is copied and kept until the broker has acknowledged it. After a timeout or a refusal it
 * is sent again; a producer with a fatal error is replaced. The acknowledged number grows only over
 * letters without a gap, in the order of `send`; on the topic letters may be out of order or twice.
 * A letter that is refused for its size (or is larger than BYTES_MAX, and was not copied) is sent
 * without its value (headers freshet.length, freshet.sha256), then also without the original's key
 * and headers. Letters are bounded in number and bytes: at the limit `send` returns FR_AGAIN and
 * reading pauses. A batch holds one message, because the broker refuses a whole batch for its size.
 * The producer is not idempotent: a letter that is there twice does no harm, and 2.0.2's false
 * fatal errors are avoided.
 *
 * Threads: the ingest thread and the owner loop call send. A thread of its own, started with the
 * first letter, serves the producer, so that letters are sent while ingest waits or has ended. The
 * mutex guards the letters and counts. Letters are not kept over a restart, because their records
 * are read again. */
#include "kafka.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "kafka_internal.h"

enum {
    LETTERS_MAX = 4096,
    BYTES_MAX = 64 << 20,
    SEND_WAIT_MS = 50,
    RETRY_MS = 1000,
    POLL_MS = 20,
    DELIVERY_MS = 30000, /* after this time an attempt has failed and is made again */
    SLOW_MS = 5000,      /* a letter that waits longer than this is reported as a problem */
    TOPIC_MS = 5000,
    CLOSE_MS = 500, /* limit for the client to return the letters that are given up */
};

enum letter_state { LETTER_WAITING, LETTER_SENT, LETTER_DONE };
enum letter_form { LETTER_WHOLE, LETTER_NO_VALUE, LETTER_BARE, LETTER_FORMS };

struct letter {
    struct kafka_dead *dead;
    enum letter_state state;
    enum letter_form form;
    uint64_t born_ns, retry_ns;
    char topic[FR_TOPIC_MAX];
    int32_t partition;
    int64_t offset;
    char *reason;
    size_t bytes; /* memory of the letter, as counted */
    struct fr_record_image *image;
    /* size of a value too large to be copied; 0: the value is in the image */
    size_t length;
    struct fr_sha256 digest; /* digest of that value */
};

struct kafka_dead {
    /* first, because it is the client's opaque; owned by the letters' thread after `prepare` */
    struct fr_ingest_health health;
    const struct fr_conf *conf;
    const struct fr_clock *clock;
    rd_kafka_t *producer; /* owned by the thread while it runs */
    pthread_t thread;
    bool running; /* guarded by the mutex */
    _Atomic uint64_t acknowledged;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool stop;
    bool withheld; /* letters are kept, none is sent */
    uint64_t sent; /* number of the newest letter */
    size_t bytes;
    /* letter n is at n % LETTERS_MAX, for n in (acknowledged, sent] */
    struct letter *letters[LETTERS_MAX];
    struct fr_dead_counts counts;
    char text[FR_KAFKA_TEXT_MAX]; /* why letters wait; empty if none does */
};

/* ---- producer ---- */

static void on_delivery(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque);

static enum fr_status producer_new(struct kafka_dead *dead, const struct fr_kafka_report *report, struct fr_err *err)
{
    char timeout[16];
    snprintf(timeout, sizeof(timeout), "%d", DELIVERY_MS);
    const struct fr_kafka_setting ours[] = {
        {"acks", "all"}, {"message.timeout.ms", timeout}, {"linger.ms", "0"}, {NULL, NULL}};
    const struct fr_kafka_setting required[] = {
        {"batch.num.messages", "1"},
        {"message.copy.max.bytes",
         "0"}, /* payloads by reference: a buffer of up to 64 KiB a letter is not in our bound */
        {"message.max.bytes", "104857600"}, /* the broker decides what is too large */
        {NULL, NULL}};
    struct fr_kafka_options options = {.type = RD_KAFKA_PRODUCER,
                                       .ours = ours,
                                       .required = required,
                                       .opaque = &dead->health,
                                       .on_delivery = on_delivery,
                                       .report = report};
    return fr_ingest_kafka_client(dead->conf, options, &dead->producer, err);
}

void fr_ingest_dead_report(const struct fr_conf *conf, const struct fr_kafka_report *report)
{
    struct kafka_dead *dead = fr_alloc(1, sizeof(*dead));
    struct fr_err err = {0};
    dead->conf = conf;
    if (producer_new(dead, report, &err) != FR_OK)
        report->problem(report->self, NULL, err.text);
    free(dead);
}

/* Notes why letters wait, and logs it if the reason is new. */
static void note_problem(struct kafka_dead *dead, const char *text)
{
    if (strcmp(dead->text, text) == 0)
        return;
    snprintf(dead->text, sizeof(dead->text), "%s", text);
    char quoted[FR_KAFKA_TEXT_MAX];
    fr_log(FR_LOG_WARN, "ingest", "dead_letters_wait", "topic=%s reason=%s", dead->conf->ingest.dead_letter_topic,
           fr_log_quote(quoted, sizeof(quoted), text));
}

static rd_kafka_headers_t *letter_headers(const struct letter *letter, const struct fr_record_parts *parts)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(parts->n_headers + 8);
    char number[32];
    for (size_t i = 0; letter->form != LETTER_BARE && i < parts->n_headers; i++)
        (void)rd_kafka_header_add(headers, parts->headers[i].name, -1, parts->headers[i].value,
                                  (ssize_t)parts->headers[i].size);
    (void)rd_kafka_header_add(headers, "__connect.errors.topic", -1, letter->topic, -1);
    snprintf(number, sizeof(number), "%" PRId32, letter->partition);
    (void)rd_kafka_header_add(headers, "__connect.errors.partition", -1, number, -1);
    snprintf(number, sizeof(number), "%" PRId64, letter->offset);
    (void)rd_kafka_header_add(headers, "__connect.errors.offset", -1, number, -1);
    (void)rd_kafka_header_add(headers, "__connect.errors.exception.message", -1, letter->reason, -1);
    if (letter->form == LETTER_WHOLE)
        return headers;
    struct fr_sha256 digest = letter->length ? letter->digest : fr_sha256(parts->value, parts->size);
    char hex[65];
    for (size_t i = 0; i < sizeof(digest.bytes); i++)
        snprintf(hex + 2 * i, 3, "%02x", digest.bytes[i]);
    snprintf(number, sizeof(number), "%zu", letter->length ? letter->length : parts->size);
    (void)rd_kafka_header_add(headers, "freshet.length", -1, number, -1);
    (void)rd_kafka_header_add(headers, "freshet.sha256", -1, hex, -1);
    return headers;
}

/* Handles a letter that was refused: it is sent again at once in the next smaller form, or after
 * a while in the same form. */
static void refused(struct kafka_dead *dead, struct letter *letter, rd_kafka_resp_err_t code)
{
    letter->state = LETTER_WAITING;
    dead->counts.failed++;
    if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && letter->form + 1 < LETTER_FORMS) {
        letter->form++;
        letter->retry_ns = 0;
        return;
    }
    letter->retry_ns = fr_mono_ns(dead->clock) + (uint64_t)RETRY_MS * 1000000u;
    char text[FR_KAFKA_TEXT_MAX];
    snprintf(text, sizeof(text), "dead-letter topic %s: %s", dead->conf->ingest.dead_letter_topic,
             rd_kafka_err2str(code));
    note_problem(dead, text);
}

/* Mutex held. */
static void produce(struct kafka_dead *dead, struct letter *letter)
{
    struct fr_record_header list[FR_SOURCE_HEADERS_MAX];
    struct fr_record_parts parts;
    fr_record_image_parts(letter->image, list, FR_SOURCE_HEADERS_MAX, &parts);
    rd_kafka_headers_t *headers = letter_headers(letter, &parts);
    bool whole = letter->form == LETTER_WHOLE, keyed = letter->form != LETTER_BARE;
    letter->state = LETTER_SENT;
    rd_kafka_resp_err_t code = rd_kafka_producev(
        dead->producer, RD_KAFKA_V_TOPIC(dead->conf->ingest.dead_letter_topic),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(keyed ? parts.key : NULL, keyed ? parts.key_size : 0),
        RD_KAFKA_V_VALUE((void *)(uintptr_t)(whole ? parts.value : NULL), whole ? parts.size : 0),
        RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(letter), RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    rd_kafka_headers_destroy(headers);
    refused(dead, letter, code);
}

static void letter_free(struct letter *letter)
{
    if (!letter)
        return;
    fr_record_image_drop(letter->image);
    free(letter->reason);
    free(letter);
}

static void on_delivery(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
    (void)producer;
    (void)opaque;
    struct letter *letter = message->_private;
    struct kafka_dead *dead = letter->dead;
    pthread_mutex_lock(&dead->mutex);
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR && dead->stop) {
        letter->state = LETTER_WAITING; /* given up, because its record is read again */
    } else if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        refused(dead, letter, message->err);
    } else {
        letter->state = LETTER_DONE;
        dead->counts.sent++;
        dead->counts.without_value += letter->form != LETTER_WHOLE;
    }
    uint64_t floor = atomic_load(&dead->acknowledged);
    while (floor < dead->sent && dead->letters[(floor + 1) % LETTERS_MAX]->state == LETTER_DONE) {
        struct letter **place = &dead->letters[++floor % LETTERS_MAX];
        dead->bytes -= (*place)->bytes;
        letter_free(*place);
        *place = NULL;
    }
    if (floor == dead->sent)
        dead->text[0] = 0;
    atomic_store(&dead->acknowledged, floor);
    pthread_cond_broadcast(&dead->changed);
    pthread_mutex_unlock(&dead->mutex);
}

/* ---- the thread ---- */

/* Replaces a producer that had a fatal error; letters that were on their way are sent again. The
 * mutex is held. */
static void replace_if_fatal(struct kafka_dead *dead)
{
    char reason[FR_KAFKA_TEXT_MAX];
    if (dead->producer && rd_kafka_fatal_error(dead->producer, reason, sizeof(reason)) == RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    if (dead->producer) {
        note_problem(dead, reason);
        rd_kafka_t *old = dead->producer;
        dead->producer = NULL;
        /* the last delivery reports may come while the producer ends */
        pthread_mutex_unlock(&dead->mutex);
        rd_kafka_destroy(old);
        pthread_mutex_lock(&dead->mutex);
    }
    struct fr_err err;
    if (producer_new(dead, NULL, &err) != FR_OK)
        note_problem(dead, err.text);
    for (uint64_t n = atomic_load(&dead->acknowledged) + 1; n <= dead->sent; n++)
        if (dead->letters[n % LETTERS_MAX]->state == LETTER_SENT)
            dead->letters[n % LETTERS_MAX]->state = LETTER_WAITING;
}

static void produce_waiting(struct kafka_dead *dead)
{
    uint64_t now = fr_mono_ns(dead->clock), first = atomic_load(&dead->acknowledged) + 1;
    for (uint64_t n = first; n <= dead->sent; n++) {
        struct letter *letter = dead->letters[n % LETTERS_MAX];
        if (letter->state == LETTER_WAITING && now >= letter->retry_ns)
            produce(dead, letter);
    }
    if (first > dead->sent || now - dead->letters[first % LETTERS_MAX]->born_ns < (uint64_t)SLOW_MS * 1000000u ||
        dead->text[0])
        return;
    char text[FR_KAFKA_TEXT_MAX];
    snprintf(text, sizeof(text), "dead-letter topic %s does not acknowledge: %.128s",
             dead->conf->ingest.dead_letter_topic, dead->health.text[0] ? dead->health.text : "no answer");
    note_problem(dead, text);
}

static void *thread_main(void *argument)
{
    struct kafka_dead *dead = argument;
    pthread_mutex_lock(&dead->mutex);
    while (!dead->stop) {
        if (dead->withheld || atomic_load(&dead->acknowledged) == dead->sent) {
            pthread_cond_wait(&dead->changed, &dead->mutex);
            continue;
        }
        replace_if_fatal(dead);
        if (dead->producer)
            produce_waiting(dead);
        rd_kafka_t *producer = dead->producer;
        pthread_mutex_unlock(&dead->mutex);
        if (producer)
            rd_kafka_poll(producer, POLL_MS);
        else
            nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
        pthread_mutex_lock(&dead->mutex);
    }
    pthread_mutex_unlock(&dead->mutex);
    return NULL;
}

/* ---- the sink ---- */

/* A value larger than the letters' limit (a batch may inflate to gigabytes) is not copied, because
 * no broker accepts it. */
static struct letter *letter_new(struct kafka_dead *dead, const struct fr_dead_letter *from)
{
    struct letter *letter = fr_alloc(1, sizeof(*letter));
    struct fr_record_parts parts = from->parts;
    bool copied = parts.size <= BYTES_MAX;
    if (!copied) {
        parts.value = NULL;
        parts.size = 0;
    }
    *letter = (struct letter){
        .dead = dead,
        .born_ns = fr_mono_ns(dead->clock),
        .partition = from->partition,
        .offset = from->offset,
        .reason = fr_strdup(from->reason),
        .form = copied ? LETTER_WHOLE : LETTER_NO_VALUE,
        .bytes = sizeof(struct letter) + fr_record_image_size(&parts),
        .image = fr_record_image_new(&parts),
        .length = copied ? 0 : from->parts.size,
    };
    if (!copied)
        letter->digest = fr_sha256(from->parts.value, from->parts.size);
    snprintf(letter->topic, sizeof(letter->topic), "%s", from->topic);
    return letter;
}

/* Mutex held. At least one letter always has room, whatever its size. */
static bool has_room(const struct kafka_dead *dead, size_t bytes)
{
    uint64_t waiting = dead->sent - atomic_load(&dead->acknowledged);
    return waiting == 0 || (waiting < LETTERS_MAX - 1 && dead->bytes + bytes <= BYTES_MAX);
}

static enum fr_status send_letter(void *self, const struct fr_dead_letter *from, uint64_t *number)
{
    struct kafka_dead *dead = self;
    struct letter *letter = letter_new(dead, from);
    const struct timespec until = fr_clock_deadline(SEND_WAIT_MS * UINT64_C(1000000));
    pthread_mutex_lock(&dead->mutex);
    int rc = 0;
    while (rc == 0 && !has_room(dead, letter->bytes))
        rc = pthread_cond_timedwait(&dead->changed, &dead->mutex, &until);
    bool room = has_room(dead, letter->bytes);
    if (room && !dead->running) { /* if the start fails, the caller tries again, as without room */
        dead->running = fr_thread_start(&dead->thread, "letters", thread_main, dead);
        room = dead->running;
    }
    if (!room && !dead->running && rc == 0) {
        note_problem(dead, FR_THREADS_SHORT);
        (void)pthread_cond_timedwait(&dead->changed, &dead->mutex, &until);
    }
    if (room) {
        dead->letters[(dead->sent + 1) % LETTERS_MAX] = letter;
        *number = ++dead->sent;
        dead->bytes += letter->bytes;
        pthread_cond_broadcast(&dead->changed);
    }
    pthread_mutex_unlock(&dead->mutex);
    if (!room)
        letter_free(letter);
    return room ? FR_OK : FR_AGAIN;
}

static void withhold(void *self, bool on)
{
    struct kafka_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    dead->withheld = on;
    for (uint64_t n = atomic_load(&dead->acknowledged) + 1; !on && n <= dead->sent; n++)
        dead->letters[n % LETTERS_MAX]->born_ns = fr_mono_ns(dead->clock);
    pthread_cond_broadcast(&dead->changed);
    pthread_mutex_unlock(&dead->mutex);
}

static uint64_t acknowledged(void *self)
{
    struct kafka_dead *dead = self;
    return atomic_load(&dead->acknowledged);
}

static void counts(void *self, struct fr_dead_counts *out)
{
    struct kafka_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    *out = dead->counts;
    pthread_mutex_unlock(&dead->mutex);
}

static bool healthy(void *self, char *problem, size_t size)
{
    struct kafka_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    bool waits = dead->text[0] != 0;
    if (waits)
        snprintf(problem, size, "%.180s (%" PRIu64 " letters wait)", dead->text,
                 dead->sent - atomic_load(&dead->acknowledged));
    pthread_mutex_unlock(&dead->mutex);
    return !waits;
}

/* ---- the topic ---- */

static void prepare(void *self)
{
    struct kafka_dead *dead = self;
    char *topic = dead->conf->ingest.dead_letter_topic;
    struct fr_kafka_topic found;
    if (!fr_kafka_topic_ask(dead->producer, topic, false, TOPIC_MS, &found) && found.partitions > 0) {
        if (found.administrable && fr_ingest_kafka_is_compacted(dead->producer, topic))
            fr_log(FR_LOG_WARN, "ingest", "dead_letter_topic",
                   "topic=%s problem=\"it is compacted: a letter deletes earlier ones of the same key, and one without "
                   "a key is refused; set cleanup.policy=delete on it\"",
                   topic);
        return;
    }
    char quoted[FR_KAFKA_TEXT_MAX];
    struct fr_err err;
    if (fr_kafka_topic_create(dead->producer, &(struct fr_kafka_new_topic){.name = topic, .partitions = 1}, &err) ==
        FR_OK)
        fr_log(FR_LOG_INFO, "ingest", "dead_letter_topic_created", "topic=%s partitions=1", topic);
    else
        fr_log(FR_LOG_WARN, "ingest", "dead_letter_topic",
               "topic=%s reason=%s effect=\"the first malformed record will wait for it\"", topic,
               fr_log_quote(quoted, sizeof(quoted), err.text));
}

/* ---- life ---- */

static void dead_close(void *self)
{
    struct kafka_dead *dead = self;
    pthread_mutex_lock(&dead->mutex);
    dead->stop = true;
    pthread_cond_broadcast(&dead->changed);
    pthread_mutex_unlock(&dead->mutex);
    if (dead->running)
        pthread_join(dead->thread, NULL);
    if (dead->producer) {
        (void)rd_kafka_purge(dead->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
        (void)rd_kafka_flush(dead->producer, CLOSE_MS);
        rd_kafka_destroy(dead->producer);
    }
    for (size_t i = 0; i < LETTERS_MAX; i++)
        letter_free(dead->letters[i]);
    pthread_cond_destroy(&dead->changed);
    pthread_mutex_destroy(&dead->mutex);
    free(dead);
}

enum fr_status fr_ingest_kafka_dead(const struct fr_conf *conf, const struct fr_clock *clock, struct fr_dead_sink *out,
                                    struct fr_err *err)
{
    FR_CHECK(conf->ingest.dead_letter_topic);
    struct kafka_dead *dead = fr_alloc(1, sizeof(*dead));
    dead->conf = conf;
    dead->clock = clock;
    enum fr_status status = producer_new(dead, NULL, err);
    if (status != FR_OK) {
        free(dead);
        return status;
    }
    pthread_condattr_t monotonic;
    int rc = pthread_condattr_init(&monotonic);
    rc |= pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    rc |= pthread_cond_init(&dead->changed, &monotonic);
    rc |= pthread_condattr_destroy(&monotonic);
    rc |= pthread_mutex_init(&dead->mutex, NULL);
    FR_CHECK(rc == 0);
    *out = (struct fr_dead_sink){
        .self = dead,
        .prepare = prepare,
        .send = send_letter,
        .acknowledged = acknowledged,
        .counts = counts,
        .healthy = healthy,
        .close = dead_close,
        .withhold = withhold,
    };
    return FR_OK;
}
