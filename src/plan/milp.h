/* Mixed-integer linear programs, solved by CBC: minimise cost x subject to row bounds, column bounds and integrality.
 *
 * Columns and rows are added one by one and named by their index. Running out of memory while building is remembered
 * and reported by tm_milp__solve. */
#ifndef TM_PLAN_MILP_H
#define TM_PLAN_MILP_H

#include "base/error.h"
#include "base/jsonout.h"

#include <stdbool.h>
#include <stddef.h>

enum { TM_MILP_COLUMNS_MAX = 1 << 16, TM_MILP_ENTRIES_MAX = 1 << 20 };

struct tm_milp;

struct tm_milp *tm_milp__create(void); /* NULL: no memory */
void tm_milp__destroy(struct tm_milp *milp);
/* Infinite bounds: none. */
int tm_milp__column(struct tm_milp *milp, double cost, double lower, double upper, bool integer);
int tm_milp__row(struct tm_milp *milp, double lower, double upper);
void tm_milp__put(struct tm_milp *milp, int row, int column, double value);

struct tm_milp_solution {
    bool feasible;    /* false: proven that nothing satisfies the rows */
    double objective; /* of what was found */
    double bound;     /* nothing is better than this */
    double *values;   /* one a column; owned, free with tm_milp_solution__deinit */
};

/* To a relative gap between objective and bound. -TM_EINTERNAL if the solver gives up. */
int tm_milp__solve(const struct tm_milp *milp, double gap, struct tm_milp_solution *out, struct tm_error *e);
void tm_milp_solution__deinit(struct tm_milp_solution *solution);

/* {"cost":[..],"lower":[..],"upper":[..],"integer":[..],"row_lower":[..],"row_upper":[..],"entries":[[row,column,
 * value],..]} for other solvers; infinite bounds are null. */
void tm_milp__json(const struct tm_milp *milp, const char *key, struct tm_jsonout *json);

#endif
