/* Durations, money, bytes, rates, numbers and times: what is read prints exactly and reads back the same. */
#include "base/calendar.h"
#include "base/number.h"
#include "base/units.h"
#include "fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    for (enum tm_unit_kind kind = TM_UNIT_DURATION; kind <= TM_UNIT_RATE; kind++) {
        int64_t value = 0;
        int64_t again = 0;
        char buffer[TM_UNITS_TEXT_MAX];
        struct tm_error e;
        if (tm_unit_parse(kind, text, size, &value, &e) != 0) continue;
        (void)tm_unit_print(kind, value, buffer);
        (void)tm_unit_print_exact(kind, value, buffer);
        assert(tm_unit_parse(kind, buffer, strlen(buffer), &again, &e) == 0 && again == value);
    }
    double number = 0;
    double number_again = 0;
    char number_text[TM_NUMBER_TEXT_MAX];
    if (tm_number_double(text, size, &number)) {
        (void)tm_number_print(number, number_text);
        assert(tm_number_double(number_text, strlen(number_text), &number_again) && number == number_again);
    }
    int64_t time_ms = 0;
    int64_t time_again = 0;
    char time_text[TM_CALENDAR_TEXT_MAX];
    if (tm_calendar_parse(text, size, &time_ms) && time_ms >= -62135596800000 && time_ms < 253402300800000) {
        (void)tm_calendar_print(time_ms, time_text);
        assert(tm_calendar_parse(time_text, strlen(time_text), &time_again) && time_again == time_ms);
    }
    return 0;
}
