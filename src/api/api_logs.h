/* What workers printed, from the files of a state folder: {"instances": [{"instance", "lines"}]}, as logs --json. */
#ifndef TM_API_API_LOGS_H
#define TM_API_API_LOGS_H

#include "api/api_produce.h"

/* Of one instance, or of all (the first 256 by number): the last lines, of at most 256 KiB each, 4 MiB in all. */
void tm_api__write_logs(const struct tm_api_source *source, const struct tm_api_asked *asked,
                        struct tm_api_content *out);

#endif
