"""Rents instances of the fake by Google's client, as a renter would, with and without our label, and prints what must be listed.
Use: rent.py rent | again | left | rules | disks | disks-left"""
import os, sys, uuid
import google.auth, google.auth.transport.requests, google.oauth2.credentials
from google.api_core.client_options import ClientOptions
from google.cloud import compute_v1

project = "tide-project"
credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(google.auth.transport.requests.Request())
client = compute_v1.InstancesClient(credentials=google.oauth2.credentials.Credentials(token=credentials.token),
                                    client_options=ClientOptions(api_endpoint=os.environ["GCP_FAKE"]))


def rent(zone, name, job):
    one = compute_v1.Instance(
        name=name, machine_type=f"zones/{zone}/machineTypes/n1-standard-8", labels={"tidemill-job": job} if job else {"other": "x"},
        scheduling=compute_v1.Scheduling(provisioning_model="SPOT", instance_termination_action="DELETE", automatic_restart=False,
                                         on_host_maintenance="TERMINATE"),
        guest_accelerators=[compute_v1.AcceleratorConfig(accelerator_type=f"zones/{zone}/acceleratorTypes/nvidia-tesla-v100",
                                                         accelerator_count=1)],
        disks=[compute_v1.AttachedDisk(boot=True)], network_interfaces=[compute_v1.NetworkInterface()])
    client.insert_unary(compute_v1.InsertInstanceRequest(project=project, zone=zone, instance_resource=one, request_id=str(uuid.uuid4())))
    while client.get(project=project, zone=zone, instance=name).status != "RUNNING":
        pass
    return f"{zone}/{name}"


firewalls = compute_v1.FirewallsClient(credentials=google.oauth2.credentials.Credentials(token=credentials.token),
                                       client_options=ClientOptions(api_endpoint=os.environ["GCP_FAKE"]))


def make_rule(name, about):
    """As a run that was killed leaves it; Google's client proves the fake's shape."""
    rule = compute_v1.Firewall(name=name, description=about, network="global/networks/default", direction="INGRESS", source_tags=[name],
                               target_tags=[name], allowed=[compute_v1.Allowed(I_p_protocol="all")])
    firewalls.insert_unary(project=project, firewall_resource=rule)


def make_disk(zone, name, labels):
    disk = compute_v1.Disk(name=name, size_gb=100, labels=labels)
    disks.insert_unary(project=project, zone=zone, disk_resource=disk)
    return f"{zone}/{name}"


disks = compute_v1.DisksClient(credentials=google.oauth2.credentials.Credentials(token=credentials.token),
                               client_options=ClientOptions(api_endpoint=os.environ["GCP_FAKE"]))
if sys.argv[1] == "disks":
    print(make_disk("us-central1-a", "left", {"tidemill-job": "small"}))
    make_disk("us-central1-b", "mine", {"other": "x"})
    rent("us-central1-c", "busy", "small")
elif sys.argv[1] == "disks-left":
    print(",".join(d.name for _, part in disks.aggregated_list(project=project) for d in part.disks if not d.users))
elif sys.argv[1] == "rules":
    print(",".join(sorted(r.name for r in firewalls.list(project=project))))
elif sys.argv[1] == "rent":
    make_rule("tidemill-00000000000000aa", "Tidemill: VMs of one job reach each other; job small")
    make_rule("default-allow-ssh", "another's")
    ours = [rent("us-central1-a", "a", "small"), rent("us-central1-b", "b", "big"), rent("europe-west4-a", "c", "small")]
    rent("us-central1-a", "d", None)  # another's
    print("\n".join(sorted(ours)))
elif sys.argv[1] == "again":
    print(rent("europe-west4-a", "e", "small"))
else:
    for _, part in client.aggregated_list(project=project):
        for one in part.instances:
            if one.status not in ("STOPPING",):
                print(",".join(one.labels))
