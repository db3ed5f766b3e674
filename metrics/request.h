/* The head of an HTTP/1.x request (RFC 9112), and the host it was meant for. Not public. */
#ifndef FR_METRICS_REQUEST_H
#define FR_METRICS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { FR_HTTP_PATH_MAX = 64, FR_HTTP_HOST_MAX = 256, FR_HTTP_QUERY_MAX = 1024, FR_HTTP_ETAG_MAX = 64 };

enum fr_http_method { FR_HTTP_GET, FR_HTTP_HEAD, FR_HTTP_OTHER };

struct fr_http_request {
    enum fr_http_method method;
    char path[FR_HTTP_PATH_MAX]; /* without query; a longer one is no document's: "" */
    /* after the '?' of the path; "": none. A longer one is "?", which no document accepts. */
    char query[FR_HTTP_QUERY_MAX];
    char host[FR_HTTP_HOST_MAX]; /* lower case, without port and brackets; "": none (HTTP/1.0) */
    bool keep;                   /* the client wants the connection to stay open */
    bool body;                   /* bytes follow the head that are not a next request */
    bool gzip;                   /* the client takes gzip */
    /* the entity tags that the client has, as it wrote them; "": none, or too many */
    char has[FR_HTTP_ETAG_MAX];
};

/* Returns the size of the head in bytes with its blank line, or 0 if the blank line has not arrived
 * yet. */
size_t fr_http_head_size(const char *bytes, size_t size);
/* Parses a head with its blank line. Returns 0, or the status that refuses it: 400 or 505. */
int fr_http_parse(const char *head, size_t size, struct fr_http_request *out);

/* Whether a request for this host may be answered. A page of another site can have its own name
 * point at 127.0.0.1 (DNS rebinding); its scripts then read our answers as if they were its own.
 * Such a request has the foreign name in Host. An address cannot be rebound, so addresses and
 * "localhost" are allowed, and other names must be listed. */
bool fr_http_host_allowed(const char *host, const char *const *hosts, size_t n_hosts);

#endif
