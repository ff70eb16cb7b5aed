/* How often a cloud may be asked, by kind of call: token buckets, as the clouds have them. A run is not alone in its
 * account, so what the clouds refuse all the same is made again later (TM_VM_AGAIN).
 *
 * Sources. AWS: docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html, for each action, account and region:
 * RunInstances 5 and 2 a second (fleets start VMs as it does), others that change something 50 and 5, those that do not
 * 100 and 20. Google: cloud.google.com/compute/api-quota: 1500 of each group in a minute and project. Azure:
 * learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling, for each subscription and
 * principal: 200 writes and 10 a second, as many deletions, 250 reads and 25 a second; a VM is made by three writes
 * (address, interface, VM), and so deleted. Object stores take thousands of requests a second: no limit of ours. */
#include "cloud/vms.h"

#include <math.h>
#include <string.h>

enum { AWS, GCP, AZURE, CLOUDS };

static const char *const names[CLOUDS] = {"aws", "gcp", "azure"};
static const struct tm_vm__rate rates[CLOUDS][TM_VM_CALL_KINDS] = {
    [AWS] = {[TM_VM_DESCRIBE] = {100, 20},
             [TM_VM_RUN] = {5, 2},
             [TM_VM_TERMINATE] = {50, 5},
             [TM_VM_PRICES] = {100, 20},
             [TM_VM_FOLLOW] = {100, 20},
             [TM_VM_DROP_TEMPLATE] = {50, 5}},
    [GCP] = {[TM_VM_DESCRIBE] = {100, 25},
             [TM_VM_RUN] = {100, 12}, /* those that change something are one group: half for each */
             [TM_VM_TERMINATE] = {100, 12},
             [TM_VM_PRICES] = {100, 25},
             [TM_VM_FOLLOW] = {100, 25}},
    [AZURE] = {[TM_VM_DESCRIBE] = {80, 8}, /* reads are one group: a third for each */
               [TM_VM_RUN] = {66, 3.3},
               [TM_VM_TERMINATE] = {66, 3.3},
               [TM_VM_PRICES] = {80, 8},
               [TM_VM_FOLLOW] = {80, 8}},
};

const struct tm_vm__rate *tm_vms__rates(const char *cloud)
{
    for (int i = 0; i < CLOUDS; i++)
        if (strcmp(names[i], cloud) == 0) return rates[i];
    return NULL;
}

static const struct tm_vm__rate *rate_of(const struct tm_vms *v, enum tm_vm__call_kind kind)
{
    const struct tm_vm__rate *rate = v->rates != NULL ? &v->rates[kind] : NULL;
    return rate != NULL && rate->per_s > 0 ? rate : NULL;
}

int64_t tm_vms__free_ms(const struct tm_vms *v, enum tm_vm__call_kind kind)
{
    const struct tm_vm__rate *rate = rate_of(v, kind);
    const struct tm_vm__bucket *bucket = &v->buckets[kind];
    if (rate == NULL || bucket->spent <= rate->burst - 1) return INT64_MIN;
    return bucket->since_ms + (int64_t)ceil((bucket->spent - (rate->burst - 1)) / rate->per_s * 1000);
}

void tm_vms__spend(struct tm_vms *v, enum tm_vm__call_kind kind, int64_t now_ms)
{
    const struct tm_vm__rate *rate = rate_of(v, kind);
    struct tm_vm__bucket *bucket = &v->buckets[kind];
    if (rate == NULL) return;
    bucket->spent = fmax(0, bucket->spent - (double)(now_ms - bucket->since_ms) / 1000 * rate->per_s) + 1;
    bucket->since_ms = now_ms;
}
