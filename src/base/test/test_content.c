#include "base/content.h"

#include "base/env_virtual.h"
#include "base/test/tempdir.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* gzip of `data`; the caller frees it. */
static char *pack(const char *data, size_t length, size_t *out_length)
{
    char *copy = malloc(length + 1);
    char *packed = malloc(length + 1000);
    assert_non_null(copy);
    assert_non_null(packed);
    memcpy(copy, data, length);
    z_stream stream = {.next_in = (Bytef *)copy,
                       .avail_in = (uInt)length,
                       .next_out = (Bytef *)packed,
                       .avail_out = (uInt)length + 1000};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *out_length = stream.total_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
    free(copy);
    return packed;
}

static int unpack(const char *data, size_t length, size_t limit, struct tm_text *out, struct tm_error *e)
{
    tm_text_init(out, limit);
    return tm_content__unpack("f.csv", data, length, out, e);
}

static void test_plain_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t length;
        int code;
        const char *words;
    } rows[] = {
        {"a,b\n", 4, TM_OK, ""},
        {"\xEF\xBB\xBF"
         "a",
         4, TM_OK, ""},
        {"\x1F", 1, TM_OK, ""}, /* half of gzip's magic number is not gzip */
        {"", 0, TM_EINPUT, "f.csv: file is empty"},
        {" \r\n\t\n", 5, TM_EINPUT, "f.csv: file is empty"},
        {"ab\0c", 4, TM_EINPUT, "f.csv: binary data (a zero byte at offset 2), expected text"},
        {"\0", 1, TM_EINPUT, "f.csv: binary data (a zero byte at offset 0), expected text"},
        {"\x7F"
         "ELF\2\1\1\0",
         8, TM_EINPUT, "f.csv: binary data (a zero byte at offset 7), expected text"},
        {"\xFF\xFE"
         "a\0",
         4, TM_EINPUT, "f.csv: binary data"}, /* UTF-16 */
        {"12345678901", 11, TM_ELIMIT, "limit of 10 bytes"},
    };
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct tm_text out;
        struct tm_error e = {0};
        int rc = unpack(rows[i].data, rows[i].length, 10, &out, &e);
        assert_row(rc == -rows[i].code, "row %zu: got %d %s", i, rc, e.text);
        assert_error_has(e, rows[i].words);
        if (rc == 0) assert_memory_equal(out.data, rows[i].data, rows[i].length);
        tm_text_deinit(&out);
    }
}

static void test_gzip_is_unpacked_behind_what_is_there(void **state)
{
    (void)state;
    size_t length = 0;
    char *packed = pack("hello\n", 6, &length);
    char *twice = malloc(2 * length);
    assert_non_null(twice);
    memcpy(twice, packed, length);
    memcpy(twice + length, packed, length);
    struct tm_text out;
    tm_text_init(&out, 1000);
    tm_text_puts(&out, "old:");
    assert_int_equal(tm_content__unpack("f", twice, 2 * length, &out, NULL), 0);
    assert_string_equal(tm_text_string(&out), "old:hello\nhello\n");
    tm_text_deinit(&out);
    free(twice);
    free(packed);
}

static void test_gzip_cut_at_each_byte(void **state)
{
    (void)state;
    size_t length = 0;
    char *packed = pack("some text that is packed, packed, packed\n", 41, &length);
    for (size_t cut = 2; cut < length; cut++) {
        struct tm_text out;
        struct tm_error e = {0};
        int rc = unpack(packed, cut, 1000, &out, &e);
        assert_row(rc == -(int)TM_EINPUT, "cut at %zu: got %d", cut, rc);
        assert_row(strcmp(e.text, "f.csv: gzip data ends too early; copy the file again") == 0, "cut at %zu: %s", cut,
                   e.text);
        tm_text_deinit(&out);
    }
    free(packed);
}

static void test_gzip_damaged(void **state)
{
    (void)state;
    size_t length = 0;
    char *packed = pack("some text that is packed, packed, packed\n", 41, &length);
    static const size_t places[] = {2, 12, 20}; /* the method, two in the data */
    for (size_t i = 0; i < TM_COUNT(places); i++) {
        struct tm_text out;
        struct tm_error e = {0};
        packed[places[i]] ^= 0x55;
        int rc = unpack(packed, length, 1000, &out, &e);
        packed[places[i]] ^= 0x55;
        assert_row(rc == -(int)TM_EINPUT, "byte %zu: got %d", places[i], rc);
        assert_error_has(e, "f.csv: ");
        tm_text_deinit(&out);
    }
    packed[length - 6] ^= 1; /* the checksum */
    struct tm_text out;
    struct tm_error e = {0};
    assert_int_equal(unpack(packed, length, 1000, &out, &e), -(int)TM_EINPUT);
    assert_error_has(e, "f.csv: damaged gzip data: incorrect data check");
    tm_text_deinit(&out);
    free(packed);
}

static void test_gzip_bomb(void **state)
{
    (void)state;
    size_t size = 50000000;
    char *zeros = calloc(1, size);
    assert_non_null(zeros);
    size_t length = 0;
    char *packed = pack(zeros, size, &length);
    assert_true(length < 100000);
    struct tm_text out;
    struct tm_error e = {0};
    assert_int_equal(unpack(packed, length, 1000000, &out, &e), -(int)TM_ELIMIT);
    assert_error_has(e, "f.csv (unpacked): text is longer than its limit of 1000000 bytes");
    assert_true(out.capacity <= 1000001);
    tm_text_deinit(&out);
    free(packed);
    free(zeros);
}

static void test_gzip_of_nothing_and_of_binary(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t length;
        const char *words;
    } rows[] = {{"", 0, "file is empty"}, {"\n", 1, "file is empty"}, {"a\0", 2, "zero byte at offset 1"}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        size_t length = 0;
        char *packed = pack(rows[i].data, rows[i].length, &length);
        struct tm_text out;
        struct tm_error e = {0};
        int rc = unpack(packed, length, 1000, &out, &e);
        assert_row(rc == -(int)TM_EINPUT, "row %zu: got %d", i, rc);
        assert_error_has(e, rows[i].words);
        tm_text_deinit(&out);
        free(packed);
    }
}

static void test_read_names_the_file(void **state)
{
    (void)state;
    struct tm_env *env = tm_env_virtual_create(1);
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 1000);
    assert_int_equal(env->file_write(env, "a.csv", "x,y\n", 4, NULL), 0);
    assert_int_equal(env->file_write(env, "/dev/stdin", "from a pipe", 11, NULL), 0);
    assert_int_equal(tm_content_read(env, "a.csv", &out, &e), 0);
    assert_int_equal(tm_content_read(env, "-", &out, &e), 0);
    assert_string_equal(tm_text_string(&out), "x,y\nfrom a pipe");
    assert_int_equal(tm_content_read(env, "b.csv", &out, &e), -(int)TM_ENOTFOUND);
    assert_error_has(e, "b.csv: No such file");
    assert_int_equal(env->file_write(env, "/dev/stdin", " ", 1, NULL), 0);
    assert_int_equal(tm_content_read(env, "-", &out, &e), -(int)TM_EINPUT);
    assert_string_equal(e.text, "(standard input): file is empty");
    tm_text_deinit(&out);
    tm_env_virtual_destroy(env);
}

/* A gigabyte that takes no room on the disk, and must take none in memory. */
static void test_a_huge_file_is_refused_unread(void **state)
{
    (void)state;
    struct tm_tempdir dir;
    tm_tempdir_make(&dir);
    const char *path = tm_tempdir_path(&dir, "huge.csv");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1L << 30), 0);
    struct tm_text out;
    struct tm_error e = {0};
    tm_text_init(&out, 100 << 20);
    int rc = tm_content_read(tm_env_real(), path, &out, &e);
    (void)close(fd);
    tm_tempdir_remove(&dir);
    assert_int_equal(rc, -(int)TM_ELIMIT);
    assert_error_has(e, path);
    assert_error_has(e, "file has 1073741824 bytes, more than the limit of 104857600");
    assert_int_equal(out.capacity, 0);
    tm_text_deinit(&out);
}

static int unpack_once(const char *data, size_t length)
{
    struct tm_text out;
    int rc = unpack(data, length, 1 << 20, &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static int read_once(struct tm_env *env)
{
    struct tm_text out;
    tm_text_init(&out, 1000);
    int rc = tm_content_read(env, "a.csv", &out, NULL);
    tm_text_deinit(&out);
    return rc;
}

static void test_without_memory(void **state)
{
    (void)state;
    char data[100000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)('a' + i * i % 23 + i % 3);
    size_t length = 0;
    char *packed = pack(data, sizeof data, &length);
    TM_FAIL_EACH_ALLOC(rc = unpack_once(packed, length));
    TM_FAIL_EACH_ALLOC(rc = unpack_once(data, sizeof data));
    free(packed);
    struct tm_env *env = tm_env_virtual_create(1);
    assert_int_equal(env->file_write(env, "a.csv", "x,y\n", 4, NULL), 0);
    TM_FAIL_EACH_ALLOC(rc = read_once(env));
    tm_env_virtual_destroy(env);
}

TM_TEST_MAIN(TM_TEST(test_plain_bytes), TM_TEST(test_gzip_is_unpacked_behind_what_is_there),
             TM_TEST(test_gzip_cut_at_each_byte), TM_TEST(test_gzip_damaged), TM_TEST(test_gzip_bomb),
             TM_TEST(test_gzip_of_nothing_and_of_binary), TM_TEST(test_read_names_the_file),
             TM_TEST(test_a_huge_file_is_refused_unread), TM_TEST(test_without_memory))
