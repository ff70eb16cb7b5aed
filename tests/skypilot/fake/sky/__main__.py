"""Orders to the stand-in: bring-up NAME, run NAME, alive, left, same (a number of which clusters there are), rented (what each cluster is), held (bytes of the command line of the program whose launch is
held; -1: of none), preempt N (the cluster of instance N goes, as a spot cluster
does)."""
import os
import sys
import time
import zlib

import sky

ORDER = sys.argv[1]
if ORDER == "bring-up":
    sky.bring_up(sys.argv[2])
elif ORDER == "run":
    while sky.read(sys.argv[2])["pid"] != os.getpid():  # so that it has the new task
        time.sleep(0.01)
    sky.run(sys.argv[2], sky.read(sys.argv[2])["config"])
elif ORDER == "same":
    print(zlib.crc32(" ".join(one["request"] for one in sky.everything()).encode()) >> 1)
elif ORDER == "alive":
    print(sky.alive())
elif ORDER == "rented":
    for one in sky.everything():
        resources = one["config"]["resources"]
        print(one["name"].split("-")[3], resources.get("instance_type"), resources.get("infra"), resources["use_spot"], "accelerators" in resources)
elif ORDER == "held":
    try:
        with open(os.path.join(sky.ROOT, "held"), encoding="utf-8") as file:
            pid = file.read()
    except FileNotFoundError:
        pid = ""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # of one that has ended, and nobody has asked how: nothing
            print(len(file.read()) if pid else -1)
    except FileNotFoundError:
        print(0 if pid else -1)
elif ORDER == "left":
    print(len(sky.everything()))
else:
    for one in sky.everything():
        if one["name"].endswith("-" + sys.argv[2]):
            sky.remove(one["name"])
    print(0)
