/* How long the processes of a job wait for each other, and how often they try: what a run goes by (doc/protocol.md
 * tells what each is for). All of them read these, so that they agree; tests of the state machines bring their own. */
#ifndef TM_RUN_PROTOCOL_TIMES_H
#define TM_RUN_PROTOCOL_TIMES_H

enum {
    /* the coordinator */
    TM_PROTOCOL_HEARTBEAT_MS = 250,       /* of a worker */
    TM_PROTOCOL_LEASE_MS = 2500,          /* ten heartbeats missed: it is lost */
    TM_PROTOCOL_ORPHAN_MS = 20000,        /* a worker without a coordinator trains on so long */
    TM_PROTOCOL_RESEND_MS = 500,          /* what was not answered is said again */
    TM_PROTOCOL_SETTLE_MS = 200,          /* arrivals are gathered before a planned change */
    TM_PROTOCOL_FOLLOW_MS = 20000,        /* layers are taken before a planned change, at most so long */
    TM_PROTOCOL_DRAIN_MS = 10000,         /* then a planned change does not wait for a common step */
    TM_PROTOCOL_FETCH_MS = 15000,         /* without any progress of a fetch */
    TM_PROTOCOL_STALL_MS = 15000,         /* without a step, while there should be one */
    TM_PROTOCOL_QUARANTINE_MS = 5000,     /* a worker that hung gets no seat */
    TM_PROTOCOL_COPY_MS = 10000,          /* for a copy set */
    TM_PROTOCOL_FALSE_ALARM_MS = 30000,   /* after the end of a notice, when the instance is still here */
    TM_PROTOCOL_DURABLE_WAIT_MS = 600000, /* for holders of the newest set that may come back */
    TM_PROTOCOL_SETS_KEPT = 2,            /* copy sets in files */

    /* an agent */
    TM_PROTOCOL_AGENT_HEARTBEAT_MS = 500,
    TM_PROTOCOL_BACKOFF_MS = 100, /* before a worker's first restart; doubles */
    TM_PROTOCOL_RESTARTS_MAX = 12,
    TM_PROTOCOL_RESTART_WINDOW_MS = 600000, /* in which so many are too many */
    TM_PROTOCOL_NOTICE_MS = 30000,          /* left after SIGTERM, where nobody says */
    TM_PROTOCOL_GIVE_UP_MS = 300000,        /* without a coordinator */
};

_Static_assert(TM_PROTOCOL_LEASE_MS >= 4 * TM_PROTOCOL_HEARTBEAT_MS, "a late heartbeat or two cost no lease");
_Static_assert(TM_PROTOCOL_ORPHAN_MS > 2 * TM_PROTOCOL_LEASE_MS,
               "a coordinator that is started again finds its workers");
_Static_assert(TM_PROTOCOL_GIVE_UP_MS > TM_PROTOCOL_ORPHAN_MS, "an agent outlives its orphaned worker");

#endif
