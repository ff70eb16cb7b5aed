"""Microsoft's own clients drive the fake of Azure: what they understand, and refuse to, is its shape. Use: prove.py (with the
variables of FOLDER/cloud.env)."""
import base64, json, os, urllib.parse, urllib.request

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

base, subscription = os.environ["AZURE_RESOURCE_MANAGER_ENDPOINT"], os.environ["AZURE_SUBSCRIPTION_ID"]
passed = failed = 0


def ok(name, good):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAILED client:", name)


def ask(path, order=None):
    data = None if order is None else json.dumps(order).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(base + "/tidemill/" + path, data)))


form = {"grant_type": "client_credentials", "scope": "https://management.azure.com/.default", "client_id": os.environ["AZURE_CLIENT_ID"],
        "client_secret": os.environ["AZURE_CLIENT_SECRET"]}
token = json.load(urllib.request.urlopen(f"{base}/{os.environ['AZURE_TENANT_ID']}/oauth2/v2.0/token",
                                         urllib.parse.urlencode(form).encode()))["access_token"]


class Bearer(SansIOHTTPPolicy):
    def on_request(self, request):
        request.http_request.headers["Authorization"] = "Bearer " + token


class Nobody:
    def get_token(self, *scopes, **kw):
        raise AssertionError("not asked for")


kw = dict(base_url=base, credential_scopes=["x"], polling_interval=0.2, authentication_policy=Bearer(), retry_total=0)
compute, network = ComputeManagementClient(Nobody(), subscription, **kw), NetworkManagementClient(Nobody(), subscription, **kw)
group = f"/subscriptions/{subscription}/resourceGroups/g"
urllib.request.urlopen(urllib.request.Request(f"{base}/subscriptions/{subscription}/resourcegroups/g?api-version=1", json.dumps({"location": "eastus"}).encode(),
                                              {"Authorization": "Bearer " + token}, method="PUT"))
subnet = {"id": group + "/providers/Microsoft.Network/virtualNetworks/n/subnets/default"}


def nic(name, delete="Delete"):
    address = network.public_ip_addresses.begin_create_or_update("g", name + "-ip", {"location": "eastus", "sku": {"name": "Standard"},
                                                                 "properties": {"publicIPAllocationMethod": "Static"}}).result()
    return network.network_interfaces.begin_create_or_update("g", name + "-nic", {"location": "eastus", "tags": {"tidemill:job": "j"}, "properties": {
        "ipConfigurations": [{"name": "one", "properties": {"subnet": subnet, "publicIPAddress": {"id": address.id, "properties": {"deleteOption": delete}}}}]}}).result()


def vm(name, price=-1):
    return {"location": "eastus", "zones": ["1"], "tags": {"tidemill:job": "j"}, "properties": {
        "hardwareProfile": {"vmSize": "Standard_NC4as_T4_v3"}, "priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price},
        "osProfile": {"computerName": name, "adminUsername": "tidemill", "customData": base64.b64encode(b"#!/bin/sh\n").decode(),
                      "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [
                          {"path": "/home/tidemill/.ssh/authorized_keys", "keyData": "ssh-rsa AAAAB3NzaC1yc2EAAA"}]}}},
        "storageProfile": {"imageReference": {"publisher": "p", "offer": "o", "sku": "s", "version": "latest"},
                           "osDisk": {"name": name + "-disk", "createOption": "FromImage", "deleteOption": "Delete"}},
        "networkProfile": {"networkInterfaces": [{"id": f"{group}/providers/Microsoft.Network/networkInterfaces/{name}-nic",
                                                  "properties": {"primary": True, "deleteOption": "Delete"}}]}}}


members = network.application_security_groups.begin_create_or_update("g", "m", {"location": "eastus"}).result()
rule = {"direction": "Inbound", "protocol": "*", "sourcePortRange": "*", "destinationPortRange": "*"}
one, every = [{"id": members.id}], {"sourceAddressPrefix": "*", "destinationAddressPrefix": "*"}
walls = network.network_security_groups.begin_create_or_update("g", "w", {"location": "eastus", "properties": {"securityRules": [
    {"name": "members", "properties": {**rule, "access": "Allow", "priority": 100, "sourceApplicationSecurityGroups": one, "destinationApplicationSecurityGroups": one}},
    {"name": "nobody-else", "properties": {**rule, **every, "access": "Deny", "priority": 4096}}]}}).result()
ok("rules of a security group", [r.access for r in walls.security_rules] == ["Allow", "Deny"] and
   walls.security_rules[0].source_application_security_groups[0].id == members.id)
door = network.security_rules.begin_create_or_update("g", "w", "api", {"properties": {
    "direction": "Inbound", "access": "Allow", "priority": 200, "protocol": "Tcp", "sourceAddressPrefix": "203.0.113.7/32", "sourcePortRange": "*",
    "destinationAddressPrefix": "*", "destinationPortRange": "7443"}}).result()
ok("a rule beside those of a group", door.name == "api" and door.destination_port_range == "7443" and
   sorted(r.name for r in network.network_security_groups.get("g", "w").security_rules) == ["api", "members", "nobody-else"])
inside = network.network_interfaces.begin_create_or_update("g", "w-nic", {"location": "eastus", "properties": {"networkSecurityGroup": {"id": walls.id}, "ipConfigurations": [
    {"name": "one", "properties": {"subnet": subnet, "applicationSecurityGroups": one}}]}}).result()
ok("an interface in a group", inside.network_security_group.id == walls.id and inside.ip_configurations[0].application_security_groups[0].id == members.id)
for what, remove in (("rules", lambda: network.network_security_groups.begin_delete("g", "w").result()),
                     ("members", lambda: network.application_security_groups.begin_delete("g", "m").result())):
    try:
        remove()
        ok(f"a group of {what} in use stays", False)
    except HttpResponseError as e:
        ok(f"a group of {what} in use stays", e.status_code == 400 and "CannotBeDeleted" in e.error.code)
network.network_interfaces.begin_delete("g", "w-nic").result()
network.network_security_groups.begin_delete("g", "w").result()
network.application_security_groups.begin_delete("g", "m").result()
made = nic("a")
ok("a static address is known once it is made", network.public_ip_addresses.get("g", "a-ip").ip_address.count(".") == 3)
ok("an interface has an address", made.ip_configurations[0].private_ip_address.startswith("10."))
one = compute.virtual_machines.begin_create_or_update("g", "a", vm("a")).result()
ok("a VM is made", one.provisioning_state == "Succeeded" and one.priority == "Spot" and one.billing_profile.max_price == -1)
ok("PUT again is the same VM", compute.virtual_machines.begin_create_or_update("g", "a", vm("a")).result().vm_id == one.vm_id)
ok("custom data is not shown", one.os_profile.custom_data is None)
view = compute.virtual_machines.get("g", "a", expand="instanceView").instance_view
ok("it runs", any(s.code == "PowerState/running" for s in view.statuses))
for name in "bc":
    nic(name)
    compute.virtual_machines.begin_create_or_update("g", name, vm(name)).result()
ok("pages of a list", [v.name for v in compute.virtual_machines.list("g")] == ["a", "b", "c"])
ok("pages of all", [v.tags["tidemill:job"] for v in compute.virtual_machines.list_all()] == ["j"] * 3)
ok("disks", len(list(compute.disks.list())) == 3)
try:
    compute.virtual_machines.begin_create_or_update("g", "d", {**vm("d", 0.01)}).result()
    ok("a price too low is refused", False)
except HttpResponseError as e:
    ok("a price too low is refused", e.error.code == "SpotPriceGreaterThanProvidedMaxPrice" and e.status_code == 409)
nic("e")
ask("fail", {"how": "async", "code": "AllocationFailed"})
try:
    compute.virtual_machines.begin_create_or_update("g", "e", vm("e")).result()
    ok("a failure after 201", False)
except HttpResponseError as e:
    ok("a failure after 201", e.error.code == "AllocationFailed")
ok("... leaves the VM", compute.virtual_machines.get("g", "e").provisioning_state == "Failed")
try:
    network.network_interfaces.begin_delete("g", "a-nic").result()
    ok("an interface in use stays", False)
except HttpResponseError as e:
    ok("an interface in use stays", e.error.code == "NicInUse")
nic("k")
kept = vm("k")
del kept["properties"]["evictionPolicy"]
compute.virtual_machines.begin_create_or_update("g", "k", kept).result()
for name in "kc":
    ask("lose", {"name": name})
view = compute.virtual_machines.get("g", "k", expand="instanceView").instance_view
ok("an eviction without evictionPolicy Delete deallocates", any(s.code == "PowerState/deallocated" for s in view.statuses))
ok("... and the VM stays listed, with its disk", ask("deallocated") == ["k"] and "k" in [v.name for v in compute.virtual_machines.list("g")]
   and "k-disk" in [d.name for d in compute.disks.list()])
ok("one with Delete goes, with its disk", "c" not in [v.name for v in compute.virtual_machines.list("g")]
   and "c-disk" not in [d.name for d in compute.disks.list()])
for name in "abek":
    compute.virtual_machines.begin_delete("g", name, force_deletion=True).result()
try:
    compute.virtual_machines.get("g", "a")
    ok("a deleted VM is not found", False)
except ResourceNotFoundError:
    ok("a deleted VM is not found", True)
ok("its interface, disk and address went with it", ask("left") == 0)
print("tally", passed, failed, 0)
