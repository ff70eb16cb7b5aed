/* What a member would train, as parts "name=value" ("lr=0.003", "data=1 MB, hash ..."), so that a machine with another
 * job file, other data or another program is told so and does not join. A name that only one side knows is no
 * difference. */
#ifndef TM_WIRE_FINGERPRINT_H
#define TM_WIRE_FINGERPRINT_H

#include "base/text.h"
#include "wire/message.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_FINGERPRINT_PARTS_MAX = 64 };

struct tm_fingerprint {
    size_t count;
    char parts[TM_FINGERPRINT_PARTS_MAX][TM_MESSAGE_STRING_MAX + 1];
};

/* Adds the part where its name is not there yet. True: it was added. What is no part ("name=value", both there), too
 * long or one too many is left out. */
bool tm_fingerprint_add(struct tm_fingerprint *fingerprint, const char *part);
/* The same for each line of a text; NULL: none. */
void tm_fingerprint_add_lines(struct tm_fingerprint *fingerprint, const char *lines);
/* A part as a line; a value that is too long is cut and named by its hash. */
void tm_fingerprint_line(struct tm_text *out, const char *name, const char *value);

/* Its parts as a message names them; borrowed from it. */
size_t tm_fingerprint_list(struct tm_fingerprint *fingerprint, char *out[TM_FINGERPRINT_PARTS_MAX]);

/* Has the job another value than `part` for its name? Then `why` says which part differs, both values, and what to do;
 * `who` is the sentence's subject ("this worker"). */
bool tm_fingerprint_differs(const struct tm_fingerprint *job, const char *part, const char *who,
                            char why[TM_MESSAGE_STRING_MAX + 1]);
/* A part that may be another when the job is resumed: a program may be mended in between. */
bool tm_fingerprint_may_change(const char *part);

#endif
