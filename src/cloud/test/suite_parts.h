/* What programs share that try the common suite (cloud_suite.h) on a stand-in, or on a real scheduler. */
#ifndef TM_CLOUD_TEST_SUITE_PARTS_H
#define TM_CLOUD_TEST_SUITE_PARTS_H

#include "cloud/remote_cloud.h"
#include "cloud/test/cloud_suite.h"

#include <stdarg.h>
#include <stdio.h>

/* The number that a shell command prints first; -1: none. */
__attribute__((format(printf, 1, 2))) static int suite_ask(const char *format, ...)
{
    char command[1500];
    int number = -1;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): a test's own words */
    assert_non_null(pipe);
    if (fscanf(pipe, "%d", &number) != 1) number = -1; /* NOLINT(cert-err34-c) */
    (void)pclose(pipe);
    return number;
}

/* Agents that stand for real ones join nowhere. */
__attribute__((unused)) static int suite_ticket(void *context, uint64_t id, enum tm_instance_kind market,
                                                char out[TM_REMOTE_WORDS_MAX], struct tm_error *e)
{
    (void)context;
    (void)market;
    (void)e;
    (void)snprintf(out, TM_REMOTE_WORDS_MAX, "ticket-%" PRIu64, id);
    return 0;
}

#endif
