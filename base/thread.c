/* Names are given by the thread that starts another one, so that no thread main has to. */
#define _GNU_SOURCE
#include "base/thread.h"

#include <stdio.h>

enum { NAME_BYTES = 16 }; /* with the zero; the kernel refuses longer ones */

bool fr_thread_start(pthread_t *out, const char *name, void *(*run)(void *argument), void *argument)
{
    char text[NAME_BYTES];
    if (pthread_create(out, NULL, run, argument) != 0)
        return false;
    snprintf(text, sizeof(text), "%s", name);
    (void)pthread_setname_np(*out, text);
    return true;
}
