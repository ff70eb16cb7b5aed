"""Boots the instances of the fake of Google Cloud (tests/clouds/machines.py has how a machine boots), with the metadata server of
Google's: `preempted` can be waited for, as the documentation says. A preempted instance is told, and taken when its time is over. One
with a service account gets its tokens. One that shuts down is stopped, and its disk costs on.
"""
import json, time
from urllib.parse import parse_qs, urlsplit

from machines import Machines


class GcpMachines(Machines):
    def __init__(self, instances, ended, new_token):
        self.known, self.ended, self.new_token = instances, ended, new_token
        super().__init__()

    def instances(self):
        return list(self.known.values())

    def metadata(self, vm, handler):
        at = urlsplit(handler.path)
        name, q = at.path.removeprefix("/computeMetadata/v1/").removeprefix("instance/"), parse_qs(at.query)
        flavor = [("Metadata-Flavor", "Google")]
        if vm is None or handler.headers.get("Metadata-Flavor") != "Google":
            return handler.answer(403, "", flavor)

        accounts = vm.instance.body.get("serviceAccounts")
        token = json.dumps(self.new_token(vm.instance)) if accounts and name == "service-accounts/default/token" else None
        public = vm.instance.address if vm.instance.body["networkInterfaces"][0].get("accessConfigs") else None

        def said():
            return {"preempted": "TRUE" if vm.noticed_until else "FALSE", "maintenance-event": "NONE",
                    "name": vm.instance.name, "zone": f"projects/1/zones/{vm.instance.zone}",
                    "network-interfaces/0/ip": vm.instance.address, "network-interfaces/0/access-configs/0/external-ip": public,
                    "service-accounts/default/email": accounts[0]["email"] if accounts else None,
                    "service-accounts/default/token": token}.get(name)

        until = time.time() + float(q.get("timeout_sec", ["30"])[0])
        last = q.get("last_etag", [""])[0]
        while "wait_for_change" in q and said() == last.removeprefix("e") and time.time() < until and vm.on():
            time.sleep(0.05)
        value = said()
        handler.answer(200 if value else 404, value or "", flavor + [("ETag", "e" + (value or ""))])

    def shut_down(self, vm):
        self.ended(vm.instance, "compute.instances.guestTerminate")

    def take(self, vm):
        self.ended(vm.instance, "compute.instances.preempted")

    def fail(self, vm):
        self.ended(vm.instance, "compute.instances.hostError")
