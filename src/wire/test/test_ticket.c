/* Tickets as words: what is printed is read back; anything else is no ticket. */
#include "base/test/harness.h"
#include "wire/ticket.h"

#include <string.h>

static struct tm_ticket make(const char *address)
{
    struct tm_ticket ticket = {.job = 0x1122334455667788U, .number = 3};
    for (size_t i = 0; i < sizeof ticket.secret; i++)
        ticket.secret[i] = (uint8_t)(i * 37 + 200);
    for (size_t i = 0; i < sizeof ticket.authority; i++)
        ticket.authority[i] = (uint8_t)(255 - i);
    memcpy(ticket.address, address, strlen(address));
    return ticket;
}

static void test_round(void **state)
{
    (void)state;
    static const char *const addresses[] = {"a:1", "10.0.0.7:4001", "[2001:db8::7]:65535",
                                            "login.cluster.example:7070"};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        char word[TM_TICKET_MAX + 4] = " ";
        struct tm_error e = {.text = ""};
        struct tm_ticket back;
        struct tm_ticket ticket = make(addresses[i]);
        tm_ticket_print(&ticket, word + 1);
        assert_row(strspn(word + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
                       strlen(word + 1),
                   "%s", word);
        (void)strcat(word, "\n"); /* as a file has it */
        assert_row(tm_ticket_parse(word, strlen(word), &back, &e) == 0, "%s: %s", addresses[i], e.text);
        assert_row(memcmp(&back, &ticket, sizeof ticket) == 0, "%s", addresses[i]);
    }
}

/* Every ticket that was cut short or has one character changed is refused, or is another one: never half a one. */
static void test_bad(void **state)
{
    (void)state;
    char word[TM_TICKET_MAX];
    struct tm_ticket ticket = make("10.0.0.7:4001");
    struct tm_ticket back;
    struct tm_error e;
    tm_ticket_print(&ticket, word);
    size_t length = strlen(word);
    for (size_t i = 0; i < 5 + 4 * 64 / 3; i++)
        assert_row(tm_ticket_parse(word, i, &back, &e) == -(int)TM_EINPUT, "%zu", i);
    for (size_t i = 0; i < length; i++) {
        char other[TM_TICKET_MAX];
        memcpy(other, word, length + 1);
        other[i] = '*';
        assert_row(tm_ticket_parse(other, length, &back, &e) == -(int)TM_EINPUT, "%zu", i);
        assert_row(strstr(e.text, word + 10) == NULL, "a secret in a message: %s", e.text);
    }
    assert_int_equal(tm_ticket_parse("", 0, &back, &e), -(int)TM_EINPUT);
}

/* A proof is of one secret, one connection and one key. */
static void test_proof(void **state)
{
    (void)state;
    uint8_t secret[TM_TICKET_SECRET_BYTES] = {1, 2, 0, 4};
    uint8_t proofs[4][TM_TICKET_PROOF_BYTES];
    assert_true(tm_ticket_prove(secret, "c", 1, "key", 3, proofs[0]));
    assert_true(tm_ticket_prove(secret, "d", 1, "key", 3, proofs[1]));
    assert_true(tm_ticket_prove(secret, "c", 1, "kez", 3, proofs[2]));
    secret[15] = 1; /* behind a zero */
    assert_true(tm_ticket_prove(secret, "c", 1, "key", 3, proofs[3]));
    for (int i = 1; i < 4; i++)
        assert_row(memcmp(proofs[0], proofs[i], TM_TICKET_PROOF_BYTES) != 0, "%d", i);
    char long_key[TM_TICKET_KEY_MAX + 1] = {0};
    assert_false(tm_ticket_prove(secret, "c", 1, long_key, sizeof long_key, proofs[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
