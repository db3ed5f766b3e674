/* The document of GET /: the embedded index.html, in which words in double braces stand for what
 * the daemon says at this moment.
 *
 * A word that index.html has and this file does not is a mistake of the source tree, and fails
 * FR_CHECK in the unit test before anyone sees it. */
#include <string.h>

#include "base/check.h"
#include "page/page.h"

extern const uint8_t fr_page_index_html[], fr_page_index_html_end[];

/* As text or as the value of an attribute in double quotes. */
static void put_escaped(const char *text, struct fr_buffer *out)
{
    for (; *text; text++) {
        const char *name = *text == '&'   ? "&amp;"
                           : *text == '<' ? "&lt;"
                           : *text == '>' ? "&gt;"
                           : *text == '"' ? "&quot;"
                                          : NULL;
        if (name)
            fr_buffer_append(out, name, strlen(name));
        else
            fr_put_u8(out, (uint8_t)*text);
    }
}

static void put_problems(const struct fr_page_head *head, struct fr_buffer *out)
{
    for (size_t i = 0; i < head->n_problems; i++) {
        fr_buffer_printf(out, "<li><b>");
        put_escaped(head->problems[i].where, out);
        fr_buffer_printf(out, "</b> ");
        put_escaped(head->problems[i].text, out);
        fr_buffer_printf(out, "</li>\n");
    }
}

static void put_word(const struct fr_page_head *head, const char *word, size_t size, struct fr_buffer *out)
{
    const struct {
        const char *word, *text;
    } words[] = {{"model", head->model}, {"version", head->version}, {"state", head->state}};
    for (size_t i = 0; i < FR_ARRAY_LEN(words); i++)
        if (strlen(words[i].word) == size && memcmp(words[i].word, word, size) == 0) {
            put_escaped(words[i].text, out);
            return;
        }
    FR_CHECK(size == strlen("problems") && memcmp(word, "problems", size) == 0);
    put_problems(head, out);
}

void fr_page_document(const struct fr_page_head *head, struct fr_buffer *out)
{
    const char *at = (const char *)fr_page_index_html, *end = (const char *)fr_page_index_html_end;
    while (at < end) {
        const char *open = memchr(at, '{', (size_t)(end - at));
        bool is_word = open && open + 1 < end && open[1] == '{';
        const char *close = is_word ? memchr(open, '}', (size_t)(end - open)) : NULL;
        const char *stop = is_word ? open : open ? open + 1 : end;
        fr_buffer_append(out, at, (size_t)(stop - at));
        at = stop;
        if (is_word) {
            FR_CHECK(close && close + 1 < end && close[1] == '}');
            put_word(head, open + 2, (size_t)(close - open - 2), out);
            at = close + 2;
        }
    }
}
