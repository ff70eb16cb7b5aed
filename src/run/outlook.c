#include "run/outlook.h"

#include <math.h>

enum { POINTS_MIN = 12, ALIKE = 4, HALVINGS = 60 };

static const double longest_s = 1e10;

/* The newest stays: it is where the next one counts from. */
static void thin_out(struct tm_outlook *p)
{
    for (size_t i = 0; i < TM_OUTLOOK_POINTS / 2; i++)
        p->steps[i] = p->steps[2 * i + 1];
    p->count = TM_OUTLOOK_POINTS / 2;
    p->every_s *= 2;
}

/* A long silence is as many points without progress; where it is longer than all that was before, fewer do. */
void tm_outlook__keep(struct tm_outlook *p, double time_s, double steps)
{
    if (p->every_s <= 0) p->every_s = 1;
    if (p->count == 0) {
        p->steps[p->count++] = steps;
        p->at_s = time_s;
        return;
    }
    while (time_s >= p->at_s + p->every_s && time_s < longest_s) {
        if (p->count == TM_OUTLOOK_POINTS) {
            thin_out(p);
            continue;
        }
        p->at_s += p->every_s;
        p->steps[p->count] = time_s >= p->at_s + p->every_s ? p->steps[p->count - 1] : steps;
        p->count++;
    }
}

/* Steps in n stretches are about normal, with the mean and the spread of those that were. Stretches that follow each
 * other are alike (a preemption lasts), so only each fourth counts as one of its own. */
double tm_outlook__probability(const struct tm_outlook *p, double steps, double left_s)
{
    size_t count = p->count > 0 ? p->count - 1 : 0;
    double mean = 0, square = 0;
    if (count < POINTS_MIN) return NAN;
    if (steps <= 0) return 1;
    if (left_s <= 0) return 0;
    for (size_t i = 0; i < count; i++)
        mean += (p->steps[i + 1] - p->steps[i]) / (double)count;
    for (size_t i = 0; i < count; i++)
        square += pow(p->steps[i + 1] - p->steps[i] - mean, 2) / (double)(count - 1);
    double stretches = left_s / p->every_s;
    double spread =
        sqrt(square * stretches * ALIKE * (1 + stretches / (double)count)); /* the mean is not known better */
    double ahead = stretches * mean - steps;
    if (spread <= 0) return ahead >= 0 ? 1 : 0;
    return 0.5 * erfc(-ahead / spread / sqrt(2));
}

double tm_outlook__left_s(const struct tm_outlook *p, double steps, double probability)
{
    double low_s = 0, high_s = longest_s;
    if (steps <= 0) return 0;
    if (!(tm_outlook__probability(p, steps, high_s) >= probability)) return NAN;
    for (int i = 0; i < HALVINGS; i++) {
        double middle_s = (low_s + high_s) / 2;
        if (tm_outlook__probability(p, steps, middle_s) >= probability)
            high_s = middle_s;
        else
            low_s = middle_s;
    }
    return high_s;
}
