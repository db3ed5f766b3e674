/* What the HTTP server answers: assets, documents, health, metrics (contract: metrics/http.h; its
 * connections: server.c).
 *
 * Other threads publish documents by swapping a pointer under a short mutex; the HTTP thread copies
 * the reply out under the same mutex, so that no training thread ever waits for a slow reader. */
#include "metrics/http.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "metrics/series.h"
#include "server.h"

enum { FR_HTTP_DOCUMENTS_MAX = 32, FR_HTTP_RENDERED_MAX = 4, FR_HTTP_WATCHES_MAX = 16, FR_HTTP_REASONS_MAX = 16 };

struct document {
    char path[64];
    const char *content_type;
    int status;
    struct fr_buffer body;
};

struct rendered {
    const char *path;
    fr_http_render *render;
    void *self;
};

struct watch {
    char loop[32];
    int64_t watchdog_ms;
    uint64_t beat_ns;
    bool used;
};

struct reason {
    char source[32];
    char text[256];
};

struct fr_http {
    struct fr_http_server *server;
    const struct fr_clock *clock;
    struct fr_registry *registry;
    const char *const *hosts; /* borrowed */
    size_t n_hosts;
    const struct fr_http_asset *assets; /* borrowed */
    size_t n_assets;
    char etags[FR_HTTP_ASSETS_MAX][24]; /* of each asset: its hash, quoted */

    pthread_mutex_t lock; /* documents, rendered, watches, reasons */
    struct rendered rendered[FR_HTTP_RENDERED_MAX];
    size_t n_rendered;
    struct document documents[FR_HTTP_DOCUMENTS_MAX];
    size_t n_documents;
    struct watch watches[FR_HTTP_WATCHES_MAX];
    struct reason reasons[FR_HTTP_REASONS_MAX];
};

typedef void visit_problem(void *self, const char *source, const char *text);

/* Returns the number of loops without a turn. */
static size_t visit_problems(struct fr_http *http, visit_problem *visit, void *self)
{
    uint64_t now_ns = fr_mono_ns(http->clock);
    size_t stuck = 0;
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < FR_HTTP_WATCHES_MAX; i++) {
        const struct watch *watch = &http->watches[i];
        if (!watch->used || now_ns < watch->beat_ns ||
            (int64_t)((now_ns - watch->beat_ns) / 1000000) <= watch->watchdog_ms)
            continue;
        char text[96];
        snprintf(text, sizeof(text), "no turn for %lld ms; restart the daemon",
                 (long long)((now_ns - watch->beat_ns) / 1000000));
        visit(self, watch->loop, text);
        stuck++;
    }
    for (size_t i = 0; i < FR_HTTP_REASONS_MAX; i++)
        if (http->reasons[i].source[0] && http->reasons[i].text[0])
            visit(self, http->reasons[i].source, http->reasons[i].text);
    pthread_mutex_unlock(&http->lock);
    return stuck;
}

void fr_http_visit_problems(struct fr_http *http, visit_problem *visit, void *self)
{
    (void)visit_problems(http, visit, self);
}

static void put_reason(void *self, const char *source, const char *text)
{
    char joined[320];
    snprintf(joined, sizeof(joined), "%s: %s", source, text);
    fr_json_text(self, NULL, joined);
}

static void visit_none(void *self, const char *source, const char *text)
{
    (void)self;
    (void)source;
    (void)text;
}

bool fr_http_live(struct fr_http *http)
{
    return visit_problems(http, visit_none, NULL) == 0;
}

static int health(struct fr_http *http, struct fr_buffer *body)
{
    struct fr_buffer reasons = {0};
    struct fr_json list = {.out = &reasons};
    size_t stuck = visit_problems(http, put_reason, &list);
    fr_buffer_printf(body, "{\"status\":\"%s\",\"reasons\":[", list.follows ? "degraded" : "ok");
    fr_buffer_append(body, reasons.data, reasons.size);
    fr_buffer_printf(body, "]}\n");
    fr_buffer_release(&reasons);
    return stuck ? 503 : 200;
}

/* Returns the status of the document; 0: there is no such document. */
static int find_document(struct fr_http *http, const char *path, struct fr_buffer *body, const char **content_type)
{
    int status = 0;
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < http->n_documents && !status; i++)
        if (strcmp(http->documents[i].path, path) == 0) {
            status = http->documents[i].status;
            *content_type = http->documents[i].content_type;
            fr_buffer_append(body, http->documents[i].body.data, http->documents[i].body.size);
        }
    pthread_mutex_unlock(&http->lock);
    return status;
}

/* Path NULL: there is no such document. */
static struct rendered find_rendered(struct fr_http *http, const char *path)
{
    struct rendered found = {0};
    pthread_mutex_lock(&http->lock);
    for (size_t i = 0; i < http->n_rendered && !found.path; i++)
        if (strcmp(http->rendered[i].path, path) == 0)
            found = http->rendered[i];
    pthread_mutex_unlock(&http->lock);
    return found;
}

static bool answer_asset(const struct fr_http *http, const struct fr_http_request *request, struct fr_http_reply *reply)
{
    size_t i = 0;
    while (i < http->n_assets && strcmp(http->assets[i].path, request->path) != 0)
        i++;
    if (i == http->n_assets)
        return false;
    const struct fr_http_asset *asset = &http->assets[i];
    reply->content_type = asset->content_type;
    reply->gzip = request->gzip;
    reply->stored = request->gzip ? asset->gzip : asset->bytes;
    reply->stored_size = request->gzip ? asset->gzip_size : asset->size;
    reply->etag = http->etags[i];
    if (strstr(request->has, http->etags[i])) /* one of a list, weak or not */
        reply->status = 304;
    return true;
}

static void refuse(struct fr_http_reply *reply, int status, const char *why)
{
    fr_buffer_printf(&reply->body, "{\"error\":\"%s\"}\n", why);
    reply->status = status;
}

static void render_metrics(struct fr_http *http, struct fr_http_reply *reply)
{
    reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
    fr_series_set(http->registry, FR_SERIES_LIVE, NULL, fr_http_live(http));
    fr_registry_render(http->registry, &reply->body);
}

static void answer(void *self, const struct fr_http_request *request, struct fr_http_reply *reply)
{
    struct fr_http *http = self;
    const char *path = request->path;
    if (!fr_http_host_allowed(request->host, http->hosts, http->n_hosts)) {
        refuse(reply, 403, "unknown host; use an address, or list the name in metrics.hosts");
        return;
    }
    if (request->method == FR_HTTP_OTHER) {
        refuse(reply, 405, "only GET and HEAD");
        return;
    }
    if (strcmp(path, "/healthz") == 0 || strcmp(path, "/health") == 0) {
        reply->status = health(http, &reply->body);
        return;
    }
    if (strcmp(path, "/metrics") == 0) {
        render_metrics(http, reply);
        return;
    }
    struct rendered rendered = find_rendered(http, path);
    if (rendered.path)
        reply->status = rendered.render(rendered.self, request->query, &reply->body);
    else if (!answer_asset(http, request, reply) &&
             !(reply->status = find_document(http, path, &reply->body, &reply->content_type)))
        refuse(reply, 404,
               "no such path; try / /healthz /readyz /auc /metrics /status /history /model /insight /feature");
}

enum fr_status fr_http_new(const struct fr_http_options *options, struct fr_http **out, struct fr_err *err)
{
    struct fr_http *http = fr_alloc(1, sizeof(*http));
    pthread_mutex_init(&http->lock, NULL);
    http->clock = options->clock;
    http->registry = options->registry;
    http->hosts = options->hosts;
    http->n_hosts = options->n_hosts;
    FR_CHECK(options->n_assets <= FR_HTTP_ASSETS_MAX);
    http->assets = options->assets;
    http->n_assets = options->n_assets;
    for (size_t i = 0; i < http->n_assets; i++)
        snprintf(http->etags[i], sizeof(http->etags[i]), "\"%016" PRIx64 "\"",
                 fr_xxh3(http->assets[i].bytes, http->assets[i].size));
    struct fr_http_server_options server = {.host = options->host,
                                            .port = options->port,
                                            .head_ms = options->head_ms ? options->head_ms : FR_HTTP_HEAD_MS,
                                            .registry = options->registry,
                                            .answer = answer,
                                            .self = http};
    enum fr_status status = fr_http_server_new(&server, &http->server, err);
    if (status != FR_OK) {
        fr_http_free(http);
        return status;
    }
    *out = http;
    return FR_OK;
}

void fr_http_free(struct fr_http *http)
{
    if (!http)
        return;
    fr_http_server_free(http->server);
    for (size_t i = 0; i < http->n_documents; i++)
        fr_buffer_release(&http->documents[i].body);
    pthread_mutex_destroy(&http->lock);
    free(http);
}

uint16_t fr_http_port(const struct fr_http *http)
{
    return fr_http_server_port(http->server);
}

void fr_http_publish(struct fr_http *http, const char *path, int status, const char *content_type, const void *body,
                     size_t size)
{
    struct fr_buffer fresh = {0};
    fr_buffer_append(&fresh, body, size);
    pthread_mutex_lock(&http->lock);
    size_t i = 0;
    while (i < http->n_documents && strcmp(http->documents[i].path, path) != 0)
        i++;
    if (i == http->n_documents) {
        FR_CHECK(http->n_documents < FR_HTTP_DOCUMENTS_MAX);
        snprintf(http->documents[i].path, sizeof(http->documents[i].path), "%s", path);
        http->n_documents++;
    }
    struct fr_buffer old = http->documents[i].body;
    http->documents[i].body = fresh;
    http->documents[i].status = status;
    http->documents[i].content_type = content_type;
    pthread_mutex_unlock(&http->lock);
    fr_buffer_release(&old);
}

void fr_http_serve(struct fr_http *http, const char *path, fr_http_render *render, void *self)
{
    pthread_mutex_lock(&http->lock);
    FR_CHECK(http->n_rendered < FR_HTTP_RENDERED_MAX);
    http->rendered[http->n_rendered++] = (struct rendered){path, render, self};
    pthread_mutex_unlock(&http->lock);
}

int fr_http_watch(struct fr_http *http, const char *loop, int64_t watchdog_ms)
{
    pthread_mutex_lock(&http->lock);
    int i = 0;
    while (i < FR_HTTP_WATCHES_MAX && http->watches[i].used)
        i++;
    FR_CHECK(i < FR_HTTP_WATCHES_MAX);
    struct watch *watch = &http->watches[i];
    snprintf(watch->loop, sizeof(watch->loop), "%s", loop);
    watch->watchdog_ms = watchdog_ms;
    watch->beat_ns = fr_mono_ns(http->clock);
    watch->used = true;
    pthread_mutex_unlock(&http->lock);
    return i;
}

void fr_http_beat(struct fr_http *http, int loop)
{
    pthread_mutex_lock(&http->lock);
    http->watches[loop].beat_ns = fr_mono_ns(http->clock);
    pthread_mutex_unlock(&http->lock);
}

void fr_http_unwatch(struct fr_http *http, int loop)
{
    pthread_mutex_lock(&http->lock);
    http->watches[loop].used = false;
    pthread_mutex_unlock(&http->lock);
}

void fr_http_reason(struct fr_http *http, const char *source, const char *text)
{
    bool clear = !text || !text[0];
    char labels[96] = "";
    fr_metric_label(labels, sizeof(labels), "source", source);
    fr_series_set(http->registry, FR_SERIES_DEGRADED, labels, !clear);
    pthread_mutex_lock(&http->lock);
    struct reason *place = NULL;
    for (size_t i = 0; i < FR_HTTP_REASONS_MAX; i++) {
        struct reason *reason = &http->reasons[i];
        if (strcmp(reason->source, source) == 0) {
            place = reason;
            break;
        }
        if (!reason->source[0] && !place)
            place = reason;
    }
    FR_CHECK(place || clear);
    if (place) {
        snprintf(place->source, sizeof(place->source), "%s", clear ? "" : source);
        snprintf(place->text, sizeof(place->text), "%s", clear ? "" : text);
    }
    pthread_mutex_unlock(&http->lock);
}
