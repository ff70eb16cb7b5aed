/* What Slurm's commands print in their parsable forms, as values. Whatever does not look as it should is left out:
 * warnings stand between the lines, and other releases have other words.
 *
 * Jobs are found by their name, which is the run's alone, and told apart by their comment, which ends a line: anybody
 * else's comment may hold anything. */
#ifndef TM_CLOUD_SLURM_TEXT_H
#define TM_CLOUD_SLURM_TEXT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TM_SLURM_WORD_MAX = 64, TM_SLURM_TAG_MAX = 32, TM_SLURM_COMMENT_MAX = 128 };

/* squeue -O; a suffix without a width is neither padded nor cut. */
#define TM_SLURM_QUEUE_FORMAT                                                                                          \
    "JobID:|,State:|,Reason:|,NodeList:|,PreemptTime:|,TimeLeft:|,exit_code:|,Partition:|,Comment:|"

enum tm_slurm__phase { TM_SLURM_PENDING, TM_SLURM_RUNNING, TM_SLURM_COMPLETING, TM_SLURM_ENDED };

/* Whose job it is: written into its comment. */
struct tm_slurm__tag {
    char folder[TM_SLURM_TAG_MAX]; /* of the state folder: all runs in it */
    uint64_t run;                  /* one of them */
    uint64_t instance;
};

/* A line of squeue. */
struct tm_slurm__row {
    int64_t job;
    enum tm_slurm__phase phase;
    char state[TM_SLURM_WORD_MAX]; /* "RUNNING", "NODE_FAIL" */
    char reason[TM_SLURM_WORD_MAX];
    char node[TM_SLURM_WORD_MAX];
    char partition[TM_SLURM_WORD_MAX];
    bool preempted;  /* it has a time of preemption: that it is cancelled is not the user's doing */
    int64_t left_ms; /* to its time limit; -1: has none, or does not run */
    int status;      /* exit status, 128 + signal for one that was killed */
    struct tm_slurm__tag tag;
};

/* Which command is asked, whoever carries it. */
enum tm_slurm__command_kind { TM_SLURM_SUBMIT, TM_SLURM_QUERY, TM_SLURM_CANCEL, TM_SLURM_NODES };

/* What Slurm answered to one, whoever carried it. */
struct tm_slurm__answer {
    int status;        /* 0: it worked; > 0: it did not; -1: there was no answer */
    const char *words; /* what it said, for a log; borrowed */
    size_t length;
    int64_t job;                /* TM_SLURM_SUBMIT: its number; 0: there is none */
    struct tm_slurm__row *rows; /* TM_SLURM_QUERY */
    size_t row_count, row_capacity;
    char (*leaving)[TM_SLURM_WORD_MAX]; /* TM_SLURM_NODES: those that take no new jobs or are about to go */
    size_t leaving_count, leaving_capacity;
};
/* Empties it and keeps its room. */
void tm_slurm_answer__clear(struct tm_slurm__answer *answer);
void tm_slurm_answer__deinit(struct tm_slurm__answer *answer);
int tm_slurm_answer__add_row(struct tm_slurm__answer *answer, const struct tm_slurm__row *row, struct tm_error *e);
int tm_slurm_answer__add_leaving(struct tm_slurm__answer *answer, const char *node, struct tm_error *e);
/* What a command printed, with its exit status or -1; `text` is borrowed for `words`. */
int tm_slurm_answer__read(struct tm_slurm__answer *answer, enum tm_slurm__command_kind kind, int status,
                          const char *text, size_t length, struct tm_error *e);

/* The next line of squeue that is a job with a tag of ours; *at moves on from 0. False: there are no more. */
bool tm_slurm__next_row(const char *text, size_t length, size_t *at, struct tm_slurm__row *out);

/* The job's number in the answer of sbatch --parsable, "12" or "12;cluster"; 0: there is none. */
int64_t tm_slurm__job_number(const char *text, size_t length);

struct tm_slurm__partition {
    bool up;
    int64_t grace_ms;    /* from SIGTERM to the end of one that is preempted; 0: none */
    int64_t time_max_ms; /* longest time limit; -1: none */
    int64_t nodes;
};
/* What `scontrol -o show partition NAME` says; false: it says nothing of it. */
bool tm_slurm__read_partition(const char *text, size_t length, const char *name, struct tm_slurm__partition *out);

/* NodeAddr of what `scontrol -o show node NAME` says; false: it says nothing of it. */
bool tm_slurm__read_address(const char *text, size_t length, const char *name, char out[TM_SLURM_WORD_MAX]);

/* The next line "NODE|STATE" of sinfo whose node takes no new jobs or is about to go (draining, failing, reboot). */
bool tm_slurm__next_leaving(const char *text, size_t length, size_t *at, char node[TM_SLURM_WORD_MAX]);

/* "D-HH:MM:SS", "HH:MM:SS", "MM:SS", "SS"; -1: none of these, as UNLIMITED. */
int64_t tm_slurm__duration_ms(const char *text, size_t length);
/* The other way, for --time. */
void tm_slurm__print_duration(int64_t ms, char out[TM_SLURM_WORD_MAX]);

/* "RUNNING", "NODE_FAIL": where in its life a job of that state is. */
enum tm_slurm__phase tm_slurm__phase_of(const char *state, size_t length);
/* "draining", "IDLE+DRAIN": does a node of that state take no new jobs, or is it about to go? */
bool tm_slurm__is_leaving(const char *state, size_t length);
/* Of wait(), as an exit status: 128 + signal for one that was killed. */
int tm_slurm__exit_status(int64_t status);

/* A job's comment; false: it is none of ours. */
bool tm_slurm__read_tag(const char *text, size_t length, struct tm_slurm__tag *out);
void tm_slurm__print_tag(const struct tm_slurm__tag *tag, char out[TM_SLURM_COMMENT_MAX]);

enum { TM_SLURM_SAID_MAX = 301 };
/* What a command said, its lines joined by "; ": the first 300 bytes. */
void tm_slurm__in_one_line(const char *text, size_t length, char out[TM_SLURM_SAID_MAX]);
/* A reason to wait that does not go away by itself: held, or more than the site allows. */
bool tm_slurm__is_stuck(const char *reason);

#endif
