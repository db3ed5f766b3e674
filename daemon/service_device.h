/* The device that the network is computed on; chosen at the start, then constant. */
#ifndef FR_DAEMON_SERVICE_DEVICE_H
#define FR_DAEMON_SERVICE_DEVICE_H

#include "conf/conf.h"
#include "graph/graph.h"

struct fr_service_device {
    struct fr_graph_device graph; /* queue NULL: the processor */
    char name[32];                /* "cpu", "cuda:0"; "" until it is chosen */
    char card[128];               /* what the driver calls the card */
    char reason[1024];            /* why `device: auto` computes on the processor */
};

/* FR_E_UNSUPPORTED: the card that the configuration demands is not there. */
enum fr_status fr_service_open_device(struct fr_service_device *device, const struct fr_conf *conf,
                                      struct fr_err *err) FR_MUST_CHECK;
void fr_service_close_device(struct fr_service_device *device);

#endif
