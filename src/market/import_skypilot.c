/* SkyPilot's catalogue CSV. Traps:
 *
 * - The cloud is not in the file: it is told from the header and from how zones and instance types are spelled.
 * - GpuInfo is a Python literal or a bare name, not JSON; only the memory size in it is of use here.
 * - On GCP, rows with an accelerator have no instance type and price the accelerator alone; the VM that carries it is a
 *   row of its own. An offer is the sum of both.
 * - Some rows have no price, and one has a wrong number of GPUs. */
#include "market/import_internal.h"

#include "base/alloc.h"
#include "base/csv.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum column {
    COL_INSTANCE,
    COL_GPU,
    COL_GPUS,
    COL_VCPUS,
    COL_MEMORY,
    COL_INFO,
    COL_PRICE,
    COL_SPOT,
    COL_REGION,
    COL_ZONE,
    COLUMN_COUNT
};

static const char *const column_names[COLUMN_COUNT] = {
    "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs",  "MemoryGiB",
    "GpuInfo",      "Price",           "SpotPrice",        "Region", "AvailabilityZone",
};

/* Rows whose figures are known to be wrong or vague, and what the vendor says. */
static const struct {
    const char *instance;
    double gpus; /* 0: as in the file */
    const char *gpu;
} corrections[] = {
    {"Standard_ND96isr_H100_v5", 8, "H100"},
    {"Standard_NC40ads_H100_v5", 0, "H100-NVL"},
    {"Standard_NC80adis_H100_v5", 0, "H100-NVL"},
    {"gpu_1x_h100_pcie", 0, "H100-PCIe"},
    {"Standard_NC24ads_A100_v4", 0, "A100-80GB-PCIe"},
    {"Standard_NC48ads_A100_v4", 0, "A100-80GB-PCIe"},
    {"Standard_NC96ads_A100_v4", 0, "A100-80GB-PCIe"},
    {"Standard_NC6s_v3", 0, "V100-PCIe"},
    {"Standard_NC12s_v3", 0, "V100-PCIe"},
    {"Standard_NC24s_v3", 0, "V100-PCIe"},
    {"Standard_NC24rs_v3", 0, "V100-PCIe"},
};

/* Which VM carries which accelerators on GCP. For the GPUs that attach to any n1 we take 8 vCPUs a GPU. */
static const struct {
    const char *gpu;
    double gpus;
    const char *host;
} gcp_hosts[] = {
    {"A100", 1, "a2-highgpu-1g"},         {"A100", 2, "a2-highgpu-2g"},        {"A100", 4, "a2-highgpu-4g"},
    {"A100", 8, "a2-highgpu-8g"},         {"A100", 16, "a2-megagpu-16g"},      {"A100-80GB", 1, "a2-ultragpu-1g"},
    {"A100-80GB", 2, "a2-ultragpu-2g"},   {"A100-80GB", 4, "a2-ultragpu-4g"},  {"A100-80GB", 8, "a2-ultragpu-8g"},
    {"H100", 1, "a3-highgpu-1g"},         {"H100", 2, "a3-highgpu-2g"},        {"H100", 4, "a3-highgpu-4g"},
    {"H100", 8, "a3-highgpu-8g"},         {"H100-MEGA", 8, "a3-megagpu-8g"},   {"H200", 8, "a3-ultragpu-8g"},
    {"B200", 8, "a4-highgpu-8g"},         {"L4", 1, "g2-standard-4"},          {"L4", 1, "g2-standard-8"},
    {"L4", 1, "g2-standard-12"},          {"L4", 1, "g2-standard-16"},         {"L4", 1, "g2-standard-32"},
    {"L4", 2, "g2-standard-24"},          {"L4", 4, "g2-standard-48"},         {"L4", 8, "g2-standard-96"},
    {"RTXPRO6000", 1, "g4-standard-48"},  {"RTXPRO6000", 2, "g4-standard-96"}, {"RTXPRO6000", 4, "g4-standard-192"},
    {"RTXPRO6000", 8, "g4-standard-384"}, {"V100", 1, "n1-standard-8"},        {"V100", 2, "n1-standard-16"},
    {"V100", 4, "n1-standard-32"},        {"V100", 8, "n1-standard-64"},       {"P100", 1, "n1-standard-8"},
    {"P100", 2, "n1-standard-16"},        {"P100", 4, "n1-standard-32"},       {"T4", 1, "n1-standard-8"},
    {"T4", 2, "n1-standard-16"},          {"T4", 4, "n1-standard-32"},         {"P4", 1, "n1-standard-8"},
    {"P4", 2, "n1-standard-16"},          {"P4", 4, "n1-standard-32"},         {"K80", 1, "n1-standard-8"},
    {"K80", 2, "n1-standard-16"},         {"K80", 4, "n1-standard-32"},        {"K80", 8, "n1-standard-64"},
};

enum { GCP_HOST_COUNT = sizeof gcp_hosts / sizeof *gcp_hosts, NAME_MAX_BYTES = 200 };

static const double FIGURE_MAX = 1e9; /* of any figure: sums of two stay far from infinity */

struct sky_row {
    int line;
    const char *instance; /* strings of the user's catalogue */
    const char *gpu;
    const char *region;
    const char *zone;
    double gpus;
    double vcpus;
    double memory_gib;
    double gpu_memory_gib;
    double price;
    double spot;
};

struct sky_reader {
    struct tm_import *import;
    struct tm_csv *csv;
    int columns[COLUMN_COUNT];
    size_t column_count; /* of the header */
    const char *cloud;
    bool warned_of_tpus;
    struct sky_row *gcp_rows; /* all rows, kept until hosts and accelerators can be joined */
    size_t gcp_count;
    size_t gcp_capacity;
};

static struct tm_slice field(const struct sky_reader *reader, enum column column)
{
    int at = reader->columns[column];
    if (at < 0 || (size_t)at >= reader->csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(reader->csv->fields[at]);
}

/* ---- which cloud ---- */

static bool starts_with(struct tm_slice text, const char *prefix)
{
    return text.length >= strlen(prefix) && memcmp(text.data, prefix, strlen(prefix)) == 0;
}

static bool is_gcp_zone(struct tm_slice region, struct tm_slice zone)
{
    if (region.length == 0 || zone.length != region.length + 2) return false;
    const char *dash = memrchr(zone.data, '-', zone.length);
    return memcmp(zone.data, region.data, region.length) == 0 && dash == zone.data + region.length;
}

static const char *guess_cloud(const struct sky_reader *reader)
{
    struct tm_slice instance = field(reader, COL_INSTANCE);
    if (starts_with(instance, "Standard_")) return "azure";
    if (starts_with(instance, "gpu_") || starts_with(instance, "cpu_")) return "lambda";
    if (is_gcp_zone(field(reader, COL_REGION), field(reader, COL_ZONE))) return "gcp";
    if (field(reader, COL_ZONE).length > 0 && memchr(instance.data, '.', instance.length) != NULL) return "aws";
    return NULL;
}

/* From the first row that tells; rows before it are lost. 1: not yet. */
static int find_cloud(struct sky_reader *reader, struct tm_error *e)
{
    const char *cloud = reader->import->options->cloud;
    if (cloud == NULL) cloud = guess_cloud(reader);
    if (cloud == NULL) {
        tm_import__issue(reader->import, reader->csv->line, true, "cannot tell which cloud this is; give --cloud");
        return 1;
    }
    reader->cloud = tm_catalog__string(reader->import->user, cloud, strlen(cloud));
    return reader->cloud != NULL ? 0 : tm_error_nomem(e);
}

/* ---- one row ---- */

/* Rejects a row: notes why. Always 0: the import goes on. */
static int reject(struct sky_reader *reader, int line, const char *why)
{
    tm_import__issue(reader->import, line, true, "%s", why);
    return 0;
}

static bool read_figure(struct tm_slice text, double *out)
{
    *out = NAN;
    return text.length == 0 || (tm_number_double(text.data, text.length, out) && *out >= 0 && *out <= FIGURE_MAX);
}

/* 'MemoryInfo': {'SizeInMiB': 16384} in a Python literal. */
static double read_gpu_memory(struct tm_slice info)
{
    static const char key[] = "'SizeInMiB': ";
    const char *found = memmem(info.data, info.length, key, sizeof key - 1);
    if (found == NULL) return NAN;
    const char *number = found + sizeof key - 1;
    size_t length = 0;
    double mib = NAN;
    while (number + length < info.data + info.length && number[length] >= '0' && number[length] <= '9')
        length++;
    return tm_number_double(number, length, &mib) ? mib / 1024 : NAN;
}

static const char *intern(struct sky_reader *reader, struct tm_slice text)
{
    return tm_catalog__string(reader->import->user, text.data, text.length);
}

/* The GPU by its own name, whatever the cloud calls it. */
static const char *canonical_gpu(struct sky_reader *reader, struct tm_slice text)
{
    const char *name = intern(reader, text);
    if (name == NULL || name[0] == '\0') return name;
    const struct tm_gpu *gpu = tm_catalog_gpu(reader->import->shipped, name);
    if (gpu == NULL) gpu = tm_catalog_gpu(reader->import->user, name);
    return gpu == NULL ? name : tm_catalog__string(reader->import->user, gpu->name, strlen(gpu->name));
}

static int correct_row(struct sky_reader *reader, struct sky_row *row, struct tm_error *e)
{
    for (size_t i = 0; i < sizeof corrections / sizeof *corrections; i++) {
        if (strcmp(corrections[i].instance, row->instance) != 0) continue;
        if (corrections[i].gpus > 0 && corrections[i].gpus != row->gpus) {
            tm_import__issue(reader->import, row->line, false,
                             "%s: %g GPUs in the file, %g on the vendor's page; using %g", row->instance, row->gpus,
                             corrections[i].gpus, corrections[i].gpus);
            row->gpus = corrections[i].gpus;
        }
        row->gpu = tm_catalog__string(reader->import->user, corrections[i].gpu, strlen(corrections[i].gpu));
        return row->gpu != NULL ? 0 : tm_error_nomem(e);
    }
    return 0;
}

/* Fills `row` from the CSV. Returns 1: use it; 0: it was rejected; negative: stop. */
static int read_row(struct sky_reader *reader, struct sky_row *row, struct tm_error *e)
{
    *row = (struct sky_row){.line = reader->csv->line};
    if (reader->csv->field_count != reader->column_count)
        return reject(reader, row->line, "not as many columns as the header");
    for (int c = 0; c < COLUMN_COUNT; c++) {
        struct tm_slice text = field(reader, (enum column)c);
        if (c != COL_INFO && (text.length > NAME_MAX_BYTES || !tm_slice_is_plain(text)))
            return reject(reader, row->line, "field too long, or with control characters");
    }
    row->instance = intern(reader, field(reader, COL_INSTANCE));
    row->region = intern(reader, field(reader, COL_REGION));
    row->zone = intern(reader, field(reader, COL_ZONE));
    row->gpu = canonical_gpu(reader, field(reader, COL_GPU));
    if (row->instance == NULL || row->region == NULL || row->zone == NULL || row->gpu == NULL) return tm_error_nomem(e);
    if (!read_figure(field(reader, COL_PRICE), &row->price))
        return reject(reader, row->line, "Price: expected dollars per hour of 0 or more");
    if (!read_figure(field(reader, COL_SPOT), &row->spot))
        return reject(reader, row->line, "SpotPrice: expected dollars per hour of 0 or more");
    if (!read_figure(field(reader, COL_VCPUS), &row->vcpus))
        return reject(reader, row->line, "vCPUs: expected a number");
    if (!read_figure(field(reader, COL_MEMORY), &row->memory_gib))
        return reject(reader, row->line, "MemoryGiB: expected a number");
    if (!read_figure(field(reader, COL_GPUS), &row->gpus))
        return reject(reader, row->line, "AcceleratorCount: expected a number");
    if (row->instance[0] == '\0' && row->gpu[0] == '\0')
        return reject(reader, row->line, "neither InstanceType nor AcceleratorName");
    if (row->instance[0] == '\0' && strcmp(reader->cloud, "gcp") != 0)
        return reject(reader, row->line, "no InstanceType");
    if (row->region[0] == '\0') return reject(reader, row->line, "no Region");
    if (isnan(row->price) && isnan(row->spot)) return reject(reader, row->line, "no price");
    if (isnan(row->gpus)) row->gpus = 0;
    if ((row->gpu[0] != '\0') != (row->gpus > 0))
        return reject(reader, row->line, "AcceleratorName and AcceleratorCount do not agree");
    row->gpu_memory_gib = read_gpu_memory(field(reader, COL_INFO));
    int rc = correct_row(reader, row, e);
    if (rc < 0) return rc;
    if (row->gpu[0] != '\0' && row->gpus == 0)
        return reject(reader, row->line, "an instance type with GPUs, but no GPU is given");
    return 1;
}

static void warn_of_unknown_gpu(struct sky_reader *reader, const struct sky_row *row, const struct tm_gpu *gpu)
{
    if (gpu != NULL || row->gpu[0] == '\0') return;
    if (tm_catalog_instance(reader->import->user, reader->cloud, row->instance) != NULL) return; /* once a type */
    bool tpu = strncmp(row->gpu, "tpu-", 4) == 0;
    if (tpu && reader->warned_of_tpus) return;
    reader->warned_of_tpus = reader->warned_of_tpus || tpu;
    if (tpu) {
        tm_import__issue(reader->import, row->line, false, "TPU slices, this one and others: kept, without FLOPS");
        return;
    }
    tm_import__issue(reader->import, row->line, false, "unknown GPU \"%s\": kept, without FLOPS", row->gpu);
}

static int keep_row(struct sky_reader *reader, const struct sky_row *row, struct tm_error *e)
{
    struct tm_import *import = reader->import;
    const struct tm_gpu *gpu = row->gpu[0] != '\0' ? tm_catalog_gpu(import->shipped, row->gpu) : NULL;
    if (gpu == NULL && row->gpu[0] != '\0') gpu = tm_catalog_gpu(import->user, row->gpu);
    warn_of_unknown_gpu(reader, row, gpu);
    double gpu_memory = row->gpu_memory_gib;
    if (isnan(gpu_memory) && gpu != NULL) gpu_memory = gpu->memory_gib;
    struct tm_instance_type instance = {
        .cloud = reader->cloud,
        .name = row->instance,
        .gpu = row->gpu,
        .gpus = row->gpus,
        .vcpus = row->vcpus,
        .memory_gib = row->memory_gib,
        .gpu_memory_gib = gpu_memory,
        .network_gbps = NAN,
        .source = import->source,
    };
    struct tm_offer offer = {
        .region = row->region,
        .zone = row->zone,
        .on_demand_usd_h = row->price,
        .spot_usd_h = row->spot,
        .band = TM_BAND_UNKNOWN,
        .source = import->source,
        .imported = true,
    };
    int rc = tm_catalog__add_instance(import->user, &instance, &offer.instance, e);
    return rc == 0 ? tm_catalog__add_offer(import->user, &offer, e) : rc;
}

/* ---- GCP: host + accelerator ---- */

static int keep_gcp_row(struct sky_reader *reader, const struct sky_row *row, struct tm_error *e)
{
    void *rows = reader->gcp_rows;
    int rc = tm_grow(&rows, &reader->gcp_capacity, reader->gcp_count + 1, sizeof *row, TM_CATALOG_ROWS_MAX);
    reader->gcp_rows = rows;
    if (rc != 0) return tm_error_nomem(e);
    reader->gcp_rows[reader->gcp_count++] = *row;
    return 0;
}

static bool is_gpu_only_host(const char *instance)
{
    for (size_t i = 0; i < GCP_HOST_COUNT; i++) {
        if (strcmp(gcp_hosts[i].host, instance) == 0) return strncmp(instance, "n1-", 3) != 0;
    }
    return strncmp(instance, "a2-", 3) == 0 || strncmp(instance, "a3-", 3) == 0 || strncmp(instance, "a4", 2) == 0;
}

static int host_key(const char *zone, const char *host, char key[512])
{
    return snprintf(key, 512, "%s\t%s", zone, host);
}

/* One offer for an accelerator row on one of its hosts, where that zone has the host. */
static int join(struct sky_reader *reader, const struct sky_row *accelerator, const struct sky_row *host, bool shared,
                struct tm_error *e)
{
    char name[512];
    struct sky_row whole = *accelerator;
    if (shared) /* the same VM may carry other GPUs */
        (void)snprintf(name, sizeof name, "%s+%gx%s", host->instance, accelerator->gpus, accelerator->gpu);
    else
        (void)snprintf(name, sizeof name, "%s", host->instance);
    if (strlen(name) > NAME_MAX_BYTES)
        return reject(reader, accelerator->line, "the names of host and accelerator are too long together");
    whole.instance = tm_catalog__string(reader->import->user, name, strlen(name));
    if (whole.instance == NULL) return tm_error_nomem(e);
    whole.vcpus = host->vcpus;
    whole.memory_gib = host->memory_gib;
    whole.price = accelerator->price + host->price;
    whole.spot = accelerator->spot + host->spot;
    if (isnan(whole.price) && isnan(whole.spot)) return 0;
    return keep_row(reader, &whole, e);
}

/* GPUs that attach to any n1, where the usual size is not offered: the n1 of that zone nearest to 8 vCPUs a GPU. */
static const struct sky_row *nearest_n1(const struct sky_reader *reader, const struct sky_row *accelerator)
{
    const struct sky_row *nearest = NULL;
    bool attaches = false;
    for (size_t i = 0; i < GCP_HOST_COUNT && !attaches; i++)
        attaches = strcmp(gcp_hosts[i].gpu, accelerator->gpu) == 0 && strncmp(gcp_hosts[i].host, "n1-", 3) == 0;
    for (size_t i = 0; attaches && i < reader->gcp_count; i++) {
        const struct sky_row *host = &reader->gcp_rows[i];
        if (strncmp(host->instance, "n1-", 3) != 0 || host->zone != accelerator->zone) continue;
        double off = fabs(log(host->vcpus / (8 * accelerator->gpus)));
        if (nearest == NULL || off < fabs(log(nearest->vcpus / (8 * accelerator->gpus)))) nearest = host;
    }
    return nearest;
}

static int join_accelerator(struct sky_reader *reader, const struct tm_names *hosts, const size_t *host_rows,
                            const struct sky_row *row, struct tm_error *e)
{
    char key[512];
    size_t joined = 0;
    for (size_t i = 0; i < GCP_HOST_COUNT; i++) {
        if (strcmp(gcp_hosts[i].gpu, row->gpu) != 0 || gcp_hosts[i].gpus != row->gpus) continue;
        int length = host_key(row->zone, gcp_hosts[i].host, key);
        long number = tm_names_find(hosts, key, (size_t)length);
        if (number < 0) continue;
        bool shared = strncmp(gcp_hosts[i].host, "n1-", 3) == 0;
        int rc = join(reader, row, &reader->gcp_rows[host_rows[number]], shared, e);
        if (rc != 0) return rc;
        joined++;
    }
    if (joined == 0) {
        const struct sky_row *host = nearest_n1(reader, row);
        int rc = host != NULL ? join(reader, row, host, true, e) : 0;
        if (rc != 0) return rc;
        joined += host != NULL;
    }
    if (joined > 0) reader->import->report->kept++;
    if (joined == 0)
        tm_import__issue(reader->import, row->line, true, "no host VM for %gx %s in %s", row->gpus, row->gpu,
                         row->zone);
    return 0;
}

static int take_gcp_row(struct sky_reader *reader, const struct tm_names *hosts, const size_t *host_rows, size_t i,
                        struct tm_error *e)
{
    struct sky_row row = reader->gcp_rows[i];
    if (row.instance[0] != '\0') { /* a VM by itself, or half of an offer */
        reader->import->report->kept++;
        return is_gpu_only_host(row.instance) ? 0 : keep_row(reader, &row, e);
    }
    if (strncmp(row.gpu, "tpu-", 4) == 0) { /* TPU VMs come with their host */
        reader->import->report->kept++;
        row.instance = row.gpu;
        return keep_row(reader, &row, e);
    }
    return join_accelerator(reader, hosts, host_rows, &row, e);
}

static int join_gcp(struct sky_reader *reader, struct tm_error *e)
{
    if (reader->gcp_count == 0) return 0;
    struct tm_names hosts;
    tm_names_init(&hosts, TM_CATALOG_ROWS_MAX);
    size_t *host_rows = tm_alloc(reader->gcp_count * sizeof *host_rows);
    int rc = host_rows == NULL ? tm_error_nomem(e) : 0;
    char key[512];
    for (size_t i = 0; rc == 0 && i < reader->gcp_count; i++) {
        if (reader->gcp_rows[i].instance[0] == '\0') continue;
        int length = host_key(reader->gcp_rows[i].zone, reader->gcp_rows[i].instance, key);
        long number = tm_names_add(&hosts, key, (size_t)length);
        if (number < 0)
            rc = tm_error_nomem(e);
        else
            host_rows[number] = i;
    }
    for (size_t i = 0; rc == 0 && i < reader->gcp_count; i++)
        rc = take_gcp_row(reader, &hosts, host_rows, i, e);
    tm_free(host_rows);
    tm_names_deinit(&hosts);
    return rc;
}

/* ---- the file ---- */

static int read_header(struct sky_reader *reader, struct tm_error *e)
{
    int rc = tm_csv_next(reader->csv, e);
    if (rc < 0) return rc;
    reader->column_count = reader->csv->field_count;
    for (int i = 0; i < COLUMN_COUNT; i++)
        reader->columns[i] = tm_csv_find(reader->csv, column_names[i]);
    if (rc == 0 || reader->columns[COL_PRICE] < 0)
        return tm_error_set(e, TM_EINPUT, "%s:1: no column \"Price\"", reader->csv->file);
    return 0;
}

static int take_sky_row(struct tm_import *import, const struct tm_csv *csv, void *context, struct tm_error *e)
{
    (void)csv;
    struct sky_reader *reader = context;
    struct sky_row row;
    if (reader->cloud == NULL) {
        int rc = find_cloud(reader, e);
        if (rc != 0) return rc < 0 ? rc : 0;
    }
    int rc = read_row(reader, &row, e);
    if (rc != 1) return rc;
    if (strcmp(reader->cloud, "gcp") == 0) return keep_gcp_row(reader, &row, e);
    import->report->kept++;
    return keep_row(reader, &row, e);
}

int tm_import__skypilot(struct tm_import *import, struct tm_error *e)
{
    struct sky_reader reader = {.import = import, .csv = tm_alloc(sizeof *reader.csv)};
    if (reader.csv == NULL) return tm_error_nomem(e);
    tm_csv_init(reader.csv, import->file, import->text, import->length);
    int rc = tm_import__source(import, "SkyPilot catalogue", e);
    if (rc == 0) rc = read_header(&reader, e);
    if (rc == 0) rc = tm_import__each_row(import, reader.csv, take_sky_row, &reader, e);
    if (rc == 0) rc = join_gcp(&reader, e);
    tm_free(reader.gcp_rows);
    tm_free(reader.csv);
    return rc;
}

/* ---- the tables beside it ---- */

static double figure_of(const struct tm_csv *csv, int column)
{
    double value = NAN;
    if (column < 0 || (size_t)column >= csv->field_count) return NAN;
    return read_figure(tm_slice_trim(csv->fields[column]), &value) ? value : NAN;
}

static struct tm_slice word_of(const struct tm_csv *csv, int column)
{
    if (column < 0 || (size_t)column >= csv->field_count) return (struct tm_slice){"", 0};
    return tm_slice_trim(csv->fields[column]);
}

static int take_network_row(struct tm_import *import, const struct tm_csv *csv, void *context, struct tm_error *e)
{
    const int *columns = context;
    struct tm_slice cloud = word_of(csv, columns[0]);
    struct tm_slice name = word_of(csv, columns[1]);
    double gbps = figure_of(csv, columns[2]);
    if (cloud.length == 0 || name.length == 0 || cloud.length > 100 || name.length > 100 || !tm_slice_is_plain(cloud) ||
        !tm_slice_is_plain(name)) {
        tm_import__issue(import, csv->line, true, "no cloud or instance type");
        return 0;
    }
    const char *cloud_name = tm_catalog__string(import->user, cloud.data, cloud.length);
    const char *type_name = tm_catalog__string(import->user, name.data, name.length);
    if (cloud_name == NULL || type_name == NULL) return tm_error_nomem(e);
    const struct tm_instance_type *known = tm_catalog_instance(import->user, cloud_name, type_name);
    bool own = known != NULL;
    if (known == NULL) known = tm_catalog_instance(import->shipped, cloud_name, type_name);
    if (known == NULL || isnan(gbps)) return 0; /* nothing to say, or of a type that is not in the catalogue */
    struct tm_instance_type instance = *known;
    instance.cloud = cloud_name;
    instance.name = type_name;
    instance.gpu = tm_catalog__string(import->user, known->gpu, strlen(known->gpu));
    if (instance.gpu == NULL) return tm_error_nomem(e);
    instance.network_gbps = gbps;
    if (!own) instance.source = import->source; /* a shipped type: its source is not in this catalogue */
    import->report->kept++;
    return tm_catalog__add_instance(import->user, &instance, NULL, e);
}

/* Calls `take` for each row of a CSV with a header that has all `names`. */
static int for_each_row(struct tm_import *import, const char *const *names, int *columns, size_t column_count,
                        int (*take)(struct tm_import *, const struct tm_csv *, void *, struct tm_error *),
                        struct tm_error *e)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    if (csv == NULL) return tm_error_nomem(e);
    tm_csv_init(csv, import->file, import->text, import->length);
    int rc = tm_csv_next(csv, e);
    for (size_t i = 0; rc == 1 && i < column_count; i++) {
        columns[i] = tm_csv_find(csv, names[i]);
        if (columns[i] < 0) rc = tm_error_set(e, TM_EINPUT, "%s:1: no column \"%s\"", import->file, names[i]);
    }
    if (rc == 1) rc = tm_import__each_row(import, csv, take, columns, e);
    tm_free(csv);
    return rc;
}

int tm_import__network(struct tm_import *import, struct tm_error *e)
{
    static const char *const names[] = {"cloud", "instance_type", "network_gbps"};
    int columns[3] = {0};
    int rc = tm_import__source(import, "network bandwidths", e);
    return rc == 0 ? for_each_row(import, names, columns, 3, take_network_row, e) : rc;
}

static int take_gpu_row(struct tm_import *import, const struct tm_csv *csv, void *context, struct tm_error *e)
{
    const int *columns = context;
    struct tm_slice name = word_of(csv, columns[0]);
    if (name.length == 0 || name.length > 100 || !tm_slice_is_plain(name)) {
        tm_import__issue(import, csv->line, true, "no name");
        return 0;
    }
    struct tm_gpu gpu = {.name = tm_catalog__string(import->user, name.data, name.length),
                         .memory_gib = figure_of(csv, columns[1]),
                         .memory_gbyte_s = figure_of(csv, columns[2]),
                         .source = import->source};
    const struct tm_gpu *known = gpu.name == NULL ? NULL : tm_catalog_gpu(import->shipped, gpu.name);
    const char *aliases = known != NULL ? known->aliases : "";
    gpu.aliases = tm_catalog__string(import->user, aliases, strlen(aliases));
    if (gpu.name == NULL || gpu.aliases == NULL) return tm_error_nomem(e);
    for (int p = 0; p < TM_PRECISION_COUNT; p++)
        gpu.tflops[p] = figure_of(csv, columns[3 + p]);
    import->report->kept++;
    return tm_catalog__add_gpu(import->user, &gpu, e);
}

int tm_import__gpus(struct tm_import *import, struct tm_error *e)
{
    static const char *const names[] = {"name",        "mem_gb",      "mem_bw_gbps", "fp32_tflops",
                                        "tf32_tflops", "fp16_tflops", "bf16_tflops", "fp8_tflops"};
    int columns[8] = {0};
    int rc = tm_import__source(import, "GPU figures", e);
    return rc == 0 ? for_each_row(import, names, columns, 8, take_gpu_row, e) : rc;
}
