#include "base/precision.h"

#include <string.h>
#include <strings.h>

const char *const tm_precision_names[] = {"fp32", "tf32", "fp16", "bf16", "fp8", "mixed", NULL};

double tm_precision_value_bytes(enum tm_precision precision)
{
    return precision == TM_FP16 || precision == TM_BF16 || precision == TM_FP8 ? 2 : 4;
}

int tm_precision_find(const char *text, size_t length)
{
    static const struct {
        const char *name;
        enum tm_precision precision;
    } names[] = {
        {"fp32", TM_FP32},       {"float32", TM_FP32},    {"float", TM_FP32},   {"single", TM_FP32},
        {"tf32", TM_TF32},       {"fp16", TM_FP16},       {"float16", TM_FP16}, {"half", TM_FP16},
        {"16-mixed", TM_FP16},   {"fp16-mixed", TM_FP16}, {"bf16", TM_BF16},    {"bfloat16", TM_BF16},
        {"bf16-mixed", TM_BF16}, {"fp8", TM_FP8},         {"float8", TM_FP8},
    };
    static const char prefix[] = "torch.";
    if (length > sizeof prefix - 1 && strncasecmp(text, prefix, sizeof prefix - 1) == 0) {
        text += sizeof prefix - 1;
        length -= sizeof prefix - 1;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i].name) == length && strncasecmp(names[i].name, text, length) == 0)
            return (int)names[i].precision;
    }
    return -1;
}
