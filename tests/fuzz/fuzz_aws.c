/* What EC2 answers: whatever comes, rows and prices are within bounds, and VMs stay instances. */
#include "fuzz.h"

#include "cloud/aws_text.h"

#include <string.h>

enum { ROWS = 8 };

/* Every element that has children, as a VM and as a price. */
static size_t read_all(const struct tm_xml *x, struct tm_vm__row rows[ROWS], size_t count, struct tm_vms *v)
{
    struct tm_vm__price price;
    for (; x != NULL; x = x->next) {
        if (count < ROWS && tm_aws__read_vm(x, &rows[count])) {
            assert(rows[count].pool >= -1 && strlen(rows[count].token) < TM_VM_TOKEN_MAX);
            count++;
        }
        if (tm_aws__read_price(x, &price)) tm_vms__priced(v, &price);
        count = read_all(x->first, rows, count, v);
    }
    return count;
}

static void live(struct tm_vms *v, const struct tm_vm__row *rows, size_t count)
{
    struct tm_vm__call call;
    struct tm_cloud_event event;
    bool due = false;
    for (int64_t now_ms = 2; now_ms < 200000; now_ms += 7000) {
        while (tm_vms__next(v, now_ms, &call, &due, NULL) == 0 && due && v->count < 40) {
            if (call.kind == TM_VM_DESCRIBE && tm_vms__described(v, rows, count, now_ms, NULL) != 0) return;
            if (call.kind == TM_VM_RUN && count > 0) tm_vms__rented(v, call.at, &rows[0], now_ms);
            if (call.kind == TM_VM_RUN && count == 0 &&
                tm_vms__refused(v, call.at, "InternalError", "", now_ms, NULL) != 0)
                return;
            if (call.kind == TM_VM_PRICES) tm_vms__all_priced(v, now_ms);
        }
        if (tm_vms__tick(v, now_ms, NULL) != 0) return;
        while (tm_vms__event(v, &event))
            assert(event.kind == TM_CLOUD_REFUSED || event.instance > 0);
        struct tm_cloud_bill bill = tm_vms__bill(v, now_ms);
        assert(bill.usd[0] >= 0 && bill.seconds[0] >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tm_vm__row none[1];
    struct tm_vm__row rows[ROWS] = {{.pool = -1}};
    struct tm_arena arena;
    struct tm_vms v;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, 16 << 20);
    tm_vms__init(&v, &tm_aws__rules);
    v.pools[0] = (struct tm_vm__pool){.about = {.type = "t", .limit = 2}, .price_usd_h = 1};
    v.pool_count = 1;
    tm_vms__want(&v, 0, 2, 0);
    if (tm_xml_read((const char *)data, size, &arena, &root, NULL) == 0) {
        size_t count = read_all(root, rows, 0, &v);
        live(&v, count > 0 ? rows : none, count);
    }
    tm_vms__deinit(&v);
    tm_arena_deinit(&arena);
    return 0;
}
