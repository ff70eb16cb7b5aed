/* The parts of the dashboard: the runs that it knows, what it has asked their coordinators, the programs that it has
 * started, and who may ask. */
#ifndef TM_API_DASHBOARD_INTERNAL_H
#define TM_API_DASHBOARD_INTERNAL_H

#include "api/api_answer.h"
#include "api/dashboard.h"
#include "base/http_call.h"
#include "run/run_home.h"
#include "run/state_folder.h"
#include "wire/hash.h"
#include "wire/tls_net.h"
#include "wire/tls_page.h"

enum { TM_DASHBOARD_JOBS_MAX = 1000, TM_DASHBOARD_TOKEN_MAX = 65 };

/* ---- who knocks ---- */

enum { TM_DASHBOARD_KNOCKS = 512, TM_DASHBOARD_KEY_MAX = 48 };

struct tm_dashboard_knock {
    char key[TM_DASHBOARD_KEY_MAX]; /* "": free */
    int64_t heard_ms;
    int64_t left; /* requests it may make now, in thousandths */
    int failures; /* wrong tokens in a row */
    int64_t failed_ms;
    int64_t locked_ms; /* until then nothing it says is looked at */
};

struct tm_dashboard_guard {
    struct tm_dashboard_knock rows[TM_DASHBOARD_KNOCKS];
};

/* ---- runs ---- */

/* What a list shows of one. */
struct tm_dashboard_summary {
    bool known;
    bool live;
    enum tm_job_state state;
    uint64_t steps, committed, durable, samples_per_step;
    double loss, steps_s, tokens_s, bill_usd, on_demand_usd, wall_s, left_s, left_low_s, left_high_s;
    uint32_t here, noticed;
    int64_t begun_utc_ms, utc_ms;
};

/* A run that another machine has, whose bucket is known here (dashboard_away.c). */
struct tm_dashboard_away {
    int pid;            /* of the program that asks its bucket; 0: none does */
    int64_t until_ms;   /* it may take so long */
    int64_t looked_ms;  /* when it was last asked; -1: never */
    bool silent;        /* its coordinator did not answer: its books are shown */
    int64_t silent_ms;  /* since then */
    struct tm_tls *tls; /* of its coordinator; NULL: not spoken with so far */
    struct tm_tls_net *net;
    uint8_t fingerprint[TM_TLS_FINGERPRINT_BYTES];
};

struct tm_dashboard_job {
    char name[TM_API_JOB_NAME_MAX];
    char dir[TM_STATE_PATH_MAX];
    struct tm_dashboard_remote *remote;    /* another machine's; NULL: of this one */
    struct tm_dashboard_away *away;        /* NULL: it is run here, or was */
    char remote_name[TM_API_JOB_NAME_MAX]; /* what it is called there */
    bool elsewhere;                        /* given by option: it stays, whatever the folder of all runs has */
    bool seen;                             /* in the last search */
    bool owned;                            /* a living program runs it */
    int64_t looked_ms;
    struct tm_hash stamp; /* of when it was looked at */
    struct tm_dashboard_summary summary;
    struct tm_run_tap tap;       /* of its record */
    struct tm_api_source source; /* the same */
    struct tm_run_status status; /* of its record */
    bool has_status;
};

/* Another dashboard, whose runs are shown with ours. */
struct tm_dashboard_remote {
    const struct tm_dashboard_attach *given;
    struct tm_tls *tls; /* NULL: none */
    struct tm_tls_net *net;
    struct tm_dashboard_job all; /* no run: by it its list is asked for */
};

/* ---- questions to coordinators ---- */

enum tm_fetch_state { TM_FETCH_FREE, TM_FETCH_ASKING, TM_FETCH_DONE };

struct tm_fetch {
    enum tm_fetch_state state;
    struct tm_dashboard_job *job;
    char method[8];
    char target[200];
    struct tm_http_call call;
    struct tm_text body;
    int status;         /* of the answer; 0: there was none */
    int64_t until_ms;   /* ASKING */
    int64_t asked_ms;   /* when it was asked last */
    int64_t changed_ms; /* when it was begun, or when it came */
    int64_t used_ms;
};

/* ---- programs ---- */

struct tm_dashboard_child {
    uint64_t number; /* 0: free */
    int pid;         /* -1: it has ended */
    int exit_status;
    int64_t until_ms;
    char input[TM_STATE_PATH_MAX];
    char output[TM_STATE_PATH_MAX];
    char report[TM_STATE_PATH_MAX]; /* a page that it writes, and that is the answer; "": what it prints is */
};

enum { TM_DASHBOARD_FETCHES = 64, TM_DASHBOARD_CHILDREN = 4 };

struct tm_dashboard {
    struct tm_env *env;
    struct tm_dashboard_options options;
    struct tm_http_server *http;
    struct tm_tls *tls; /* NULL: on loopback, without */
    struct tm_tls_net *tls_net;
    struct tm_api_place place;
    bool guarded; /* off loopback */
    struct tm_dashboard_guard guard;
    struct tm_dashboard_remote *remotes;
    size_t remote_count;
    uint64_t version; /* held requests are asked again when it changes */
    char address[TM_ADDRESS_MAX];
    char cookie[48]; /* its name: cookies know no ports */
    char steer_token[TM_DASHBOARD_TOKEN_MAX];
    char watch_token[TM_DASHBOARD_TOKEN_MAX];
    struct tm_dashboard_job **jobs; /* by name */
    size_t job_count;
    size_t job_capacity;
    int64_t searched_ms; /* -1: never */
    struct tm_fetch fetches[TM_DASHBOARD_FETCHES];
    struct tm_dashboard_child children[TM_DASHBOARD_CHILDREN];
    uint64_t child_number;
};

int64_t tm_dashboard__now_ms(const struct tm_dashboard *d);

/* dashboard_jobs.c */
void tm_dashboard__search(struct tm_dashboard *d); /* looks for runs, now and then */
struct tm_dashboard_job *tm_dashboard__find(const struct tm_dashboard *d, const char *name);
/* NULL: out of memory, or too many. */
struct tm_dashboard_job *tm_dashboard__add(struct tm_dashboard *d, const char *name, const char *dir);
struct tm_dashboard_job *tm_dashboard__job(struct tm_dashboard *d, struct tm_slice name); /* %XX is understood; NULL */
bool tm_dashboard__is_live(struct tm_dashboard *d, struct tm_dashboard_job *job);
/* Answers GET /v1/jobs; not 0: hold it. */
int64_t tm_dashboard__list(struct tm_dashboard *d, const struct tm_api_asked *asked,
                           const struct tm_http_request *request, struct tm_api_content *out);
void tm_dashboard__forget_jobs(struct tm_dashboard *d);

/* dashboard_remote.c */
int tm_dashboard__attach(struct tm_dashboard *d, struct tm_error *e);
void tm_dashboard__detach(struct tm_dashboard *d);
/* Looks what runs the others have: adds and marks them. */
void tm_dashboard__search_remotes(struct tm_dashboard *d);
/* What is asked of a remote's dashboard where `target` is asked of a run. */
void tm_dashboard__remote_target(const struct tm_dashboard_job *job, const char *target, struct tm_text *out);

/* dashboard_away.c */
/* Is it run, as far as is known here? Never waits: its bucket is asked now and then by a program. `out_news`: the
 * folder may have something new. */
bool tm_dashboard__away_look(struct tm_dashboard *d, struct tm_dashboard_job *job, bool *out_news);
/* Asks its coordinator; false: it cannot be. */
bool tm_dashboard__away_begin(struct tm_dashboard *d, struct tm_fetch *fetch);
void tm_dashboard__away_answered(struct tm_dashboard *d, struct tm_dashboard_job *job, bool answered);
void tm_dashboard__away_forget(struct tm_dashboard *d, struct tm_dashboard_job *job);

/* dashboard_guard.c */
/* 0: it may ask; else after how many ms. */
int64_t tm_dashboard__admit(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms);
void tm_dashboard__wrong_token(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms);
void tm_dashboard__right_token(struct tm_dashboard_guard *guard, const char *peer, int64_t now_ms);

/* dashboard_fetch.c */
/* The answer of a job's coordinator to a GET, not older than that; NULL: it is being asked. `status` is 0 where it does
 * not answer. Borrowed until the next call. */
const struct tm_fetch *tm_dashboard__fetch(struct tm_dashboard *d, struct tm_dashboard_job *job, const char *method,
                                           const char *target, int64_t age_ms);
void tm_dashboard__step_fetches(struct tm_dashboard *d);
void tm_dashboard__hang_up(struct tm_dashboard *d, const struct tm_dashboard_job *job); /* no answer to what is asked */
void tm_dashboard__forget_fetches(struct tm_dashboard *d, const struct tm_dashboard_job *job); /* NULL: all */

/* dashboard_body.c */
/* -TM_EINPUT: the job file names a file of this machine. */
int tm_dashboard__check_body(const struct tm_dashboard *d, struct tm_slice body, struct tm_error *e);

/* dashboard_child.c */
/* Starts tidemill with a job file for its input; `report`: its answer is the page of --report. The number of the child,
 * or 0: too many, or it cannot be started. */
uint64_t tm_dashboard__start(struct tm_dashboard *d, const char *const *words, bool report, struct tm_slice input,
                             struct tm_error *e);
/* Starts tidemill run --resume, which goes on when the dashboard has ended. */
int tm_dashboard__resume(struct tm_dashboard *d, const struct tm_dashboard_job *job, struct tm_error *e);
/* What has come of it; false: it has not ended. */
bool tm_dashboard__child_result(struct tm_dashboard *d, uint64_t number, struct tm_api_content *out);
void tm_dashboard__step_children(struct tm_dashboard *d);
void tm_dashboard__end_children(struct tm_dashboard *d);

/* dashboard_session.c */
int tm_dashboard__load_tokens(struct tm_dashboard *d, struct tm_error *e);
/* What whoever asks is allowed: TM_API_FOR_ALL: nothing. */
enum tm_api_scope tm_dashboard__scope(const struct tm_dashboard *d, const struct tm_http_head *head,
                                      bool *out_by_cookie);
bool tm_dashboard__gave_token(const struct tm_dashboard *d, const struct tm_http_head *head); /* any */
enum tm_api_scope tm_dashboard__token_scope(const struct tm_dashboard *d, struct tm_slice token);

/* dashboard_answer.c */
int64_t tm_dashboard__answer(void *context, const struct tm_http_request *request, struct tm_text *out);

/* web_files.c: the page and its parts; false: there is no such file. */
bool tm_web__find(struct tm_slice path, const char **out_type, const char **out_begin, size_t *out_length);

#endif
