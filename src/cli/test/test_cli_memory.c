/* Without memory: the whole program on a virtual world, command by command, and what is made from the table.
 * builds: release asan */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "cli/command.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS_MAX = 32, SHOWN_MAX = 1 << 17 };

/* ---- made from the table ---- */

static const struct tm_term fancy = {.color = true, .utf8 = true};

/* What is put to a text, whole or with a failure that the text tells. */
static int put_once(void (*put)(struct tm_text *out))
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    put(&out);
    int rc = tm_text_status(&out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void put_each_help(struct tm_text *out)
{
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        const struct tm_command *path[2] = {command, command->subcommands};
        tm_help_command(path, 1, &fancy, out);
        if (command->subcommands != NULL) tm_help_command(path, 2, &fancy, out);
    }
}

static void put_help_json(struct tm_text *out)
{
    tm_help_json(NULL, out);
    tm_help_json(&tm_commands[0], out);
}

static int completion_once(const char *shell)
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    int rc = tm_completion(shell, &out, NULL);
    if (rc == 0) rc = tm_text_status(&out, NULL);
    if (strcmp(shell, "tcsh") == 0) rc = rc == -(int)TM_EUSAGE ? 0 : -(int)TM_EINTERNAL;
    tm_text_deinit(&out);
    return rc;
}

static int man_once(const char *page)
{
    struct tm_text out;
    tm_text_init(&out, 1 << 20);
    int rc = tm_man_source(page, &out, NULL);
    if (strcmp(page, "nothing") == 0) rc = rc == -(int)TM_ENOTFOUND ? 0 : -(int)TM_EINTERNAL;
    tm_text_deinit(&out);
    return rc;
}

static void test_made_from_the_table(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish", "tcsh"};
    TM_FAIL_EACH_ALLOC(rc = put_once(put_each_help));
    TM_FAIL_EACH_ALLOC(rc = put_once(put_help_json));
    TM_FAIL_EACH_ALLOC(rc = put_once(tm_man_list));
    for (size_t i = 0; i < TM_COUNT(shells); i++)
        TM_FAIL_EACH_ALLOC(rc = completion_once(shells[i]));
    TM_FAIL_EACH_ALLOC(rc = man_once("tidemill"));
    TM_FAIL_EACH_ALLOC(rc = man_once("nothing"));
    for (const struct tm_command *command = tm_commands; command->name != NULL; command++) {
        char page[64];
        (void)snprintf(page, sizeof page, "tidemill-%s", command->name);
        TM_FAIL_EACH_ALLOC(rc = man_once(page));
    }
}

/* ---- words ---- */

struct words {
    char text[1024];
    char *words[WORDS_MAX];
    int count;
};

static void split(const char *line, struct words *out)
{
    *out = (struct words){.count = 0};
    (void)snprintf(out->text, sizeof out->text, "%s", line);
    for (char *word = strtok(out->text, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(out->count < WORDS_MAX);
        out->words[out->count++] = word;
    }
}

static int parse_once(const struct words *words, enum tm_code want)
{
    static struct tm_cli cli;
    struct tm_text path;
    struct tm_error e = {0};
    int64_t ms = 0;
    int choice = 0;
    cli = (struct tm_cli){.path_count = 0};
    tm_arena_init(&cli.arena, 1 << 20);
    tm_text_init(&path, 1000);
    int rc = tm_cli_parse(&cli, words->count, words->words, &e);
    if (rc == 0) tm_cli_path(&cli, &path);
    if (rc == 0) rc = tm_text_status(&path, &e);
    if (rc == 0) rc = tm_given_duration(&cli, "mtbf", &ms, &e);
    if (rc == 0) rc = tm_given_choice(&cli, "to", &choice, &e);
    if (rc != -(int)e.code) rc = -(int)TM_EINTERNAL;
    if (rc != -(int)TM_ENOMEM) rc = rc == -(int)want ? 0 : -(int)TM_EINTERNAL;
    tm_text_deinit(&path);
    tm_arena_deinit(&cli.arena);
    return rc;
}

static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum tm_code want;
    } rows[] = {
        {"trace generate --mtbf 6h --to json-series -o x", TM_OK},
        {"trace generate --mtbf soon", TM_EUSAGE},
        {"trace generate --to jsno", TM_EUSAGE},
        {"trace generate --mbtf 6h", TM_EUSAGE},
        {"trace generate --xyzzy", TM_EUSAGE},
        {"trace generate -Z", TM_EUSAGE},
        {"trase", TM_EUSAGE},
        {"xyzzy", TM_EUSAGE},
        {"catalog p3.2xlarge", TM_EUSAGE},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct words words;
        split(rows[i].line, &words);
        TM_FAIL_EACH_ALLOC(rc = parse_once(&words, rows[i].want));
    }
}

/* ---- settings ---- */

/* Settings that are there are read, or the want of memory is told: they are not passed over. */
static int load_settings_once(struct tm_env *env, const char *path, enum tm_code want)
{
    struct tm_arena arena;
    struct tm_settings settings;
    tm_arena_init(&arena, 1 << 20);
    tm_settings_defaults(&settings);
    int rc = tm_settings_load(env, path, &arena, &settings, NULL);
    if (rc == 0 && settings.color != TM_COLOR_ALWAYS) rc = -(int)TM_EINTERNAL;
    if (rc != -(int)TM_ENOMEM) rc = rc == -(int)want ? 0 : -(int)TM_EINTERNAL;
    tm_arena_deinit(&arena);
    return rc;
}

static void test_settings(void **state)
{
    (void)state;
    static const char good[] = "color: always\nclouds: [aws]\n";
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(tm_env_virtual_set_variable(env, "HOME", "/h"), 0);
    assert_int_equal(env->file_write(env, "/h/.config/tidemill/config.yaml", good, sizeof good - 1, NULL), 0);
    assert_int_equal(env->file_write(env, "/bad", "color: red\n", 11, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = load_settings_once(env, NULL, TM_OK));
    TM_FAIL_EACH_ALLOC(rc = load_settings_once(env, "/bad", TM_EINPUT));
    TM_FAIL_EACH_ALLOC(rc = load_settings_once(env, "/missing", TM_ENOTFOUND));
    tm_env_virtual_destroy(env);
}

/* ---- the whole program ---- */

static struct tm_env *make_world(void)
{
    static const char settings[] = "clouds: [aws, gcp]\n";
    static const char aws[] =
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
        "AvailabilityZone\np3.2xlarge,V100,1,8,61,,3,1,r,r-a\np3.2xlarge,V100,1,8,61,,-3,1,r,r-b\n";
    /* Without memory a bad row is counted but may not be listed: a list in JSON is compared without one. */
    static const char good[] =
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,"
        "AvailabilityZone\np3.2xlarge,V100,1,8,61,,3,1,r,r-a\n";
    static const char deepvm[] =
        "tidemill-deepvm 1\nvariant: run\nsource: "
        "x\n\n[quota]\nclass,on_demand_vcpus,spot_vcpus\nG,32,128\nC,256,256\n\n"
        "[instance]\nname,class,vcpus,memory_gib,network_gbps,on_demand,spot,flops,a,b,c\n"
        "g3s.xlarge,G,4,30.5,10,0.75,0.225,100,0.14,14.4,13.5\nc3.xlarge,C,4,7.5,0.3,0.21,0.1281,,,,\n";
    static const char prices[] = "instance,zone,time,usd_h\np3.2xlarge,us-east-1a,2024-02-01,0.9\n";
    struct tm_env *env = tm_env_virtual_create(1);
    if (env == NULL) return NULL;
    if (tm_env_virtual_set_variable(env, "HOME", "/h") == 0 &&
        env->file_write(env, "/h/.config/tidemill/config.yaml", settings, sizeof settings - 1, NULL) == 0 &&
        env->file_write(env, "/in/aws.csv", aws, sizeof aws - 1, NULL) == 0 &&
        env->file_write(env, "/in/good.csv", good, sizeof good - 1, NULL) == 0 &&
        env->file_write(env, "/in/deepvm", deepvm, sizeof deepvm - 1, NULL) == 0 &&
        env->file_write(env, "/h/.local/share/tidemill/spot-prices.csv", prices, sizeof prices - 1, NULL) == 0 &&
        env->file_write(env, "/in/binary", "a\0b", 3, NULL) == 0)
        return env;
    tm_env_virtual_destroy(env);
    return NULL;
}

/* What a call left on standard output, and its exit status. */
struct outcome {
    int status;
    size_t length;
    char shown[SHOWN_MAX];
};

/* Standard output goes to a file in memory and standard error to nowhere while the program runs. */
struct capture {
    int memory;
    int nowhere;
    int output;
    int error;
};

static struct capture capture_open(void)
{
    struct capture capture = {memfd_create("out", 0), open("/dev/null", O_WRONLY), dup(STDOUT_FILENO),
                              dup(STDERR_FILENO)};
    assert_true(capture.memory >= 0 && capture.nowhere >= 0 && capture.output >= 0 && capture.error >= 0);
    return capture;
}

static void capture_close(const struct capture *capture)
{
    (void)close(capture->memory);
    (void)close(capture->nowhere);
    (void)close(capture->output);
    (void)close(capture->error);
}

static void run(const struct capture *capture, struct tm_env *env, const struct words *words, struct outcome *out)
{
    (void)fflush(NULL);
    assert_int_equal(ftruncate(capture->memory, 0), 0);
    assert_int_equal(lseek(capture->memory, 0, SEEK_SET), 0);
    (void)dup2(capture->memory, STDOUT_FILENO);
    (void)dup2(capture->nowhere, STDERR_FILENO);
    out->status = tm_cli_main(env, words->count, words->words);
    (void)fflush(NULL);
    (void)dup2(capture->output, STDOUT_FILENO);
    (void)dup2(capture->error, STDERR_FILENO);
    ssize_t got = pread(capture->memory, out->shown, sizeof out->shown, 0);
    assert_true(got >= 0 && got < SHOWN_MAX);
    out->length = (size_t)got;
}

/* The call prints the same and ends the same, or it prints nothing and ends with status 1: no half document, no
 * missing cell, no other reason. */
static int main_once(const struct capture *capture, const struct words *words, const struct outcome *want)
{
    static struct outcome got;
    struct tm_env *env = make_world();
    if (env == NULL) return -(int)TM_ENOMEM;
    run(capture, env, words, &got);
    tm_env_virtual_destroy(env);
    bool same =
        got.status == want->status && got.length == want->length && memcmp(got.shown, want->shown, got.length) == 0;
    if (same) return 0;
    return got.status == 1 && got.length == 0 ? -(int)TM_ENOMEM : -(int)TM_EINTERNAL;
}

static const struct {
    const char *line;
    int status;
} calls[] = {
    {"", 0},
    {"--version", 0},
    {"--version --json", 0},
    {"--list-man-pages", 0},
    {"--man-source tidemill", 0},
    {"--man-source nothing", 2},
    {"catalog --help", 0},
    {"help trace generate", 0},
    {"help --json", 0},
    {"help nothing", 2},
    {"completion bash", 0},
    {"completion zsh --json", 0},
    {"config", 0},
    {"config --json", 0},
    {"--config /missing config", 2},
    {"catalog --gpu V100 --sort price", 0},
    {"catalog --gpu V100 --json", 0},
    {"catalog --gpu V001", 2},
    {"catalog --max-price 0.0001", 3},
    {"catalog show p3.2xlarge", 0},
    {"catalog show p3.2xlarge --json", 0},
    {"catalog import --cloud aws --as-of 2024-01-01 /in/aws.csv", 0},
    {"catalog import --cloud aws --as-of 2024-01-01 --json /in/good.csv", 0},
    {"catalog import --cloud aws --strict /in/aws.csv", 2},
    {"trace stats hadp lasp", 0},
    {"trace stats --json hadp lasp", 0},
    {"trace stats /in/binary", 2},
    {"trace stats hapd", 2},
    {"trace show hadp", 0},
    {"trace show hadp --json", 0},
    {"trace show hadp --svg /out.svg", 0},
    {"trace convert hadp --to json-series", 0},
    {"trace convert hadp -o /out --json", 0},
    {"trace cut hadp --from 20m --to 40m", 0},
    {"trace cut hadp --from 9h", 2},
    {"trace generate --nodes 8 --mean 6 --mtbf 1h --duration 2h", 0},
    {"trace generate", 2},
    {"simulate --work 20m --deadline 40m --gang 24 hadp hasp", 0},
    {"simulate --work 20m --deadline 40m --gang 24 hadp --json", 0},
    {"simulate --work 20m --deadline 40m --policy gredy hadp", 2},
    {"plan --planner deepvm --instances /in/deepvm --max-hourly 3", 0},
    {"plan --planner deepvm --instances /in/deepvm --max-hourly 3 --json", 0},
    {"plan --planner deepvm --instances /in/missing", 2},
    {"predict --model gpt2-124m --fleet 2xp3.2xlarge --batch 8", 0},
    {"predict --model gpt2-124m --fleet 2xp3.2xlarge --batch 8 --json", 0},
    {"predict --model gpt3 --fleet 2xp3.2xlarge", 2},
    {"catalgo", 2},
};

static void test_main(void **state)
{
    (void)state;
    static struct outcome want;
    struct capture capture = capture_open();
    for (size_t i = 0; i < TM_COUNT(calls); i++) {
        struct words words;
        split(calls[i].line, &words);
        struct tm_env *env = make_world();
        assert_non_null(env);
        run(&capture, env, &words, &want);
        tm_env_virtual_destroy(env);
        assert_row(want.status == calls[i].status, "\"%s\": status %d", calls[i].line, want.status);
        long allocations = 0;
        for (bool failed = true; failed;) {
            long live = tm_alloc_live();
            tm_alloc_fail_at(++allocations);
            int rc = main_once(&capture, &words, &want);
            failed = tm_alloc_failed() != 0;
            tm_alloc_fail_at(0);
            assert_row(rc == 0 || (failed && rc == -(int)TM_ENOMEM),
                       "\"%s\", allocation %ld: neither whole nor refused", calls[i].line, allocations);
            assert_row(tm_alloc_live() == live, "\"%s\", allocation %ld: memory is left over", calls[i].line,
                       allocations);
        }
    }
    capture_close(&capture);
}

TM_TEST_MAIN(TM_TEST(test_made_from_the_table), TM_TEST(test_words), TM_TEST(test_settings), TM_TEST(test_main))
