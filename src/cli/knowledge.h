/* What predict and plan know before they start: the GPU's figures, and what a profile of the user's teaches. */
#ifndef TM_CLI_KNOWLEDGE_H
#define TM_CLI_KNOWLEDGE_H

#include "cli/command.h"
#include "market/catalog.h"
#include "workload/comm.h"

struct tm_knowledge {
    struct tm_profile profile;
    struct tm_compute_model compute; /* learned from the profile, or the prior */
    struct tm_comm_model comm;       /* likewise, from data-parallel runs */
    const char *gpu;                 /* that the profile was taken on; "" without one */
    /* Measured steps of the model in question at the precision in question. */
    int *batches;
    double *ms;
    size_t count;
    /* Its gradients in the order in which they become ready, where the profile has them. */
    struct tm_comm_bucket *gradients;
    size_t gradient_count;
};

void tm_knowledge_init(struct tm_knowledge *knowledge);
void tm_knowledge_deinit(struct tm_knowledge *knowledge);

/* Reads the profile of --profile, if one was given. */
int tm_knowledge_learn(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_model *model,
                       enum tm_precision precision, struct tm_knowledge *knowledge, struct tm_error *e);

/* A GPU of the catalogue by any of its names; unknown ones get a suggestion. */
int tm_knowledge_gpu(const struct tm_catalog *catalog, const char *name, struct tm_gpu_figures *out,
                     struct tm_error *e);

/* The GPU a profile was taken on: --profile-gpu, else what the file says, else a GPU whose name is in the file's name,
 * else H200. */
int tm_knowledge_profile_gpu(struct tm_cli *cli, const struct tm_catalog *catalog, const struct tm_profile *profile,
                             const char *path, const char *option, struct tm_gpu_figures *out, struct tm_error *e);

/* The layers of a network of a profile, by name; context is the cli. Names may carry the context length behind the
 * model's name: gpt2-124m-1024. */
bool tm_knowledge_network(void *context, const char *network, struct tm_network *out);

#endif
