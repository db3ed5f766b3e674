/* What `--check` looks at beyond the configuration's own grammar, without a network: the settings
 * of every Kafka client, as a start would make them, and valid parts of the network that learn
 * nothing. A start checks the clients too, before it makes a state directory.
 *
 * Owner: main thread, before there are others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "config_check.h"
#include "exporter/publisher.h"
#include "ingest/ingest.h"
#include "trainer/trainer.h"

enum { CLIENT_PROBLEMS_MAX = 100 }; /* nobody reads more at once */

struct problems {
    const char *config;
    struct fr_buffer *out;
    char *told[CLIENT_PROBLEMS_MAX];
    size_t count;
};

/* Several clients get the same properties: each problem once. */
static void take(void *self, const char *place, const char *text)
{
    struct problems *problems = self;
    for (size_t i = 0; i < problems->count; i++)
        if (strcmp(problems->told[i], text) == 0)
            return;
    if (problems->count == CLIENT_PROBLEMS_MAX)
        return;
    problems->told[problems->count++] = fr_strdup(text);
    fr_buffer_printf(problems->out, "%s: %s\n", place ? place : problems->config, text);
}

bool fr_service_check_clients(const struct fr_conf *conf, const char *config, struct fr_buffer *out)
{
    struct problems problems = {.config = config, .out = out};
    fr_ingest_report(conf, take, &problems);
    struct fr_publisher_property *properties = fr_alloc(conf->ingest.n_kafka + 1, sizeof(*properties));
    for (size_t i = 0; i < conf->ingest.n_kafka; i++)
        properties[i] = (struct fr_publisher_property){conf->ingest.kafka[i].name, conf->ingest.kafka[i].value,
                                                       conf->ingest.kafka[i].place};
    fr_publisher_report(&(struct fr_publisher_options){.model = conf->model,
                                                       .brokers = conf->export_.brokers,
                                                       .partitions = conf->export_.partitions,
                                                       .properties = properties,
                                                       .n_properties = conf->ingest.n_kafka},
                        take, &problems);
    free(properties);
    for (size_t i = 0; i < problems.count; i++)
        free(problems.told[i]);
    return problems.count == 0;
}

void fr_service_check_warnings(const struct fr_conf *conf, const char *config, struct fr_buffer *out)
{
    struct fr_graph *graph = fr_graph_new(&(struct fr_graph_options){.conf = conf});
    for (uint32_t t = 0; t < conf->n_tasks; t++) {
        const char *warning = fr_trainer_task_warning(graph, t);
        if (warning)
            fr_buffer_printf(out, "%s: warning: task `%s`: %s\n", config, conf->tasks[t].name, warning);
    }
    struct fr_graph_stuck stuck[FR_STUCK_MAX];
    uint32_t n_stuck = fr_graph_find_stuck(graph, stuck, FR_STUCK_MAX);
    for (uint32_t i = 0; i < n_stuck; i++) {
        char text[1024];
        fr_trainer_stuck_text(conf, &stuck[i], text, sizeof(text));
        fr_buffer_printf(out, "%s: warning: %s\n", config, text);
    }
    fr_graph_free(graph);
}
