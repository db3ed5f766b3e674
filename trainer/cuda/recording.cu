/* Records what a queue starts, and finds the graph that fits the recording (see recording.h). */
#include "recording.h"

#include <stdlib.h>
#include <string.h>

/* ---- recordings ---- */

/* False: there is no more memory. */
static bool grow(void **memory, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity)
        return true;
    size_t more = *capacity * 2 > wanted ? *capacity * 2 : wanted;
    void *larger = realloc(*memory, more * size);
    if (!larger)
        return false;
    *memory = larger;
    *capacity = more;
    return true;
}

bool fr_device_record(struct fr_recording *recording, const struct fr_started *started, const void *call)
{
    /* an argument is aligned for any type */
    size_t bytes = (started->call_bytes + 15) / 16 * 16;
    void *list = recording->list, *calls = recording->calls;
    bool there = grow(&list, &recording->capacity, recording->n + 1, sizeof(*recording->list)) &&
                 grow(&calls, &recording->calls_capacity, recording->calls_bytes + bytes, 1);
    recording->list = (struct fr_started *)list;
    recording->calls = (uint8_t *)calls;
    if (!there)
        return false;
    struct fr_started *added = &recording->list[recording->n++];
    *added = *started;
    added->call_at = recording->calls_bytes;
    if (started->call_bytes > 0)
        memcpy(recording->calls + added->call_at, call, started->call_bytes);
    recording->calls_bytes += bytes;
    return true;
}

void fr_device_recording_clear(struct fr_recording *recording)
{
    recording->n = recording->calls_bytes = 0;
}

void fr_device_recording_release(struct fr_recording *recording)
{
    free(recording->list);
    free(recording->calls);
    memset(recording, 0, sizeof(*recording));
}

static void exchange(struct fr_recording *a, struct fr_recording *b)
{
    struct fr_recording other = *a;
    *a = *b;
    *b = other;
}

static bool same_product(const struct fr_product *a, const struct fr_product *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->left_ld == b->left_ld && a->right_ld == b->right_ld &&
           a->out_ld == b->out_ld && a->left == b->left && a->right == b->right && a->out == b->out &&
           a->left_transposed == b->left_transposed && a->right_transposed == b->right_transposed &&
           a->accumulate == b->accumulate && a->bf16 == b->bf16;
}

static bool same_kind_of(const struct fr_started *a, const struct fr_started *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == FR_STARTED_KERNEL)
        return a->kernel == b->kernel && a->call_bytes == b->call_bytes;
    if (a->kind == FR_STARTED_PRODUCT)
        return same_product(&a->product, &b->product);
    return a->to == b->to && a->from == b->from && a->bytes == b->bytes && a->direction == b->direction;
}

static bool same_shape(const struct fr_recording *a, const struct fr_recording *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!same_kind_of(&a->list[i], &b->list[i]))
            return false;
    return true;
}

/* ---- graphs ---- */

/* Updates the kernels of the graph whose argument or size has changed. */
static void change(struct fr_device_queue *queue, struct fr_device_graph *graph, const struct fr_recording *now,
                   const struct fr_device_graph_calls *calls)
{
    struct fr_recording *before = &graph->recording;
    for (size_t i = 0; i < now->n; i++) {
        struct fr_started *old = &before->list[i];
        const struct fr_started *wanted = &now->list[i];
        void *argument = fr_device_recorded_call(before, old);
        if (old->kind != FR_STARTED_KERNEL ||
            (old->blocks == wanted->blocks &&
             memcmp(argument, fr_device_recorded_call(now, wanted), wanted->call_bytes) == 0))
            continue;
        old->blocks = wanted->blocks;
        memcpy(argument, fr_device_recorded_call(now, wanted), wanted->call_bytes);
        calls->change(queue, graph, i);
    }
}

static bool was_seen(const struct fr_device_graphs *graphs)
{
    for (int i = 0; i < FR_DEVICE_SHAPES; i++)
        if (same_shape(&graphs->seen[i], &graphs->now))
            return true;
    return false;
}

static struct fr_device_graph *find(struct fr_device_graphs *graphs)
{
    for (int i = 0; i < FR_DEVICE_GRAPHS; i++)
        if (graphs->kept[i].made && same_shape(&graphs->kept[i].recording, &graphs->now))
            return &graphs->kept[i];
    return NULL;
}

/* Makes a graph of the present recording, in the place of the least recently used graph. */
static struct fr_device_graph *make(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                                    const struct fr_device_graph_calls *calls)
{
    struct fr_device_graph *place = &graphs->kept[0];
    for (int i = 1; i < FR_DEVICE_GRAPHS; i++)
        if (graphs->kept[i].used < place->used)
            place = &graphs->kept[i];
    if (place->made)
        calls->drop(queue, place->made);
    place->made = calls->make(queue, &graphs->now);
    graphs->off = !place->made;
    if (!place->made)
        return NULL;
    exchange(&place->recording, &graphs->now);
    graphs->counts.made++;
    return place;
}

void fr_device_graphs_begin(struct fr_device_graphs *graphs)
{
    fr_device_recording_clear(&graphs->now);
    graphs->n_pieces = 0;
    graphs->recording = true;
}

void fr_device_graphs_cut(struct fr_device_graphs *graphs)
{
    if (!graphs->recording || graphs->now.n == 0 || graphs->n_pieces == FR_DEVICE_PIECES)
        return;
    exchange(&graphs->pieces[graphs->n_pieces++], &graphs->now);
    fr_device_recording_clear(&graphs->now);
}

void fr_device_graphs_flush(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                            const struct fr_device_graph_calls *calls)
{
    if (!graphs->recording)
        return;
    graphs->recording = false;
    for (uint32_t i = 0; i < graphs->n_pieces; i++)
        calls->start(queue, &graphs->pieces[i]);
    calls->start(queue, &graphs->now);
}

/* Starts `now`, as a graph or call by call. */
static void start_piece(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                        const struct fr_device_graph_calls *calls)
{
    struct fr_device_graph *graph = find(graphs);
    if (graph)
        change(queue, graph, &graphs->now, calls);
    else if (!graphs->off && was_seen(graphs))
        graph = make(graphs, queue, calls);
    if (!graph) {
        calls->start(queue, &graphs->now);
        exchange(&graphs->seen[graphs->turn++ % FR_DEVICE_SHAPES], &graphs->now);
        return;
    }
    graph->used = ++graphs->counts.launched;
    calls->launch(queue, graph);
}

void fr_device_graphs_end(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                          const struct fr_device_graph_calls *calls)
{
    if (!graphs->recording)
        return;
    graphs->recording = false;
    for (uint32_t i = 0; i < graphs->n_pieces; i++) {
        exchange(&graphs->pieces[i], &graphs->now); /* the last piece waits there */
        start_piece(graphs, queue, calls);
        exchange(&graphs->pieces[i], &graphs->now);
    }
    if (graphs->now.n > 0)
        start_piece(graphs, queue, calls);
}

void fr_device_graphs_forget(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                             const struct fr_device_graph_calls *calls)
{
    for (int i = 0; i < FR_DEVICE_GRAPHS; i++) {
        if (graphs->kept[i].made)
            calls->drop(queue, graphs->kept[i].made);
        graphs->kept[i].made = NULL;
    }
}

void fr_device_graphs_release(struct fr_device_graphs *graphs, struct fr_device_queue *queue,
                              const struct fr_device_graph_calls *calls)
{
    fr_device_graphs_forget(graphs, queue, calls);
    for (int i = 0; i < FR_DEVICE_GRAPHS; i++)
        fr_device_recording_release(&graphs->kept[i].recording);
    for (int i = 0; i < FR_DEVICE_SHAPES; i++)
        fr_device_recording_release(&graphs->seen[i]);
    for (int i = 0; i < FR_DEVICE_PIECES; i++)
        fr_device_recording_release(&graphs->pieces[i]);
    fr_device_recording_release(&graphs->now);
}
