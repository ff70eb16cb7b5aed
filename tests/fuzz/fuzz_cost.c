/* Cost files: what parses gives a finite pause, never below zero, for every change of a small job. */
#include "fuzz.h"
#include "layout/migrate.h"

#include <math.h>

static void use(const struct tm_cost *cost)
{
    static struct tm_layouts layouts;
    struct tm_layer layers[9];
    struct tm_model model = {.name = "fuzz", .optimizer_states = 2, .layers = layers, .layer_count = 9};
    struct tm_migrations *migrations;
    struct tm_error e;
    for (int i = 0; i < 9; i++)
        layers[i] = (struct tm_layer){.params = 1e6 * (i + 1), .tied = -1};
    assert(tm_layouts_init(&layouts, &model, &cost->rules, 8, NULL, NULL, &e) == 0);
    assert(tm_migrations_create(&layouts, cost, &migrations, &e) == 0);
    for (int from = 0; from < (int)layouts.count; from++) {
        for (int lost = 0; lost <= 8; lost += 2) {
            const double *row = tm_migrations_row(migrations, 8, from, lost);
            assert(row != NULL);
            for (size_t to = 0; to < layouts.count; to++)
                assert(isfinite(row[to]) && row[to] >= 0);
        }
        double rollback = tm_cost_rollback_ms(cost, &layouts, from, true, false);
        assert(isfinite(rollback) && rollback >= 0);
    }
    tm_migrations_destroy(migrations);
    tm_layouts_deinit(&layouts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_cost cost;
    struct tm_error e;
    if (tm_cost_parse("fuzz", (const char *)data, size, "m", &cost, &e) == 0) use(&cost);
    assert(tm_alloc_live() == 0);
    return 0;
}
