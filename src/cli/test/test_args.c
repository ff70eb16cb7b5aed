#include "cli/command.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 400 };

/* One call of the parser; what it gives lives until end(). */
struct call {
    struct tm_cli cli;
    struct tm_error e;
    char text[4096];
    char *words[WORDS_MAX];
    int word_count;
};

/* Blanks separate the words of a line; '' is an empty word. */
static int parse(struct call *call, const char *line)
{
    *call = (struct call){.word_count = 0};
    tm_arena_init(&call->cli.arena, 1 << 20);
    (void)snprintf(call->text, sizeof call->text, "%s", line);
    for (char *word = strtok(call->text, " "); word != NULL; word = strtok(NULL, " ")) {
        if (strcmp(word, "''") == 0) word[0] = '\0';
        call->words[call->word_count++] = word;
    }
    return tm_cli_parse(&call->cli, call->word_count, call->words, &call->e);
}

static void end(struct call *call)
{
    tm_arena_deinit(&call->cli.arena);
}

/* "tidemill trace show|--svg=x --json|hadp" */
static void describe(const struct tm_cli *cli, struct tm_text *out)
{
    tm_cli_path(cli, out);
    for (size_t i = 0; i < cli->given_count; i++) {
        const struct tm_option_given *given = &cli->given[i];
        tm_text_printf(out, "%s--%s%s%s", i == 0 ? "|" : " ", given->option->name, given->value != NULL ? "=" : "",
                       given->value != NULL ? given->value : "");
    }
    for (size_t i = 0; i < cli->argument_count; i++)
        tm_text_printf(out, "%s%s", i == 0 ? (cli->given_count > 0 ? "|" : "||") : " ", cli->arguments[i]);
}

static void test_words_are_sorted(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *want;
    } rows[] = {
        {"", "tidemill"},
        {"catalog", "tidemill catalog"},
        {"catalog show p3.2xlarge", "tidemill catalog show||p3.2xlarge"},
        {"--json catalog", "tidemill catalog|--json"},
        {"catalog --json --json", "tidemill catalog|--json --json"},
        {"catalog --gpu V100", "tidemill catalog|--gpu=V100"},
        {"catalog --gpu=V100", "tidemill catalog|--gpu=V100"},
        {"catalog --gpu=", "tidemill catalog|--gpu="},
        {"catalog --gpu ''", "tidemill catalog|--gpu="},
        {"catalog --gpu=a=b", "tidemill catalog|--gpu=a=b"},
        {"catalog --gpu --json", "tidemill catalog|--gpu=--json"},
        {"catalog --gpu -- --json", "tidemill catalog|--gpu=-- --json"},
        {"catalog -q", "tidemill catalog|--quiet"},
        {"catalog -qva", "tidemill catalog|--quiet --verbose --all"},
        {"trace convert f -o x", "tidemill trace convert|--output=x|f"},
        {"trace convert f -ox", "tidemill trace convert|--output=x|f"},
        {"trace convert f -o=x", "tidemill trace convert|--output==x|f"},
        {"trace convert f -qox", "tidemill trace convert|--quiet --output=x|f"},
        {"trace convert f -qo x", "tidemill trace convert|--quiet --output=x|f"},
        {"trace convert -o -", "tidemill trace convert|--output=-"},
        {"trace stats -", "tidemill trace stats||-"},
        {"trace --json stats a -q b", "tidemill trace stats|--json --quiet|a b"},
        {"trace stats -- --json -q", "tidemill trace stats||--json -q"},
        {"trace stats a -- -- b", "tidemill trace stats||a -- b"},
        {"trace stats a show", "tidemill trace stats||a show"},
        {"-- trace", "tidemill trace"},
        {"trace --", "tidemill trace"},
        {"help trace stats", "tidemill help||trace stats"},
        {"trace convert f --to tidemill", "tidemill trace convert|--to=tidemill|f"},
        {"--man-source tidemill", "tidemill|--man-source=tidemill"},
        {"torchrun --steps 5 t.py --steps 6", "tidemill torchrun|--steps=5|t.py --steps 6"},
        {"torchrun -- --nnodes 1:4 --nproc_per_node 2 t.py -q",
         "tidemill torchrun|--nnodes=1:4 --nproc-per-node=2|t.py -q"},
        {"torchrun --steps 5 -- --standalone t.py -- a", "tidemill torchrun|--steps=5 --standalone|t.py -- a"},
        {"torchrun -- t.py --standalone", "tidemill torchrun||t.py --standalone"},
        {"torchrun -- -- -t.py", "tidemill torchrun||-t.py"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct call call;
        struct tm_text got;
        tm_text_init(&got, 4096);
        assert_row(parse(&call, rows[i].line) == 0, "\"%s\": %s", rows[i].line, call.e.text);
        describe(&call.cli, &got);
        assert_row_string(rows[i].line, tm_text_string(&got), rows[i].want);
        tm_text_deinit(&got);
        end(&call);
    }
}

static void test_wrong_words(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *want;
    } rows[] = {
        {"catalgo", "unknown command \"catalgo\"; did you mean: tidemill catalog?"},
        {"frobnicate", "unknown command \"frobnicate\"; see: tidemill --help"},
        {"''", "unknown command \"\"; see: tidemill --help"},
        {"-", "unknown command \"-\"; see: tidemill --help"},
        {"trace statz", "unknown command \"statz\"; did you mean: tidemill trace stats?"},
        {"trace xyzzy", "unknown command \"xyzzy\"; perhaps: tidemill trace show xyzzy"},
        {"catalog shwo x", "unknown command \"shwo\"; did you mean: tidemill catalog show?"},
        {"--jsn", "unknown option --jsn; did you mean --json?"},
        {"catalog --gpuu V100", "unknown option --gpuu; did you mean --gpu?"},
        {"catalog --gpuu=V100", "unknown option --gpuu; did you mean --gpu?"},
        {"catalog --xyzzy", "unknown option --xyzzy; see: tidemill catalog --help"},
        {"catalog show --sort price x", "unknown option --sort; see: tidemill catalog show --help"},
        {"--gpu V100 catalog", "unknown option --gpu; see: tidemill --help"},
        {"--man-sourc tidemill", "unknown option --man-sourc; see: tidemill --help"}, /* hidden: not offered */
        {"catalog --=x", "unknown option --; see: tidemill catalog --help"},
        {"catalog -z", "unknown option -z; see: tidemill catalog --help"},
        {"catalog -qz", "unknown option -qz; see: tidemill catalog --help"},
        {"catalog --json=yes", "--json takes no value"},
        {"catalog --json=", "--json takes no value"},
        {"catalog --gpu", "--gpu needs a value: --gpu NAME,..."},
        {"trace convert f -o", "-o needs a value: FILE"},
        {"trace convert f -qo", "-o needs a value: FILE"},
        {"catalog --sort flop", "--sort: expected one of price, flops, flopp, name, got \"flop\"; did you mean flops?"},
        {"catalog --sort=xyzzy", "--sort: expected one of price, flops, flopp, name, got \"xyzzy\""},
        {"catalog --sort ''", "--sort: expected one of price, flops, flopp, name, got \"\""},
        {"catalog --sort Prise", "got \"Prise\"; did you mean price?"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct call call;
        int rc = parse(&call, rows[i].line);
        assert_row(rc == -(int)TM_EUSAGE && call.e.code == TM_EUSAGE, "\"%s\": got %d", rows[i].line, rc);
        assert_row(strstr(call.e.text, rows[i].want) != NULL, "\"%s\": got \"%s\", want \"%s\"", rows[i].line,
                   call.e.text, rows[i].want);
        end(&call);
    }
}

/* Words of any length are answered, cut to what fits a message. */
static void test_long_words(void **state)
{
    (void)state;
    static const char *const rows[] = {"%s", "--%s", "--%s=x", "-z%s", "catalog --sort %s", "trace %s"};
    char word[2000];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char line[2100];
        struct call call;
        const char *place = strstr(rows[i], "%s");
        (void)snprintf(line, sizeof line, "%.*s%s%s", (int)(place - rows[i]), rows[i], word, place + 2);
        assert_row(parse(&call, line) == -(int)TM_EUSAGE, "\"%s\"", rows[i]);
        assert_row(strlen(call.e.text) < 300, "\"%s\": \"%s\"", rows[i], call.e.text);
        end(&call);
    }
}

static void test_too_many_options(void **state)
{
    (void)state;
    static const struct {
        int options;
        int want;
    } rows[] = {{TM_OPTIONS_GIVEN_MAX, 0}, {TM_OPTIONS_GIVEN_MAX + 1, -(int)TM_ELIMIT}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char line[2048] = "catalog";
        struct call call;
        for (int n = 0; n < rows[i].options; n++)
            strcat(line, " -q");
        int rc = parse(&call, line);
        assert_row(rc == rows[i].want, "%d options: got %d", rows[i].options, rc);
        end(&call);
    }
}

static void test_the_last_one_counts(void **state)
{
    (void)state;
    struct call call;
    assert_int_equal(parse(&call, "catalog --limit 3 --json --limit 5"), 0);
    assert_true(tm_given(&call.cli, "limit"));
    assert_true(tm_given(&call.cli, "json"));
    assert_false(tm_given(&call.cli, "quiet"));
    assert_string_equal(tm_given_text(&call.cli, "limit"), "5");
    assert_null(tm_given_text(&call.cli, "json")); /* a switch */
    assert_null(tm_given_text(&call.cli, "gpu"));
    end(&call);
}

static int get_duration(const struct tm_cli *cli, double *out, struct tm_error *e)
{
    int64_t ms = -1;
    int rc = tm_given_duration(cli, "mtbf", &ms, e);
    *out = (double)ms;
    return rc;
}

static int get_number(const struct tm_cli *cli, double *out, struct tm_error *e)
{
    *out = -1;
    return tm_given_number(cli, "mean", 0, 100, out, e);
}

static int get_integer(const struct tm_cli *cli, double *out, struct tm_error *e)
{
    int64_t value = -1;
    int rc = tm_given_integer(cli, "nodes", 1, 100, &value, e);
    *out = (double)value;
    return rc;
}

static int get_choice(const struct tm_cli *cli, double *out, struct tm_error *e)
{
    int value = -1;
    int rc = tm_given_choice(cli, "to", &value, e);
    *out = value;
    return rc;
}

static void test_typed_values(void **state)
{
    (void)state;
    static const struct {
        const char *words; /* behind "trace generate " */
        int (*get)(const struct tm_cli *cli, double *out, struct tm_error *e);
        double want;
        const char *error; /* NULL: none */
    } rows[] = {
        {"", get_duration, -1, NULL},
        {"--mtbf 1h30m", get_duration, 5400000, NULL},
        {"--mtbf 0s", get_duration, 0, NULL},
        {"--mtbf soon", get_duration, 0, "--mtbf: expected duration, got \"soon\""},
        {"--mtbf ''", get_duration, 0, "--mtbf: expected duration"},
        {"--mtbf -1s", get_duration, 0, "--mtbf: expected duration, got \"-1s\""},
        {"--mtbf 1h --mtbf soon", get_duration, 0, "--mtbf: expected duration, got \"soon\""},
        {"", get_number, -1, NULL},
        {"--mean 2.5", get_number, 2.5, NULL},
        {"--mean 0", get_number, 0, NULL},
        {"--mean 1e2", get_number, 100, NULL},
        {"--mean 100.1", get_number, 0, "--mean: expected a number from 0 to 100, got \"100.1\""},
        {"--mean -1", get_number, 0, "--mean: expected a number from 0 to 100, got \"-1\""},
        {"--mean nan", get_number, 0, "got \"nan\""},
        {"--mean inf", get_number, 0, "got \"inf\""},
        {"--mean 1e400", get_number, 0, "got \"1e400\""},
        {"--mean 1x", get_number, 0, "got \"1x\""},
        {"--mean ''", get_number, 0, "got \"\""},
        {"", get_integer, -1, NULL},
        {"--nodes 1", get_integer, 1, NULL},
        {"--nodes 100", get_integer, 100, NULL},
        {"--nodes 0", get_integer, 0, "--nodes: expected a whole number from 1 to 100, got \"0\""},
        {"--nodes 101", get_integer, 0, "got \"101\""},
        {"--nodes 1.5", get_integer, 0, "got \"1.5\""},
        {"--nodes 99999999999999999999", get_integer, 0, "got \"99999999999999999999\""},
        {"", get_choice, -1, NULL},
        {"--to tidemill", get_choice, 0, NULL},
        {"--to tidemill --to json-series", get_choice, 1, NULL},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char line[200];
        double got = 0;
        struct call call;
        (void)snprintf(line, sizeof line, "trace generate %s", rows[i].words);
        assert_row(parse(&call, line) == 0, "\"%s\": %s", rows[i].words, call.e.text);
        int rc = rows[i].get(&call.cli, &got, &call.e);
        assert_row(rc == (rows[i].error != NULL ? -(int)TM_EUSAGE : 0), "\"%s\": got %d", rows[i].words, rc);
        if (rows[i].error != NULL)
            assert_row(strstr(call.e.text, rows[i].error) != NULL, "\"%s\": got \"%s\"", rows[i].words, call.e.text);
        else
            assert_row(got == rows[i].want, "\"%s\": got %g", rows[i].words, got);
        end(&call);
    }
}

static void test_comma_lists(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *text;
        bool want;
    } rows[] = {
        {"catalog", "aws", true}, /* none given: all match */
        {"catalog --region x", "aws", true},
        {"catalog --cloud aws", "aws", true},
        {"catalog --cloud AWS", "aws", true},
        {"catalog --cloud aws", "gcp", false},
        {"catalog --cloud aws,gcp", "gcp", true},
        {"catalog --cloud aws,,gcp", "gcp", true},
        {"catalog --cloud aws,gcp,", "gcp", true},
        {"catalog --cloud aws,gcp,", "", false},
        {"catalog --cloud aws --cloud gcp", "aws", true},
        {"catalog --cloud aws --cloud gcp", "azure", false},
        {"catalog --cloud aw", "aws", false},
        {"catalog --cloud awss", "aws", false},
        {"catalog --cloud ''", "aws", false},
        {"catalog --cloud ,", "aws", false},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct call call;
        assert_row(parse(&call, rows[i].line) == 0, "\"%s\": %s", rows[i].line, call.e.text);
        bool got = tm_given_matches(&call.cli, "cloud", rows[i].text);
        assert_row(got == rows[i].want, "\"%s\" and \"%s\": got %d", rows[i].line, rows[i].text, got);
        end(&call);
    }
}

static void test_parsing_without_memory(void **state)
{
    (void)state;
    static char first[] = "trace";
    static char second[] = "stats";
    static char third[] = "x";
    char *const words[] = {first, second, third};
    TM_FAIL_EACH_ALLOC({
        struct tm_cli cli = {.path_count = 0};
        tm_arena_init(&cli.arena, 1 << 20);
        rc = tm_cli_parse(&cli, 3, words, NULL);
        tm_arena_deinit(&cli.arena);
    });
}

TM_TEST_MAIN(TM_TEST(test_words_are_sorted), TM_TEST(test_wrong_words), TM_TEST(test_long_words),
             TM_TEST(test_too_many_options), TM_TEST(test_the_last_one_counts), TM_TEST(test_typed_values),
             TM_TEST(test_comma_lists), TM_TEST(test_parsing_without_memory))
