/* Frames of the probe: what is taken is within its limits, and is put the same again. */
#include "fuzz.h"
#include "wire/probe_internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at + TM_PROBE_FRAME_BYTES <= size; at += TM_PROBE_FRAME_BYTES) {
        uint8_t again[TM_PROBE_FRAME_BYTES];
        struct tm_probe_frame frame;
        struct tm_error e;
        if (tm_probe__get_frame(data + at, &frame, &e) != 0) continue;
        tm_probe__put_frame(&frame, again);
        assert(memcmp(again, data + at, sizeof again) == 0);
        assert(frame.kind != TM_PROBE_ECHO || frame.a <= TM_PROBE_ECHO_MAX);
        assert(frame.kind != TM_PROBE_PAIR || (frame.a < TM_ADDRESS_MAX && frame.b <= TM_PROBE_DURATION_MAX_MS));
    }
    return 0;
}
