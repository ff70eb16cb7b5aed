#include "workload/shipped_models.h"

#include "base/embed.h"

TM_EMBED(tm_model_resnet50, "models/resnet50.tmmodel");
TM_EMBED(tm_model_resnet152, "models/resnet152.tmmodel");
TM_EMBED(tm_model_vgg19, "models/vgg19.tmmodel");
TM_EMBED(tm_model_mobilenet_v2, "models/mobilenet_v2.tmmodel");
TM_EMBED(tm_model_vit_b_16, "models/vit_b_16.tmmodel");
TM_EMBED(tm_model_bert_large, "models/bert-large.tmmodel");
TM_EMBED(tm_model_gpt2_124m, "models/gpt2-124m.tmmodel");
TM_EMBED(tm_model_gpt2_355m, "models/gpt2-355m.tmmodel");
TM_EMBED(tm_model_gpt2_774m, "models/gpt2-774m.tmmodel");
TM_EMBED(tm_model_gpt2_1_5b, "models/gpt2-1.5b.tmmodel");
TM_EMBED(tm_model_gpt3_6_7b, "models/gpt3-6.7b.tmmodel");
TM_EMBED(tm_model_llama_7b_like, "models/llama-7b-like.tmmodel");
TM_EMBED(tm_model_parcae_gpt_1_5b, "models/parcae/gpt-1.5b.tmmodel");
TM_EMBED(tm_model_parcae_gpt_6_7b, "models/parcae/gpt-6.7b.tmmodel");
TM_EMBED(tm_model_parcae_bert, "models/parcae/bert.tmmodel");
TM_EMBED(tm_model_parcae_vgg19, "models/parcae/vgg19.tmmodel");
TM_EMBED(tm_model_parcae_resnet152, "models/parcae/resnet152.tmmodel");

static const struct {
    const char *name;
    const char *begin;
    const char *end;
} files[] = {
    {"resnet50", tm_model_resnet50_begin, tm_model_resnet50_end},
    {"resnet152", tm_model_resnet152_begin, tm_model_resnet152_end},
    {"vgg19", tm_model_vgg19_begin, tm_model_vgg19_end},
    {"mobilenet_v2", tm_model_mobilenet_v2_begin, tm_model_mobilenet_v2_end},
    {"vit_b_16", tm_model_vit_b_16_begin, tm_model_vit_b_16_end},
    {"bert-large", tm_model_bert_large_begin, tm_model_bert_large_end},
    {"gpt2-124m", tm_model_gpt2_124m_begin, tm_model_gpt2_124m_end},
    {"gpt2-355m", tm_model_gpt2_355m_begin, tm_model_gpt2_355m_end},
    {"gpt2-774m", tm_model_gpt2_774m_begin, tm_model_gpt2_774m_end},
    {"gpt2-1.5b", tm_model_gpt2_1_5b_begin, tm_model_gpt2_1_5b_end},
    {"gpt3-6.7b", tm_model_gpt3_6_7b_begin, tm_model_gpt3_6_7b_end},
    {"llama-7b-like", tm_model_llama_7b_like_begin, tm_model_llama_7b_like_end},
    {"parcae/gpt-1.5b", tm_model_parcae_gpt_1_5b_begin, tm_model_parcae_gpt_1_5b_end},
    {"parcae/gpt-6.7b", tm_model_parcae_gpt_6_7b_begin, tm_model_parcae_gpt_6_7b_end},
    {"parcae/bert", tm_model_parcae_bert_begin, tm_model_parcae_bert_end},
    {"parcae/vgg19", tm_model_parcae_vgg19_begin, tm_model_parcae_vgg19_end},
    {"parcae/resnet152", tm_model_parcae_resnet152_begin, tm_model_parcae_resnet152_end},
};

size_t tm_shipped_model_count(void)
{
    return sizeof files / sizeof *files;
}

struct tm_shipped_model tm_shipped_model(size_t i)
{
    return (struct tm_shipped_model){files[i].name, files[i].begin, (size_t)(files[i].end - files[i].begin)};
}
