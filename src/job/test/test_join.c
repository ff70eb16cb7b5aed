/* Getting into a run by a ticket, and what is refused at its office: real sockets, real TLS. */
#include "base/debug.h"
#include "base/random.h"
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "job/join.h"
#include "job/run_tls.h"
#include "run/office.h"
#include "run/run_settings.h"
#include "store/copy_store.h"
#include "store/objects.h"
#include "wire/office_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char job_text[] = "name: a\nmodel: {gpt: {layers: 2, hidden: 32, heads: 2, ctx: 32}}\ndata: words.txt\n"
                               "steps: 10\nbatch: 8\nmicro_batch: 2\n";
static const char run_text[] = "name: a\njob: \"0000000000000007\"\nfolder: /nowhere\nengine: gpt\npolicy: tidemill\n"
                               "fleet: {limit: 3}\n";
static const char words[] = "tide and mill and tide and mill\n";
static volatile int never;

struct place {
    struct tm_tempdir dir;
    struct tm_run_tls tls;
    struct tm_office *office;
    char data[512];
    char copies[600]; /* where the coordinator has them */
    char data_set[700];
    char office_tls[TM_STATE_PATH_MAX];
};

static void put(const struct place *p, const char *name, const char *text)
{
    char path[512];
    struct tm_error e = {.text = ""};
    (void)snprintf(path, sizeof path, "%s/%s", p->dir.path, name);
    assert_row(tm_env_real()->file_write(tm_env_real(), path, text, strlen(text), &e) == 0, "%s", e.text);
}

/* `bucket` NULL: copies are in a folder. */
static void open_place_at(struct place *p, const char *bucket)
{
    struct tm_error e = {.text = ""};
    *p = (struct place){.office = NULL};
    tm_tempdir_make(&p->dir);
    if (bucket != NULL) (void)snprintf(p->copies, sizeof p->copies, "%s%s", bucket, p->dir.path);
    put(p, "job.yaml", job_text);
    put(p, "run.yaml", run_text);
    put(p, "address", "127.0.0.1:4711");
    put(p, bucket != NULL ? "copies" : "copies/job", bucket != NULL ? p->copies : "7\n");
    put(p, "words.txt", words);
    (void)snprintf(p->data, sizeof p->data, "%s/words.txt", p->dir.path);
    assert_row(tm_run_tls__make(tm_env_real(), p->dir.path, NULL, NULL, &p->tls, &e) == 0, "%s", e.text);
    assert_int_equal(tm_run_tls__issue_office(&p->tls, NULL), 0);
    tm_state_tls_path(p->dir.path, TM_STATE_TLS_OFFICE, p->office_tls);
    struct tm_office_options options = {.listen = "127.0.0.1:0",
                                        .dir = p->dir.path,
                                        .tls_folder = p->office_tls,
                                        .token = "0000000000000007-secret",
                                        .data = bucket == NULL ? p->data : NULL,
                                        .data_set = bucket == NULL ? NULL : p->data_set,
                                        .job = 7,
                                        .authority = p->tls.authority};
    assert_row(tm_office_create(tm_env_real(), &options, &p->office, &e) == 0, "%s", e.text);
}

static void open_place(struct place *p)
{
    open_place_at(p, NULL);
}

static void close_place(struct place *p)
{
    tm_office_destroy(p->office);
    tm_run_tls__deinit(&p->tls);
    tm_tempdir_remove(&p->dir);
}

static void get_ticket(struct place *p, uint64_t instance, char out[TM_TICKET_MAX])
{
    struct tm_error e = {.text = ""};
    struct tm_ticket_for who = {.instance = instance};
    assert_row(tm_office_ticket(p->office, &who, out, &e) == 0, "%s", e.text);
}

static int join(const char *ticket, struct tm_arena *arena, struct tm_joined *out, struct tm_error *e)
{
    *out = (struct tm_joined){.dir = NULL};
    return tm_join__run(tm_env_real(), ticket, &never, arena, out, e);
}

/* A machine that has nothing gets all that it needs; its copies end in the coordinator's folder. */
static void test_join(void **state)
{
    (void)state;
    struct place p;
    struct tm_arena arena;
    struct tm_joined joined;
    struct tm_error e = {.text = ""};
    struct tm_run_settings settings;
    struct tm_text text;
    char ticket[TM_TICKET_MAX];
    char line[TM_STATE_TOKEN_MAX];
    open_place(&p);
    tm_arena_init(&arena, 1 << 20);
    get_ticket(&p, 5, ticket);
    assert_false(tm_office_has_joined(p.office, 5));
    assert_row(join(ticket, &arena, &joined, &e) == 0, "%s", e.text);
    assert_true(tm_office_has_joined(p.office, 5));
    assert_int_equal(joined.instance, 5);
    assert_string_equal(joined.host, "127.0.0.1");
    assert_int_equal(tm_state_read(tm_env_real(), joined.dir, TM_STATE_ADDRESS, line, sizeof line, &e), 0);
    assert_string_equal(line, "127.0.0.1:4711");
    assert_int_equal(tm_state_read(tm_env_real(), joined.dir, TM_STATE_TOKEN, line, sizeof line, &e), 0);
    assert_string_equal(line, "0000000000000007-secret");
    tm_run_settings_init(&settings);
    assert_row(tm_run_settings_load(tm_env_real(), joined.dir, &settings, &e) == 0, "%s", e.text);
    assert_string_equal(settings.job.folder, joined.dir);
    tm_text_init(&text, 1 << 16);
    assert_row(tm_env_real()->file_read(tm_env_real(), settings.job.data, &text, &e) == 0, "%s", e.text);
    assert_string_equal(tm_text_string(&text), words);
    tm_text_deinit(&text);
    tm_run_settings_deinit(&settings);
    assert_int_equal(join(ticket, &arena, &(struct tm_joined){.dir = NULL}, &e), -(int)TM_EEXISTS);
    assert_error_has(e, "this ticket has been used");
    tm_join__remove(&joined);
    assert_false(tm_env_real()->file_exists(tm_env_real(), joined.dir));
    tm_arena_deinit(&arena);
    close_place(&p);
}

/* The machine's network, which loses one of the pieces that come. */
static struct {
    int at, heard;
} lossy;

static int hear_but_one(struct tm_env *env, int handle, void *buffer, size_t size, size_t *out, struct tm_error *e)
{
    (void)env;
    if (++lossy.heard == lossy.at) return tm_error_set(e, TM_EPEER, "connection lost");
    return tm_env_real()->net_receive(tm_env_real(), handle, buffer, size, out, e);
}

static void sleep_not(struct tm_env *env, int64_t ms)
{
    (void)env;
    (void)ms;
}

/* Wherever the connection is lost on the way in, the machine gets in by the same ticket, as the same instance. */
static void test_lost_answers(void **state)
{
    (void)state;
    struct place p;
    struct tm_env env = *tm_env_real();
    struct tm_error e = {.text = ""};
    char ticket[TM_TICKET_MAX];
    env.net_receive = hear_but_one;
    env.sleep_ms = sleep_not;
    open_place(&p);
    lossy.heard = lossy.at = 0;
    while (lossy.heard >= lossy.at) {
        struct tm_joined joined = {.dir = NULL};
        struct tm_arena arena;
        tm_arena_init(&arena, 1 << 20);
        lossy.at++;
        lossy.heard = 0;
        get_ticket(&p, (uint64_t)lossy.at, ticket);
        assert_row(tm_join__run(&env, ticket, &never, &arena, &joined, &e) == 0, "loss %d: %s", lossy.at, e.text);
        assert_row(joined.instance == (uint64_t)lossy.at, "loss %d", lossy.at);
        tm_join__remove(&joined);
        assert_row(join(ticket, &arena, &(struct tm_joined){.dir = NULL}, &e) == -(int)TM_EEXISTS, "another key");
        tm_arena_deinit(&arena);
    }
    assert_true(lossy.at > 5);
    close_place(&p);
}

/* A store on the other side of the office: parts of several pieces come back as they were, and lie in the folder. */
static void test_copies(void **state)
{
    (void)state;
    enum { SIZE = 3000017 };
    struct place p;
    struct tm_arena arena;
    struct tm_joined joined;
    struct tm_error e = {.text = ""};
    char ticket[TM_TICKET_MAX];
    char path[512];
    struct tm_copy_store *store = NULL;
    struct tm_block *back = NULL;
    struct tm_copy_name name;
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_block *block = tm_block_create(pool, SIZE);
    uint64_t newest = 0;
    open_place(&p);
    tm_arena_init(&arena, 1 << 20);
    get_ticket(&p, 1, ticket);
    assert_row(join(ticket, &arena, &joined, &e) == 0, "%s", e.text);
    assert_row(tm_copy_store_open(tm_env_real(), joined.copies, 7, &store, &e) == 0, "%s", e.text);
    for (size_t i = 0; i < SIZE; i++)
        block->data[i] = (uint8_t)(i * 7 ^ i >> 9);
    struct tm_copy_name put_name = {
        .set = 2, .step = 9, .generation = 3, .layer = 1, .size = SIZE, .hash = tm_hash_of(block->data, SIZE)};
    assert_row(store->put(store, &put_name, block, &e) == 0, "%s", e.text);
    put(&p, "copies/set-2.manifest", "m");
    put(&p, "copies/newest", "2\n");
    assert_row(store->newest(store, &newest, &e) == 0 && newest == 2, "%s", e.text);
    assert_row(store->get(store, 2, 1, 0, pool, &name, &back, &e) == 0, "%s", e.text);
    assert_memory_equal(back->data, block->data, SIZE);
    assert_int_equal(name.step, 9);
    tm_block_release(back);
    assert_int_equal(store->get(store, 2, 7, 0, pool, &name, &back, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(store->drop(store, 2, &e), -(int)TM_EUSAGE);
    put_name.hash.low ^= 1; /* damaged on the way */
    put_name.layer = 4;
    assert_int_equal(store->put(store, &put_name, block, &e), -(int)TM_EIO);
    (void)snprintf(path, sizeof path, "%s/copies/set-2/layer-4.tmcopy", p.dir.path);
    assert_false(tm_env_real()->file_exists(tm_env_real(), path));
    store->close(store);
    tm_block_release(block);
    tm_block_pool_destroy(pool);
    tm_join__remove(&joined);
    tm_arena_deinit(&arena);
    close_place(&p);
}

/* The coordinator's copies are in a bucket (tests/clouds/run starts one, and looks which way the bytes went): parts of
 * one piece and of several come back as they were, and one that is not there is not there. */
static void test_straight(void **state)
{
    (void)state;
    static const size_t sizes[] = {100, (24U << 20) + 12345};
    const char *bucket = getenv("TIDEMILL_TEST_BUCKET");
    struct place p;
    struct tm_arena arena;
    struct tm_joined joined;
    struct tm_error e = {.text = ""};
    char ticket[TM_TICKET_MAX];
    struct tm_copy_store *own = NULL;
    struct tm_copy_store *store = NULL;
    struct tm_block *back = NULL;
    struct tm_copy_name name;
    if (bucket == NULL) skip();
    struct tm_block_pool *pool = tm_block_pool_create();
    assert_int_equal(tm_debug_open(tm_env_real(), NULL), 0); /* TIDEMILL_DEBUG=store tells which way they went */
    open_place_at(&p, bucket);
    tm_arena_init(&arena, 1 << 20);
    assert_row(tm_copy_store_open(tm_env_real(), p.copies, 7, &own, &e) == 0, "%s", e.text);
    assert_row(own->claim(own, false, &e) == 0, "%s", e.text);
    assert_int_equal(own->seal(own, 2, "m", 1, &e), 0);
    get_ticket(&p, 1, ticket);
    assert_row(join(ticket, &arena, &joined, &e) == 0, "%s", e.text);
    assert_row(tm_copy_store_open(tm_env_real(), joined.copies, 7, &store, &e) == 0, "%s", e.text);
    for (uint32_t l = 0; l < TM_COUNT(sizes); l++) {
        struct tm_block *block = tm_block_create(pool, sizes[l]);
        for (size_t i = 0; i < sizes[l]; i++)
            block->data[i] = (uint8_t)(i * 7 ^ i >> 9);
        struct tm_copy_name put_name = {
            .set = 2, .step = 9, .layer = l, .size = sizes[l], .hash = tm_hash_of(block->data, sizes[l])};
        assert_row(store->put(store, &put_name, block, &e) == 0, "%s", e.text);
        assert_row(own->get(own, 2, l, sizes[l], pool, &name, &back, &e) == 0, "%s", e.text);
        tm_block_release(back);
        assert_row(store->get(store, 2, l, sizes[l], pool, &name, &back, &e) == 0, "%s", e.text);
        assert_memory_equal(back->data, block->data, sizes[l]);
        assert_int_equal(name.step, 9);
        tm_block_release(back);
        tm_block_release(block);
    }
    assert_int_equal(store->get(store, 2, 7, 100, pool, &name, &back, &e), -(int)TM_ENOTFOUND);
    assert_int_equal(store->get(store, 2, 1, 100, pool, &name, &back, &e), -(int)TM_EINPUT); /* of another size */
    store->close(store);
    assert_int_equal(own->drop(own, 2, &e), 0);
    own->close(own);
    tm_block_pool_destroy(pool);
    tm_join__remove(&joined);
    tm_arena_deinit(&arena);
    close_place(&p);
}

/* A command's data in a bucket, which this machine has no credentials for: by the run's URLs, once, however often a
 * machine joins. */
static void test_data_set(void **state)
{
    (void)state;
    static const char command_text[] = "name: a\nrun: x\nsteps: 10\nbatch: 8\ndata: %s/%s\n";
    const char *bucket = getenv("TIDEMILL_TEST_BUCKET");
    struct place p;
    struct tm_objects objects;
    struct tm_error e = {.text = ""};
    char text[1024];
    char first[TM_STATE_PATH_MAX] = "";
    if (bucket == NULL) skip();
    open_place_at(&p, bucket);
    assert_row(tm_objects_open(tm_env_real(), p.copies, &objects, &e) == 0, "%s", e.text);
    assert_row(objects.upload(objects.self, "words", words, strlen(words), &e) == 0, "%s", e.text);
    (void)snprintf(text, sizeof text, command_text, p.copies, "words");
    put(&p, "job.yaml", text);
    put(&p, "run.yaml",
        "name: a\njob: \"0000000000000007\"\nfolder: /\nengine: command\npolicy: tidemill\nfleet: {limit: 3}\n");
    (void)snprintf(p.data_set, sizeof p.data_set, "%s/words", p.copies);
    for (int machine = 1; machine <= 2; machine++) {
        struct tm_arena arena;
        struct tm_joined joined;
        struct tm_run_settings settings;
        struct tm_text got;
        char ticket[TM_TICKET_MAX];
        tm_arena_init(&arena, 1 << 20);
        get_ticket(&p, (uint64_t)machine, ticket);
        assert_row(join(ticket, &arena, &joined, &e) == 0, "%s", e.text);
        tm_run_settings_init(&settings);
        assert_row(tm_run_settings_load(tm_env_real(), joined.dir, &settings, &e) == 0, "%s", e.text);
        tm_text_init(&got, 1 << 16);
        assert_row(tm_env_real()->file_read(tm_env_real(), settings.job.data, &got, &e) == 0, "%s", e.text);
        assert_string_equal(tm_text_string(&got), words);
        assert_true(machine == 1 || strcmp(first, settings.job.data) == 0);
        (void)snprintf(first, sizeof first, "%s", settings.job.data);
        tm_text_deinit(&got);
        tm_run_settings_deinit(&settings);
        tm_join__remove(&joined);
        tm_arena_deinit(&arena);
    }
    assert_int_equal(objects.remove(objects.self, "words", &e), 0);
    objects.close(objects.self);
    close_place(&p);
}

/* What is not a ticket of this run, or not any more. */
static void test_refused(void **state)
{
    (void)state;
    struct place p;
    struct tm_arena arena;
    struct tm_joined joined;
    struct tm_error e = {.text = ""};
    struct tm_ticket ticket;
    char word[TM_TICKET_MAX];
    char newer[TM_TICKET_MAX];
    open_place(&p);
    tm_arena_init(&arena, 1 << 20);
    get_ticket(&p, 1, word);
    assert_int_equal(tm_ticket_parse(word, strlen(word), &ticket, &e), 0);
    ticket.secret[3] ^= 1;
    tm_ticket_print(&ticket, newer);
    assert_int_equal(join(newer, &arena, &joined, &e), -(int)TM_EPEER);
    assert_error_has(e, "not the ticket's secret");
    ticket.secret[3] ^= 1;
    ticket.authority[0] ^= 1; /* somebody else's office: nothing is said to it */
    tm_ticket_print(&ticket, newer);
    assert_int_equal(join(newer, &arena, &joined, &e), -(int)TM_EPEER);
    assert_error_has(e, "not the office of this job");
    ticket.authority[0] ^= 1;
    ticket.number = 99;
    tm_ticket_print(&ticket, newer);
    assert_int_equal(join(newer, &arena, &joined, &e), -(int)TM_ENOTFOUND);
    get_ticket(&p, 1, newer); /* instead of the first */
    assert_int_equal(join(word, &arena, &joined, &e), -(int)TM_EEXISTS);
    assert_error_has(e, "this ticket is void");
    struct tm_ticket_for brief = {.instance = 2, .valid_ms = 1};
    assert_int_equal(tm_office_ticket(p.office, &brief, word, &e), 0);
    tm_env_real()->sleep_ms(tm_env_real(), 3);
    assert_int_equal(join(word, &arena, &joined, &e), -(int)TM_ETIMEOUT);
    assert_error_has(e, "this ticket has expired");
    tm_office_bind(p.office, 1, "192.0.2.7");
    assert_int_equal(join(newer, &arena, &joined, &e), -(int)TM_EEXISTS);
    assert_error_has(e, "this ticket is for the machine at 192.0.2.7 alone");
    tm_office_bind(p.office, 1, "127.0.0.1");
    assert_row(join(newer, &arena, &joined, &e) == 0, "%s", e.text); /* after all that, the good one works */
    tm_join__remove(&joined);
    tm_arena_deinit(&arena);
    close_place(&p);
}

/* Strangers that say anything, at every step, by a seed; the office hears the next all the same. */
static void attack(const struct place *p, const struct tm_ticket *known, uint64_t seed)
{
    struct tm_env *env = tm_env_real();
    struct tm_tls *tls = NULL;
    struct tm_office_link *link = NULL;
    struct tm_arena arena;
    struct tm_error e;
    struct tm_random random = tm_random_make(seed, 1);
    uint8_t noise[256];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)tm_random_u64(&random);
    if (seed % 4 == 0) { /* no TLS at all */
        int handle = -1;
        size_t sent = 0;
        assert_int_equal(env->net_connect(env, tm_office_address(p->office), &handle, &e), 0);
        assert_int_equal(env->net_wait_send(env, handle, 5000, &e), 0);
        (void)env->net_send(env, handle, noise, sizeof noise, &sent, &e);
        env->net_close(env, handle);
        return;
    }
    assert_int_equal(tm_tls_create_pinned(known->authority, &tls, &e), 0);
    assert_row(tm_office_link_open(env, tm_office_address(p->office), tls, &link, &e) == 0, "%s", e.text);
    Tmw__OfficeMessage message = tm_office_message_make();
    Tmw__Enrol enrol = TMW__ENROL__INIT;
    Tmw__StoreGet get = TMW__STORE_GET__INIT;
    Tmw__OfficeMessage *answer = NULL;
    enrol.ticket = seed % 4 == 1 ? known->number : tm_random_u64(&random);
    enrol.proof = (ProtobufCBinaryData){seed % 3 == 0 ? 32 : seed % 40, noise};
    enrol.public_key = (ProtobufCBinaryData){seed % 200, noise + 40};
    message.body_case = TMW__OFFICE_MESSAGE__BODY_ENROL;
    message.enrol = &enrol;
    if (seed % 4 == 3) { /* a question for members */
        message.body_case = TMW__OFFICE_MESSAGE__BODY_STORE_GET;
        message.store_get = &get;
        get.set = 1;
    }
    tm_arena_init(&arena, 8 << 20);
    assert_int_equal(tm_office_link_send(link, &message, &e), 0);
    assert_row(tm_office_link_receive(link, &arena, &answer, &e) != 0, "seed %" PRIu64 " was let in", seed);
    tm_arena_deinit(&arena);
    tm_office_link_close(link);
    tm_tls_destroy(tls);
}

static void test_attacks(void **state)
{
    (void)state;
    struct place p;
    struct tm_arena arena;
    struct tm_joined joined;
    struct tm_ticket ticket;
    struct tm_error e = {.text = ""};
    char word[TM_TICKET_MAX];
    open_place(&p);
    tm_arena_init(&arena, 1 << 20);
    get_ticket(&p, 1, word);
    assert_int_equal(tm_ticket_parse(word, strlen(word), &ticket, &e), 0);
    for (uint64_t seed = 1; seed <= 64; seed++)
        attack(&p, &ticket, seed);
    assert_row(join(word, &arena, &joined, &e) == 0, "%s", e.text);
    tm_join__remove(&joined);
    tm_arena_deinit(&arena);
    close_place(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),     cmocka_unit_test(test_lost_answers), cmocka_unit_test(test_copies),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_attacks),      cmocka_unit_test(test_straight),
        cmocka_unit_test(test_data_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
