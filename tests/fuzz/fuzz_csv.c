/* CSV, and the content checks before it (the input may be gzip). */
#include "base/content.h"
#include "base/csv.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tm_text text;
    struct tm_error e;
    tm_text_init(&text, 1 << 20);
    struct tm_csv *csv = tm_alloc(sizeof *csv);
    assert(csv != NULL);
    if (tm_content__unpack("fuzz", (const char *)data, size, &text, &e) == 0) {
        tm_csv_init(csv, "fuzz", tm_text_string(&text), text.length);
        csv->comments = size % 2 == 0;
        int rc;
        int line = 0;
        while ((rc = tm_csv_next(csv, &e)) != 0) {
            assert(csv->line > line); /* it always gets on, also behind a bad row */
            line = csv->line;
            for (size_t i = 0; rc == 1 && i < csv->field_count; i++)
                (void)tm_slice_trim(csv->fields[i]);
        }
    }
    tm_free(csv);
    tm_text_deinit(&text);
    assert(tm_alloc_live() == 0);
    return 0;
}
