/* Parses request heads (contract: request.h). A request to this server is only a path, so the only
 * headers that are read are those about keeping the connection, about a body, about what the client
 * has and takes (Accept-Encoding, If-None-Match), and Host. Everything
 * RFC 9112 calls ambiguous (folded lines, blanks before a colon, two hosts, control characters) is
 * refused instead of guessed. */
#include "request.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { BAD = 400, OTHER_VERSION = 505 };

struct text {
    const char *at;
    size_t size;
};

static bool is(struct text text, const char *word)
{
    return text.size == strlen(word) && strncasecmp(text.at, word, text.size) == 0;
}

static struct text trimmed(struct text text)
{
    while (text.size && (text.at[0] == ' ' || text.at[0] == '\t'))
        text = (struct text){text.at + 1, text.size - 1};
    while (text.size && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* Splits off the text before the first `end` into out and leaves the text after it in rest. False:
 * there is no `end`. */
static bool take(struct text *rest, char end, struct text *out)
{
    const char *found = rest->size ? memchr(rest->at, end, rest->size) : NULL;
    if (!found)
        return false;
    *out = (struct text){rest->at, (size_t)(found - rest->at)};
    *rest = (struct text){found + 1, rest->size - out->size - 1};
    return true;
}

static bool take_line(struct text *rest, struct text *out)
{
    if (!take(rest, '\n', out))
        return false;
    if (out->size && out->at[out->size - 1] == '\r')
        out->size--;
    return true;
}

size_t fr_http_head_size(const char *bytes, size_t size)
{
    struct text rest = {bytes, size}, line;
    bool begun = false; /* blank lines before the request line are none of the head's end */
    while (take_line(&rest, &line)) {
        if (line.size == 0 && begun)
            return size - rest.size;
        begun |= line.size > 0;
    }
    return 0;
}

/* host, host:port, [ipv6] or [ipv6]:port, in lower case. */
static bool parse_host(struct text text, char *out)
{
    const char *end = text.size && text.at[0] == '[' ? memchr(text.at, ']', text.size) : NULL;
    struct text host = text;
    if (text.size && text.at[0] == '[') {
        if (!end)
            return false;
        host = (struct text){text.at + 1, (size_t)(end - text.at) - 1};
    } else {
        const char *colon = text.size ? memchr(text.at, ':', text.size) : NULL;
        if (colon)
            host.size = (size_t)(colon - text.at);
    }
    if (host.size >= FR_HTTP_HOST_MAX)
        return false;
    for (size_t i = 0; i < host.size; i++) {
        char c = host.at[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
    }
    out[host.size] = '\0';
    return true;
}

/* What follows the path: a query up to the fragment. */
static void parse_query(struct text text, char *out)
{
    size_t size = 1;
    while (size < text.size && text.at[size] != '#')
        size++;
    if (text.size < 2 || text.at[0] != '?')
        return;
    if (size <= FR_HTTP_QUERY_MAX)
        memcpy(out, text.at + 1, size - 1);
    else
        out[0] = '?';
}

/* Origin form, or absolute form, whose host is the request's whatever the header says. */
static bool parse_target(struct text target, struct fr_http_request *out, bool *absolute)
{
    static const char scheme[] = "http://";
    const size_t length = sizeof(scheme) - 1;
    *absolute = target.size > length && strncasecmp(target.at, scheme, length) == 0;
    if (*absolute) {
        struct text authority = {target.at + length, target.size - length};
        const char *slash = memchr(authority.at, '/', authority.size);
        size_t size = slash ? (size_t)(slash - authority.at) : authority.size;
        target = (struct text){authority.at + size, authority.size - size};
        if (!parse_host((struct text){authority.at, size}, out->host))
            return false;
        if (target.size == 0)
            target = (struct text){"/", 1};
    }
    size_t size = 0;
    while (size < target.size && target.at[size] != '?' && target.at[size] != '#')
        size++;
    if (size == 0 || target.at[0] != '/')
        return out->method == FR_HTTP_OTHER; /* OPTIONS *, CONNECT host:port */
    if (size < FR_HTTP_PATH_MAX)
        memcpy(out->path, target.at, size);
    parse_query((struct text){target.at + size, target.size - size}, out->query);
    return true;
}

static int parse_request_line(struct text line, struct fr_http_request *out, bool *absolute)
{
    struct text method, target;
    if (!take(&line, ' ', &method) || !take(&line, ' ', &target) || method.size == 0)
        return BAD;
    /* Methods are case-sensitive. */
    out->method = method.size == 3 && memcmp(method.at, "GET", 3) == 0    ? FR_HTTP_GET
                  : method.size == 4 && memcmp(method.at, "HEAD", 4) == 0 ? FR_HTTP_HEAD
                                                                          : FR_HTTP_OTHER;
    if (line.size != 8 || memcmp(line.at, "HTTP/", 5) != 0 || line.at[6] != '.')
        return BAD;
    if (line.at[5] != '1' || line.at[7] < '0' || line.at[7] > '9')
        return OTHER_VERSION;
    out->keep = line.at[7] != '0';
    return parse_target(target, out, absolute) ? 0 : BAD;
}

static void parse_connection(struct text value, struct fr_http_request *out)
{
    struct text part;
    for (bool more = true; more;) {
        more = take(&value, ',', &part);
        part = trimmed(more ? part : value);
        if (is(part, "close"))
            out->keep = false;
    }
}

/* `gzip`, unless its weight is 0 (RFC 9110, 12.5.3). A client that names nothing gets the bytes as
 * they are. */
static void parse_encodings(struct text value, struct fr_http_request *out)
{
    struct text part, name;
    for (bool more = true; more;) {
        more = take(&value, ',', &part);
        part = trimmed(more ? part : value);
        bool weighed = take(&part, ';', &name);
        if (!is(trimmed(weighed ? name : part), "gzip"))
            continue;
        part = trimmed(part);
        bool refused = weighed && part.size >= 3 && strncasecmp(part.at, "q=0", 3) == 0;
        for (size_t i = 3; refused && i < part.size; i++)
            refused = part.at[i] == '.' || part.at[i] == '0';
        out->gzip = !refused;
    }
}

/* A tab is the only control character that a header may hold. */
static bool is_clean(struct text text)
{
    for (size_t i = 0; i < text.size; i++)
        if (((unsigned char)text.at[i] < 0x20 && text.at[i] != '\t') || text.at[i] == 0x7f)
            return false;
    return true;
}

int fr_http_parse(const char *head, size_t size, struct fr_http_request *out)
{
    struct text rest = {head, size}, line, name;
    struct fr_http_request request = {0};
    bool absolute = false, has_host = false;
    do
        if (!take_line(&rest, &line))
            return BAD;
    while (line.size == 0);
    int status = is_clean(line) ? parse_request_line(line, &request, &absolute) : BAD;
    if (status)
        return status;
    bool must_have_host = request.keep; /* HTTP/1.1 and later */
    while (take_line(&rest, &line) && line.size) {
        /* A line that begins with a blank would continue the previous one. */
        if (!is_clean(line) || line.at[0] == ' ' || line.at[0] == '\t' || !take(&line, ':', &name) || name.size == 0 ||
            trimmed(name).size != name.size)
            return BAD;
        struct text value = trimmed(line);
        if (is(name, "host")) {
            char unused[FR_HTTP_HOST_MAX];
            if (has_host || !parse_host(value, absolute ? unused : request.host))
                return BAD;
            has_host = true;
        } else if (is(name, "connection")) {
            parse_connection(value, &request);
        } else if (is(name, "transfer-encoding") || (is(name, "content-length") && !is(value, "0"))) {
            request.body = true;
        } else if (is(name, "accept-encoding")) {
            parse_encodings(value, &request);
        } else if (is(name, "if-none-match") && value.size < FR_HTTP_ETAG_MAX) {
            memcpy(request.has, value.at, value.size);
            request.has[value.size] = '\0';
        }
    }
    if (must_have_host && !has_host)
        return BAD;
    *out = request;
    return 0;
}

bool fr_http_host_allowed(const char *host, const char *const *hosts, size_t n_hosts)
{
    struct in6_addr address;
    if (host[0] == '\0' || strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &address) == 1 ||
        inet_pton(AF_INET6, host, &address) == 1)
        return true;
    for (size_t i = 0; i < n_hosts; i++)
        if (strcasecmp(host, hosts[i]) == 0)
            return true;
    return false;
}
