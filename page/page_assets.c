/* The table of the page's assets. Their bytes are put into the program by the assembly that
 * cmake/page.cmake makes, between two labels each, as they are and compressed by gzip. */
#include <pthread.h>

#include "base/check.h"
#include "page/page.h"

#define TEXT(type) "text/" type "; charset=utf-8"

/* label, path, content type */
#define ASSETS(X)                                                                                                      \
    X(icon_svg, "/icon.svg", "image/svg+xml")                                                                          \
    X(page_css, "/page.css", TEXT("css"))                                                                              \
    X(page_js, "/page.js", TEXT("javascript"))                                                                         \
    X(documents_js, "/documents.js", TEXT("javascript"))                                                               \
    X(elements_js, "/elements.js", TEXT("javascript"))                                                                 \
    X(charts_js, "/charts.js", TEXT("javascript"))                                                                     \
    X(curve_js, "/curve.js", TEXT("javascript"))                                                                       \
    X(insight_js, "/insight.js", TEXT("javascript"))                                                                   \
    X(model_js, "/model.js", TEXT("javascript"))                                                                       \
    X(dygraph_js, "/dygraph.js", TEXT("javascript"))                                                                   \
    X(dygraph_css, "/dygraph.css", TEXT("css"))                                                                        \
    X(licence_txt, "/dygraph-licence.txt", TEXT("plain"))

#define DECLARE(label, path, type)                                                                                     \
    extern const uint8_t fr_page_##label[], fr_page_##label##_end[], fr_page_##label##_gz[], fr_page_##label##_gz_end[];
ASSETS(DECLARE)

enum {
#define NUMBER(label, path, type) NUMBER_##label,
    ASSETS(NUMBER)
#undef NUMBER
        N_ASSETS
};
_Static_assert((int)N_ASSETS <= (int)FR_HTTP_ASSETS_MAX, "the server has room for all");

static struct fr_http_asset assets[N_ASSETS];

static void fill_assets(void)
{
#define FILL(label, path_, type)                                                                                       \
    assets[NUMBER_##label] =                                                                                           \
        (struct fr_http_asset){.path = (path_),                                                                        \
                               .content_type = (type),                                                                 \
                               .bytes = fr_page_##label,                                                               \
                               .gzip = fr_page_##label##_gz,                                                           \
                               .size = (size_t)(fr_page_##label##_end - fr_page_##label),                              \
                               .gzip_size = (size_t)(fr_page_##label##_gz_end - fr_page_##label##_gz)};
    ASSETS(FILL)
}

const struct fr_http_asset *fr_page_assets(size_t *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_assets);
    *count = N_ASSETS;
    return assets;
}
