/* Calls to EC2's API in its own form: parameters in a form, answers in XML. */
#ifndef TM_CLOUD_EC2_H
#define TM_CLOUD_EC2_H

#include "web/aws.h"
#include "web/xml.h"

/* One call, made by hand: init, parameters, then ask (or begin, and take when it is done). */
struct tm_ec2_call {
    struct tm_text form;
    struct tm_aws_request request;
};

void tm_ec2__init(struct tm_ec2_call *call, struct tm_aws *aws, const char *region, const char *action);
void tm_ec2__deinit(struct tm_ec2_call *call);
void tm_ec2__put(struct tm_ec2_call *call, const char *name, const char *value);
int tm_ec2__begin(struct tm_ec2_call *call, struct tm_web *web, struct tm_web_call **out, struct tm_error *e);
/* What a call that ended with `rc` says. 0: the root is in the arena. A refusal is -TM_EINPUT, and `code` (128 bytes)
 * is the service's; no answer is as of web.h, and `code` is "". The answer's memory is taken. */
int tm_ec2__take(const struct tm_ec2_call *call, int rc, struct tm_web_answer *answer, struct tm_arena *arena,
                 struct tm_xml **out, char code[128], struct tm_error *e);
/* Both, waiting. */
int tm_ec2__ask(struct tm_ec2_call *call, struct tm_web *web, struct tm_arena *arena, struct tm_xml **out,
                char code[128], struct tm_error *e);

#endif
