#include "base/http_server.h"

#include "base/alloc.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

enum { WORTH_BYTES = 1200, GZIP_WINDOW = 15 + 16 };

/* "gzip" among what Accept-Encoding names, unless its weight is 0. */
static bool takes_gzip(const struct tm_http_head *head)
{
    struct tm_slice given = tm_http_header(head, "accept-encoding");
    const char *at = given.at;
    const char *end = given.at == NULL ? NULL : given.at + given.length;
    while (at != NULL && at < end) {
        while (at < end && (*at == ' ' || *at == ','))
            at++;
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        size_t length = (size_t)(stop - at);
        if (length >= 4 && strncasecmp(at, "gzip", 4) == 0) {
            const char *weight = length > 4 ? memmem(at, length, "q=", 2) : NULL;
            bool none = weight != NULL && stop - weight > 2;
            for (const char *digit = weight; none && digit != NULL && digit < stop; digit++)
                if (*digit >= '1' && *digit <= '9') none = false;
            return !none;
        }
        at = comma;
    }
    return false;
}

/* zlib asks us for memory, so that tests can make it fail. */
static voidpf give_memory(voidpf context, uInt count, uInt size)
{
    (void)context;
    return tm_calloc(count, size);
}

static void take_memory(voidpf context, voidpf memory)
{
    (void)context;
    tm_free(memory);
}

static bool pack(const char *bytes, size_t length, struct tm_text *out)
{
    union { /* zlib's type lacks const unless built so; it does not write to its input */
        const char *given;
        Bytef *taken;
    } input = {.given = bytes};
    z_stream stream = {.zalloc = give_memory, .zfree = take_memory};
    if (length > UINT32_MAX / 2 || deflateInit2(&stream, 1, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    size_t room = deflateBound(&stream, (uLong)length);
    size_t before = out->length;
    char *to = tm_text_room(out, room);
    int rc = Z_MEM_ERROR;
    if (to != NULL) {
        stream.next_in = input.taken;
        stream.avail_in = (uInt)length;
        stream.next_out = (Bytef *)to;
        stream.avail_out = (uInt)room;
        rc = deflate(&stream, Z_FINISH);
        out->length = before + (room - stream.avail_out);
    }
    (void)deflateEnd(&stream);
    return rc == Z_STREAM_END;
}

static void put_head(const struct tm_http_request *request, const struct tm_http_reply *reply, size_t length,
                     bool packed, struct tm_text *out)
{
    bool keep = request->may_keep && request->keep != NULL;
    if (keep) *request->keep = true;
    tm_text_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s%s\r\n", reply->status,
                   tm_http__reason(reply->status), reply->type, length, keep ? "" : "Connection: close\r\n",
                   packed ? "Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n" : "",
                   reply->more == NULL ? "" : reply->more);
}

void tm_http_reply(const struct tm_http_request *request, const struct tm_http_reply *reply, struct tm_text *out)
{
    bool headless = tm_slice_is(request->head->method, "HEAD");
    struct tm_text packed;
    tm_text_init(&packed, out->max);
    bool worth = reply->length >= WORTH_BYTES && takes_gzip(request->head);
    if (worth && pack(reply->body, reply->length, &packed) && packed.length < reply->length) {
        put_head(request, reply, packed.length, true, out);
        if (!headless) tm_text_append(out, packed.data, packed.length);
    } else {
        put_head(request, reply, reply->length, false, out);
        if (!headless && reply->length > 0) tm_text_append(out, reply->body, reply->length);
    }
    tm_text_deinit(&packed);
}
