/* The first words on a connection: who does not know the token gets nothing out of either end. */
#include "base/env_virtual.h"
#include "base/test/harness.h"
#include "wire/link_proof.h"

#include <string.h>

struct ends {
    struct tm_env *env;
    struct tm_link_proof connects, listens;
    struct tm_text to_listens, to_connects;
};

static void open_ends(struct ends *ends)
{
    ends->env = tm_env_virtual_create(5);
    assert_non_null(ends->env);
    tm_text_init(&ends->to_listens, 256);
    tm_text_init(&ends->to_connects, 256);
    tm_link_proof__begin(&ends->connects, ends->env, false, &ends->to_listens);
    tm_link_proof__begin(&ends->listens, ends->env, true, &ends->to_connects);
}

static void close_ends(struct ends *ends)
{
    tm_text_deinit(&ends->to_listens);
    tm_text_deinit(&ends->to_connects);
    tm_env_virtual_destroy(ends->env);
}

/* Gives what lies in `from`; nothing may be left. */
static int give(struct tm_link_proof *to, const char *token, const char *channel, struct tm_text *from,
                struct tm_text *answer)
{
    assert_int_equal(from->length, tm_link_proof__needs(to));
    int rc = tm_link_proof__take(to, token, channel, strlen(channel), from->data, answer);
    from->length = 0;
    return rc;
}

static void test_both(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        const char *token_a, *token_b, *channel_a, *channel_b;
        bool good;
    } rows[] = {{"the same", "secret", "secret", "127.0.0.1:5", "127.0.0.1:5", true},
                {"another token", "secret", "other", "127.0.0.1:5", "127.0.0.1:5", false},
                {"a shorter token", "secret", "secre", "127.0.0.1:5", "127.0.0.1:5", false},
                {"passed on by another address", "secret", "secret", "127.0.0.1:5", "127.0.0.1:6", false}};
    for (size_t i = 0; i < TM_COUNT(rows); i++) {
        struct ends ends;
        open_ends(&ends);
        assert_int_equal(ends.to_connects.length, 0); /* the listener says nothing first */
        assert_int_equal(give(&ends.listens, rows[i].token_b, rows[i].channel_b, &ends.to_listens, &ends.to_connects),
                         0);
        int rc = give(&ends.connects, rows[i].token_a, rows[i].channel_a, &ends.to_connects, &ends.to_listens);
        assert_row(rc == (rows[i].good ? 0 : -(int)TM_EPEER), "%s", rows[i].what);
        assert_row(ends.connects.proven == rows[i].good, "%s", rows[i].what);
        if (rows[i].good) {
            rc = give(&ends.listens, rows[i].token_b, rows[i].channel_b, &ends.to_listens, &ends.to_connects);
            assert_row(rc == 0 && ends.listens.proven, "%s", rows[i].what);
            assert_int_equal(tm_link_proof__needs(&ends.listens), 0);
        } else { /* and it gives nothing that could be used elsewhere */
            assert_row(ends.to_listens.length == 0, "%s", rows[i].what);
        }
        close_ends(&ends);
    }
}

/* What was said once is worth nothing the next time, nor turned back at who said it. */
static void test_replay_and_mirror(void **state)
{
    (void)state;
    struct ends first, second;
    struct tm_text nothing;
    char proof[TM_PROOF_BYTES];
    open_ends(&first);
    assert_int_equal(give(&first.listens, "s", "c", &first.to_listens, &first.to_connects), 0);
    assert_int_equal(give(&first.connects, "s", "c", &first.to_connects, &first.to_listens), 0);
    memcpy(proof, first.to_listens.data, sizeof proof);
    open_ends(&second);
    second.env->random_u64(second.env);
    tm_link_proof__begin(&second.listens, second.env, true, &second.to_connects);
    assert_int_equal(give(&second.listens, "s", "c", &second.to_listens, &second.to_connects), 0);
    tm_text_init(&nothing, 256);
    assert_int_equal(tm_link_proof__take(&second.listens, "s", "c", 1, proof, &nothing), -(int)TM_EPEER);
    assert_false(second.listens.proven);
    /* the listener's own proof, sent back to it as if it were ours */
    const char *own = second.to_connects.data + TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES;
    assert_int_equal(tm_link_proof__take(&second.listens, "s", "c", 1, own, &nothing), -(int)TM_EPEER);
    assert_int_equal(nothing.length, 0);
    tm_text_deinit(&nothing);
    close_ends(&first);
    close_ends(&second);
}

static void test_other_protocols(void **state)
{
    (void)state;
    struct ends ends;
    struct tm_text words;
    open_ends(&ends);
    tm_text_init(&words, 256);
    tm_text_puts(&words, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n      ");
    words.length = tm_link_proof__needs(&ends.listens);
    assert_int_equal(give(&ends.listens, "s", "c", &words, &ends.to_connects), -(int)TM_EINPUT);
    assert_int_equal(ends.to_connects.length, 0);
    tm_text_deinit(&words);
    close_ends(&ends);
}

TM_TEST_MAIN(TM_TEST(test_both), TM_TEST(test_replay_and_mirror), TM_TEST(test_other_protocols))
