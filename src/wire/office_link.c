#include "wire/office_link.h"

#include "base/address.h"
#include "base/alloc.h"

#include <string.h>

enum { WAIT_MS = 30000, CHUNK = 1 << 16 };

struct tm_office_link {
    struct tm_env *env;
    int handle;
    struct tm_tls_session *tls;
    struct tm_text out; /* raw */
    struct tm_text in;  /* plain */
    char own_host[TM_ADDRESS_MAX];
    char address[TM_ADDRESS_MAX];
    char chunk[CHUNK];
};

Tmw__OfficeMessage tm_office_message_make(void)
{
    Tmw__OfficeMessage message = TMW__OFFICE_MESSAGE__INIT;
    message.version = TM_MESSAGE_VERSION;
    return message;
}

/* Everything that is to go out. */
static int flush(struct tm_office_link *link, struct tm_error *e)
{
    struct tm_env *env = link->env;
    size_t at = 0;
    tm_tls_session_output(link->tls, &link->out);
    int rc = tm_text_status(&link->out, e);
    while (rc == 0 && at < link->out.length) {
        size_t sent = 0;
        rc = env->net_send(env, link->handle, link->out.data + at, link->out.length - at, &sent, e);
        if (rc == -(int)TM_EBUSY) rc = env->net_wait_send(env, link->handle, WAIT_MS, e);
        at += sent;
    }
    link->out.length = 0;
    return rc == 0 || rc == -(int)TM_ENOMEM
               ? rc
               : tm_error_set(e, TM_EIO, "%s: %s", link->address, "the connection is lost");
}

/* Some bytes, at least one, or an error. */
static int hear(struct tm_office_link *link, struct tm_error *e)
{
    struct tm_env *env = link->env;
    struct tm_error why;
    size_t got = 0;
    int rc = env->net_receive(env, link->handle, link->chunk, sizeof link->chunk, &got, &why);
    if (rc == -(int)TM_EBUSY) {
        bool ready = false;
        rc = env->net_wait(env, &link->handle, 1, WAIT_MS, &ready, e);
        if (rc == -(int)TM_ENOMEM) return rc;
        if (rc != 0) return tm_error_set(e, TM_EIO, "%s: no answer", link->address);
        rc = env->net_receive(env, link->handle, link->chunk, sizeof link->chunk, &got, &why);
        if (rc == -(int)TM_EBUSY) return 0; /* heard in vain */
    }
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0) return tm_error_set(e, TM_EIO, "%s: %.300s", link->address, why.text);
    if (got == 0) return tm_error_set(e, TM_EIO, "%s: closed the connection", link->address);
    rc = tm_tls_session_input(link->tls, link->chunk, got, &link->in);
    if (rc == -(int)TM_ENOMEM) return tm_error_nomem(e);
    if (rc != 0)
        return tm_error_set(e, TM_EPEER, "%s is not the office of this job: its certificate is another's",
                            link->address);
    return tm_text_status(&link->in, e);
}

/* The handshake; what the office says behind it waits. */
static int shake_hands(struct tm_office_link *link, struct tm_error *e)
{
    int rc = flush(link, e);
    while (rc == 0 && !tm_tls_session__is_ready(link->tls)) {
        rc = hear(link, e);
        if (rc == 0) rc = flush(link, e);
    }
    return rc;
}

int tm_office_link_open(struct tm_env *env, const char *address, struct tm_tls *tls, struct tm_office_link **out,
                        struct tm_error *e)
{
    char port[TM_PORT_MAX];
    char own[TM_ADDRESS_MAX];
    struct tm_office_link *link = tm_calloc(1, sizeof *link);
    if (link == NULL) return tm_error_nomem(e);
    link->env = env;
    link->handle = -1;
    memcpy(link->address, address, strnlen(address, sizeof link->address - 1));
    tm_text_init(&link->out, TM_MESSAGE_BYTES_MAX * 2);
    tm_text_init(&link->in, TM_MESSAGE_BYTES_MAX * 2);
    int rc = env->net_connect(env, address, &link->handle, e);
    if (rc == 0) rc = env->net_wait_send(env, link->handle, TM_CONNECT_LIMIT_MS * 2, e);
    if (rc == 0) rc = env->net_own_address(env, link->handle, own, e);
    if (rc == -(int)TM_EPEER || rc == -(int)TM_ETIMEOUT || rc == -(int)TM_EBUSY)
        rc = tm_error_set(e, TM_EIO, "%s: cannot be reached", link->address);
    if (rc == 0) rc = tm_address_split(own, link->own_host, port, e);
    if (rc == 0) {
        link->tls = tm_tls_session_create(tls, false, TM_TLS_OFFICE, NULL);
        rc = link->tls == NULL ? tm_error_nomem(e) : shake_hands(link, e);
    }
    if (rc != 0) {
        tm_office_link_close(link);
        return rc;
    }
    *out = link;
    return 0;
}

void tm_office_link_close(struct tm_office_link *link)
{
    if (link == NULL) return;
    if (link->handle >= 0) link->env->net_close(link->env, link->handle);
    tm_tls_session_destroy(link->tls);
    tm_text_deinit(&link->out);
    tm_text_deinit(&link->in);
    tm_free(link);
}

const char *tm_office_link_own_host(const struct tm_office_link *link)
{
    return link->own_host;
}

int tm_office_link_channel(const struct tm_office_link *link, uint8_t out[TM_TLS_BINDING_BYTES], struct tm_error *e)
{
    int rc = tm_tls_session_binding(link->tls, out);
    return rc == 0 ? 0 : tm_error_set(e, TM_EPEER, "%s: TLS failed", link->address);
}

int tm_office_link_send(struct tm_office_link *link, const Tmw__OfficeMessage *message, struct tm_error *e)
{
    struct tm_text packed;
    struct tm_text frame;
    tm_text_init(&packed, TM_MESSAGE_BYTES_MAX);
    tm_text_init(&frame, TM_MESSAGE_BYTES_MAX + TM_FRAME_HEADER);
    tm_office_message_pack(message, &packed);
    int rc = tm_text_status(&packed, e);
    if (rc == 0) tm_frame_append(&frame, packed.data, packed.length);
    if (rc == 0) rc = tm_text_status(&frame, e);
    if (rc == 0 && (rc = tm_tls_session_write(link->tls, frame.data, frame.length)) != 0)
        rc = rc == -(int)TM_ENOMEM ? tm_error_nomem(e)
                                   : tm_error_set(e, TM_EIO, "%s: the connection is lost", link->address);
    if (rc == 0) rc = flush(link, e);
    tm_text_deinit(&frame);
    tm_text_deinit(&packed);
    return rc;
}

int tm_office_link_receive(struct tm_office_link *link, struct tm_arena *arena, Tmw__OfficeMessage **out,
                           struct tm_error *e)
{
    Tmw__OfficeMessage *message = NULL;
    int64_t size = 0;
    int rc = 0;
    while (rc == 0 && (size = tm_frame_next(link->in.data, link->in.length, e)) == 0)
        rc = hear(link, e);
    if (rc == 0 && size < 0) rc = (int)size;
    if (rc == 0) rc = tm_office_message_unpack(link->in.data + TM_FRAME_HEADER, (size_t)size, arena, &message, e);
    if (rc != 0) return rc;
    size_t done = (size_t)size + TM_FRAME_HEADER;
    memmove(link->in.data, link->in.data + done, link->in.length - done);
    link->in.length -= done;
    if (message->body_case == TMW__OFFICE_MESSAGE__BODY_DONE && message->done->code != 0) {
        uint32_t code = message->done->code < TM_CODE_COUNT ? message->done->code : TM_EPEER;
        return tm_error_set(e, (enum tm_code)code, "%.250s", message->done->text);
    }
    *out = message;
    return 0;
}
