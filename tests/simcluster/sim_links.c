/* Links by seed: processes that talk over the real wire/peer_links.h (some with TLS) in a virtual world, while
 * connections are cut, processes die and come back, strangers connect and say nothing, nonsense, or well-formed frames
 * under a member's name (without a proof, with a made-up one, with the one that they were just shown), strangers listen
 * where a member is thought to be, and memory runs short. Checked: what comes is what was sent, each at most once; when
 * it is quiet again, everyone hears everyone; no handle and no memory is left over. */
#include "sim.h"

#include "base/alloc.h"
#include "base/env_virtual.h"
#include "base/log.h"
#include "wire/link_proof.h"
#include "wire/peer_links.h"
#include "wire/tls.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { PEERS_MAX = 6, SENT_MAX = 4096, BYTES_MOST = 40000, STRANGERS_MAX = 16, ROUNDS = 200, QUIET_ROUNDS = 60 };

struct process {
    struct tm_links *links; /* NULL: down */
    uint64_t incarnation;
    uint64_t number; /* its own */
    struct links_world *world;
};

struct links_world {
    struct tm_env *env;
    struct tm_tls *tls;
    struct tm_random random;
    struct process processes[PEERS_MAX + 1];
    size_t count;
    int strangers[STRANGERS_MAX]; /* handles; 0: none */
    uint64_t sent;
    bool heard[SENT_MAX];
    bool from_to[PEERS_MAX + 1][PEERS_MAX + 1]; /* heard since it is quiet */
    uint64_t faults;
    char failure[256];
};

static void links_fail(struct links_world *w, const char *what)
{
    if (w->failure[0] == '\0') (void)snprintf(w->failure, sizeof w->failure, "links: %s", what);
}

/* The bytes that message `number` must have. */
static void fill(uint64_t number, uint8_t *out, size_t length)
{
    struct tm_random random = tm_random_make(number, 77);
    uint64_t start = tm_random_u64(&random);
    for (size_t i = 0; i < length; i++)
        out[i] = (uint8_t)((start + i * i) >> (i % 23));
}

static void hear(void *context, const tm_message *message)
{
    struct process *process = context;
    struct links_world *w = process->world;
    static uint8_t expected[BYTES_MOST];
    const Tmw__CopyPut *put = message->body_case == TMW__ENVELOPE__BODY_COPY_PUT ? message->copy_put : NULL;
    if (put == NULL || put->data.len > BYTES_MOST || put->set >= SENT_MAX || put->step != process->number) {
        links_fail(w, "a message comes that nobody sent, or to another");
        return;
    }
    fill(put->set, expected, put->data.len);
    if (put->total != put->data.len || memcmp(expected, put->data.data, put->data.len) != 0)
        links_fail(w, "a message has other bytes than were sent");
    if (w->heard[put->set]) links_fail(w, "a message comes twice");
    w->heard[put->set] = true;
    w->from_to[message->from_id][process->number] = true;
}

static void say(struct links_world *w, struct process *from, const struct process *to)
{
    static uint8_t bytes[BYTES_MOST];
    if (from->links == NULL || to->links == NULL || from == to || w->sent >= SENT_MAX) return;
    struct tm_peer sender = {.role = TM_ROLE_WORKER, .id = from->number, .incarnation = from->incarnation};
    struct tm_peer receiver = {.role = TM_ROLE_WORKER, .id = to->number, .incarnation = to->incarnation};
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    tm_message message = tm_message_make(1, &sender, &receiver);
    struct tm_text text;
    size_t length = tm_random_below(&w->random, 8) == 0 ? tm_random_below(&w->random, BYTES_MOST) : 20;
    body.set = w->sent++;
    body.step = to->number;
    body.total = length;
    fill(body.set, bytes, length);
    body.data.data = bytes;
    body.data.len = length;
    message.body_case = TMW__ENVELOPE__BODY_COPY_PUT;
    message.copy_put = &body;
    tm_text_init(&text, 1 << 20);
    tm_message_pack(&message, &text);
    if (tm_text_status(&text, NULL) == 0)
        tm_links_send(from->links, &receiver, tm_links_address(to->links), text.data, text.length);
    tm_text_deinit(&text);
}

static void start(struct links_world *w, struct process *process)
{
    if (process->links != NULL) return;
    process->incarnation++;
    if (tm_links_create(w->env, "127.0.0.1:0", w->tls, "the secret", &process->links, NULL) != 0) process->links = NULL;
}

/* ---- strangers ---- */

static int *free_slot(struct links_world *w)
{
    int *slot = &w->strangers[tm_random_below(&w->random, STRANGERS_MAX)];
    if (*slot != 0) w->env->net_close(w->env, *slot);
    *slot = 0;
    return slot;
}

static void send_all(struct links_world *w, int handle, const void *data, size_t length)
{
    size_t sent = 0;
    (void)w->env->net_send(w->env, handle, data, length, &sent, NULL);
}

static void babble(struct links_world *w, int handle)
{
    static const char *const words[] = {"GET / HTTP/1.1\r\n\r\n", "\377\377\377\377", "\4\0\0\0abcd", "\26\3\1"};
    size_t which = tm_random_below(&w->random, sizeof words / sizeof *words);
    send_all(w, handle, words[which], which == 2 ? 8 : strlen(words[which]));
}

/* A frame that a member might send, but never did. */
static void forge(struct links_world *w, const struct process *as, const struct process *to, int handle)
{
    struct tm_peer sender = {.role = TM_ROLE_WORKER, .id = as->number, .incarnation = as->incarnation};
    struct tm_peer receiver = {.role = TM_ROLE_WORKER, .id = to->number, .incarnation = to->incarnation};
    Tmw__CopyPut body = TMW__COPY_PUT__INIT;
    tm_message message = tm_message_make(1, &sender, &receiver);
    struct tm_text packed;
    struct tm_text frame;
    body.set = SENT_MAX + 1;
    body.step = to->number;
    message.body_case = TMW__ENVELOPE__BODY_COPY_PUT;
    message.copy_put = &body;
    tm_text_init(&packed, 1 << 20);
    tm_text_init(&frame, 1 << 20);
    tm_message_pack(&message, &packed);
    if (tm_text_status(&packed, NULL) == 0) tm_frame_append(&frame, packed.data, packed.length);
    if (tm_text_status(&frame, NULL) == 0) send_all(w, handle, frame.data, frame.length);
    tm_text_deinit(&packed);
    tm_text_deinit(&frame);
}

/* Greets as a member does, and proves with bytes that it has made up or was just shown. */
static void pretend(struct links_world *w, struct process *to, int handle)
{
    uint8_t greeting[TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES] = "TMLINK01 and a number that is not random";
    uint8_t shown[TM_LINK_PROOF_NEEDS_MAX] = "made up";
    size_t received = 0;
    struct tm_links_waiting waiting;
    send_all(w, handle, greeting, sizeof greeting);
    tm_links_note(to->links, 0, &waiting);
    tm_links_take(to->links, hear, to);
    if (tm_random_below(&w->random, 2) == 0)
        (void)w->env->net_receive(w->env, handle, shown, sizeof shown, &received, NULL);
    send_all(w, handle, shown + sizeof shown - TM_PROOF_BYTES, TM_PROOF_BYTES);
}

static struct process *any(struct links_world *w);

static void stranger(struct links_world *w, struct process *to)
{
    int *slot = free_slot(w);
    if (to->links == NULL || w->env->net_connect(w->env, tm_links_address(to->links), slot, NULL) != 0) {
        *slot = 0;
        return;
    }
    switch (tm_random_below(&w->random, 4)) {
    case 0: /* says nothing */
        break;
    case 1:
        babble(w, *slot);
        break;
    case 2:
        pretend(w, to, *slot);
        forge(w, any(w), to, *slot);
        break;
    default:
        forge(w, any(w), to, *slot);
    }
}

/* It listens, and somebody takes its address for a member's. */
static void impostor(struct links_world *w, struct process *victim, const struct process *as)
{
    static const uint8_t made_up[TM_LINK_PROOF_NEEDS_MAX] = "TMLINK01 and a proof that it has made up";
    char address[TM_ADDRESS_MAX];
    int listener = -1;
    int *slot = free_slot(w);
    if (victim->links == NULL || victim == as) return;
    if (w->env->net_listen(w->env, "127.0.0.1:0", &listener, address, NULL) != 0) return;
    struct tm_peer peer = {.role = TM_ROLE_WORKER, .id = as->number, .incarnation = as->incarnation + 1000};
    tm_links_send(victim->links, &peer, address, "x", 1);
    if (w->env->net_accept(w->env, listener, slot, NULL) == 0) {
        send_all(w, *slot, made_up, sizeof made_up);
        forge(w, as, victim, *slot);
    } else {
        *slot = 0;
    }
    w->env->net_close(w->env, listener);
}

static struct process *any(struct links_world *w)
{
    return &w->processes[1 + tm_random_below(&w->random, w->count)];
}

static void fault(struct links_world *w)
{
    struct process *process = any(w);
    w->faults++;
    switch (tm_random_below(&w->random, 8)) {
    case 0:
        tm_links_destroy(process->links);
        process->links = NULL;
        break;
    case 1:
    case 2:
        tm_env_virtual_cut(w->env, 1 + (int)tm_random_below(&w->random, 40));
        break;
    case 3:
    case 4:
        stranger(w, process);
        break;
    case 5:
        impostor(w, process, any(w));
        break;
    case 6: /* connections take their time to be made */
        tm_env_virtual_set_connect_ms(w->env, 60 * (int64_t)tm_random_below(&w->random, 4));
        break;
    default:
        tm_alloc_fail_at(1 + (long)tm_random_below(&w->random, 40));
    }
}

static void everyone_takes(struct links_world *w)
{
    for (size_t i = 1; i <= w->count; i++) {
        struct process *process = &w->processes[i];
        if (process->links == NULL) continue;
        struct tm_links_waiting waiting;
        tm_links_note(process->links, 0, &waiting);
        tm_links_take(process->links, hear, process);
    }
    tm_alloc_fail_at(0);
    tm_env_virtual_advance(w->env, 30);
}

static bool all_heard(const struct links_world *w)
{
    for (size_t a = 1; a <= w->count; a++)
        for (size_t b = 1; b <= w->count; b++)
            if (a != b && !w->from_to[a][b]) return false;
    return true;
}

static void play(struct links_world *w)
{
    for (int round = 0; round < ROUNDS && w->failure[0] == '\0'; round++) {
        if (tm_random_below(&w->random, 3) == 0) fault(w);
        for (int i = 0; i < 6; i++)
            say(w, any(w), any(w));
        everyone_takes(w);
        if (tm_random_below(&w->random, 4) == 0) start(w, any(w));
    }
    /* Quiet: whoever is down comes back, and everyone speaks to everyone. */
    memset(w->from_to, 0, sizeof w->from_to);
    for (size_t i = 1; i <= w->count; i++)
        start(w, &w->processes[i]);
    for (int round = 0; round < QUIET_ROUNDS && !all_heard(w) && w->failure[0] == '\0'; round++) {
        for (size_t a = 1; a <= w->count; a++)
            for (size_t b = 1; b <= w->count; b++)
                if (!w->from_to[a][b]) say(w, &w->processes[a], &w->processes[b]);
        everyone_takes(w);
    }
    if (!all_heard(w)) links_fail(w, "progress: not everyone hears everyone when it is quiet again");
}

static void end(struct links_world *w, long live)
{
    for (size_t i = 1; i <= w->count; i++)
        tm_links_destroy(w->processes[i].links);
    for (size_t i = 0; i < STRANGERS_MAX; i++)
        if (w->strangers[i] != 0) w->env->net_close(w->env, w->strangers[i]);
    size_t handles = tm_env_virtual_handles(w->env);
    tm_tls_destroy(w->tls);
    tm_env_virtual_destroy(w->env);
    if (w->failure[0] != '\0') return;
    if (handles != 0) (void)snprintf(w->failure, sizeof w->failure, "leak: %zu handles are left open", handles);
    if (handles == 0 && tm_alloc_live() != live)
        (void)snprintf(w->failure, sizeof w->failure, "leak: %ld allocations are left", tm_alloc_live() - live);
}

bool sim_links_run(uint64_t seed, uint64_t *faults, uint64_t *messages)
{
    static struct links_world world; /* large */
    struct links_world *w = &world;
    tm_log_set_level(TM_LOG_ERROR); /* strangers are refused all the time */
    long live = tm_alloc_live();
    *w = (struct links_world){.random = tm_random_make(seed, 3)};
    w->env = tm_env_virtual_create(seed);
    assert(w->env != NULL);
    w->count = 2 + tm_random_below(&w->random, PEERS_MAX - 1);
    if (tm_random_below(&w->random, 4) == 0) {
        int rc = tm_tls_make_job(w->env, "/job", NULL);
        if (rc == 0) rc = tm_tls_load(w->env, "/job", &w->tls, NULL);
        assert(rc == 0);
    }
    for (size_t i = 1; i <= w->count; i++) {
        w->processes[i] = (struct process){.number = i, .world = w};
        start(w, &w->processes[i]);
    }
    play(w);
    tm_alloc_fail_at(0);
    *faults += w->faults;
    *messages += w->sent;
    end(w, live);
    if (w->failure[0] != '\0') printf("FAILED links of seed %llu: %s\n", (unsigned long long)seed, w->failure);
    return w->failure[0] == '\0';
}
