/* A state that leaves its history: it is made from a savepoint (--restore), of the same model or of
 * another one (--as), or continued in a new timeline (--new-timeline). The publisher announces the
 * new timeline to replicas (exporter/publisher_inspection.c).
 *
 * Thread: the one that recovers. Files are not copied here, and the final number of the timeline
 * is chosen by the publisher. */
#include <inttypes.h>

#include "base/log.h"
#include "durable/savepoint.h"
#include "service.h"

static enum fr_status restore(struct fr_service *service, struct fr_savepoint *from, struct fr_err *err)
{
    /* head: the settings with which the rows of the savepoint are published */
    struct fr_buffer recorded = {0}, head = {0}, delta = {0};
    struct fr_durable *savepoint = NULL;
    bool other = false;
    const char *dir = service->options.restore;
    enum fr_status status =
        fr_durable_open(&(struct fr_durable_options){.dir = dir, .read_only = true}, &savepoint, err);
    if (status == FR_OK)
        status = fr_durable_newest_head(savepoint, &recorded, err);
    if (status == FR_OK)
        status = fr_identity_as(service->conf, &recorded, &head, &delta, &other, err);
    if (status == FR_OK)
        status = fr_identity_fits(service->conf, &(struct fr_identity_source){savepoint, dir, other}, err);
    fr_durable_close(savepoint);
    const struct fr_savepoint_own own = {head.data, head.size, FR_IDENTITY_DELTA, delta.data, delta.size};
    if (status == FR_OK)
        status = fr_savepoint_restore(dir, service->conf->state_dir, NULL, other ? &own : NULL, from, err);
    fr_buffer_release(&recorded);
    fr_buffer_release(&head);
    fr_buffer_release(&delta);
    return status;
}

enum fr_status fr_service_restore(struct fr_service *service, struct fr_err *err)
{
    struct fr_savepoint from = {0};
    char quoted[1200];
    if (!service->options.restore)
        return FR_OK;
    uint64_t begin_ns = fr_mono_ns(service->clock);
    enum fr_status status = restore(service, &from, err);
    if (status == FR_E_EXISTS || status == FR_E_STATE || status == FR_E_NOT_FOUND)
        return err->status = FR_E_MISMATCH; /* an operator must name another directory */
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "daemon", "restored",
               "savepoint=%s epoch=%" PRIu64 " timeline=%" PRIu64 " bytes=%" PRIu64 " seconds=%.3f",
               fr_log_quote(quoted, sizeof(quoted), service->options.restore), from.epoch, from.timeline, from.bytes,
               (double)(fr_mono_ns(service->clock) - begin_ns) / 1e9);
    return status;
}

/* The old number is part of the option, so that repeated starts of one command begin one
 * timeline. */
enum fr_status fr_service_new_timeline(struct fr_service *service, struct fr_err *err)
{
    struct fr_durable_status durable;
    if (service->options.left_timeline == 0)
        return FR_OK;
    fr_durable_get_status(service->durable, &durable);
    /* A state without epochs will begin timeline 1. */
    uint64_t present = durable.timeline > 0 ? durable.timeline : 1;
    if (service->options.left_timeline > present)
        return fr_err_set(err, FR_E_MISMATCH,
                          "--new-timeline %" PRIu64 ": this state is of timeline %" PRIu64
                          "; name the timeline to leave, which `freshet state` and the refusal before show",
                          service->options.left_timeline, present);
    if (service->options.left_timeline < present) {
        fr_log(FR_LOG_INFO, "daemon", "timeline_left_before",
               "left=%" PRIu64 " timeline=%" PRIu64 " note=\"--new-timeline has no effect any more\"",
               service->options.left_timeline, present);
        return FR_OK;
    }
    enum fr_status status = fr_durable_begin_timeline(service->durable, present + 1, err);
    if (status == FR_OK)
        fr_log(FR_LOG_INFO, "daemon", "new_timeline", "timeline=%" PRIu64 " epoch=%" PRIu64, present + 1,
               durable.epoch);
    return status;
}
