# A network for the VMs of tests/aws: a namespace with a bridge, where the cloud for tests and the run are. Sourced; needs root
# and ip. Everything is named after this shell's pid.
aws_net=tmaws$$
on_control() { ip netns exec "$aws_net" "$@"; }
aws_up() { # aws_up FOLDER: the cloud for tests, with machines that boot; FOLDER/cloud.env says how it is reached
    ip netns add "$aws_net"
    ip -n "$aws_net" link set lo up
    ip -n "$aws_net" link add br0 type bridge
    ip -n "$aws_net" addr add 10.0.0.1/8 dev br0
    ip -n "$aws_net" addr add 169.254.169.254/32 dev br0
    ip -n "$aws_net" link set br0 up
    mkfifo "$1/hold"
    on_control build/venv-clouds/bin/python tests/clouds/moto_cloud.py "$1" --check-signatures --host 10.0.0.1 --hypervisor \
        <"$1/hold" >"$1/cloud.log" 2>&1 &
    aws_cloud=$!
    exec 7>"$1/hold"
}
aws_down() {
    exec 7>&- # the cloud ends with its standard input, and its machines with it
    [ -n "${aws_cloud:-}" ] && wait "$aws_cloud" 2>/dev/null
    ip netns del "$aws_net" 2>/dev/null
}
