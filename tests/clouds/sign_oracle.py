"""Our signer beside botocore's: random requests of the kinds that we send, and of the kinds that go wrong elsewhere.
Use: sign_oracle.py PROGRAM [COUNT]"""
import datetime, hashlib, json, random, subprocess, sys
from urllib.parse import quote, parse_qsl, urlsplit
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
import botocore.auth

program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 400
rng = random.Random(17)
odd = "abcXYZ019-._~ +=:,;@&$!*'()[]{}|^%#?é€\u4e2d/"


def word(n=12, without=""):
    return "".join(rng.choice([c for c in odd if c not in without]) for _ in range(rng.randint(1, n)))


def make(i):
    service = rng.choice(["s3", "s3", "ec2"])
    r = dict(service=service, method=rng.choice(["GET", "PUT", "POST", "HEAD", "DELETE"]),
             region=rng.choice(["us-east-1", "eu-central-1"]), host=rng.choice(["b.s3.us-east-1.amazonaws.com", "127.0.0.1:5000"]),
             path="/" + (word(30) if service == "s3" else ""), id="AKID" + str(i), secret=word(40), token=rng.choice(["", "t/" + "x+=" * 20]),
             time_ms=rng.randrange(0, 4 * 10**12) // 1000 * 1000, expires=rng.choice([0, 0, 0, 600]) if service == "s3" else 0)
    r["path"] = r["path"].replace("//", "/x")
    names = rng.sample(["uploads", "prefix", "a", "a-b", "a.b", "A", "partNumber", "uploadId", "list-type"], rng.randint(0, 5))
    r["query"] = [[n, rng.choice(["", word(20)])] for n in names]
    r["headers"] = [] if r["expires"] else [[n, word(10, " é€\u4e2d")] for n in rng.sample(["x-amz-meta-a", "x-amz-meta-a-b", "range", "if-match", "content-type"], rng.randint(0, 4))]
    body = word(50).encode()
    r["payload"] = rng.choice(["UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()]) if service == "s3" else hashlib.sha256(body).hexdigest()
    return r


def botocore_signs(r):
    when = datetime.datetime.fromtimestamp(r["time_ms"] / 1000, datetime.timezone.utc)
    botocore.auth.get_current_datetime = lambda remove_tzinfo=True: when.replace(tzinfo=None) if remove_tzinfo else when
    query = "&".join(f"{quote(k, safe='-._~')}={quote(v, safe='-._~')}" for k, v in r["query"])
    url = f"https://{r['host']}{quote(r['path'], safe='/-._~')}" + (f"?{query}" if query else "")
    request = AWSRequest(r["method"], url, headers={k: v for k, v in r["headers"]} | {"host": r["host"]})
    keys = Credentials(r["id"], r["secret"], r["token"] or None)
    if r["expires"]:
        S3SigV4QueryAuth(keys, "s3", r["region"], expires=r["expires"]).add_auth(request)
        return dict(parse_qsl(urlsplit(request.url).query, keep_blank_values=True))["X-Amz-Signature"]
    kind = S3SigV4Auth if r["service"] == "s3" else SigV4Auth
    class Auth(kind):
        def payload(self, request):
            return r["payload"]
    Auth(keys, r["service"], r["region"]).add_auth(request)
    return request.headers["Authorization"].rsplit("Signature=", 1)[1]


rows = [make(i) for i in range(count)]
# The examples of the S3 manual.
manual = dict(service="s3", host="examplebucket.s3.amazonaws.com", region="us-east-1", id="AKIAIOSFODNN7EXAMPLE", expires=0, token="",
              secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", time_ms=1369353600000, payload=hashlib.sha256(b"").hexdigest(), headers=[])
published = [
    (dict(manual, method="GET", path="/test.txt", query=[], headers=[["range", "bytes=0-9"]]), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    (dict(manual, method="GET", path="/", query=[["lifecycle", ""]]), "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    (dict(manual, method="GET", path="/", query=[["max-keys", "2"], ["prefix", "J"]]), "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
]
ours = subprocess.run([program], input="".join(json.dumps(r) + "\n" for r in rows + [p[0] for p in published]),
                      capture_output=True, text=True, check=True).stdout.splitlines()
assert len(ours) == len(rows) + len(published), len(ours)
bad = 0
for r, line, want in zip(rows + [p[0] for p in published], ours, [botocore_signs(r) for r in rows] + [p[1] for p in published]):
    got = line.split("X-Amz-Signature=")[1].split("\t")[0] if r["expires"] else line.split("Signature=")[1].split("\t")[0]
    if got != want:
        bad += 1
        print("differs:", json.dumps(r), line)
print(f"{len(ours)} requests, {bad} differ")
sys.exit(bad > 0)
