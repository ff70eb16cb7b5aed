/* Machines that dial in, as a provider (cloud/join_cloud.h): people start agents with tickets (tidemill ticket), and
 * who comes is an instance. */
#include "job/provider.h"

#include "cloud/join_cloud.h"

enum { USUAL_LIMIT = 8 };

static int settle_join(struct tm_env *env, struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    struct tm_job_fleet *fleet = &settings->job.fleet;
    (void)env;
    if (fleet->pools.count > 0)
        return tm_error_set(e, TM_EINPUT,
                            "%s: fleet.pools: machines that join are one pool; leave it out with cloud: join", place);
    if (fleet->limit == 0) fleet->limit = USUAL_LIMIT;
    if (fleet->instance == NULL || fleet->instance[0] == '\0') fleet->instance = "machine";
    if (fleet->spot_usd_h_millionths < 0) fleet->spot_usd_h_millionths = 0; /* they are there anyway */
    if (fleet->on_demand_usd_h_millionths < 0) fleet->on_demand_usd_h_millionths = fleet->spot_usd_h_millionths;
    return 0;
}

static int check_join(const struct tm_run_settings *settings, const char *place, struct tm_error *e)
{
    if (settings->job.fleet.on_demand > 0)
        return tm_error_set(
            e, TM_EINPUT,
            "%s: fleet.on_demand: machines that join are not rented; leave on_demand and anchors out with cloud: join",
            place);
    return 0;
}

static void welcome(void *office, int count, uint64_t id_first)
{
    tm_office_welcome(office, count, id_first);
}

static size_t guests(void *office, struct tm_guest *out, size_t max)
{
    return tm_office_guests(office, out, max);
}

static void dismiss(void *office, uint64_t id)
{
    tm_office_dismiss(office, id);
}

static int open_join(struct tm_env *env, const struct tm_provider_request *request, struct tm_cloud **out,
                     struct tm_error *e)
{
    const struct tm_job_fleet *fleet = &request->settings->job.fleet;
    struct tm_join_options options = {.limit = (int)fleet->limit,
                                      .id_first = request->account->instance + 1,
                                      .price_usd_h = (double)fleet->spot_usd_h_millionths / 1e6,
                                      .welcome = welcome,
                                      .guests = guests,
                                      .dismiss = dismiss,
                                      .context = request->office};
    return tm_join_cloud_create(env, &options, out, e);
}

const struct tm_provider tm_provider__join = {.name = "join",
                                              .about = "machines that join by a ticket (tidemill ticket)",
                                              .instances_max = TM_JOIN_INSTANCES_MAX,
                                              .joins = true,
                                              .guests = true,
                                              .settle = settle_join,
                                              .check = check_join,
                                              .open = open_join};
