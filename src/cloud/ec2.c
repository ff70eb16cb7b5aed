#include "cloud/ec2.h"

#include <stdio.h>
#include <string.h>

enum { FORM_MAX = 1 << 20, DEADLINE_MS = 60000, TRIES = 6 };

void tm_ec2__init(struct tm_ec2_call *call, struct tm_aws *aws, const char *region, const char *action)
{
    tm_text_init(&call->form, FORM_MAX);
    tm_text_printf(&call->form, "Action=%s&Version=2016-11-15", action);
    call->request = (struct tm_aws_request){.aws = aws,
                                            .service = "ec2",
                                            .region = region,
                                            .method = "POST",
                                            .path = "/",
                                            .deadline_ms = DEADLINE_MS,
                                            .tries_max = TRIES};
    call->request.headers[call->request.header_count++] =
        (struct tm_web_pair){"content-type", "application/x-www-form-urlencoded; charset=utf-8"};
}

void tm_ec2__deinit(struct tm_ec2_call *call)
{
    tm_text_deinit(&call->form);
}

/* As forms are written, and as botocore does: a blank is a plus. */
static void put_value(struct tm_text *form, const char *value)
{
    for (const char *at = value; *at != '\0';) {
        char piece[256];
        size_t length = strcspn(at, " ");
        if (length >= sizeof piece) length = sizeof piece - 1;
        (void)snprintf(piece, sizeof piece, "%.*s", (int)length, at);
        tm_percent_encode(piece, false, form);
        at += length;
        if (*at != ' ') continue;
        tm_text_putc(form, '+');
        at++;
    }
}

void tm_ec2__put(struct tm_ec2_call *call, const char *name, const char *value)
{
    tm_text_putc(&call->form, '&');
    tm_percent_encode(name, false, &call->form);
    tm_text_putc(&call->form, '=');
    put_value(&call->form, value);
}

int tm_ec2__begin(struct tm_ec2_call *call, struct tm_web *web, struct tm_web_call **out, struct tm_error *e)
{
    int rc = tm_text_status(&call->form, e);
    call->request.body = call->form.data;
    call->request.length = call->form.length;
    return rc == 0 ? tm_aws_begin(web, &call->request, out, e) : rc;
}

static int refused(const struct tm_ec2_call *call, const struct tm_web_answer *answer, char code[128],
                   struct tm_error *e)
{
    struct tm_aws_refusal why;
    int rc = tm_aws_refusal(answer, &why, e);
    if (rc != 0) return rc;
    (void)snprintf(code, 128, "%s", why.code);
    return tm_error_set(e, TM_EINPUT, "%s refused with %d %s: %s", call->request.host, answer->status, why.code,
                        why.message);
}

int tm_ec2__take(const struct tm_ec2_call *call, int rc, struct tm_web_answer *answer, struct tm_arena *arena,
                 struct tm_xml **out, char code[128], struct tm_error *e)
{
    code[0] = '\0';
    if (rc != 0) return tm_error_wrap(e, rc, "%s", call->request.host[0] != '\0' ? call->request.host : "ec2");
    if (answer->status >= 300)
        rc = refused(call, answer, code, e);
    else
        rc = tm_xml_read(tm_text_string(&answer->body), answer->body.length, arena, out, e);
    tm_web_answer_deinit(answer);
    return rc;
}

int tm_ec2__ask(struct tm_ec2_call *call, struct tm_web *web, struct tm_arena *arena, struct tm_xml **out,
                char code[128], struct tm_error *e)
{
    struct tm_web_call *begun = NULL;
    struct tm_web_answer answer;
    int rc = tm_ec2__begin(call, web, &begun, e);
    code[0] = '\0';
    if (rc != 0) return rc;
    while (rc == 0 && !tm_web_is_done(begun))
        rc = tm_web_step_wait(web, e);
    int ended = tm_web_end(begun, &answer, rc == 0 ? e : NULL);
    return tm_ec2__take(call, rc != 0 ? rc : ended, &answer, arena, out, code, e);
}
