/* A card for which the plug-in has no code is refused when it is opened, before anything is started
 * on it: runtime.cu itself, compiled with stand-ins for CUDA's headers. */
#include "../../../../trainer/cuda/runtime.cu"

#include "../../../../trainer/cuda/graphs.cu"

cudaError_t standin_code;
unsigned standin_calls;
const struct fr_device_ops fr_device_table = {};

/* recording.cu is not linked: nothing is recorded here. */
extern "C" {
void fr_device_graphs_release(struct fr_device_graphs *, struct fr_device_queue *, const struct fr_device_graph_calls *)
{
}
void fr_device_graphs_forget(struct fr_device_graphs *, struct fr_device_queue *, const struct fr_device_graph_calls *)
{
}
void fr_device_graphs_flush(struct fr_device_graphs *, struct fr_device_queue *, const struct fr_device_graph_calls *)
{
}
void fr_device_graphs_begin(struct fr_device_graphs *)
{
}
void fr_device_graphs_cut(struct fr_device_graphs *)
{
}
void fr_device_graphs_end(struct fr_device_graphs *, struct fr_device_queue *, const struct fr_device_graph_calls *)
{
}
bool fr_device_record(struct fr_recording *, const struct fr_started *, const void *)
{
    return true;
}
}

int main(void)
{
    const auto *plugin = static_cast<const struct fr_device_api *>(fr_device_plugin());
    struct fr_device_queue *queue = NULL;
    struct fr_err err = {};
    standin_code = cudaErrorNoKernelImageForDevice;
    if (plugin->open(0, &queue, &err) != FR_E_UNAVAILABLE || queue || standin_calls != 0) {
        fprintf(stderr, "a card without code is opened: %u calls\n", standin_calls);
        return 1;
    }
    static const char expected[] =
        "card 0 (Tesla V100) has compute capability 7.0, for which the CUDA plug-in has no code (no kernel image is available "
        "for execution on the device): build it with -DFRESHET_CUDA_ARCHITECTURES=70";
    if (strcmp(err.text, expected) != 0) {
        fprintf(stderr, "it says: %s\n", err.text);
        return 1;
    }
    standin_code = cudaSuccess;
    if (plugin->open(0, &queue, &err) != FR_OK || !queue) {
        fprintf(stderr, "a card with code is refused: %s\n", err.text);
        return 1;
    }
    plugin->close(queue);
    printf("2 passed, 0 failed\n");
    return 0;
}
