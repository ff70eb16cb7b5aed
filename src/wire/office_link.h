/* A member's side of the office (run/office.h): a TLS connection on which one question is asked and answered after the
 * other. It waits: for programs that start, and for threads that may. */
#ifndef TM_WIRE_OFFICE_LINK_H
#define TM_WIRE_OFFICE_LINK_H

#include "wire/message.h"
#include "wire/tls.h"

/* What the office hands out to whoever was let in: files, and URLs by which a data set in a bucket is read. */
enum tm_office_file { TM_OFFICE_JOB, TM_OFFICE_RUN, TM_OFFICE_DATA, TM_OFFICE_DATA_SET, TM_OFFICE_FILES };

struct tm_office_link;

/* Connects, and shakes hands: the other end is the job's office, or it is -TM_EPEER; -TM_EIO: it is not reached now.
 * `tls` is borrowed. The caller owns the result. */
int tm_office_link_open(struct tm_env *env, const char *address, struct tm_tls *tls, struct tm_office_link **out,
                        struct tm_error *e);
void tm_office_link_close(struct tm_office_link *link); /* NULL is allowed */
/* The address of this machine that reaches the office: where others of the same network reach it, too. */
const char *tm_office_link_own_host(const struct tm_office_link *link);

/* What ties a ticket's proof to this connection. */
int tm_office_link_channel(const struct tm_office_link *link, uint8_t out[TM_TLS_BINDING_BYTES], struct tm_error *e);
/* Sends one message; -TM_EIO: the connection is lost, or takes nothing for a while. */
int tm_office_link_send(struct tm_office_link *link, const Tmw__OfficeMessage *message, struct tm_error *e);
/* The next message of the office, in the arena. One that says that something did not work is an error of its code. */
int tm_office_link_receive(struct tm_office_link *link, struct tm_arena *arena, Tmw__OfficeMessage **out,
                           struct tm_error *e);
Tmw__OfficeMessage tm_office_message_make(void);

#endif
