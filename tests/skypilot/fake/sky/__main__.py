"""Orders to the stand-in: bring-up NAME, alive, left, rented (what each cluster is), preempt N (the cluster of instance N goes, as a spot cluster
does)."""
import sys

import sky

ORDER = sys.argv[1]
if ORDER == "bring-up":
    sky.bring_up(sys.argv[2])
elif ORDER == "alive":
    print(sky.alive())
elif ORDER == "rented":
    for one in sky.everything():
        resources = one["config"]["resources"]
        print(one["name"].split("-")[3], resources.get("instance_type"), resources.get("infra"), resources["use_spot"], "accelerators" in resources)
elif ORDER == "left":
    print(len(sky.everything()))
else:
    for one in sky.everything():
        if one["name"].endswith("-" + sys.argv[2]):
            sky.remove(one["name"])
    print(0)
