#include "cloud/away_vm.h"

#include "cloud/away_vm_internal.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A run that was killed begins again where its folder says; one that has ended, well or not, is over. */
static const char rest[] =
    "own= public=\n"
    "addresses\n"
    "[ -n \"$own\" ] || end 'the metadata service does not say our address'\n"
    "[ -n \"$public\" ] || public=$own\n"
    "status=255\n"
    "for i in 1 2 3 4 5; do\n"
    "    ./program run \"$place\" --state \"$HOME/.local/state/tidemill/$job\" -y --anyway --listen 0.0.0.0:$port \\\n"
    "        --advertise \"$own\" --serve 0.0.0.0:$api_port --serve-as \"$public\" \"$@\" &\n"
    "    run=$!\n"
    "    (while sleep 20; do put_log; done) &\n"
    "    logger=$!\n"
    "    wait $run\n"
    "    status=$?\n"
    "    kill $logger\n"
    "    say \"the run ended with status $status\"\n"
    "    [ $status -lt 128 ] && break\n"
    "done\n"
    "end 'the coordinator is not needed any more'\n";

uint64_t tm_away__group(const char *place)
{
    return tm_hash_of(place, strlen(place)).low;
}

int tm_away__options(const struct tm_away_vm *o, struct tm_cloud_pool *pool, struct tm_vm_options *out,
                     struct tm_error *e)
{
    uint64_t group = tm_away__group(o->place);
    if (strlen(o->place) >= TM_COORDINATOR_PLACE_MAX)
        return tm_error_set(e, TM_EINPUT, "copies: %.40s...: with --detach a place has at most %d letters", o->place,
                            TM_COORDINATOR_PLACE_MAX - 1);
    *pool = (struct tm_cloud_pool){.kind = TM_INSTANCE_ON_DEMAND, .limit = 1, .price_usd_h = o->usd_h};
    (void)snprintf(pool->name, sizeof pool->name, "coordinator");
    (void)snprintf(pool->type, sizeof pool->type, "%s", o->type);
    *out = (struct tm_vm_options){.pools = pool,
                                  .pool_count = 1,
                                  .job = o->job,
                                  .owner = o->owner,
                                  .run = group,
                                  .group = group,
                                  .bucket = o->bucket,
                                  .prefix = o->prefix,
                                  .program = o->program,
                                  .wheel = o->wheel,
                                  .state_dir = "",
                                  .life_ms = o->life_ms};
    return 0;
}

int tm_away__enter(struct tm_vm_cloud *c, const struct tm_away_vm *o, struct tm_error *e)
{
    int rc = tm_vms__recall(&c->vms, 0, o->token, "", e);
    if (rc != 0) return rc;
    c->coordinator = o;
    c->vms.vms[0].kept = false; /* its words are not written down */
    return 0;
}

void tm_away__put_variables(struct tm_env *env, const char *const *names, struct tm_text *out)
{
    for (; *names != NULL; names++) {
        const char *value = env->variable(env, *names);
        if (value == NULL || value[0] == '\0') continue;
        tm_text_puts(out, "export ");
        tm_vm__put_word(out, *names, value);
    }
}

/* Where traces go; never credentials, nor headers that may be such. */
static const char *const traced[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                                     "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", NULL};

int tm_away__print_data(struct tm_env *env, const struct tm_away__data *data, struct tm_text *out, struct tm_error *e)
{
    const struct tm_away_vm *o = data->of;
    const struct tm_vm__guest *guest = data->boot->guest;
    size_t from = out->length;
    tm_text_puts(out, "#!/bin/bash\n# The coordinator of a Tidemill job.\n");
    tm_vm__put_word(out, "job", o->job);
    tm_vm__put_word(out, "place", o->place);
    tm_vm__put_word(out, "program", data->program);
    tm_vm__put_word(out, "sha256", data->boot->sha256);
    if (data->wheel != NULL) tm_vm__put_wheel(out, data->wheel, data->wheel_name, data->wheel_sha256);
    tm_vm__put_word(out, "log_url", data->log_url);
    tm_text_printf(out, "life=%" PRId64 "\nport=%d\napi_port=%d\nset --%s%s\n", data->life_s, TM_COORDINATOR_PORT,
                   TM_COORDINATOR_API_PORT, o->options[0] != '\0' ? " " : "", o->options);
    tm_text_printf(out, "export " TM_OWN_USD_H "=%.6f " TM_OWN_SINCE "=$(date +%%s) " TM_OWN_GROUP "=%016" PRIx64 "\n",
                   o->usd_h, data->group);
    tm_text_puts(out, data->boot->words);
    tm_away__put_variables(env, traced, out);
    tm_vm__put_guest(out, guest);
    tm_text_printf(out, "addresses() {\n%s}\n", guest->addresses);
    tm_text_puts(out, tm_vm__boot_script());
    if (data->wheel != NULL) {
        tm_text_puts(out, tm_vm__wheel_script());
        tm_text_puts(out, "export TIDEMILL_WHEEL=$d/$wheel_name\n");
    }
    tm_text_puts(out, rest);
    int rc = tm_text_status(out, e);
    if (rc == 0 && out->length - from > guest->room)
        rc = tm_error_set(e, TM_ELIMIT,
                          "what the coordinator's VM is told when it boots has %zu bytes, and %s takes %zu",
                          out->length - from, guest->cloud, guest->room);
    return rc;
}
