/* Lists of lifetimes, logs and traces: any bytes are read or refused; what was read can be studied. The first byte
 * chooses the cloud's limit, or that it is a list of recorded pools, which can be asked, or one of waits. */
#include "fuzz.h"
#include "market/catalog.h"
#include "market/risk.h"
#include "market/starts.h"
#include "market/study.h"

#include <math.h>

static void read_pools(const char *text, size_t length)
{
    struct tm_risk risk;
    struct tm_error e;
    struct tm_risk_answer answer;
    struct tm_risk_query query = {.cloud = "aws", .gpu = "V100", .gpus = 1, .band = TM_BAND_UNKNOWN, .hour_utc = 3};
    tm_risk_init(&risk);
    int rc = tm_risk__parse(&risk, "fuzz.tmrisk", text, length, &e);
    if (rc == 0 && risk.count < 64) rc = tm_risk__prepare(&risk, &e);
    if (rc == 0 && risk.count < 64) {
        tm_risk_ask(&risk, &query, &answer);
        for (int a = 0; a < TM_RISK_AGES; a++)
            assert(answer.lost[a].low >= 0 && answer.lost[a].high <= 1);
        assert(answer.loss_per_s >= 0);
    }
    tm_risk_deinit(&risk);
    assert(tm_alloc_live() == 0);
}

static void read_waits(const char *text, size_t length)
{
    static struct tm_start list[TM_STARTS_MAX];
    size_t count = 0;
    if (tm_starts__parse("fuzz.csv", text, length, list, &count, NULL) != 0) return;
    for (size_t i = 0; i < count; i++)
        assert(list[i].seen > 0 && list[i].seconds >= 0 && isfinite(list[i].seconds));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_lifetimes lifetimes;
    struct tm_study study;
    struct tm_error e;
    if (size < 2) return 0;
    if (data[0] == 'R') {
        read_pools((const char *)data + 1, size - 1);
        return 0;
    }
    if (data[0] == 'W') {
        read_waits((const char *)data + 1, size - 1);
        return 0;
    }
    tm_lifetimes_init(&lifetimes);
    tm_study_init(&study);
    double cap_s = data[0] % 3 == 0 ? -1 : data[0] % 3 == 1 ? 0 : 3600;
    int rc = tm_lifetimes__parse("fuzz.csv", (const char *)data + 1, size - 1, cap_s, &lifetimes, &e);
    if (rc == 0) {
        for (size_t i = 0; i < lifetimes.count; i++)
            assert(lifetimes.records[i].age_s >= 0 && lifetimes.records[i].weight > 0);
        rc = tm_study_make(&lifetimes, (struct tm_lifetime_filter){-1, -1, -1}, &study, &e);
        assert(rc == 0 || rc == -(int)TM_ELIMIT);
        for (size_t i = 0; i < study.count; i++) {
            const struct tm_survival *survival = &study.groups[i].survival;
            for (size_t k = 0; k < survival->count; k++) {
                const struct tm_survival_step *step = &survival->steps[k];
                assert(step->survival >= 0 && step->survival <= 1 && step->low <= step->survival &&
                       step->high >= step->survival);
            }
        }
    }
    tm_study_deinit(&study);
    tm_lifetimes_deinit(&lifetimes);
    assert(tm_alloc_live() == 0);
    return 0;
}
