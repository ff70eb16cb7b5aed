/* A coordinator's VM on AWS: one call with a token of its own, which is answered once. */
#include "cloud/away_vm_internal.h"
#include "cloud/aws_beside.h"
#include "cloud/aws_internal.h"
#include "cloud/rented.h"

#include <stdio.h>
#include <string.h>

enum { ARENA_MAX = 64 << 20, DEADLINE_MS = 120000, TRIES = 6 };

/* With the same token: it is rented once. */
static int ask(struct tm_aws__cloud *c, const struct tm_away_vm *o, struct tm_ec2_call *call, char out_id[TM_VM_ID_MAX],
               struct tm_error *e)
{
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    char code[128];
    tm_arena_init(&arena, ARENA_MAX);
    call->request.deadline_ms = DEADLINE_MS;
    call->request.tries_max = TRIES;
    int rc = tm_ec2__ask(call, c->shared.web, &arena, &root, code, e);
    if (rc == 0) (void)snprintf(out_id, TM_VM_ID_MAX, "%s", tm_xml_text(root, "instancesSet/item/instanceId"));
    if (rc != 0 && strcmp(code, "IdempotentParameterMismatch") == 0)
        rc = tm_error_set(e, TM_EEXISTS, "it was rented before");
    if (rc != 0) rc = tm_error_wrap(e, rc, "renting a %s for the coordinator", o->type);
    tm_arena_deinit(&arena);
    return rc;
}

static int rent(struct tm_aws__cloud *c, const struct tm_away_vm *o, char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    const struct tm_aws__place place = {.env = c->shared.env, .aws = c->aws, .web = c->shared.web};
    struct tm_ec2_call call;
    struct tm_text then;
    int rc = tm_away__enter(&c->shared, o, e);
    if (rc == 0 && o->reached_from != NULL && c->options.security_group == NULL)
        rc = tm_aws__open_port(&place, c->group, TM_COORDINATOR_API_PORT, o->reached_from, e);
    if (rc == 0) rc = tm_aws_await_keys(c->aws, e);
    if (rc != 0) return rc;
    rc = tm_aws__make_run(c, 0, &call, &then, e);
    if (rc == 0) rc = ask(c, o, &call, out_id, e);
    tm_ec2__deinit(&call);
    tm_text_deinit(&then);
    return rc;
}

int tm_aws_coordinator_rent(struct tm_env *env, const struct tm_aws_options *cloud, const struct tm_away_vm *o,
                            char out_id[TM_VM_ID_MAX], struct tm_error *e)
{
    struct tm_aws_options options = *cloud;
    struct tm_cloud_pool pool;
    struct tm_aws__cloud *c = NULL;
    int rc = tm_away__options(o, &pool, &options.common, e);
    if (rc == 0) rc = tm_aws__create(env, &options, &c, e);
    if (rc != 0) return rc;
    rc = rent(c, o, out_id, e);
    tm_aws__destroy(c);
    return rc;
}

/* ---- finding ---- */

static int ask_vms(struct tm_env *env, const char *key, const char *value, struct tm_arena *arena, struct tm_xml **out,
                   struct tm_error *e)
{
    static const char *const states[] = {"pending", "running"};
    struct tm_aws *aws = NULL;
    struct tm_web *web = NULL;
    struct tm_ec2_call call;
    char code[128];
    char name[64];
    int rc = tm_aws_create(env, NULL, &aws, e);
    if (rc == 0) rc = tm_web_create(env, &web, e);
    if (rc == 0) {
        tm_ec2__init(&call, aws, NULL, "DescribeInstances");
        (void)snprintf(name, sizeof name, "tag:%s", key);
        tm_ec2__put(&call, "Filter.1.Name", name);
        tm_ec2__put(&call, "Filter.1.Value.1", value);
        tm_ec2__put(&call, "Filter.2.Name", "tag-key");
        tm_ec2__put(&call, "Filter.2.Value.1", TM_VM_TAG_COORDINATOR);
        tm_ec2__put(&call, "Filter.3.Name", "instance-state-name");
        tm_ec2__put(&call, "Filter.3.Value.1", states[0]);
        tm_ec2__put(&call, "Filter.3.Value.2", states[1]);
        rc = tm_ec2__ask(&call, web, arena, out, code, e);
        tm_ec2__deinit(&call);
    }
    tm_web_destroy(web);
    tm_aws_destroy(aws);
    return rc;
}

int tm_aws_coordinator_find(struct tm_env *env, const struct tm_away_search *search, struct tm_away_found *out,
                            struct tm_error *e)
{
    const char *key = search->place != NULL ? TM_VM_TAG_COORDINATOR : TM_RENTED_TAG;
    const char *value = search->place != NULL ? search->place : search->job;
    struct tm_arena arena;
    struct tm_xml *root = NULL;
    tm_arena_init(&arena, ARENA_MAX);
    int rc = ask_vms(env, key, value, &arena, &root, e);
    const struct tm_xml *vm = rc == 0 ? tm_xml_child(root, "reservationSet/item/instancesSet/item") : NULL;
    if (rc == 0 && vm == NULL) rc = tm_error_set(e, TM_ENOTFOUND, "no VM with %s %s", key, value);
    if (rc == 0) (void)snprintf(out->id, sizeof out->id, "%s", tm_xml_text(vm, "instanceId"));
    const struct tm_xml *tag = rc == 0 ? tm_xml_child(vm, "tagSet/item") : NULL;
    for (; tag != NULL; tag = tm_xml_again(tag))
        if (strcmp(tm_xml_text(tag, "key"), TM_VM_TAG_COORDINATOR) == 0)
            (void)snprintf(out->place, sizeof out->place, "%s", tm_xml_text(tag, "value"));
    tm_arena_deinit(&arena);
    return rc;
}
