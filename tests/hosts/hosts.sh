# Hosts on one machine, for tests: each a network, PID, mount and host-name namespace with a real sshd on port 22, on one
# bridge with a control side. Sourced; needs root, sshd, ip. Everything is named after this shell's pid.
#     hosts_up DIR K; hosts_kill I; hosts_start I; hosts_cut I; hosts_join I; on_host I CMD...; on_control CMD...; hosts_down
# With hosts_cable="PROGRAM MS PERCENT", cables have a length: MS each way, and PERCENT of the packets are lost (cable.c).
hosts_dir= hosts_count=0 hosts_cable=${hosts_cable:-} hosts_cables=()
hosts_name=tm$$

on_control() { ip netns exec "${hosts_name}c" "$@"; }
# Inside the host: its own processes and files. The first child of unshare is its init.
on_host() {
    local i=$1
    shift
    nsenter -t "$(cat "$hosts_dir/$i/init")" -n -p -m -u "$@"
}
hosts_lives() { [ -s "$hosts_dir/$1/init" ] && kill -0 "$(cat "$hosts_dir/$1/init")" 2>/dev/null; }

hosts_start() { # a host boots: nothing of its last life is there but its key
    local i=$1 d=$hosts_dir/$1
    ip -n "${hosts_name}c" link set "v$i" up
    setsid ip netns exec "${hosts_name}h$i" unshare -pfum --mount-proc --kill-child bash -c '
        hostname host$0
        mount -t tmpfs none /run; mkdir -p /run/sshd
        mkdir -p $1/home; mount -t tmpfs none $1/home
        mount -t tmpfs none ${1%/*}/control
        /usr/sbin/sshd -f $1/sshd_config -E $1/sshd.log
        sleep infinity & while :; do wait; done' "$i" "$d" </dev/null >>"$d/boot.log" 2>&1 &
    local outer=$!
    echo "$outer" >"$d/outer"
    until pgrep -P "$outer" >"$d/init"; do read -rt 0.02 <> <(:) || true; done
    until on_control bash -c "exec 3<>/dev/tcp/10.77.0.$i/22" 2>/dev/null; do read -rt 0.02 <> <(:) || true; done
}
hosts_cut() { ip -n "${hosts_name}c" link set "v$1" down; }
hosts_join() { ip -n "${hosts_name}c" link set "v$1" up; }
hosts_kill() { # power loss: nobody says good-bye
    hosts_cut "$1"
    kill -9 "$(cat "$hosts_dir/$1/init")" 2>/dev/null
    while hosts_lives "$1"; do read -rt 0.02 <> <(:) || true; done
}

hosts_plug() { # the link of a host, both ends
    local c=${hosts_name}c i=$1 program ms percent
    if [ -z "$hosts_cable" ]; then
        ip -n "$c" link add "v$i" type veth peer name eth0 netns "${hosts_name}h$i"
        return
    fi
    read -r program ms percent <<<"$hosts_cable"
    "$program" "$c" "v$i" "${hosts_name}h$i" eth0 "$ms" "$percent" >"$hosts_dir/$i/cable" 2>&1 &
    hosts_cables+=($!)
    until grep -q ready "$hosts_dir/$i/cable"; do
        kill -0 $! || { cat "$hosts_dir/$i/cable"; return 1; }
        read -rt 0.02 <> <(:) || true
    done
}

hosts_up() {
    hosts_dir=$1 hosts_count=$2
    mkdir -p "$hosts_dir/control" # a folder that hosts do not see
    ssh-keygen -q -t ed25519 -N '' -C test -f "$hosts_dir/id"
    local c=${hosts_name}c i d
    ip netns add "$c"
    ip -n "$c" link set lo up
    ip -n "$c" link add br0 type bridge
    ip -n "$c" addr add 10.77.0.254/24 dev br0
    ip -n "$c" link set br0 up
    printf '%s\n' "Host *" " User root" " IdentityFile $hosts_dir/id" " IdentitiesOnly yes" \
        " UserKnownHostsFile $hosts_dir/known_hosts" " StrictHostKeyChecking yes" >"$hosts_dir/ssh_config"
    for i in $(seq "$hosts_count"); do
        d=$hosts_dir/$i
        mkdir -p "$d"
        ssh-keygen -q -t ed25519 -N '' -C "host$i" -f "$d/key"
        echo "10.77.0.$i $(cut -d' ' -f1,2 "$d/key.pub")" >>"$hosts_dir/known_hosts"
        printf 'Host host%s\n HostName 10.77.0.%s\n' "$i" "$i" >>"$hosts_dir/ssh_config"
        printf '%s\n' "ListenAddress 10.77.0.$i:22" "HostKey $d/key" "AuthorizedKeysFile $hosts_dir/id.pub" "PidFile none" \
            "StrictModes no" "UsePAM no" "PasswordAuthentication no" "PermitRootLogin prohibit-password" "UseDNS no" \
            "SetEnv HOME=$d/home" >"$d/sshd_config"
        ip netns add "${hosts_name}h$i"
        ip -n "${hosts_name}h$i" link set lo up
        hosts_plug "$i"
        ip -n "$c" link set "v$i" master br0 up
        ip -n "${hosts_name}h$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "${hosts_name}h$i" link set eth0 up
        hosts_start "$i"
    done
    printf '#!/bin/sh\nexec ssh -F %s/ssh_config "$@"\n' "$hosts_dir" >"$hosts_dir/ssh"
    chmod 755 "$hosts_dir/ssh"
}

hosts_down() {
    local i
    [ -n "$hosts_dir" ] || return 0
    for i in $(seq "$hosts_count"); do
        if hosts_lives "$i"; then kill -9 "$(cat "$hosts_dir/$i/init")"; fi
        ip netns del "${hosts_name}h$i" 2>/dev/null
    done
    ip netns del "${hosts_name}c" 2>/dev/null
    for i in "${hosts_cables[@]:-}"; do [ -n "$i" ] && kill "$i" 2>/dev/null; done
    hosts_dir=
}
