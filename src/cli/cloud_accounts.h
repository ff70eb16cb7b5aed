/* Accounts of clouds that VMs are rented from: a row for each, for the commands that look at what was rented and at
 * what works. */
#ifndef TM_CLI_CLOUD_ACCOUNTS_H
#define TM_CLI_CLOUD_ACCOUNTS_H

#include "cloud/checks.h"
#include "cloud/rented.h"

enum { TM_CLOUD_KINDS_MAX = 4 };

/* A file of settings: where a variable says, else below the home folder. */
struct tm_cloud_kind_file {
    const char *variable;
    const char *inside; /* the variable names the folder of this file; NULL: it names the file */
    const char *below_home;
};

struct tm_cloud_kind {
    const char *name;   /* "aws" */
    const char *people; /* "AWS" */
    int (*find)(struct tm_env *env, const struct tm_catalog *catalog, struct tm_rented_list *out, struct tm_error *e);
    int (*end)(struct tm_env *env, struct tm_rented_list *list, struct tm_error *e);
    /* Removes what jobs (or the one of this name) have beside instances. NULL: they have nothing. */
    int (*clear)(struct tm_env *env, const char *job, bool wait, struct tm_rented_beside *out, struct tm_error *e);
    int (*check)(struct tm_env *env, const struct tm_check_request *request, struct tm_cloud_checks *out,
                 struct tm_error *e);
    const char *(*policy)(void);
    /* Its own tools' settings that say that the user has an account, all that the cloud's credentials are looked for
     * by: one that is left out here is an account that nobody asks what still costs there. */
    const char *variables[16];
    struct tm_cloud_kind_file files[3];
};

extern const char *const tm_cloud_kind_names[]; /* for options and completions; ends with NULL */

/* By place in the table; NULL: there are no more. */
const struct tm_cloud_kind *tm_cloud_kind_at(size_t index);
/* -TM_EUSAGE: there is none of this name. */
int tm_cloud_kind_find(const char *name, const struct tm_cloud_kind **out, struct tm_error *e);
/* Is it set up on this machine? */
bool tm_cloud_kind_is_set(struct tm_env *env, const struct tm_cloud_kind *kind);

#endif
