/* Conversations with services, recorded in a file and played back: what was asked and answered, without secrets. A user
 * whose account behaves otherwise than ours sends the file; whoever gets it sees the same answers without an account.
 *
 *     {"tape": 1, "region": "us-east-1"}
 *     {"asked": "POST us-east-1/ec2 / DescribeInstances\nFilter.1.Name=...", "status": 200, "answer": "<...>"}
 *
 * Signatures, credentials, tokens, user data, tickets and objects' contents are not written. Played back, a request
 * gets the next answer to the same words, else to the same kind of request, else the last such answer again; an object
 * of S3 is what was put while playing, and one that the tape does not name can be put, got and deleted all the same;
 * credentials are not asked for. A program has one tape at a time; any thread. */
#ifndef TM_WEB_TAPE_H
#define TM_WEB_TAPE_H

#include "base/env.h"
#include "web/web.h"

/* From here on everything that is asked is added to the file, which is begun anew. */
int tm_tape_record(struct tm_env *env, const char *path, struct tm_error *e);
/* From here on nobody is asked. -TM_EINPUT names the line that is none of a tape. */
int tm_tape_replay(struct tm_env *env, const char *path, struct tm_error *e);

/* ---- inside the room ---- */

bool tm_tape__is_replayed(void);
/* Where the conversation took place: kept as soon as it is known; "": it is not. */
enum tm_tape__note_kind { TM_TAPE_REGION, TM_TAPE_PROJECT, TM_TAPE_SUBSCRIPTION, TM_TAPE_NOTES };
enum { TM_TAPE_NOTE_MAX = 128 };
void tm_tape__note(enum tm_tape__note_kind kind, const char *value);
void tm_tape__noted(enum tm_tape__note_kind kind, char out[TM_TAPE_NOTE_MAX]);
/* What is asked, without secrets: NULL where there is no tape, or no memory. The caller frees it. */
char *tm_tape__describe(const char *method, const char *url, const char *headers, const void *body, size_t length);
/* An answer (or rc and words, where none came) to what was described; `secret`: success is a credential. */
void tm_tape__keep(const char *asked, bool secret, int rc, const char *words, const struct tm_web_answer *answer);
/* The answer to what was described. -TM_EINPUT: the tape has none. */
struct tm_tape__body {
    const void *data; /* what is sent */
    size_t length;
};
int tm_tape__play(const char *asked, const struct tm_tape__body *body, struct tm_web_answer *out, struct tm_error *e);
/* Takes the lines of a tape; for tests. */
int tm_tape__read(const char *name, const char *text, size_t length, struct tm_error *e);
void tm_tape__end(void);

#endif
