"""Google's own clients on the fake of Google Cloud: what they send is taken, and what it answers is what they read. Only then is
the fake a judge of ours. Use: prove.py, with the variables of cloud.env."""
import os, uuid
import google.auth, google.auth.transport.requests, google.oauth2.credentials
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import Conflict, NotFound, PreconditionFailed
from google.cloud import compute_v1, storage
from google.oauth2 import service_account

url = os.environ["GCP_FAKE"]
project, zone = "tide-project", "us-central1-a"
done = 0


def ok(name, condition):
    global done
    if not condition:
        raise SystemExit(f"FAILED {name}")
    done += 1


# ---- who asks: google-auth's own way from a key to a token ----
credentials, found = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(google.auth.transport.requests.Request())
ok("a token", credentials.token.startswith("ya29.") and found == project)

credentials = google.oauth2.credentials.Credentials(token=credentials.token)

# ---- instances ----
options = ClientOptions(api_endpoint=url)
client = compute_v1.InstancesClient(credentials=credentials, client_options=options)
zones = compute_v1.ZoneOperationsClient(credentials=credentials, client_options=options)
client.transport._extended_operations_services["zone_operations"] = zones


def machine(name, spot=True):
    return compute_v1.Instance(
        name=name, machine_type=f"zones/{zone}/machineTypes/n1-standard-8", labels={"tidemill-job": "proof"},
        scheduling=compute_v1.Scheduling(
            provisioning_model="SPOT" if spot else "STANDARD", instance_termination_action="DELETE", automatic_restart=False,
            on_host_maintenance="TERMINATE", max_run_duration=compute_v1.Duration(seconds=3600)),
        guest_accelerators=[compute_v1.AcceleratorConfig(accelerator_type=f"zones/{zone}/acceleratorTypes/nvidia-tesla-v100",
                                                         accelerator_count=1)],
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=True, initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image="projects/deeplearning-platform-release/global/images/family/pytorch-latest-gpu", disk_size_gb=100))],
        network_interfaces=[compute_v1.NetworkInterface(network="global/networks/default")],
        metadata=compute_v1.Metadata(items=[compute_v1.Items(key="startup-script", value="#!/bin/bash\n")]))


def insert(name, request=None):
    return client.insert_unary(compute_v1.InsertInstanceRequest(project=project, zone=zone, instance_resource=machine(name),
                                                          request_id=request or str(uuid.uuid4())))


def wait(op):
    return zones.wait(project=project, zone=zone, operation=op.name)


request = str(uuid.uuid4())
first = client.insert(compute_v1.InsertInstanceRequest(project=project, zone=zone, instance_resource=machine("proof-1"), request_id=request))
ok("the same request, the same operation", insert("proof-1", request).name == first.name)
first.result(timeout=60)  # as the client polls by itself
there = client.get(project=project, zone=zone, instance="proof-1")
ok("it runs", there.status == "RUNNING" and there.labels["tidemill-job"] == "proof" and there.scheduling.max_run_duration.seconds == 3600)
try:
    insert("proof-1")
    ok("a name that is taken", False)
except Conflict:
    ok("a name that is taken", True)
wait(insert("proof-2"))
pages = client.aggregated_list(compute_v1.AggregatedListInstancesRequest(project=project, filter="labels.tidemill-job:*", max_results=1))
ok("all zones, page by page", sum(len(part.instances) for _, part in pages) == 2)
none = client.list(compute_v1.ListInstancesRequest(project=project, zone=zone, filter="labels.tidemill-job=other"))
ok("a filter", not list(none))
import urllib.request
urllib.request.urlopen(urllib.request.Request(url + "/tidemill/refuse", b'{"code": "ZONE_RESOURCE_POOL_EXHAUSTED"}', method="POST"))
ended = wait(insert("proof-3"))
ok("an error inside an operation", ended.status == compute_v1.Operation.Status.DONE and ended.error.errors[0].code == "ZONE_RESOURCE_POOL_EXHAUSTED")
marked = machine("proof-5")
marked.labels["tidemill-coordinator"] = "0123456789abcdef"
marked.metadata.items.append(compute_v1.Items(key="tidemill-coordinator", value="gs://tide/runs/away"))
marked.tags = compute_v1.Tags(items=["tidemill-0123456789abcdef", "tidemill-0123456789abcdef-api"])
wait(client.insert_unary(compute_v1.InsertInstanceRequest(project=project, zone=zone, instance_resource=marked, request_id=str(uuid.uuid4()))))
pages = client.aggregated_list(compute_v1.AggregatedListInstancesRequest(project=project, filter="labels.tidemill-coordinator=0123456789abcdef"))
found = [i for _, part in pages for i in part.instances]
ok("a list by label has metadata and tags", [i.name for i in found] == ["proof-5"] and found[0].tags.items == marked.tags.items and
   {i.key: i.value for i in found[0].metadata.items}["tidemill-coordinator"] == "gs://tide/runs/away")
wait(client.delete_unary(project=project, zone=zone, instance="proof-5"))
rules = compute_v1.FirewallsClient(credentials=credentials, client_options=options)
rules.insert_unary(project=project, firewall_resource=compute_v1.Firewall(
    name="tidemill-0123456789abcdef-api", network="global/networks/default", direction="INGRESS", source_ranges=["203.0.113.7/32"],
    target_tags=["tidemill-0123456789abcdef-api"], allowed=[compute_v1.Allowed(I_p_protocol="tcp", ports=["7443"])]))
door = next(r for r in rules.list(project=project) if r.name.endswith("-api"))
ok("a rule for one port", door.allowed[0].ports == ["7443"] and door.source_ranges == ["203.0.113.7/32"])
rules.delete_unary(project=project, firewall=door.name)
address = there.network_interfaces[0].network_i_p
urllib.request.urlopen(urllib.request.Request(url + "/tidemill/preempt", b'{"address": "%s"}' % address.encode(), method="POST"))
taken = list(zones.list(compute_v1.ListZoneOperationsRequest(project=project, zone=zone, filter='operationType="compute.instances.preempted"')))
ok("a preemption is an operation", len(taken) == 1 and taken[0].target_link.endswith("/proof-1"))
wait(client.delete_unary(project=project, zone=zone, instance="proof-2"))
try:
    client.get(project=project, zone=zone, instance="proof-2")
    ok("gone", False)
except NotFound:
    ok("gone", True)
image = compute_v1.ImagesClient(credentials=credentials, client_options=options).get_from_family(
    project="deeplearning-platform-release", family="pytorch-latest-gpu")
ok("an image of a family", image.family == "pytorch-latest-gpu")
ok("zones", zone in [z.name for z in compute_v1.ZonesClient(credentials=credentials, client_options=options).list(project=project)])

# ---- the market ----
advice = compute_v1.AdviceClient(credentials=credentials, client_options=options).capacity(compute_v1.CapacityAdviceRpcRequest(
    project=project, region="us-central1", capacity_advice_request_resource=compute_v1.CapacityAdviceRequest(
        size=4, instance_properties={"scheduling": {"provisioning_model": "SPOT"}},
        distribution_policy={"target_shape": "ANY_SINGLE_ZONE", "zones": [{"zone": "zones/us-central1-a"}]},
        instance_flexibility_policy={"instance_selections": {"one": {"machine_types": ["n1-standard-8"], "guest_accelerators": [
            {"accelerator_type": "nvidia-tesla-v100", "accelerator_count": 1}]}}})))
ok("capacity advice", 0 < advice.recommendations[0].scores.obtainability <= 1 and
   advice.recommendations[0].shards[0].zone.endswith("us-central1-a"))

# ---- objects ----
store = storage.Client(project=project, credentials=credentials)
bucket = store.bucket("tide")
blob = bucket.blob("proof/a b+c/ü.txt")
blob.upload_from_string(b"high tide", if_generation_match=0)
try:
    bucket.blob("proof/a b+c/ü.txt").upload_from_string(b"low", if_generation_match=0)
    ok("only where nothing is", False)
except PreconditionFailed:
    ok("only where nothing is", True)
ok("read again", blob.download_as_bytes() == b"high tide" and blob.download_as_bytes(start=5, end=6) == b"ti")
bucket.blob("proof/large", chunk_size=262144).upload_from_string(os.urandom(700000))
ok("a resumable upload", bucket.get_blob("proof/large").size == 700000)
bucket.blob("proof/both").compose([blob, bucket.blob("proof/large")])
ok("composed", bucket.get_blob("proof/both").size == 700009)
for i in range(103):
    bucket.blob(f"many/{i}").upload_from_string(b"")
ok("a list in pages", len(list(store.list_blobs("tide", prefix="many/"))) == 103)
ok("folders", list(store.list_blobs("tide", prefix="proof/", delimiter="/")) != [])
key = service_account.Credentials.from_service_account_file(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
link = blob.generate_signed_url(version="v4", expiration=600, credentials=key, api_access_endpoint=url)
ok("a signed URL", urllib.request.urlopen(link).read() == b"high tide")
for one in store.list_blobs("tide"):
    one.delete()
ok("deleted", not list(store.list_blobs("tide")))
print(f"{done} proofs")
