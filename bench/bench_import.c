/* How fast catalogues come in: the whole import (read, check, join, write) of CSV files against the time that one plain
 * pass over the same bytes takes (counting commas and newlines), both in this run.
 *
 * Use: bench_import [FILE...]     without files: 20,000 made-up rows of SkyPilot's form */
#include "base/alloc.h"
#include "base/content.h"
#include "base/doc.h"
#include "base/env_virtual.h"
#include "market/import.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MADE_ROWS = 20000, ROUNDS = 5 };

static void make_rows(struct tm_text *out)
{
    tm_text_puts(out, "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
                      "AvailabilityZone\n");
    for (int i = 0; i < MADE_ROWS; i++)
        tm_text_printf(out,
                       "g5.%dxlarge,A10G,1.0,%d.0,16.0,\"{'Gpus': [{'Name': 'A10G', 'MemoryInfo': {'SizeInMiB': "
                       "24576}}]}\",%d.006,0.%04d00,region-%d,region-%d%c\n",
                       i % 97, i % 64 + 1, i % 30, i % 10000, i % 40, i % 40, 'a' + i / 97 % 6);
}

static double seconds_since(struct tm_env *real, int64_t start_ns)
{
    return (double)(real->monotonic_ns(real) - start_ns) / 1e9;
}

/* Best of some rounds of reading every byte once. */
static double plain_pass(struct tm_env *real, const struct tm_text *all, size_t *out_marks)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = real->monotonic_ns(real);
        size_t count = 0;
        for (size_t i = 0; i < all->length; i++)
            count += all->data[i] == ',' || all->data[i] == '\n';
        *out_marks = count;
        double took = seconds_since(real, start);
        best = took < best ? took : best;
    }
    return best;
}

static double import_once(struct tm_env *real, struct tm_env *world, const char *const *paths, size_t count,
                          struct tm_import_report *report)
{
    struct tm_import_options options = {.format = TM_IMPORT_SKYPILOT, .as_of = "2026-01-01"};
    struct tm_error e;
    tm_import_report_init(report);
    int64_t start = real->monotonic_ns(real);
    int rc = tm_import_files(world, &options, paths, count, report, &e);
    double took = seconds_since(real, start);
    tm_import_report_deinit(report);
    if (rc != 0) {
        (void)fprintf(stderr, "bench_import: %s\n", e.text);
        return -1;
    }
    return took;
}

int main(int argc, char **argv)
{
    struct tm_env *real = tm_env_real();
    struct tm_text all;
    struct tm_error e;
    tm_json_use_our_alloc();
    tm_text_init(&all, 256 << 20);
    const char *paths[64];
    size_t count = 0;
    double best = 1e9;
    struct tm_import_report *report = tm_alloc(sizeof *report);
    if (report == NULL) return 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct tm_env *world = tm_env_virtual_create(1);
        if (world == NULL) return 1;
        (void)tm_env_virtual_set_variable(world, "TIDEMILL_DATA_DIR", "/data");
        tm_text_clear(&all);
        count = 0;
        if (argc == 1) {
            make_rows(&all);
            paths[count++] = "made.csv";
            (void)world->file_write(world, "made.csv", tm_text_string(&all), all.length, &e);
        }
        for (int i = 1; i < argc && count < 64; i++) {
            size_t from = all.length;
            if (tm_content_read(real, argv[i], &all, &e) != 0) return 1;
            paths[count++] = argv[i];
            (void)world->file_write(world, argv[i], tm_text_string(&all) + from, all.length - from, &e);
        }
        double took = import_once(real, world, paths, count, report);
        tm_env_virtual_destroy(world);
        if (took < 0) return 1;
        best = took < best ? took : best;
    }
    size_t marks = 0;
    double plain = plain_pass(real, &all, &marks);
    printf("import: %zu rows, %zu fields (%.1f MB) in %.0f ms, %.0f rows/ms; %.1f times a plain pass over the bytes\n",
           report->rows, marks, (double)all.length / 1e6, best * 1e3, (double)report->rows / (best * 1e3),
           best / plain);
    tm_free(report);
    tm_text_deinit(&all);
    return 0;
}
