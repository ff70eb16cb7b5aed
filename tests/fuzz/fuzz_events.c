/* Event files of TensorBoard, which a killed writer or a bad disk may leave in any state: what is found whole is found
 * again when it comes in pieces. */
#include "fuzz.h"

#include "run/event_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_event_scan scan = {.step = 0};
    struct tm_event_scan again = {.step = 0};
    tm_event_file__scan(data, size, &scan);
    assert(scan.used <= size);
    tm_event_file__scan(data, scan.used, &again);
    assert(again.used == scan.used && again.step == scan.step && again.records == scan.records && !again.damaged);
    return 0;
}
