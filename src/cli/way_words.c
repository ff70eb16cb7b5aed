#include "cli/way_words.h"

const char *const tm_way_choices[] = {"any", "data", "sharded", "tensor", NULL};

int tm_given_ways(const struct tm_cli *cli, unsigned *ways, struct tm_error *e)
{
    static const unsigned meant[] = {TM_WAY_SHARDED | TM_WAY_TENSOR, 0, TM_WAY_SHARDED, TM_WAY_TENSOR};
    int choice = 0;
    int rc = tm_given_choice(cli, "parallel", &choice, e);
    if (rc == 0 && tm_given(cli, "parallel")) *ways = meant[choice];
    return rc;
}

bool tm_way_needs_own_engine(const struct tm_prediction *prediction)
{
    return prediction->zero > 0 || prediction->tensor > 1;
}

const char *tm_way_name(const struct tm_prediction *prediction)
{
    if (prediction->tensor > 1) return "tensor";
    if (prediction->zero > 0) return "sharded";
    return prediction->stages > 1 ? "pipeline" : "data";
}

void tm_way_put_short(struct tm_text *out, const struct tm_prediction *prediction)
{
    tm_text_printf(out, "%dx%d", prediction->pipelines, prediction->stages);
    if (prediction->tensor > 1) tm_text_printf(out, " tp%d", prediction->tensor);
    if (prediction->zero > 0) tm_text_printf(out, " zero%d", prediction->zero);
}

void tm_way_put_words(struct tm_text *out, const struct tm_prediction *prediction)
{
    static const char *const sharded[] = {"", "optimizer states sharded (ZeRO 1)",
                                          "optimizer states and gradients sharded (ZeRO 2)",
                                          "weights sharded, too (ZeRO 3, FSDP)"};
    if (prediction->tensor > 1)
        tm_text_printf(out, "%d GPUs of an instance compute a stage together (tensor parallel)", prediction->tensor);
    if (prediction->tensor > 1 && prediction->pipelines > 1) tm_text_puts(out, ", ");
    if (prediction->pipelines > 1 || prediction->tensor <= 1)
        tm_text_puts(out, prediction->stages > 1 ? "pipelines" : "data parallel");
    if (prediction->zero > 0) tm_text_printf(out, ", %s", sharded[prediction->zero]);
    if (prediction->zero > 0 && prediction->shards < prediction->pipelines)
        tm_text_printf(out, ", among the %d GPUs of an instance (hybrid sharding)", prediction->shards);
}

void tm_way_put_json(struct tm_jsonout *json, const struct tm_prediction *prediction)
{
    tm_jsonout_object(json, "parallel");
    tm_jsonout_string(json, "way", tm_way_name(prediction));
    tm_jsonout_integer(json, "zero", prediction->zero);
    tm_jsonout_integer(json, "shards", prediction->zero > 0 ? prediction->shards : 1);
    tm_jsonout_integer(json, "tensor", prediction->tensor > 1 ? prediction->tensor : 1);
    tm_jsonout_bool(json, "own_engine", tm_way_needs_own_engine(prediction));
    tm_jsonout_end(json);
}
