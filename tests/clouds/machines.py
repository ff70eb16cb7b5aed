"""Machines of a cloud for tests: each a network, process and mount namespace on a bridge, which runs its real user data as
root, with its own metadata service at 169.254.169.254 and nothing of this machine's temporary files.

A cloud's hypervisor says what its instances are (`instances`: objects with id, address, data, running() and spot), how its
metadata service answers (`metadata(vm, handler)`), and what it tells the cloud: `shut_down(vm)` when a machine has ended by
itself, `take(vm)` when its notice is over, `fail(vm)` when the machine broke. It is started in the namespace that has the
bridge (tests/clouds/net.sh).
"""
import ctypes, os, signal, subprocess, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

INIT = r"""
mount --make-rprivate /
for d in /run /tmp /var/lib /root /usr/local/sbin; do mkdir -p $d; mount -t tmpfs -o mode=755 none $d; done
chmod 1777 /tmp
hostname "$VM_NAME"
mkfifo /run/power
printf '#!/bin/sh\necho off >/run/power\n' >/usr/local/sbin/shutdown
chmod 755 /usr/local/sbin/shutdown
printf '%s' "$VM_DATA" >/run/user-data
ip link set lo up
until ip link show eth0 >/dev/null 2>&1; do read -rt 0.02 <> <(:) || true; done
ip addr add "$VM_IP/8" dev eth0
ip link set eth0 up
ip route add 169.254.169.254 dev eth0
env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /run/user-data &
read -r _ </run/power
"""
SECRETS = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()


class Vm:
    def __init__(self, number, instance):
        self.number, self.instance, self.noticed_until = number, instance, None
        env = {n: v for n, v in os.environ.items() if not n.startswith(SECRETS)}
        env.update(VM_NAME=instance.id.split("/")[-1], VM_IP=instance.address, VM_DATA=instance.data)
        self.process = subprocess.Popen(["unshare", "-npfum", "--mount-proc", "--kill-child", "bash", "-c", INIT], env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=die_with_parent)
        self.plug()

    def plug(self):
        name = f"v{self.number}"
        own = os.readlink("/proc/self/ns/net")
        while self.process.poll() is None and os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
            time.sleep(0.005)
        subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(self.process.pid)],
                       check=True)
        subprocess.run(["ip", "link", "set", name, "master", "br0", "up"], check=True)

    def on(self):
        return self.process.poll() is None

    def off(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["ip", "link", "del", f"v{self.number}"], stderr=subprocess.DEVNULL)


class Machines:
    """What every cloud's hypervisor does."""

    def __init__(self):
        self.vms, self.number, self.paused = {}, 0, False
        self.lock = threading.Lock()
        server = ThreadingHTTPServer(("169.254.169.254", 80), self.metadata_handler())
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    # ---- metadata ----
    def of_address(self, address):
        with self.lock:
            return next((v for v in self.vms.values() if v.instance.address == address), None)

    def metadata_handler(self):
        machines = self

        class Metadata(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body="", headers=()):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(body.encode())
                except (BrokenPipeError, ConnectionResetError):  # it did not wait
                    pass

            def do_GET(self):
                machines.metadata(machines.of_address(self.client_address[0]), self)

            do_PUT = do_POST = do_GET

            def log_message(self, *a):
                pass

        return Metadata

    # ---- power ----
    def look(self):
        for instance in self.instances():
            running = instance.running()
            vm = self.vms.get(instance.id)
            if vm is None and running and not self.paused:
                self.number += 1
                vm = Vm(self.number, instance)
                with self.lock:
                    self.vms[instance.id] = vm
            elif vm and not vm.on() and running:
                self.shut_down(vm)
                vm.off()
            elif vm and not running and vm.on():
                vm.off()
            elif vm and vm.noticed_until and time.time() >= vm.noticed_until and running:
                self.take(vm)
                vm.off()
        self.forget()

    def forget(self):
        """A machine whose instance is not there any more has no power."""
        there = {i.id for i in self.instances()}
        for name, vm in list(self.vms.items()):
            if name not in there and vm.on():
                vm.off()

    def watch(self):
        while True:
            try:
                self.look()
            except Exception as e:  # a test must see it
                print("hypervisor:", repr(e), flush=True)
            time.sleep(0.05)

    def close(self):
        self.paused = True
        for vm in list(self.vms.values()):
            if vm.on():
                vm.off()

    # ---- what a test asks ----
    def running(self):
        return [v for v in self.vms.values() if v.on() and v.instance.running()]

    def control(self, path, order):
        if path == "/tidemill/vms":
            return {"running": [v.instance.id for v in self.running()], "booted": len(self.vms),
                    "powered": sum(v.on() for v in self.vms.values())}
        if path == "/tidemill/notice":
            spot = [v for v in self.running() if v.instance.spot and not v.noticed_until]
            if spot:  # the newest: the first may have been named late, because an answer was lost
                spot[-1].noticed_until = time.time() + order["seconds"]
            return {"noticed": spot[-1].instance.id if spot else None}
        if path == "/tidemill/coordinator":  # the machine that runs one; "": there is none
            return next((v.instance.id for v in self.running() if "\n# The coordinator of a Tidemill job." in v.instance.data), "")
        if path == "/tidemill/userdata":
            return [v.instance.data for v in self.vms.values()]
        if path == "/tidemill/crash":  # the machine is gone, and nobody said so
            vm = next(v for v in self.running() if v.instance.id == order.get("id", v.instance.id))
            self.fail(vm)
            return {"crashed": vm.instance.id}
        return None
