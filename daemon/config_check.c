/* Checks of `--check` beyond the grammar of the configuration, without a network: the settings of
 * every Kafka client, as a start would make them, and valid parts of the model that learn nothing.
 * A start checks the clients too, before it makes a state directory.
 *
 * Thread: the main thread, before other threads start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "config_check.h"
#include "exporter/publisher.h"
#include "ingest/ingest.h"
#include "trainer/trainer.h"

enum { CLIENT_PROBLEMS_MAX = 100 }; /* more would not help a reader */

struct problems {
    const char *config;
    struct fr_buffer *out;
    char *written[CLIENT_PROBLEMS_MAX];
    size_t count;
};

/* Writes each problem once, because several clients get the same properties. */
static void write_problem(void *self, const char *place, const char *text)
{
    struct problems *problems = self;
    for (size_t i = 0; i < problems->count; i++)
        if (strcmp(problems->written[i], text) == 0)
            return;
    if (problems->count == CLIENT_PROBLEMS_MAX)
        return;
    problems->written[problems->count++] = fr_strdup(text);
    fr_buffer_printf(problems->out, "%s: %s\n", place ? place : problems->config, text);
}

bool fr_service_check_clients(const struct fr_conf *conf, const char *config, struct fr_buffer *out)
{
    struct problems problems = {.config = config, .out = out};
    fr_ingest_report(conf, write_problem, &problems);
    struct fr_publisher_property *properties = fr_alloc(conf->ingest.n_kafka + 1, sizeof(*properties));
    for (size_t i = 0; i < conf->ingest.n_kafka; i++)
        properties[i] = (struct fr_publisher_property){conf->ingest.kafka[i].name, conf->ingest.kafka[i].value,
                                                       conf->ingest.kafka[i].place};
    fr_publisher_report(&(struct fr_publisher_options){.model = conf->model,
                                                       .brokers = conf->export_.brokers,
                                                       .partitions = conf->export_.partitions,
                                                       .properties = properties,
                                                       .n_properties = conf->ingest.n_kafka},
                        write_problem, &problems);
    free(properties);
    for (size_t i = 0; i < problems.count; i++)
        free(problems.written[i]);
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
