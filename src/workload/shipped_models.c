#include "workload/shipped_models.h"

#include "base/embed.h"

TM_EMBED(tm_model_resnet18, "models/resnet18.tmmodel");
TM_EMBED(tm_model_resnet34, "models/resnet34.tmmodel");
TM_EMBED(tm_model_resnet50, "models/resnet50.tmmodel");
TM_EMBED(tm_model_resnet101, "models/resnet101.tmmodel");
TM_EMBED(tm_model_resnet152, "models/resnet152.tmmodel");
TM_EMBED(tm_model_vgg16, "models/vgg16.tmmodel");
TM_EMBED(tm_model_vgg19, "models/vgg19.tmmodel");
TM_EMBED(tm_model_mobilenet_v2, "models/mobilenet_v2.tmmodel");
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
    {"resnet18", tm_model_resnet18_begin, tm_model_resnet18_end},
    {"resnet34", tm_model_resnet34_begin, tm_model_resnet34_end},
    {"resnet50", tm_model_resnet50_begin, tm_model_resnet50_end},
    {"resnet101", tm_model_resnet101_begin, tm_model_resnet101_end},
    {"resnet152", tm_model_resnet152_begin, tm_model_resnet152_end},
    {"vgg16", tm_model_vgg16_begin, tm_model_vgg16_end},
    {"vgg19", tm_model_vgg19_begin, tm_model_vgg19_end},
    {"mobilenet_v2", tm_model_mobilenet_v2_begin, tm_model_mobilenet_v2_end},
    {"parcae/gpt-1.5b", tm_model_parcae_gpt_1_5b_begin, tm_model_parcae_gpt_1_5b_end},
    {"parcae/gpt-6.7b", tm_model_parcae_gpt_6_7b_begin, tm_model_parcae_gpt_6_7b_end},
    {"parcae/bert", tm_model_parcae_bert_begin, tm_model_parcae_bert_end},
    {"parcae/vgg19", tm_model_parcae_vgg19_begin, tm_model_parcae_vgg19_end},
    {"parcae/resnet152", tm_model_parcae_resnet152_begin, tm_model_parcae_resnet152_end},
};

/* Transformers by their published configurations. */
#define GPT2    "Radford et al., Language Models are Unsupervised Multitask Learners (2019)"
#define LLAMA2  "Touvron et al., Llama 2 (2023), and the released configuration"
#define LLAMA3  "Llama Team, The Llama 3 Herd of Models (2024), and the released configuration"
#define QWEN    "Qwen Team, Qwen2.5 Technical Report (2024), and the released configuration"
#define QWEN3   "Qwen Team, Qwen3 Technical Report (2025), and the released configuration"
#define GEMMA   "Gemma Team, Gemma (2024), and the released configuration"
#define GEMMA2  "Gemma Team, Gemma 2 (2024), and the released configuration"
#define GEMMA3  "Gemma Team, Gemma 3 (2025), and the released configuration; text alone, full attention in all layers"
#define GPT_OSS "OpenAI, gpt-oss (2025), and the released configuration; full attention in all layers"
#define SMOLLM  "Allal et al., SmolLM2 (2025), and the released configuration"
#define T5      "Raffel et al., T5 (JMLR 2020), and the released configuration; 512 tokens in, 114 out"
#define VIT     "Dosovitskiy et al., An Image is Worth 16x16 Words (ICLR 2021); images of 224x224"
static const struct {
    const char *name;
    const char *formula;
    const char *source;
} formulas[] = {
    {"bert-base", "bert:layers=12,hidden=768", "Devlin et al., BERT (NAACL 2019); sequence 512"},
    {"bert-large", "bert:layers=24,hidden=1024", "Devlin et al., BERT (NAACL 2019); sequence 512"},
    {"gpt2-124m", "gpt:layers=12,hidden=768", GPT2},
    {"gpt2-355m", "gpt:layers=24,hidden=1024", GPT2},
    {"gpt2-774m", "gpt:layers=36,hidden=1280", GPT2},
    {"gpt2-1.5b", "gpt:layers=48,hidden=1600", GPT2},
    {"gpt3-6.7b", "gpt:layers=32,hidden=4096,heads=32,ctx=2048",
     "Brown et al., Language Models are Few-Shot Learners (2020)"},
    {"gpt3-13b", "gpt:layers=40,hidden=5120,heads=40,ctx=2048",
     "Brown et al., Language Models are Few-Shot Learners (2020), with a width that heads of 128 divide"},
    {"gpt3-175b", "gpt:layers=96,hidden=12288,heads=96,ctx=2048",
     "Brown et al., Language Models are Few-Shot Learners (2020)"},
    {"gemma-2b", "llama:layers=18,hidden=2048,heads=8,kv_heads=1,ffn=16384,ctx=8192,vocab=256000,tied=1", GEMMA},
    {"gemma-7b", "llama:layers=28,hidden=3072,heads=16,head_dim=256,ffn=24576,ctx=8192,vocab=256000,tied=1", GEMMA},
    {"gemma-2-2b", "llama:layers=26,hidden=2304,heads=8,kv_heads=4,head_dim=256,ffn=9216,ctx=8192,vocab=256000,tied=1",
     GEMMA2},
    {"gemma-2-9b",
     "llama:layers=42,hidden=3584,heads=16,kv_heads=8,head_dim=256,ffn=14336,ctx=8192,vocab=256000,tied=1", GEMMA2},
    {"gemma-2-27b",
     "llama:layers=46,hidden=4608,heads=32,kv_heads=16,head_dim=128,ffn=36864,ctx=8192,vocab=256000,tied=1", GEMMA2},
    {"gemma-3-1b", "llama:layers=26,hidden=1152,heads=4,kv_heads=1,head_dim=256,ffn=6912,ctx=8192,vocab=262144,tied=1",
     GEMMA3},
    {"gemma-3-4b", "llama:layers=34,hidden=2560,heads=8,kv_heads=4,head_dim=256,ffn=10240,ctx=8192,vocab=262208,tied=1",
     GEMMA3},
    {"gemma-3-12b",
     "llama:layers=48,hidden=3840,heads=16,kv_heads=8,head_dim=256,ffn=15360,ctx=8192,vocab=262208,tied=1", GEMMA3},
    {"gemma-3-27b",
     "llama:layers=62,hidden=5376,heads=32,kv_heads=16,head_dim=128,ffn=21504,ctx=8192,vocab=262208,tied=1", GEMMA3},
    {"gpt-oss-20b",
     "llama:layers=24,hidden=2880,heads=64,kv_heads=8,head_dim=64,ffn=2880,ctx=4096,vocab=201088,experts=32,active=4",
     GPT_OSS},
    {"gpt-oss-120b",
     "llama:layers=36,hidden=2880,heads=64,kv_heads=8,head_dim=64,ffn=2880,ctx=4096,vocab=201088,experts=128,active=4",
     GPT_OSS},
    {"llama-7b-like", "llama:layers=32,hidden=4096,heads=32,ffn=11008", LLAMA2},
    {"llama-2-7b", "llama:layers=32,hidden=4096,heads=32,ffn=11008", LLAMA2},
    {"llama-2-13b", "llama:layers=40,hidden=5120,heads=40,ffn=13824", LLAMA2},
    {"llama-2-70b", "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672", LLAMA2},
    {"llama-3-8b", "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3-70b", "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3-405b", "llama:layers=126,hidden=16384,heads=128,kv_heads=8,ffn=53248,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3.1-8b", "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3.1-70b", "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3.1-405b", "llama:layers=126,hidden=16384,heads=128,kv_heads=8,ffn=53248,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3.3-70b", "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672,ctx=8192,vocab=128256", LLAMA3},
    {"llama-3.2-1b", "llama:layers=16,hidden=2048,heads=32,kv_heads=8,ffn=8192,ctx=8192,vocab=128256,tied=1", LLAMA3},
    {"llama-3.2-3b", "llama:layers=28,hidden=3072,heads=24,kv_heads=8,ffn=8192,ctx=8192,vocab=128256,tied=1", LLAMA3},
    {"mistral-7b", "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,ctx=8192",
     "Jiang et al., Mistral 7B (2023), and the released configuration"},
    {"mistral-nemo-12b", "llama:layers=40,hidden=5120,heads=32,kv_heads=8,head_dim=128,ffn=14336,ctx=8192,vocab=131072",
     "Mistral AI, Mistral NeMo (2024), the released configuration"},
    {"mixtral-8x7b", "llama:layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336,ctx=8192,experts=8,active=2",
     "Jiang et al., Mixtral of Experts (2024), and the released configuration"},
    {"mixtral-8x22b",
     "llama:layers=56,hidden=6144,heads=48,kv_heads=8,ffn=16384,ctx=8192,vocab=32768,experts=8,active=2",
     "Mistral AI, Mixtral 8x22B (2024), the released configuration"},
    {"qwen2.5-0.5b", "llama:layers=24,hidden=896,heads=14,kv_heads=2,ffn=4864,ctx=4096,vocab=151936,tied=1", QWEN},
    {"qwen2.5-1.5b", "llama:layers=28,hidden=1536,heads=12,kv_heads=2,ffn=8960,ctx=4096,vocab=151936,tied=1", QWEN},
    {"qwen2.5-3b", "llama:layers=36,hidden=2048,heads=16,kv_heads=2,ffn=11008,ctx=4096,vocab=151936,tied=1", QWEN},
    {"qwen2.5-7b", "llama:layers=28,hidden=3584,heads=28,kv_heads=4,ffn=18944,ctx=4096,vocab=152064", QWEN},
    {"qwen2.5-14b", "llama:layers=48,hidden=5120,heads=40,kv_heads=8,ffn=13824,ctx=4096,vocab=152064", QWEN},
    {"qwen2.5-32b", "llama:layers=64,hidden=5120,heads=40,kv_heads=8,ffn=27648,ctx=4096,vocab=152064", QWEN},
    {"qwen2.5-72b", "llama:layers=80,hidden=8192,heads=64,kv_heads=8,ffn=29568,ctx=4096,vocab=152064", QWEN},
    {"qwen3-0.6b", "llama:layers=28,hidden=1024,heads=16,kv_heads=8,head_dim=128,ffn=3072,ctx=4096,vocab=151936,tied=1",
     QWEN3},
    {"qwen3-1.7b", "llama:layers=28,hidden=2048,heads=16,kv_heads=8,head_dim=128,ffn=6144,ctx=4096,vocab=151936,tied=1",
     QWEN3},
    {"qwen3-4b", "llama:layers=36,hidden=2560,heads=32,kv_heads=8,head_dim=128,ffn=9728,ctx=4096,vocab=151936,tied=1",
     QWEN3},
    {"qwen3-8b", "llama:layers=36,hidden=4096,heads=32,kv_heads=8,ffn=12288,ctx=4096,vocab=151936", QWEN3},
    {"qwen3-14b", "llama:layers=40,hidden=5120,heads=40,kv_heads=8,ffn=17408,ctx=4096,vocab=151936", QWEN3},
    {"qwen3-32b", "llama:layers=64,hidden=5120,heads=64,kv_heads=8,head_dim=128,ffn=25600,ctx=4096,vocab=151936",
     QWEN3},
    {"qwen3-30b-a3b",
     "llama:layers=48,hidden=2048,heads=32,kv_heads=4,head_dim=128,ffn=768,ctx=4096,vocab=151936,experts=128,active=8",
     QWEN3},
    {"qwen3-235b-a22b",
     "llama:layers=94,hidden=4096,heads=64,kv_heads=4,head_dim=128,ffn=1536,ctx=4096,vocab=151936,experts=128,active=8",
     QWEN3},
    {"phi-3-mini", "llama:layers=32,hidden=3072,heads=32,ffn=8192,ctx=4096,vocab=32064",
     "Abdin et al., Phi-3 (2024), and the released configuration"},
    {"phi-4", "llama:layers=40,hidden=5120,heads=40,kv_heads=10,ffn=17920,ctx=4096,vocab=100352",
     "Abdin et al., Phi-4 (2024), and the released configuration"},
    {"smollm2-135m", "llama:layers=30,hidden=576,heads=9,kv_heads=3,ffn=1536,ctx=2048,vocab=49152,tied=1", SMOLLM},
    {"smollm2-1.7b", "llama:layers=24,hidden=2048,heads=32,ffn=8192,ctx=2048,vocab=49152,tied=1", SMOLLM},
    {"t5-small", "t5:layers=6,hidden=512,heads=8,ffn=2048", T5},
    {"t5-base", "t5:layers=12,hidden=768,heads=12,ffn=3072", T5},
    {"t5-large", "t5:layers=24,hidden=1024,heads=16,ffn=4096", T5},
    {"t5-3b", "t5:layers=24,hidden=1024,heads=32,head_dim=128,ffn=16384", T5},
    {"t5-11b", "t5:layers=24,hidden=1024,heads=128,head_dim=128,ffn=65536", T5},
    {"vit_b_16", "vit:layers=12,hidden=768", VIT},
    {"vit-b-16", "vit:layers=12,hidden=768", VIT},
    {"vit-l-16", "vit:layers=24,hidden=1024", VIT},
    {"vit_l_16", "vit:layers=24,hidden=1024", VIT},
    {"vit-h-14", "vit:layers=32,hidden=1280,heads=16,patch=14", VIT},
    {"tinyllama-1.1b", "llama:layers=22,hidden=2048,heads=32,kv_heads=4,ffn=5632,ctx=2048",
     "Zhang et al., TinyLlama (2024), and the released configuration"},
};

enum { FILES = sizeof files / sizeof *files, FORMULAS = sizeof formulas / sizeof *formulas };

size_t tm_shipped_model__count(void)
{
    return FILES + FORMULAS;
}

struct tm_shipped__model tm_shipped__model(size_t i)
{
    if (i >= FILES)
        return (struct tm_shipped__model){.name = formulas[i - FILES].name,
                                          .formula = formulas[i - FILES].formula,
                                          .source = formulas[i - FILES].source};
    return (struct tm_shipped__model){
        .name = files[i].name, .text = files[i].begin, .length = (size_t)(files[i].end - files[i].begin)};
}
