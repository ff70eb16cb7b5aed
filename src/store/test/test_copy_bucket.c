/* The store of copies in a bucket. Names of places need no service; the rest does: tests/clouds/run starts S3 and
 * Azure's blobs on loopback, and says what may be used (TIDEMILL_TEST_BUCKET: "s3://BUCKET" or "az://CONTAINER"). */
#include "base/test/harness.h"
#include "store/objects.h"
#include "store/test/copy_store_suite.h"
#include "web/aws.h"
#include "web/azure.h"

#include <stdlib.h>
#include <unistd.h>

static const char *bucket_of_tests(void)
{
    const char *name = getenv("TIDEMILL_TEST_BUCKET");
    if (name == NULL) skip();
    return name;
}

struct bucket_place {
    char place[200];
};

static struct tm_copy_store *open_bucket(void *context, uint64_t job)
{
    const struct bucket_place *place = context;
    struct tm_copy_store *store = NULL;
    struct tm_error e;
    int rc = tm_copy_store_open(tm_env_real(), place->place, job, &store, &e);
    assert_row(rc == 0, "%s", e.text);
    return store;
}

static struct bucket_place make_place(const char *name)
{
    struct bucket_place place;
    (void)snprintf(place.place, sizeof place.place, "%s/%d/%s", bucket_of_tests(), (int)getpid(), name);
    return place;
}

static void test_suite(void **state)
{
    (void)state;
    struct bucket_place place = make_place("suite/a b+c=d:e");
    copy_store_suite(&(struct copy_store_place){&place, open_bucket, NULL, NULL});
}

static void test_places(void **state)
{
    (void)state;
    static const struct {
        const char *place;
        const char *bucket; /* NULL: refused */
        const char *prefix;
    } rows[] = {{"s3://tide", "tide", ""},
                {"s3://tide/", "tide", ""},
                {"s3://tide/a/b/", "tide", "a/b"},
                {"s3://tide//a", "tide", "a"},
                {"s3://my.bucket-1/x", "my.bucket-1", "x"},
                {"s3://Tide/x", NULL, NULL},
                {"s3://ti/x", NULL, NULL},
                {"s3:///x", NULL, NULL},
                {"s3://", NULL, NULL},
                {"az://tide/x", "tide", "x"},
                {"az://Tide/x", NULL, NULL},
                {"gs://tide/x", "tide", "x"},
                {"r2://tide/x", NULL, NULL},
                {"s3://a123456789012345678901234567890123456789012345678901234567890123/x", NULL, NULL}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        char bucket[TM_BUCKET_MAX] = "";
        char prefix[TM_PREFIX_MAX] = "";
        int rc = tm_objects_place(rows[i].place, bucket, prefix, NULL);
        assert_row((rc == 0) == (rows[i].bucket != NULL), "%s: %d", rows[i].place, rc);
        if (rc != 0) continue;
        assert_row_string(rows[i].place, bucket, rows[i].bucket);
        assert_row_string(rows[i].place, prefix, rows[i].prefix);
    }
}

/* Parts that go in several pieces, up and down, and what a large one leaves behind. */
static void test_large(void **state)
{
    (void)state;
    struct bucket_place place = make_place("large");
    struct tm_copy_store *store = open_bucket(&place, 0);
    struct tm_block_pool *pool = tm_block_pool_create();
    static const size_t sizes[] = {(8U << 20) - 4096, (8U << 20) - 4095, (12U << 20) - 4096, 12U << 20,
                                   (24U << 20) + 12345};
    for (uint32_t l = 0; l < TM_COUNT(sizes); l++)
        assert_row(suite_put(store, pool, 5, l, sizes[l]) == 0, "%zu", sizes[l]);
    assert_int_equal(store->seal(store, 5, "five", 4, NULL), 0);
    for (uint32_t l = 0; l < TM_COUNT(sizes); l++)
        assert_row(suite_get(store, pool, 5, l, sizes[l]) == 0, "%zu", sizes[l]);
    struct tm_block *block = NULL;
    struct tm_copy_name name;
    assert_int_equal(store->get(store, 5, 4, 64U << 20, pool, &name, &block, NULL), -(int)TM_EINPUT);
    assert_int_equal(store->get(store, 5, 4, 16U << 20, pool, &name, &block, NULL), -(int)TM_EINPUT);
    assert_int_equal(store->drop(store, 5, NULL), 0);
    tm_block_pool_destroy(pool);
    store->close(store);
}

/* Two coordinators of one job: who claims last names the newest set, the other is told. */
static void test_two_coordinators(void **state)
{
    (void)state;
    struct bucket_place place = make_place("two");
    struct tm_copy_store *old = open_bucket(&place, 7);
    struct tm_copy_store *new = open_bucket(&place, 7);
    struct tm_error e;
    uint64_t set = 0;
    assert_int_equal(old->claim(old, false, NULL), 0);
    assert_int_equal(old->newest(old, &set, NULL), -(int)TM_ENOTFOUND); /* claimed is not sealed */
    assert_int_equal(old->seal(old, 1, "one", 3, NULL), 0);
    assert_int_equal(new->claim(new, false, NULL), 0);
    assert_int_equal(suite_newest(new), 1);
    assert_int_equal(old->seal(old, 2, "two", 3, &e), -(int)TM_EINPUT);
    assert_error_has(e, "another coordinator has taken this job over");
    assert_int_equal(suite_newest(old), 1);
    suite_lists(new, "1:one "); /* what may not be named is not listed */
    assert_int_equal(new->seal(new, 3, "three", 5, NULL), 0);
    assert_int_equal(old->seal(old, 3, "three", 5, NULL), -(int)TM_EINPUT);
    assert_int_equal(suite_newest(new), 3);
    assert_int_equal(new->seal(new, 4, "four", 4, NULL), 0);
    assert_int_equal(suite_newest(old), 4);
    old->close(old);
    new->close(new);
}

static int count_one(void *context, const char *name, struct tm_error *e)
{
    (void)name;
    (void)e;
    ++*(int *)context;
    return 0;
}

/* Nothing of a set is left once it is dropped; names like those of others stay. */
static void test_drop(void **state)
{
    (void)state;
    struct bucket_place place = make_place("drop");
    struct tm_copy_store *store = open_bucket(&place, 0);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_objects objects;
    int count = 0;
    assert_int_equal(tm_objects_open(tm_env_real(), place.place, &objects, NULL), 0);
    for (uint32_t l = 0; l < 5; l++) {
        assert_int_equal(suite_put(store, pool, 1, l, 100), 0);
        assert_int_equal(suite_put(store, pool, 12, l, 100), 0);
    }
    assert_int_equal(objects.put(objects.self, "set-x.manifest", "x", 1, NULL, NULL, NULL), 0);
    assert_int_equal(objects.put(objects.self, "set-0.manifest", "x", 1, NULL, NULL, NULL), 0);
    assert_int_equal(store->seal(store, 12, "twelve", 6, NULL), 0);
    suite_lists(store, "12:twelve ");
    assert_int_equal(store->drop(store, 1, NULL), 0);
    assert_int_equal(objects.each(objects.self, "set-1/", false, count_one, &count, NULL), 0);
    assert_int_equal(count, 0);
    assert_int_equal(objects.each(objects.self, "set-12/", false, count_one, &count, NULL), 0);
    assert_int_equal(count, 5);
    objects.close(objects.self);
    tm_block_pool_destroy(pool);
    store->close(store);
}

/* Blocks of an upload that was torn go with their set. */
static void drop_blocks(void)
{
    struct bucket_place place = make_place("half");
    struct tm_copy_store *store = open_bucket(&place, 0);
    struct tm_block_pool *pool = tm_block_pool_create();
    struct tm_azure *azure = NULL;
    struct tm_web *web = NULL;
    struct tm_web_answer answer;
    char path[300];
    assert_int_equal(tm_azure_create(tm_env_real(), &azure, NULL), 0);
    assert_int_equal(tm_web_create(tm_env_real(), &web, NULL), 0);
    (void)snprintf(path, sizeof path, "%s/set-3/layer-0.tmcopy", place.place + 4);
    struct tm_azure_request request = {.azure = azure,
                                       .method = "PUT",
                                       .path = path,
                                       .query = {{"comp", "block"}, {"blockid", "AAAA"}},
                                       .query_count = 2,
                                       .body = "half",
                                       .length = 4,
                                       .deadline_ms = 10000,
                                       .tries_max = 1};
    struct tm_azure_request blocks = request;
    blocks.method = "GET";
    blocks.query[0].value = "blocklist";
    blocks.query[1] = (struct tm_web_pair){"blocklisttype", "all"};
    blocks.body = NULL;
    blocks.length = 0;
    assert_int_equal(tm_azure_ask(web, &request, &answer, NULL), 0);
    assert_int_equal(answer.status, 201);
    tm_web_answer_deinit(&answer);
    assert_int_equal(suite_put(store, pool, 3, 1, 100), 0);
    assert_int_equal(store->drop(store, 3, NULL), 0);
    assert_int_equal(tm_azure_ask(web, &blocks, &answer, NULL), 0);
    assert_int_equal(answer.status, 404);
    tm_web_answer_deinit(&answer);
    tm_web_destroy(web);
    tm_azure_destroy(azure);
    tm_block_pool_destroy(pool);
    store->close(store);
}

struct s3_of_tests {
    struct tm_aws *aws;
    struct tm_web *web;
    char bucket[64];
    char prefix[200];
};

static void ask_s3(struct s3_of_tests *s3, const char *method, const char *path, const char *prefix,
                   struct tm_web_answer *out)
{
    struct tm_error e = {.text = ""};
    struct tm_aws_request request = {.aws = s3->aws,
                                     .service = "s3",
                                     .bucket = s3->bucket,
                                     .method = method,
                                     .path = path,
                                     .query = {{"uploads", ""}, {"prefix", prefix}},
                                     .query_count = prefix != NULL ? 2 : 1,
                                     .deadline_ms = 10000,
                                     .tries_max = 1};
    assert_row(tm_aws_ask(s3->web, &request, out, &e) == 0, "%s", e.text);
    assert_row(out->status == 200, "%s %s: %d", method, path, out->status);
}

/* As a program leaves it that is killed before its parts are whole. */
static void begin_upload(struct s3_of_tests *s3, int set, int layer)
{
    struct tm_web_answer answer;
    char path[300];
    (void)snprintf(path, sizeof path, "/%s/set-%d/layer-%d.tmcopy", s3->prefix, set, layer);
    ask_s3(s3, "POST", path, NULL, &answer);
    tm_web_answer_deinit(&answer);
}

static bool has_uploads(struct s3_of_tests *s3, int set)
{
    struct tm_web_answer answer;
    char prefix[300];
    (void)snprintf(prefix, sizeof prefix, "%s/set-%d/", s3->prefix, set);
    ask_s3(s3, "GET", "/", prefix, &answer);
    bool has = strstr(tm_text_string(&answer.body), "<UploadId>") != NULL;
    tm_web_answer_deinit(&answer);
    return has;
}

/* Uploads that somebody began and did not finish are aborted with their set, however many pages of them there are:
 * their parts cost, and no list of objects shows them. */
static void drop_uploads(void)
{
    enum { UPLOADS = 5 }; /* tests' S3 lists two on a page */
    struct bucket_place place = make_place("begun");
    struct tm_copy_store *store = open_bucket(&place, 0);
    struct s3_of_tests s3 = {.aws = NULL};
    const char *slash = strchr(place.place + 5, '/');
    assert_non_null(slash);
    (void)snprintf(s3.bucket, sizeof s3.bucket, "%.*s", (int)(slash - place.place - 5), place.place + 5);
    (void)snprintf(s3.prefix, sizeof s3.prefix, "%s", slash + 1);
    assert_int_equal(tm_aws_create(tm_env_real(), NULL, &s3.aws, NULL), 0);
    assert_int_equal(tm_web_create(tm_env_real(), &s3.web, NULL), 0);
    for (int i = 0; i < UPLOADS; i++)
        begin_upload(&s3, 3, i);
    begin_upload(&s3, 3, 0); /* another of the same key */
    begin_upload(&s3, 30, 0);
    assert_true(has_uploads(&s3, 3));
    assert_int_equal(store->drop(store, 3, NULL), 0);
    assert_false(has_uploads(&s3, 3));
    assert_true(has_uploads(&s3, 30)); /* of another set */
    assert_int_equal(store->drop(store, 30, NULL), 0);
    assert_false(has_uploads(&s3, 30));
    tm_web_destroy(s3.web);
    tm_aws_destroy(s3.aws);
    store->close(store);
}

static void test_half_upload(void **state)
{
    (void)state;
    const char *bucket = bucket_of_tests();
    if (strncmp(bucket, "az:", 3) == 0)
        drop_blocks();
    else if (strncmp(bucket, "s3:", 3) == 0)
        drop_uploads();
    else
        skip(); /* parts of Google's are objects */
}

/* What is not there, or not allowed, says what to do. */
static void test_errors(void **state)
{
    (void)state;
    char place[64];
    struct tm_copy_store *store = NULL;
    struct tm_error e;
    uint64_t set = 0;
    (void)snprintf(place, sizeof place, "%.5sno-such-bucket/a", bucket_of_tests());
    assert_int_equal(tm_copy_store_open(tm_env_real(), place, 0, &store, NULL), 0);
    assert_int_equal(store->check(store, &e), -(int)TM_EIO);
    assert_error_has(e, "no-such-bucket: create it");
    assert_int_equal(store->newest(store, &set, &e), -(int)TM_EIO);
    store->close(store);
}

TM_TEST_MAIN(TM_TEST(test_places), TM_TEST(test_suite), TM_TEST(test_large), TM_TEST(test_two_coordinators),
             TM_TEST(test_drop), TM_TEST(test_half_upload), TM_TEST(test_errors))
