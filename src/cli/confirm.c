#include "cli/confirm.h"

#include <stdio.h>
#include <unistd.h>

int tm_confirm(const struct tm_cli *cli, const char *question, struct tm_error *e)
{
    char answer[16] = "";
    if (tm_given(cli, "yes")) return 0;
    if (!isatty(STDIN_FILENO)) return tm_error_set(e, TM_EUSAGE, "not a terminal: pass -y to confirm: %s", question);
    (void)fprintf(stderr, "%s [y/N] ", question);
    (void)fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) == NULL || (answer[0] != 'y' && answer[0] != 'Y'))
        return tm_error_set(e, TM_ECANCELED, "not confirmed: nothing was changed");
    return 0;
}
