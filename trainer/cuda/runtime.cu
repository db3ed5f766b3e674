/* The queue of a card: stream, memory, events, cuBLAS. Its graphs are made in graphs.cu.
 *
 * The first error is kept; after it nothing is started. cuBLAS runs with TF32 off, on one stream
 * and with a workspace of its own, so that a product has the same bits each time it is run on a
 * card. cudart and cuBLAS look up the driver only when a queue is opened, so the plug-in also
 * loads on a machine without a driver. */
#include "runtime.h"

#include <stdio.h>

enum { CUBLAS_WORKSPACE_BYTES = 32 << 20, BLOCKS_A_PROCESSOR = 16 };

/* ---- errors ---- */

static enum fr_status set_error(struct fr_err *err, enum fr_status status, const char *text)
{
    if (err) {
        err->status = status;
        snprintf(err->text, sizeof(err->text), "%s", text);
    }
    return status;
}

bool fr_cuda_keep(struct fr_device_queue *queue, cudaError_t error, const char *what)
{
    if (error == cudaSuccess || queue->status != FR_OK)
        return queue->status == FR_OK;
    queue->status = error == cudaErrorMemoryAllocation ? FR_E_NO_MEMORY : FR_E_UNAVAILABLE;
    snprintf(queue->text, sizeof(queue->text), "card %d: %s: %s", queue->card, what, cudaGetErrorString(error));
    return false;
}

static bool keep_blas(struct fr_device_queue *queue, cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_SUCCESS || queue->status != FR_OK)
        return queue->status == FR_OK;
    queue->status = error == CUBLAS_STATUS_ALLOC_FAILED ? FR_E_NO_MEMORY : FR_E_UNAVAILABLE;
    snprintf(queue->text, sizeof(queue->text), "card %d: %s: %s", queue->card, what, cublasGetStatusString(error));
    return false;
}

void *fr_queue_workspace(const struct fr_device_queue *queue)
{
    return queue->workspace;
}

const uint32_t *fr_queue_flag(const struct fr_device_queue *queue)
{
    return queue->flag;
}

uint32_t fr_queue_blocks(const struct fr_device_queue *queue, size_t threads)
{
    size_t blocks = (threads + FR_BLOCK - 1) / FR_BLOCK, most = (size_t)queue->processors * BLOCKS_A_PROCESSOR;
    return blocks < 1 ? 1 : blocks < most ? (uint32_t)blocks : (uint32_t)most;
}

void fr_cuda_enter(struct fr_device_queue *queue)
{
    static thread_local int current = -1;
    if (current != queue->card && fr_cuda_keep(queue, cudaSetDevice(queue->card), "cudaSetDevice"))
        current = queue->card;
}

/* ---- graphs ---- */

static void begin_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_begin(&queue->graphs);
}

static void cut_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_cut(&queue->graphs);
}

static void end_graph(struct fr_device_queue *queue)
{
    fr_device_graphs_end(&queue->graphs, queue, &fr_cuda_graph_calls);
}

static void flush(struct fr_device_queue *queue)
{
    fr_device_graphs_flush(&queue->graphs, queue, &fr_cuda_graph_calls);
}

static void count_graphs(const struct fr_device_queue *queue, struct fr_device_graph_counts *counts)
{
    *counts = queue->graphs.counts;
}

/* ---- memory ---- */

static void *allocate(struct fr_device_queue *queue, size_t bytes)
{
    void *memory = NULL;
    fr_cuda_enter(queue);
    if (queue->status != FR_OK)
        return NULL;
    /* This is no error of the queue, because the caller may manage with less memory. */
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return memory;
}

/* Frees memory. Recorded calls are started first, because they may need it. */
static void release(struct fr_device_queue *queue, void *memory)
{
    if (!memory)
        return;
    fr_cuda_enter(queue);
    flush(queue);
    fr_cuda_keep(queue, cudaFree(memory), "cudaFree");
}

static void *allocate_pinned(struct fr_device_queue *queue, size_t bytes)
{
    void *memory = NULL;
    fr_cuda_enter(queue);
    if (queue->status != FR_OK)
        return NULL;
    if (cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocDefault) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return memory;
}

static void release_pinned(struct fr_device_queue *queue, void *memory)
{
    if (memory)
        fr_cuda_keep(queue, cudaFreeHost(memory), "cudaFreeHost");
}

static void move_on(struct fr_device_queue *queue, cudaStream_t stream, void *to, const void *from, size_t bytes,
                    enum cudaMemcpyKind kind)
{
    fr_cuda_enter(queue);
    if (queue->status == FR_OK && bytes > 0)
        fr_cuda_keep(queue, cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

static void upload_beside(struct fr_device_queue *queue, void *device, const void *host, size_t bytes)
{
    move_on(queue, queue->beside, device, host, bytes, cudaMemcpyHostToDevice);
}

static void join_beside(struct fr_device_queue *queue)
{
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaEventRecord(queue->joined, queue->beside), "cudaEventRecord");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaStreamWaitEvent(queue->stream, queue->joined, 0), "cudaStreamWaitEvent");
}

/* ---- products ---- */

struct round_call {
    size_t rows, columns, ld;
    const float *in;
    __nv_bfloat16 *out; /* [rows, columns] */
};

/* Rounds as the processor's bf16 units do: subnormals become 0. */
FR_KERNEL(round_kernel, struct round_call)
{
    FR_EACH (at, c.rows * c.columns) {
        float x = c.in[at / c.columns * c.ld + at % c.columns];
        c.out[at] = __float2bfloat16_rn((fr_f32_bits(x) & 0x7f800000u) == 0 ? 0.0f : x);
    }
}

/* Returns factor `which`, rounded and without gaps; NULL if there is no memory. The memory grows
 * and is kept. */
static const __nv_bfloat16 *rounded(struct fr_device_queue *queue, int which, const float *values, size_t rows,
                                    size_t columns, size_t ld)
{
    if (queue->rounded_floats[which] < rows * columns) {
        /* Graphs contain the address of the memory that is freed. */
        fr_device_graphs_forget(&queue->graphs, queue, &fr_cuda_graph_calls);
        release(queue, queue->rounded[which]);
        queue->rounded[which] = (__nv_bfloat16 *)allocate(queue, rows * columns * sizeof(__nv_bfloat16));
        queue->rounded_floats[which] = queue->rounded[which] ? rows * columns : 0;
        if (!queue->rounded[which] && queue->status == FR_OK)
            fr_cuda_keep(queue, cudaErrorMemoryAllocation, "factors in bf16");
    }
    struct round_call call = {rows, columns, ld, values, queue->rounded[which]};
    FR_LAUNCH(queue, round_kernel, fr_queue_blocks(queue, rows * columns), call);
    return queue->rounded[which];
}

/* cuBLAS is column-major, so it computes C' = B' A' of the same memory. */
static void multiply(struct fr_device_queue *queue, const struct fr_product *p)
{
    const float one = 1.0f, zero_scale = 0.0f, *beta = p->accumulate ? &one : &zero_scale;
    cublasOperation_t left = p->left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = p->right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    if (!p->bf16) {
        keep_blas(queue,
                  cublasSgemm_v2_64(queue->blas, right, left, (int64_t)p->n, (int64_t)p->m, (int64_t)p->k, &one,
                                    p->right, (int64_t)p->right_ld, p->left, (int64_t)p->left_ld, beta, p->out,
                                    (int64_t)p->out_ld),
                  "cublasSgemm");
        return;
    }
    size_t left_rows = p->left_transposed ? p->k : p->m, left_columns = p->left_transposed ? p->m : p->k;
    size_t right_rows = p->right_transposed ? p->n : p->k, right_columns = p->right_transposed ? p->k : p->n;
    const __nv_bfloat16 *a = rounded(queue, 0, p->left, left_rows, left_columns, p->left_ld);
    const __nv_bfloat16 *b = rounded(queue, 1, p->right, right_rows, right_columns, p->right_ld);
    if (queue->status == FR_OK)
        keep_blas(queue,
                  cublasGemmEx_64(queue->blas, right, left, (int64_t)p->n, (int64_t)p->m, (int64_t)p->k, &one, b,
                                  CUDA_R_16BF, (int64_t)right_columns, a, CUDA_R_16BF, (int64_t)left_columns, beta,
                                  p->out, CUDA_R_32F, (int64_t)p->out_ld, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                  "cublasGemmEx");
}

/* ---- what is started ---- */

void fr_cuda_start(struct fr_device_queue *queue, const struct fr_started *started, void *call)
{
    void *arguments[] = {call};
    fr_cuda_enter(queue);
    if (queue->status != FR_OK)
        return;
    switch (started->kind) {
    case FR_STARTED_KERNEL:
        fr_cuda_keep(queue, cudaLaunchKernel(started->kernel, started->blocks, FR_BLOCK, arguments, 0, queue->stream),
                     started->name);
        return;
    case FR_STARTED_COPY:
        move_on(queue, queue->stream, started->to, started->from, started->bytes,
                (enum cudaMemcpyKind)started->direction);
        return;
    case FR_STARTED_ZERO:
        fr_cuda_keep(queue, cudaMemsetAsync(started->to, 0, started->bytes, queue->stream), "cudaMemsetAsync");
        return;
    case FR_STARTED_PRODUCT:
        multiply(queue, &started->product);
        return;
    case FR_STARTED_JOIN:
        return; /* this kind is never recorded */
    }
}

/* Records the call or starts it at once. A recorded call is not started yet, because it may read
 * data that are sent at the end. */
static void start_or_record(struct fr_device_queue *queue, const struct fr_started *started, const void *call)
{
    if (queue->status != FR_OK)
        return;
    if (!queue->graphs.recording)
        fr_cuda_start(queue, started, const_cast<void *>(call));
    else if (!fr_device_record(&queue->graphs.now, started, call))
        fr_cuda_keep(queue, cudaErrorMemoryAllocation, "what a step starts");
}

void fr_queue_launch(struct fr_device_queue *queue, const char *name, const void *kernel, const void *call,
                     size_t bytes, uint32_t blocks)
{
    struct fr_started started = {};
    started.kind = FR_STARTED_KERNEL;
    started.blocks = blocks;
    started.name = name;
    started.kernel = kernel;
    started.call_bytes = bytes;
    start_or_record(queue, &started, call);
}

static void move(struct fr_device_queue *queue, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    struct fr_started started = {};
    started.kind = FR_STARTED_COPY;
    started.to = to;
    started.from = from;
    started.bytes = bytes;
    started.direction = (uint32_t)kind;
    if (bytes > 0)
        start_or_record(queue, &started, NULL);
}

static void upload(struct fr_device_queue *queue, void *device, const void *host, size_t bytes)
{
    move(queue, device, host, bytes, cudaMemcpyHostToDevice);
}

static void download(struct fr_device_queue *queue, void *host, const void *device, size_t bytes)
{
    move(queue, host, device, bytes, cudaMemcpyDeviceToHost);
}

void fr_queue_copy(struct fr_device_queue *queue, void *to, const void *from, size_t bytes)
{
    move(queue, to, from, bytes, cudaMemcpyDeviceToDevice);
}

void fr_queue_zero(struct fr_device_queue *queue, void *device, size_t bytes)
{
    struct fr_started started = {};
    started.kind = FR_STARTED_ZERO;
    started.to = device;
    started.bytes = bytes;
    if (bytes > 0)
        start_or_record(queue, &started, NULL);
}

void fr_queue_multiply(struct fr_device_queue *queue, const struct fr_product *product)
{
    struct fr_started started = {};
    started.kind = FR_STARTED_PRODUCT;
    started.product = *product;
    if (product->m > 0 && product->n > 0)
        start_or_record(queue, &started, NULL);
}

/* ---- life ---- */

static uint32_t count(struct fr_err *err)
{
    int n = 0;
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        (void)cudaGetLastError();
        char text[256];
        snprintf(text, sizeof(text), "no card: %s", error != cudaSuccess ? cudaGetErrorString(error) : "none is there");
        set_error(err, FR_E_UNAVAILABLE, text);
        return 0;
    }
    return (uint32_t)n;
}

static void close_queue(struct fr_device_queue *queue)
{
    if (!queue)
        return;
    (void)cudaStreamSynchronize(queue->beside);
    (void)cudaStreamSynchronize(queue->stream);
    fr_device_graphs_release(&queue->graphs, queue, &fr_cuda_graph_calls);
    if (queue->blas)
        (void)cublasDestroy(queue->blas);
    for (int i = 0; i < FR_DEVICE_MARKS; i++)
        if (queue->marks[i])
            (void)cudaEventDestroy(queue->marks[i]);
    (void)cudaFree(queue->workspace);
    (void)cudaFree(queue->blas_workspace);
    (void)cudaFree(queue->rounded[0]);
    (void)cudaFree(queue->rounded[1]);
    if (queue->joined)
        (void)cudaEventDestroy(queue->joined);
    if (queue->beside)
        (void)cudaStreamDestroy(queue->beside);
    if (queue->stream)
        (void)cudaStreamDestroy(queue->stream);
    free(queue);
}

/* Checks whether the plug-in has machine code for this card, or PTX that the driver can
 * translate; the presence of a driver does not show that. One kernel is queried, because all are
 * compiled for the same cards. */
static void ask_for_code(struct fr_device_queue *queue)
{
    cudaFuncAttributes attributes;
    cudaDeviceProp properties;
    cudaError_t error = cudaFuncGetAttributes(&attributes, (const void *)(round_kernel));
    if (error == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* from here on the queue keeps the error */
    memset(&properties, 0, sizeof(properties));
    (void)cudaGetDeviceProperties(&properties, queue->card);
    queue->status = FR_E_UNAVAILABLE;
    snprintf(queue->text, sizeof(queue->text),
             "card %d (%.60s) has compute capability %d.%d, for which the CUDA plug-in has no code (%s): build it "
             "with -DFRESHET_CUDA_ARCHITECTURES=%d%d",
             queue->card, properties.name, properties.major, properties.minor, cudaGetErrorString(error),
             properties.major, properties.minor);
}

static void start_queue(struct fr_device_queue *queue)
{
    fr_cuda_keep(queue, cudaSetDevice(queue->card), "cudaSetDevice");
    if (queue->status == FR_OK)
        ask_for_code(queue);
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaDeviceGetAttribute(&queue->processors, cudaDevAttrMultiProcessorCount, queue->card),
                     "cudaDeviceGetAttribute");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaStreamCreateWithFlags(&queue->beside, cudaStreamNonBlocking), "cudaStreamCreate");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaEventCreateWithFlags(&queue->joined, cudaEventDisableTiming), "cudaEventCreate");
    for (int i = 0; i < FR_DEVICE_MARKS && queue->status == FR_OK; i++)
        fr_cuda_keep(queue, cudaEventCreate(&queue->marks[i]), "cudaEventCreate");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaMalloc(&queue->workspace, FR_WORKSPACE_BYTES), "workspace");
    if (queue->status == FR_OK)
        fr_cuda_keep(queue, cudaMalloc(&queue->blas_workspace, CUBLAS_WORKSPACE_BYTES), "workspace of cuBLAS");
    if (queue->status == FR_OK)
        keep_blas(queue, cublasCreate(&queue->blas), "cublasCreate");
    if (queue->status == FR_OK)
        keep_blas(queue, cublasSetStream(queue->blas, queue->stream), "cublasSetStream");
    if (queue->status == FR_OK)
        keep_blas(queue, cublasSetWorkspace(queue->blas, queue->blas_workspace, CUBLAS_WORKSPACE_BYTES),
                  "cublasSetWorkspace");
    if (queue->status == FR_OK)
        keep_blas(queue, cublasSetMathMode(queue->blas, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
}

static enum fr_status open_queue(uint32_t card, struct fr_device_queue **out, struct fr_err *err)
{
    struct fr_device_queue *queue = (struct fr_device_queue *)calloc(1, sizeof(*queue));
    if (!queue)
        return set_error(err, FR_E_NO_MEMORY, "no memory for a queue");
    queue->card = (int)card;
    start_queue(queue);
    if (queue->status != FR_OK) {
        enum fr_status status = set_error(err, queue->status, queue->text);
        close_queue(queue);
        return status;
    }
    *out = queue;
    return FR_OK;
}

static void info(struct fr_device_queue *queue, struct fr_device_info *out)
{
    cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    size_t free_bytes = 0, total_bytes = 0;
    memset(out, 0, sizeof(*out));
    memset(&properties, 0, sizeof(properties));
    fr_cuda_keep(queue, cudaGetDeviceProperties(&properties, queue->card), "cudaGetDeviceProperties");
    fr_cuda_keep(queue, cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    fr_cuda_keep(queue, cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    fr_cuda_keep(queue, cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    snprintf(out->name, sizeof(out->name), "%.120s", properties.name);
    out->major = (uint32_t)properties.major;
    out->minor = (uint32_t)properties.minor;
    out->processors = (uint32_t)queue->processors;
    out->memory_bytes = total_bytes;
    out->free_bytes = free_bytes;
    out->driver = (uint32_t)driver;
    out->runtime = (uint32_t)runtime;
}

static enum fr_status finish(struct fr_device_queue *queue, struct fr_err *err)
{
    fr_cuda_enter(queue);
    flush(queue);
    fr_cuda_keep(queue, cudaStreamSynchronize(queue->beside), "waiting for the card");
    fr_cuda_keep(queue, cudaStreamSynchronize(queue->stream), "waiting for the card");
    return queue->status == FR_OK ? FR_OK : set_error(err, queue->status, queue->text);
}

static void mark(struct fr_device_queue *queue, uint32_t number)
{
    flush(queue);
    if (queue->status == FR_OK && number < FR_DEVICE_MARKS)
        fr_cuda_keep(queue, cudaEventRecord(queue->marks[number], queue->stream), "cudaEventRecord");
}

static double elapsed_ms(struct fr_device_queue *queue, uint32_t from, uint32_t to)
{
    float ms = 0.0f;
    if (queue->status == FR_OK && from < FR_DEVICE_MARKS && to < FR_DEVICE_MARKS)
        fr_cuda_keep(queue, cudaEventElapsedTime(&ms, queue->marks[from], queue->marks[to]), "cudaEventElapsedTime");
    return (double)ms;
}

static void obey(struct fr_device_queue *queue, const uint32_t *flag)
{
    queue->flag = flag;
}

static const struct fr_device_api api = {
    .version = FR_DEVICE_API,
    .count = count,
    .open = open_queue,
    .close = close_queue,
    .info = info,
    .alloc = allocate,
    .release = release,
    .alloc_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .upload = upload,
    .download = download,
    .copy = fr_queue_copy,
    .zero = fr_queue_zero,
    .upload_beside = upload_beside,
    .join_beside = join_beside,
    .begin_graph = begin_graph,
    .cut_graph = cut_graph,
    .end_graph = end_graph,
    .count_graphs = count_graphs,
    .finish = finish,
    .mark = mark,
    .elapsed_ms = elapsed_ms,
    .obey = obey,
    .ops = &fr_device_table,
};

extern "C" __attribute__((visibility("default"))) const void *fr_device_plugin(void)
{
    return &api;
}
