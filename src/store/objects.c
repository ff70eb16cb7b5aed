#include "store/objects.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *scheme;
    int (*open)(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e);
} services[] = {{"s3://", tm_s3__open}, {"az://", tm_blobs__open}, {"gs://", tm_gs__open}};

enum { SERVICES = sizeof services / sizeof *services };

/* SERVICES: none. */
static size_t find_service(const char *place)
{
    size_t i = 0;
    while (i < SERVICES && strncmp(place, services[i].scheme, strlen(services[i].scheme)) != 0)
        i++;
    return i;
}

bool tm_objects__is_place(const char *place)
{
    return find_service(place) < SERVICES;
}

static bool is_bucket(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_");
    return name[length] == '\0' && length >= 3 && length < TM_BUCKET_MAX && name[0] != '.' && name[0] != '-';
}

int tm_objects_place(const char *place, char bucket[TM_BUCKET_MAX], char prefix[TM_PREFIX_MAX], struct tm_error *e)
{
    size_t service = find_service(place);
    if (service == SERVICES)
        return tm_error_set(e, TM_EUSAGE,
                            "%.200s: not of the form s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
                            place);
    const char *name = place + strlen(services[service].scheme);
    size_t length = strcspn(name, "/");
    const char *rest = name + length;
    while (*rest == '/')
        rest++;
    size_t rest_length = strlen(rest);
    while (rest_length > 0 && rest[rest_length - 1] == '/')
        rest_length--;
    if (length < TM_BUCKET_MAX) (void)snprintf(bucket, TM_BUCKET_MAX, "%.*s", (int)length, name);
    if (length >= TM_BUCKET_MAX || !is_bucket(bucket))
        return tm_error_set(
            e, TM_EUSAGE,
            "%.200s: the name of a bucket or container has 3 to 63 small letters, digits, dots and hyphens", place);
    if (rest_length >= TM_PREFIX_MAX)
        return tm_error_set(e, TM_EUSAGE, "%.60s...: a prefix has at most %d bytes", place, TM_PREFIX_MAX - 1);
    (void)snprintf(prefix, TM_PREFIX_MAX, "%.*s", (int)rest_length, rest);
    return 0;
}

int tm_objects_open(struct tm_env *env, const char *place, struct tm_objects *out, struct tm_error *e)
{
    size_t service = find_service(place);
    if (service == SERVICES) return tm_error_set(e, TM_EUSAGE, "%.200s: not a bucket", place);
    return services[service].open(env, place, out, e);
}
