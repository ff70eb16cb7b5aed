#include "base/doc.h"
#include "base/env.h"
#include "cli/command.h"

#include <signal.h>
#include <sys/resource.h>

/* As many connections as the system allows: a coordinator has two for each instance. */
static void allow_handles(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv)
{
    allow_handles();
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error of write, not our death */
    tm_json_use_our_alloc();
    return tm_cli_main(tm_env_real(), argc > 0 ? argc - 1 : 0, argv + 1);
}
