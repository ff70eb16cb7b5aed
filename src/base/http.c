#include "base/http.h"

#include "base/number.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

bool tm_slice_is(struct tm_slice slice, const char *text)
{
    return slice.at != NULL && strlen(text) == slice.length && memcmp(slice.at, text, slice.length) == 0;
}

bool tm_slice_is_any_case(struct tm_slice slice, const char *text)
{
    return slice.at != NULL && strlen(text) == slice.length && strncasecmp(slice.at, text, slice.length) == 0;
}

static struct tm_slice slice_of(const char *from, const char *to)
{
    return (struct tm_slice){.at = from, .length = (size_t)(to - from)};
}

/* The next line, without its end; false where its end has not come. */
static bool next_line(const char *bytes, size_t length, size_t *at, struct tm_slice *out)
{
    const char *from = bytes + *at;
    const char *end = memchr(from, '\n', length - *at);
    if (end == NULL) return false;
    *at = (size_t)(end - bytes) + 1;
    if (end > from && end[-1] == '\r') end--;
    *out = slice_of(from, end);
    return true;
}

static bool is_token(struct tm_slice slice)
{
    for (size_t i = 0; i < slice.length; i++) {
        unsigned char c = (unsigned char)slice.at[i];
        if (!isalnum(c) && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL)) return false;
    }
    return slice.length > 0;
}

/* Text that may stand in a target or a value: nothing that steers a terminal or ends a string. */
static bool is_printable(struct tm_slice slice)
{
    for (size_t i = 0; i < slice.length; i++) {
        unsigned char c = (unsigned char)slice.at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return false;
    }
    return true;
}

static bool read_header(struct tm_slice line, struct tm_http_head *out)
{
    const char *colon = memchr(line.at, ':', line.length);
    if (colon == NULL || out->header_count == TM_HTTP_HEADERS_MAX) return false;
    const char *from = colon + 1;
    const char *to = line.at + line.length;
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    struct tm_slice name = slice_of(line.at, colon);
    struct tm_slice value = slice_of(from, to);
    if (!is_token(name) || !is_printable(value)) return false;
    out->headers[out->header_count].name = name;
    out->headers[out->header_count++].value = value;
    return true;
}

/* Where the first line ended, up to the empty line. */
static int read_headers(const char *bytes, size_t length, size_t at, struct tm_http_head *out, struct tm_error *e)
{
    struct tm_slice line;
    while (next_line(bytes, length, &at, &line)) {
        if (line.length == 0) {
            out->length = at;
            return at > TM_HTTP_HEAD_MAX ? tm_error_set(e, TM_ELIMIT, "headers of more than %d bytes", TM_HTTP_HEAD_MAX)
                                         : 0;
        }
        if (out->header_count == TM_HTTP_HEADERS_MAX)
            return tm_error_set(e, TM_ELIMIT, "more than %d headers", TM_HTTP_HEADERS_MAX);
        if (!read_header(line, out))
            return tm_error_set(e, TM_EINPUT, "header %zu is malformed", out->header_count + 1);
    }
    if (length >= TM_HTTP_HEAD_MAX)
        return tm_error_set(e, TM_ELIMIT, "headers of more than %d bytes", TM_HTTP_HEAD_MAX);
    return tm_error_set(e, TM_EBUSY, "the headers are incomplete");
}

static int first_line(const char *bytes, size_t length, size_t *at, struct tm_slice *out, struct tm_error *e)
{
    if (next_line(bytes, length, at, out)) return 0;
    if (length >= TM_HTTP_HEAD_MAX) return tm_error_set(e, TM_ELIMIT, "the first line does not end");
    return tm_error_set(e, TM_EBUSY, "the headers are incomplete");
}

/* Who stands before us may have gone by the other one. */
static int check_repeated(const struct tm_http_head *head, struct tm_error *e)
{
    static const char *const once[] = {"host", "origin", "authorization", "content-length", NULL};
    for (const char *const *name = once; *name != NULL; name++) {
        struct tm_slice first = tm_http_header(head, *name);
        bool length = strcmp(*name, "content-length") == 0; /* the same one twice says the same */
        for (size_t i = 0; i < head->header_count; i++) {
            struct tm_slice value = head->headers[i].value;
            if (!tm_slice_is_any_case(head->headers[i].name, *name) || value.at == first.at) continue;
            if (length && value.length == first.length && memcmp(value.at, first.at, value.length) == 0) continue;
            return tm_error_set(e, TM_EINPUT, "two headers %s%s", *name, length ? " that differ" : "");
        }
    }
    return 0;
}

/* Digits alone: to somebody before us "+3" may be no number, and the body the next request. */
bool tm_http__read_length(struct tm_slice given, int64_t *out)
{
    return given.length > 0 && given.at[0] >= '0' && given.at[0] <= '9' && tm_number_i64(given.at, given.length, out);
}

int tm_http_read_request(const char *bytes, size_t length, struct tm_http_head *out, struct tm_error *e)
{
    struct tm_slice line;
    size_t at = 0;
    *out = (struct tm_http_head){0};
    int rc = first_line(bytes, length, &at, &line, e);
    if (rc != 0) return rc;
    const char *end = line.at + line.length;
    const char *space = memchr(line.at, ' ', line.length);
    const char *second = space == NULL ? NULL : memchr(space + 1, ' ', (size_t)(end - space - 1));
    if (second == NULL) return tm_error_set(e, TM_EINPUT, "no request line");
    struct tm_slice version = slice_of(second + 1, end);
    out->method = slice_of(line.at, space);
    out->target = slice_of(space + 1, second);
    bool known = tm_slice_is(version, "HTTP/1.1") || tm_slice_is(version, "HTTP/1.0");
    if (!known || !is_token(out->method) || out->target.length == 0 || out->target.at[0] != '/' ||
        !is_printable(out->target))
        return tm_error_set(e, TM_EINPUT, "no request line");
    rc = read_headers(bytes, length, at, out, e);
    return rc == 0 ? check_repeated(out, e) : rc;
}

int tm_http__read_response(const char *bytes, size_t length, struct tm_http_head *out, struct tm_error *e)
{
    struct tm_slice line;
    size_t at = 0;
    int64_t status = 0;
    *out = (struct tm_http_head){0};
    int rc = first_line(bytes, length, &at, &line, e);
    if (rc != 0) return rc;
    bool known = line.length >= 12 && (memcmp(line.at, "HTTP/1.1 ", 9) == 0 || memcmp(line.at, "HTTP/1.0 ", 9) == 0);
    if (!known || !tm_number_i64(line.at + 9, 3, &status) || status < 100 || status > 599 ||
        (line.length > 12 && line.at[12] != ' '))
        return tm_error_set(e, TM_EINPUT, "no status line");
    out->status = (int)status;
    return read_headers(bytes, length, at, out, e);
}

static bool read_hex(struct tm_slice text, size_t *out)
{
    size_t value = 0;
    size_t i = 0;
    for (; i < text.length && isxdigit((unsigned char)text.at[i]); i++) {
        int c = tolower((unsigned char)text.at[i]);
        value = value * 16 + (size_t)(c <= '9' ? c - '0' : c - 'a' + 10);
        if (value > (size_t)1 << 40) return false;
    }
    *out = value;
    return i > 0 && (i == text.length || text.at[i] == ';' || text.at[i] == ' ');
}

static int too_long(const struct tm_text *out, struct tm_error *e)
{
    return tm_error_set(e, TM_ELIMIT, "body of more than %zu bytes", out->max);
}

static int read_chunks(const char *bytes, size_t length, struct tm_text *out, struct tm_error *e)
{
    struct tm_slice line;
    size_t at = 0;
    while (next_line(bytes, length, &at, &line)) {
        size_t size = 0;
        if (!read_hex(line, &size)) return tm_error_set(e, TM_EINPUT, "a chunk without a length");
        if (size == 0) return tm_text_status(out, e); /* what may follow is of no interest */
        if (size > out->max - out->length) return too_long(out, e);
        if (length - at < size + 2) break;
        if (memcmp(bytes + at + size, "\r\n", 2) != 0) return tm_error_set(e, TM_EINPUT, "a chunk that does not end");
        tm_text_append(out, bytes + at, size);
        at += size + 2;
    }
    return tm_error_set(e, TM_EBUSY, "the body is incomplete");
}

int tm_http__read_body(const struct tm_http_head *head, const char *bytes, size_t length, bool closed,
                       struct tm_text *out, struct tm_error *e)
{
    struct tm_slice coding = tm_http_header(head, "transfer-encoding");
    struct tm_slice given = tm_http_header(head, "content-length");
    if (length / 2 > out->max) return too_long(out, e);
    if (coding.at != NULL) {
        if (!tm_slice_is_any_case(coding, "chunked")) return tm_error_set(e, TM_EINPUT, "unknown transfer encoding");
        tm_text_clear(out);
        int rc = read_chunks(bytes, length, out, e);
        if (rc == -(int)TM_EBUSY && closed) rc = tm_error_set(e, TM_EINPUT, "the body ended early");
        return rc;
    }
    int64_t size = (int64_t)length;
    if (given.at != NULL && !tm_http__read_length(given, &size))
        return tm_error_set(e, TM_EINPUT, "Content-Length is not a number");
    if ((uint64_t)size > out->max) return too_long(out, e);
    bool whole = given.at != NULL ? length >= (size_t)size : closed;
    if (!whole && closed) return tm_error_set(e, TM_EINPUT, "the body ended early");
    if (!whole) return tm_error_set(e, TM_EBUSY, "the body is incomplete");
    tm_text_clear(out);
    tm_text_append(out, bytes, (size_t)size);
    return tm_text_status(out, e);
}

struct tm_slice tm_http_header(const struct tm_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++) {
        if (tm_slice_is_any_case(head->headers[i].name, name)) return head->headers[i].value;
    }
    return (struct tm_slice){0};
}

struct tm_slice tm_http_path(struct tm_slice target)
{
    const char *query = memchr(target.at, '?', target.length);
    const char *end = query != NULL ? query : target.at + target.length;
    while (end > target.at + 1 && end[-1] == '/')
        end--;
    return slice_of(target.at, end);
}

struct tm_slice tm_http_query(struct tm_slice target, const char *name)
{
    size_t name_length = strlen(name);
    const char *end = target.at + target.length;
    const char *at = memchr(target.at, '?', target.length);
    while (at != NULL && at < end) {
        at++;
        const char *next = memchr(at, '&', (size_t)(end - at));
        const char *stop = next != NULL ? next : end;
        if ((size_t)(stop - at) > name_length && memcmp(at, name, name_length) == 0 && at[name_length] == '=')
            return slice_of(at + name_length + 1, stop);
        at = next;
    }
    return (struct tm_slice){0};
}

/* ---- writing ---- */

const char *tm_http__reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 411:
        return "Length Required";
    case 413:
        return "Content Too Large";
    case 421:
        return "Misdirected Request";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 422:
        return "Unprocessable Content";
    case 500:
        return "Internal Server Error";
    case 502:
        return "Bad Gateway";
    default:
        return "Service Unavailable";
    }
}

void tm_http_respond(struct tm_text *out, int status, const char *type, const char *more, const char *body)
{
    tm_text_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
                   status, tm_http__reason(status), type, strlen(body), more);
    tm_text_puts(out, body);
}

void tm_http_refuse(struct tm_text *out, int status)
{
    tm_http_respond(out, status, "text/plain", "", "");
}
