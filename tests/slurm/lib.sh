# What the tests of cloud slurm share: a job, a cluster, and what must be true of both in the end.
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
passed=0
failed=0
pids=()
as=() # who runs it: nobody, where slurmrestd is spoken to
good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED $1"; }
ok() { # ok NAME CONDITION...
    local name=$1
    shift
    if "$@"; then good; else bad "$name"; fi
}
finish() {
    trap - EXIT TERM INT
    local pid
    for pid in "${pids[@]:-}"; do [ -n "$pid" ] && kill -9 "$pid" 2> /dev/null; done
    cluster_stop
    wait 2> /dev/null
    rm -rf "$work"
}
await() { # await SECONDS COMMAND...: until it succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -ge $end ] && return 1
        read -rt 0.05 <> <(:) || true
    done
}
value() { sed -nE "s/^ *\"$2\": \"?([^\",]*)\"?,?\$/\1/p" "$1" | tail -1; }
status_of() { # status_of DIR KEY
    "$tidemill" status --state "$1" --json 2> /dev/null | sed -nE "s/^ *\"$2\": ([0-9]+),?\$/\1/p" | head -1
}
counted() { # counted DIR KEY N: the status says at least N of it
    local have
    have=$(status_of "$1" "$2")
    [ "${have:-0}" -ge "$3" ]
}
trains_on() { # trains_on DIR STEPS: so many more get committed
    local from
    from=$(status_of "$1" committed)
    await 120 counted "$1" committed $((${from:-0} + $2))
}
drain_told() { # drain_told DIR NODE: the record says so, in words
    "$tidemill" events --state "$1" 2> /dev/null | grep -q "may be preempted soon: node $2 is drained"
}
same_bits() { # same_bits RESULT JOB: as `train` has them after as many steps
    local step
    step=$(value "$1" steps_committed)
    [ "${step:-0}" -gt 0 ] || return 1
    "$tidemill" train "$2" --steps "$step" --json -q > "$1.alone" || return 1
    [ -n "$(value "$1" weights_hash)" ] && [ "$(value "$1" weights_hash)" = "$(value "$1.alone" weights_hash)" ]
}
ours() { squeue -h -p "${1:-spot}" -t "${2:-R}" -o '%i %N %j' | grep tidemill-; }
running() { [ "$(ours "$1" R | wc -l)" -eq "$2" ]; }
pending() { [ "$(ours "$1" PD | wc -l)" -ge "$2" ]; }
nth() { ours "$1" R | sed -n "$2p"; } # a job that runs: its number, its node
runs() { [ "$(squeue -h -j "$1" -o %T 2> /dev/null)" = RUNNING ]; }
is_over() { [ -z "$(squeue -h -t PD,R,CF,CG,S -j "$1" -o %T 2> /dev/null)" ]; }
no_job() { ! squeue -h -t PD,R,CF,CG,S -o %j | grep -q tidemill-; }
start_run() { # start_run NAME JOB OPTION...
    local name=$1 job=$2
    shift 2
    "${as[@]}" "$tidemill" run "$job" --state "$work/$name" --cloud slurm -y --json "$@" > "$work/$name.json" 2> "$work/$name.err" &
    run=$!
    pids+=("$run")
}
stop_run() { # stop_run NAME JOB: it stops in order, with the bits of train, and no job is left
    "$tidemill" stop --state "$work/$1" > "$work/out" 2>&1 || { bad "$1: stop: status $?"; cat "$work/out"; }
    wait "$run" || { bad "$1: status $?"; tail -n 5 "$work/$1.err" "$work/$1"/logs/*; }
    ok "$1: it stopped in order" [ "$(value "$work/$1.json" state)" = stopped ]
    ok "$1: no job is left" no_job
    ok "$1: the bits of train" same_bits "$work/$1.json" "$2"
}
by_rest() { # by_rest JOB OTHER: from now on all is nobody's, and OTHER is JOB by slurmrestd
    mkdir -p "$cluster/nobody/runs"
    cp "$tidemill" "$cluster/nobody/tidemill"
    sed "s|^fleet:|fleet:\n  slurm: {rest: \"unix:$cluster/nobody/rest.sock\"}|" "$1" > "$2"
    chown nobody:nogroup "$cluster/nobody/runs"
    chmod 644 "$2"
    as=("${nobody[@]}")
    tidemill=$cluster/nobody/tidemill
}
summary() {
    echo "tally $passed $failed 0"
    [ "$failed" -eq 0 ]
}
prepare() {
    work=$(mktemp -d)
    chmod 711 "$work" # munged wants its socket to be reached
    trap finish EXIT
    trap 'exit 1' TERM INT
    export HOME=$work/home XDG_STATE_HOME=$work/state XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config
    mkdir -p "$HOME"
    cat > "$work/job.yaml" <<'YAML'
name: small
model:
  gpt: {layers: 4, hidden: 32, heads: 2, ctx: 32, dropout: 0.1}
data: kjv-new-testament
batch: 12
micro_batch: 1
steps: 1000000
seed: 3
schedule: {warmup: 20, decay_to: 1500}
fleet:
  pools: [{partition: spot, limit: 3}]
  poll: 1s
  workers_min: 1
YAML
    cluster_start "$work/slurm" || { bad "Slurm does not start"; tail -n 3 "$work"/slurm/log/*; exit 1; }
}
