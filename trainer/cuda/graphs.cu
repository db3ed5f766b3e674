/* Graphs of a card. Stream capture turns what a recording starts into a CUDA graph. Later steps
 * of the same shape change the arguments of the graph's kernels and launch the graph.
 *
 * When to make a graph, and which one fits, is decided in recording.cu. An error while a graph
 * is made does not count as an error of the queue, because the step is then started call by
 * call. */
#include "runtime.h"

struct graph {
    cudaGraph_t captured; /* owns `nodes`, which end with it */
    cudaGraphExec_t exec;
    cudaGraphNode_t *nodes; /* one for each call of the recording; set for kernels only */
};

static void start_all(struct fr_device_queue *queue, const struct fr_recording *recording)
{
    for (size_t i = 0; i < recording->n; i++)
        fr_cuda_start(queue, &recording->list[i], fr_device_recorded_call(recording, &recording->list[i]));
}

static void drop_graph(struct fr_device_queue *queue, void *made)
{
    struct graph *graph = (struct graph *)made;
    if (graph->exec) {
        (void)cudaStreamSynchronize(queue->stream); /* the graph may be running */
        (void)cudaGraphExecDestroy(graph->exec);
    }
    if (graph->captured)
        (void)cudaGraphDestroy(graph->captured);
    free(graph->nodes);
    free(graph);
}

/* Returns the node that was captured last. */
static cudaGraphNode_t newest_node(const struct fr_device_queue *queue)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t *nodes = NULL;
    size_t n = 0;
    if (cudaStreamGetCaptureInfo(queue->stream, &status, NULL, NULL, &nodes, NULL, &n) != cudaSuccess || n != 1)
        return NULL;
    return nodes[0];
}

/* An error in this function does not count as an error of the queue, because the step can be
 * started call by call. */
static void *make_graph(struct fr_device_queue *queue, const struct fr_recording *recording)
{
    struct graph *graph = (struct graph *)calloc(1, sizeof(*graph));
    if (!graph)
        return NULL;
    graph->nodes = (cudaGraphNode_t *)calloc(recording->n, sizeof(*graph->nodes));
    bool fit = graph->nodes && queue->status == FR_OK &&
               cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    bool capturing = fit;
    for (size_t i = 0; fit && i < recording->n; i++) {
        fr_cuda_start(queue, &recording->list[i], fr_device_recorded_call(recording, &recording->list[i]));
        graph->nodes[i] = newest_node(queue);
        fit = queue->status == FR_OK && (graph->nodes[i] || recording->list[i].kind != FR_STARTED_KERNEL);
    }
    if (capturing)
        fit = cudaStreamEndCapture(queue->stream, &graph->captured) == cudaSuccess && fit;
    fit = fit && cudaGraphInstantiate(&graph->exec, graph->captured, 0) == cudaSuccess;
    if (fit)
        return graph;
    (void)cudaGetLastError();
    if (capturing)
        queue->status = FR_OK; /* the status before the capture */
    drop_graph(queue, graph);
    return NULL;
}

static void change_graph(struct fr_device_queue *queue, struct fr_device_graph *changed, size_t i)
{
    const struct graph *graph = (const struct graph *)changed->made;
    const struct fr_started *started = &changed->recording.list[i];
    void *arguments[] = {fr_device_recorded_call(&changed->recording, started)};
    struct cudaKernelNodeParams params = {};
    params.func = const_cast<void *>(started->kernel);
    params.gridDim = dim3(started->blocks);
    params.blockDim = dim3(FR_BLOCK);
    params.kernelParams = arguments;
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaGraphExecKernelNodeSetParams(graph->exec, graph->nodes[i], &params), started->name);
}

static void launch_graph(struct fr_device_queue *queue, const struct fr_device_graph *launched)
{
    fr_cuda_enter(queue);
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaGraphLaunch(((const struct graph *)launched->made)->exec, queue->stream),
                     "cudaGraphLaunch");
}

const struct fr_device_graph_calls fr_cuda_graph_calls = {
    .start = start_all, .make = make_graph, .change = change_graph, .launch = launch_graph, .drop = drop_graph};
