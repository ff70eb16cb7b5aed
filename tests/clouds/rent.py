"""Rents instances at the cloud for tests as a renter would, with and without our tag, and prints what must be listed.
`volumes`: one of ours that no instance has, and another's.
`unsafe`: what the cloud refuses to rent, one reason a line. `stops`: what becomes of one that shuts down and was not told to end.
Use: rent.py rent | left | volumes | volumes-left | unsafe | stops"""
import sys, time, boto3
from botocore.exceptions import ClientError

regions = ["us-east-1", "eu-west-1"]


def client(region):
    return boto3.client("ec2", region_name=region)


SAFE = {"MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}, "InstanceInitiatedShutdownBehavior": "terminate"}


def machine(tags, resources=("instance", "volume"), **more):
    return {"ImageId": "ami-12345678", "InstanceType": "p3.2xlarge", **SAFE, **more, "TagSpecifications": [
        {"ResourceType": r, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]} for r in resources]}


def tags_of(job):
    return {"tidemill:job": job, "tidemill:owner": "me", "tidemill:until": "2099-01-01T00:00:00Z"} if job else {"other": "x"}


def rent(region, count, job=None, spot=False):
    more = {"InstanceMarketOptions": {"MarketType": "spot"}} if spot else {}
    made = client(region).run_instances(MinCount=count, MaxCount=count, **machine(tags_of(job)), **more)
    return [i["InstanceId"] for i in made["Instances"]]


def refused(kind, without=(), resources=("instance", "volume"), tags=tags_of("small"), **other):
    words = {k: v for k, v in machine(tags, resources, **other).items() if k not in without}
    try:
        if kind == "template":
            client("us-east-1").create_launch_template(LaunchTemplateName="unsafe", LaunchTemplateData=words)
        else:
            client("us-east-1").run_instances(MinCount=1, MaxCount=1, **words)
        print(kind, "was not refused")
    except ClientError as e:
        print(kind, e.response["Error"]["Message"])


def show_unsafe():
    for kind in ("run", "template"):
        refused(kind, without=("InstanceInitiatedShutdownBehavior",))
        refused(kind, MetadataOptions={"HttpTokens": "optional", "HttpPutResponseHopLimit": 1})
        refused(kind, MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2})
        refused(kind, resources=("instance",))
        refused(kind, tags={"tidemill:job": "small", "tidemill:owner": "me"})


def show_stops():
    ec2 = client("us-east-1")
    words = machine(tags_of(None), InstanceInitiatedShutdownBehavior="stop", UserData="#!/bin/sh\nshutdown -P now\n")
    one = ec2.run_instances(MinCount=1, MaxCount=1, **words)["Instances"][0]["InstanceId"]
    end = time.time() + 20
    state = "running"
    while state in ("pending", "running") and time.time() < end:
        time.sleep(0.1)
        state = ec2.describe_instances(InstanceIds=[one])["Reservations"][0]["Instances"][0]["State"]["Name"]
    print(state)
    ec2.terminate_instances(InstanceIds=[one])


def volumes():
    for tags in (tags_of("small"), tags_of(None)):
        made = client("us-east-1").create_volume(AvailabilityZone="us-east-1a", Size=100, VolumeType="gp3", TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}])
        if "other" not in tags:
            print(made["VolumeId"])


if sys.argv[1] == "rent":
    ours = rent("us-east-1", 2, "small", spot=True) + rent("us-east-1", 1, "big") + rent("eu-west-1", 1, "small")
    rent("us-east-1", 1)  # another's
    gone = rent("us-east-1", 1, "small")
    client("us-east-1").terminate_instances(InstanceIds=gone)
    stopped = rent("eu-west-1", 1, "small")
    client("eu-west-1").stop_instances(InstanceIds=stopped)
    print("\n".join(sorted(ours + stopped)))
elif sys.argv[1] == "volumes":
    volumes()
elif sys.argv[1] == "volumes-left":
    print(" ".join(v["Tags"][0]["Key"] for v in client("us-east-1").describe_volumes()["Volumes"] if v["State"] == "available"))
elif sys.argv[1] == "unsafe":
    show_unsafe()
elif sys.argv[1] == "stops":
    show_stops()
else:
    for region in regions:
        for r in client(region).describe_instances()["Reservations"]:
            for i in r["Instances"]:
                if i["State"]["Name"] not in ("terminated", "shutting-down"):
                    print(next(t["Key"] for t in i["Tags"]))
