/* Single-gang jobs with a deadline on recorded traces: what each policy pays, beside the best that knowledge of the
 * whole trace allows, and how long a decision takes. The job: 48 h of work, 0.1 h a restart, $3.06 on demand and
 * $0.9731 spot an hour, deadlines of 52 and 60 h, from the start of each trace.
 *
 * Use: bench_deadline TRACE... */
#include "base/env.h"
#include "sim/gang.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POLICIES = 5 };

static const char *const names[POLICIES] = {"on-demand", "greedy", "uniform-progress", "tidemill", "oracle-deadline"};

struct sums {
    double usd[POLICIES];
    int late[POLICIES];
    int rows;
    double tidemill_s; /* tables and decisions */
    double decisions;
};

static void add_row(const struct tm_trace *trace, const char *file, double deadline_h, struct sums *sums)
{
    struct tm_env *env = tm_env_real();
    struct tm_gang_options options = {.from_ms = trace->begin_ms,
                                      .gang = 1,
                                      .work_s = 48 * 3600,
                                      .deadline_s = deadline_h * 3600,
                                      .restart_s = 360,
                                      .spot_usd_h = 0.9731,
                                      .on_demand_usd_h = 3.06};
    const char *slash = strrchr(file, '/');
    printf("%-58s %2.0f h", slash != NULL ? slash + 1 : file, deadline_h);
    for (int i = 0; i < POLICIES; i++) {
        struct tm_gang_result result = {.cost_usd = NAN};
        struct tm_error e = {0};
        int64_t start_ns = env->monotonic_ns(env);
        if (tm_gang_simulate(trace, tm_deadline_policy_find(names[i]), &options, &result, &e) != 0)
            printf(" (%s)", e.text);
        if (strcmp(names[i], "tidemill") == 0) {
            sums->tidemill_s += (double)(env->monotonic_ns(env) - start_ns) / 1e9;
            sums->decisions += result.decisions;
        }
        sums->usd[i] += result.cost_usd;
        sums->late[i] += !result.deadline_met;
        printf(" %9.2f%s", result.cost_usd, result.deadline_met ? " " : "!");
    }
    printf("%s\n",
           (double)(trace->end_ms - trace->begin_ms) < deadline_h * 3.6e6 ? " (no spot after the trace's end)" : "");
    sums->rows++;
}

static void print_sums(const char *what, const struct sums *sums)
{
    printf("%-63s", what);
    for (int i = 0; i < POLICIES; i++)
        printf(" %9.2f ", sums->usd[i] / sums->rows);
    printf("\n");
}

static void print_summary(const struct sums *all)
{
    double better = fmin(all->usd[1], all->usd[2]);
    printf(
        "tidemill: %.1f%% under the better of greedy and uniform-progress; closes %.0f%% of the gap from there to the "
        "oracle; late %d times of %d (others: %d, %d, %d)\n",
        100 * (1 - all->usd[3] / better), 100 * (better - all->usd[3]) / (better - all->usd[4]), all->late[3],
        all->rows, all->late[0], all->late[1], all->late[2]);
    printf("tidemill: %.1f ms a job with its tables, %.0f decisions a job\n", 1e3 * all->tidemill_s / all->rows,
           all->decisions / all->rows);
}

int main(int argc, char **argv)
{
    static const double deadlines_h[] = {52, 60};
    struct sums all = {0};
    printf("%-63s", "dollars");
    for (int i = 0; i < POLICIES; i++)
        printf(" %9.9s ", names[i]);
    printf("\n");
    for (int d = 0; d < 2; d++) {
        struct sums own = {0};
        for (int i = 1; i < argc; i++) {
            struct tm_trace trace;
            struct tm_error e = {0};
            tm_trace_init(&trace);
            if (tm_trace_load(tm_env_real(), argv[i], NULL, &trace, &e) != 0) {
                (void)fprintf(stderr, "bench_deadline: %s\n", e.text);
                return 1;
            }
            add_row(&trace, argv[i], deadlines_h[d], &own);
            tm_trace_deinit(&trace);
        }
        char what[32];
        (void)snprintf(what, sizeof what, "mean, deadline %.0f h", deadlines_h[d]);
        print_sums(what, &own);
        for (int i = 0; i < POLICIES; i++) {
            all.usd[i] += own.usd[i];
            all.late[i] += own.late[i];
        }
        all.rows += own.rows;
        all.tidemill_s += own.tidemill_s;
        all.decisions += own.decisions;
    }
    print_sums("mean of all", &all);
    print_summary(&all);
    return 0;
}
