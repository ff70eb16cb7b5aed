/* A world in memory for tests and simulations: same struct, no machine behind it.
 *
 * Time moves only by tm_env_virtual_advance, sleep_ms, and waits that run out. Randomness comes from the seed. Files
 * live in a list; the n-th write can be made to fail. Connections are byte queues; they can be slow to be made, or
 * never be answered; a link can be cut. Processes are entries whose output and exit the test decides, except that a
 * SIGKILL to their group or by their mark ends them. */
#ifndef TM_BASE_ENV_VIRTUAL_H
#define TM_BASE_ENV_VIRTUAL_H

#include "base/env.h"

/* The caller owns the result. NULL: out of memory. */
struct tm_env *tm_env_virtual_create(uint64_t seed);
void tm_env_virtual_destroy(struct tm_env *env); /* NULL is allowed */

void tm_env_virtual_advance(struct tm_env *env, int64_t ms);
int tm_env_virtual_set_variable(struct tm_env *env, const char *name, const char *value); /* NULL removes it */
void tm_env_virtual_fail_write_at(struct tm_env *env, long n); /* the n-th file_write from now fails: disk full */
/* From now on connections take this long to be made; 0: no time, as at the beginning. */
void tm_env_virtual_set_connect_ms(struct tm_env *env, int64_t ms);
/* Connections to the address get no answer until the limit. */
void tm_env_virtual_never_answer(struct tm_env *env, const char *address);
unsigned tm_env_virtual__file_mode(struct tm_env *env, const char *path); /* 0: no such file */
size_t tm_env_virtual_handles(struct tm_env *env);       /* that are open: listeners, ends of connections, processes */
void tm_env_virtual_cut(struct tm_env *env, int handle); /* both ends of a connection get -TM_EPEER from now on */
/* The process ends; its next process_wait gives `status`. */
void tm_env_virtual_exit(struct tm_env *env, int pid, int status);
/* The process writes; what it writes to must have been captured. */
int tm_env_virtual__process_write(struct tm_env *env, int pid, const char *data, size_t length);
/* The last signal sent to a process, 0 if none. */
int tm_env_virtual_last_signal(struct tm_env *env, int pid);
/* A variable that a process was started with; borrowed; NULL where there was none. */
const char *tm_env_virtual_process_variable(struct tm_env *env, int pid, const char *name);

#endif
