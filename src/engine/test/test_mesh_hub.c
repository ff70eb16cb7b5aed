/* Hubs: meshes of one generation after the other over sockets, with early and late comers, strangers, and cancelling
 * at any moment. */
#include "base/test/harness.h"
#include "base/test/tempdir.h"
#include "engine/mesh_hub_internal.h"

#include <stdatomic.h>
#include <string.h>

enum { HUBS = 4, BYTES = 3 << 20, GUARD_MS = 20000 };

struct fleet {
    struct tm_env *env;
    struct tm_tls *tls;
    struct tm_mesh_hub *hubs[HUBS];
    struct tm_mesh_member members[HUBS];
    atomic_uint_fast64_t waiting[HUBS];
};

struct waiting_at {
    struct fleet *fleet;
    int rank;
};
static struct waiting_at places[HUBS];

static void on_waiting(void *context, uint64_t instance)
{
    struct waiting_at *at = context;
    atomic_store(&at->fleet->waiting[at->rank], instance);
}

static void open_fleet(struct fleet *fleet, struct tm_tls *tls)
{
    struct tm_error e = {0};
    *fleet = (struct fleet){.env = tm_env_real(), .tls = tls};
    for (int i = 0; i < HUBS; i++) {
        places[i] = (struct waiting_at){.fleet = fleet, .rank = i};
        struct tm_mesh_hub_options options = {.listen = "127.0.0.1:0",
                                              .token = "secret",
                                              .job = 7,
                                              .instance = (uint64_t)i + 10,
                                              .tls = tls,
                                              .waiting = on_waiting,
                                              .context = &places[i]};
        assert_row(tm_mesh_hub__create(fleet->env, &options, &fleet->hubs[i], &e) == 0, "%s", e.text);
        fleet->members[i] =
            (struct tm_mesh_member){.instance = (uint64_t)i + 10, .endpoint = tm_mesh_hub__address(fleet->hubs[i])};
    }
}

static void close_fleet(struct fleet *fleet)
{
    for (int i = 0; i < HUBS; i++)
        tm_mesh_hub__destroy(fleet->hubs[i]);
}

/* ---- all talk with all ---- */

struct talker {
    struct fleet *fleet;
    uint64_t generation;
    int rank;
    int rounds;
    int rc;
    struct tm_error e;
};

/* Mostly one byte, which says who to whom, with a number every few KB, which says where. */
static void fill(unsigned char *data, size_t length, uint64_t generation, int from, int to, int round)
{
    memset(data, (int)(generation * 31 + (size_t)from * 5 + (size_t)to * 3 + (size_t)round), length);
    for (size_t i = 0; i + sizeof i <= length; i += 4093)
        memcpy(data + i, &i, sizeof i);
}

static void *talk(void *argument)
{
    struct talker *t = argument;
    struct tm_mesh *mesh = NULL;
    unsigned char *data = malloc(BYTES);
    unsigned char *want = malloc(BYTES);
    t->rc = tm_mesh_hub__form(t->fleet->hubs[t->rank], t->generation, t->rank, t->fleet->members, HUBS, &mesh, &t->e);
    for (int round = 0; t->rc == 0 && round < t->rounds; round++) {
        size_t length = round % 2 == 0 ? BYTES : 17;
        for (int r = 0; t->rc == 0 && r < HUBS; r++) {
            fill(data, length, t->generation, t->rank, r, round);
            if (r != t->rank) t->rc = mesh->send(mesh, r, (uint64_t)round, data, length, &t->e);
        }
        for (int r = HUBS - 1; t->rc == 0 && r >= 0; r--) {
            struct tm_parcel *parcel = NULL;
            if (r == t->rank) continue;
            t->rc = mesh->receive(mesh, r, (uint64_t)round, length, &parcel, &t->e);
            if (t->rc != 0) break;
            fill(want, length, t->generation, r, t->rank, round);
            if (memcmp(parcel->data, want, length) != 0) t->rc = tm_error_set(&t->e, TM_EINTERNAL, "other bytes");
            mesh->give_back(mesh, parcel);
        }
    }
    free(data);
    free(want);
    return NULL;
}

static void all_talk(struct fleet *fleet, uint64_t generation, int rounds)
{
    struct talker talkers[HUBS];
    pthread_t threads[HUBS];
    for (int i = 0; i < HUBS; i++) {
        talkers[i] = (struct talker){.fleet = fleet, .generation = generation, .rank = i, .rounds = rounds};
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &talkers[i]), 0);
    }
    for (int i = 0; i < HUBS; i++)
        (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < HUBS; i++)
        assert_row(talkers[i].rc == 0, "rank %d: %s", i, talkers[i].e.text);
}

static void test_generations(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, NULL);
    for (uint64_t generation = 1; generation <= 3; generation++)
        all_talk(&fleet, generation * 3, 2);
    close_fleet(&fleet);
}

static void test_tls(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_real();
    struct tm_error e = {0};
    struct tm_tls *tls = NULL;
    struct fleet fleet;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    assert_row(tm_tls_make_job(env, tm_tempdir_path(&dir, "tls"), &e) == 0, "%s", e.text);
    assert_row(tm_tls_load(env, tm_tempdir_path(&dir, "tls"), &tls, &e) == 0, "%s", e.text);
    tm_tempdir_remove(&dir);
    open_fleet(&fleet, tls);
    for (uint64_t generation = 1; generation <= 3; generation++)
        all_talk(&fleet, generation, 2);
    close_fleet(&fleet);
    tm_tls_destroy(tls);
}

/* ---- early and late ---- */

static void await_waiting(struct fleet *fleet, int rank, uint64_t instance)
{
    for (int i = 0; atomic_load(&fleet->waiting[rank]) != instance; i++) {
        assert_true(i < GUARD_MS);
        fleet->env->sleep_ms(fleet->env, 1);
    }
}

/* One is still in the generation before: the others wait for it, and say so. */
static void test_early_comers_wait(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, NULL);
    all_talk(&fleet, 4, 1);
    struct talker talkers[HUBS];
    pthread_t threads[HUBS];
    for (int i = 0; i < HUBS; i++)
        atomic_store(&fleet.waiting[i], 0);
    for (int i = 0; i < HUBS; i++)
        talkers[i] = (struct talker){.fleet = &fleet, .generation = 5, .rank = i, .rounds = 2};
    for (int i = 1; i < HUBS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &talkers[i]), 0);
    for (int i = 1; i < HUBS; i++)
        await_waiting(&fleet, i, 10);
    assert_int_equal(pthread_create(&threads[0], NULL, talk, &talkers[0]), 0);
    for (int i = 0; i < HUBS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_row(talkers[i].rc == 0, "rank %d: %s", i, talkers[i].e.text);
    }
    close_fleet(&fleet);
}

/* ---- cancelling ---- */

/* While it connects to one who does not come, and while it waits for what is not sent. */
static void test_cancel(void **state)
{
    (void)state;
    struct fleet fleet;
    open_fleet(&fleet, NULL);
    for (int formed = 0; formed < 2; formed++) {
        uint64_t generation = formed == 0 ? 1 : 2;
        struct talker talker = {.fleet = &fleet, .generation = generation, .rank = 3, .rounds = 1};
        struct tm_mesh *mesh = NULL;
        pthread_t thread;
        if (formed)
            assert_int_equal(tm_mesh_hub__form(fleet.hubs[2], generation, 2, fleet.members, HUBS, &mesh, NULL), 0);
        atomic_store(&fleet.waiting[3], 0);
        assert_int_equal(pthread_create(&thread, NULL, talk, &talker), 0);
        await_waiting(&fleet, 3, 10);
        tm_mesh_hub__cancel(fleet.hubs[3]);
        (void)pthread_join(thread, NULL);
        assert_int_equal(talker.rc, -(int)TM_ECANCELED);
    }
    all_talk(&fleet, 3, 2); /* and the next generation is whole */
    close_fleet(&fleet);
}

/* A member goes: who waits for it hears of it; what it sent before can still be had. */
static void test_lost(void **state)
{
    (void)state;
    struct fleet fleet;
    struct tm_mesh *meshes[2];
    struct tm_error e = {0};
    struct tm_parcel *parcel = NULL;
    open_fleet(&fleet, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tm_mesh_hub__form(fleet.hubs[i], 1, i, fleet.members, 2, &meshes[i], NULL), 0);
    assert_int_equal(meshes[1]->send(meshes[1], 0, 5, "hello", 5, &e), 0);
    tm_mesh_hub__destroy(fleet.hubs[1]);
    fleet.hubs[1] = NULL;
    assert_row(meshes[0]->receive(meshes[0], 1, 5, 5, &parcel, &e) == 0, "%s", e.text);
    meshes[0]->give_back(meshes[0], parcel);
    assert_int_equal(meshes[0]->receive(meshes[0], 1, 6, 5, &parcel, &e), -(int)TM_EPEER);
    close_fleet(&fleet);
}

/* ---- a large mesh: only those are linked that talk ---- */

enum { MANY = TM_MESH_EAGER_MAX + 4 };

struct one_of_many {
    struct tm_mesh_hub *hub;
    const struct tm_mesh_member *members;
    int rank;
    uint64_t generation;
    int rc;
    struct tm_error e;
};

/* Around in a circle, and a knot that no order of connecting may tie: 0 sends to 2 and then to 1, 1 passes it on to 2,
 * and 2 hears 1 before it asks for what 0 has sent. */
static void *talk_a_little(void *argument)
{
    struct one_of_many *one = argument;
    struct tm_mesh *mesh = NULL;
    int rank = one->rank, right = (rank + 1) % MANY, left = (rank + MANY - 1) % MANY;
    unsigned char byte = 0, from = (unsigned char)rank;
    one->rc = tm_mesh_hub__form(one->hub, one->generation, rank, one->members, MANY, &mesh, &one->e);
    if (one->rc == 0 && rank == 0) one->rc = mesh->send(mesh, 2, 8, "x", 1, &one->e);
    if (one->rc == 0 && rank == 0) one->rc = mesh->send(mesh, 1, 8, "y", 1, &one->e);
    if (one->rc == 0 && rank == 1) one->rc = tm_mesh__receive_into(mesh, 0, 8, &byte, 1, &one->e);
    if (one->rc == 0 && rank == 1) one->rc = mesh->send(mesh, 2, 8, &byte, 1, &one->e);
    if (one->rc == 0 && rank == 2) one->rc = tm_mesh__receive_into(mesh, 1, 8, &byte, 1, &one->e);
    if (one->rc == 0 && rank == 2) one->rc = tm_mesh__receive_into(mesh, 0, 8, &byte, 1, &one->e);
    if (one->rc == 0) one->rc = mesh->send(mesh, right, 9, &from, 1, &one->e);
    if (one->rc == 0) one->rc = tm_mesh__receive_into(mesh, left, 9, &byte, 1, &one->e);
    if (one->rc == 0 && byte != left) one->rc = tm_error_set(&one->e, TM_EINTERNAL, "other bytes");
    return NULL;
}

static void test_a_large_mesh(void **state)
{
    (void)state;
    struct tm_mesh_member members[MANY];
    struct one_of_many all[MANY];
    pthread_t threads[MANY];
    struct tm_error e = {0};
    for (int i = 0; i < MANY; i++) {
        struct tm_mesh_hub_options options = {
            .listen = "127.0.0.1:0", .token = "secret", .job = 7, .instance = (uint64_t)i + 10};
        all[i] = (struct one_of_many){.members = members, .rank = i};
        assert_row(tm_mesh_hub__create(tm_env_real(), &options, &all[i].hub, &e) == 0, "%s", e.text);
        members[i] =
            (struct tm_mesh_member){.instance = options.instance, .endpoint = tm_mesh_hub__address(all[i].hub)};
    }
    for (uint64_t generation = 1; generation <= 3; generation++) {
        for (int i = 0; i < MANY; i++) {
            all[i].generation = generation;
            assert_int_equal(pthread_create(&threads[i], NULL, talk_a_little, &all[i]), 0);
        }
        for (int i = 0; i < MANY; i++)
            (void)pthread_join(threads[i], NULL);
        for (int i = 0; i < MANY; i++) {
            assert_row(all[i].rc == 0, "generation %d, rank %d: %s", (int)generation, i, all[i].e.text);
            assert_in_range(tm_mesh_hub__linked(all[i].hub), 2, 3);
        }
    }
    for (int i = 0; i < MANY; i++)
        tm_mesh_hub__destroy(all[i].hub);
}

/* ---- strangers ---- */

/* What comes within the guard's time: bytes, or 0 when the other side closes. */
static size_t hear(struct tm_env *env, int handle, void *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        bool ready = false;
        size_t got = 0;
        assert_int_equal(env->net_wait(env, &handle, 1, GUARD_MS, &ready, NULL), 0);
        int rc = env->net_receive(env, handle, (unsigned char *)to + done, size - done, &got, NULL);
        if (rc != 0 || got == 0) return done;
        done += got;
    }
    return done;
}

/* Who does not know the token, is of another job, of an older generation, or no member, is shown out. */
static void test_strangers(void **state)
{
    (void)state;
    struct fleet fleet;
    struct tm_mesh *ours = NULL;
    open_fleet(&fleet, NULL);
    static const struct {
        const char *name;
        struct tm_mesh_greeting hello;
        bool answered; /* then it must prove that it knows the token */
    } rows[] = {{"job", {.kind = 1, .job = 8, .generation = 5, .from = 11, .to = 10}, false},
                {"old", {.kind = 1, .job = 7, .generation = 4, .from = 11, .to = 10}, false},
                {"no member", {.kind = 1, .job = 7, .generation = 5, .from = 99, .to = 10}, false},
                {"itself", {.kind = 1, .job = 7, .generation = 5, .from = 10, .to = 10}, false},
                {"for another", {.kind = 1, .job = 7, .generation = 5, .from = 11, .to = 12}, false},
                {"no hello", {.kind = 3, .job = 7, .generation = 5, .from = 11, .to = 10}, false},
                {"token", {.kind = 1, .job = 7, .generation = 5, .from = 11, .to = 10}, true}};
    assert_int_equal(tm_mesh_hub__form(fleet.hubs[0], 5, 0, fleet.members, 2, &ours, NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tm_mesh_link link = {.greeting = rows[i].hello};
        int handle = -1;
        assert_int_equal(fleet.env->net_connect(fleet.env, fleet.members[0].endpoint, &handle, NULL), 0);
        assert_int_equal(tm_mesh_link__open(&link, fleet.env, handle, NULL, false, NULL), 0);
        link.state = LINK_DIALING;
        link.greeting = rows[i].hello;
        assert_int_equal(tm_mesh_link__greet(&link, fleet.env, "guess", rows[i].hello.kind), 0);
        struct tm_mesh_greeting *answer = &link.greeting_in;
        size_t got = hear(fleet.env, handle, answer, sizeof *answer);
        assert_row(got == (rows[i].answered ? sizeof *answer : 0), "%s: %zu bytes came", rows[i].name, got);
        if (rows[i].answered) {
            assert_false(tm_mesh_link__believes(&link, "guess", 2));
            assert_true(tm_mesh_link__believes(&link, "secret", 2));
            link.greeting.answerer_nonce = answer->answerer_nonce;
            assert_int_equal(tm_mesh_link__greet(&link, fleet.env, "guess", 3), 0);
            assert_int_equal(hear(fleet.env, handle, answer, 1), 0);
        }
        tm_mesh_link__close(&link, fleet.env);
    }
    close_fleet(&fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_generations),       cmocka_unit_test(test_tls),
                                       cmocka_unit_test(test_early_comers_wait), cmocka_unit_test(test_cancel),
                                       cmocka_unit_test(test_a_large_mesh),      cmocka_unit_test(test_lost),
                                       cmocka_unit_test(test_strangers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
