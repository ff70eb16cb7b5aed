"""URLs that we sign beside those that Google's library signs: the same key, object and time must give the same URL, to the byte.
Use: sign_oracle.py PROGRAM, with the variables of cloud.env."""
import datetime, os, subprocess, sys
from unittest import mock
from google.cloud import storage
from google.cloud.storage import _signing
from google.oauth2 import service_account

key = service_account.Credentials.from_service_account_file(os.environ["GOOGLE_APPLICATION_CREDENTIALS"])
bucket = storage.Client(project="p", credentials=key).bucket("tide")
names = ["a", "runs/one/vm/program-0123", "a b+c=d:e/ü.txt", "x~y-z_.~", "%41/?&#"]
for name in names:
    for method, seconds in (("GET", 60), ("PUT", 604740)):
        ours = subprocess.run([sys.argv[1], method, "tide", name, str(seconds)], capture_output=True, text=True, check=True).stdout.strip()
        at = datetime.datetime.strptime(ours.split("X-Goog-Date=")[1][:16], "%Y%m%dT%H%M%SZ")
        with mock.patch.object(_signing, "_NOW", lambda tz=None: at.replace(tzinfo=tz)), \
                mock.patch.object(_signing, "get_v4_now_dtstamps", lambda: (at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d"))):
            theirs = bucket.blob(name).generate_signed_url(version="v4", expiration=datetime.timedelta(seconds=seconds), method=method,
                                                           credentials=key, api_access_endpoint=os.environ["GCP_FAKE"])
        if ours != theirs:
            raise SystemExit(f"{name!r}\nours   {ours}\ntheirs {theirs}")
print(len(names) * 2, "URLs")
