/* Answers of metadata servers, to each of the three readers: the first byte says whose, and whether it is the whole
 * response or a body alone. */
#include "fuzz.h"

#include "base/doc.h"
#include "base/env_virtual.h"
#include "cloud/notice.h"

static void read_bodies(const char *bytes, size_t length)
{
    int64_t gone = 0;
    bool preempted = false;
    struct tm_notice word;
    (void)tm_notice__parse_aws_action(bytes, length, &gone, NULL);
    (void)tm_notice__parse_gcp_preempted(bytes, length, &preempted, NULL);
    (void)tm_notice__parse_azure(bytes, length, 0, &word, NULL);
}

/* A reader asks; these bytes are what it gets, three times over. */
static void answer_with(const char *bytes, size_t length, enum tm_notice_cloud cloud)
{
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_notice_reader *reader = NULL;
    struct tm_notice word;
    char bound[TM_ADDRESS_MAX];
    int listener = 0;
    assert(env->net_listen(env, "127.0.0.1:0", &listener, bound, NULL) == 0);
    struct tm_notice_options options = {.cloud = cloud, .address = bound};
    assert(tm_notice_reader_create(env, &options, &reader, NULL) == 0);
    for (int i = 0; i < 6; i++) {
        int handle = 0;
        size_t done = 0;
        (void)tm_notice_reader_step(reader, &word, NULL);
        while (env->net_accept(env, listener, &handle, NULL) == 0) {
            (void)env->net_send(env, handle, bytes, length, &done, NULL);
            env->net_close(env, handle);
        }
        (void)tm_notice_reader_step(reader, &word, NULL);
        tm_env_virtual_advance(env, 2500);
    }
    tm_notice_reader_destroy(reader);
    tm_env_virtual_destroy(env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    tm_json_use_our_alloc();
    const char *bytes = (const char *)data + 1;
    if (data[0] % 4 == 3)
        read_bodies(bytes, size - 1);
    else
        answer_with(bytes, size - 1, (enum tm_notice_cloud)(data[0] % 4));
    assert(tm_alloc_live() == 0);
    return 0;
}
