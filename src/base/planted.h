/* Bugs planted on purpose, to prove that the simulated cluster's checkers find them.
 *
 * They exist only in the program that tests/simcluster builds with TIDEMILL_PLANTED; everywhere else TM_PLANTED is the
 * constant false, and the compiler removes what it guards. */
#ifndef TM_BASE_PLANTED_H
#define TM_BASE_PLANTED_H

#include <stdbool.h>

/* X(name, what is wrong) */
#define TM_PLANTED_BUGS(X)                                                                                             \
    X(none, "nothing")                                                                                                 \
    X(step_skipped, "a worker counts from one step after the base")                                                    \
    X(commit_early, "a worker applies a step before every flag has come")                                              \
    X(accept_old_flags, "a worker takes prepared flags of any generation")                                             \
    X(resolve_forgets, "the step in doubt is not applied by those who only hold it")                                   \
    X(fence_ignored, "a worker reports to a fence and trains on")                                                      \
    X(orphan_ignored, "a worker without a coordinator never stops")                                                    \
    X(rebuilder_revives, "a coordinator without a record lets workers train on whose orphan time is over")             \
    X(no_wait_for_orphans, "a generation starts while members of the last one may still train")                        \
    X(silent_forgotten, "a silent member's newer steps are given up at once")                                          \
    X(stuck_ignored, "the coordinator decides on although the record cannot be written")                               \
    X(full_disk_fatal, "a full disk counts as one that stays unusable")                                                \
    X(fetch_unchecked, "fetched bytes are not compared with their hash")                                               \
    X(wrong_version, "a copy is read from the state that the optimizer writes")                                        \
    X(put_unchecked, "a copy that could not be stored counts as stored")                                               \
    X(set_torn, "a copy set is called whole when one part is missing")                                                 \
    X(drop_only_set, "the newest whole set is dropped before the next one is whole")                                   \
    X(set_renamed, "a restarted coordinator gives a copy set the number of one that was given up")                     \
    X(manifest_unmended, "a manifest that a coordinator died before is not written by the next one")                   \
    X(manifest_untried, "a manifest that could not be written is not tried again")                                     \
    X(durable_ignored, "a roll-back takes an older set than the newest")                                               \
    X(record_unsynced, "a generation takes effect before it is in the record")                                         \
    X(record_unawaited, "what follows an event of the record leaves before the disk has the event")                    \
    X(hello_unproven, "a hello is taken for proven")                                                                   \
    X(strangers_served, "layers are given to whoever asks")                                                            \
    X(link_unproven, "a link is taken for proven")                                                                     \
    X(owner_unlocked, "a state folder is taken without its lock")                                                      \
    X(record_shared, "a second coordinator opens the record of one that lives")                                        \
    X(layer_unowned, "a worker drops the last layer when it starts")                                                   \
    X(sample_lost, "the toy engine leaves out a micro-batch of the last pipeline")                                     \
    X(bill_wrong, "what an instance that ended has cost is forgotten")                                                 \
    X(unnamed_runs, "an instance that the cloud does not name any more runs for ever")                                 \
    X(redone_untold, "a restarted coordinator does not know how far the job was")                                      \
    X(zones_ignored, "copies go to any zone")                                                                          \
    X(copies_together, "copies go to the instance that has them already")                                              \
    X(anchors_last, "copies go to anchors only when there is nobody else")                                             \
    X(follow_wrong, "a follower applies gradients wrongly")                                                            \
    X(follow_unchecked, "followed layers are wrong, and taken without comparing their hashes")                         \
    X(rent_fewer, "the cloud is told to rent one instance too few")                                                    \
    X(regions_mixed, "workers of any region get seats")                                                                \
    X(decision_untold, "the record is not told how the fleet went on before a decision")                               \
    X(arrival_twice, "a worker's arrival is told each time it joins again")                                            \
    X(loss_shifted, "a loss is shown for the step after its own")                                                      \
    X(release_unsafe, "an instance is given back with a seat, or with the only copy")                                  \
    X(stop_early, "a job is called stopped before its members stand still")                                            \
    X(finish_early, "a job is called finished before its last step is in files")                                       \
    X(hung_forever, "a worker that hangs is waited for without end")                                                   \
    X(snapshot_leak, "the snapshot of an abandoned copy set is kept")                                                  \
    X(lease_forever, "a lost worker keeps its lease")                                                                  \
    X(stop_ignored, "a worker that is told to stop runs on")                                                           \
    X(fingerprint_ignored, "a worker with another job file is let in")                                                 \
    X(memory_leak, "what a worker reported before is not freed")                                                       \
    X(handle_leak, "the handle of a connection that broke is not closed")                                              \
    X(clock_margin, "the coordinator allows for no difference between clocks")

enum tm_planted_bug {
#define TM_PLANTED_ENUM(name, what) TM_BUG_##name,
    TM_PLANTED_BUGS(TM_PLANTED_ENUM)
#undef TM_PLANTED_ENUM
        TM_BUG_COUNT
};

#ifdef TIDEMILL_PLANTED
extern enum tm_planted_bug tm_planted_bug; /* owned by the simulated cluster */
#define TM_PLANTED(name) (tm_planted_bug == TM_BUG_##name)
#else
#define TM_PLANTED(name) false
#endif

#endif
