/* As much of HTTP/1.1 as metadata services and our own API speak: heads, bodies of known length or in chunks, and
 * queries.
 *
 * Readers of bytes only, so that they can be fuzzed; they keep nothing and allocate nothing. A head is given up once it
 * is longer than TM_HTTP_HEAD_MAX or has more than TM_HTTP_HEADERS_MAX headers. */
#ifndef TM_BASE_HTTP_H
#define TM_BASE_HTTP_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_HTTP_HEAD_MAX = 8192, TM_HTTP_HEADERS_MAX = 48 };

struct tm_slice { /* of the bytes that were read; borrowed */
    const char *at;
    size_t length;
};

struct tm_http_head {
    struct tm_slice method; /* of a request */
    struct tm_slice target; /* of a request: path and query */
    int status;             /* of a response */
    struct {
        struct tm_slice name;
        struct tm_slice value;
    } headers[TM_HTTP_HEADERS_MAX];
    size_t header_count;
    size_t length; /* with the empty line that ends it */
};

/* -TM_EBUSY: more bytes are needed; -TM_EINPUT: no such head; -TM_ELIMIT: too long. */
int tm_http_read_request(const char *bytes, size_t length, struct tm_http_head *out, struct tm_error *e);
int tm_http__read_response(const char *bytes, size_t length, struct tm_http_head *out, struct tm_error *e);

/* The body behind a head, put in `out`, whose limit is the body's; `closed`: no more bytes will come. The same codes.
 */
/* The value of Content-Length; false: it is no plain number. */
bool tm_http__read_length(struct tm_slice given, int64_t *out);
int tm_http__read_body(const struct tm_http_head *head, const char *bytes, size_t length, bool closed,
                       struct tm_text *out, struct tm_error *e);

/* The value of a header, whatever the case of its name; NULL at `at` where there is none. */
struct tm_slice tm_http_header(const struct tm_http_head *head, const char *name);
/* The path of a target, without query and without slashes at its end. */
struct tm_slice tm_http_path(struct tm_slice target);
/* The value of a query's parameter as it stands there; NULL at `at` where there is none. */
struct tm_slice tm_http_query(struct tm_slice target, const char *name);

/* Appends a whole response after which the connection ends. `more`: further headers, each with its line's end. */
void tm_http_respond(struct tm_text *out, int status, const char *type, const char *more, const char *body);
/* The words of a status. */
const char *tm_http__reason(int status);
/* One without content. */
void tm_http_refuse(struct tm_text *out, int status);

bool tm_slice_is(struct tm_slice slice, const char *text);
bool tm_slice_is_any_case(struct tm_slice slice, const char *text);

#endif
