"""What can go wrong between a program and a cloud's API: a proxy before a cloud for tests, one port for each of its own.

Every request is counted (Proxy.calls, by name, in order). `plant` gives the next ones whose line matches a fault; `kill_at` ends the
program that asks at its n-th call; `stale_s` answers lists as they were so long ago; `check_clock` refuses what is signed with a wrong time,
as the clouds do. A fault that is `kept` is the answer to that request for ever: the cloud keeps it by the request's token.
"""
import base64, calendar, http.client, json, os, re, signal, socket, threading, time
from email.utils import parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SKEW_S = 900
LISTS = re.compile(r"Action=DescribeInstances&|GET /compute/v1/projects/[^/]+/aggregated/instances|"
                   r"GET /subscriptions/.*/providers/Microsoft\.(Compute|Network)/[A-Za-z]+\?", re.S)


def name_of(method, path, body):
    """As people call a request: EC2's action, or the method and the kind of thing."""
    if b"Action=" in body[:200]:
        return parse_qs(body.decode("latin1"))["Action"][0]
    path = urlsplit(path).path
    for part, said in ((r"/tm-[0-9a-f]+-[0-9a-f]+", "/VM"), (r"/operation-\d+", "/OP"), (r"/operations/[-0-9a-f]{36}", "/operations/OP"),
                       (r"program-[0-9a-f]{64}", "program"), (r"/zones/[^/]+", "/zones/Z"), (r"tm-[0-9a-f]+-[0-9a-f]+", "VM")):
        path = re.sub(part, said, path)
    return f"{method} {path}"


class Proxy:
    def __init__(self, upstreams):
        self.lock = threading.RLock()
        self.faults, self.calls, self.waits, self.hasty, self.kept, self.told = [], [], {}, [], {}, {}
        self.kill, self.stale_s, self.check_clock, self.refused_clocks = None, 0, False, 0
        self.urls = {}
        for upstream in upstreams:
            server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler(upstream))
            server.daemon_threads = True
            self.urls[upstream] = f"http://127.0.0.1:{server.server_port}"
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def reset(self):
        with self.lock:
            self.faults, self.calls, self.waits, self.hasty, self.kept, self.told = [], [], {}, [], {}, {}
            self.kill, self.stale_s, self.check_clock, self.refused_clocks = None, 0, False, 0

    def plant(self, match, **fault):
        with self.lock:
            self.faults.append({"match": match, "times": 1, "how": "answer", **fault})

    def unused(self):
        with self.lock:
            return [f for f in self.faults if f["times"] > 0]

    def kill_at(self, call, when):
        """At the n-th call (from 1), or the first of this name: "before" it is carried out, or "after" that, before it is answered. Gives where the
        pid goes."""
        with self.lock:
            self.kill = {"call": call, "when": when, "pid": None, "done": False}
            return self.kill

    # ---- a request ----
    def begin(self, line, name, key):
        with self.lock:
            self.calls.append(name)
            if self.waits.get(key, 0) > time.monotonic():
                self.hasty.append(name)
            number = len(self.calls)
            if key in self.told:
                return number, self.told[key]
            for f in self.faults:
                if f["times"] > 0 and re.search(f["match"], line, re.S):
                    f["times"] -= 1
                    if f.get("kept"):
                        self.told[key] = f
                    return number, f
            return number, None

    def maybe_kill(self, number, name, when):
        kill = self.kill
        if not kill or kill["done"] or kill["call"] not in (number, name) or kill["when"] != when:
            return False
        while kill["pid"] is None:
            time.sleep(0.001)
        kill["done"] = True
        os.kill(kill["pid"], signal.SIGKILL)
        return True

    def clock_fault(self, method, path, headers, body):
        """What the cloud says to a request whose time is wrong; None: it is right."""
        stamp = headers.get("X-Amz-Date")
        if stamp and abs(calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.time()) > SKEW_S:
            if b"Action=" in body[:200]:
                return 400, b"<Response><Errors><Error><Code>RequestExpired</Code><Message>Request has expired.</Message></Error></Errors></Response>"
            return 403, b"<Error><Code>RequestTimeTooSkewed</Code><Message>The difference is too large.</Message></Error>"
        stamp = headers.get("x-ms-date")
        if stamp and headers.get("Authorization", "").startswith("SharedKey") and \
                abs(parsedate_to_datetime(stamp).timestamp() - time.time()) > SKEW_S:
            return 403, b"<Error><Code>AuthenticationFailed</Code><Message>Request date header too old.</Message></Error>"
        if path.endswith("/token") and b"assertion=" in body:
            words = parse_qs(body.decode())["assertion"][0].split(".")[1]
            said = json.loads(base64.urlsafe_b64decode(words + "=" * (-len(words) % 4)))
            if abs(said["iat"] - time.time()) > 300:
                return 400, json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT: Token must be a short-lived token (60 "
                                        "minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim."}).encode()
        return None

    def forward(self, upstream, method, path, headers, body):
        host = urlsplit(upstream).netloc
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for k, v in headers.items():
            if k.lower() not in ("connection", "content-length", "transfer-encoding", "expect"):
                connection.putheader(k, v)
        if body or method in ("POST", "PUT"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body or None)
        answer = connection.getresponse()
        data = answer.read()
        out = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server",
                                                                              "keep-alive")]
        length = answer.getheader("Content-Length")
        connection.close()
        for real, ours in self.urls.items():
            data = data.replace(real.encode(), ours.encode())
            out = [(k, v.replace(real, ours)) for k, v in out]
        return answer.status, out, data, length if method == "HEAD" else None

    def old(self, line, answer):
        """A list as it was stale_s ago; at first, as it was first."""
        key, now = re.sub(r"(X-Amz|Start)[^&]*", "", line), time.monotonic()
        with self.lock:
            kept = self.kept.setdefault(key, [])
            kept.append((now, answer))
            good = [a for at, a in kept if at <= now - self.stale_s]
            return good[-1] if good else kept[0][1]

    def handler(self, upstream):
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def cut(self):
                self.close_connection = True
                try:
                    self.connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

            def say(self, status, headers, data, length=None, half=False):
                try:
                    self.send_response(status)
                    for k, v in headers:
                        self.send_header(k, v)
                    if status != 204:
                        self.send_header("Content-Length", length if length is not None else str(len(data)))
                    self.end_headers()
                    if self.command != "HEAD":
                        self.wfile.write(data[:len(data) // 2] if half else data)
                    self.wfile.flush()
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
                if half:
                    self.cut()

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                ask = (upstream, self.command, self.path, self.headers, body)
                if self.path.startswith("/tidemill/"):
                    return self.say(*proxy.forward(*ask))
                line = f"{self.command} {self.path} {body[:20000].decode('latin1') if b'Action=' in body[:200] else ''}"
                name, key = name_of(self.command, self.path, body), (self.command, self.path, body)
                number, fault = proxy.begin(line, name, key)
                how = fault["how"] if fault else ""
                if proxy.maybe_kill(number, name, "before") or how == "cut":
                    return self.cut()
                wrong = proxy.clock_fault(self.command, self.path, self.headers, body) if proxy.check_clock else None
                if wrong:
                    proxy.refused_clocks += 1
                    return self.say(wrong[0], [("Content-Type", "text/xml")], wrong[1])
                if how == "answer":
                    wait = fault.get("retry_after_s")
                    if wait:
                        proxy.waits[key] = time.monotonic() + wait - 0.05
                    return self.say(fault["status"], [("Retry-After", str(wait))] if wait else [], fault.get("body", "").encode())
                if how in ("slow", "hang"):
                    time.sleep(fault.get("seconds", 2))
                    if how == "hang":
                        return self.cut()
                try:
                    if how == "twice":
                        proxy.forward(*ask)
                    status, headers, data, length = proxy.forward(*ask)
                except OSError:
                    return self.cut()
                if proxy.maybe_kill(number, name, "after") or how == "lost":
                    return self.cut()
                if proxy.stale_s and LISTS.search(line):
                    status, headers, data, length = proxy.old(line, (status, headers, data, length))
                self.say(status, headers, data, length, half=how == "half")

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = serve

            def handle(self):
                try:
                    super().handle()
                except (ConnectionResetError, BrokenPipeError):  # who asked has died
                    pass

            def log_message(self, *a):
                pass

        return Handler


def through(folder, proxy_of=Proxy):
    """A proxy for all that FOLDER/cloud.env names; gives it, and the variables that lead through it."""
    with open(folder + "/cloud.env") as f:
        text = f.read()
    proxy = proxy_of(sorted(set(re.findall(r"http://127\.0\.0\.1:\d+", text))))

    def led(words):
        for real, ours in proxy.urls.items():
            words = words.replace(real, ours)
        return words
    for found in re.findall(re.escape(folder) + r"/\w+\.json", text):
        with open(found) as f, open(found + ".led", "w") as out:
            out.write(led(f.read()))
        text = text.replace(found, found + ".led")
    variables = dict(re.findall(r"^export (\w+)='?(.*?)'?$", led(text), re.M))
    return proxy, variables
