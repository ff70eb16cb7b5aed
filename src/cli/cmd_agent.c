#include "cli/commands.h"
#include "job/job_agent.h"
#include "run/protocol_times.h"

#include <signal.h>
#include <sys/prctl.h>

static const char *const notice_names[] = {"aws", "gcp", "azure", "local", "none", NULL}; /* tm_agent_notice */

const struct tm_option tm_agent_command_options[] = {
    {.name = "join",
     .value = "TICKET",
     .help =
         "join a job by a ticket: nothing else is needed; @FILE: read it from a file, and join again when another one "
         "is there (else the variable TIDEMILL_TICKET)"},
    {.name = "coordinator", .value = "HOST:PORT", .help = "address of the job's coordinator"},
    {.name = "token-file", .value = "FILE", .help = "the job's join token: the file named token in its state folder"},
    {.name = "job", .value = "JOB.yaml", .help = "job for the built-in worker; else give a command after --"},
    {.name = "instance", .value = "N", .help = "this machine's number in the job, from 1; unique"},
    {.name = "host",
     .value = "ADDRESS",
     .help = "address at which other workers reach this machine (127.0.0.1 if the coordinator is on this machine)"},
    {.name = "anchor", .help = "this machine is never preempted: it holds copies for the others"},
    {.name = "notice",
     .value = "CLOUD",
     .help = "cloud whose preemption notices are read: aws, gcp, azure, local or none (the default); SIGTERM always "
             "counts as one",
     .choices = notice_names},
    {.name = "notice-left", .value = "DURATION", .help = "time left after SIGTERM (30s)"},
    {.name = "tls",
     .value = "DIR",
     .help =
         "this machine's certificate: ca.pem, node.pem, node.key; tls/instance-N of the coordinator's state folder"},
    {.name = "copies",
     .value = "DIR",
     .help = "for copy sets: a folder shared by all instances, s3://BUCKET/PREFIX or az://CONTAINER/PREFIX"},
    {.name = "give-up", .value = "DURATION", .help = "exit with status 1 after this long without a coordinator (5m)"},
    {.name = "state", .value = "DIR", .help = "take all of this from a job's state folder on the same machine"},
    {.name = NULL},
};

static volatile int terminating;

static void on_term(int number)
{
    (void)number;
    terminating++;
}

int tm_cmd_agent(struct tm_cli *cli, struct tm_error *e)
{
    struct sigaction action = {.sa_handler = on_term};
    struct tm_job_agent request = {.state = tm_given_text(cli, "state"),
                                   .ticket = tm_given_text(cli, "join"),
                                   .job = tm_given_text(cli, "job"),
                                   .coordinator = tm_given_text(cli, "coordinator"),
                                   .token_file = tm_given_text(cli, "token-file"),
                                   .host = tm_given_text(cli, "host"),
                                   .tls = tm_given_text(cli, "tls"),
                                   .copies = tm_given_text(cli, "copies"),
                                   .anchor = tm_given(cli, "anchor"),
                                   .notice = TM_AGENT_NOTICE_UNSAID,
                                   .notice_ms = TM_PROTOCOL_NOTICE_MS,
                                   .give_up_ms = TM_PROTOCOL_GIVE_UP_MS,
                                   .words = cli->arguments,
                                   .word_count = cli->argument_count,
                                   .terminating = &terminating};
    (void)sigaction(SIGTERM, &action, NULL);
    /* An instance of the local cloud goes with the program that runs it. */
    if (cli->env->variable(cli->env, "TIDEMILL_CLOUD_MARK") != NULL) (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = tm_given_choice(cli, "notice", &request.notice, e);
    if (rc == 0) rc = tm_given_integer(cli, "instance", 1, INT64_MAX, &request.instance, e);
    if (rc == 0) rc = tm_given_duration(cli, "notice-left", &request.notice_ms, e);
    if (rc == 0) rc = tm_given_duration(cli, "give-up", &request.give_up_ms, e);
    return rc == 0 ? tm_job_agent_serve(cli->env, &request, &cli->arena, e) : rc;
}
