/* The page as it is served: its document before any script runs, its assets as browsers get them,
 * its weight, and that nothing in it refers to another host. */
#include "../metrics/http_fixture.h"

#include <zlib.h>

#include "base/check.h"
#include "page/page.h"

enum { PAGE_BYTES_MAX = 300 << 10 }; /* uncompressed, all that a browser loads */

FR_FIXTURE(setup)
{
    struct scene *scene = scene_new();
    struct fr_err err = {0};
    struct fr_http_options options = {.host = "127.0.0.1", .clock = &scene->clock.clock, .registry = scene->registry};
    options.assets = fr_page_assets(&options.n_assets);
    assert_int_equal(fr_http_new(&options, &scene->http, &err), FR_OK);
    *state = scene;
    return 0;
}

struct reply {
    int status;
    char head[2048];
    struct fr_buffer body;
};

static void ask(const struct scene *scene, const char *method, const char *path, const char *headers,
                struct reply *reply)
{
    char text[2048], chunk[4096];
    fr_buffer_clear(&reply->body);
    snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", method, path,
             headers);
    int fd = connect_to(scene);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    for (ssize_t n; (n = recv(fd, chunk, sizeof(chunk), 0)) > 0;)
        fr_buffer_append(&reply->body, chunk, (size_t)n);
    close(fd);
    fr_buffer_terminate(&reply->body);
    char *end = strstr((char *)reply->body.data, "\r\n\r\n");
    assert_non_null(end);
    size_t head = (size_t)(end - (char *)reply->body.data) + 4;
    snprintf(reply->head, sizeof(reply->head), "%.*s", (int)head, (char *)reply->body.data);
    memmove(reply->body.data, reply->body.data + head, reply->body.size - head + 1);
    reply->body.size -= head;
    assert_int_equal(strncmp(reply->head, "HTTP/1.1 ", 9), 0);
    reply->status = (int)strtol(reply->head + 9, NULL, 10);
}

static void etag_of(const struct reply *reply, char out[32])
{
    const char *at = strstr(reply->head, "ETag: ");
    assert_non_null(at);
    snprintf(out, 32, "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
}

FR_CASE(the_document_says_model_state_and_problems_without_a_script)
{
    (void)state;
    struct fr_buffer out = {0};
    const struct fr_page_problem problems[] = {{"brokers", "b1:9092 is away; check it"}, {"lag", "<5 s> & \"more\""}};
    const struct fr_page_head head = {.model = "ctr<b>",
                                      .version = "9.8.7",
                                      .state = "Running, not ready: {{model}}",
                                      .n_problems = 2,
                                      .problems = problems};
    fr_page_document(&head, &out);
    fr_buffer_terminate(&out);
    const char *text = (const char *)out.data;
    assert_non_null(strstr(text, "<title>ctr&lt;b&gt; "));
    assert_non_null(strstr(text, "<h1>ctr&lt;b&gt;</h1>"));
    assert_non_null(strstr(text, "role=\"status\">Running, not ready: {{model}}</p>"));
    assert_non_null(strstr(text, "<span>9.8.7</span>"));
    assert_non_null(strstr(text, "<li><b>brokers</b> b1:9092 is away; check it</li>\n"
                                 "<li><b>lag</b> &lt;5 s&gt; &amp; &quot;more&quot;</li>\n"));
    assert_null(strstr(text, "<script>")); /* the policy would refuse it */
    assert_null(strstr(text, "style="));
    fr_buffer_release(&out);
}

/* Whether the document or another asset names the asset; a script imports "./name". A zero
 * follows the bytes of an asset (cmake/page.cmake). */
static bool is_named(const struct fr_buffer *page, const struct fr_http_asset *assets, size_t n, size_t asset)
{
    char path[64], import[64];
    snprintf(path, sizeof(path), "\"%s\"", assets[asset].path);
    snprintf(import, sizeof(import), "\".%s\"", assets[asset].path);
    bool named = strstr((const char *)page->data, path) != NULL;
    for (size_t i = 0; i < n; i++)
        named |= i != asset && strstr((const char *)assets[i].bytes, import) != NULL;
    return named;
}

/* Links inside the licence are text; everything else stays on this host. */
FR_CASE(nothing_refers_to_another_host_and_all_weighs_little)
{
    (void)state;
    struct fr_buffer page = {0};
    size_t n, total;
    const struct fr_http_asset *assets = fr_page_assets(&n);
    fr_page_document(&(const struct fr_page_head){.model = "m", .version = "1", .state = "s"}, &page);
    fr_buffer_terminate(&page);
    assert_null(strstr((const char *)page.data, "//"));
    total = page.size;
    for (size_t i = 0; i < n; i++) {
        total += assets[i].size;
        assert_true(is_named(&page, assets, n, i));
        assert_true(assets[i].size > 0 && assets[i].gzip_size > 0);
    }
    print_message("the page weighs %zu bytes\n", total);
    assert_in_range(total, 50000, PAGE_BYTES_MAX);
    fr_buffer_release(&page);
}

FR_CASE(an_asset_is_served_as_it_is_and_compressed)
{
    struct scene *scene = *state;
    struct reply plain = {0}, packed = {0};
    uint8_t *unpacked = fr_alloc(PAGE_BYTES_MAX, 1);
    size_t n;
    const struct fr_http_asset *assets = fr_page_assets(&n);
    for (size_t i = 0; i < n; i++) {
        ask(scene, "GET", assets[i].path, "", &plain);
        assert_int_equal(plain.status, 200);
        assert_non_null(strstr(plain.head, assets[i].content_type));
        assert_null(strstr(plain.head, "Content-Encoding"));
        assert_int_equal(plain.body.size, assets[i].size);
        ask(scene, "GET", assets[i].path, "Accept-Encoding: br;q=1.0, gzip;q=0.8\r\n", &packed);
        assert_non_null(strstr(packed.head, "Content-Encoding: gzip\r\n"));
        assert_non_null(strstr(packed.head, "Vary: Accept-Encoding\r\n"));
        z_stream stream = {.next_in = packed.body.data,
                           .avail_in = (unsigned)packed.body.size,
                           .next_out = unpacked,
                           .avail_out = PAGE_BYTES_MAX};
        assert_int_equal(inflateInit2(&stream, 31), Z_OK);
        assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
        assert_int_equal(stream.total_out, plain.body.size);
        assert_memory_equal(unpacked, plain.body.data, plain.body.size);
        assert_int_equal(inflateEnd(&stream), Z_OK);
    }
    ask(scene, "GET", "/page.js", "Accept-Encoding: gzip;q=0.0, identity\r\n", &packed);
    assert_null(strstr(packed.head, "Content-Encoding"));
    free(unpacked);
    fr_buffer_release(&plain.body);
    fr_buffer_release(&packed.body);
}

FR_CASE(a_client_that_has_the_bytes_gets_304_without_them)
{
    struct scene *scene = *state;
    struct reply reply = {0};
    char etag[32], headers[128];
    ask(scene, "GET", "/page.css", "", &reply);
    etag_of(&reply, etag);
    assert_non_null(strstr(reply.head, "Cache-Control: no-cache\r\n"));
    static const char *const before[] = {"", "W/\"x\", W/"};
    for (size_t i = 0; i < FR_ARRAY_LEN(before); i++) {
        snprintf(headers, sizeof(headers), "If-None-Match: %s%s\r\n", before[i], etag);
        ask(scene, "GET", "/page.css", headers, &reply);
        assert_int_equal(reply.status, 304);
        assert_int_equal(reply.body.size, 0);
        assert_null(strstr(reply.head, "Content-Length"));
        assert_non_null(strstr(reply.head, etag));
    }
    ask(scene, "GET", "/page.css", "If-None-Match: \"0000000000000000\"\r\n", &reply);
    assert_int_equal(reply.status, 200);
    ask(scene, "GET", "/page.js", headers, &reply); /* another's */
    assert_int_equal(reply.status, 200);
    fr_buffer_release(&reply.body);
}

FR_CASE(every_answer_has_the_policy_and_head_has_no_body)
{
    struct scene *scene = *state;
    struct reply reply = {0};
    static const char *const paths[] = {"/", "/page.js", "/healthz", "/metrics", "/none"};
    fr_http_publish(scene->http, "/", 200, "text/html; charset=utf-8", "<p>", 3);
    for (size_t i = 0; i < FR_ARRAY_LEN(paths); i++) {
        ask(scene, "GET", paths[i], "", &reply);
        assert_non_null(strstr(reply.head,
                               "\r\nContent-Security-Policy: default-src 'none'; script-src 'self'; style-src "
                               "'self'; connect-src 'self'; img-src 'self';"));
        assert_null(strstr(reply.head, "unsafe"));
        assert_non_null(strstr(reply.head, "\r\nX-Content-Type-Options: nosniff\r\n"));
        assert_int_equal(reply.status, strcmp(paths[i], "/none") ? 200 : 404);
    }
    ask(scene, "HEAD", "/dygraph.js", "Accept-Encoding: gzip\r\n", &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(reply.body.size, 0);
    assert_null(strstr(reply.head, "Content-Length: 0\r\n"));
    fr_buffer_release(&reply.body);
}

static int echo(void *self, const char *query, struct fr_buffer *out)
{
    fr_buffer_printf(out, "%s %s", (const char *)self, query);
    return strcmp(query, "bad") == 0 ? 400 : 200;
}

FR_CASE(a_rendered_document_gets_the_query)
{
    struct scene *scene = *state;
    struct reply reply = {0};
    static char longest[1100], too_long[1100];
    snprintf(longest, sizeof(longest), "/echo?%01023d", 0);
    snprintf(too_long, sizeof(too_long), "/echo?%01024d", 0);
    const struct {
        const char *target, *text;
        int status;
    } asked[] = {{"/echo", "me ", 200},  {"/echo?a=1&b", "me a=1&b", 200}, {"/echo?a#f?x", "me a", 200},
                 {"/echo?", "me ", 200}, {"/echo?bad", "me bad", 400},     {too_long, "me ?", 200}};
    static char self[] = "me";
    fr_http_serve(scene->http, "/echo", echo, self);
    for (size_t i = 0; i < FR_ARRAY_LEN(asked); i++) {
        ask(scene, "GET", asked[i].target, "", &reply);
        assert_int_equal(reply.status, asked[i].status);
        assert_string_equal((const char *)reply.body.data, asked[i].text);
    }
    ask(scene, "GET", longest, "", &reply);
    assert_string_equal((const char *)reply.body.data + 3, longest + 6);
    fr_buffer_release(&reply.body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_document_says_model_state_and_problems_without_a_script),
        cmocka_unit_test(nothing_refers_to_another_host_and_all_weighs_little),
        cmocka_unit_test_setup_teardown(an_asset_is_served_as_it_is_and_compressed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_client_that_has_the_bytes_gets_304_without_them, setup, teardown),
        cmocka_unit_test_setup_teardown(every_answer_has_the_policy_and_head_has_no_body, setup, teardown),
        cmocka_unit_test_setup_teardown(a_rendered_document_gets_the_query, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
