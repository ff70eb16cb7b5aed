"""Azure's blobs for tests: Microsoft's emulator on a free port of loopback, seen by Microsoft's own client.

Use: azurite.py AZURITE FOLDER     writes FOLDER/azure.env, and ends with its standard input
     azurite.py --list PREFIX      names of the blobs there
"""
import base64
import datetime
import os
import re
import secrets
import subprocess
import sys

from azure.storage.blob import AccountSasPermissions, BlobServiceClient, ResourceTypes, generate_account_sas

if sys.argv[1] == "--list":
    client = BlobServiceClient.from_connection_string(os.environ["AZURE_STORAGE_CONNECTION_STRING"])
    for blob in client.get_container_client("tide").list_blobs(name_starts_with=sys.argv[2]):
        print(blob.name)
    sys.exit()

azurite, folder = sys.argv[1:]
key = base64.b64encode(secrets.token_bytes(64)).decode()
server = subprocess.Popen(
    [azurite, "--blobHost", "127.0.0.1", "--blobPort", "0", "--location", folder + "/azurite", "--silent",
     "--skipApiVersionCheck", "--disableTelemetry"],
    env={**os.environ, "AZURITE_ACCOUNTS": "tide:" + key}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
endpoint = None
for line in server.stdout:
    print(line, end="")
    found = re.search(r"listens on (http://[0-9.:]+)", line)
    if found:
        endpoint = found.group(1) + "/tide"
        break
connection = f"DefaultEndpointsProtocol=http;AccountName=tide;AccountKey={key};BlobEndpoint={endpoint}"
BlobServiceClient.from_connection_string(connection).create_container("tide")
sas = generate_account_sas(
    "tide", key, ResourceTypes(service=True, container=True, object=True),
    AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True),
    datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1))
with open(folder + "/azure.tmp", "w") as f:
    f.write(f"export AZURE_STORAGE_CONNECTION_STRING='{connection}'\n"
            f"export AZURE_SAS_CONNECTION='BlobEndpoint={endpoint};SharedAccessSignature={sas}'\n")
os.rename(folder + "/azure.tmp", folder + "/azure.env")
sys.stdin.read()
server.terminate()
server.wait()
