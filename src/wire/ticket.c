#include "wire/ticket.h"

#include "base/address.h"
#include "wire/proof.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char head[] = "tmt1_";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

enum { FIXED_BYTES = 8 + 8 + TM_TICKET_SECRET_BYTES + TM_TICKET_FINGERPRINT_BYTES };
enum { BYTES_MAX = FIXED_BYTES + TM_ADDRESS_MAX };

static_assert(sizeof head + (BYTES_MAX * 4 + 2) / 3 <= TM_TICKET_MAX, "a ticket has room");

static void put_u64(uint8_t *out, uint64_t value)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

void tm_ticket_print(const struct tm_ticket *ticket, char out[TM_TICKET_MAX])
{
    uint8_t bytes[BYTES_MAX + 2] = {0};
    size_t length = FIXED_BYTES + strlen(ticket->address);
    size_t at = strlen(head);
    put_u64(bytes, ticket->job);
    put_u64(bytes + 8, ticket->number);
    memcpy(bytes + 16, ticket->secret, TM_TICKET_SECRET_BYTES);
    memcpy(bytes + 16 + TM_TICKET_SECRET_BYTES, ticket->authority, TM_TICKET_FINGERPRINT_BYTES);
    memcpy(bytes + FIXED_BYTES, ticket->address, strlen(ticket->address));
    memcpy(out, head, at);
    for (size_t i = 0; i < length * 8; i += 6) { /* what is behind the end is 0 */
        unsigned pair = (unsigned)bytes[i / 8] << 8 | bytes[i / 8 + 1];
        out[at++] = digits[pair >> (10 - i % 8) & 63];
    }
    out[at] = '\0';
}

static int value_of(char digit)
{
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* How many bytes; 0: these are no digits, or no whole bytes. */
static size_t decode(const char *text, size_t length, uint8_t out[BYTES_MAX])
{
    size_t count = 0;
    unsigned bits = 0;
    unsigned have = 0;
    for (size_t i = 0; i < length; i++) {
        int value = value_of(text[i]);
        if (value < 0) return 0;
        bits = (bits << 6 | (unsigned)value) & 0xffff;
        have += 6;
        if (have < 8) continue;
        have -= 8;
        if (count == BYTES_MAX) return 0;
        out[count++] = (uint8_t)(bits >> have);
    }
    return have < 6 && (bits & ((1U << have) - 1)) == 0 ? count : 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int tm_ticket_parse(const char *text, size_t length, struct tm_ticket *out, struct tm_error *e)
{
    uint8_t bytes[BYTES_MAX];
    char host[TM_ADDRESS_MAX];
    char port[TM_PORT_MAX];
    struct tm_ticket ticket = {0};
    for (; length > 0 && is_blank(text[0]); length--)
        text++;
    while (length > 0 && is_blank(text[length - 1]))
        length--;
    if (length < strlen(head) || memcmp(text, head, strlen(head)) != 0)
        return tm_error_set(e, TM_EINPUT, "not a ticket: it begins with %s", head);
    size_t count = decode(text + strlen(head), length - strlen(head), bytes);
    size_t address = count > FIXED_BYTES ? count - FIXED_BYTES : 0;
    if (address == 0 || address >= sizeof ticket.address || memchr(bytes + FIXED_BYTES, '\0', address) != NULL)
        return tm_error_set(e, TM_EINPUT, "not a whole ticket: copy all of the word");
    ticket.job = get_u64(bytes);
    ticket.number = get_u64(bytes + 8);
    memcpy(ticket.secret, bytes + 16, TM_TICKET_SECRET_BYTES);
    memcpy(ticket.authority, bytes + 16 + TM_TICKET_SECRET_BYTES, TM_TICKET_FINGERPRINT_BYTES);
    memcpy(ticket.address, bytes + FIXED_BYTES, address);
    if (tm_address_split(ticket.address, host, port, NULL) != 0)
        return tm_error_set(e, TM_EINPUT, "not a ticket: it names no address");
    *out = ticket;
    return 0;
}

bool tm_ticket_prove(const uint8_t secret[TM_TICKET_SECRET_BYTES], const void *channel, size_t channel_length,
                     const void *public_key, size_t key_length, uint8_t out[TM_TICKET_PROOF_BYTES])
{
    static const char label[] = "TMTICKET1";
    uint8_t said[sizeof label + 64 + TM_TICKET_KEY_MAX];
    char key[2 * TM_TICKET_SECRET_BYTES + 1];
    static_assert((int)TM_TICKET_PROOF_BYTES == (int)TM_PROOF_BYTES, "one kind of proof");
    assert(channel_length <= 64);
    if (key_length > TM_TICKET_KEY_MAX) return false;
    for (size_t i = 0; i < TM_TICKET_SECRET_BYTES; i++)
        (void)snprintf(key + 2 * i, 3, "%02x", secret[i]);
    memcpy(said, label, sizeof label);
    memcpy(said + sizeof label, channel, channel_length);
    memcpy(said + sizeof label + channel_length, public_key, key_length);
    return tm_proof_make(key, said, sizeof label + channel_length + key_length, out);
}
