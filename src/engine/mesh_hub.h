/* One worker's door to the meshes of all generations: sockets by which its peers reach it for as long as it lives.
 *
 * A mesh is formed from the members of a generation, by rank. Forming waits for nobody: the hub's thread dials members
 * of a smaller rank, lets those of a larger one in, and reads whatever comes, so that nobody who sends waits for
 * somebody to ask. Who connects names the generation: an older one is turned away, a later one waits until this worker
 * gets there too. Both sides prove that they know the job's token; off loopback everything is TLS with the job's
 * certificates.
 *
 * A mesh that was cancelled, or in which a member was lost, is not mended: the next generation has one of its own. */
#ifndef TM_ENGINE_MESH_HUB_H
#define TM_ENGINE_MESH_HUB_H

#include "base/env.h"
#include "engine/mesh.h"
#include "wire/tls.h"

struct tm_mesh_hub;

struct tm_mesh_hub_options {
    const char *listen; /* HOST:PORT; port 0 picks one */
    const char *token;  /* copied */
    uint64_t job;
    uint64_t instance;  /* who we are; > 0 */
    struct tm_tls *tls; /* borrowed; NULL: loopback only */
    /* Whose data is waited for, 0 when none is any more. By the thread that uses the mesh; may be NULL. */
    void (*waiting)(void *context, uint64_t instance);
    void *context;
};

/* The caller owns the result. */
int tm_mesh_hub__create(struct tm_env *env, const struct tm_mesh_hub_options *options, struct tm_mesh_hub **out,
                        struct tm_error *e);
void tm_mesh_hub__destroy(struct tm_mesh_hub *hub); /* NULL is allowed */
const char *tm_mesh_hub__address(const struct tm_mesh_hub *hub);

struct tm_mesh_member {
    uint64_t instance;
    const char *endpoint; /* its hub's address; copied */
};

/* The mesh of a generation, later than any before; it belongs to the hub and replaces the one before, which must not be
 * used any more. By the thread that uses the mesh. */
int tm_mesh_hub__form(struct tm_mesh_hub *hub, uint64_t generation, int rank, const struct tm_mesh_member *members,
                      int size, struct tm_mesh **out, struct tm_error *e);
/* From any thread: the mesh in force is cancelled at once. */
void tm_mesh_hub__cancel(struct tm_mesh_hub *hub);

#endif
