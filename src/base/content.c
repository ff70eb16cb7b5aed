#include "base/content.h"

#include "base/alloc.h"

#include <string.h>
#include <zlib.h>

enum { UNPACK_CHUNK = 1 << 16 };

/* zlib asks us for memory, so that tests can make it fail. */
static voidpf zlib_alloc(voidpf context, uInt count, uInt size)
{
    (void)context;
    return tm_calloc(count, size);
}

static void zlib_free(voidpf context, voidpf memory)
{
    (void)context;
    tm_free(memory);
}

static int inflate_all(z_stream *stream, const char *name, struct tm_text *out, struct tm_error *e)
{
    unsigned char chunk[UNPACK_CHUNK];
    for (;;) {
        stream->next_out = chunk;
        stream->avail_out = sizeof chunk;
        int status = inflate(stream, Z_NO_FLUSH);
        if (status == Z_MEM_ERROR) return tm_error_nomem(e);
        if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
            return tm_error_set(e, TM_EINPUT, "%s: damaged gzip data: %s", name,
                                stream->msg != NULL ? stream->msg : "unknown cause");
        size_t got = sizeof chunk - stream->avail_out;
        tm_text_append(out, (const char *)chunk, got);
        int rc = tm_text_status(out, e);
        if (rc != 0) return tm_error_wrap(e, rc, "%s (unpacked)", name);
        if (status == Z_STREAM_END && stream->avail_in == 0) return 0;
        if (status == Z_STREAM_END) { /* gzip files may be glued together */
            if (inflateReset(stream) != Z_OK) return tm_error_set(e, TM_EINPUT, "%s: damaged gzip data", name);
        } else if (got == 0 && stream->avail_in == 0) {
            return tm_error_set(e, TM_EINPUT, "%s: gzip data ends too early; copy the file again", name);
        }
    }
}

static int gunzip(const char *name, const char *data, size_t length, struct tm_text *out, struct tm_error *e)
{
    union { /* zlib's type lacks const unless built so; it does not write to its input */
        const char *given;
        Bytef *taken;
    } input = {.given = data};
    z_stream stream = {.zalloc = zlib_alloc, .zfree = zlib_free, .next_in = input.taken, .avail_in = (uInt)length};
    if (length > UINT32_MAX) return tm_error_set(e, TM_ELIMIT, "%s: gzip file is larger than 4 GiB", name);
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return tm_error_nomem(e);
    int rc = inflate_all(&stream, name, out, e);
    (void)inflateEnd(&stream);
    return rc;
}

static int check_text(const char *name, const char *data, size_t length, struct tm_error *e)
{
    bool only_blanks = true;
    for (size_t i = 0; i < length && only_blanks; i++)
        only_blanks = strchr(" \t\r\n", data[i]) != NULL && data[i] != '\0';
    if (only_blanks) return tm_error_set(e, TM_EINPUT, "%s: file is empty", name);
    const char *nul = memchr(data, '\0', length);
    if (nul != NULL)
        return tm_error_set(e, TM_EINPUT, "%s: binary data (a zero byte at offset %zu), expected text", name,
                            (size_t)(nul - data));
    return 0;
}

int tm_content__unpack(const char *name, const char *data, size_t length, struct tm_text *out, struct tm_error *e)
{
    size_t start = out->length;
    bool packed = length >= 2 && (unsigned char)data[0] == 0x1F && (unsigned char)data[1] == 0x8B;
    int rc = 0;
    if (packed) {
        rc = gunzip(name, data, length, out, e);
    } else {
        tm_text_append(out, data, length);
        rc = tm_text_status(out, e);
    }
    if (rc != 0) return rc;
    return check_text(name, tm_text_string(out) + start, out->length - start, e);
}

int tm_content_read(struct tm_env *env, const char *path, struct tm_text *out, struct tm_error *e)
{
    bool standard_input = strcmp(path, "-") == 0;
    struct tm_text raw;
    tm_text_init(&raw, out->max);
    int rc = env->file_read(env, standard_input ? "/dev/stdin" : path, &raw, e);
    if (rc == 0)
        rc = tm_content__unpack(standard_input ? "(standard input)" : path, tm_text_string(&raw), raw.length, out, e);
    tm_text_deinit(&raw);
    return rc;
}
