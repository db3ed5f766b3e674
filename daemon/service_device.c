/* Chooses the device that computes the network, by `device` of the configuration.
 *
 * `auto` takes the first card if plug-in, driver and card are there; otherwise the processor
 * computes and the log has one line. `cuda` fails without a card.
 *
 * Owner: the service, before the trainer is made. */
#include "service_device.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "cuda/api.h"

/* The share for rows of the memory that is free at the start. */
enum { ROWS_SHARE_NUMERATOR = 4, ROWS_SHARE_DENOMINATOR = 5 };

static enum fr_status open_card(struct fr_service_device *device, const struct fr_conf *conf, struct fr_err *err)
{
    const struct fr_device_api *api = NULL;
    struct fr_device_queue *queue = NULL;
    struct fr_device_info info;
    if (conf->domains > 1)
        return fr_err_set(err, FR_E_UNSUPPORTED, "scale.domains is %" PRIu32 "; only 1 trains on a card",
                          conf->domains);
    enum fr_status status = fr_cuda_load(NULL, &api, err);
    if (status != FR_OK)
        return status;
    uint32_t cards = api->count(err);
    if (cards == 0) {
        fr_cuda_unload();
        return err->status;
    }
    if (conf->device_card >= cards)
        return fr_err_set(err, FR_E_NOT_FOUND, "there is no card %" PRIu32 ": %" PRIu32 " of them are numbered from 0",
                          conf->device_card, cards);
    status = api->open(conf->device_card, &queue, err);
    if (status != FR_OK)
        return status;
    api->info(queue, &info);
    uint64_t most = conf->gpu_memory_limit;
    if (most == 0)
        most = info.free_bytes / ROWS_SHARE_DENOMINATOR * ROWS_SHARE_NUMERATOR;
    device->graph = (struct fr_graph_device){.api = api, .queue = queue, .row_bytes_max = most};
    snprintf(device->name, sizeof(device->name), "cuda:%" PRIu32, conf->device_card);
    snprintf(device->card, sizeof(device->card), "%s", info.name);
    fr_log(FR_LOG_INFO, "daemon", "device", "device=%s card=\"%s\" memory=%" PRIu64 " rows_max=%" PRIu64, device->name,
           info.name, info.memory_bytes, most);
    return FR_OK;
}

enum fr_status fr_service_open_device(struct fr_service_device *device, const struct fr_conf *conf, struct fr_err *err)
{
    struct fr_err why = {0};
    char quoted[600];
    snprintf(device->name, sizeof(device->name), "cpu");
    if (conf->device == FR_DEVICE_CPU || open_card(device, conf, &why) == FR_OK)
        return FR_OK;
    if (conf->device == FR_DEVICE_CUDA)
        return fr_err_set(err, FR_E_UNSUPPORTED,
                          "device: %s; install plug-in and driver, choose another card, or set `device: cpu`",
                          why.text);
    struct fr_err machine = {0};
    if (fr_graph_check_machine(conf, &machine) != FR_OK) {
        *err = machine;
        return machine.status;
    }
    snprintf(device->reason, sizeof(device->reason), "%s", why.text);
    fr_log(FR_LOG_INFO, "daemon", "device", "device=cpu why=%s", fr_log_quote(quoted, sizeof(quoted), why.text));
    return FR_OK;
}

void fr_service_close_device(struct fr_service_device *device)
{
    if (device->graph.queue)
        device->graph.api->close(device->graph.queue);
    device->graph = (struct fr_graph_device){0};
}
