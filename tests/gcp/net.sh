# The fake of Google Cloud for a test: gcp_start FOLDER on loopback; gcp_up FOLDER in a namespace with a bridge, where its machines
# boot (needs root and ip). FOLDER/cloud.env says how it is reached. Sourced; everything is named after this shell's pid.
gcp_net=tmgcp$$
on_control() { ip netns exec "$gcp_net" "$@"; }
gcp_start() { # gcp_start FOLDER [OPTION...]: also under on_control
    local folder=$1 under=()
    shift
    [ "${1:-}" = --hypervisor ] && under=(ip netns exec "$gcp_net")
    mkfifo "$folder/hold"
    "${under[@]}" build/venv-clouds/bin/python tests/gcp/fake_gcp.py "$folder" "$@" <"$folder/hold" >"$folder/cloud.log" 2>&1 &
    gcp_fake=$!
    exec 7>"$folder/hold"
}
gcp_up() {
    ip netns add "$gcp_net"
    ip -n "$gcp_net" link set lo up
    ip -n "$gcp_net" link add br0 type bridge
    ip -n "$gcp_net" addr add 10.0.0.1/8 dev br0
    ip -n "$gcp_net" addr add 169.254.169.254/32 dev br0
    ip -n "$gcp_net" link set br0 up
    gcp_start "$1" --hypervisor --host 10.0.0.1
}
gcp_down() {
    exec 7>&- # the fake ends with its standard input, and its machines with it
    [ -n "${gcp_fake:-}" ] && wait "$gcp_fake" 2>/dev/null
    ip netns del "$gcp_net" 2>/dev/null
}
passed=0
failed=0
pids=()
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
