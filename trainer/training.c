/* See trainer/training.h. */
#include "trainer/training.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { VERSION = 1 };

static char *copy_text(const void *bytes, size_t size)
{
    char *text = fr_alloc(1, size + 1);
    memcpy(text, bytes, size);
    return text;
}

static void append(struct fr_training *training, uint64_t epoch, int64_t time_ms, char *text)
{
    if (training->n == FR_TRAINING_CHANGES_MAX) {
        free(training->changes[0].text);
        memmove(training->changes, training->changes + 1, --training->n * sizeof(*training->changes));
        training->forgotten++;
    }
    training->changes[training->n++] = (struct fr_training_change){epoch, time_ms, text};
}

void fr_trainer_training_add(struct fr_training *training, uint64_t epoch, int64_t time_ms, const char *text)
{
    append(training, epoch, time_ms, copy_text(text, strlen(text)));
}

static void put_text(const void *text, size_t size, struct fr_buffer *out)
{
    fr_put_u32(out, (uint32_t)size);
    fr_buffer_append(out, text, size);
}

void fr_trainer_training_encode(const struct fr_training *training, struct fr_buffer *out)
{
    fr_put_u32(out, VERSION);
    put_text(training->settings.data, training->settings.size, out);
    fr_put_u64(out, training->forgotten);
    fr_put_u32(out, training->n);
    for (uint32_t i = 0; i < training->n; i++) {
        const struct fr_training_change *change = &training->changes[i];
        fr_put_u64(out, change->epoch);
        fr_put_u64(out, (uint64_t)change->time_ms);
        put_text(change->text, strlen(change->text), out);
    }
}

enum fr_status fr_trainer_training_parse(const uint8_t *bytes, size_t size, struct fr_training *out)
{
    struct fr_reader reader = {.at = bytes, .end = bytes + size};
    uint32_t version = fr_take_u32(&reader), length = fr_take_u32(&reader);
    const uint8_t *settings = fr_take(&reader, length);
    if (!reader.failed && version != VERSION)
        return FR_E_MISMATCH;
    out->forgotten = fr_take_u64(&reader);
    uint32_t n = fr_take_u32(&reader);
    if (reader.failed || n > FR_TRAINING_CHANGES_MAX)
        return FR_E_CORRUPT;
    fr_buffer_append(&out->settings, settings, length);
    fr_buffer_terminate(&out->settings);
    while (out->n < n) {
        uint64_t epoch = fr_take_u64(&reader);
        int64_t time_ms = (int64_t)fr_take_u64(&reader);
        uint32_t text_size = fr_take_u32(&reader);
        const uint8_t *text = fr_take(&reader, text_size);
        if (reader.failed)
            return FR_E_CORRUPT;
        append(out, epoch, time_ms, copy_text(text, text_size));
    }
    return reader.at == reader.end ? FR_OK : FR_E_CORRUPT;
}

void fr_trainer_training_release(struct fr_training *training)
{
    for (uint32_t i = 0; i < training->n; i++)
        free(training->changes[i].text);
    fr_buffer_release(&training->settings);
    *training = (struct fr_training){0};
}
