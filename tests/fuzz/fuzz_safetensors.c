/* Tensors in a file: what is accepted lies inside the file, fills it without gaps, and is written back readably. */
#include "base/env_virtual.h"
#include "engine/safetensors.h"
#include "fuzz.h"

#include <string.h>

static void check_inside(const struct tm_safetensors *file, const uint8_t *data, size_t size)
{
    const uint8_t *at = NULL;
    for (size_t i = 0; i < file->count; i++) {
        const uint8_t *tensor = file->tensors[i].data;
        assert(tensor >= data && tensor + file->tensors[i].bytes <= data + size);
        assert(at == NULL || tensor == at);
        at = tensor + file->tensors[i].bytes;
        assert(tm_safetensors__find(file, file->tensors[i].name) != NULL);
    }
}

static void round_trip(const struct tm_safetensors *file)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_safetensors again;
    struct tm_hash hash;
    struct tm_error e;
    for (size_t i = 0; i < file->count; i++) {
        if (file->tensors[i].dtype == TM_DTYPE_OTHER || file->tensors[i].bytes == 0) {
            tm_env_virtual_destroy(env); /* kinds that we read but never write; empty ones have no order */
            return;
        }
    }
    assert(tm_safetensors__write(env, "f", file->tensors, file->count, &hash, &e) == 0);
    assert(tm_safetensors__open(env, "f", &again, &e) == 0);
    assert(again.count == file->count && tm_hash_equal(again.hash, hash));
    for (size_t i = 0; i < file->count; i++) {
        assert(strcmp(again.tensors[i].name, file->tensors[i].name) == 0);
        assert(again.tensors[i].bytes == file->tensors[i].bytes);
        assert(memcmp(again.tensors[i].data, file->tensors[i].data, file->tensors[i].bytes) == 0);
    }
    tm_safetensors__close(&again);
    tm_env_virtual_destroy(env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_safetensors file;
    struct tm_error e;
    if (tm_safetensors__parse("fuzz", data, size, &file, &e) == 0) {
        check_inside(&file, data, size);
        round_trip(&file);
        tm_safetensors__close(&file);
    }
    assert(tm_alloc_live() == 0);
    return 0;
}
