# The fake of Azure for a test: azure_start FOLDER [OPTION...]; with --hypervisor in a namespace with a bridge (azure_net), where its
# machines boot. FOLDER/azure.env says how it is reached. Sourced; everything is named after this shell's pid.
azure_net=tmaz$$
under=()
on_control() { "${under[@]}" "$@"; }
azure_start() {
    local folder=$1
    shift
    mkfifo "$folder/hold"
    on_control build/venv-clouds/bin/python tests/azure/fake_azure.py "$folder" "$@" <"$folder/hold" >"$folder/cloud.log" 2>&1 &
    azure_fake=$!
    exec 7>"$folder/hold"
}
azure_up() { # azure_up FOLDER [OPTION...]
    ip netns add "$azure_net"
    ip -n "$azure_net" link set lo up
    ip -n "$azure_net" link add br0 type bridge
    ip -n "$azure_net" addr add 10.0.0.1/8 dev br0
    ip -n "$azure_net" addr add 169.254.169.254/32 dev br0
    ip -n "$azure_net" link set br0 up
    under=(ip netns exec "$azure_net")
    azure_start "$@" --hypervisor --host 10.0.0.1
}
azure_down() {
    exec 7>&- # the fake ends with its standard input, and its machines with it
    [ -n "${azure_fake:-}" ] && wait "$azure_fake" 2>/dev/null
    ip netns del "$azure_net" 2>/dev/null
    true
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
