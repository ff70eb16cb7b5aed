"""Attacks on a dashboard that listens off loopback, and what must still work.

Use: attack.py PORT STEER WATCH FINGERPRINT
"""
import hashlib
import json
import socket
import ssl
import sys
import time

port, steer, watch, fingerprint = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
passed = failed = 0
host = "localhost"


def ok(name, good):
    global passed, failed
    if good:
        passed += 1
    else:
        failed += 1
        print("FAILED", name)


def connect(source="127.0.0.1"):
    raw = socket.create_connection(("127.0.0.1", port), 20, (source, 0))
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(raw, server_hostname=host)


def ask(request, source="127.0.0.1", body=b""):
    """Status, headers in lower case, body; 0 where there is no answer."""
    with connect(source) as link:
        link.sendall(request.replace("\n", "\r\n").encode() + b"\r\n" + body)
        data = b""
        try:
            while piece := link.recv(65536):
                data += piece
        except OSError:
            pass
    head, _, rest = data.partition(b"\r\n\r\n")
    return (int(head.split(b" ")[1]) if head else 0), head.decode().lower(), rest


def get(target, more="", source="127.0.0.1", name=host, method="GET"):
    return ask(f"{method} {target} HTTP/1.1\nHost: {name}:{port}\nConnection: close\n{more}", source)


bearer = f"Authorization: Bearer {steer}\n"
origin = f"Origin: https://{host}:{port}\n"

# What must work.
with connect() as link:
    ok("TLS 1.3", link.version() == "TLSv1.3")
    shown = hashlib.sha256(link.getpeercert(True)).hexdigest().upper()
    ok("the fingerprint that was printed", shown == fingerprint.replace(":", ""))
status, head, body = get("/")
ok("the page is for all: it asks for a token", status == 200 and b"<script" in body and "content-security-policy" in head)
ok("the token as a bearer", get("/v1/session", bearer)[0] == 200)
ok("by another address of this machine", get("/v1/session", bearer, name="127.0.0.1")[0] == 200)
status, head, body = ask(f"POST /v1/session HTTP/1.1\nHost: {host}:{port}\n{origin}Connection: close\nContent-Length: {len(steer)}\n", body=steer.encode())
ok("log in", status == 200 and json.loads(body)["scope"] == "steer")
line = next((h for h in head.split("\r\n") if h.startswith("set-cookie:")), "")
ok("a cookie that only this page may send: " + line, all(w in line for w in ("__host-", "secure", "httponly", "samesite=strict", "path=/")))
cookie = f"Cookie: __Host-tidemill-{port}={steer}\n"
ok("the cookie watches", get("/v1/jobs", cookie)[0] == 200)

# Cookies and origins.
ok("a cookie without Origin steers nothing", get("/v1/jobs/none/stop", cookie, method="POST")[0] == 403)
ok("nor from another page", get("/v1/jobs/none/stop", cookie + "Origin: https://evil.example\n", method="POST")[0] == 403)
ok("nor from one without TLS", get("/v1/jobs/none/stop", cookie + f"Origin: http://{host}:{port}\n", method="POST")[0] == 403)
ok("nor from another port", get("/v1/jobs/none/stop", cookie + f"Origin: https://{host}:1\n", method="POST")[0] == 403)
ok("nor across sites", get("/v1/jobs", cookie + "Sec-Fetch-Site: cross-site\n")[0] == 403)
ok("with it, it does", get("/v1/jobs/none/stop", cookie + origin, method="POST")[0] == 404)
ok("a name that was made to point here", get("/v1/jobs", bearer, name="evil.example")[0] == 403)
ok("no name at all", ask(f"GET /v1/jobs HTTP/1.1\nConnection: close\n{bearer}")[0] == 403)
only = f"Authorization: Bearer {watch}\n"
ok("who may watch, watches", get("/v1/jobs", only)[0] == 200)
ok("and does not steer", get("/v1/jobs/none/drain?instance=1", only, method="POST")[0] == 403)
ok("nor plan", get("/v1/plan", only, method="POST")[0] == 403)

# Guessing, from an address of its own.
guesses = [get("/v1/session", f"Authorization: Bearer {i:064x}\n", "127.0.0.2")[0] for i in range(8)]
ok(f"a wrong token: {guesses}", guesses[:5] == [401] * 5)
ok("after a few one waits", 429 in guesses[5:])
status, head, _ = get("/v1/session", bearer, "127.0.0.2")
ok("then even the right one is not looked at", status == 429 and "retry-after: " in head)
ok("others do not wait", get("/v1/session", bearer)[0] == 200)
guesses = [ask(f"POST /v1/session HTTP/1.1\nHost: {host}\nConnection: close\nContent-Length: 64\n", "127.0.0.3", b"0" * 64)[0] for i in range(8)]
ok(f"the same at the login: {guesses}", guesses[:5] == [401] * 5 and 429 in guesses)
guesses = [get("/v1/session", f"Cookie: __Host-tidemill-{port}={i:064x}\n", "127.0.0.4")[0] for i in range(8)]
ok(f"and by cookie: {guesses}", guesses[:5] == [401] * 5 and 429 in guesses)
with connect("127.0.0.5") as link:
    answers = []
    for _ in range(10):
        link.sendall((f"GET /app.js HTTP/1.1\r\nHost: {host}\r\n\r\n" * 1).encode())
        answers.append(link.recv(65536)[9:12])
    ok("a connection stays", answers.count(b"200") >= 1)
flood = [get("/v1/session", source="127.0.0.6")[0] for _ in range(30)]
ok("a person's pace is no flood", set(flood) == {401})

# Noise.
with socket.create_connection(("127.0.0.1", port), 20) as plain:
    plain.sendall(f"GET /v1/jobs HTTP/1.1\r\nHost: {host}\r\n{bearer.strip()}\r\n\r\n".encode())
    data = b""
    try:
        while piece := plain.recv(4096):
            data += piece
    except OSError:
        pass
    ok("without TLS nothing is said", b"HTTP/" not in data and b"jobs" not in data)
old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
old.check_hostname = False
old.verify_mode = ssl.CERT_NONE
old.maximum_version = ssl.TLSVersion.TLSv1_2
try:
    with socket.create_connection(("127.0.0.1", port), 20) as raw:
        old.wrap_socket(raw)
    ok("old TLS", False)
except (ssl.SSLError, OSError):
    ok("old TLS", True)
status = ask(f"POST /v1/plan HTTP/1.1\nHost: {host}\n{bearer}Connection: close\nContent-Length: 99999999\n")[0]
ok(f"a body without end: {status}", status == 413)
status = ask(f"POST /v1/plan HTTP/1.1\nHost: {host}\n{bearer}Connection: close\nTransfer-Encoding: chunked\n")[0]
ok(f"of no length: {status}", status == 411)
status = ask(f"GET / HTTP/1.1\nHost: {host}\nX: " + "x" * 20000 + "\n")[0]
ok(f"a head without end: {status}", status in (400, 431))

# Slow ones: more than there is room for, some before their handshake, some within a request; then somebody with a request.
slow = []
for i in range(300):
    raw = socket.create_connection(("127.0.0.1", port), 20)
    slow.append(raw)
    if i % 10 == 0:
        try:
            raw.sendall(b"\x16\x03\x01\x00")
        except OSError:
            pass
ok("slow ones lock nobody out", get("/v1/session", bearer)[0] == 200)
for raw in slow:
    raw.close()
print(passed, failed)
