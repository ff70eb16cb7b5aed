/* An event file of TensorBoard. Records, each of: length (8 bytes, little-endian), its checksum, so many bytes, their
 * checksum (masked CRC-32C, 4 bytes). The bytes are an Event of TensorFlow's event.proto; the first names the version,
 * each later one has the scalars of one step. https://github.com/tensorflow/tensorboard (compat/proto/event.proto) */
#ifndef TM_RUN_EVENT_FILE_H
#define TM_RUN_EVENT_FILE_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

/* A run's file in a folder, so that everybody who writes to it means the same one. */
void tm_event_file__name(struct tm_text *out, const char *folder, int64_t begun_utc_ms, uint64_t job);

/* Appends the record that a file begins with. */
void tm_event_file__begin(struct tm_text *out, double utc_s);
/* Appends a record of a step: `body` is made of tm_event_file__scalar. */
void tm_event_file__step(struct tm_text *out, double utc_s, uint64_t step, const struct tm_text *body);
void tm_event_file__scalar(struct tm_text *body, const char *tag, double value);

/* What a piece of a file holds, which begins where a record does: whole records with right checksums. */
struct tm_event_scan {
    size_t used;    /* bytes of them */
    bool damaged;   /* what follows is no record; else: it is cut off */
    uint64_t step;  /* the highest; as before where there is none */
    size_t records; /* so far */
};
/* Goes on from what was scanned before: step and records. */
void tm_event_file__scan(const void *data, size_t length, struct tm_event_scan *scan);

#endif
