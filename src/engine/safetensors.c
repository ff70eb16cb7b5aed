#include "engine/safetensors.h"

#include "base/alloc.h"
#include "base/doc.h"
#include "base/jsonout.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8, HEADER_ALIGN = 8 };

static const char *const dtype_names[] = {"F32", "I32"};

/* ---- writing ---- */

static void put_header_json(const struct tm_named_tensor *tensors, size_t count, struct tm_text *out)
{
    struct tm_jsonout json;
    size_t offset = 0;
    tm_jsonout_init(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_object(&json, "__metadata__");
    tm_jsonout_string(&json, "format", "pt"); /* what Hugging Face's loaders look for */
    tm_jsonout_end(&json);
    for (size_t i = 0; i < count; i++) {
        tm_jsonout_object(&json, tensors[i].name);
        tm_jsonout_string(&json, "dtype", dtype_names[tensors[i].dtype]);
        tm_jsonout_list(&json, "shape");
        for (int d = 0; d < tensors[i].dims; d++)
            tm_jsonout_integer(&json, NULL, tensors[i].shape[d]);
        tm_jsonout_end(&json);
        tm_jsonout_list(&json, "data_offsets");
        tm_jsonout_integer(&json, NULL, (int64_t)offset);
        offset += tensors[i].bytes;
        tm_jsonout_integer(&json, NULL, (int64_t)offset);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    tm_jsonout_end(&json);
}

/* Length and header, padded with blanks so that the data is aligned. */
static int make_header(const struct tm_named_tensor *tensors, size_t count, struct tm_text *out, struct tm_error *e)
{
    tm_text_fill(out, '\0', LENGTH_BYTES);
    put_header_json(tensors, count, out);
    tm_text_fill(out, ' ', (HEADER_ALIGN - out->length % HEADER_ALIGN) % HEADER_ALIGN);
    int rc = tm_text_status(out, e);
    if (rc != 0) return rc;
    uint64_t length = out->length - LENGTH_BYTES;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        out->data[i] = (char)(length >> 8 * i & 0xFF);
    return 0;
}

int tm_safetensors__write(struct tm_env *env, const char *path, const struct tm_named_tensor *tensors, size_t count,
                          struct tm_hash *out_hash, struct tm_error *e)
{
    struct tm_text header;
    tm_text_init(&header, TM_SAFETENSORS_HEADER_MAX);
    struct tm_part *parts = tm_calloc(count + 1, sizeof *parts);
    struct tm_hash *hashes = tm_calloc(count + 1, sizeof *hashes);
    int rc = parts == NULL || hashes == NULL ? tm_error_nomem(e) : make_header(tensors, count, &header, e);
    if (rc == 0) {
        parts[0] = (struct tm_part){.data = header.data, .length = header.length};
        for (size_t i = 0; i < count; i++)
            parts[i + 1] = (struct tm_part){.data = tensors[i].data, .length = tensors[i].bytes};
        for (size_t i = 0; i <= count; i++)
            hashes[i] = tm_hash_of(parts[i].data, parts[i].length);
        rc = env->file_write_parts(env, path, parts, count + 1, e);
    }
    if (rc == 0) *out_hash = tm_hash_of(hashes, (count + 1) * sizeof *hashes);
    tm_free(parts);
    tm_free(hashes);
    tm_text_deinit(&header);
    return rc;
}

/* ---- reading ---- */

struct reader {
    const char *name; /* of the file */
    struct tm_safetensors *file;
    const unsigned char *data; /* behind the header */
    size_t data_length;
    struct tm_error *e;
};

static int complain(const struct reader *reader, const char *tensor, const char *what)
{
    return tm_error_set(reader->e, TM_EINPUT, "%s: tensor \"%.80s\": %s", reader->name, tensor, what);
}

static int read_shape(const struct reader *reader, const char *key, const json_t *shape, struct tm_named_tensor *out,
                      uint64_t *out_elements)
{
    uint64_t elements = 1;
    if (!json_is_array(shape) || json_array_size(shape) > TM_SAFETENSORS_DIMS_MAX)
        return complain(reader, key, "shape is not a list of at most 8 numbers");
    out->dims = (int)json_array_size(shape);
    for (int d = 0; d < out->dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        int64_t value = json_is_integer(size) ? json_integer_value(size) : -1;
        if (value < 0 || __builtin_mul_overflow(elements, (uint64_t)value, &elements))
            return complain(reader, key, "shape has a value that is not a number, negative or too large");
        out->shape[d] = value;
    }
    *out_elements = elements;
    return 0;
}

static int read_offsets(const struct reader *reader, const char *key, const json_t *offsets,
                        struct tm_named_tensor *out)
{
    const json_t *first = json_array_get(offsets, 0);
    const json_t *last = json_array_get(offsets, 1);
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return complain(reader, key, "data_offsets is not a pair of numbers");
    int64_t begin = json_integer_value(first);
    int64_t end = json_integer_value(last);
    if (begin < 0 || end < begin) return complain(reader, key, "data_offsets run backwards");
    if ((uint64_t)end > reader->data_length)
        return complain(reader, key, "its data is past the end of the file: the file is truncated");
    out->data = reader->data + begin;
    out->bytes = (size_t)(end - begin);
    return 0;
}

static int read_tensor(const struct reader *reader, const char *key, const json_t *value, struct tm_named_tensor *out)
{
    uint64_t elements = 0;
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!json_is_object(value) || dtype == NULL) return complain(reader, key, "no dtype is given");
    out->dtype = strcmp(dtype, "F32") == 0 ? TM_DTYPE_F32 : strcmp(dtype, "I32") == 0 ? TM_DTYPE_I32 : TM_DTYPE_OTHER;
    int rc = read_shape(reader, key, json_object_get(value, "shape"), out, &elements);
    if (rc == 0) rc = read_offsets(reader, key, json_object_get(value, "data_offsets"), out);
    if (rc != 0) return rc;
    if (out->dtype != TM_DTYPE_OTHER && (elements > out->bytes || elements * 4 != out->bytes))
        return complain(reader, key, "shape and data_offsets do not agree");
    out->name = tm_arena_strdup(&reader->file->arena, key);
    return out->name != NULL ? 0 : tm_error_nomem(reader->e);
}

static int by_place(const void *a, const void *b)
{
    const struct tm_named_tensor *x = a;
    const struct tm_named_tensor *y = b;
    if (x->data != y->data) return (const char *)x->data < (const char *)y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes ? 1 : 0;
}

/* Tensors must fill the data without gaps and overlaps. */
static int check_places(const struct reader *reader)
{
    const unsigned char *at = reader->data;
    for (size_t i = 0; i < reader->file->count; i++) {
        const struct tm_named_tensor *tensor = &reader->file->tensors[i];
        if (tensor->data != at) return complain(reader, tensor->name, "its data overlaps another's or leaves a gap");
        at += tensor->bytes;
    }
    if (at == reader->data + reader->data_length) return 0;
    return tm_error_set(reader->e, TM_EINPUT, "%s: %zu bytes after the last tensor", reader->name,
                        (size_t)(reader->data + reader->data_length - at));
}

static int read_tensors(const struct reader *reader, json_t *root)
{
    const char *key = NULL;
    json_t *value = NULL;
    struct tm_safetensors *file = reader->file;
    size_t count = json_object_size(root);
    if (!json_is_object(root)) return tm_error_set(reader->e, TM_EINPUT, "%s: its header is not a map", reader->name);
    if (count > TM_SAFETENSORS_TENSORS_MAX)
        return tm_error_set(reader->e, TM_ELIMIT, "%s: %zu tensors, more than the limit of %d", reader->name, count,
                            TM_SAFETENSORS_TENSORS_MAX);
    file->tensors = tm_arena_alloc(&file->arena, (count + 1) * sizeof *file->tensors);
    if (file->tensors == NULL) return tm_error_nomem(reader->e);
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) continue;
        int rc = read_tensor(reader, key, value, &file->tensors[file->count]);
        if (rc != 0) return rc;
        file->count++;
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    return check_places(reader);
}

static int hash_file(struct tm_safetensors *file, size_t header_bytes, struct tm_error *e)
{
    struct tm_hash *hashes = tm_calloc(file->count + 1, sizeof *hashes);
    if (hashes == NULL) return tm_error_nomem(e);
    hashes[0] = tm_hash_of(file->data, header_bytes);
    for (size_t i = 0; i < file->count; i++)
        hashes[i + 1] = tm_hash_of(file->tensors[i].data, file->tensors[i].bytes);
    file->hash = tm_hash_of(hashes, (file->count + 1) * sizeof *hashes);
    tm_free(hashes);
    return 0;
}

int tm_safetensors__parse(const char *name, const void *data, size_t length, struct tm_safetensors *out,
                          struct tm_error *e)
{
    const unsigned char *bytes = data;
    uint64_t header = 0;
    if (length < LENGTH_BYTES)
        return tm_error_set(e, TM_EINPUT, "%s: %zu bytes are too few for a safetensors file: it is truncated", name,
                            length);
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        header |= (uint64_t)bytes[i] << 8 * i;
    if (header > TM_SAFETENSORS_HEADER_MAX || header > length - LENGTH_BYTES)
        return tm_error_set(
            e, TM_EINPUT,
            "%s: the header claims %llu bytes, but the file has %zu; it is truncated or not a safetensors file", name,
            (unsigned long long)header, length);
    struct tm_safetensors file = {.data = data, .length = length};
    tm_arena_init(&file.arena, 64 << 20);
    struct reader reader = {.name = name,
                            .file = &file,
                            .data = bytes + LENGTH_BYTES + header,
                            .data_length = length - LENGTH_BYTES - (size_t)header,
                            .e = e};
    json_t *root = NULL;
    int rc = tm_json_load(name, (const char *)bytes + LENGTH_BYTES, (size_t)header, &root, e);
    if (rc == 0) rc = read_tensors(&reader, root);
    if (rc == 0) rc = hash_file(&file, LENGTH_BYTES + (size_t)header, e);
    json_decref(root);
    if (rc != 0) {
        tm_arena_deinit(&file.arena);
        return rc;
    }
    *out = file;
    return 0;
}

int tm_safetensors__open(struct tm_env *env, const char *path, struct tm_safetensors *out, struct tm_error *e)
{
    const void *data = NULL;
    size_t length = 0;
    int rc = env->file_map(env, path, &data, &length, e);
    if (rc != 0) return rc;
    struct tm_safetensors file;
    rc = tm_safetensors__parse(path, data, length, &file, e);
    if (rc != 0) {
        env->file_unmap(env, data, length);
        return rc;
    }
    file.env = env;
    *out = file;
    return 0;
}

void tm_safetensors__close(struct tm_safetensors *file)
{
    tm_arena_deinit(&file->arena);
    if (file->env != NULL) file->env->file_unmap(file->env, file->data, file->length);
    *file = (struct tm_safetensors){0};
}

const struct tm_named_tensor *tm_safetensors__find(const struct tm_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    }
    return NULL;
}
