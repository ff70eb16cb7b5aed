#include "cli/commands.h"

const struct tm_option tm_global_options[] = {
    {.name = "json", .help = "print one JSON document instead of tables"},
    {.name = "quiet", .letter = 'q', .help = "print only the result: no notes, no warnings"},
    {.name = "verbose", .letter = 'v', .help = "print more on standard error"},
    {.name = "no-color", .help = "no colour, even on a terminal"},
    {.name = "config", .value = "FILE", .help = "read settings from FILE instead of config.yaml"},
    {.name = "help", .letter = 'h', .help = "show help and exit"},
    {.name = "version", .help = "show the version and exit"},
    {.name = "list-man-pages", .help = "names of the man pages, for the build", .hidden = true},
    {.name = "man-source", .value = "PAGE", .help = "a man page in scdoc's form, for the build", .hidden = true},
    {.name = NULL},
};

const struct tm_command tm_commands[] = {
    {
        .name = "catalog",
        .summary = "instance types and prices, ranked and filtered",
        .description =
            "Lists what can be rented: by default one row per instance type, at its cheapest place; --all lists every "
            "offer. --json lists every offer that matches.\n\n"
            "FLOPP is DeepVM's measure, FLOPS / price x 3600: floating point operations per dollar. It uses the dense "
            "peak at --precision and the price of --price; \"mixed\" is the precision of mixed-precision training "
            "(bf16 or fp16 tensor rates if there are any, else fp32). Real training reaches 30-60% of peak rates.\n\n"
            "The interruption band is the share of spot capacity that AWS preempted in a month. Figures come from the "
            "shipped catalogue and from catalog import.",
        .examples = "  tidemill catalog --sort flopp --spot             # best FLOPS for a spot dollar first\n"
                    "  tidemill catalog --gpu V100 --all --sort price   # every offer with V100s\n"
                    "  tidemill catalog --cloud aws,gcp --min-gpus 8 --max-price 20\n"
                    "  tidemill catalog show p3.2xlarge\n"
                    "  tidemill catalog import --format skypilot aws.csv gcp.csv\n",
        .options = tm_catalog_list_options,
        .subcommands = tm_catalog_subcommands,
        .run = tm_cmd_catalog_list,
    },
    {
        .name = "cloud",
        .summary = "what is rented, ending it, and what works of an account",
        .description = "AWS, Google Cloud and Azure. Region, endpoint and credentials are those of each cloud's own "
                       "tools. Nothing of "
                       "it was tried on a real account yet, only on fakes (doc/clouds.md).",
        .examples = "  tidemill cloud check aws\n"
                    "  tidemill cloud list --json\n"
                    "  tidemill cloud clean -y\n",
        .subcommands = tm_cloud_subcommands,
    },
    {
        .name = "trace",
        .summary = "spot availability over time: statistics, plots, cuts, synthetic traces",
        .description = "A trace is a record of how many instances a place would give over time. Many file formats are "
                       "read and detected from content (tidemill-trace(5) lists them); hadp, hasp, ladp and lasp name "
                       "the four published one-hour traces that ship with the program.",
        .examples = "  tidemill trace stats hadp ladp my-trace.json\n"
                    "  tidemill trace show hadp --svg hadp.svg\n"
                    "  tidemill trace cut p3.csv --from 5.5h --to 6.5h -o hour.tmtrace\n"
                    "  tidemill trace generate --like p3.csv --seed 7 -o made.tmtrace\n"
                    "  tidemill trace generate --nodes 32 --mean 24 --mtbf 10m --burst 2 --duration 12h\n",
        .subcommands = tm_trace_subcommands,
    },
    {
        .name = "forecast",
        .summary = "how many instances there will be, and how good such forecasts are",
        .arguments = "[TRACE...]",
        .description =
            "Forecasts the number of instances for the next intervals, from the trace up to --at, as a distribution: "
            "mean, median and 80% range. Methods: last (the count stays the same, with the errors this made so far), "
            "parcae (that paper's ARIMA predictor, with all its rules), tidemill (learns from the trace as it goes: "
            "levels, bursts, sequences, capacity).\n\n"
            "With --instance and no trace: how many of --count instances are left after 1 to 24 hours, by what is "
            "known "
            "of the risk of spot, your own records included (tidemill study).\n\n"
            "With --backtest it forecasts from every interval with 12 intervals of history and compares with what "
            "happened: mean absolute error of the median (also divided by the mean count), CRPS (the error of the "
            "whole distribution, in instances), pinball losses, and how often the truth was in the 80% range. All are "
            "means over steps 1 to --horizon; for one trace, and with --json, shorter horizons are shown too.",
        .examples = "  tidemill forecast hadp --at 20m\n"
                    "  tidemill forecast hadp --at 20m --notice 3       # three instances have been announced to go\n"
                    "  tidemill forecast p3.csv --at 5.5h --method parcae --json\n"
                    "  tidemill forecast --instance p3.2xlarge --region us-west-2 --count 16\n"
                    "  tidemill forecast --backtest hadp hasp ladp lasp\n"
                    "  tidemill forecast --backtest p3.csv --protocol parcae --horizon 14\n",
        .options = tm_forecast_options,
        .run = tm_cmd_forecast,
        .files = true,
    },
    {
        .name = "study",
        .summary = "how long instances live, by GPU, zone, age and hour; what a cluster of them would do",
        .arguments = "FILE...",
        .description =
            "Kaplan-Meier estimates of the share of instances that were preempted within 1, 3, 6, 12 and 24 hours, "
            "with 95% confidence, the median life, the share of preemptions in the first hour of life, and how many "
            "came together. Instances that were stopped by their user, reached the cloud's limit (GCE ends preemptible "
            "instances after 24 hours), or were still running when the record ends count up to that point. POOLED "
            "helps small groups: their preemption rates by age are shrunk towards those of the GPU in all zones, and "
            "those towards the rates of all instances, by as much as the differences between groups are chance.\n\n"
            "Files are lists of lifetimes (columns lifetime_s and end, or VM name, Start and Terminate), logs and "
            "traces that name their instances, or any other trace (tidemill-trace(5)); for those, every instance is "
            "assumed equally likely to be the one preempted.\n\n"
            "Without files, --risk says what is known of the spot offers of the catalogue, from recorded pools, "
            "interruption bands "
            "and what you taught it: the share preempted within 1 and 24 hours and the instance-hours per preemption, "
            "with intervals that hold 80%. --learn adds files of your own to it; what they record (cloud, instance "
            "type, zone) is found in them or in their names, or is said by options. --evaluate predicts what files "
            "record without knowing it.",
        .examples = "  tidemill study lifetimes.csv\n"
                    "  tidemill study lifetimes.csv --gpu K80 --svg k80.svg\n"
                    "  tidemill study --risk --gpu V100,T4 --cloud aws\n"
                    "  tidemill study mine.csv --learn --cloud aws --instance g5.xlarge --zone us-east-1a\n"
                    "  tidemill study cluster --workers \"4x K80:transient\" --steps 64000 --model resnet32\n",
        .options = tm_study_options,
        .subcommands = tm_study_subcommands,
        .run = tm_cmd_study,
        .files = true,
    },
    {
        .name = "simulate",
        .summary = "what would happen: a job on a trace under a policy, in samples, time and cost",
        .arguments = "[JOB.yaml | TRACE...]",
        .description =
            "Replays spot availability and trains the model through it under each policy: how many samples, how long "
            "training stood still and why, what it costs. Runs are listed by model, trace, seed and policy, whatever "
            "the number of threads. doc/decide.md explains how it works.\n\n"
            "A job file (tidemill-job(5)) can replace the options: it has the model, the fleet, its trace or what is "
            "known of preemptions, deadline, budget, prices and the policy; options override the file. It takes the "
            "file that tidemill plan writes for a job, and --json adds what tidemill run expects.\n\n"
            "Policies: ideal (the fastest layout in every interval, no pauses: a bound that cannot be reached), "
            "on-demand (never preempted, at its price), reactive (the fastest layout after each event; the whole fleet "
            "restarts), checkpoint (the same, and work since the last checkpoint is redone: Varuna's way), redundant "
            "(neighbours shadow each other: Bamboo's way), parcae (its forecast and optimizer; decides before the "
            "event is known), parcae-notice (its optimizer, told of this interval's event), parcae-truth (its "
            "optimizer, given the true next intervals), tidemill (ours: weighs each layout over the changes that may "
            "come, counts the step in flight if a preemption comes without notice, and orders on-demand instances when "
            "a deadline needs them), oracle (knows the whole trace: a bound for all but ideal).\n\n"
            "If the job has pools to choose from (fleet.pools with a trace or a limit each), the policies are: "
            "tidemill "
            "(rents where throughput to come, price and lifetimes are best, and moves when that pays), single (the "
            "best pool alone, known afterwards), failover (after a preemption the whole job goes to the next pool by "
            "price: SkyPilot's managed jobs), spread (evenly over the pools that are not short, the rest on demand: "
            "SkyServe), oracle and ideal (bounds). --json adds hours and cost of each pool. doc/pools.md has more.\n\n"
            "Migration costs are data (tidemill-cost(5)): paper is Parcae's published constants, measured is what the "
            "last run on this machine measured. Models without measured layouts (all but parcae/...) are predicted for "
            "--instance, as tidemill predict does.\n\n"
            "With --work instead of --model: a job that needs a whole gang of instances at once and has a deadline. "
            "Its policies: on-demand, greedy (spot when available, else wait; switches to on-demand for good when the "
            "slack runs out), uniform-progress (on-demand when the job is behind an even pace and there is no spot), "
            "tidemill (the lowest expected cost, given what was learned about spot availability), oracle-deadline (the "
            "cheapest possible, knowing the whole trace). Prices are $0.9731 spot and $3.06 on-demand, unless given or "
            "taken from --instance; the trace's own are not used. A job file with pools to choose from, or several "
            "traces and a policy of single, failover, spread, tidemill, oracle that is only for pools, make one job "
            "that may be wherever a pool, or pools of one region, have room for the whole gang (--gang, else "
            "fleet.limit). doc/deadlines.md has the mathematics and measurements.",
        .examples =
            "  tidemill simulate --model parcae/gpt-1.5b --trace hadp\n"
            "  tidemill simulate job.yaml --policy all\n"
            "  tidemill simulate --model parcae/bert,parcae/vgg19 hadp hasp ladp lasp --policy parcae,tidemill\n"
            "  tidemill simulate --model gpt2-1.5b --instance p3.2xlarge p3.csv --report report.html\n"
            "  tidemill simulate --model parcae/gpt-1.5b p3.csv --from 5.5h --to 6.5h --plan-log plan.csv\n"
            "  tidemill simulate --model parcae/bert p3.csv --samples 5e6 --deadline 4h\n"
            "  tidemill simulate --work 48h --deadline 52h --restart 6m zone-a.json zone-b.json\n"
            "  tidemill simulate --work 48h --deadline 52h --policy single,failover,tidemill a.json b.json\n",
        .options = tm_simulate_options,
        .run = tm_cmd_simulate,
        .files = true,
    },
    {
        .name = "predict",
        .summary = "step time, memory and cost of a model on a fleet",
        .description =
            "With --fleet: step time, memory and cost of a model on instances of the catalogue. The model is given by "
            "--model, or is the job of --profile (tidemill profile). With --workers: data-parallel workers, each like "
            "the one profiled, over links of --mbit or as probed (--links, tidemill probe), also for batch sizes that "
            "were not profiled.\n\n"
            "With --evaluate: the errors of such predictions. Parts of a profile are held back, predicted from the "
            "rest, and compared. Profiles are steps on one GPU (network, precision, micro_batch, fwd_ms, bwd_ms, "
            "opt_ms) or data-parallel runs over links (world, mbit, model, batch, ...); see tidemill-profile(5).\n\n"
            "two-batches: the smallest and the largest batch of each network and precision are known, the rest is "
            "predicted. leave-one-network: only the layers of a network are known (for runs: its compute time). "
            "leave-one-bandwidth: for runs, nothing is known about one bandwidth. untrained: nothing in the file is "
            "known; all of it is predicted from the shipped data. IN 80% counts the measurements within the predicted "
            "80% interval. For runs, the naive sum of compute and one ring at the nominal bandwidth is shown for "
            "comparison.",
        .examples =
            "  tidemill predict --model gpt2-124m --fleet \"8x p3.2xlarge\" --batch 128\n"
            "  tidemill predict --model resnet50 --fleet \"4x g5.xlarge, 4x g4dn.xlarge\" --batch 512 --json\n"
            "  tidemill predict --model gpt:layers=48,hidden=1600,heads=25 --fleet \"16x g5.xlarge\" --layout 4x4\n"
            "  tidemill predict --model llama-3-8b,ctx=4096,lora=16 --fleet \"1x g6.12xlarge\" --batch 32\n"
            "  tidemill predict --profile job.tmprofile --workers 1,2,4,8 --mbit 1000\n"
            "  tidemill predict --profile job.tmprofile --fleet \"8x g5.xlarge\" --batch 256\n"
            "  tidemill predict --evaluate steps.csv --split leave-one-network --gpu H200\n"
            "  tidemill predict --evaluate steps.csv --split untrained --gpu A100-80GB --json\n"
            "  tidemill predict --evaluate runs.csv --split leave-one-bandwidth --json\n",
        .options = tm_predict_options,
        .run = tm_cmd_predict,
    },
    {
        .name = "plan",
        .summary = "what to rent for a job, and what the published planners would rent",
        .arguments = "[JOB]",
        .files = true,
        .description =
            "Finds the fleet with the lowest expected cost (or time) to train a number of samples, within a deadline, "
            "a budget, a price per hour and quotas. A fleet is in one region: up to three instance types, several "
            "zones, spot and on-demand. Every GPU instance type of the catalogue is predicted at many counts. Spot "
            "instances are preempted at random, alone and in bursts of a zone (--mtbf, --trace, else what "
            "is known of their risk), which costs the work since the last checkpoint, a restart, and the time until a "
            "new instance "
            "joins. The best checkpoint interval is chosen with the fleet; on-demand instances are added if the "
            "deadline needs them, and anchors to hold copies of the state. Integer programs bound how far the answer "
            "can be from the best. JOB is a file as in tidemill-job(5); options override the file.\n\n"
            "Below the table: which constraints are binding, and what one more hour or 10% more money would buy. "
            "--objective pareto shows the trade-off between cost and time instead. srift is a published idea: the best "
            "prediction, as if nothing were preempted; both are judged by the same expectation. Exit status 3: no "
            "fleet satisfies all constraints; the message says what each would have to be.\n\n"
            "With --instances: DeepVM's planner and its baselines, faithful to the released code: the best clusters of "
            "spot GPU instances within a price per hour, either with on-demand CPU instances that hold the checkpoints "
            "(tiering) or with one of the GPU instances on-demand (single-anchor). deepvm-noscale ignores the scaling "
            "curve, cost-first takes the most instances, perf-first the fastest type; tidemill finds what they miss by "
            "their own figures.",
        .examples =
            "  tidemill plan --model gpt2-1.5b --samples 5000000 --deadline 24h\n"
            "  tidemill plan --model resnet50 --samples 100000000 --budget 50 --objective fastest --cloud aws\n"
            "  tidemill plan --model bert-large --samples 20000000 --deadline 12h --instance p3.2xlarge --trace hadp\n"
            "  tidemill plan --profile job.tmprofile --samples 5000000 --deadline 12h\n"
            "  tidemill plan job.yaml --quota V100=8,us-east-1:on-demand=2 --emit skypilot\n"
            "  tidemill plan --planner deepvm --instances data/deepvm-aws.tmdeepvm --max-hourly 3\n",
        .options = tm_plan_options,
        .run = tm_cmd_plan,
    },
    {
        .name = "profile",
        .summary = "measure a PyTorch job: where the time of a step goes, layer by layer",
        .arguments = "-- COMMAND...",
        .description =
            "Runs the command, watches the first steps of its PyTorch optimizer, and writes a profile "
            "(tidemill-profile(5)): forward and backward time of each layer, when gradients are ready, the optimizer, "
            "waiting for data, memory, variation. The script needs no changes, its results stay the same, and nothing "
            "but torch 2.1 or later need be installed. On a GPU, times come from CUDA events.\n\n"
            "The command is ended once enough is measured, before anything it does at its end (--keep lets it "
            "continue, without hooks). Profile a single worker: several would wait for each other. predict and plan "
            "read the profile and then predict this very job; --add adds a second batch size, and sizes that were not "
            "profiled are predicted from both. doc/profile.md explains how it works. In Python, use the context "
            "manager tidemill.profile(model, optimizer).",
        .examples = "  tidemill profile -- python train.py\n"
                    "  tidemill profile -o job.tmprofile --iterations 80 -- python train.py --batch 16\n"
                    "  tidemill profile -o job.tmprofile --add -- python train.py --batch 64\n"
                    "  tidemill profile --keep --name gpt -- torchrun train.py\n",
        .options = tm_profile_options,
        .run = tm_cmd_profile,
    },
    {
        .name = "probe",
        .summary = "measure the links between machines: latency and bandwidth, alone and together",
        .arguments = "[PEER...]",
        .description = "Measures what the network between machines really delivers; it differs each time you rent. Run "
                       "--serve on all machines but one. On that one, give the addresses of the others, as all of them "
                       "can reach them. Every pair is measured, with pairs that share no machine at the same time: "
                       "latency, one way, both ways, several streams; then all send to their neighbours at once, as in "
                       "an all-reduce. Only data that arrives counts.\n\n"
                       "With -o, writes the links as CSV for predict (its option links). On loopback no credential is "
                       "needed; elsewhere both sides need certificates of the same job (--tls; a run's state folder "
                       "has them in tls/, and --make-credential makes some).",
        .examples = "  tidemill probe --serve 127.0.0.1:7070\n"
                    "  tidemill probe 127.0.0.1:7070\n"
                    "  tidemill probe --make-credential certs\n"
                    "  tidemill probe --serve 10.0.0.2:7070 --tls certs\n"
                    "  tidemill probe 10.0.0.2:7070 10.0.0.3:7070 --tls certs -o links.csv\n",
        .options = tm_probe_options,
        .run = tm_cmd_probe,
    },
    {
        .name = "train",
        .summary = "train a network with the built-in engine",
        .arguments = "JOB.yaml",
        .description = "Trains the network of a job (tidemill-job(5)) in this process: D pipelines of P stages, one "
                       "thread each. With determinism bitwise, the default, the weights have the same bits on every "
                       "layout, even if it changes on the way (--relayout); compare them by weights_hash. Checkpoints "
                       "are safetensors files that PyTorch and Hugging Face's GPT-2 can load.\n\n"
                       "The kernels (AVX2 or AVX-512) are chosen for this machine; TIDEMILL_KERNELS=avx2 forces the "
                       "other, and bits are the same within one class. If the loss becomes NaN or infinite, training "
                       "stops, names the step and layer, and leaves the last checkpoint as it was.",
        .examples = "  tidemill train examples/gpt-tiny.yaml\n"
                    "  tidemill train examples/gpt-tiny.yaml --layout 2x2 --steps 30 --json\n"
                    "  tidemill train examples/gpt-tiny.yaml --relayout 10:2x3,20:1x4 --steps 30\n"
                    "  tidemill train examples/gpt-tiny.yaml --checkpoint run --resume run --steps 600\n",
        .options = tm_train_command_options,
        .run = tm_cmd_train,
        .files = true,
    },
    {
        .name = "generate",
        .summary = "text from a trained network",
        .arguments = "CHECKPOINT",
        .description =
            "Prints text that continues the prompt, byte by byte, as the network of a checkpoint predicts it. "
            "CHECKPOINT is a checkpoint's folder, or the folder of all checkpoints: then the newest is used.",
        .examples = "  tidemill generate run --prompt \"And Jesus said\" --length 300\n"
                    "  tidemill generate run/step-00000300 --temperature 0.7 --top-k 20 --seed 5\n",
        .options = tm_generate_command_options,
        .run = tm_cmd_generate,
        .files = true,
    },
    {
        .name = "verify",
        .summary = "compare two checkpoints bit by bit",
        .arguments = "A B",
        .description = "Compares weights and optimizer state of two checkpoints layer by layer, and names the first "
                       "tensor that differs. Exit status 0: the same bits; 1: they differ.",
        .examples = "  tidemill verify run-1x1 run-2x3\n",
        .run = tm_cmd_verify,
        .files = true,
    },
    {
        .name = "run",
        .summary = "train a job on spot instances, and lose no durable work",
        .arguments = "JOB.yaml",
        .description =
            "Shows what the job is expected to take and cost, asks, and trains it: rents instances from a cloud, "
            "continues through notices, preemptions and arrivals, and ends with the same weights as an undisturbed "
            "run, to the bit. By default the cloud is local: instances are processes on this machine, and a trace says "
            "when they arrive and are preempted; --cloud names another. The keys engine, policy and fleet of the job "
            "file (tidemill-job(5)) say what is rented; options override the file.\n\n"
            "Ctrl-C stops the run with a copy of everything; a second Ctrl-C stops it at once. --resume continues it, "
            "on any layout. Everything is kept in the state folder. Use tidemill status, events and stop from another "
            "terminal. Output of workers is shown after the number of their instance. If workers fail three times "
            "without a new step (max_failures), the job fails, says why and releases all instances.\n\n"
            "With --policy checkpoint the whole fleet stops at each change and restarts from the newest copy in files, "
            "for comparison. --dry-run prints the fleet and the expected time and cost, and exits: nothing is rented "
            "or written. Exit status: 0 finished or stopped as requested, 1 failed, 2 wrong use or bad input, 3 no "
            "layout can train it, or the deadline or the budget cannot be met.",
        .examples = "  tidemill run examples/gpt-tiny.yaml                        # look at the plan, then train\n"
                    "  tidemill run examples/gpt-tiny.yaml --dry-run --json       # only look\n"
                    "  tidemill run examples/gpt-tiny.yaml -y --again --trace ladp --limit 8\n"
                    "  tidemill run examples/gpt-tiny.yaml -y --policy checkpoint --state /tmp/restart\n"
                    "  tidemill run examples/gpt-tiny.yaml -y --again --chaos 7 --no-preemptions\n"
                    "  tidemill run --resume examples/gpt-tiny.yaml -y --limit 3\n",
        .options = tm_run_command_options,
        .run = tm_cmd_run,
        .files = true,
    },
    {
        .name = "dashboard",
        .summary = "a page to watch runs and to steer them, in the browser",
        .description =
            "Serves a page and an API on loopback for all runs of this user: what each has done and what it costs, one "
            "run live (layout, loss, throughput, cost, pauses, events, logs), what to rent for a job, and stop and "
            "resume. It prints a link with a token; who has the link may steer, or with the second one only watch. It "
            "watches as status does: it may come and go, and a run never notices. From another machine use an SSH "
            "tunnel (ssh -L 8642:127.0.0.1:8642 HOST), or let it listen there, over TLS. doc/dashboard.md has more.",
        .examples = "  tidemill dashboard\n"
                    "  tidemill dashboard --listen 127.0.0.1:9000 --state /data/runs/big\n"
                    "  tidemill dashboard --listen 0.0.0.0:8642    # for other machines, over TLS\n"
                    "  tidemill dashboard --attach https://10.0.0.7:8642#sha256=... --token FILE\n"
                    "  tidemill dashboard --openapi                # the API, for programs\n",
        .options = tm_dashboard_command_options,
        .run = tm_cmd_dashboard,
    },
    {
        .name = "status",
        .summary = "state of a run: fleet, layout, steps, loss, cost, last events",
        .description =
            "Asks the coordinator of a run; if it does not answer, reads the record in the state folder. In the layout "
            "a cell is an instance: ! marks one with a preemption notice and the time it has left, x one that is gone, "
            "* an on-demand one. The cost is shown next to that of the same instance-seconds on-demand. --json prints "
            "the document of GET /v1/status; doc/watch.md explains each number.",
        .examples = "  tidemill status\n"
                    "  tidemill status --follow\n"
                    "  tidemill status --state gpt-tiny --json\n",
        .options = tm_status_command_options,
        .run = tm_cmd_status,
    },
    {
        .name = "events",
        .summary = "what happened in a run, event by event",
        .description = "Prints the events of a run in words: time (UTC), number, kind, what happened. They come from "
                       "the coordinator while it is running, else from the record. Events for programs (progress, "
                       "prices, costs so far) are shown only with --all. --json prints one document, {\"events\": "
                       "[...]}, with every field of the record's schema; with --follow, one JSON value per line.",
        .examples = "  tidemill events\n"
                    "  tidemill events --follow\n"
                    "  tidemill events --state gpt-tiny --all --json\n",
        .options = tm_events_command_options,
        .run = tm_cmd_events,
    },
    {
        .name = "attach",
        .summary = "watch and steer a run that another machine has",
        .arguments = "s3://BUCKET/PREFIX | JOB",
        .description =
            "A run whose copies are in a bucket has its books there, too. attach makes a state folder here that leads "
            "to them, and follows the run; status, events, logs, stop, report and result then "
            "work here as on the machine that runs it. A name alone is looked for among the VMs of the clouds that are "
            "set "
            "up here: the one that runs the coordinator of a detached run has a tag.",
        .examples = "  tidemill attach s3://my-bucket/first\n"
                    "  tidemill attach gpt-tiny --no-follow\n",
        .options = tm_attach_command_options,
        .run = tm_cmd_attach,
    },
    {
        .name = "logs",
        .summary = "what the workers of a run have printed",
        .arguments = "[INSTANCE]",
        .description =
            "Prints the output of a run's workers, each line after the number of its instance: what your script "
            "prints, "
            "and its errors. tidemill run shows the same lines while they come. The files are in logs/ of the state "
            "folder.",
        .examples = "  tidemill logs\n"
                    "  tidemill logs 2 --last 20\n",
        .options = tm_logs_command_options,
        .run = tm_cmd_logs,
    },
    {
        .name = "replay",
        .summary = "decide a recorded run again, with its own policy or another",
        .description =
            "A run's record keeps the facts of every decision: the fleet, progress, prices, limits, and what the "
            "policy knew. This command decides again from the same facts and compares. The run's own policy must give "
            "the same decisions: if not, this release decides differently from the one that ran the job, and the exit "
            "status is 1. With --policy NAME, another policy decides at each of the same moments; the first decision "
            "that differs is shown, and the exit status is 0. The facts are always those of the recorded run: to see "
            "what another policy would have led to, use tidemill simulate. --json prints {\"decisions\", "
            "\"different\", \"first_difference\"}; the last is null if nothing differs.",
        .examples = "  tidemill replay --state gpt-tiny\n"
                    "  tidemill replay --state gpt-tiny --policy checkpoint --json\n",
        .options = tm_replay_command_options,
        .run = tm_cmd_replay,
    },
    {
        .name = "stop",
        .summary = "stop a run so that it can be resumed",
        .description =
            "Tells a run to stop: all workers stop at a common step, a copy set of it is written to files, and all "
            "instances are released. Nothing is lost; tidemill run can resume from there, on any layout. Returns when "
            "the run has stopped. --now does not wait for the copy: the steps since the newest one are redone later.",
        .examples = "  tidemill stop\n"
                    "  tidemill stop --state gpt-tiny --now\n",
        .options = tm_stop_command_options,
        .run = tm_cmd_stop,
    },
    {
        .name = "set",
        .summary = "give a run another deadline or budget",
        .description =
            "Changes the deadline or the budget of a run that goes on. Both are of the whole job, as in the job file; "
            "none "
            "takes one away. The policy decides by the new limits from the next moment on. Asks first; returns when "
            "the run's record has the order, which then holds whatever is killed, and after a resume.",
        .examples = "  tidemill set --deadline 10h\n"
                    "  tidemill set --state gpt-tiny --budget 250 --deadline none -y\n",
        .options = tm_set_command_options,
        .run = tm_cmd_set,
    },
    {
        .name = "drain",
        .summary = "let one instance of a run go",
        .arguments = "INSTANCE",
        .description =
            "Tells a run to do without one of its instances: another is rented in its place, its seat moves as with a "
            "preemption notice, so that nothing is redone, what only it holds is copied, then it is released. It stays "
            "while the job could not train without it. Asks first; returns when the run's record has the order.",
        .examples = "  tidemill drain 5\n"
                    "  tidemill drain 5 --state gpt-tiny -y\n",
        .options = tm_drain_command_options,
        .run = tm_cmd_drain,
    },
    {
        .name = "copy",
        .summary = "make a copy set of a run now",
        .description = "Tells a run to make a copy set (Tidemill's kind of checkpoint) of its state now, beside those "
                       "that the policy makes; training goes on. Asks first; returns when the copy is whole.",
        .examples = "  tidemill copy\n"
                    "  tidemill copy --state gpt-tiny -y\n",
        .options = tm_copy_command_options,
        .run = tm_cmd_copy,
    },
    {
        .name = "result",
        .summary = "where the weights of a run are",
        .description = "Prints the folder with the weights of a run that has ended, as safetensors files, and their "
                       "hash. Of a run "
                       "that another machine had (a detached run, attach) they are fetched from the bucket, once.",
        .examples = "  tidemill result --state gpt-tiny\n",
        .options = tm_result_command_options,
        .run = tm_cmd_result,
    },
    {
        .name = "report",
        .summary = "what a run did, as one HTML file",
        .description = "Writes report.html for a run that has ended or was stopped, from its record: time and cost "
                       "compared with the prediction; fleet, layouts, throughput and pauses over time; the cost "
                       "compared with on-demand; the loss; every instance and every event. The file needs no network. "
                       "tidemill run writes it at the end by itself.",
        .examples = "  tidemill report --state gpt-tiny\n"
                    "  tidemill report --state /tmp/run -o what-happened.html\n",
        .options = tm_report_command_options,
        .run = tm_cmd_report,
    },
    {
        .name = "coordinator",
        .summary = "coordinate a job on your own machines",
        .arguments = "[JOB.yaml]",
        .description = "Runs a job on machines that you already have: it waits for agents (tidemill agent), one on "
                       "each machine, uses all that join, and continues with those that remain when some leave. It "
                       "keeps the job's record, join token and certificates in a state folder; started again on the "
                       "same folder it continues where it was, also after a failure. Use tidemill status, events and "
                       "stop with --state DIR. It ends when the job does; SIGTERM and Ctrl-C stop the job with a copy, "
                       "a second one stops it at once. tidemill run starts a coordinator by itself.\n\n"
                       "On a single machine the defaults are enough. To be reachable from others, give --listen with "
                       "an address of this machine: certificates are then made, a key for each of --instances "
                       "machines, valid for 30 days. With --prepare it exits after that, so that the token and each "
                       "machine's folder tls/instance-N can be copied first. To make new certificates, remove the "
                       "folder tls. Copy sets need a folder shared by all machines (--copies).",
        .examples =
            "  tidemill coordinator job.yaml --state s --listen 127.0.0.1:7070\n"
            "  tidemill coordinator job.yaml --state s --listen 10.0.0.5:7070 --copies /mnt/shared/job --prepare\n"
            "  tidemill coordinator job.yaml --state s --listen 10.0.0.5:7070\n",
        .options = tm_coordinator_command_options,
        .run = tm_cmd_coordinator,
    },
    {
        .name = "agent",
        .summary = "take part in a run: one agent per instance",
        .arguments = "[-- COMMAND...]",
        .description =
            "With --join TICKET (tidemill ticket), or the ticket in the variable TIDEMILL_TICKET, nothing else "
            "is needed: job, data and certificate come over the wire.\n\n"
            "Keeps a worker running on this machine, tells the job's coordinator at once when it ends, and "
            "passes on the cloud's preemption notices, so that the worker's state is copied before the "
            "machine goes away. SIGTERM counts as a notice; a second one ends the agent at once. The worker "
            "is what --job says, its run: command or the built-in engine, or else the COMMAND after --, "
            "which gets TIDEMILL_COORDINATOR, TIDEMILL_TOKEN_FILE, TIDEMILL_JOB, TIDEMILL_INSTANCE_ID, "
            "TIDEMILL_INCARNATION, TIDEMILL_HOST, TIDEMILL_COPIES, TIDEMILL_TLS, TIDEMILL_FINGERPRINT and "
            "TIDEMILL_STATE in its environment (libtidemill reads them).\n\n"
            "tidemill run starts agents on the local cloud by itself. On your own machines: start tidemill "
            "coordinator on one, and an agent on each, with a unique number. Beyond loopback the machine's "
            "certificate is needed (--tls). If the coordinator cannot be reached, the agent says why, once. "
            "It exits with status 1 after --give-up without a coordinator, when the worker keeps failing, "
            "or when the coordinator refuses this machine (another job file, program or token).",
        .examples =
            "  tidemill agent --join TICKET\n"
            "  tidemill agent --coordinator 10.0.0.5:7070 --token-file token --instance 3 --tls instance-3 \\\n"
            "                 --host 10.0.0.8 --copies /mnt/shared/job --notice aws --job job.yaml\n"
            "  tidemill agent --coordinator 127.0.0.1:7070 --token-file token --instance 1 -- python train.py\n",
        .options = tm_agent_command_options,
        .run = tm_cmd_agent,
    },
    {
        .name = "ticket",
        .summary = "tickets by which machines join a run",
        .description =
            "Prints tickets, one a line, for a run of cloud join: an agent that gets one (the variable "
            "TIDEMILL_TICKET), "
            "on any machine that can reach this one, is all that it takes to join. Each ticket is a secret that lets "
            "one machine in, once, until it expires (--valid); it names where the run is, and the fingerprint of its "
            "certificate authority. A machine that comes when the job has all that it wants (fleet.limit) waits for "
            "its turn. Tickets of a run that was killed and resumed are worth nothing: ask again.",
        .examples = "  tidemill ticket\n"
                    "  tidemill ticket --state gpt-tiny --count 4 --valid 1h\n"
                    "  ssh gpu1 TIDEMILL_TICKET=$(tidemill ticket) tidemill agent\n",
        .options = tm_ticket_command_options,
        .run = tm_cmd_ticket,
    },
    {
        .name = "torchrun",
        .summary = "train a PyTorch script as torchrun is called with it, elastically",
        .arguments = "SCRIPT [ARGS...]",
        .description =
            "Takes torchrun's options, and trains the script as a job of Tidemill's: workers and machines may come "
            "and go, and no durable work is lost. Nodes are instances, --nproc-per-node is the workers on each. The "
            "script is one that uses tidemill.torch (doc/pytorch.md): give its steps and its batch. Options "
            "of torchrun that have no effect here are named in a warning.\n\n"
            "Where --rdzv-endpoint names this machine, it coordinates, listens there and on the next port, and is a "
            "node itself. On other machines the same line joins, with a ticket in the variable TIDEMILL_TICKET (or "
            "--rdzv-conf ticket=TICKET): tidemill ticket, on the first machine, gives one for each. The script lies "
            "at the same path on all of them. PYTHON_EXEC names another Python than python3.",
        .examples =
            "  tidemill torchrun --standalone --nproc-per-node gpu --steps 1000 --batch 64 train.py config.yaml\n"
            "  tidemill torchrun --nnodes 1:4 --rdzv-endpoint head:29400 --steps 1000 --batch 64 train.py\n"
            "  TIDEMILL_TICKET=tmt1_... tidemill torchrun --nnodes 1:4 --rdzv-endpoint head:29400 train.py\n",
        .options = tm_torchrun_command_options,
        .run = tm_cmd_torchrun,
        .foreign = true,
    },
    {
        .name = "config",
        .summary = "settings in force and where files are kept",
        .description = "Shows every setting, its value, and the folders in use. Settings are read from config.yaml in "
                       "the settings folder; tidemill(1) lists them.",
        .run = tm_cmd_config,
    },
    {
        .name = "completion",
        .summary = "completions for a shell",
        .arguments = "bash|zsh|fish",
        .description = "Prints a completion script. For bash: eval \"$(tidemill completion bash)\".",
        .run = tm_cmd_completion,
        .words = tm_completion_shells,
    },
    {
        .name = "help",
        .summary = "help on a command",
        .arguments = "[COMMAND [SUBCOMMAND]]",
        .description = "Shows what a command does and its options.",
        .run = tm_cmd_help,
        .about_commands = true,
    },
    {.name = NULL},
};

const struct tm_command tm_plumbing_commands[] = {
    {.name = "worker",
     .summary = "the worker of an instance, for the program itself",
     .description = "Started by tidemill agent.",
     .options = tm_worker_command_options,
     .run = tm_cmd_worker},
    {.name = NULL},
};
