"""NVIDIA's SDK as its own guide shows it, one process a nonce: a cold start, and its bare verdict.

plain.py NONCE prints, as its last line, {"result": what attest() returned, "token": what get_token() returned}.
"""

import json
import sys

from nv_attestation_sdk import attestation

client = attestation.Attestation("plain")
client.set_nonce(sys.argv[1])
client.set_claims_version("3.0")
client.add_verifier(attestation.Devices.GPU, attestation.Environment.LOCAL, "", "")
result = client.attest(client.get_evidence())
print(json.dumps({"result": result, "token": client.get_token()}))
