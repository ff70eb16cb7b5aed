#include "base/csv.h"

#include "base/test/harness.h"

#include <stdio.h>
#include <string.h>

static struct tm_csv *csv_of(const char *data, size_t length)
{
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    assert_non_null(csv);
    tm_csv_init(csv, "a.csv", data, length);
    return csv;
}

/* All rows in one text, so that a table of tests can show them: "line:field|field;" and "!words;" for an error. */
static void show(struct tm_csv *csv, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (;;) {
        struct tm_error e = {0};
        int rc = tm_csv_next(csv, &e);
        if (rc == 0) return;
        if (rc < 0) {
            used += (size_t)snprintf(out + used, size - used, "!%s;", e.text);
            continue;
        }
        used += (size_t)snprintf(out + used, size - used, "%d:", csv->line);
        for (size_t i = 0; i < csv->field_count; i++)
            used += (size_t)snprintf(out + used, size - used, "%s%.*s", i > 0 ? "|" : "", (int)csv->fields[i].length,
                                     csv->fields[i].data);
        used += (size_t)snprintf(out + used, size - used, ";");
        assert_row(used < size, "too many rows to show");
    }
}

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        {"", ""},
        {"a", "1:a;"},
        {"a,b\nc,d\n", "1:a|b;2:c|d;"},
        {"a,b\r\nc,d\r\n", "1:a|b;2:c|d;"},
        {"a,b\r\nc,d\r", "1:a|b;2:c|d;"},
        {"\xEF\xBB\xBF"
         "a,b\n",
         "1:a|b;"},
        {"\xEF\xBB\xBF", ""},
        {"\n\n  \t\na\n\r\n\nb", "4:a;7:b;"},
        {",\n", "1:|;"},
        {"a,\n,b", "1:a|;2:|b;"},
        {" a , b ", "1: a | b ;"},
        {"\"a\",\"b c\"\n", "1:a|b c;"},
        {"\"a\",\"b\"\r\nc\r\n", "1:a|b;2:c;"},
        {"\"a,b\",c\n", "1:a,b|c;"},
        {"\"say \"\"hi\"\"\",c\n", "1:say \"hi\"|c;"},
        {"\"\",\"\"\"\"\n", "1:|\";"},
        {"\"a\nb\r\nc\",d\ne\n", "1:a\nb\r\nc|d;4:e;"},
        {"a\"b,c\n", "1:a\"b|c;"}, /* a quote inside a plain field is text */
        {"#x\na\n", "1:#x;2:a;"},
        {"a\r,b\n", "1:a\r|b;"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_csv *csv = csv_of(rows[i].text, strlen(rows[i].text));
        char got[1000];
        show(csv, got, sizeof got);
        assert_row_string(rows[i].text, got, rows[i].want);
        tm_free(csv);
    }
}

static void test_comments_where_asked(void **state)
{
    (void)state;
    static const char text[] = "# head\n#\na,#b\n  # not at the start\n# end";
    struct tm_csv *csv = csv_of(text, sizeof text - 1);
    csv->comments = true;
    char got[200];
    show(csv, got, sizeof got);
    assert_string_equal(got, "3:a|#b;4:  # not at the start;");
    tm_free(csv);
}

static void test_going_on_after_a_bad_row(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        {"a\n\"b\nc\nd\n", "1:a;!a.csv:2: quoted field has no closing '\"';3:c;4:d;"},
        {"a\n\"b", "1:a;!a.csv:2: quoted field has no closing '\"';"},
        {"\"", "!a.csv:1: quoted field has no closing '\"';"},
        {"\"a\"x,b\nc\n", "!a.csv:1: text after a closing '\"'; double the quotes inside a quoted field;2:c;"},
        {"\"a\" ,b\nc\n", "!a.csv:1: text after a closing '\"'; double the quotes inside a quoted field;2:c;"},
        {"\"a\nb\",\"c\"x\nd\n", "!a.csv:1: text after a closing '\"'; double the quotes inside a quoted field;3:d;"},
        {"\"a\nb\",\"c\nd\n", "!a.csv:1: quoted field has no closing '\"';3:d;"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_csv *csv = csv_of(rows[i].text, strlen(rows[i].text));
        char got[1000];
        show(csv, got, sizeof got);
        assert_row_string(rows[i].text, got, rows[i].want);
        tm_free(csv);
    }
}

/* `count` fields or bytes of a kind, then a good row: what comes out? */
static void check_large(const char *piece, size_t count, const char *want)
{
    size_t length = strlen(piece);
    char *text = tm_alloc(length * count + 10);
    assert_non_null(text);
    size_t used = 0;
    for (size_t i = 0; i < count; i++, used += length)
        memcpy(text + used, piece, length);
    memcpy(text + used, "\nok\n", 5);
    struct tm_csv *csv = csv_of(text, used + 4);
    struct tm_error e = {0};
    int rc = tm_csv_next(csv, &e);
    assert_row(want == NULL ? rc == 1 : rc == -(int)TM_ELIMIT, "%zu x \"%s\": got %d", count, piece, rc);
    if (want != NULL) assert_error_has(e, want);
    assert_int_equal(tm_csv_next(csv, &e), 1);
    assert_row(csv->line == 2 && tm_slice_equals(csv->fields[0], "ok"), "%zu x \"%s\": lost the way", count, piece);
    assert_int_equal(tm_csv_next(csv, &e), 0);
    tm_free(csv);
    tm_free(text);
}

static void test_limits(void **state)
{
    (void)state;
    check_large("x,", 63, NULL);
    check_large("x,", 64, "a.csv:1: row has more than 64 columns");
    check_large("x,", 1000000, "a.csv:1: row has more than 64 columns");
    check_large("\"x\",", 1000000, "a.csv:1: row has more than 64 columns");
    check_large(",", 1000000, "a.csv:1: row has more than 64 columns");
    check_large("x", TM_CSV_ROW_BYTES_MAX - 1, NULL);
    check_large("x", TM_CSV_ROW_BYTES_MAX + 1, "a.csv:1: row is longer than 65536 bytes");
    check_large("x", 10000000, "a.csv:1: row is longer than 65536 bytes");
}

static void test_a_quoted_field_too_long(void **state)
{
    (void)state;
    size_t length = TM_CSV_ROW_BYTES_MAX + 100;
    char *text = tm_alloc(length);
    assert_non_null(text);
    memset(text, 'x', length);
    text[0] = '"';
    text[length - 1] = '"';
    struct tm_csv *csv = csv_of(text, length);
    struct tm_error e = {0};
    assert_int_equal(tm_csv_next(csv, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "a.csv:1: row is longer than 65536 bytes");
    assert_int_equal(tm_csv_next(csv, &e), 0);
    tm_csv_init(csv, "a.csv", text, TM_CSV_ROW_BYTES_MAX + 2);
    text[TM_CSV_ROW_BYTES_MAX + 1] = '"';
    assert_int_equal(tm_csv_next(csv, &e), 1);
    assert_int_equal(csv->fields[0].length, TM_CSV_ROW_BYTES_MAX);
    tm_free(csv);
    tm_free(text);
}

static void test_zero_bytes_are_text(void **state)
{
    (void)state;
    struct tm_csv *csv = csv_of("a\0b,c\n", 6);
    assert_int_equal(tm_csv_next(csv, NULL), 1);
    assert_int_equal(csv->field_count, 2);
    assert_int_equal(csv->fields[0].length, 3);
    tm_free(csv);
    csv = csv_of(NULL, 0);
    assert_int_equal(tm_csv_next(csv, NULL), 0);
    tm_free(csv);
}

static void test_find(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int index;
    } rows[] = {{"time", 0}, {"zone", 1}, {"count", 2}, {"Count", -1}, {"", 3}, {" zone ", -1}, {"cou", -1}};
    static const char text[] = "time, zone ,\"count\",,count\n";
    struct tm_csv *csv = csv_of(text, sizeof text - 1);
    assert_int_equal(tm_csv_next(csv, NULL), 1);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        int index = tm_csv_find(csv, rows[i].name);
        assert_row(index == rows[i].index, "\"%s\": got %d", rows[i].name, index);
    }
    tm_free(csv);
}

static void test_trim(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {{"", ""}, {"a", "a"}, {" \ta b\t ", "a b"}, {"  \t ", ""}, {"\na\r", "\na\r"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slice slice = tm_slice_trim((struct tm_slice){rows[i].text, strlen(rows[i].text)});
        assert_row(tm_slice_equals(slice, rows[i].want), "\"%s\": \"%.*s\"", rows[i].text, (int)slice.length,
                   slice.data);
    }
}

/* Lines that are no table: "key: any, \"text\"". */
static void test_raw_rows_and_keys(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *raw;
        const char *key; /* NULL: no key */
        const char *value;
    } rows[] = {
        {"source: a, b\nnext\n", "source: a, b", "source", "a, b"},
        {"  k : v, \"w\"  \r\nx", "k : v, \"w\"", "k", "v, \"w\""},
        {"\"k: v\",\"w\"\n", "\"k: v\",\"w\"", "\"k", "v\",\"w\""},
        {"a,b", "a,b", NULL, NULL},
        {"time: 10:30\n", "time: 10:30", "time", "10:30"},
    };
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    assert_non_null(csv);
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_slice key;
        struct tm_slice value;
        tm_csv_init(csv, "f", rows[i].text, strlen(rows[i].text));
        assert_row(tm_csv_next(csv, NULL) == 1, "row %zu: not read", i);
        assert_row(tm_slice_equals(tm_csv_raw(csv), rows[i].raw), "row %zu: raw", i);
        bool found = tm_csv_key(tm_csv_raw(csv), &key, &value);
        assert_row(found == (rows[i].key != NULL), "row %zu: key", i);
        if (found) assert_row(tm_slice_equals(key, rows[i].key) && tm_slice_equals(value, rows[i].value), "row %zu", i);
    }
    tm_free(csv);
}

TM_TEST_MAIN(TM_TEST(test_raw_rows_and_keys), TM_TEST(test_rows), TM_TEST(test_comments_where_asked),
             TM_TEST(test_going_on_after_a_bad_row), TM_TEST(test_limits), TM_TEST(test_a_quoted_field_too_long),
             TM_TEST(test_zero_bytes_are_text), TM_TEST(test_find), TM_TEST(test_trim))
