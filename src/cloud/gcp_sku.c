#include "cloud/gcp_sku.h"

#include "base/jsonout.h"
#include "base/number.h"
#include "cloud/gcp_text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- SKUs ---- */

/* How descriptions name what a VM is made of: "Spot Preemptible N1 Predefined Instance Core running in Americas",
 * "Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Americas". Kinds of machines that are not here (A3
 * Mega and Ultra, A4, G4) have names of their own, of which we have no source: they keep the catalogue's prices. */
static const struct {
    const char *types;
    const char *words;
} machines[] = {{"n1-", "N1 Predefined Instance "},
                {"n2-", "N2 Instance "},
                {"e2-", "E2 Instance "},
                {"g2-", "G2 Instance "},
                {"a2-", "A2 Instance "},
                {"a3-highgpu-", "A3 Instance "}};

static const struct {
    const char *gpu;
    const char *words;
} gpus[] = {{"V100", "V100 GPU "},     {"T4", "T4 GPU "}, {"P100", "P100 GPU "},           {"P4", "P4 GPU "},
            {"K80", "K80 GPU "},       {"L4", "L4 GPU "}, {"A100-80GB", "A100 80GB GPU "}, {"A100", "A100 GPU "},
            {"H100", "H100 80GB GPU "}};

static const char *text_of(const json_t *item, const char *key)
{
    const char *text = json_string_value(json_object_get(item, key));
    return text != NULL ? text : "";
}

/* Where these words are, as whole words; behind them. NULL: nowhere. */
static const char *behind(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (at == NULL || (at != text && at[-1] != ' ')) return NULL;
    return at + strlen(words);
}

static bool find_part(const char *about, struct tm_gcp__sku *out)
{
    static const char *const others[] = {"Custom", "Sole Tenancy", "Reserved", "Premium", "Extended"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(about, others[i]) != NULL) return false;
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        if (behind(about, gpus[i].words) == NULL) continue;
        *out = (struct tm_gcp__sku){.part = TM_GCP_GPU, .of = gpus[i].gpu};
        return true;
    }
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const char *rest = behind(about, machines[i].words);
        bool core = rest != NULL && strncmp(rest, "Core ", 5) == 0;
        if (!core && (rest == NULL || strncmp(rest, "Ram ", 4) != 0)) continue;
        *out = (struct tm_gcp__sku){.part = core ? TM_GCP_CORE : TM_GCP_MEMORY, .of = machines[i].types};
        return true;
    }
    return false;
}

/* {"units": "1", "nanos": 500000000}: units are a 64-bit number, and travel as text. */
static double read_money(const json_t *money)
{
    const char *units = text_of(money, "units");
    const json_t *nanos = json_object_get(money, "nanos");
    int64_t whole = 0;
    if (strcmp(text_of(money, "currencyCode"), "USD") != 0) return NAN;
    if (units[0] != '\0' && !tm_number_i64(units, strlen(units), &whole)) return NAN;
    return (double)whole + (json_is_number(nanos) ? json_number_value(nanos) / 1e9 : 0);
}

bool tm_gcp__read_sku(const json_t *item, struct tm_gcp__sku *out)
{
    const json_t *times = json_object_get(item, "pricingInfo"); /* the oldest first */
    const json_t *now = json_array_get(times, json_array_size(times) - 1);
    const json_t *price = json_object_get(now, "pricingExpression");
    const json_t *first = json_array_get(json_object_get(price, "tieredRates"), 0);
    const char *usage = text_of(json_object_get(item, "category"), "usageType");
    const char *unit = text_of(price, "usageUnit");
    struct tm_gcp__sku sku;
    if (strcmp(usage, "Preemptible") != 0 || !find_part(text_of(item, "description"), &sku)) return false;
    if (strcmp(unit, sku.part == TM_GCP_MEMORY ? "GiBy.h" : "h") != 0) return false;
    sku.usd_h = read_money(json_object_get(first, "unitPrice"));
    sku.regions = json_object_get(item, "serviceRegions");
    if (!(sku.usd_h > 0)) return false;
    *out = sku;
    return true;
}

/* ---- a VM's price ---- */

void tm_gcp__price_init(struct tm_gcp__price *price)
{
    for (int i = 0; i < TM_GCP_PARTS; i++)
        price->usd_h[i] = NAN;
}

void tm_gcp__price_take(struct tm_gcp__price *price, const struct tm_instance_type *type, const char *region,
                        const struct tm_gcp__sku *sku)
{
    bool mine =
        sku->part == TM_GCP_GPU ? strcmp(type->gpu, sku->of) == 0 : strncmp(type->name, sku->of, strlen(sku->of)) == 0;
    for (size_t i = 0; mine && i < json_array_size(sku->regions); i++) {
        const char *one = json_string_value(json_array_get(sku->regions, i));
        if (one != NULL && strcmp(one, region) == 0) price->usd_h[sku->part] = sku->usd_h;
    }
}

double tm_gcp__price_sum(const struct tm_gcp__price *price, const struct tm_instance_type *type)
{
    double sum = price->usd_h[TM_GCP_CORE] * type->vcpus + price->usd_h[TM_GCP_MEMORY] * type->memory_gib;
    return type->gpu[0] != '\0' ? sum + price->usd_h[TM_GCP_GPU] * type->gpus : sum;
}

/* ---- advice ---- */

int tm_gcp__print_advice(const char *type, const char *zone, int instances, struct tm_text *out, struct tm_error *e)
{
    struct tm_gcp__machine machine;
    struct tm_jsonout json;
    char place[80];
    tm_gcp__machine(type, &machine);
    (void)snprintf(place, sizeof place, "zones/%.60s", zone);
    tm_jsonout_init_line(&json, out);
    tm_jsonout_object(&json, NULL);
    tm_jsonout_integer(&json, "size", instances);
    tm_jsonout_object(&json, "instanceProperties");
    tm_jsonout_object(&json, "scheduling");
    tm_jsonout_string(&json, "provisioningModel", "SPOT");
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "distributionPolicy");
    tm_jsonout_string(&json, "targetShape", "ANY_SINGLE_ZONE");
    tm_jsonout_list(&json, "zones");
    tm_jsonout_object(&json, NULL);
    tm_jsonout_string(&json, "zone", place);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_end(&json);
    tm_jsonout_object(&json, "instanceFlexibilityPolicy");
    tm_jsonout_object(&json, "instanceSelections");
    tm_jsonout_object(&json, "one");
    tm_jsonout_list(&json, "machineTypes");
    tm_jsonout_string(&json, NULL, machine.type);
    tm_jsonout_end(&json);
    if (machine.count > 0) {
        tm_jsonout_list(&json, "guestAccelerators");
        tm_jsonout_object(&json, NULL);
        tm_jsonout_string(&json, "acceleratorType", machine.accelerator);
        tm_jsonout_integer(&json, "acceleratorCount", machine.count);
        tm_jsonout_end(&json);
        tm_jsonout_end(&json);
    }
    for (int i = 0; i < 4; i++)
        tm_jsonout_end(&json);
    return tm_text_status(out, e);
}

double tm_gcp__read_advice(const json_t *root)
{
    const json_t *first = json_array_get(json_object_get(root, "recommendations"), 0);
    const json_t *said = json_object_get(json_object_get(first, "scores"), "obtainability");
    double share = json_is_number(said) ? json_number_value(said) : NAN;
    return share >= 0 && share <= 1 ? share : NAN;
}
