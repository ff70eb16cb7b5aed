/* What services and AWS's own tools write: XML, config files, credentials in JSON, names of places, logins of SSO; and
 * conversations that were recorded. The first byte says which. */
#include "fuzz.h"

#include "base/doc.h"
#include "store/objects.h"
#include "web/aws_config.h"
#include "web/aws_credentials.h"
#include "web/tape.h"
#include "web/xml.h"

#include <string.h>

static size_t count_all(const struct tm_xml *element, int depth)
{
    size_t count = 1;
    assert(depth <= 32 && element->name != NULL && element->text != NULL);
    for (const struct tm_xml *child = element->first; child != NULL; child = child->next)
        count += count_all(child, depth + 1);
    return count;
}

static void read_xml(const char *text, size_t length)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, 16 << 20);
    if (tm_xml_read(text, length, &arena, &root, NULL) == 0) {
        assert(count_all(root, 1) <= 200000);
        (void)tm_xml__anywhere(root, "Code");
        (void)tm_xml_text(root, "a/b");
    }
    tm_arena_deinit(&arena);
}

static void read_config(const char *text, size_t length)
{
    const char *value = NULL;
    size_t found = 0;
    if (tm_aws_config__find(text, length, "profile x", "region", &value, &found)) {
        assert(value >= text && value + found <= text + length && found > 0);
        assert(tm_aws_config__has(text, length, "profile x"));
    }
}

static void read_place(const char *text, size_t length)
{
    char place[700];
    char bucket[TM_BUCKET_MAX];
    char prefix[TM_PREFIX_MAX];
    if (length >= sizeof place) length = sizeof place - 1;
    if (length > 0) memcpy(place, text, length);
    place[length] = '\0';
    if (tm_objects_place(place, bucket, prefix, NULL) == 0) assert(strlen(bucket) >= 3 && strchr(bucket, '/') == NULL);
}

static void read_login(const char *text, size_t length)
{
    json_t *root = NULL;
    int64_t ends_ms = 0;
    if (tm_aws_sso__read("it", text, length, &root, &ends_ms, NULL) != 0) return;
    const char *token = json_string_value(json_object_get(root, "accessToken"));
    assert(token != NULL && token[0] != '\0' && strpbrk(token, "\r\n") == NULL);
    json_decref(root);
}

/* Whoever plays it hears what it says, or that it has no answer; and what is asked in its words is described. */
static void read_tape(const char *text, size_t length)
{
    static const char *const asked[] = {"POST us-east-1/ec2 / DescribeInstances\nA=1", "PUT us-east-1/s3 /b/k\n",
                                        "GET us-east-1/s3 /b/k\n", "DELETE us-east-1/s3 /b/k\n",
                                        "POST us-east-1/ec2 / DescribeInstances\nA=2"};
    const struct tm_tape__body body = {"x", 1};
    if (tm_tape__read("it", text, length, NULL) == 0) {
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            struct tm_web_answer answer = {.status = 0};
            tm_text_init(&answer.body, 1 << 20);
            if (tm_tape__play(asked[i], &body, &answer, NULL) == 0)
                assert(strlen(answer.etag) < sizeof answer.etag && strlen(answer.region) < sizeof answer.region);
            tm_web_answer_deinit(&answer);
        }
        tm_free(tm_tape__describe("POST", "https://x.s3.y.amazonaws.com/k?a=b", "x-amz-target: A\n", text, length));
    }
    tm_tape__end();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_aws_keys keys;
    const char *text = (const char *)data + 1;
    if (size == 0) return 0;
    tm_json_use_our_alloc();
    switch (data[0] % 7) {
    case 0:
        read_xml(text, size - 1);
        break;
    case 1:
        read_config(text, size - 1);
        break;
    case 2:
        if (tm_aws_keys__read("it", text, size - 1, &keys, NULL) == 0) assert(keys.id[0] != '\0');
        break;
    case 3:
        if (tm_aws_keys__read_role(text, size - 1, &keys, NULL) == 0)
            assert(keys.id[0] != '\0' && keys.token[0] != '\0');
        break;
    case 4:
        read_place(text, size - 1);
        break;
    case 5:
        read_login(text, size - 1);
        break;
    default:
        read_tape(text, size - 1);
    }
    assert(tm_alloc_live() == 0);
    return 0;
}
