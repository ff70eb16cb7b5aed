/* Machines that join by themselves: the common suite of clouds on the provider as a run opens it, with a real office
 * and real processes that join by tickets, stay and go; and one that was away for too long. It forks beside threads,
 * which TSan does not follow. builds: release asan */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "cloud/test/cloud_suite.h"
#include "job/join.h"
#include "job/provider.h"
#include "job/run_tls.h"
#include "job/stay.h"
#include "job/tickets.h"
#include "run/state_folder.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

enum { VISITORS = 6, SPARES = 2, LIMIT = 3, AWAY_MS = 5000, LOOK_MS = 20, NOTICE_MS = 2000 };

static const char job_text[] = "name: a\nmodel: {gpt: {layers: 2, hidden: 32, heads: 2, ctx: 32}}\ndata: words.txt\n"
                               "steps: 10\nbatch: 8\nmicro_batch: 2\n";
static const char run_text[] = "name: a\njob: \"0000000000000007\"\nfolder: /nowhere\nengine: gpt\npolicy: tidemill\n"
                               "fleet: {limit: 3}\n";

struct house {
    struct tm_tempdir dir;
    struct tm_run_settings settings;
    struct tm_cloud_account account;
    struct tm_provider_request request;
    struct tm_arena arena;
    struct tm_run_tls tls;
    struct tm_office *office;
    char office_tls[TM_STATE_PATH_MAX];
    pid_t visitors[VISITORS + SPARES];
    int spares[SPARES]; /* they wait for a ticket at the other end; -1: none does */
};

static volatile int terminating;
static volatile int warned; /* this machine was told that it goes soon */

static void on_term(int number)
{
    (void)number;
    terminating = 1;
}

static void on_notice(int number)
{
    (void)number;
    warned = 1;
}

static void put(const struct house *h, const char *name, const char *text)
{
    char path[512];
    struct tm_error e = {.text = ""};
    (void)snprintf(path, sizeof path, "%s/%s", h->dir.path, name);
    assert_row(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), &e) == 0, "%s", e.text);
}

static void name_mark(const struct house *h, uint64_t instance, char out[512])
{
    (void)snprintf(out, 512, "%s/here-%" PRIu64, h->dir.path, instance);
}

/* ---- a machine: joins, is there until it may go or its run has died, as an agent ---- */

static void visit(const struct house *h, const char *ticket)
{
    struct tm_env *env = tm_env_real();
    struct tm_arena arena;
    struct tm_joined joined = {.dir = NULL};
    struct tm_stay *stay = NULL;
    char mark[512];
    char pid[32];
    char again[TM_TICKET_MAX];
    int64_t left_ms = NOTICE_MS;
    tm_arena_init(&arena, 1 << 20);
    if (tm_join__run(env, ticket, &terminating, &arena, &joined, NULL) != 0) _exit(1);
    if (tm_stay__begin(env, joined.office, joined.tls, joined.instance, &stay, NULL) != 0) _exit(2);
    name_mark(h, joined.instance, mark);
    (void)snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (env->file_write(env, mark, pid, strlen(pid), NULL) != 0) _exit(3);
    while (terminating == 0 && left_ms > 0 && tm_stay__goes_on(stay, warned != 0, warned != 0 ? left_ms : 0)) {
        env->sleep_ms(env, LOOK_MS);
        if (warned != 0) left_ms -= LOOK_MS;
    }
    (void)env->file_remove(env, mark, NULL);
    tm_stay__end(stay, 0, again);
    tm_join__remove(&joined);
    _exit(0);
}

/* Before the office has its thread: what is forked is one thread. It waits for its ticket. */
static int start_visitor(struct house *h, int number)
{
    int ends[2];
    char ticket[TM_TICKET_MAX] = "";
    struct sigaction action = {.sa_handler = on_term};
    struct sigaction notice = {.sa_handler = on_notice};
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) {
        (void)close(ends[0]);
        h->visitors[number] = pid;
        return ends[1];
    }
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGUSR1, &notice, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)close(ends[1]);
    if (read(ends[0], ticket, sizeof ticket - 1) <= 0) _exit(4);
    visit(h, ticket);
    return -1;
}

static void end_visitors(struct house *h)
{
    for (int i = 0; i < VISITORS + SPARES; i++) {
        if (h->visitors[i] > 0) (void)kill(h->visitors[i], SIGKILL);
        if (h->visitors[i] > 0) (void)waitpid(h->visitors[i], NULL, 0);
        h->visitors[i] = 0;
    }
    for (int i = 0; i < SPARES; i++) {
        if (h->spares[i] >= 0) (void)close(h->spares[i]);
        h->spares[i] = -1;
    }
}

/* ---- the run's side ---- */

static void close_office(struct house *h)
{
    tm_office_destroy(h->office);
    h->office = NULL;
    tm_run_tls__deinit(&h->tls);
    h->tls = (struct tm_run_tls){.authority = NULL};
}

static void open_office(struct house *h)
{
    struct tm_error e = {.text = ""};
    close_office(h);
    assert_row(tm_run_tls__make(tm_env_real(), h->dir.path, NULL, NULL, &h->tls, &e) == 0, "%s", e.text);
    assert_int_equal(tm_run_tls__issue_office(&h->tls, NULL), 0);
    tm_state_tls_path(h->dir.path, TM_STATE_TLS_OFFICE, h->office_tls);
    struct tm_office_options options = {.listen = "127.0.0.1:0",
                                        .dir = h->dir.path,
                                        .tls_folder = h->office_tls,
                                        .token = "0000000000000007-secret",
                                        .job = 7,
                                        .authority = h->tls.authority,
                                        .guests = tm_provider__join.guests,
                                        .away_ms = AWAY_MS};
    assert_row(tm_office_create(suite_env(), &options, &h->office, &e) == 0, "%s", e.text);
}

static struct tm_cloud *open_join(void *context, bool again, uint64_t id_first)
{
    struct house *h = context;
    struct tm_cloud *cloud = NULL;
    struct tm_error e = {.text = ""};
    int pipes[VISITORS];
    const char *const *tickets = NULL;
    const struct tm_tickets_request asked = {.count = VISITORS};
    (void)again;
    end_visitors(h);
    close_office(h);
    for (int i = 0; i < VISITORS; i++)
        pipes[i] = start_visitor(h, i);
    for (int i = 0; i < SPARES; i++)
        h->spares[i] = start_visitor(h, VISITORS + i);
    open_office(h);
    h->account.instance = id_first - 1;
    h->request = (struct tm_provider_request){.settings = &h->settings, .account = &h->account, .office = h->office};
    assert_row(tm_provider__join.open(suite_env(), &h->request, &cloud, &e) == 0, "%s", e.text);
    assert_row(tm_tickets_ask(tm_env_real(), h->dir.path, &asked, &h->arena, &tickets, &e) == 0, "%s", e.text);
    for (int i = 0; i < VISITORS; i++) {
        assert_true(write(pipes[i], tickets[i], strlen(tickets[i])) > 0);
        (void)close(pipes[i]);
    }
    return cloud;
}

static pid_t pid_of(const struct house *h, uint64_t instance)
{
    char mark[512];
    struct tm_text text;
    name_mark(h, instance, mark);
    tm_text_init(&text, 64);
    int rc = tm_env_real()->file_read(tm_env_real(), mark, &text, NULL);
    pid_t pid = rc == 0 ? (pid_t)strtol(tm_text_string(&text), NULL, 10) : 0;
    tm_text_deinit(&text);
    return pid;
}

static void lose_join(void *context, const struct tm_cloud_instance *instance)
{
    struct house *h = context;
    pid_t pid = pid_of(h, instance->id);
    char mark[512];
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    name_mark(h, instance->id, mark); /* nobody may be there to wait for it: what is left of it must not count */
    assert_int_equal(tm_env_real()->file_remove(tm_env_real(), mark, NULL), 0);
}

/* As the SIGTERM of its owner: the machine says that it goes, and goes a little later. */
static void notice_join(void *context, const struct tm_cloud_instance *instance)
{
    pid_t pid = pid_of(context, instance->id);
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGUSR1), 0);
}

/* The machines that wait for their turn go home; later two others come. */
static void fill_join(void *context, bool full)
{
    struct house *h = context;
    struct tm_error e = {.text = ""};
    const char *const *tickets = NULL;
    const struct tm_tickets_request asked = {.count = SPARES};
    for (int i = 0; full && i < VISITORS; i++) {
        bool here = false;
        for (uint64_t id = 1; id < 40; id++)
            here = here || pid_of(h, id) == h->visitors[i];
        if (!here && h->visitors[i] > 0) assert_int_equal(kill(h->visitors[i], SIGKILL), 0);
    }
    if (full) return;
    assert_row(tm_tickets_ask(tm_env_real(), h->dir.path, &asked, &h->arena, &tickets, &e) == 0, "%s", e.text);
    for (int i = 0; i < SPARES; i++)
        assert_true(write(h->spares[i], tickets[i], strlen(tickets[i])) > 0);
}

static int alive_join(void *context)
{
    struct house *h = context;
    int count = 0;
    for (int i = 0; i < VISITORS + SPARES; i++)
        if (h->visitors[i] > 0 && waitpid(h->visitors[i], NULL, WNOHANG) == h->visitors[i]) h->visitors[i] = 0;
    for (uint64_t id = 1; id < 40; id++) {
        pid_t pid = pid_of(h, id);
        count += pid > 0 && kill(pid, 0) == 0;
    }
    return count;
}

static void open_house(struct house *h)
{
    *h = (struct house){.office = NULL, .spares = {-1, -1}};
    tm_tempdir_make(&h->dir);
    tm_arena_init(&h->arena, 1 << 20);
    tm_run_settings_init(&h->settings);
    h->settings.job.fleet.limit = LIMIT;
    assert_int_equal(tm_provider__join.settle(tm_env_real(), &h->settings, "test", NULL), 0);
    put(h, "job.yaml", job_text);
    put(h, "run.yaml", run_text);
    put(h, "address", "127.0.0.1:4711");
    put(h, "copies/job", "7\n");
}

static void close_house(struct house *h)
{
    end_visitors(h);
    close_office(h);
    tm_run_settings_deinit(&h->settings);
    tm_arena_deinit(&h->arena);
    tm_tempdir_remove(&h->dir);
}

static void test_suite(void **state)
{
    (void)state;
    struct house h;
    open_house(&h);
    struct cloud_place place = {.context = &h,
                                .limit = LIMIT,
                                .open = open_join,
                                .lose = lose_join,
                                .alive = alive_join,
                                .notice = notice_join,
                                .full = fill_join,
                                .why_no_same = "machines need new tickets of the next run"};
    cloud_suite(&place);
    close_house(&h);
}

/* ---- guests, one by one ---- */

static void ask(struct house *h, const char *const **out, int count)
{
    struct tm_error e = {.text = ""};
    const struct tm_tickets_request asked = {.count = count, .host = "localhost"};
    assert_row(tm_tickets_ask(tm_env_real(), h->dir.path, &asked, &h->arena, out, &e) == 0, "%s", e.text);
}

/* The one guest there is, once it is in this state. */
static struct tm_guest await_guest(struct house *h, enum tm_guest_state state, bool noticed)
{
    struct tm_guest guests[4];
    for (int i = 0; i < SUITE_LONG_MS / LOOK_MS; i++) {
        size_t count = tm_office_guests(h->office, guests, 4);
        for (size_t k = 0; k < count; k++)
            if (guests[k].state == state && guests[k].noticed == noticed) return guests[k];
        tm_env_real()->sleep_ms(tm_env_real(), LOOK_MS);
    }
    fail_msg("no guest in state %d", (int)state);
    return guests[0];
}

/* A notice and a good-bye are told; one that is silent is lost, and gets a ticket to come back by, as another. */
static void test_guests(void **state)
{
    (void)state;
    struct house h;
    struct tm_env *env = tm_env_real();
    struct tm_joined joined = {.dir = NULL};
    struct tm_stay *stay = NULL;
    struct tm_error e = {.text = ""};
    const char *const *tickets = NULL;
    char again[TM_TICKET_MAX];
    open_house(&h);
    open_office(&h);
    ask(&h, &tickets, 2);
    tm_office_welcome(h.office, 1, 5);
    assert_row(tm_join__run(env, tickets[0], &terminating, &h.arena, &joined, &e) == 0, "%s", e.text);
    assert_true(joined.stays);
    assert_int_equal(joined.instance, 5);
    assert_row(tm_stay__begin(env, joined.office, joined.tls, 5, &stay, &e) == 0, "%s", e.text);
    assert_true(tm_stay__goes_on(stay, true, 9000));
    struct tm_guest noticed = await_guest(&h, TM_GUEST_HERE, true);
    assert_true(noticed.id == 5 && noticed.notice_left_ms > 0 && noticed.notice_left_ms <= 9000);
    assert_true(noticed.name[0] != '\0');
    tm_stay__end(stay, 3, again);
    assert_string_equal(again, "");
    assert_int_equal(await_guest(&h, TM_GUEST_LEFT, true).status, 3);
    tm_join__remove(&joined);
    /* silent from the beginning */
    assert_row(tm_join__run(env, tickets[1], &terminating, &h.arena, &joined, &e) == 0, "%s", e.text);
    assert_int_equal(await_guest(&h, TM_GUEST_LOST, false).id, 6);
    assert_row(tm_stay__begin(env, joined.office, joined.tls, 6, &stay, &e) == 0, "%s", e.text);
    for (int i = 0; i < SUITE_LONG_MS / LOOK_MS && tm_stay__goes_on(stay, false, 0); i++)
        env->sleep_ms(env, LOOK_MS);
    tm_stay__end(stay, 0, again);
    tm_join__remove(&joined);
    assert_row(tm_join__run(env, again, &terminating, &h.arena, &joined, &e) == 0, "%s", e.text);
    assert_int_equal(joined.instance, 7);
    tm_join__remove(&joined);
    close_house(&h);
}

/* Whoever has a certificate speaks for itself alone; whoever has not the run's word gets no tickets. */
static void test_others(void **state)
{
    (void)state;
    struct house h;
    struct tm_env *env = tm_env_real();
    struct tm_joined joined = {.dir = NULL};
    struct tm_stay *stay = NULL;
    struct tm_error e = {.text = ""};
    struct tm_guest guests[4];
    struct tm_ticket word;
    const char *const *tickets = NULL;
    char text[TM_TICKET_MAX];
    char again[TM_TICKET_MAX];
    const struct tm_tickets_request one = {.count = 1};
    open_house(&h);
    open_office(&h);
    ask(&h, &tickets, 2);
    tm_office_welcome(h.office, 2, 1);
    assert_row(tm_join__run(env, tickets[0], &terminating, &h.arena, &joined, &e) == 0, "%s", e.text);
    assert_row(tm_stay__begin(env, joined.office, joined.tls, 2, &stay, &e) == 0, "%s", e.text); /* it is 1 */
    tm_stay__end(stay, 0, again);
    assert_int_equal(tm_office_guests(h.office, guests, 4), 1);
    assert_true(guests[0].id == 1 && guests[0].state == TM_GUEST_HERE);
    tm_join__remove(&joined);
    assert_int_equal(tm_state_read(env, h.dir.path, TM_STATE_OFFICE, text, sizeof text, &e), 0);
    assert_int_equal(tm_ticket_parse(text, strlen(text), &word, &e), 0);
    word.secret[0] ^= 1;
    tm_ticket_print(&word, text);
    put(&h, "office", text);
    assert_int_equal(tm_tickets_ask(env, h.dir.path, &one, &h.arena, &tickets, &e), -(int)TM_EPEER);
    assert_error_has(e, "not the word of the run's state folder");
    close_office(&h);
    assert_int_equal(tm_tickets_ask(env, h.dir.path, &one, &h.arena, &tickets, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "--cloud join");
    close_house(&h);
}

/* Memory runs out at every step: of opening the cloud, of opening the office. */
static void test_memory(void **state)
{
    (void)state;
    struct house h;
    struct tm_env *env = tm_env_real();
    open_house(&h);
    open_office(&h);
    h.request = (struct tm_provider_request){.settings = &h.settings, .account = &h.account, .office = h.office};
    TM_FAIL_EACH_ALLOC({
        struct tm_cloud *cloud = NULL;
        rc = tm_provider__join.open(env, &h.request, &cloud, NULL);
        if (rc == 0) rc = cloud->want(cloud, TM_CLOUD_SPOT, 1, NULL);
        if (cloud != NULL) (void)cloud->destroy(cloud, NULL);
    });
    tm_office_destroy(h.office);
    h.office = NULL;
    struct tm_office_options options = {.listen = "127.0.0.1:0",
                                        .dir = h.dir.path,
                                        .tls_folder = h.office_tls,
                                        .token = "0000000000000007-secret",
                                        .job = 7,
                                        .authority = h.tls.authority};
    TM_FAIL_EACH_ALLOC({
        struct tm_office *office = NULL;
        char ticket[TM_TICKET_MAX];
        const struct tm_ticket_for who = {.instance = 1};
        rc = tm_office_create(env, &options, &office, NULL);
        if (rc == 0) rc = tm_office_ticket(office, &who, ticket, NULL);
        tm_office_destroy(office);
    });
    close_house(&h);
}

/* The same of asking for a ticket, joining by it, and staying; the office is another process. */
static int go_through(const struct house *h)
{
    struct tm_env *env = tm_env_real();
    struct tm_arena arena;
    struct tm_joined joined = {.dir = NULL};
    struct tm_stay *stay = NULL;
    const char *const *tickets = NULL;
    char again[TM_TICKET_MAX];
    const struct tm_tickets_request one = {.count = 1};
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_tickets_ask(env, h->dir.path, &one, &arena, &tickets, NULL);
    if (rc == 0) rc = tm_join__run(env, tickets[0], &terminating, &arena, &joined, NULL);
    if (rc == 0) rc = tm_stay__begin(env, joined.office, joined.tls, joined.instance, &stay, NULL);
    if (rc == 0) tm_stay__end(stay, 0, again);
    if (joined.dir != NULL) tm_join__remove(&joined);
    tm_arena_deinit(&arena);
    return rc;
}

static void test_memory_of_guests(void **state)
{
    (void)state;
    struct house h;
    char path[TM_STATE_PATH_MAX];
    open_house(&h);
    h.visitors[0] = fork();
    assert_true(h.visitors[0] >= 0);
    if (h.visitors[0] == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_office(&h);
        tm_office_welcome(h.office, 1 << 20, 1);
        for (;;)
            (void)pause();
    }
    tm_state_path(h.dir.path, TM_STATE_OFFICE, path);
    for (int i = 0; i < SUITE_LONG_MS / LOOK_MS && !tm_env_real()->file_exists(tm_env_real(), path); i++)
        tm_env_real()->sleep_ms(tm_env_real(), LOOK_MS);
    TM_FAIL_EACH_ALLOC(rc = go_through(&h));
    close_house(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guests),           cmocka_unit_test(test_others), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_memory_of_guests), cmocka_unit_test(test_suite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
