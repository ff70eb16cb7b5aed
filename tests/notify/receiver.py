"""A receiver of webhooks on loopback: writes its address, then each body with its path as a line. Paths that begin with /down
answer 503 the first time. Use: receiver.py ADDRESS-FILE OUT [HOST]"""
import http.server
import json
import os
import sys

counts = {}


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        counts[self.path] = counts.get(self.path, 0) + 1
        bad = self.path.startswith("/down") and counts[self.path] <= 1
        self.send_response(503 if bad else 200)
        self.end_headers()
        with open(sys.argv[2], "a") as out:
            out.write(json.dumps({"path": self.path, "bad": bad, "type": self.headers["Content-Type"], "body": json.loads(body)}) + "\n")

    def log_message(self, *args):
        pass


host = sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1"
server = http.server.HTTPServer((host, 0), Receiver)
open(sys.argv[1] + ".new", "w").write(f"{host}:{server.server_port}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
