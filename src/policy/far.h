/* Training across regions: gradients go over the links between them, every step, and that traffic is billed. */
#ifndef TM_POLICY_FAR_H
#define TM_POLICY_FAR_H

/* Where those that train together are in several regions. Zeros: nothing is lost by it. */
struct tm_far {
    double sample_s;   /* a sample takes so much longer */
    double sample_usd; /* and its traffic costs so much, for each region beyond the first */
};

/* What is left of a throughput in so many regions. */
static inline double tm_far_rate(const struct tm_far *far, double samples_per_s, int regions)
{
    return regions < 2 ? samples_per_s : samples_per_s / (1 + samples_per_s * far->sample_s);
}

/* Of the traffic of one sample. */
static inline double tm_far_usd(const struct tm_far *far, int regions)
{
    return regions < 2 ? 0 : (regions - 1) * far->sample_usd;
}

#endif
