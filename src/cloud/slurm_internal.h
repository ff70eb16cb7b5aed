/* The insides of the Slurm cloud. */
#ifndef TM_CLOUD_SLURM_INTERNAL_H
#define TM_CLOUD_SLURM_INTERNAL_H

#include "cloud/slurm_cloud.h"
#include "cloud/slurm_jobs.h"
#include "cloud/slurm_rest.h"
#include "cloud/tool_process.h"

enum { TM_SLURM_WORDS_MAX = 96, TM_SLURM_TEXT_MAX = 16 << 20 };

#endif
