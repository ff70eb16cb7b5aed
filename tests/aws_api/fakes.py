#!/usr/bin/env python3
"""Who gives credentials of AWS, as small as it goes: the portal of SSO and who renews its logins, the metadata service (version 2 only), a container's
service. The keys are those of a session, of a role that it makes at AWS_ENDPOINT_URL.
Use: fakes.py FILE; writes its URL to FILE, and what was asked of it to FILE.asked; ends with its standard input."""
import json, os, sys, threading, time, boto3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

iam = boto3.client("iam", region_name="us-east-1")
allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
role = iam.create_role(RoleName="trainer", AssumeRolePolicyDocument=json.dumps(allow))["Role"]
iam.put_role_policy(RoleName="trainer", PolicyName="p", PolicyDocument=json.dumps(allow))
made = boto3.client("sts", region_name="us-east-1").assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]
KEY, SECRET, SESSION = made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"]
fresh = ["fresh-0"]
asked = open(sys.argv[1] + ".asked", "w", buffering=1)


def later(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


KEYS = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": SESSION, "Expiration": later(3600)}


class Fake(BaseHTTPRequestHandler):
    def answer(self, status, body=""):
        asked.write(f"{self.command} {self.path} {status}\n")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self):
        good = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") == "21600"
        self.answer(200 if good else 400, "an-imds-token" if good else "")

    def do_POST(self):  # CreateToken, as botocore's model of sso-oidc has it; a refresh token is good once
        words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = self.path == "/token" and words == {"grantType": "refresh_token", "clientId": "an-id", "clientSecret": "a-secret", "refreshToken": fresh[-1]}
        if not good:
            return self.answer(400, json.dumps({"error": "invalid_grant"}))
        fresh.append(f"fresh-{len(fresh)}")
        self.answer(200, json.dumps({"accessToken": "a-bearer", "tokenType": "Bearer", "expiresIn": 3600, "refreshToken": fresh[-1]}))

    def do_GET(self):
        roles = "/latest/meta-data/iam/security-credentials/"
        if self.path.startswith("/federation/credentials?"):
            good = self.headers.get("x-amz-sso_bearer_token") == "a-bearer" and "account_id=111122223333&role_name=trainer" in self.path
            keys = {"accessKeyId": KEY, "secretAccessKey": SECRET, "sessionToken": SESSION,
                    "expiration": int(time.time() + 3600) * 1000}
            return self.answer(200 if good else 401, json.dumps({"roleCredentials": keys}) if good else "")
        if self.path == "/container":
            good = self.headers.get("Authorization") == "a-container-token"
            return self.answer(200 if good else 401, json.dumps(KEYS) if good else "")
        if self.headers.get("X-aws-ec2-metadata-token") != "an-imds-token":
            return self.answer(401)
        if self.path == roles:
            return self.answer(200, "my-role")
        self.answer(200 if self.path == roles + "my-role" else 404, json.dumps(KEYS) if self.path == roles + "my-role" else "")

    def log_message(self, *a):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
threading.Thread(target=server.serve_forever, daemon=True).start()
with open(sys.argv[1] + ".new", "w") as f:
    f.write(f"http://127.0.0.1:{server.server_port}\n{KEY}|{SECRET}|{SESSION}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
sys.stdin.read()
