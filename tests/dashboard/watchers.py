"""Many who watch one run at once: all get every event once, and what that costs the dashboard.

Use: watchers.py HOST:PORT TOKEN JOB COUNT SECONDS PID [CORE: at most so much of one]
"""
import json
import os
import selectors
import socket
import sys
import time

address, token, job, count, seconds, pid = sys.argv[1:7]
most = float(sys.argv[7]) if len(sys.argv) > 7 else 1e9
host, port = address.rsplit(":", 1)
tick = os.sysconf("SC_CLK_TCK")


def used():
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / tick


request = (f"GET /v1/jobs/{job}/events?status=1&after=0 HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n"
           f"Authorization: Bearer {token}\r\n\r\n").encode()
selector = selectors.DefaultSelector()
watchers = []
for _ in range(int(count)):
    s = socket.create_connection((host, int(port)))
    s.sendall(request)
    s.setblocking(False)
    watcher = {"socket": s, "rest": b"", "last": 0, "events": 0, "status": 0, "wrong": ""}
    watchers.append(watcher)
    selector.register(s, selectors.EVENT_READ, watcher)


def hear(until):
    while time.monotonic() < until:
        for key, _ in selector.select(0.2):
            w = key.data
            data = key.fileobj.recv(1 << 20)
            if not data:
                w["wrong"] = "cut off"
                selector.unregister(key.fileobj)
                continue
            *blocks, w["rest"] = (w["rest"] + data).split(b"\n\n")
            for block in blocks:
                if block.startswith(b"id: "):
                    number = int(block[4:block.index(b"\n")])
                    if number != w["last"] + 1:
                        w["wrong"] = f"event {number} after {w['last']}"
                    w["last"] = number
                    w["events"] += 1
                elif block.startswith(b"event: status"):
                    w["status"] += 1


hear(time.monotonic() + 3)  # all that happened before
before, begun = used(), time.monotonic()
hear(begun + float(seconds))
share = (used() - before) / (time.monotonic() - begun)
wrong = [w["wrong"] for w in watchers if w["wrong"]]
behind = max(w["last"] for w in watchers) - min(w["last"] for w in watchers)
print(json.dumps({"watchers": len(watchers), "wrong": wrong[:3], "events": min(w["events"] for w in watchers),
                  "statuses": min(w["status"] for w in watchers), "behind": behind, "core": round(share, 4)}))
sys.exit(bool(wrong) or share > most or min(w["events"] for w in watchers) < 5 or min(w["status"] for w in watchers) < 2)
