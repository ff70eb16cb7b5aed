#include "run/pace.h"

#include "workload/observed.h"

static const double belief_spread = 0.3; /* of a prediction: standard deviation of its logarithm */

double tm_pace__correction(double *step_s, size_t count, double predicted_s)
{
    struct tm_observed observed = {.step_s = step_s, .count = count};
    struct tm_prediction prediction = {.step_s = tm_estimate_around(predicted_s, belief_spread)};
    return tm_observed_correct(&observed, &prediction);
}
