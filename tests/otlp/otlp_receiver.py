"""A receiver of OTLP over HTTP on loopback: writes its address, then each request with its headers as a line.
Use: receiver.py ADDRESS-FILE OUT"""
import http.server
import json
import os
import sys


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")
        with open(sys.argv[2], "a") as out:
            out.write(json.dumps({"path": self.path, "headers": dict(self.headers), "body": json.loads(body)}) + "\n")

    def log_message(self, *args):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
open(sys.argv[1] + ".new", "w").write(f"127.0.0.1:{server.server_port}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
