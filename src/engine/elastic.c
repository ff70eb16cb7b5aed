#include "engine/elastic.h"

#include "base/address.h"
#include "base/alloc.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TOKEN_MAX = 1024 };

struct elastic {
    struct tm_env *env;
    const struct tm_elastic_engine *engine;
    struct tm_tls *tls;
    struct tm_mesh_hub *hub;
    tidemill *t;
    struct tm_mesh *mesh; /* of `generation` */
    uint64_t generation;
    struct tidemill_norm *norms;
    int64_t waits_since_ns; /* for another; 0: it does not */
    int64_t waited_ns;      /* in this step */
};

/* ---- what the library and the hub ask ---- */

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->layer_bytes(engine->context, layer);
}

static int init_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->init_layer(engine->context, layer, out, bytes);
}

static int take_layer(void *context, uint32_t layer, void *memory, uint64_t bytes)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->take_layer(engine->context, layer, memory, bytes);
}

static void drop_layer(void *context, uint32_t layer)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    engine->drop_layer(engine->context, layer);
}

static uint64_t gradient_bytes(void *context, uint32_t layer)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->gradient_bytes(engine->context, layer);
}

static int read_gradient(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->read_gradient(engine->context, layer, out, bytes);
}

static int advance_layer(void *context, uint32_t layer, uint64_t step, double norm, void *state, uint64_t state_bytes,
                         const void *gradient, uint64_t bytes)
{
    const struct tm_elastic_engine *engine = ((struct elastic *)context)->engine;
    return engine->advance_layer(engine->context, layer, step, norm, state, state_bytes, gradient, bytes);
}

static void on_cancelled(void *context)
{
    struct elastic *w = context;
    if (w->engine->cancel != NULL) w->engine->cancel(w->engine->context);
    tm_mesh_hub__cancel(w->hub);
}

static void on_waiting(void *context, uint64_t instance)
{
    struct elastic *w = context;
    int64_t now_ns = w->env->monotonic_ns(w->env);
    if (w->waits_since_ns > 0) w->waited_ns += now_ns - w->waits_since_ns;
    w->waits_since_ns = instance != 0 ? now_ns : 0;
    tidemill_waiting_for(w->t, instance);
}

/* ---- opening ---- */

static int read_token(struct tm_env *env, const struct tidemill_options *library, char out[TOKEN_MAX],
                      struct tm_error *e)
{
    struct tm_text text;
    if (library->token != NULL) {
        (void)snprintf(out, TOKEN_MAX, "%s", library->token);
        return 0;
    }
    if (library->token_file == NULL) return tm_error_set(e, TM_EUSAGE, "no join token was given");
    tm_text_init(&text, TOKEN_MAX - 1);
    int rc = env->file_read(env, library->token_file, &text, e);
    if (rc == 0) (void)snprintf(out, TOKEN_MAX, "%s", tm_text_string(&text));
    if (rc == 0) out[strcspn(out, "\r\n")] = '\0';
    tm_text_deinit(&text);
    return rc == 0 ? 0 : tm_error_wrap(e, rc, "reading the join token");
}

static int open_hub(struct elastic *w, const struct tidemill_options *library, struct tm_error *e)
{
    char token[TOKEN_MAX];
    char listen[TM_ADDRESS_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    const char *given = library->listen == NULL ? "127.0.0.1" : library->listen;
    /* the library listens on its port; ours is another one */
    tm_address_join(tm_address_split(given, host, port, NULL) == 0 ? host : given, "0", listen);
    int rc = read_token(w->env, library, token, e);
    if (rc == 0 && library->tls_folder != NULL) rc = tm_tls_load(w->env, library->tls_folder, &w->tls, e);
    if (rc != 0) return rc;
    struct tm_mesh_hub_options options = {.listen = listen,
                                          .token = token,
                                          .job = library->job,
                                          .instance = library->instance,
                                          .tls = w->tls,
                                          .waiting = on_waiting,
                                          .context = w};
    return tm_mesh_hub__create(w->env, &options, &w->hub, e);
}

static int open_library(struct elastic *w, const struct tidemill_options *library, struct tm_error *e)
{
    char error[TM_ERROR_TEXT_MAX] = "";
    struct tidemill_options options = *library;
    struct tidemill_engine engine = {.context = w,
                                     .layer_bytes = layer_bytes,
                                     .init_layer = init_layer,
                                     .take_layer = take_layer,
                                     .drop_layer = drop_layer,
                                     .cancelled = on_cancelled};
    if (w->engine->advance_layer != NULL) {
        engine.gradient_bytes = gradient_bytes;
        engine.read_gradient = read_gradient;
        engine.advance_layer = advance_layer;
    }
    options.kernel_class = w->engine->kernel_class;
    options.endpoint = tm_mesh_hub__address(w->hub);
    w->t = tidemill_open(&options, &engine, error, sizeof error);
    return w->t != NULL ? 0 : tm_error_set(e, TM_EPEER, "%s", error);
}

/* ---- steps ---- */

static int form_mesh(struct elastic *w, const struct tidemill_work *work, struct tm_error *e)
{
    struct tm_mesh_member members[TM_MESH_WORKERS_MAX];
    size_t count = work->peer_count;
    if (count > TM_MESH_WORKERS_MAX || count != (size_t)work->pipelines * work->stages)
        return tm_error_set(e, TM_ELIMIT, "a layout of %zu workers; at most %d can train together", count,
                            TM_MESH_WORKERS_MAX);
    for (size_t i = 0; i < count; i++) {
        const struct tidemill_peer *peer = &work->peers[i];
        members[peer->pipeline * work->stages + peer->stage] =
            (struct tm_mesh_member){.instance = peer->instance, .endpoint = peer->endpoint};
    }
    int rank = (int)(work->pipeline * work->stages + work->stage);
    int rc = tm_mesh_hub__form(w->hub, work->generation, rank, members, (int)count, &w->mesh, e);
    if (rc == 0) w->generation = work->generation;
    return rc;
}

static int step(struct elastic *w, const struct tidemill_work *work, struct tm_error *e)
{
    size_t count = 0;
    bool fresh = work->generation != w->generation || w->mesh == NULL;
    int rc = fresh ? form_mesh(w, work, e) : 0;
    if (w->engine->resume != NULL) w->engine->resume(w->engine->context);
    if (rc == 0 && tidemill_cancelled(w->t)) return 0; /* it was told to the mesh before this one */
    int64_t begun_ns = w->env->monotonic_ns(w->env);
    w->waits_since_ns = w->waited_ns = 0;
    if (rc == 0) rc = w->engine->prepare(w->engine->context, work, w->mesh, fresh, w->norms, &count, e);
    if (rc == 0) {
        int64_t busy_ns = w->env->monotonic_ns(w->env) - begun_ns - w->waited_ns;
        uint64_t busy_us = busy_ns > 0 ? (uint64_t)busy_ns / 1000 : 0;
        if (w->engine->computed_us != NULL) busy_us = w->engine->computed_us(w->engine->context);
        tidemill_computed(w->t, work->step, busy_us);
        rc = tidemill_held(w->t, work->step, w->norms, count);
        return rc < 0 ? tm_error_nomem(e) : 0;
    }
    if (rc == -(int)TM_ECANCELED) return 0;
    if (rc == -(int)TM_EPEER) { /* the coordinator hears of it too, and makes the next generation */
        tm_log(TM_LOG_INFO, "abandoning step %llu: %s", (unsigned long long)work->step, e->text);
        return 0;
    }
    if (rc != -(int)TM_EINPUT && rc != -(int)TM_ELIMIT) return rc;
    tidemill_failed(w->t, e->text);
    return 0;
}

static int apply(struct elastic *w, const struct tidemill_work *work, struct tm_error *e)
{
    double loss = NAN;
    int rc = w->engine->apply(w->engine->context, work, &loss, e);
    if (rc != 0) return rc;
    tm_log(TM_LOG_INFO, "applied step %llu of generation %llu, layout %ux%u, loss %.4f", (unsigned long long)work->step,
           (unsigned long long)work->generation, work->pipelines, work->stages, loss);
    tidemill_report_loss(w->t, work->step, loss);
    (void)tidemill_applied(w->t, work->step);
    return 0;
}

static int loop(struct elastic *w, struct tm_error *e)
{
    struct tidemill_work work;
    for (;;) {
        int rc = tidemill_next(w->t, &work);
        if (rc == 1) return 0;
        if (rc < 0) return tm_error_set(e, rc == -(int)TM_ENOMEM ? TM_ENOMEM : TM_EPEER, "%s", tidemill_reason(w->t));
        rc = work.kind == TIDEMILL_STEP ? step(w, &work, e) : apply(w, &work, e);
        if (rc != 0) return rc;
    }
}

int tm_elastic__run(struct tm_env *env, const struct tidemill_options *library, const struct tm_elastic_engine *engine,
                    struct tm_error *e)
{
    struct tm_error own;
    struct elastic w = {.env = env, .engine = engine};
    if (e == NULL) e = &own;
    w.norms = tm_calloc(engine->layers, sizeof *w.norms);
    int rc = w.norms == NULL ? tm_error_nomem(e) : open_hub(&w, library, e);
    if (rc == 0) rc = open_library(&w, library, e);
    if (rc == 0) rc = loop(&w, e);
    tidemill_close(w.t);
    tm_mesh_hub__destroy(w.hub);
    tm_tls_destroy(w.tls);
    tm_free(w.norms);
    return rc;
}
