/* Ways to train in parallel, in words: what a prediction's figures assume. */
#ifndef TM_CLI_WAY_WORDS_H
#define TM_CLI_WAY_WORDS_H

#include "base/jsonout.h"
#include "base/text.h"
#include "cli/command.h"
#include "workload/predict.h"

/* Values of --parallel, and what they mean for tm_predict_request's ways. */
extern const char *const tm_way_choices[];
int tm_given_ways(const struct tm_cli *cli, unsigned *ways, struct tm_error *e);

/* "data", "pipeline", "sharded" or "tensor". */
const char *tm_way_name(const struct tm_prediction *prediction);
/* As a table has room for: "8x1", "64x1 zero3", "2x4 tp8". */
void tm_way_put_short(struct tm_text *out, const struct tm_prediction *prediction);
/* "data parallel, weights sharded, too (ZeRO 3, FSDP)" */
void tm_way_put_words(struct tm_text *out, const struct tm_prediction *prediction);
/* {"way","zero","shards","tensor","own_engine"} */
void tm_way_put_json(struct tm_jsonout *json, const struct tm_prediction *prediction);
/* Our runtime does data parallel and pipelines; what else there is needs an engine of the user's own. */
bool tm_way_needs_own_engine(const struct tm_prediction *prediction);

#endif
