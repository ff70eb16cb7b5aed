/* What workers printed, from the files of a state folder: {"instances": [{"instance", "lines"}]}, as logs --json. */
#ifndef TM_API_API_LOGS_H
#define TM_API_API_LOGS_H

#include "api/api_produce.h"

/* Of one instance, or of all (the first 256 by number): the last lines, of at most 256 KiB each, 4 MiB in all. 404:
 * there is no such instance, and nothing that it has written. */
void tm_api__write_logs(const struct tm_api_source *source, const struct tm_api_asked *asked,
                        struct tm_api_content *out);
/* Is it all in the folder, so that nobody else need say whether there is such an instance? */
bool tm_api__are_logs_here(const struct tm_api_source *source, const struct tm_api_asked *asked);

#endif
