/* What the options that predict, plan and simulate share say of what is to be trained. */
#ifndef TM_CLI_KNOWLEDGE_SOURCE_H
#define TM_CLI_KNOWLEDGE_SOURCE_H

#include "cli/command.h"
#include "job/knowledge.h"

/* --profile, --profile-gpu, --model and --network, where they are given. */
struct tm_knowledge_source tm_cmd_source(const struct tm_cli *cli);

/* predict --workers: data-parallel workers that are each like the one that was profiled. */
int tm_predict_workers(struct tm_cli *cli, const struct tm_catalog *catalog, struct tm_knowledge *knowledge,
                       struct tm_error *e);

#endif
