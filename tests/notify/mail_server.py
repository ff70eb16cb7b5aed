"""A mail server on loopback (SMTP, RFC 5321): writes its address, then each message that it accepts, with its envelope, as
a line of JSON. Use: mail_server.py ADDRESS-FILE OUT"""
import email
import json
import os
import socketserver
import sys


class Conversation(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(line.encode() + b"\r\n")

    def take(self):
        """The message, up to the lone dot; a dot that was doubled on the way is one again."""
        lines = []
        for line in iter(self.rfile.readline, b".\r\n"):
            lines.append(line[1:] if line.startswith(b"..") else line)
        return b"".join(lines)

    def handle(self):
        sender, receivers = None, []
        self.say("220 loopback")
        for line in self.rfile:
            verb = line.strip().upper()
            if verb.startswith(b"MAIL FROM:"):
                sender = line.split(b"<")[1].split(b">")[0].decode()
            elif verb.startswith(b"RCPT TO:"):
                receivers.append(line.split(b"<")[1].split(b">")[0].decode())
            elif verb == b"DATA":
                self.say("354 go on")
                message = email.message_from_bytes(self.take())
                with open(sys.argv[2], "a") as out:
                    out.write(json.dumps({"from": sender, "to": receivers, "headers": dict(message.items()),
                                          "text": message.get_payload(decode=True).decode()}) + "\n")
            elif verb == b"QUIT":
                self.say("221 bye")
                return
            self.say("250 well")


with socketserver.TCPServer(("127.0.0.1", 0), Conversation) as server:
    open(sys.argv[1] + ".new", "w").write(f"127.0.0.1:{server.server_address[1]}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()
