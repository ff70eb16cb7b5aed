/* What the clouds' coordinators have in common. */
#ifndef TM_CLOUD_AWAY_VM_INTERNAL_H
#define TM_CLOUD_AWAY_VM_INTERNAL_H

#include "cloud/away_vm.h"
#include "cloud/vm_user_data.h"

/* Which firewall is the run's: as long as its books are there, also that of the VM that takes them over. */
uint64_t tm_away__group(const char *place);

/* The options of a cloud of its VM alone. `pool` is theirs. -TM_EINPUT: the place's name is too long for a tag. */
int tm_away__options(const struct tm_away_vm *o, struct tm_cloud_pool *pool, struct tm_vm_options *out,
                     struct tm_error *e);
/* Makes the cloud that was made of these one of that VM: its first, which is still to be rented. */
int tm_away__enter(struct tm_vm_cloud *c, const struct tm_away_vm *o, struct tm_error *e);

/* What the VM does when it boots. */
struct tm_away__data {
    const struct tm_away_vm *of;
    const struct tm_vm__boot *boot;
    const char *program; /* URL */
    const char *wheel;   /* URL; NULL: it is not needed */
    const char *wheel_name;
    const char *wheel_sha256;
    const char *log_url;
    uint64_t group;
    int64_t life_s;
};
/* -TM_ELIMIT: it is longer than the cloud allows. */
int tm_away__print_data(struct tm_env *env, const struct tm_away__data *data, struct tm_text *out, struct tm_error *e);
/* Lines "export NAME='VALUE'" of those of these variables that are set here. `names` end with NULL. */
void tm_away__put_variables(struct tm_env *env, const char *const *names, struct tm_text *out);

#endif
