/* What Google's files and services say: whatever comes, credentials are whole or refused, rows and operations within
 * bounds, and VMs stay instances. The first byte chooses. */
#include "fuzz.h"

#include "cloud/gcp_sku.h"
#include "cloud/gcp_text.h"
#include "web/gcp_account.h"

#include <string.h>

enum { ROWS = 8 };

static void read_words(const struct tm_gcp__federation *federation, const char *text, size_t size)
{
    static char token[TM_GCP_SUBJECT_MAX];
    static char impersonated[TM_GCP_TOKEN_MAX];
    int64_t ends_ms = 0;
    if (tm_gcp__read_subject(federation, text, size, token, NULL) == 0) assert(token[0] != '\0');
    if (tm_gcp__read_impersonated(text, size, impersonated, &ends_ms, NULL) == 0)
        assert(strpbrk(impersonated, "\r\n") == NULL);
}

static void read_files(const char *text, size_t size)
{
    struct tm_gcp__account account;
    static char token[TM_GCP_TOKEN_MAX];
    char project[128];
    char *copy = malloc(size + 1);
    int64_t seconds = 0;
    if (tm_gcp__read_account("f", text, size, &account, NULL) == 0) {
        assert(account.kind == TM_GCP_USER        ? account.refresh[0] != '\0'
               : account.kind == TM_GCP_FEDERATED ? account.federation.audience[0] != '\0'
                                                  : account.key != NULL);
        assert(strpbrk(account.as.email, "\"\\\r\n") == NULL);
        assert(strpbrk(account.email, "\"\\\r\n") == NULL && strncmp(account.token_uri, "http", 4) == 0);
        tm_gcp__account_deinit(&account);
    }
    static const struct tm_gcp__federation plain = {.file = "f"};
    static const struct tm_gcp__federation field = {.file = "f", .field = "value"};
    read_words(&plain, text, size);
    read_words(&field, text, size);
    if (tm_gcp__read_token(text, size, token, &seconds, NULL) == 0)
        assert(seconds > 0 && strpbrk(token, "\r\n") == NULL);
    if (copy == NULL) return;
    memcpy(copy, text, size);
    copy[size] = '\0';
    if (tm_gcp__read_configuration(copy, project)) assert(project[0] != '\0' && strpbrk(project, " \r\n") == NULL);
    free(copy);
}

static void live(const struct tm_vm__row *rows, size_t count)
{
    static const struct tm_vm__row none[1];
    struct tm_vms v;
    struct tm_vm__call call;
    struct tm_cloud_event event;
    bool due = false;
    tm_vms__init(&v, &tm_gcp__rules);
    v.unpriced = true;
    v.pools[0] = (struct tm_vm__pool){.about = {.type = "t", .limit = 2}, .price_usd_h = 1};
    v.pool_count = 1;
    tm_vms__want(&v, 0, 2, 0);
    for (int64_t now_ms = 2; now_ms < 100000; now_ms += 7000) {
        while (v.count < 40 && tm_vms__next(&v, now_ms, &call, &due, NULL) == 0 && due) {
            if (call.kind == TM_VM_DESCRIBE && tm_vms__described(&v, count > 0 ? rows : none, count, now_ms, NULL) != 0)
                break;
            if (call.kind == TM_VM_RUN && count > 0) tm_vms__rented(&v, call.at, &rows[0], now_ms);
            if (call.kind == TM_VM_RUN && count == 0 &&
                tm_vms__refused(&v, call.at, "ZONE_RESOURCE_POOL_EXHAUSTED", "", now_ms, NULL) != 0)
                break;
        }
        while (tm_vms__event(&v, &event))
            assert(event.kind == TM_CLOUD_REFUSED || event.instance > 0);
        assert(tm_vms__bill(&v, now_ms).usd[0] >= 0);
    }
    tm_vms__deinit(&v);
}

static void read_answers(const char *text, size_t size)
{
    struct tm_vm__row rows[ROWS] = {{.pool = -1}};
    struct tm_gcp__operation op;
    json_t *root = NULL;
    size_t count = 0;
    if (tm_json_load("f", text, size, &root, NULL) != 0) return;
    for (size_t i = 0; i < json_array_size(root); i++) {
        const json_t *item = json_array_get(root, i);
        char zone[64];
        char name[64];
        if (count < ROWS && tm_gcp__read_vm(item, &rows[count])) {
            assert(strchr(rows[count].id, '/') != NULL && rows[count].pool >= -1);
            (void)tm_gcp__split(rows[count].id, zone, name);
            count++;
        }
        struct tm_gcp__disk disk;
        if (tm_gcp__read_disk(item, &disk)) assert(strchr(disk.id, '/') != NULL && disk.job[0] != '\0');
        struct tm_gcp__sku sku;
        if (tm_gcp__read_sku(item, &sku)) assert(sku.usd_h > 0 && sku.of != NULL && sku.part < TM_GCP_PARTS);
        if (tm_gcp__read_operation(item, &op))
            assert(strchr(op.name, '/') == NULL && strlen(op.target) < sizeof op.target);
    }
    assert(!(tm_gcp__read_advice(root) > 1));
    live(rows, count);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_gcp__machine machine;
    char label[TM_GCP_LABEL_MAX];
    char word[100];
    if (size < 1) return 0;
    if (data[0] % 2 == 0)
        read_files((const char *)data + 1, size - 1);
    else
        read_answers((const char *)data + 1, size - 1);
    (void)snprintf(word, sizeof word, "%.*s", size < 99 ? (int)size - 1 : 98, (const char *)data + 1);
    tm_gcp__machine(word, &machine);
    assert(machine.count >= 0 && machine.count <= 16);
    tm_gcp__label(word, label);
    assert(strspn(label, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(label));
    return 0;
}
