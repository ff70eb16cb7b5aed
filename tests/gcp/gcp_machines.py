"""Boots the instances of the fake of Google Cloud (tests/clouds/machines.py has how a machine boots), with the metadata server of
Google's: `preempted` can be waited for, as the documentation says. A preempted instance is told, and taken when its time is over.
"""
import time
from urllib.parse import parse_qs, urlsplit

from machines import Machines


class GcpMachines(Machines):
    def __init__(self, instances, ended):
        self.known, self.ended = instances, ended
        super().__init__()

    def instances(self):
        return list(self.known.values())

    def metadata(self, vm, handler):
        at = urlsplit(handler.path)
        name, q = at.path.removeprefix("/computeMetadata/v1/instance/"), parse_qs(at.query)
        flavor = [("Metadata-Flavor", "Google")]
        if vm is None or handler.headers.get("Metadata-Flavor") != "Google":
            return handler.answer(403, "", flavor)

        def said():
            return {"preempted": "TRUE" if vm.noticed_until else "FALSE", "maintenance-event": "NONE",
                    "name": vm.instance.name}.get(name)

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
