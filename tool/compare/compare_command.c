/* `freshet compare`: the metrics of two models side by side, for example a live model and a
 * candidate that was trained over the same stream from a savepoint. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "compare/auc_document.h"
#include "output.h"
#include "tool.h"

static const char usage[] =
    "freshet compare A B [--json]\n\n"
    "  A, B      http://HOST:PORT of a running daemon (metrics.listen), a state directory, or a file that holds the\n"
    "            document of GET /auc or of `freshet dump --metrics`\n"
    "  --json    one JSON document instead of a table\n\n"
    "A line for each task, window (half-life or lifetime) and metric that both have: A, B and B - A. What one of them\n"
    "alone has is said on stderr. They are comparable when both trained over the same samples: look at `weight`.\n";

static const struct fr_tool_figures *find(const struct fr_tool_document *in, const struct fr_tool_figures *like)
{
    for (size_t i = 0; i < in->n_figures; i++)
        if (strcmp(in->figures[i].task, like->task) == 0 && strcmp(in->figures[i].window, like->window) == 0)
            return &in->figures[i];
    return NULL;
}

static void put_side(struct fr_json *json, const char *name, const struct fr_tool_document *side)
{
    fr_json_object(json, name);
    fr_json_text(json, "model", side->model);
    fr_json_u64(json, "tl", side->timeline);
    fr_json_u64(json, "epoch", side->epoch);
    fr_json_end(json);
}

static void print_json(const struct fr_tool_document sides[2])
{
    struct fr_buffer out = {0};
    struct fr_json json = {.out = &out};
    fr_json_object(&json, NULL);
    put_side(&json, "a", &sides[0]);
    put_side(&json, "b", &sides[1]);
    fr_json_array(&json, "compared");
    for (size_t i = 0; i < sides[0].n_figures; i++) {
        const struct fr_tool_figures *a = &sides[0].figures[i], *b = find(&sides[1], a);
        for (size_t m = 0; b && m < FR_COMPARED; m++) {
            fr_json_object(&json, NULL);
            fr_json_text(&json, "task", a->task);
            fr_json_text(&json, "window", a->window);
            fr_json_text(&json, "metric", fr_tool_compared[m]);
            fr_json_exact(&json, "a", a->values[m]);
            fr_json_exact(&json, "b", b->values[m]);
            fr_json_exact(&json, "difference", b->values[m] - a->values[m]);
            fr_json_end(&json);
        }
    }
    fr_json_end(&json);
    fr_json_end(&json);
    fr_put_u8(&out, '\n');
    fwrite(out.data, 1, out.size, stdout);
    fr_buffer_release(&out);
}

static void print_number(double value)
{
    if (isfinite(value))
        printf(" %14.9g", value);
    else
        printf(" %14s", "undefined");
}

static void print_table(const struct fr_tool_document sides[2])
{
    static const char *const names[] = {"A", "B"};
    for (int s = 0; s < 2; s++)
        printf("%s: model %s timeline %" PRIu64 " epoch %" PRIu64 "\n", names[s], sides[s].model, sides[s].timeline,
               sides[s].epoch);
    printf("%-16s %-9s %-14s %14s %14s %14s\n", "task", "window", "metric", "A", "B", "B - A");
    for (size_t i = 0; i < sides[0].n_figures; i++) {
        const struct fr_tool_figures *a = &sides[0].figures[i], *b = find(&sides[1], a);
        for (size_t m = 0; b && m < FR_COMPARED; m++) {
            printf("%-16s %-9s %-14s", a->task, a->window, fr_tool_compared[m]);
            print_number(a->values[m]);
            print_number(b->values[m]);
            print_number(b->values[m] - a->values[m]);
            printf("\n");
        }
    }
}

/* Counts the entries that both documents have, and reports the others. */
static size_t match(const struct fr_tool_document *of, const struct fr_tool_document *other, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < of->n_figures; i++) {
        bool both = find(other, &of->figures[i]) != NULL;
        n += both;
        if (!both)
            fprintf(stderr, "freshet compare: only %s has task %s window %s\n", name, of->figures[i].task,
                    of->figures[i].window);
    }
    return n;
}

int fr_tool_compare(int argc, char **argv)
{
    bool json = false;
    const struct fr_tool_option options[] = {{.name = "--json", .flag = &json}};
    const char *places[2];
    int n_places = 0;
    while (n_places < 2 && argc > 1 && argv[1][0] != '-') {
        places[n_places++] = argv[1];
        argv[1] = argv[0];
        argv++;
        argc--;
    }
    int parsed = fr_tool_options_parse(argc, argv, options, FR_ARRAY_LEN(options), usage);
    if (parsed != FR_TOOL_OK)
        return parsed;
    if (n_places < 2) {
        fprintf(stderr, "freshet compare: expected two models\n\n%s", usage);
        return FR_TOOL_USAGE;
    }
    struct fr_tool_document sides[2] = {{.model = ""}, {.model = ""}};
    struct fr_err err = {0};
    enum fr_status status = FR_OK;
    for (int s = 0; s < 2 && status == FR_OK; s++)
        status = fr_tool_document_read(places[s], &sides[s], &err);
    int result = FR_TOOL_FAILED;
    if (status != FR_OK) {
        (void)fr_tool_fail("compare", &err);
    } else if (match(&sides[0], &sides[1], "A") + match(&sides[1], &sides[0], "B") == 0) {
        fprintf(stderr, "freshet compare: the two have no task and window in common\n");
    } else {
        (json ? print_json : print_table)(sides);
        result = fflush(stdout) == 0 ? FR_TOOL_OK : FR_TOOL_FAILED;
    }
    for (int s = 0; s < 2; s++)
        fr_tool_document_release(&sides[s]);
    return result;
}
