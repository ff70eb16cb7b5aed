#include "workload/job_internal.h"

#include "base/dns_name.h"

#include <ctype.h>
#include <string.h>

enum { LABEL_NAME_MAX = 63 };

/* What stands behind the '/' of a label's or a resource's name, and (or empty) a label's value. */
static bool is_label_word(const char *text, size_t length)
{
    if (length > LABEL_NAME_MAX) return false;
    for (size_t i = 0; i < length; i++) {
        bool edge = i == 0 || i + 1 == length;
        if (!isalnum((unsigned char)text[i]) && (edge || strchr("-_.", text[i]) == NULL)) return false;
    }
    return true;
}

/* "example.com/gpu"; without what is before the '/' only where that may be left out. */
static bool is_qualified(const char *text, size_t length, bool plain)
{
    char domain[256];
    const char *slash = memchr(text, '/', length);
    const char *word = slash != NULL ? slash + 1 : text;
    size_t rest = length - (size_t)(word - text);
    if (rest == 0 || !is_label_word(word, rest)) return false;
    if (slash == NULL) return plain;
    if ((size_t)(slash - text) >= sizeof domain) return false;
    memcpy(domain, text, (size_t)(slash - text));
    domain[slash - text] = '\0';
    return tm_dns_name_is_good(domain);
}

/* "4", "0.5", "500m", "16Gi", "1e3"; not 0. */
static bool is_quantity(const char *text)
{
    static const char *const suffixes[] = {"",  "n", "u",  "m",  "k",  "M",  "G",  "T",
                                           "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    size_t digits = strspn(text, "0123456789");
    size_t whole = digits;
    if (text[digits] == '.') digits += 1 + strspn(text + digits + 1, "0123456789");
    if (whole == 0 || strspn(text, "0.") >= digits) return false;
    const char *rest = text + digits;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(rest, suffixes[i]) == 0) return true;
    if (*rest != 'e' && *rest != 'E') return false;
    rest += rest[1] == '+' || rest[1] == '-' ? 2 : 1;
    return *rest != '\0' && rest[strspn(rest, "0123456789")] == '\0';
}

/* As registries have them: [HOST[:PORT]/]NAME[:TAG][@DIGEST]. */
static bool is_image(const char *text)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@";
    size_t length = strlen(text);
    return length > 0 && strspn(text, good) == length && isalnum((unsigned char)text[0]) &&
           isalnum((unsigned char)text[length - 1]) && strstr(text, "//") == NULL;
}

static int check_selector(const struct tm_job *job, struct tm_error *e)
{
    const struct tm_strings *selector = &job->fleet.pods.selector;
    for (size_t i = 0; i < selector->count; i++) {
        const char *text = selector->items[i];
        const char *equal = strchr(text, '=');
        if (equal != NULL && is_qualified(text, (size_t)(equal - text), true) &&
            is_label_word(equal + 1, strlen(equal + 1)))
            continue;
        return tm_job_wrong(job, "fleet.pods.node_selector", e,
                            "expected NAME=VALUE, a label of nodes, such as "
                            "cloud.google.com/gke-accelerator=nvidia-l4, got \"%.100s\"; kubectl get nodes "
                            "--show-labels lists them",
                            text);
    }
    return 0;
}

int tm_job__check_pods(const struct tm_job *job, struct tm_error *e)
{
    const struct tm_job_pods *pods = &job->fleet.pods;
    if (pods->space != NULL && !tm_dns_label_is_good(pods->space))
        return tm_job_wrong(
            job, "fleet.pods.namespace", e,
            "\"%.80s\" cannot be the name of a namespace: write at most 63 letters in lower case, digits "
            "and '-' between them, such as training",
            pods->space);
    if (pods->account != NULL && !tm_dns_name_is_good(pods->account))
        return tm_job_wrong(
            job, "fleet.pods.service_account", e,
            "\"%.80s\" cannot be the name of a service account: write letters in lower case, digits, '-' "
            "and '.', such as trainer",
            pods->account);
    if (pods->priority != NULL && !tm_dns_name_is_good(pods->priority))
        return tm_job_wrong(
            job, "fleet.pods.priority", e,
            "\"%.80s\" cannot be the name of a priority class: write letters in lower case, digits, '-' "
            "and '.'; kubectl get priorityclasses lists those that there are",
            pods->priority);
    if (pods->image != NULL && !is_image(pods->image))
        return tm_job_wrong(job, "fleet.pods.image", e,
                            "\"%.100s\" cannot be the name of an image: write it as for docker pull, such as "
                            "registry.example.com/tidemill:0.1",
                            pods->image);
    if (pods->gpu != NULL && !is_qualified(pods->gpu, strlen(pods->gpu), false))
        return tm_job_wrong(job, "fleet.pods.gpu", e,
                            "\"%.80s\" cannot be the name of a resource: write DOMAIN/NAME, such as amd.com/gpu",
                            pods->gpu);
    if (pods->cpu != NULL && !is_quantity(pods->cpu))
        return tm_job_wrong(job, "fleet.pods.cpu", e, "expected processors, such as 4 or 500m, got \"%.40s\"",
                            pods->cpu);
    if (pods->memory != NULL && !is_quantity(pods->memory))
        return tm_job_wrong(job, "fleet.pods.memory", e, "expected memory, such as 16Gi or 500M, got \"%.40s\"",
                            pods->memory);
    return check_selector(job, e);
}
