# A cloud for a test: cloud_start FOLDER aws|gcp|azure [OPTION...] on loopback; cloud_up in a namespace with a bridge, where its machines boot
# (needs root and ip). FOLDER/cloud.env says how it is reached. Sourced; everything is named after this shell's pid.
cloud_net=tmvm$$
under=()
passed=0
failed=0
pids=()
on_control() { "${under[@]}" "$@"; }
cloud_start() {
    local folder=$1 program=tests/$2/fake_$2.py
    [ "$2" = aws ] && program=tests/clouds/moto_cloud.py
    shift 2
    [ -p "$folder/hold" ] || mkfifo "$folder/hold"
    on_control build/venv-clouds/bin/python "$program" "$folder" "$@" <"$folder/hold" >"$folder/cloud.log" 2>&1 &
    cloud_fake=$!
    exec 7>"$folder/hold"
}
cloud_up() {
    ip netns add "$cloud_net"
    ip -n "$cloud_net" link set lo up
    # an address of its own: else it is that of a machine's cable, and changes, unknown to the others, when that machine goes
    ip -n "$cloud_net" link add br0 address 02:00:00:00:00:01 type bridge
    ip -n "$cloud_net" addr add 10.0.0.1/8 dev br0
    ip -n "$cloud_net" addr add 169.254.169.254/32 dev br0
    ip -n "$cloud_net" link set br0 up
    under=(ip netns exec "$cloud_net")
    cloud_start "$@" --hypervisor --host 10.0.0.1
}
cloud_ready() { # cloud_ready FOLDER: it is there, and known; else the test ends
    if ! await 90 test -f "$1/cloud.env"; then
        echo "FAILED the cloud for tests does not start"
        tail -5 "$1/cloud.log"
        echo "tally $passed 1 0"
        exit 1
    fi
    . "$1/cloud.env"
}
cloud_down() {
    exec 7>&- # the cloud ends with its standard input, and its machines with it
    [ -n "${cloud_fake:-}" ] && wait "$cloud_fake" 2>/dev/null
    ip netns del "$cloud_net" 2>/dev/null
    true
}
can_boot() { # machines need root and namespaces
    [ "$(id -u)" = 0 ] && command -v ip curl unshare >/dev/null && ip netns add "tmtry$$" 2>/dev/null && ip netns del "tmtry$$"
}
ok() { # ok NAME CONDITION...
    local name=$1
    shift
    if "$@"; then passed=$((passed + 1)); return 0; fi
    failed=$((failed + 1))
    echo "FAILED $name"
    return 1
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
says() { grep -q "$2" "$1"; }
