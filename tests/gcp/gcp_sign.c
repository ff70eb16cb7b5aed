/* Prints the URL by which anybody may get or put an object, for a test that signs it beside us
 * (tests/gcp/sign_oracle.py). Use: gcp-sign METHOD BUCKET NAME SECONDS */
#include "web/gcp.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words)
{
    struct tm_gcp *gcp = NULL;
    struct tm_text url;
    struct tm_error e = {.text = ""};
    if (count != 5) return 2;
    tm_text_init(&url, 16384);
    const struct tm_gcp_object object = {words[1], words[2], words[3]};
    int rc = tm_gcp_create(tm_env_real(), &gcp, &e);
    if (rc == 0) rc = tm_gcp_ask_url(gcp, &object, NULL, strtoll(words[4], NULL, 10), &url, &e);
    (void)printf("%s\n", rc == 0 ? tm_text_string(&url) : e.text);
    tm_gcp_destroy(rc == 0 ? gcp : NULL);
    tm_text_deinit(&url);
    return rc == 0 ? 0 : 1;
}
