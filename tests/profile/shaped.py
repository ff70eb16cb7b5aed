"""Namespaces on a switch, each behind a link of a set rate (tbf). As root only.

    with Links(4) as links:
        links.shape(100)            # Mbit/s, both ways of every link
        links.start(0, command)     # in the namespace of host 0, whose address is links.address(0)
"""

import os
import subprocess


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def are_possible():
    """None, or why there are no namespaces here."""
    if os.geteuid() != 0:
        return "needs root"
    name = f"tmx{os.getpid()}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "netns", "exec", name, "ip", "link", "add", "end0", "type", "veth", "peer", "name", "end1")
        run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "end0", "root", "tbf", "rate", "1mbit", "burst", "10kb",
            "latency", "50ms")  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces with shaped links: {error}"
    finally:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    return None


class Links:
    def __init__(self, hosts):
        self.hosts = hosts
        self.prefix = f"tm{os.getpid()}"
        self.switch = f"{self.prefix}s"
        self.shaped = False

    def __enter__(self):
        try:
            run("ip", "netns", "add", self.switch)
            self._in(self.switch, "ip", "link", "add", "bridge", "type", "bridge")
            self._in(self.switch, "ip", "link", "set", "bridge", "up")
            for host in range(self.hosts):
                self._plug(host)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for name in [self._name(h) for h in range(self.hosts)] + [self.switch]:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)

    def _name(self, host):
        return f"{self.prefix}h{host}"

    @staticmethod
    def _in(name, *words):
        run("ip", "netns", "exec", name, *words)

    def _plug(self, host):
        name, port = self._name(host), f"port{host}"
        run("ip", "netns", "add", name)
        self._in(self.switch, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._in(self.switch, "ip", "link", "set", port, "master", "bridge")
        self._in(self.switch, "ip", "link", "set", port, "up")
        self._in(name, "ip", "address", "add", f"{self.address(host)}/24", "dev", "eth0")
        for space, device in ((name, "eth0"), (self.switch, port)):
            self._in(space, "ip", "link", "set", device, "gso_max_size", "16384")  # packets that fit into a burst
        self._in(name, "ip", "link", "set", "eth0", "up")
        self._in(name, "ip", "link", "set", "lo", "up")

    @staticmethod
    def address(host):
        return f"10.77.0.{host + 1}"

    def shape(self, mbit):
        verb = "change" if self.shaped else "add"
        burst = max(32, round(mbit / 16))  # half a millisecond's worth
        rules = ["root", "tbf", "rate", f"{mbit}mbit", "burst", f"{burst}kb", "latency", "100ms"]
        for host in range(self.hosts):
            self._in(self._name(host), "tc", "qdisc", verb, "dev", "eth0", *rules)
            self._in(self.switch, "tc", "qdisc", verb, "dev", f"port{host}", *rules)
        self.shaped = True

    def start(self, host, words, **options):
        return subprocess.Popen(["ip", "netns", "exec", self._name(host), *words], **options)
