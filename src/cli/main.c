#include "base/doc.h"
#include "base/env.h"
#include "cli/command.h"

#include <signal.h>

int main(int argc, char **argv)
{
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error of write, not our death */
    tm_json_use_our_alloc();
    return tm_cli_main(tm_env_real(), argc > 0 ? argc - 1 : 0, argv + 1);
}
