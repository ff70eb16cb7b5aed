#include "base/fields.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

struct inner {
    double share;
    int64_t margin_ms;
};

struct job {
    const char *name;
    bool spot;
    int64_t nodes;
    double factor;
    int64_t deadline_ms;
    int64_t budget;
    int64_t memory;
    int64_t rate;
    int color;
    struct tm_strings zones;
    struct inner limits;
    struct tm_maps parts;
};

static const char *const colors[] = {"auto", "always", "never", NULL};

static const struct tm_field inner_fields[] = {
    {.key = "share", .type = TM_FIELD_NUMBER, .offset = offsetof(struct inner, share), .min = 0, .max = 1},
    {.key = "margin", .type = TM_FIELD_DURATION, .offset = offsetof(struct inner, margin_ms), .required = true},
    {.key = NULL},
};

static const struct inner inner_unsaid = {.share = -1};

static const struct tm_field job_fields[] = {
    {.key = "name", .type = TM_FIELD_STRING, .offset = offsetof(struct job, name), .required = true, .example = "n1"},
    {.key = "spot", .type = TM_FIELD_BOOL, .offset = offsetof(struct job, spot)},
    {.key = "nodes", .type = TM_FIELD_INTEGER, .offset = offsetof(struct job, nodes), .min = 1, .max = 1000},
    {.key = "factor", .type = TM_FIELD_NUMBER, .offset = offsetof(struct job, factor)},
    {.key = "deadline", .type = TM_FIELD_DURATION, .offset = offsetof(struct job, deadline_ms)},
    {.key = "budget", .type = TM_FIELD_MONEY, .offset = offsetof(struct job, budget), .min = 1},
    {.key = "memory", .type = TM_FIELD_BYTES, .offset = offsetof(struct job, memory), .min = 1024},
    {.key = "rate", .type = TM_FIELD_RATE, .offset = offsetof(struct job, rate)},
    {.key = "color", .type = TM_FIELD_CHOICE, .offset = offsetof(struct job, color), .choices = colors},
    {.key = "zones", .type = TM_FIELD_STRINGS, .offset = offsetof(struct job, zones)},
    {.key = "limits", .type = TM_FIELD_MAP, .offset = offsetof(struct job, limits), .fields = inner_fields},
    {.key = "parts",
     .type = TM_FIELD_MAPS,
     .offset = offsetof(struct job, parts),
     .fields = inner_fields,
     .size = sizeof(struct inner),
     .initial = &inner_unsaid},
    {.key = NULL},
};

static int read_job(const char *yaml, struct tm_arena *arena, struct job *job, struct tm_error *e)
{
    struct tm_node *root = NULL;
    int rc = tm_doc_parse_yaml("job.yaml", yaml, strlen(yaml), arena, &root, e);
    return rc != 0 ? rc : tm_fields_read("job.yaml", root, job_fields, arena, job, e);
}

static void test_every_type(void **state)
{
    (void)state;
    static const char yaml[] = "name: night run\nspot: yes\nnodes: 12\nfactor: -1.5\ndeadline: 1h30m\nbudget: $12.50\n"
                               "memory: 16GiB\nrate: 25Gbit/s\ncolor: never\nzones: [a, 'b', c]\n"
                               "limits: {share: 0.5, margin: 5s}\n";
    struct tm_arena arena;
    struct tm_error e = {0};
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    assert_row(read_job(yaml, &arena, &job, &e) == 0, "%s", e.text);
    assert_string_equal(job.name, "night run");
    assert_true(job.spot);
    assert_int_equal(job.nodes, 12);
    assert_true(job.factor == -1.5);
    assert_int_equal(job.deadline_ms, 5400000);
    assert_int_equal(job.budget, 12500000);
    assert_int_equal(job.memory, 17179869184);
    assert_int_equal(job.rate, 25000000000);
    assert_int_equal(job.color, 2);
    assert_int_equal(job.zones.count, 3);
    assert_string_equal(job.zones.items[2], "c");
    assert_true(job.limits.share == 0.5);
    assert_int_equal(job.limits.margin_ms, 5000);
    tm_arena_deinit(&arena);
}

static void test_defaults_stay(void **state)
{
    (void)state;
    struct tm_arena arena;
    struct tm_error e = {0};
    struct job job = {.nodes = 4, .color = 1, .spot = true, .limits = {.share = 0.25}};
    tm_arena_init(&arena, 1 << 20);
    assert_row(read_job("name: x\nzones: alone\nlimits: {margin: 0s}\n", &arena, &job, &e) == 0, "%s", e.text);
    assert_int_equal(job.nodes, 4);
    assert_int_equal(job.color, 1);
    assert_true(job.spot);
    assert_true(job.limits.share == 0.25);
    assert_int_equal(job.zones.count, 1);
    assert_string_equal(job.zones.items[0], "alone");
    tm_arena_deinit(&arena);
}

static void test_the_words_of_errors(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *words;
    } rows[] = {
        {"name: x\n\ndeadline: soon\n",
         "job.yaml:3:11: deadline: expected duration, got \"soon\"; write for example 6h"},
        {"name: x\r\nnodes: 0\r\n",
         "job.yaml:2:8: nodes: expected whole number from 1 to 1000, got \"0\"; write for example 8"},
        {"nodes: 1001\n",
         "job.yaml:1:8: nodes: expected whole number from 1 to 1000, got \"1001\"; write for example 8"},
        {"nodes: 2.5\n", "job.yaml:1:8: nodes: expected whole number from 1 to 1000, got \"2.5\"; write for example 8"},
        {"nodes: 99999999999999999999\n", "job.yaml:1:8: nodes: expected whole number from 1 to 1000, got"},
        {"factor: nan\n", "job.yaml:1:9: factor: expected number, got \"nan\"; write for example 8"},
        {"limits: {share: 1.5}\n", "job.yaml:1:17: limits.share: expected number from 0 to 1, got \"1.5\""},
        {"spot: maybe\n", "job.yaml:1:7: spot: expected true or false, got \"maybe\"; write for example true"},
        {"color: red\n",
         "job.yaml:1:8: color: expected one of auto, always, never, got \"red\"; write for example auto"},
        {"budget: -1\n", "job.yaml:1:9: budget: expected amount in dollars, got \"-1\"; write for example 12.50"},
        {"budget: $0\n",
         "job.yaml:1:9: budget: must be more than 0, got \"$0\"; write for example 12.50, or leave it out"},
        {"memory: 1000\n", "job.yaml:1:9: memory: must be at least 1024, got \"1000\"; write for example 16GiB"},
        {"parts: []\n", "job.yaml:1:8: parts: the list is empty; write at least one item, or leave parts out"},
        {"memory: big\n", "job.yaml:1:9: memory: expected size in bytes, got \"big\"; write for example 16GiB"},
        {"rate: 25\n", "job.yaml:1:7: rate: expected rate in bits per second, got \"25\"; write for example 25Gbit/s"},
        {"name: [a]\n", "job.yaml:1:7: name: expected text, got a list; write for example n1"},
        {"name:\n", "job.yaml:1:1: name: expected text, got nothing; write for example n1"},
        {"deadline: {a: 1}\n", "deadline: expected duration, got a map; write for example 6h"},
        {"zones: {a: b}\n", "zones: expected list of strings, got a map"},
        {"zones: [a, [b]]\n", "zones: expected list of strings, got a list"},
        {"limits: 3\n", "job.yaml:1:9: limits: expected map, got \"3\""},
        {"dedline: 6h\n", "job.yaml:1:10: dedline: unknown key; did you mean \"deadline\"?"},
        {"Nodes: 6\n", "job.yaml:1:8: Nodes: unknown key; did you mean \"nodes\"?"},
        {"limits: {marign: 1s}\n", "job.yaml:1:18: limits.marign: unknown key; did you mean \"margin\"?"},
        {"xyzzy: 6\n", "job.yaml:1:8: xyzzy: unknown key"},
        {"spot: true\n", "job.yaml:1:1: key \"name\" is missing; write for example name: n1"},
        {"name: x\nlimits:\n  share: 1\n",
         "job.yaml:3:3: key \"limits.margin\" is missing; write for example margin: 6h"},
        {"[a]\n", "job.yaml:1:1: expected a map of keys and values, got a list"},
        {"word\n", "job.yaml:1:1: expected a map of keys and values, got word"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_error e = {0};
        struct job job = {0};
        tm_arena_init(&arena, 1 << 20);
        int rc = read_job(rows[i].yaml, &arena, &job, &e);
        assert_row(rc == -(int)TM_EINPUT, "%s: got %d", rows[i].yaml, rc);
        assert_error_has(e, rows[i].words);
        assert_row(read_job(rows[i].yaml, &arena, &job, NULL) == rc, "%s: differs without words", rows[i].yaml);
        tm_arena_deinit(&arena);
    }
}

static void test_unknown_key_without_a_neighbour_suggests_nothing(void **state)
{
    (void)state;
    struct tm_arena arena;
    struct tm_error e = {0};
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(read_job("xyzzy: 6\n", &arena, &job, &e), -(int)TM_EINPUT);
    assert_string_equal(e.text, "job.yaml:1:8: xyzzy: unknown key");
    tm_arena_deinit(&arena);
}

static void test_json_has_places_too(void **state)
{
    (void)state;
    static const char json[] = "{\"name\": \"x\", \"nodes\": \"many\"}";
    struct tm_arena arena;
    struct tm_node *root = NULL;
    struct tm_error e = {0};
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    assert_int_equal(tm_doc__parse_json("job.json", json, sizeof json - 1, &arena, &root, &e), 0);
    assert_int_equal(tm_fields_read("job.json", root, job_fields, &arena, &job, &e), -(int)TM_EINPUT);
    assert_error_has(e, "job.json:1:24: nodes: expected whole number from 1 to 1000, got \"many\"");
    tm_arena_deinit(&arena);
}

static void test_long_names_and_values_do_not_overflow(void **state)
{
    (void)state;
    char yaml[6000];
    memset(yaml, 'k', sizeof yaml);
    memcpy(yaml + 3000, ": ", 2);
    yaml[sizeof yaml - 1] = '\0';
    struct tm_arena arena;
    struct tm_error e = {0};
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    struct tm_node value = {.kind = TM_NODE_SCALAR, .text = yaml, .key = yaml};
    struct tm_node map = {.kind = TM_NODE_MAP, .first = &value, .count = 1};
    assert_int_equal(tm_fields_read(yaml, &map, job_fields, &arena, &job, &e), -(int)TM_EINPUT);
    value.key = "deadline";
    assert_int_equal(tm_fields_read("f", &map, job_fields, &arena, &job, &e), -(int)TM_EINPUT);
    assert_error_has(e, "expected duration, got \"kkk");
    assert_true(strlen(e.text) < 200);
    tm_arena_deinit(&arena);
}

static void test_read_text(void **state)
{
    (void)state;
    static const struct {
        size_t field;
        const char *text;
        const char *words; /* NULL: taken */
    } rows[] = {
        {0, "x", NULL},
        {1, "off", NULL},
        {1, "on", NULL},
        {2, "7", NULL},
        {3, "1e3", NULL},
        {4, "6h", NULL},
        {8, "auto", NULL},
        {9, "zone-a", NULL},
        {4, "soon", "--option: expected duration, got \"soon\"; write for example 6h"},
        {2, "", "--option: expected whole number from 1 to 1000, got \"\"; write for example 8"},
        {8, "Auto", "--option: expected one of auto, always, never, got \"Auto\"; write for example auto"},
        {10, "x", "--option: expected map, got \"x\""},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_arena arena;
        struct tm_error e = {0};
        struct job job = {0};
        tm_arena_init(&arena, 1 << 16);
        int rc = tm_field_read_text("--option", rows[i].text, &job_fields[rows[i].field], &arena, &job, &e);
        assert_row(rc == (rows[i].words != NULL ? -(int)TM_EINPUT : 0), "\"%s\": got %d", rows[i].text, rc);
        if (rc != 0) assert_row_string(rows[i].text, e.text, rows[i].words);
        tm_arena_deinit(&arena);
    }
}

static void test_read_text_keeps_a_copy(void **state)
{
    (void)state;
    char text[] = "zone-a";
    struct tm_arena arena;
    struct job job = {0};
    tm_arena_init(&arena, 1 << 16);
    assert_int_equal(tm_field_read_text("--name", text, &job_fields[0], &arena, &job, NULL), 0);
    assert_int_equal(tm_field_read_text("--zones", text, &job_fields[9], &arena, &job, NULL), 0);
    memset(text, 'x', sizeof text - 1);
    assert_string_equal(job.name, "zone-a");
    assert_string_equal(job.zones.items[0], "zone-a");
    tm_arena_deinit(&arena);
}

static void test_lists_of_maps(void **state)
{
    (void)state;
    static const struct {
        const char *parts;
        const char *words;
    } rows[] = {
        {"[{margin: 1s}, {margin: 2s, share: 2}]",
         "job.yaml:2:43: parts[2].share: expected number from 0 to 1, got \"2\""},
        {"[{margin: 1s}, 3]", "job.yaml:2:23: parts[2]: expected map, got \"3\""},
        {"{margin: 1s}", "job.yaml:2:8: parts: expected list of maps, got a map"},
        {"[{}]", "job.yaml:2:9: key \"parts[1].margin\" is missing; write for example margin: 6h"},
        {"[{margn: 1s}]", "job.yaml:2:17: parts[1].margn: unknown key; did you mean \"margin\"?"},
    };
    struct tm_arena arena;
    struct tm_error e = {0};
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    assert_row(read_job("name: x\nparts: [{margin: 1s}, {margin: 2s, share: 0.5}]\n", &arena, &job, &e) == 0, "%s",
               e.text);
    const struct inner *parts = job.parts.items;
    assert_true(job.parts.count == 2 && parts[0].margin_ms == 1000 && parts[1].margin_ms == 2000);
    assert_true(parts[0].share == -1 && parts[1].share == 0.5);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char yaml[200];
        (void)snprintf(yaml, sizeof yaml, "name: x\nparts: %s\n", rows[i].parts);
        assert_row(read_job(yaml, &arena, &job, &e) == -(int)TM_EINPUT, "%s", rows[i].parts);
        assert_row_string(rows[i].parts, e.text, rows[i].words);
    }
    tm_arena_deinit(&arena);
}

static void test_expected(void **state)
{
    (void)state;
    static const char *const want[] = {"text",
                                       "true or false",
                                       "whole number from 1 to 1000",
                                       "number",
                                       "duration",
                                       "amount in dollars",
                                       "size in bytes",
                                       "rate in bits per second",
                                       "one of auto, always, never",
                                       "list of strings",
                                       "map",
                                       "list of maps"};
    for (size_t i = 0; i < TM_COUNT(want); i++) {
        struct tm_text out;
        tm_text_init(&out, 200);
        tm_field_expected(&job_fields[i], &out);
        assert_row_string(job_fields[i].key, tm_text_string(&out), want[i]);
        tm_text_deinit(&out);
    }
}

static int read_once(void)
{
    struct tm_arena arena;
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    int rc = read_job("name: x\nzones: [a, b, c]\nlimits: {margin: 1s}\nparts: [{margin: 1s}]\n", &arena, &job, NULL);
    if (rc == 0) rc = tm_field_read_text("--zones", "abc", &job_fields[9], &arena, &job, NULL);
    tm_arena_deinit(&arena);
    return rc;
}

static int read_option_once(size_t field)
{
    struct tm_arena arena;
    struct job job = {0};
    tm_arena_init(&arena, 1 << 20);
    int rc = tm_field_read_text("--option", "abc", &job_fields[field], &arena, &job, NULL);
    tm_arena_deinit(&arena);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    TM_FAIL_EACH_ALLOC(rc = read_once());
    TM_FAIL_EACH_ALLOC(rc = read_option_once(0));
    TM_FAIL_EACH_ALLOC(rc = read_option_once(9));
}

TM_TEST_MAIN(TM_TEST(test_every_type), TM_TEST(test_defaults_stay), TM_TEST(test_the_words_of_errors),
             TM_TEST(test_unknown_key_without_a_neighbour_suggests_nothing), TM_TEST(test_json_has_places_too),
             TM_TEST(test_long_names_and_values_do_not_overflow), TM_TEST(test_read_text),
             TM_TEST(test_read_text_keeps_a_copy), TM_TEST(test_lists_of_maps), TM_TEST(test_expected),
             TM_TEST(test_without_memory))
