"""Boots the instances of moto's EC2, for tests: each a network, process and mount namespace on a bridge, which runs its
real user data as root, with its own metadata service at 169.254.169.254 and nothing of this machine's temporary files.

moto_cloud.py --hypervisor starts it, in the namespace that has the bridge (tests/aws/net.sh). It watches moto: an instance
that is new boots, one that was terminated loses its power, one that shuts down is terminated. A notice is what AWS gives:
spot/instance-action in its metadata, and the end when its time has come, whatever the instance does.
"""
import base64, ctypes, json, os, signal, subprocess, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ACCOUNT = "123456789012"
INIT = r"""
mount --make-rprivate /
for d in /run /tmp /var/lib /root /usr/local/sbin; do mkdir -p $d; mount -t tmpfs -o mode=755 none $d; done
chmod 1777 /tmp
hostname "$VM_ID"
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


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.setsid()


class Vm:
    def __init__(self, number, instance):
        self.number, self.instance, self.noticed_until, self.token = number, instance, None, f"token-{instance.id}"
        data = instance.user_data.decode() if instance.user_data else ""
        if not data.startswith("#"):
            data = base64.b64decode(data).decode()
        env = dict(os.environ, VM_ID=instance.id, VM_IP=instance.private_ip, VM_DATA=data)
        for name in list(env):
            if name.startswith("AWS_"):
                del env[name]
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

    def off(self):
        self.process.kill()
        self.process.wait()
        subprocess.run(["ip", "link", "del", f"v{self.number}"], stderr=subprocess.DEVNULL)


class Hypervisor:
    def __init__(self, backends, regions=("us-east-1",)):
        self.backends, self.regions, self.vms, self.number = backends, regions, {}, 0
        self.lock = threading.Lock()
        self.paused = False
        server = ThreadingHTTPServer(("169.254.169.254", 80), self.metadata())
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    # ---- metadata ----
    def of_address(self, address):
        with self.lock:
            return next((v for v in self.vms.values() if v.instance.private_ip == address), None)

    def metadata(self):
        hypervisor = self

        class Metadata(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body=""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body.encode())
                except BrokenPipeError:  # it did not wait
                    pass

            def do_PUT(self):
                vm = hypervisor.of_address(self.client_address[0])
                good = vm and self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                self.answer(200 if good else 400, vm.token if good else "")

            def do_GET(self):
                vm = hypervisor.of_address(self.client_address[0])
                if vm is None or self.headers.get("X-aws-ec2-metadata-token") != vm.token:
                    return self.answer(401)  # version 2 only
                if self.path == "/latest/meta-data/spot/instance-action" and vm.noticed_until:
                    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(vm.noticed_until))
                    return self.answer(200, json.dumps({"action": "terminate", "time": at}))
                if self.path == "/latest/meta-data/instance-id":
                    return self.answer(200, vm.instance.id)
                self.answer(404)

            def log_message(self, *a):
                pass

        return Metadata

    # ---- power ----
    def take(self, vm, reason, words):
        from moto.ec2.models.instances import StateReason
        vm.instance.terminate()
        vm.instance._state_reason = vm.instance.state_reason = StateReason(words, reason)

    def look(self):
        for region in self.regions:
            for instance in list(self.backends[ACCOUNT][region].all_instances()):
                running = instance.state in ("pending", "running")
                vm = self.vms.get(instance.id)
                if vm is None and running and not self.paused:
                    self.number += 1
                    vm = Vm(self.number, instance)
                    with self.lock:
                        self.vms[instance.id] = vm
                elif vm and vm.process.poll() is not None and running:
                    self.take(vm, "Client.InstanceInitiatedShutdown", "it shut down")
                    vm.off()
                elif vm and not running and vm.process.poll() is None:
                    vm.off()
                elif vm and vm.noticed_until and time.time() >= vm.noticed_until and running:
                    self.take(vm, "Server.SpotInstanceTermination", "taken back")
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
            if vm.process.poll() is None:
                vm.off()

    # ---- what a test asks ----
    def running(self):
        return [v for v in self.vms.values() if v.process.poll() is None and v.instance.state in ("pending", "running")]

    def control(self, path, order):
        if path == "/tidemill/vms":
            return {"running": [v.instance.id for v in self.running()], "booted": len(self.vms),
                    "powered": sum(v.process.poll() is None for v in self.vms.values())}
        if path == "/tidemill/notice":
            spot = [v for v in self.running() if v.instance.lifecycle == "spot" and not v.noticed_until]
            if spot:
                spot[0].noticed_until = time.time() + order["seconds"]
            return {"noticed": spot[0].instance.id if spot else None}
        if path == "/tidemill/crash":  # the machine is gone, and nobody said so
            vm = self.running()[0]
            self.take(vm, "Server.InternalError", "a failure of the machine")
            return {"crashed": vm.instance.id}
        return None
