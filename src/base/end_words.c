#include "base/end_words.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SIGNAL_STATUS = 128, NOT_EXECUTABLE = 126, NOT_FOUND = 127 };

const char *tm_end_words(uint32_t status, char out[TM_END_WORDS_MAX])
{
    const char *signal_name =
        status > SIGNAL_STATUS && status < SIGNAL_STATUS + 64 ? sigabbrev_np((int)(status - SIGNAL_STATUS)) : NULL;
    const char *hint = status == NOT_FOUND        ? " (command not found)"
                       : status == NOT_EXECUTABLE ? " (the command cannot be executed)"
                                                  : "";
    if (signal_name != NULL)
        (void)snprintf(out, TM_END_WORDS_MAX, "was killed by SIG%s%s", signal_name,
                       status == SIGNAL_STATUS + SIGKILL ? " (out of memory?)" : "");
    else
        (void)snprintf(out, TM_END_WORDS_MAX, "ended with exit status %u%s", status, hint);
    return out;
}
