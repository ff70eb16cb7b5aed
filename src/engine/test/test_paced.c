/* The paced engine: the chain is the same for every layout and change of layout, a step takes its time, and a step that
 * is given up ends at once. */
#include "base/test/harness.h"
#include "engine/mesh_local.h"
#include "engine/paced.h"
#include "workload/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 7, MICRO_BATCHES = 11, WORKERS_MAX = 12 };

static struct tm_layer layers[LAYERS];
static struct tm_model model = {.name = "seven", .optimizer_states = 2, .micro_batch = 2, .layers = layers};

static double step_time(void *context, uint32_t pipelines, uint32_t stages)
{
    const double *step_s = context;
    return pipelines == 9 ? 0 : *step_s / (pipelines * stages);
}

static struct tm_paced_job make_job(double *step_s)
{
    model.layer_count = LAYERS;
    for (int l = 0; l < LAYERS; l++)
        layers[l] = (struct tm_layer){.params = 1e6 * (l + 1), .output_values = 1e6};
    return (struct tm_paced_job){.model = &model,
                                 .micro_batches = MICRO_BATCHES,
                                 .speed = 1,
                                 .bytes_divisor = TM_PACED_DIVISOR,
                                 .step_s = step_time,
                                 .context = step_s};
}

struct reference {
    void *states[LAYERS];
};

static void keep_state(void *context, uint32_t layer, const void *state, uint64_t bytes)
{
    struct reference *reference = context;
    reference->states[layer] = malloc(bytes);
    memcpy(reference->states[layer], state, bytes);
}

/* ---- a team of threads ---- */

struct worker {
    struct tm_paced *paced;
    struct tm_mesh *mesh;
    struct tm_paced_place place;
    struct tm_paced_norm norms[LAYERS];
    uint64_t step;
    bool fresh;
    int rc;
    struct tm_error e;
    void *memory[LAYERS]; /* of its layers, once it has had them */
};

static void close_worker(struct worker *w)
{
    tm_paced__destroy(w->paced);
    for (int l = 0; l < LAYERS; l++)
        free(w->memory[l]);
}

static void *prepare(void *argument)
{
    struct worker *w = argument;
    w->rc = tm_paced__prepare(w->paced, w->mesh, &w->place, w->step, w->fresh, w->norms, &w->e);
    return NULL;
}

static void seat(struct worker *workers, uint32_t pipelines, uint32_t stages)
{
    for (uint32_t p = 0; p < pipelines; p++)
        for (uint32_t s = 0; s < stages; s++)
            workers[p * stages + s].place =
                (struct tm_paced_place){.pipeline = p,
                                        .pipelines = pipelines,
                                        .stage = s,
                                        .stages = stages,
                                        .first_layer = LAYERS * s / stages,
                                        .last_layer = LAYERS * (s + 1) / stages,
                                        .first_micro_batch = MICRO_BATCHES * p / pipelines,
                                        .last_micro_batch = MICRO_BATCHES * (p + 1) / pipelines};
}

/* What the step does to a layer here, it does to its bytes elsewhere. */
static void apply_and_compare(struct worker *w, uint64_t step, double norm)
{
    double step_s = 1;
    struct tm_paced_job job = make_job(&step_s);
    void *elsewhere[LAYERS];
    for (uint32_t l = w->place.first_layer; l < w->place.last_layer; l++) {
        void *gradient = malloc(tm_paced__gradient_bytes(&job, l));
        elsewhere[l] = malloc(tm_paced__layer_bytes(&job, l));
        memcpy(elsewhere[l], tm_paced__layer(w->paced, l), tm_paced__layer_bytes(&job, l));
        tm_paced__read_gradient(w->paced, l, gradient);
        tm_paced__advance_layer(&job, l, step, norm, elsewhere[l], gradient);
        free(gradient);
    }
    tm_paced__apply(w->paced, step, norm);
    for (uint32_t l = w->place.first_layer; l < w->place.last_layer; l++) {
        assert_memory_equal(elsewhere[l], tm_paced__layer(w->paced, l), tm_paced__layer_bytes(&job, l));
        free(elsewhere[l]);
    }
}

/* Everybody does the step, then everybody applies it with the sum of all norms. */
static void team_step(struct worker *workers, uint32_t count, uint64_t step, bool fresh)
{
    pthread_t threads[WORKERS_MAX];
    double sums[LAYERS] = {0}, norm = 0;
    for (uint32_t i = 0; i < count; i++) {
        workers[i].step = step;
        workers[i].fresh = fresh;
        assert_int_equal(pthread_create(&threads[i], NULL, prepare, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (uint32_t i = 0; i < count; i++) {
        assert_row(workers[i].rc == 0, "worker %u: %s", i, workers[i].e.text);
        for (uint32_t l = 0; l < workers[i].place.last_layer - workers[i].place.first_layer; l++)
            sums[workers[i].norms[l].layer] = workers[i].norms[l].sum;
    }
    for (int l = 0; l < LAYERS; l++)
        norm += sums[l];
    for (uint32_t i = 0; i < count; i++)
        apply_and_compare(&workers[i], step, norm);
}

/* What a worker lacks comes from one that has it. */
static void settle(const struct tm_paced_job *job, struct worker *workers, uint32_t count, bool start)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t l = workers[i].place.first_layer; l < workers[i].place.last_layer; l++) {
            if (tm_paced__layer(workers[i].paced, l) != NULL) continue;
            void *to = workers[i].memory[l] = realloc(workers[i].memory[l], tm_paced__layer_bytes(job, l));
            assert_non_null(to);
            tm_paced__take(workers[i].paced, l, to);
            if (start) tm_paced__init_layer(job, l, to);
            for (uint32_t from = 0; !start && from < WORKERS_MAX; from++) {
                if (from == i || workers[from].paced == NULL || tm_paced__layer(workers[from].paced, l) == NULL)
                    continue;
                memcpy(to, tm_paced__layer(workers[from].paced, l), tm_paced__layer_bytes(job, l));
                break;
            }
        }
    }
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        for (uint32_t l = 0; l < LAYERS; l++)
            if (workers[i].paced != NULL &&
                (i >= count || l < workers[i].place.first_layer || l >= workers[i].place.last_layer))
                tm_paced__drop(workers[i].paced, l);
}

static void test_chain_is_the_same_for_every_layout(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {2, 3}, {1, 4}, {3, 2}, {1, 7}, {4, 1}, {2, 1}};
    double step_s = 0.001;
    struct tm_paced_job job = make_job(&step_s);
    struct reference reference;
    struct worker workers[WORKERS_MAX] = {0};
    uint64_t step = 0;
    (void)state;
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        assert_int_equal(tm_paced__create(tm_env_real(), &job, &workers[i].paced, NULL), 0);
    for (size_t shape = 0; shape < sizeof shapes / sizeof *shapes; shape++) {
        struct tm_mesh_local *local = NULL;
        uint32_t count = shapes[shape][0] * shapes[shape][1];
        assert_int_equal(tm_mesh_local_create((int)count, &local, NULL), 0);
        seat(workers, shapes[shape][0], shapes[shape][1]);
        settle(&job, workers, count, step == 0);
        for (uint32_t i = 0; i < count; i++)
            workers[i].mesh = tm_mesh_local_end(local, (int)i);
        for (int i = 0; i < 3; i++)
            team_step(workers, count, ++step, i == 0);
        assert_int_equal(tm_paced_reference(&job, step, keep_state, &reference, NULL), 0);
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t i = 0; i < count; i++)
                if (tm_paced__layer(workers[i].paced, l) != NULL)
                    assert_row(memcmp(tm_paced__layer(workers[i].paced, l), reference.states[l],
                                      tm_paced__layer_bytes(&job, l)) == 0,
                               "%ux%u: layer %u of worker %u", shapes[shape][0], shapes[shape][1], l, i);
            free(reference.states[l]);
        }
        tm_mesh_local_destroy(local);
    }
    for (uint32_t i = 0; i < WORKERS_MAX; i++)
        close_worker(&workers[i]);
}

/* A step that is applied twice, left out, or with other micro-batches, gives another chain. */
static void test_chain_tells_what_is_wrong(void **state)
{
    double step_s = 0.001;
    struct tm_paced_job job = make_job(&step_s), other = job;
    struct reference right, wrong;
    (void)state;
    other.micro_batches--;
    assert_int_equal(tm_paced_reference(&job, 5, keep_state, &right, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tm_paced_reference(i == 2 ? &other : &job,
                                            i == 0   ? 4
                                            : i == 1 ? 6
                                                     : 5,
                                            keep_state, &wrong, NULL),
                         0);
        for (uint32_t l = 0; l < LAYERS; l++) {
            assert_row(memcmp(right.states[l], wrong.states[l], tm_paced__layer_bytes(&job, l)) != 0,
                       "case %d layer %u", i, l);
            free(wrong.states[l]);
        }
    }
    for (uint32_t l = 0; l < LAYERS; l++)
        free(right.states[l]);
}

static void test_steps_take_their_time(void **state)
{
    double step_s = 0.05;
    struct tm_paced_job job = make_job(&step_s);
    struct worker workers[WORKERS_MAX] = {0};
    struct tm_mesh_local *local = NULL;
    (void)state;
    assert_int_equal(tm_mesh_local_create(1, &local, NULL), 0);
    assert_int_equal(tm_paced__create(tm_env_real(), &job, &workers[0].paced, NULL), 0);
    seat(workers, 1, 1);
    settle(&job, workers, 1, true);
    workers[0].mesh = tm_mesh_local_end(local, 0);
    int64_t begin_ns = tm_env_real()->monotonic_ns(tm_env_real());
    for (uint64_t step = 1; step <= 4; step++)
        team_step(workers, 1, step, step == 1);
    int64_t took_ns = tm_env_real()->monotonic_ns(tm_env_real()) - begin_ns;
    assert_true(took_ns >= 200000000); /* never faster than profiled; how much slower is the machine's affair */
    close_worker(&workers[0]);
    tm_mesh_local_destroy(local);
}

static void test_cancelled_at_once(void **state)
{
    double step_s = 3600 * 4;
    struct tm_paced_job job = make_job(&step_s);
    struct worker workers[WORKERS_MAX] = {0};
    struct tm_mesh_local *local = NULL;
    pthread_t threads[4];
    (void)state;
    assert_int_equal(tm_mesh_local_create(4, &local, NULL), 0);
    seat(workers, 2, 2);
    for (int i = 0; i < 4; i++)
        assert_int_equal(tm_paced__create(tm_env_real(), &job, &workers[i].paced, NULL), 0);
    settle(&job, workers, 4, true);
    for (int i = 0; i < 4; i++) {
        workers[i].mesh = tm_mesh_local_end(local, i);
        workers[i].step = 1;
        workers[i].fresh = true;
        assert_int_equal(pthread_create(&threads[i], NULL, prepare, &workers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        tm_paced__cancel(workers[i].paced);
    tm_mesh_local__cancel_all(local);
    for (int i = 0; i < 4; i++) { /* or the test hangs for an hour */
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].rc, -TM_ECANCELED);
        close_worker(&workers[i]);
    }
    tm_mesh_local_destroy(local);
}

static void test_bad_jobs(void **state)
{
    double step_s = 1;
    struct tm_paced *paced = NULL;
    struct tm_error e;
    (void)state;
    struct tm_paced_job job = make_job(&step_s);
    job.speed = 0;
    assert_int_equal(tm_paced__create(tm_env_real(), &job, &paced, &e), -TM_EINPUT);
    job = make_job(&step_s);
    model.layer_count = 0;
    assert_int_equal(tm_paced__create(tm_env_real(), &job, &paced, &e), -TM_EINPUT);
    assert_non_null(strstr(e.text, "no layers"));
    job = make_job(&step_s);
    assert_int_equal(tm_paced__create(tm_env_real(), &job, &paced, &e), 0);
    struct tm_paced_norm norms[LAYERS];
    struct tm_paced_place place = {.pipelines = 9, .stages = 2};
    assert_int_equal(tm_paced__prepare(paced, NULL, &place, 1, true, norms, &e), -TM_EINPUT);
    assert_non_null(strstr(e.text, "9 pipelines of 2 stages"));
    tm_paced__destroy(paced);
}

static void test_no_memory(void **state)
{
    double step_s = 1;
    struct tm_paced_job job = make_job(&step_s);
    (void)state;
    TM_FAIL_EACH_ALLOC({
        struct tm_paced *paced = NULL;
        rc = tm_paced__create(tm_env_real(), &job, &paced, NULL);
        tm_paced__destroy(paced);
    });
    TM_FAIL_EACH_ALLOC({
        struct reference reference = {{NULL}};
        rc = tm_paced_reference(&job, 2, keep_state, &reference, NULL);
        for (int l = 0; l < LAYERS; l++)
            free(reference.states[l]);
    });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_is_the_same_for_every_layout),
        cmocka_unit_test(test_chain_tells_what_is_wrong),
        cmocka_unit_test(test_steps_take_their_time),
        cmocka_unit_test(test_cancelled_at_once),
        cmocka_unit_test(test_bad_jobs),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
