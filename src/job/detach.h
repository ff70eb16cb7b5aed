/* A run that another machine has: it is brought to its bucket, a VM is rented for its coordinator, and the state folder
 * here says where it is (run_home.h). The other way, on that VM: what the bucket has becomes a state folder. */
#ifndef TM_JOB_DETACH_H
#define TM_JOB_DETACH_H

#include "base/arena.h"
#include "cloud/away_vm.h"
#include "cloud/checks.h"
#include "run/run_settings.h"

/* All is borrowed. */
struct tm_detach_request {
    const char *dir; /* the state folder here */
    const struct tm_run_settings *settings;
    const char *program;
    struct tm_arena *arena;
    const char *options;          /* words for `tidemill run` there, as a shell reads them; "": none */
    const struct tm_maps *notify; /* of this machine's config.yaml: its webhooks go along */
    bool resumed;                 /* go on with what is in the bucket */
    bool again;                   /* what an earlier run left in the bucket goes */
};

/* Before anything is rented: -TM_EINPUT, -TM_EUSAGE: what cannot be run away from here. */
int tm_detach_check(const struct tm_run_settings *settings, const char *place, struct tm_error *e);
/* A line of `cloud check` on what --detach needs: nothing of it can be tried. Nothing where no account is named. */
void tm_detach_name_rights(const struct tm_job *job, struct tm_cloud_checks *out);
/* What the VM of its coordinator costs an hour; 0: not known. */
double tm_detach_usd_h(const struct tm_run_settings *settings);
/* Brings the job and its data to the bucket, unless it is resumed, and rents the VM, unless one has the run. It is
 * found again whatever happens on the way: done again, it rents no second one. */
int tm_detach(struct tm_env *env, const struct tm_detach_request *request, char out_id[TM_VM_ID_MAX],
              struct tm_error *e);
/* Where the books of the job of this name are, by the VM of this cloud ("aws") that has them. -TM_ENOTFOUND: none has.
 */
int tm_detach_find(struct tm_env *env, const char *cloud, const char *job, char *out, size_t room, struct tm_error *e);
/* Does the VM of the run in the state folder live? Also true where nobody could know: its place is no cloud's. */
bool tm_detach_is_rented(struct tm_env *env, const char *dir);

/* Does it name the place of a run's books, and not a file? */
bool tm_detach_is_place(const char *text);
/* What the bucket has of the run, and its data, into a state folder; where a run's work is there already, only the
 * data. `out_job`: the job file, of a run that has not begun; NULL: it has, and can be resumed. */
int tm_detach_arrive(struct tm_env *env, const char *place, const char *dir, struct tm_arena *arena,
                     const char **out_job, struct tm_error *e);
/* Where the data of such a run lies: its job's folder. */
const char *tm_detach_folder(const char *dir, struct tm_arena *arena);

#endif
