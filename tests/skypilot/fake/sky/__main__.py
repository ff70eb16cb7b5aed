"""Orders to the stand-in: bring-up NAME, alive, left, preempt N (the cluster of instance N goes, as a spot cluster does)."""
import sys

import sky

ORDER = sys.argv[1]
if ORDER == "bring-up":
    sky.bring_up(sys.argv[2])
elif ORDER == "alive":
    print(sky.alive())
elif ORDER == "left":
    print(len(sky.everything()))
else:
    for one in sky.everything():
        if one["name"].endswith("-" + sys.argv[2]):
            sky.remove(one["name"])
    print(0)
