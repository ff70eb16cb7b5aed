/* Migrations: what it costs to go from one layout to another through a loss.
 *
 * The kinds, from cheap to expensive: none; within stages (every stage still has the replicas it needs: only groups are
 * formed again); between stages (some stage lacks replicas: its state is copied to spares or idle replicas); new cut
 * (another number of stages: state moves between all); and from the copy set, where no replica of a stage is left.
 *
 * Costs are expectations over which instances go, all equally likely, by counting (losses.h); where an instance has
 * several workers (tm_layouts.workers_each), they go together. A table keeps what it has computed: rows by (fleet,
 * layout, lost), for all targets at once. One table serves one thread. */
#ifndef TM_LAYOUT_MIGRATE_H
#define TM_LAYOUT_MIGRATE_H

#include "layout/cost.h"
#include "layout/losses.h"

struct tm_migrations;

/* Borrows both, which must outlive it. */
int tm_migrations_create(const struct tm_layouts *layouts, const struct tm_cost *cost, struct tm_migrations **out,
                         struct tm_error *e);
void tm_migrations_destroy(struct tm_migrations *migrations);

/* Expected milliseconds of pause for each target layout (as many as layouts->count), when a fleet of `fleet` in layout
 * `from` loses `lost`; arrivals do not change it. The row stays valid until the table is destroyed. NULL: no memory.
 * Targets that need more instances than there are must not be asked for. */
const double *tm_migrations_row(struct tm_migrations *migrations, int fleet, int from, int lost);

/* One entry of it, computed alone where it is not known yet; NaN: no memory. */
double tm_migrations_ms(struct tm_migrations *migrations, int fleet, int from, int lost, int to);

/* At least this much, whatever is lost: without counting anything. */
double tm_migrations_least_ms(const struct tm_migrations *migrations, int from, int lost, int to);

/* One more restart, when the layout changes again while a migration to `to` is under way. */
double tm_migrations_restart_ms(const struct tm_migrations *migrations, int to);

/* One transfer of the state of the largest of so many stages; 0 for none. */
double tm_migrations_largest_ms(const struct tm_migrations *migrations, int stages);

/* Rows computed so far, and their bytes. */
size_t tm_migrations__count(const struct tm_migrations *migrations);
size_t tm_migrations_bytes(const struct tm_migrations *migrations);

/* The cost of one outcome instead of an expectation: `left` replicas of each stage of `from`. */
double tm_migration__ms(struct tm_migrations *migrations, int from, const struct tm_survivors *survivors, int lost,
                        int to);

#endif
