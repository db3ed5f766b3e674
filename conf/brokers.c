/* The list of Kafka brokers as operators write it. Refused here is what librdkafka would accept
 * silently and misread (a port beyond 65535 becomes another port, `a:1;b:2` is one host).
 *
 * Owner: none (functions only). */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "conf/conf.h"

static const char form[] = "expected host:port,host:port (an IPv6 address in brackets, [::1]:9092), without blanks";

static bool is_port(const char *text, size_t size)
{
    unsigned long port = 0;
    for (size_t i = 0; i < size && i < 6; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        port = 10 * port + (unsigned long)(text[i] - '0');
    }
    return size > 0 && size < 6 && port > 0 && port < 65536;
}

/* A name or an IPv4 address. */
static bool is_host(const char *text, size_t size)
{
    bool fits = size > 0 && size < 256;
    for (size_t i = 0; i < size && fits; i++)
        fits = isalnum((unsigned char)text[i]) || strchr("._-", text[i]) != NULL;
    return fits;
}

static bool is_address6(const char *text, size_t size)
{
    bool fits = size > 1 && size < 64, zone = false;
    for (size_t i = 0; i < size && fits; i++) {
        zone |= text[i] == '%';
        fits = zone || isxdigit((unsigned char)text[i]) || text[i] == ':' || text[i] == '.';
    }
    return fits;
}

/* librdkafka accepts the protocol before a host, and no other scheme. */
static size_t protocol_size(const char *text, size_t size)
{
    static const char *const protocols[] = {"PLAINTEXT://", "SSL://", "SASL_PLAINTEXT://", "SASL_SSL://"};
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
        size_t n = strlen(protocols[i]);
        if (size > n && strncasecmp(text, protocols[i], n) == 0)
            return n;
    }
    return 0;
}

/* Returns what is wrong with the text as a broker, or NULL if it is one. */
static const char *problem_of(const char *text, size_t size)
{
    if (size == 0)
        return "an empty name";
    size_t protocol = protocol_size(text, size);
    text += protocol;
    size -= protocol;
    for (size_t i = 0; i + 2 < size; i++)
        if (strncmp(text + i, "://", 3) == 0)
            return "a scheme that Kafka does not have";
    const char *end = text[0] == '[' ? memchr(text, ']', size) : memchr(text, ':', size);
    if (text[0] == '[' && !end)
        return "a bracket that does not end";
    size_t host = end ? (size_t)(end - text) : size;
    bool fits = text[0] == '[' ? is_address6(text + 1, host - 1) : is_host(text, host);
    size_t rest = size - host - (text[0] == '[');
    const char *port = text + (size - rest);
    if (fits && rest > 1 && memchr(port + 1, ':', rest - 1))
        return "more than one colon";
    if (!fits)
        return "not a host";
    return rest == 0 || (port[0] == ':' && is_port(port + 1, rest - 1)) ? NULL : "not a port from 1 to 65535";
}

bool fr_conf_brokers_are_sound(const char *text, char *problem, size_t size)
{
    for (const char *at = text;; at++) {
        size_t n = strcspn(at, ",");
        const char *wrong = problem_of(at, n);
        if (wrong) {
            snprintf(problem, size, "`%.*s`: %s; %s", n < 80 ? (int)n : 80, at, wrong, form);
            return false;
        }
        at += n;
        if (*at == '\0')
            return true;
    }
}
