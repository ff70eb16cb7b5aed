/* The dashboard: one page and one API for all runs that are known here (doc/dashboard.md), served on loopback, or
 * elsewhere over TLS.
 *
 * It is a watcher like others: a run that goes on is asked through its coordinator's API, however many look at it once
 * for all of them; one that does not, is read from its record. So a dashboard may come and go, and a run never notices.
 *
 *     rc = tm_dashboard_create(env, &options, &dashboard, e);
 *     while (!stop) tm_dashboard_step(dashboard, 1000);
 *     tm_dashboard_destroy(dashboard); */
#ifndef TM_API_DASHBOARD_H
#define TM_API_DASHBOARD_H

#include "base/arena.h"
#include "base/env.h"

/* The dashboard of another machine. */
struct tm_dashboard_attach {
    const char *address; /* HOST:PORT */
    bool tls;
    bool pinned;             /* it is known by its certificate's fingerprint; else by its name */
    uint8_t fingerprint[32]; /* SHA-256 */
    const char *token;
};

/* All is borrowed as long as it is there. */
struct tm_dashboard_options {
    const char *listen; /* HOST:PORT; port 0: any; not of loopback: with TLS */
    const char
        *tls_certificate; /* with the key: TLS with these, wherever it listens; NULL: made where they are needed */
    const char *tls_key;
    const char *const *names; /* of this machine, by which others may ask; the first stands in links */
    size_t name_count;
    const struct tm_dashboard_attach *attached; /* whose runs are shown, too */
    size_t attached_count;
    const char *root;        /* the folder of all runs; tokens are kept there, for its owner alone */
    const char *const *dirs; /* state folders elsewhere */
    size_t dir_count;
    const char *program; /* path of tidemill itself: it answers plans and simulations, and resumes runs */
    const char *version;
};

struct tm_dashboard;

/* The caller owns the result. */
int tm_dashboard_create(struct tm_env *env, const struct tm_dashboard_options *options, struct tm_dashboard **out,
                        struct tm_error *e);
void tm_dashboard_destroy(struct tm_dashboard *dashboard); /* NULL is allowed */

/* Serves; waits at most so long for something to happen (0: not at all). */
void tm_dashboard_step(struct tm_dashboard *dashboard, int64_t timeout_ms);

/* Appends the address of the page with a token in its fragment, which browsers keep to themselves. `steer`: its owner
 * may stop and resume runs, and ask for plans; else only watch. */
void tm_dashboard_link(const struct tm_dashboard *dashboard, bool steer, struct tm_text *out);
/* Of its certificate, as browsers show it; "": it has none. */
void tm_dashboard_fingerprint(const struct tm_dashboard *dashboard, struct tm_text *out);

#endif
