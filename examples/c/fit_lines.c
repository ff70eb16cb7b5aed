/* The smallest engine there is: every layer is a line y = a x + b, fitted by gradient descent to points that a formula
 * makes. It shows what an engine must do to be trained by Tidemill; replace the arithmetic by yours.
 *
 *     cc fit_lines.c -o fit_lines $(pkg-config --cflags --libs libtidemill)
 *
 * It is started by `tidemill agent`, on every instance of a job. Kill any of them at any moment: the lines at the end
 * are the same, to the bit, because a step is a function of the layer and the step's number alone. (Here every worker
 * sees all points of its layers. An engine that shares a step's micro-batches out among pipelines reaches its peers by
 * their `endpoint`, and adds gradients so that their grouping does not matter.) */
#include <tidemill.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAX = 4096, POINTS = 1000 };

/* The whole state of a layer: one run of bytes that the library copies and moves. */
struct line {
    double a;
    double b;
};

static struct line *lines[LAYERS_MAX];    /* those that we hold */
static struct line gradients[LAYERS_MAX]; /* held between "prepared" and "apply" */

/* ---- what the library asks ---- */

static uint64_t layer_bytes(void *context, uint32_t layer)
{
    (void)context;
    (void)layer;
    return sizeof(struct line);
}

static int init_layer(void *context, uint32_t layer, void *out, uint64_t bytes)
{
    struct line start = {.a = 0, .b = layer};
    (void)context;
    if (bytes != sizeof start) return 1;
    memcpy(out, &start, sizeof start);
    return 0;
}

static void *layer_memory(void *context, uint32_t layer, uint64_t bytes)
{
    (void)context;
    lines[layer] = malloc(bytes);
    return lines[layer];
}

static void drop_layer(void *context, uint32_t layer)
{
    (void)context;
    free(lines[layer]);
    lines[layer] = NULL;
}

/* ---- a step ---- */

static void find_gradient(uint32_t layer, uint64_t step)
{
    const struct line *line = lines[layer];
    struct line sum = {0, 0};
    for (int i = 0; i < POINTS; i++) {
        double x = (double)((step * POINTS + (uint64_t)i) % 2003) / 2003;
        double error = line->a * x + line->b - ((layer + 1) * x + 0.5);
        sum.a += 2 * error * x / POINTS;
        sum.b += 2 * error / POINTS;
    }
    gradients[layer] = sum;
}

static int compute(tidemill *t, const struct tidemill_work *work)
{
    static struct tidemill_norm norms[LAYERS_MAX];
    size_t count = 0;
    for (uint32_t l = work->first_layer; l < work->last_layer; l++) {
        if (tidemill_cancelled(t)) return 0; /* somebody left: the next order says how to go on */
        find_gradient(l, work->step);
        norms[count].layer = l;
        norms[count++].sum = gradients[l].a * gradients[l].a + gradients[l].b * gradients[l].b;
    }
    return tidemill_held(t, work->step, norms, count);
}

static int apply(tidemill *t, const struct tidemill_work *work)
{
    for (uint32_t l = work->first_layer; l < work->last_layer; l++) {
        lines[l]->a -= 0.5 * gradients[l].a;
        lines[l]->b -= 0.5 * gradients[l].b;
    }
    if (work->stage == 0) tidemill_report_loss(t, work->step, work->norm);
    return tidemill_applied(t, work->step);
}

int main(void)
{
    char error[512] = "";
    struct tidemill_options options;
    const struct tidemill_engine engine = {
        .layer_bytes = layer_bytes, .init_layer = init_layer, .layer_memory = layer_memory, .drop_layer = drop_layer};
    if (tidemill_options_from_environment(&options, error, sizeof error) != 0) {
        fprintf(stderr, "fit_lines: %s\n", error);
        return 2;
    }
    options.kernel_class = "fit_lines";
    tidemill *t = tidemill_open(&options, &engine, error, sizeof error);
    if (t == NULL) {
        fprintf(stderr, "fit_lines: %s\n", error);
        return 1;
    }
    struct tidemill_work work;
    int rc;
    while ((rc = tidemill_next(t, &work)) == 0)
        if ((work.kind == TIDEMILL_STEP ? compute(t, &work) : apply(t, &work)) < 0) break;
    if (rc == 1)
        for (int l = 0; l < LAYERS_MAX; l++)
            if (lines[l] != NULL) printf("layer %d: y = %.17g x + %.17g\n", l, lines[l]->a, lines[l]->b);
    if (rc < 0) fprintf(stderr, "fit_lines: %s\n", tidemill_reason(t));
    tidemill_close(t);
    for (int l = 0; l < LAYERS_MAX; l++)
        free(lines[l]);
    return rc == 1 ? 0 : 1;
}
