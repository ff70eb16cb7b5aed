/* The loop of clouds of VMs around a driver of our own, whose calls are answered at once, in the virtual world. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "cloud/vm_cloud.h"

#include <string.h>

static enum tm_vm__remedy remedy_of(const char *code)
{
    (void)code;
    return TM_VM_AGAIN;
}

static const char *advice(const char *code)
{
    (void)code;
    return "";
}

static const struct tm_vm__rules rules = {
    .cloud = "a cloud", .believe_ms = 1000, .remedy_of = remedy_of, .advice = advice};

struct driver {
    struct tm_vm_cloud cloud;
    struct tm_cloud_pool pool;
    enum tm_vm__call_kind held; /* calls of this kind cannot be signed; TM_VM_CALL_KINDS: all can */
    bool absent;                /* VMs do not join */
    int tickets;
    int bound;              /* of them, to the address of the VM */
    int begun[16], ended;   /* calls, by kind */
    int vain;               /* that were held */
    int rented, terminated; /* answers */
    char token[TM_VM_TOKEN_MAX];
};

static int ticket(void *context, uint64_t id, bool on_demand, char out[TM_VM_TICKET_MAX], struct tm_error *e)
{
    ((struct driver *)context)->tickets++;
    (void)id;
    (void)on_demand;
    (void)e;
    (void)snprintf(out, TM_VM_TICKET_MAX, "ticket");
    return 0;
}

static void bind(void *context, uint64_t id, const char *host)
{
    ((struct driver *)context)->bound++;
    assert_int_equal(id, 1);
    assert_string_equal(host, "10.0.0.1");
}

static bool has_joined(void *context, uint64_t id)
{
    (void)id;
    return !((const struct driver *)context)->absent;
}

/* Ends the call where it begins: nobody is asked. */
static int prepare(void *context, struct tm_text *url, struct tm_text *headers, struct tm_error *e)
{
    (void)context;
    (void)url;
    (void)headers;
    return tm_error_set(e, TM_EPEER, "answered");
}

static int begin(void *self, size_t slot, struct tm_web_call **out, struct tm_error *e)
{
    struct driver *d = self;
    const struct tm_vm__call *call = &d->cloud.slots[slot].call;
    static const struct tm_web_request request = {
        .method = "GET", .deadline_ms = 1000, .tries_max = 1, .prepare = prepare};
    d->begun[call->kind]++;
    if (call->kind == TM_VM_RUN) {
        tm_vm_cloud__name(&d->cloud, call->at);
        if (d->token[0] != '\0') assert_string_equal(d->cloud.vms.vms[call->at].token, d->token); /* the same VM */
        (void)snprintf(d->token, sizeof d->token, "%s", d->cloud.vms.vms[call->at].token);
    }
    if (call->kind == d->held) {
        d->vain++;
        return tm_error_set(e, TM_EBUSY, "on its way");
    }
    return tm_web_begin(d->cloud.web, &request, out, e);
}

static struct tm_vm__row row_of(const struct driver *d)
{
    struct tm_vm__row row = {.phase = TM_VM_RUNS, .id = "i-1", .address = "10.0.0.1"};
    (void)snprintf(row.token, sizeof row.token, "%s", d->token);
    return row;
}

static int take(void *self, size_t slot, int rc, struct tm_web_answer *answer, const struct tm_error *why,
                struct tm_web_call **out, struct tm_error *e)
{
    struct driver *d = self;
    const struct tm_vm__call *call = &d->cloud.slots[slot].call;
    int64_t now_ms = tm_vm_cloud__now_ms(&d->cloud);
    const struct tm_vm__row row = row_of(d);
    (void)rc;
    (void)answer;
    (void)why;
    (void)out;
    if (call->kind == TM_VM_RUN) {
        d->rented++;
        tm_vms__rented(&d->cloud.vms, call->at, &row, now_ms);
    } else if (call->kind == TM_VM_TERMINATE) {
        d->terminated++;
        tm_vms__terminated(&d->cloud.vms, call->at, true, "", now_ms);
    } else if (call->kind == TM_VM_DESCRIBE) {
        int added = d->rented > d->terminated ? tm_vm_cloud__add_row(&d->cloud, &row, e) : 0;
        return added != 0 ? added : tm_vm_cloud__take_rows(&d->cloud, 0, e);
    }
    return 0;
}

static void end(void *self, size_t slot)
{
    (void)slot;
    ((struct driver *)self)->ended++;
}

static void destroy(void *self)
{
    (void)self;
}

static void open_cloud(struct driver *d, struct tm_env *env)
{
    const struct tm_vm__driver driver = {
        .self = d, .rules = &rules, .folder = "fake", .begin = begin, .take = take, .end = end, .destroy = destroy};
    *d = (struct driver){.held = TM_VM_RUN};
    d->pool = (struct tm_cloud_pool){.kind = TM_INSTANCE_ON_DEMAND, .type = "t", .name = "one", .price_usd_h = 1};
    const struct tm_vm_options options = {.pools = &d->pool,
                                          .pool_count = 1,
                                          .job = "job",
                                          .run = 7,
                                          .bucket = "tide",
                                          .prefix = "",
                                          .state_dir = "/s",
                                          .log_dir = "/s",
                                          .ticket = ticket,
                                          .context = d,
                                          .has_joined = has_joined,
                                          .bind = bind};
    assert_int_equal(tm_vm_cloud__init(&d->cloud, env, &driver, &options, NULL), 0);
    assert_int_equal(tm_vm_cloud__open(&d->cloud, NULL), 0);
}

static int all_begun(const struct driver *d)
{
    int sum = 0;
    for (size_t i = 0; i < TM_COUNT(d->begun); i++)
        sum += d->begun[i];
    return sum;
}

/* A call that cannot be signed yet holds up nothing else, is begun again and again, soon, and is one call. */
static void test_held(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct driver d;
    struct tm_cloud_event event;
    int handles[4];
    int64_t wait_ms = 0;
    open_cloud(&d, env);
    struct tm_cloud *cloud = &d.cloud.cloud;
    assert_int_equal(cloud->want(cloud, 0, 1, NULL), 0);
    assert_int_equal(cloud->next(cloud, 60000, &event, NULL), -(int)TM_ETIMEOUT);
    assert_true(d.begun[TM_VM_DESCRIBE] > 3);
    assert_true(d.vain > 1000);
    assert_int_equal(d.vain, d.begun[TM_VM_RUN]);
    (void)cloud->watch(cloud, handles, TM_COUNT(handles), &wait_ms);
    assert_true(wait_ms <= 20);
    d.held = TM_VM_CALL_KINDS;
    assert_int_equal(cloud->next(cloud, 1000, &event, NULL), 0);
    assert_int_equal(event.kind, TM_CLOUD_ARRIVED);
    assert_int_equal(d.rented, 1);
    assert_int_equal(cloud->destroy(cloud, NULL), 0);
    assert_int_equal(d.rented, 1);
    assert_int_equal(d.terminated, 1);
    assert_int_equal(d.ended, all_begun(&d)); /* each once */
    tm_env_virtual_destroy(env);
}

/* The cloud goes while a call is held: that has nothing to be ended. */
static void test_given_up(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct driver d;
    struct tm_cloud_event event;
    open_cloud(&d, env);
    struct tm_cloud *cloud = &d.cloud.cloud;
    assert_int_equal(cloud->want(cloud, 0, 1, NULL), 0);
    assert_int_equal(cloud->next(cloud, 5000, &event, NULL), -(int)TM_ETIMEOUT);
    assert_true(d.vain > 0);
    tm_vm_cloud__deinit(&d.cloud);
    assert_int_equal(d.ended, all_begun(&d));
    tm_env_virtual_destroy(env);
}

/* However often a call is begun, it puts one ticket: each that is drawn takes the place of an older one, and is good
 * from the VM's address alone. */
static void test_one_ticket(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct driver d;
    struct tm_cloud_event event;
    open_cloud(&d, env);
    d.held = TM_VM_PUT_TICKET;
    d.absent = true;
    struct tm_cloud *cloud = &d.cloud.cloud;
    assert_int_equal(cloud->want(cloud, 0, 1, NULL), 0);
    assert_int_equal(cloud->next(cloud, 5000, &event, NULL), -(int)TM_ETIMEOUT);
    assert_true(d.rented == 1 && d.tickets == 0);
    assert_int_equal(d.bound, 1);
    d.cloud.vms.vms[0].ticket_due = true; /* as of one that is taken over */
    assert_int_equal(cloud->next(cloud, 5000, &event, NULL), -(int)TM_ETIMEOUT);
    assert_true(d.vain > 100);
    assert_int_equal(d.tickets, 1);
    assert_int_equal(d.bound, 2);
    tm_vm_cloud__deinit(&d.cloud);
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_held), TM_TEST(test_given_up), TM_TEST(test_one_ticket))
