/* One request a line as JSON on standard input; what is to be sent, signed, on standard output. */
#include "base/doc.h"
#include "web/aws_sign.h"

#include <stdio.h>
#include <string.h>

enum { PAIRS = 32 };

static size_t read_pairs(const json_t *list, struct tm_web_pair out[PAIRS])
{
    size_t count = json_array_size(list);
    for (size_t i = 0; i < count && i < PAIRS; i++) {
        const json_t *one = json_array_get(list, i);
        out[i] =
            (struct tm_web_pair){json_string_value(json_array_get(one, 0)), json_string_value(json_array_get(one, 1))};
    }
    return count < PAIRS ? count : PAIRS;
}

static const char *text(const json_t *request, const char *name)
{
    const char *value = json_string_value(json_object_get(request, name));
    return value != NULL ? value : "";
}

static int sign_one(const json_t *r)
{
    struct tm_web_pair query[PAIRS];
    struct tm_web_pair headers[PAIRS];
    struct tm_aws_keys keys = {.ends_ms = INT64_MAX};
    struct tm_text target;
    struct tm_text lines;
    struct tm_aws_signed to_sign = {.method = text(r, "method"),
                                    .host = text(r, "host"),
                                    .path = text(r, "path"),
                                    .query = query,
                                    .query_count = read_pairs(json_object_get(r, "query"), query),
                                    .headers = headers,
                                    .header_count = read_pairs(json_object_get(r, "headers"), headers),
                                    .payload = text(r, "payload"),
                                    .payload_header = strcmp(text(r, "service"), "s3") == 0,
                                    .region = text(r, "region"),
                                    .service = text(r, "service"),
                                    .time_ms = json_integer_value(json_object_get(r, "time_ms"))};
    (void)snprintf(keys.id, sizeof keys.id, "%s", text(r, "id"));
    (void)snprintf(keys.secret, sizeof keys.secret, "%s", text(r, "secret"));
    (void)snprintf(keys.token, sizeof keys.token, "%s", text(r, "token"));
    tm_text_init(&target, 1 << 20);
    tm_text_init(&lines, 1 << 20);
    long long seconds = json_integer_value(json_object_get(r, "expires"));
    int rc = seconds > 0 ? tm_aws_presign(&to_sign, &keys, seconds, &target, NULL)
                         : tm_aws_sign(&to_sign, &keys, &target, &lines, NULL);
    for (char *at = lines.data; at != NULL && (at = strchr(at, '\n')) != NULL;)
        *at = '\t';
    (void)printf("%s\t%s\n", tm_text_string(&target), tm_text_string(&lines));
    tm_text_deinit(&target);
    tm_text_deinit(&lines);
    return rc;
}

int main(void)
{
    static char line[1 << 16];
    int rc = 0;
    while (rc == 0 && fgets(line, sizeof line, stdin) != NULL) {
        json_t *request = NULL;
        rc = tm_json_load("request", line, strlen(line), &request, NULL);
        if (rc == 0) rc = sign_one(request);
        json_decref(request);
    }
    return rc == 0 ? 0 : 1;
}
