/* Status names and error texts. Texts are cut at the end of the array, without a further error.
 *
 * Thread: any; each struct fr_err belongs to its caller. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

const char *fr_status_name(enum fr_status status)
{
    switch (status) {
    case FR_OK:
        return "ok";
    case FR_EOF:
        return "end";
    case FR_AGAIN:
        return "again";
    case FR_E_INVALID:
        return "invalid";
    case FR_E_LIMIT:
        return "limit";
    case FR_E_NO_MEMORY:
        return "no_memory";
    case FR_E_IO:
        return "io";
    case FR_E_NO_SPACE:
        return "no_space";
    case FR_E_CORRUPT:
        return "corrupt";
    case FR_E_NOT_FOUND:
        return "not_found";
    case FR_E_EXISTS:
        return "exists";
    case FR_E_BUSY:
        return "busy";
    case FR_E_UNAVAILABLE:
        return "unavailable";
    case FR_E_DENIED:
        return "denied";
    case FR_E_MISMATCH:
        return "mismatch";
    case FR_E_NONFINITE:
        return "nonfinite";
    case FR_E_LOST:
        return "lost";
    case FR_E_STATE:
        return "state";
    case FR_E_UNSUPPORTED:
        return "unsupported";
    case FR_E_CANCELLED:
        return "cancelled";
    case FR_E_NO_DESCRIPTORS:
        return "no_descriptors";
    }
    return "unknown";
}

enum fr_status fr_err_set(struct fr_err *err, enum fr_status status, const char *format, ...)
{
    if (!err)
        return status;
    /* A caller may pass err->text as an argument, so the text is built elsewhere and then
     * copied. */
    char text[sizeof(err->text)];
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (written < 0)
        text[0] = '\0';
    err->status = status;
    memcpy(err->text, text, strlen(text) + 1);
    return status;
}

enum fr_status fr_err_wrap(struct fr_err *err, const char *format, ...)
{
    if (!err)
        return FR_E_STATE;
    char text[sizeof(err->text)];
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    size_t size = written < 0 ? 0 : strlen(text);
    const char *const pieces[] = {": ", err->text};
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(pieces[i]);
        if (length > sizeof(text) - 1 - size)
            length = sizeof(text) - 1 - size;
        memcpy(text + size, pieces[i], length);
        size += length;
    }
    text[size] = '\0';
    memcpy(err->text, text, size + 1);
    return err->status;
}
