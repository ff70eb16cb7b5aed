"""Boots the VMs of the fake of Azure (tests/clouds/machines.py has how a machine boots), with Azure's metadata service: scheduled
events, the machine's own id, and tokens of its identity. A machine that shuts down is stopped, and billed on: only who deletes it
ends it.
"""
import json, time
from urllib.parse import parse_qs, urlsplit

from machines import Machines


class AzureMachines(Machines):
    def __init__(self, known, evict, remove, new_token, lock):
        self.known, self.evict, self.remove, self.new_token, self.cloud = known, evict, remove, new_token, lock
        super().__init__()

    def instances(self):
        with self.cloud:
            return self.known()

    def metadata(self, vm, handler):
        at = urlsplit(handler.path)
        q = parse_qs(at.query)
        if vm is None or handler.headers.get("Metadata", "").lower() != "true" or "api-version" not in q:
            return handler.answer(400)
        if at.path == "/metadata/scheduledevents":
            events = []
            if vm.noticed_until:
                when = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(vm.noticed_until))
                events = [{"EventId": "1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": [vm.instance.name],
                           "EventStatus": "Scheduled", "NotBefore": when, "EventSource": "Platform"}]
            return handler.answer(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))
        if at.path == "/metadata/instance/network/interface/0/ipv4/ipAddress/0/privateIpAddress":
            return handler.answer(200, vm.instance.address)
        if at.path == "/metadata/instance/compute/resourceId":
            return handler.answer(200, vm.instance.vm["id"])
        if at.path == "/metadata/identity/oauth2/token":
            ids = list(vm.instance.vm.get("identity", {}).get("userAssignedIdentities", {}))
            has = q.get("msi_res_id", ids if len(ids) == 1 else [""])[0] in ids  # which one need not be said where there is one
            has = has and q["resource"][0].rstrip("/") in ("https://management.azure.com", "https://storage.azure.com")
            body = {"access_token": self.new_token(), "expires_in": "3599", "resource": q["resource"][0], "token_type": "Bearer"}
            return handler.answer(200, json.dumps(body)) if has else handler.answer(400)
        handler.answer(404)

    def shut_down(self, vm):
        vm.instance.vm["_stopped"] = "stopped"

    def take(self, vm):
        with self.cloud:
            self.evict(vm.instance.vm)

    def fail(self, vm):
        with self.cloud:
            self.remove(vm.instance.vm)
