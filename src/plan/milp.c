#include "plan/milp.h"

#include "base/alloc.h"

#include <Cbc_C_Interface.h>
#include <dlfcn.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct column {
    double cost;
    double lower;
    double upper;
    bool integer;
};

struct row {
    double lower;
    double upper;
};

struct entry {
    int row;
    int column;
    double value;
};

struct tm_milp {
    struct column *columns;
    size_t column_count, column_capacity;
    struct row *rows;
    size_t row_count, row_capacity;
    struct entry *entries;
    size_t entry_count, entry_capacity;
    int rc; /* of building */
};

struct tm_milp *tm_milp__create(void)
{
    return tm_calloc(1, sizeof(struct tm_milp));
}

void tm_milp__destroy(struct tm_milp *milp)
{
    if (milp == NULL) return;
    tm_free(milp->columns);
    tm_free(milp->rows);
    tm_free(milp->entries);
    tm_free(milp);
}

/* Room for one more; false: remembered in rc. */
static bool grow(struct tm_milp *milp, void **array, size_t *capacity, size_t count, size_t size, size_t max)
{
    int rc = milp->rc == 0 ? tm_grow(array, capacity, count + 1, size, max) : milp->rc;
    milp->rc = rc;
    return rc == 0;
}

int tm_milp__column(struct tm_milp *milp, double cost, double lower, double upper, bool integer)
{
    void *array = milp->columns;
    bool room =
        grow(milp, &array, &milp->column_capacity, milp->column_count, sizeof *milp->columns, TM_MILP_COLUMNS_MAX);
    milp->columns = array;
    if (!room) return 0;
    milp->columns[milp->column_count] = (struct column){cost, lower, upper, integer};
    return (int)milp->column_count++;
}

int tm_milp__row(struct tm_milp *milp, double lower, double upper)
{
    void *array = milp->rows;
    bool room = grow(milp, &array, &milp->row_capacity, milp->row_count, sizeof *milp->rows, TM_MILP_COLUMNS_MAX);
    milp->rows = array;
    if (!room) return 0;
    milp->rows[milp->row_count] = (struct row){lower, upper};
    return (int)milp->row_count++;
}

void tm_milp__put(struct tm_milp *milp, int row, int column, double value)
{
    if (value == 0) return;
    void *array = milp->entries;
    bool room =
        grow(milp, &array, &milp->entry_capacity, milp->entry_count, sizeof *milp->entries, TM_MILP_ENTRIES_MAX);
    milp->entries = array;
    if (room) milp->entries[milp->entry_count++] = (struct entry){row, column, value};
}

/* ---- the solver ----
 *
 * Opened when it is first needed: it brings a BLAS with it, which a process that trains must be able to choose. */

#define CBC_FUNCTIONS(X)                                                                                               \
    X(Cbc_newModel)                                                                                                    \
    X(Cbc_deleteModel)                                                                                                 \
    X(Cbc_setParameter)                                                                                                \
    X(Cbc_loadProblem)                                                                                                 \
    X(Cbc_setInteger)                                                                                                  \
    X(Cbc_solve)                                                                                                       \
    X(Cbc_bestSolution)                                                                                                \
    X(Cbc_isProvenOptimal)                                                                                             \
    X(Cbc_isProvenInfeasible)                                                                                          \
    X(Cbc_isContinuousUnbounded)                                                                                       \
    X(Cbc_getBestPossibleObjValue)

struct cbc {
#define CBC_MEMBER(name) __typeof__(&(name)) name;
    CBC_FUNCTIONS(CBC_MEMBER)
#undef CBC_MEMBER
};

static pthread_mutex_t solver_lock = PTHREAD_MUTEX_INITIALIZER; /* it has state of its own: one program at a time */
static struct cbc opened;
static bool is_open;

static int open_solver(struct tm_error *e)
{
    if (is_open) return 0;
    void *library = dlopen("libCbcSolver.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return tm_error_set(e, TM_ENOTFOUND, "libCbcSolver.so.3 is missing: install the package coinor-libcbc3");
    bool whole = true;
    void *symbol = NULL;
    /* ISO C has no cast from an object pointer to a function pointer; POSIX promises that the bytes are the same. */
#define CBC_FIND(name)                                                                                                 \
    symbol = dlsym(library, #name);                                                                                    \
    memcpy(&opened.name, &symbol, sizeof symbol);                                                                      \
    whole = whole && symbol != NULL;
    CBC_FUNCTIONS(CBC_FIND)
#undef CBC_FIND
    if (!whole) return tm_error_set(e, TM_ENOTFOUND, "libCbcSolver.so.3 lacks its C interface: install coinor-libcbc3");
    is_open = true;
    return 0;
}

/* The program column by column, as CBC wants it. */
struct loaded {
    CoinBigIndex *starts;
    int *rows;
    double *values;
    double *bounds; /* column lower, upper, cost, row lower, upper */
};

static void loaded_deinit(struct loaded *loaded)
{
    tm_free(loaded->starts);
    tm_free(loaded->rows);
    tm_free(loaded->values);
    tm_free(loaded->bounds);
}

static int load(const struct tm_milp *milp, struct loaded *loaded, struct tm_error *e)
{
    size_t columns = milp->column_count;
    *loaded = (struct loaded){.starts = tm_calloc(columns + 2, sizeof *loaded->starts),
                              .rows = tm_alloc((milp->entry_count + 1) * sizeof *loaded->rows),
                              .values = tm_alloc((milp->entry_count + 1) * sizeof *loaded->values),
                              .bounds = tm_alloc((3 * columns + 2 * milp->row_count + 1) * sizeof *loaded->bounds)};
    if (loaded->starts == NULL || loaded->rows == NULL || loaded->values == NULL || loaded->bounds == NULL)
        return tm_error_nomem(e);
    for (size_t i = 0; i < milp->entry_count; i++)
        loaded->starts[milp->entries[i].column + 2]++;
    for (size_t c = 0; c < columns; c++)
        loaded->starts[c + 2] += loaded->starts[c + 1];
    for (size_t i = 0; i < milp->entry_count; i++) {
        CoinBigIndex at = loaded->starts[milp->entries[i].column + 1]++;
        loaded->rows[at] = milp->entries[i].row;
        loaded->values[at] = milp->entries[i].value;
    }
    for (size_t c = 0; c < columns; c++) {
        loaded->bounds[c] = milp->columns[c].lower;
        loaded->bounds[columns + c] = milp->columns[c].upper;
        loaded->bounds[2 * columns + c] = milp->columns[c].cost;
    }
    for (size_t r = 0; r < milp->row_count; r++) {
        loaded->bounds[3 * columns + r] = milp->rows[r].lower;
        loaded->bounds[3 * columns + milp->row_count + r] = milp->rows[r].upper;
    }
    return 0;
}

static int read_solution(const struct tm_milp *milp, Cbc_Model *model, struct tm_milp_solution *out, struct tm_error *e)
{
    *out = (struct tm_milp_solution){.objective = INFINITY, .bound = INFINITY};
    const double *found = opened.Cbc_bestSolution(model);
    if (opened.Cbc_isProvenInfeasible(model) || opened.Cbc_isContinuousUnbounded(model)) return 0;
    if (!opened.Cbc_isProvenOptimal(model) || found == NULL)
        return tm_error_set(e, TM_EINTERNAL, "the integer program was not solved");
    out->values = tm_alloc((milp->column_count + 1) * sizeof *out->values);
    if (out->values == NULL) return tm_error_nomem(e);
    double objective = 0;
    for (size_t c = 0; c < milp->column_count; c++) {
        out->values[c] = milp->columns[c].integer ? round(found[c]) : found[c];
        objective += milp->columns[c].cost * out->values[c];
    }
    out->feasible = true;
    out->objective = objective;
    out->bound = fmin(objective, opened.Cbc_getBestPossibleObjValue(model));
    return 0;
}

static int run_solver(const struct tm_milp *milp, const struct loaded *loaded, double gap, struct tm_milp_solution *out,
                      struct tm_error *e)
{
    char text[32];
    size_t columns = milp->column_count;
    const double *b = loaded->bounds;
    /* The solver takes and gives back much memory each time: let the C library keep it. */
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    (void)mallopt(M_TOP_PAD, 4 << 20);
    Cbc_Model *model = opened.Cbc_newModel();
    if (model == NULL) return tm_error_nomem(e);
    opened.Cbc_setParameter(model, "logLevel", "0");
    (void)snprintf(text, sizeof text, "%.9g", gap);
    opened.Cbc_setParameter(model, "ratioGap", text);
    opened.Cbc_setParameter(model, "maxNodes", "20000");
    opened.Cbc_loadProblem(model, (int)columns, (int)milp->row_count, loaded->starts, loaded->rows, loaded->values, b,
                           b + columns, b + 2 * columns, b + 3 * columns, b + 3 * columns + milp->row_count);
    for (size_t c = 0; c < columns; c++) {
        if (milp->columns[c].integer) opened.Cbc_setInteger(model, (int)c);
    }
    (void)opened.Cbc_solve(model);
    int rc = read_solution(milp, model, out, e);
    opened.Cbc_deleteModel(model);
    return rc;
}

int tm_milp__solve(const struct tm_milp *milp, double gap, struct tm_milp_solution *out, struct tm_error *e)
{
    struct loaded loaded;
    if (milp->rc == -(int)TM_ELIMIT)
        return tm_error_set(e, TM_ELIMIT, "the integer program has more than %d columns or %d entries",
                            TM_MILP_COLUMNS_MAX, TM_MILP_ENTRIES_MAX);
    if (milp->rc != 0) return tm_error_nomem(e);
    int rc = load(milp, &loaded, e);
    if (rc == 0) {
        (void)pthread_mutex_lock(&solver_lock);
        rc = open_solver(e);
        if (rc == 0) rc = run_solver(milp, &loaded, gap, out, e);
        (void)pthread_mutex_unlock(&solver_lock);
    }
    loaded_deinit(&loaded);
    return rc;
}

void tm_milp_solution__deinit(struct tm_milp_solution *solution)
{
    tm_free(solution->values);
    *solution = (struct tm_milp_solution){0};
}

/* ---- for others ---- */

static void put_bound(struct tm_jsonout *json, double bound)
{
    if (isfinite(bound))
        tm_jsonout_number(json, NULL, bound);
    else
        tm_jsonout_null(json, NULL);
}

void tm_milp__json(const struct tm_milp *milp, const char *key, struct tm_jsonout *json)
{
    static const char *const lists[] = {"cost", "lower", "upper", "integer"};
    tm_jsonout_object(json, key);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        tm_jsonout_list(json, lists[i]);
        for (size_t c = 0; c < milp->column_count; c++) {
            const struct column *column = &milp->columns[c];
            put_bound(json, i == 0 ? column->cost : i == 1 ? column->lower : i == 2 ? column->upper : column->integer);
        }
        tm_jsonout_end(json);
    }
    for (int upper = 0; upper < 2; upper++) {
        tm_jsonout_list(json, upper == 0 ? "row_lower" : "row_upper");
        for (size_t r = 0; r < milp->row_count; r++)
            put_bound(json, upper == 0 ? milp->rows[r].lower : milp->rows[r].upper);
        tm_jsonout_end(json);
    }
    tm_jsonout_list(json, "entries");
    for (size_t i = 0; i < milp->entry_count; i++) {
        tm_jsonout_list(json, NULL);
        tm_jsonout_integer(json, NULL, milp->entries[i].row);
        tm_jsonout_integer(json, NULL, milp->entries[i].column);
        tm_jsonout_number(json, NULL, milp->entries[i].value);
        tm_jsonout_end(json);
    }
    tm_jsonout_end(json);
    tm_jsonout_end(json);
}
