/* What Azure answers: whatever comes, rows, codes and tokens are within bounds. */
#include "fuzz.h"

#include "cloud/azure_text.h"
#include "web/azure_arm.h"
#include "web/azure_delegation.h"
#include "web/azure_identity.h"

#include <math.h>
#include <string.h>

/* Every object as all that an item of a list can be. */
static void read_item(const json_t *item)
{
    struct tm_vm__row row;
    char name[TM_VM_ID_MAX];
    char run[32];
    bool stopped = false;
    if (tm_azure__read_vm(item, &row, run))
        assert(row.id[0] != '\0' && strlen(row.id) < TM_VM_ID_MAX && row.pool >= -1 && strlen(run) < sizeof run);
    if (tm_azure__read_power(item, name, &stopped)) assert(name[0] != '\0');
    if (tm_azure__read_part(item, "-nic", name)) assert(strncmp(name, "tm-", 3) == 0);
}

static void read_all(const json_t *root)
{
    const json_t *items = NULL;
    const char *next = NULL;
    read_item(root);
    if (tm_azure__read_page(root, &items, &next, NULL) == 0)
        for (size_t i = 0; i < json_array_size(items); i++)
            read_item(json_array_get(items, i));
    assert(next != NULL);
    (void)tm_azure__read_operation(200, root);
    double price = tm_azure__read_spot_price(root, "t", "l");
    assert(isnan(price) || price > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char token[TM_AZURE_TOKEN_MAX];
    struct tm_arm_refusal why;
    json_t *root = NULL;
    int64_t ends_ms = 0;
    const char *text = (const char *)data;
    if (tm_arm_refusal(text, size, &why, NULL) == 0) {
        enum tm_vm__remedy remedy = tm_azure__remedy_of(why.code);
        assert(remedy <= TM_VM_STOP && strpbrk(why.message, "\r\n") == NULL);
    }
    struct tm_azure_delegated key;
    if (tm_azure_delegation__read(text, size, &key, NULL) == 0)
        assert(key.key_length > 0 && key.key_length <= sizeof key.key);
    if (tm_azure_identity__read(text, size, 1000, token, &ends_ms, NULL) == 0)
        assert(token[0] != '\0' && ends_ms > 1000);
    if (tm_json_load("answer", text, size, &root, NULL) == 0) read_all(root);
    json_decref(root);
    return 0;
}
