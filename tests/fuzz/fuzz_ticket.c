/* Tickets, which people copy, and messages to the office, which strangers send. What is read is printed and read again
 * as the same. */
#include "fuzz.h"

#include "wire/message.h"
#include "wire/ticket.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_ticket ticket;
    struct tm_ticket again;
    struct tm_arena arena;
    Tmw__OfficeMessage *message = NULL;
    char word[TM_TICKET_MAX];
    if (tm_ticket_parse((const char *)data, size, &ticket, NULL) == 0) {
        tm_ticket_print(&ticket, word);
        assert(tm_ticket_parse(word, strlen(word), &again, NULL) == 0);
        assert(memcmp(&ticket, &again, sizeof ticket) == 0);
    }
    tm_arena_init(&arena, 64 << 20);
    if (tm_office_message_unpack(data, size, &arena, &message, NULL) == 0)
        assert(message->version == TM_MESSAGE_VERSION);
    tm_arena_deinit(&arena);
    return 0;
}
