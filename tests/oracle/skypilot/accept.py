"""Does SkyPilot itself take these tasks? Offline: with the catalogue that is given, in a home of its own.

Use: accept.py CATALOGUES TASKS. CATALOGUES has aws.csv and so on as SkyPilot publishes them; TASKS has *.yaml. Each task must
be valid by SkyPilot's schema, name an instance type that SkyPilot offers in that region, in that market, and nothing beside it
that contradicts; where the file's name starts with "optimize", SkyPilot's optimizer chooses it, too; with "optimize-dry" (of AWS
alone) its dry run goes through.
"""
import copy
import csv
import glob
import io
import os
import re
import sys
import tempfile

CLOUDS = {"aws": "AWS", "gcp": "GCP", "azure": "Azure", "lambda": "Lambda"}
VERSION = "v8"


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def regions_of(tasks):
    """Those that the tasks name: SkyPilot takes seconds for each look into the whole of its GCP table."""
    found = set()
    for path in glob.glob(f"{tasks}/*.yaml"):
        with open(path) as file:
            found |= set(re.findall(r"infra: \w+/(\S+)", file.read()))
    return found


def put_catalogues(source, home, regions):
    """As SkyPilot keeps what it has downloaded; files without a checksum beside them are taken for the user's own."""
    names = set()
    for cloud in CLOUDS:
        rows = read(f"{source}/{cloud}.csv")
        seen = set()
        kept = []
        for row in rows:  # a zone is listed twice at times, which its own files do not do
            key = (row["InstanceType"], row["AcceleratorName"], row["AcceleratorCount"], row["Region"], row.get("AvailabilityZone"))
            if key not in seen and row["Region"] in regions:
                kept.append(row)
            seen.add(key)
            names.add(row["AcceleratorName"])
        put(f"{home}/.sky/catalogs/{VERSION}/{cloud}/vms.csv", list(rows[0]), kept)
    rows = [{"AcceleratorName": name, "Clouds": ""} for name in sorted(names - {""})]
    put(f"{home}/.sky/catalogs/{VERSION}/common/accelerators.csv", ["AcceleratorName", "Clouds"], rows)


def put(path, columns, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def put_aws_lists(home, regions):
    """Lists that SkyPilot would fetch: which images there are, and no quotas to ask for."""
    tags = ("custom-gpu-ubuntu-cuda13", "custom-gpu-ubuntu", "custom-cpu-ubuntu")
    rows = [{"Tag": f"skypilot:{tag}", "Region": region, "OS": "ubuntu", "OSVersion": "22.04", "ImageId": "ami-00000000000000001",
             "CreationDate": "20260101", "BaseImageId": "ami-1"} for tag in tags for region in regions]
    folder = f"{home}/.sky/catalogs/{VERSION}/aws"
    put(f"{folder}/images.csv", list(rows[0]), rows)
    codes = ["InstanceType", "OnDemandInstanceCode", "SpotInstanceCode"]
    put(f"{folder}/instance_quota_mapping.csv", codes, [dict.fromkeys(codes, "none")])


def dry_run(sky, task, home):
    """SkyPilot's own, up to what it would ask AWS, or fetch to build itself from."""
    import pathlib
    import sky.backends.wheel_utils
    sky.backends.wheel_utils.build_sky_wheel = lambda *a, **k: (pathlib.Path(home), "0")
    sky.clouds.AWS.get_image_root_device_name = classmethod(lambda cls, *a, **k: "/dev/sda1")
    job, handle = sky.execution.launch(task, cluster_name="tm-a-8", dryrun=True)  # raises what stands in its way
    return job is None and handle is None


def check(sky, path, document, home):
    given = [(name, "x") for name, value in (document.get("secrets") or {}).items() if value is None]  # as at launch
    task = sky.Task.from_yaml_config(copy.deepcopy(document), secrets_overrides=given)
    task.expand_and_validate_file_mounts()
    (wanted,) = task.resources
    if not wanted.is_launchable():
        return "no instance type"
    wanted.cloud._check_instance_type_accelerators_combination(wanted)
    if not wanted.get_valid_regions_for_launchable():
        return f"not in {wanted.region}"
    price = wanted.get_cost(3600)
    if not price > 0:
        return "has no price"
    if os.path.basename(path).startswith("optimize"):
        with sky.Dag() as dag:
            dag.add(task)
        sky.optimizer.Optimizer.optimize(dag, quiet=True)
        best = task.best_resources
        if best.instance_type != document["resources"]["instance_type"]:
            return f"SkyPilot takes {best.instance_type}"
    if os.path.basename(path).startswith("optimize-dry"):
        again = sky.Task.from_yaml_config(copy.deepcopy(document), secrets_overrides=given)
        if not dry_run(sky, again, home):
            return "the dry run made something"
    return None


def main(source, tasks):
    wrong = 0
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, SKYPILOT_DISABLE_USAGE_COLLECTION="1")
        put_catalogues(source, home, regions_of(tasks))
        put_aws_lists(home, sorted(regions_of(tasks)))
        out, sys.stdout = sys.stdout, io.StringIO()  # SkyPilot prints progress
        import sky
        import sky.check
        import sky.execution
        import sky.optimizer
        import yaml

        clouds = [getattr(sky.clouds, name)() for name in CLOUDS.values()]
        sky.check.get_cached_enabled_clouds_or_refresh = lambda *a, **k: clouds  # as if all had credentials
        os.chdir(tasks)
        for path in sorted(glob.glob("*.yaml")):
            with open(path) as file:
                documents = list(yaml.safe_load_all(file))
            for document in documents:
                try:
                    problem = check(sky, path, document, home)
                except Exception as error:  # whatever SkyPilot says is what is wrong
                    problem = f"{type(error).__name__}: {str(error)[:300]}"
                if problem:
                    wrong += 1
                    print(f"{path}: {problem}", file=out)
        sys.stdout = out
    return wrong


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2]) > 0)
