/* A mesh between threads of one process: a message is one copy. */
#ifndef TM_ENGINE_MESH_LOCAL_H
#define TM_ENGINE_MESH_LOCAL_H

#include "engine/mesh.h"

struct tm_mesh_local;

/* Ends for ranks 0 .. size - 1, each for one thread. The caller owns the result. */
int tm_mesh_local_create(int size, struct tm_mesh_local **out, struct tm_error *e);
void tm_mesh_local_destroy(struct tm_mesh_local *local); /* NULL is allowed; no thread may be inside */
struct tm_mesh *tm_mesh_local_end(struct tm_mesh_local *local, int rank);
void tm_mesh_local__leave(struct tm_mesh_local *local, int rank); /* nothing of this end is held back any more */
void tm_mesh_local__cancel_all(struct tm_mesh_local *local);

/* Tests: messages are held back and put in a random order (by `seed`) as long as nobody waits for them; 0: off. */
void tm_mesh_local__shuffle(struct tm_mesh_local *local, uint64_t seed);

#endif
