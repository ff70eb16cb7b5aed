#include "market/shipped.h"

#include "base/embed.h"

#include <strings.h>

TM_EMBED(tm_embedded_catalog, "catalog.tmcat");
TM_EMBED(tm_embedded_risk, "risk.tmrisk");
TM_EMBED(tm_embedded_hadp, "traces/hadp.tmtrace");
TM_EMBED(tm_embedded_hasp, "traces/hasp.tmtrace");
TM_EMBED(tm_embedded_ladp, "traces/ladp.tmtrace");
TM_EMBED(tm_embedded_lasp, "traces/lasp.tmtrace");

static const struct {
    const char *name;
    const char *summary;
    const char *begin;
    const char *end;
} files[] = {
    {"catalog", "the shipped catalogue", tm_embedded_catalog_begin, tm_embedded_catalog_end},
    {"hadp", "high availability, dense preemption", tm_embedded_hadp_begin, tm_embedded_hadp_end},
    {"hasp", "high availability, sparse preemption", tm_embedded_hasp_begin, tm_embedded_hasp_end},
    {"ladp", "low availability, dense preemption", tm_embedded_ladp_begin, tm_embedded_ladp_end},
    {"lasp", "low availability, sparse preemption", tm_embedded_lasp_begin, tm_embedded_lasp_end},
};

enum { FILE_COUNT = sizeof files / sizeof *files };

static struct tm_shipped shipped_at(size_t i)
{
    return (struct tm_shipped){files[i].name, files[i].summary, files[i].begin,
                               (size_t)(files[i].end - files[i].begin)};
}

struct tm_shipped tm_shipped__catalog(void)
{
    return shipped_at(0);
}

struct tm_shipped tm_shipped__risk(void)
{
    return (struct tm_shipped){"risk.tmrisk", "recorded pools of spot instances", tm_embedded_risk_begin,
                               (size_t)(tm_embedded_risk_end - tm_embedded_risk_begin)};
}

size_t tm_shipped__trace_count(void)
{
    return FILE_COUNT - 1;
}

struct tm_shipped tm_shipped__trace(size_t i)
{
    return shipped_at(i + 1);
}

bool tm_shipped__trace_find(const char *name, struct tm_shipped *out)
{
    for (size_t i = 1; i < FILE_COUNT; i++) {
        if (strcasecmp(files[i].name, name) != 0) continue;
        *out = shipped_at(i);
        return true;
    }
    return false;
}
