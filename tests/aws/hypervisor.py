"""Boots the instances of moto's EC2, for tests (tests/clouds/machines.py has how a machine boots).

moto_cloud.py --hypervisor starts it. It watches moto: an instance that is new boots, one that was terminated loses its power,
one that shuts down is terminated or stopped, as it was rented. A notice is what AWS gives: spot/instance-action in its metadata, and the end when its time
has come, whatever the instance does.
"""
import base64, json, time

from machines import Machines

ACCOUNT = "123456789012"


class Instance:
    """One of moto's, as a machine."""

    def __init__(self, of):
        self.of, self.id, self.address, self.token = of, of.id, of.private_ip, f"token-{of.id}"
        data = of.user_data.decode() if of.user_data else ""
        self.data = data if data.startswith("#") else base64.b64decode(data).decode()
        self.spot = of.lifecycle == "spot"

    def running(self):
        return self.of.state in ("pending", "running")


class Hypervisor(Machines):
    def __init__(self, backends, regions=("us-east-1",), keys=None):
        self.keys = keys  # of the role that instances with a profile have
        self.backends, self.regions, self.known = backends, regions, {}
        super().__init__()

    def instances(self):
        for region in self.regions:
            for of in list(self.backends[ACCOUNT][region].all_instances()):
                if of.id not in self.known:
                    self.known[of.id] = Instance(of)
        return list(self.known.values())

    def metadata(self, vm, handler):
        if handler.command == "PUT":
            good = vm and handler.path == "/latest/api/token" and handler.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return handler.answer(200 if good else 400, vm.instance.token if good else "")
        if vm is None or handler.headers.get("X-aws-ec2-metadata-token") != vm.instance.token:
            return handler.answer(401)  # version 2 only
        if handler.path == "/latest/meta-data/spot/instance-action" and vm.noticed_until:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(vm.noticed_until))
            return handler.answer(200, json.dumps({"action": "terminate", "time": at}))
        if handler.path == "/latest/meta-data/instance-id":
            return handler.answer(200, vm.instance.id)
        if handler.path == "/latest/meta-data/local-ipv4":
            return handler.answer(200, vm.instance.address)
        role = "/latest/meta-data/iam/security-credentials/"
        if handler.path.startswith(role) and self.keys and self.has_profile(vm):
            until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 6 * 3600))
            keys = {"Code": "Success", "AccessKeyId": self.keys[0], "SecretAccessKey": self.keys[1], "Expiration": until}
            return handler.answer(200, json.dumps(keys) if handler.path != role else "role")
        handler.answer(404)

    def has_profile(self, vm):
        return any(vm.instance.id in self.backends[ACCOUNT][r].iam_instance_profile_associations for r in self.regions)

    def control(self, path, order):
        if path == "/tidemill/profile":  # the one that has a role of its own
            return next((v.instance.id for v in self.running() if self.has_profile(v)), "")
        return super().control(path, order)

    def end(self, vm, reason, words):
        from moto.ec2.models.instances import StateReason
        of = vm.instance.of
        of.terminate()
        of._state_reason = of.state_reason = StateReason(words, reason)

    def shut_down(self, vm):
        """As InstanceInitiatedShutdownBehavior says; one that stops still costs its disk."""
        if vm.instance.of.instance_initiated_shutdown_behavior != "terminate":
            return vm.instance.of.stop()
        self.end(vm, "Client.InstanceInitiatedShutdown", "it shut down")

    def take(self, vm):
        self.end(vm, "Server.SpotInstanceTermination", "taken back")

    def fail(self, vm):
        self.end(vm, "Server.InternalError", "a failure of the machine")
