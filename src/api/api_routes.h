/* What the API has: one table, from which requests are understood, and from which its description (OpenAPI) is made.
 *
 * Two programs serve it. A coordinator serves its own run: GET /v1/status. A dashboard serves all runs that it knows:
 * GET /v1/jobs/NAME/status is answered as NAME's coordinator would answer GET /v1/status, or, where none runs, from
 * its record. */
#ifndef TM_API_API_ROUTES_H
#define TM_API_API_ROUTES_H

#include "base/http.h"
#include "base/jsonout.h"

enum tm_api_what {
    TM_API_STATUS,
    TM_API_EVENTS,
    TM_API_HISTORY,
    TM_API_LOGS,
    TM_API_PREDICTION,
    TM_API_STOP,
    TM_API_DEADLINE,
    TM_API_BUDGET,
    TM_API_DRAIN,
    TM_API_COPY,
    TM_API_RESUME,
    TM_API_METRICS,
    TM_API_JOBS,
    TM_API_PLAN,
    TM_API_SIMULATE,
    TM_API_REPORT,
    TM_API_SESSION,
    TM_API_LOG_IN,
    TM_API_LOG_OUT,
    TM_API_OPENAPI,
};

/* Who serves it; bits. */
enum { TM_API_OF_RUN = 1, TM_API_OF_JOB = 2, TM_API_OF_DASHBOARD = 4 };

/* What whoever asks must be allowed. */
enum tm_api_scope { TM_API_FOR_ALL, TM_API_WATCH, TM_API_STEER };

/* Of a parameter; bits: it must be given; "none" is said for 0; it is 1 at least. */
enum { TM_API_MUST = 1, TM_API_OR_NONE = 2, TM_API_FROM_ONE = 4 };

/* A whole number in the query. */
struct tm_api_param {
    const char *name; /* NULL ends the list */
    int64_t max;      /* from 0 */
    int64_t usual;
    const char *help;
    int rules;
};

struct tm_api_route {
    const char *method; /* NULL ends the table */
    const char *path;   /* of a run's own API */
    enum tm_api_what what;
    int of;
    enum tm_api_scope scope;
    const char *help;
    const struct tm_api_param *params; /* NULL: none */
    const char *body;                  /* the type of the request's; NULL: it has none */
    int status;                        /* where all is well */
    const char *type;                  /* of the answer */
    const char *shape;                 /* of its JSON, in api_schema.c, or of each of its lines; NULL: it is text */
    bool streams;                      /* also as text/event-stream */
};

extern const struct tm_api_route tm_api__routes[];

enum { TM_API_PARAMS_MAX = 6, TM_API_JOB_NAME_MAX = 256 };

/* A request that was understood. */
struct tm_api_asked {
    const struct tm_api_route *route;
    struct tm_slice job;               /* of a dashboard: as it stands in the path */
    int64_t params[TM_API_PARAMS_MAX]; /* in the order of the route's */
    const struct tm_api_param *wrong;  /* 400: this one ... */
    struct tm_slice unknown;           /* ... or one of this name, which the route does not have */
    char allow[48];                    /* methods that the path has: "GET, POST" */
};

/* Finds the route. 0; 404; 405, with *out->route one that has the path; 400: a parameter is wrong, is
 * missing, or is none of the route's. */
int tm_api__find(const struct tm_http_head *head, bool dashboard, struct tm_api_asked *out);
/* The parameter of that name. The route must have it. */
int64_t tm_api__param(const struct tm_api_asked *asked, const char *name);

/* The OpenAPI document (3.1). */
void tm_api_describe(bool dashboard, const char *version, struct tm_jsonout *json);

#endif
