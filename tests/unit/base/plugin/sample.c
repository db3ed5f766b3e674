/* A plug-in for test_plugin.c. */
#include "base/plugin.h"

struct sample {
    uint32_t version, answer;
};

fr_plugin_function fr_sample_plugin;

const void *fr_sample_plugin(void)
{
    static const struct sample sample = {7, 42};
    return &sample;
}
