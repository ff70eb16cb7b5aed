/* How a run has come on, at equal distances of real time, and what that says of when it will be done. */
#ifndef TM_RUN_OUTLOOK_H
#define TM_RUN_OUTLOOK_H

#include <stddef.h>

enum { TM_OUTLOOK_POINTS = 64 };

/* All bytes 0 at first. Where there are too many points every second one goes. */
struct tm_outlook {
    double steps[TM_OUTLOOK_POINTS];
    size_t count;
    double at_s;    /* of the newest, in real time */
    double every_s; /* 0: none yet */
};

/* So many steps were committed at that time of the run; times do not go back. */
void tm_outlook__keep(struct tm_outlook *outlook, double time_s, double steps);
/* The probability that `steps` more are done in so many seconds; NaN: too little was seen to tell. */
double tm_outlook__probability(const struct tm_outlook *outlook, double steps, double left_s);
/* In how many seconds they are done with this probability, above 0 and below 1; NaN: too little was seen, or they may
 * never be. */
double tm_outlook__left_s(const struct tm_outlook *outlook, double steps, double probability);

#endif
