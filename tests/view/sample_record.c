/* Writes the small run of src/run/test/record_samples.h as the record of a state folder.
 *
 *   tidemill-sample-record FOLDER [half]      half: it is still going on */
#include "run/state_folder.h"
#include "run/test/record_samples.h"
#include "store/record.h"

#include <stdio.h>
#include <sys/stat.h>

static int write_all(const char *path, const struct samples *samples, struct tm_error *e)
{
    struct tm_record *record = NULL;
    int rc = tm_record_open(path, &record, e);
    for (size_t i = 0; rc == 0 && i < samples->count; i++) {
        struct tm_text text;
        tm_text_init(&text, TM_MESSAGE_BYTES_MAX);
        tm_record_event_pack(samples->events[i], &text);
        rc = tm_text_status(&text, e);
        if (rc == 0) rc = record->append(record, text.data, text.length, false, NULL, e);
        tm_text_deinit(&text);
    }
    tm_record_close(record);
    return rc;
}

int main(int argc, char **argv)
{
    struct samples samples;
    struct tm_error e = {.text = ""};
    char path[TM_STATE_PATH_MAX];
    if (argc < 2) {
        fputs("use: tidemill-sample-record FOLDER [half]\n", stderr);
        return 2;
    }
    (void)mkdir(argv[1], 0700);
    tm_state_path(argv[1], TM_STATE_RECORD, path);
    samples_init(&samples);
    samples_small_run(&samples, argc < 3);
    int rc = write_all(path, &samples, &e);
    samples_deinit(&samples);
    if (rc != 0) fprintf(stderr, "%s\n", e.text);
    return rc == 0 ? 0 : 1;
}
