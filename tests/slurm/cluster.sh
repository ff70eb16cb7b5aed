# A real Slurm on this machine, for tests: munged, slurmctld and six slurmd, each node in namespaces of its own so that
# it can die as a whole. Source it, then call cluster_start DIR; cluster_stop ends what it started, by process id.
# Partitions: spot (preempted, with a grace of 8 s), patient (likewise, with one of five minutes), prod (preempts), short
# (jobs of a minute). DIR/login is a folder that nodes do not see.
#
# cluster_missing prints why there can be none here, or nothing.

cluster_missing() {
    local tool
    for tool in slurmctld slurmd munged sbatch squeue unshare; do
        command -v "$tool" > /dev/null || { echo "no $tool: apt-get install slurmctld slurmd slurm-client munge"; return; }
    done
    [ "$(id -u)" = 0 ] || { echo "not root"; return; }
    unshare -pfum --mount-proc true 2> /dev/null || echo "no namespaces"
}

cluster_listens() { # cluster_listens FIRST LAST: does anybody, on a port between?
    local port
    while read -r port; do
        port=$((16#$port))
        [ "$port" -ge "$1" ] && [ "$port" -le "$2" ] && return 0
    done < <(sed -nE 's/^ *[0-9]+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F:]+ 0A .*/\1/p' /proc/net/tcp /proc/net/tcp6)
    return 1
}

cluster_node() { # cluster_node NAME: starts it; hostname and processes of its own
    setsid unshare -pfum --mount-proc --kill-child bash -c '
        hostname "$0"
        mount -t tmpfs none "${SLURM_CONF%/*}/login"
        slurmd -N "$0" -f "$SLURM_CONF"
        sleep infinity & while :; do wait; done' "$1" < /dev/null >> "$cluster/log/$1.out" 2>&1 &
    echo $! > "$cluster/run/$1.ns"
    disown $!
}

cluster_kill() { # cluster_kill NAME: all of the node at once, as by a power cut
    kill -9 "$(cat "$cluster/run/$1.ns")" 2> /dev/null
}

cluster_daemon() { # cluster_daemon NAME: the process id of its slurmd, seen from here
    local pid
    for pid in $(pgrep -x slurmd); do
        tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF -- "-N $1 -f $SLURM_CONF" && echo "$pid" && return
    done
}

cluster_daemon_start() { # cluster_daemon_start NAME: its slurmd again, among the tasks that are still there
    local first
    first=$(pgrep -P "$(cat "$cluster/run/$1.ns")" | head -1)
    nsenter -t "$first" -p -m -u setsid slurmd -N "$1" -f "$SLURM_CONF" < /dev/null >> "$cluster/log/$1.out" 2>&1
}

cluster_ready() { [ "$(sinfo -hN -p spot -t idle -o %N 2> /dev/null | wc -l)" -ge 6 ]; }

cluster_start() { # cluster_start DIR
    cluster=$1
    export SLURM_CONF=$cluster/slurm.conf
    local port=$((20000 + RANDOM % 10000)) host
    while cluster_listens $port $((port + 6)); do port=$((20000 + RANDOM % 10000)); done
    host=$(hostname -s)
    mkdir -p "$cluster"/{log,run,state,spool,login}
    (umask 077 && head -c 1024 /dev/urandom > "$cluster/munge.key")
    cat > "$SLURM_CONF" <<CONF
ClusterName=tidemill
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$cluster/run/munge.sock,cred_expire=5
StateSaveLocation=$cluster/state
SlurmdSpoolDir=$cluster/spool/%n
SlurmctldPidFile=$cluster/run/slurmctld.pid
SlurmdPidFile=$cluster/run/%n.pid
SlurmctldLogFile=$cluster/log/slurmctld.log
SlurmdLogFile=$cluster/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
KillWait=5
SchedulerParameters=sched_interval=5,bf_interval=5,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobCompType=jobcomp/filetxt
JobCompLoc=$cluster/log/jobcomp.txt
SlurmdParameters=config_overrides
NodeName=n[1-6] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 6))] CPUs=4 RealMemory=2000
PartitionName=spot Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=8
PartitionName=patient Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=300
PartitionName=prod Nodes=ALL PriorityTier=10 PreemptMode=OFF
PartitionName=short Nodes=ALL PriorityTier=1 PreemptMode=OFF MaxTime=1 DefaultTime=1
CONF
    munged --key-file="$cluster/munge.key" --socket="$cluster/run/munge.sock" --num-threads=2 \
        --pid-file="$cluster/run/munged.pid" --log-file="$cluster/log/munged.log" --seed-file="$cluster/run/munge.seed"
    setsid slurmctld -f "$SLURM_CONF" < /dev/null >> "$cluster/log/slurmctld.out" 2>&1
    local i
    for i in 1 2 3 4 5 6; do cluster_node "n$i"; done
    await 60 cluster_ready
}

# slurmrestd refuses root: it is nobody's, and so are the jobs that it submits. Everybody who may speak to it is told by
# the socket (rest_auth/local).
cluster_rest_answers() { "${nobody[@]}" curl -sf --unix-socket "$cluster/nobody/rest.sock" http://localhost/openapi/v3 > /dev/null; }

cluster_rest_start() { # cluster_rest_start [PLUGINS]: slurmrestd at unix:$cluster/nobody/rest.sock, with all versions of jobs that it has; "${nobody[@]}" is that user
    nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME="$cluster/nobody" USER=nobody
        XDG_STATE_HOME="$cluster/nobody/state" XDG_DATA_HOME="$cluster/nobody/data" XDG_CONFIG_HOME="$cluster/nobody/config")
    mkdir -p "$cluster/nobody"
    chown nobody:nogroup "$cluster/nobody"
    chmod 711 "$cluster"
    rm -f "$cluster/nobody/rest.sock"
    local plugins=${1:-$("${nobody[@]}" slurmrestd -s list 2>&1 | grep -o 'openapi/v[0-9.]*' | paste -sd,)}
    setsid "${nobody[@]}" slurmrestd -a rest_auth/local -s "$plugins" \
        "unix:$cluster/nobody/rest.sock" < /dev/null >> "$cluster/log/slurmrestd.out" 2>&1 &
    echo $! > "$cluster/run/slurmrestd.pid"
    disown $!
    await 30 cluster_rest_answers
}

cluster_rest_stop() { kill -9 "$(cat "$cluster/run/slurmrestd.pid")" 2> /dev/null; }

cluster_ended() { ! kill -0 "$1" 2> /dev/null; }

cluster_stop() {
    [ -n "${cluster:-}" ] || return 0
    local file
    for file in "$cluster"/run/*.ns; do
        [ -s "$file" ] && kill -9 "$(cat "$file")" 2> /dev/null
    done
    [ -s "$cluster/run/slurmrestd.pid" ] && cluster_rest_stop
    for file in slurmctld munged; do
        [ -s "$cluster/run/$file.pid" ] || continue
        local pid
        pid=$(cat "$cluster/run/$file.pid")
        kill "$pid" 2> /dev/null
        await 20 cluster_ended "$pid" || kill -9 "$pid" 2> /dev/null
    done
    cluster=
}
