/* Whether contact with the brokers was unbroken.
 *
 * A log is read by offset number, and a broker that answers after a silence may answer from another
 * log: the topic was made again, or an unclean election cut it. librdkafka 2.0.2 compares neither
 * topic ids nor leader epochs. So every fetch answer is timed in the thread that receives it,
 * before its records can be given, and answers that follow a silence, or that come over another
 * connection, are counted. When a count has changed, the reader asks for the fingerprint again
 * before it gives a record that may be newer than the break (kafka_source.c). The reader does the
 * same when the client asked about topics by itself: after an error of a partition, the client asks
 * and fetches again without reporting the error. An answer of a broker that was never heard before
 * is timed from the last check of all partitions.
 *
 * Owner: none; a mutex guards the brokers, and the counts are atomic. */
#include "kafka/contact.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"

enum { API_FETCH = 1, API_METADATA = 3, API_VERSIONS = 18 }; /* the last begins a connection */

struct broker {
    uint64_t name; /* hash of the broker's name */
    struct fr_kafka_contact_time fetched;
    bool connected_again; /* connected again since `fetched` */
};

struct fr_kafka_contact {
    pthread_mutex_t mutex;
    struct fr_kafka_contact_time begun;
    int64_t wait_ms;
    uint32_t n, capacity;
    struct broker *brokers; /* as many as the cluster has */
    atomic_uint_least64_t gaps, connections, metadata;
};

struct fr_kafka_contact *fr_kafka_contact_new(struct fr_kafka_contact_time now)
{
    struct fr_kafka_contact *contact = fr_alloc(1, sizeof(*contact));
    pthread_mutex_init(&contact->mutex, NULL);
    contact->begun = now;
    atomic_init(&contact->gaps, 0);
    atomic_init(&contact->connections, 0);
    atomic_init(&contact->metadata, 0);
    return contact;
}

void fr_kafka_contact_free(struct fr_kafka_contact *contact)
{
    if (!contact)
        return;
    pthread_mutex_destroy(&contact->mutex);
    free(contact->brokers);
    free(contact);
}

void fr_kafka_contact_set_wait(struct fr_kafka_contact *contact, int64_t wait_ms)
{
    pthread_mutex_lock(&contact->mutex);
    contact->wait_ms = wait_ms;
    pthread_mutex_unlock(&contact->mutex);
}

static struct broker *find(struct fr_kafka_contact *contact, uint64_t name)
{
    for (uint32_t i = 0; i < contact->n; i++)
        if (contact->brokers[i].name == name)
            return &contact->brokers[i];
    return NULL;
}

static struct broker *add(struct fr_kafka_contact *contact, uint64_t name)
{
    if (contact->n == contact->capacity) {
        contact->capacity = contact->capacity ? 2 * contact->capacity : 8;
        contact->brokers = fr_realloc(contact->brokers, contact->capacity, sizeof(*contact->brokers));
    }
    contact->brokers[contact->n] = (struct broker){.name = name, .fetched = contact->begun};
    return &contact->brokers[contact->n++];
}

/* Returns the silence by the clock that went further: one stands still while a virtual machine is
 * paused, the other may be set back. */
static int64_t silent_ms(const struct fr_kafka_contact_time *since, const struct fr_kafka_contact_time *now)
{
    int64_t boot = now->boot_ns > since->boot_ns ? (int64_t)((now->boot_ns - since->boot_ns) / 1000000) : 0;
    int64_t wall = now->wall_ms - since->wall_ms;
    return boot > wall ? boot : wall;
}

static void fetched(struct fr_kafka_contact *contact, uint64_t name, const struct fr_kafka_contact_answer *answer)
{
    struct broker *broker = find(contact, name);
    if (!broker)
        broker = add(contact, name);
    int64_t allowed = contact->wait_ms + (int64_t)(answer->size / FR_KAFKA_CONTACT_BYTES_MS);
    bool late = answer->rtt_us / 1000 > allowed + FR_KAFKA_CONTACT_SILENCE_MS;
    if (broker->connected_again)
        atomic_fetch_add(&contact->connections, 1);
    else if (late || silent_ms(&broker->fetched, &answer->at) > allowed + FR_KAFKA_CONTACT_FETCH_MS)
        atomic_fetch_add(&contact->gaps, 1);
    broker->connected_again = false;
    broker->fetched = answer->at;
}

void fr_kafka_contact_checked(struct fr_kafka_contact *contact, struct fr_kafka_contact_time at)
{
    pthread_mutex_lock(&contact->mutex);
    contact->begun = at;
    for (uint32_t i = 0; i < contact->n; i++)
        contact->brokers[i].fetched = at;
    pthread_mutex_unlock(&contact->mutex);
}

void fr_kafka_contact_heard(struct fr_kafka_contact *contact, const struct fr_kafka_contact_answer *answer)
{
    uint64_t name = fr_xxh3_seed(answer->broker, strlen(answer->broker), 0);
    pthread_mutex_lock(&contact->mutex);
    struct broker *broker = find(contact, name);
    if (answer->api_key == API_FETCH)
        fetched(contact, name, answer);
    else if (answer->api_key == API_VERSIONS && broker)
        broker->connected_again = true;
    else if (answer->api_key == API_METADATA && contact->n) /* n is 0 before the first fetch */
        atomic_fetch_add(&contact->metadata, 1);
    pthread_mutex_unlock(&contact->mutex);
}

struct fr_kafka_contact_count fr_kafka_contact_count(const struct fr_kafka_contact *contact)
{
    return (struct fr_kafka_contact_count){atomic_load(&contact->gaps), atomic_load(&contact->connections),
                                           atomic_load(&contact->metadata)};
}

/* ---- of the reader's client ---- */

struct fr_kafka_contact_time fr_kafka_contact_now(void)
{
    return (struct fr_kafka_contact_time){fr_clock_boot_ns(), fr_wall_ms(fr_clock_system())};
}

/* NOLINTNEXTLINE(readability-function-size): its parameters are librdkafka's */
static rd_kafka_resp_err_t on_answer(rd_kafka_t *client, int socket, const char *broker, int32_t id, int16_t api_key,
                                     int16_t version, int32_t number, size_t size, int64_t rtt_us,
                                     rd_kafka_resp_err_t error, void *opaque)
{
    (void)client, (void)socket, (void)id, (void)version, (void)number, (void)error;
    const struct fr_kafka_contact_answer answer = {
        .broker = broker, .api_key = api_key, .size = size, .rtt_us = rtt_us, .at = fr_kafka_contact_now()};
    fr_kafka_contact_heard(opaque, &answer);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

struct fr_kafka_listener fr_kafka_contact_listener(struct fr_kafka_contact *contact)
{
    return (struct fr_kafka_listener){on_answer, contact};
}

void fr_kafka_contact_begin(struct fr_kafka_contact *contact, rd_kafka_t *reader)
{
    char text[32] = "";
    size_t size = sizeof(text);
    if (rd_kafka_conf_get(rd_kafka_conf(reader), "fetch.wait.max.ms", text, &size) == RD_KAFKA_CONF_OK)
        fr_kafka_contact_set_wait(contact, strtol(text, NULL, 10));
}
