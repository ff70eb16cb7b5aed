"""Rents instances of the fake by Google's client, as a renter would, with and without our label, and prints what must be listed.
Use: rent.py rent | left"""
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


if sys.argv[1] == "rent":
    ours = [rent("us-central1-a", "a", "small"), rent("us-central1-b", "b", "big"), rent("europe-west4-a", "c", "small")]
    rent("us-central1-a", "d", None)  # another's
    print("\n".join(sorted(ours)))
else:
    for _, part in client.aggregated_list(project=project):
        for one in part.instances:
            if one.status not in ("STOPPING",):
                print(",".join(one.labels))
