"""Hands one document to the part of NVIDIA's unmodified verifier that reads such documents, and prints what it said.

Standard input: {"kind": "rim" | "opaque" | "token", "document": text} (opaque data in hex). Prints {"valid", "said"} as JSON.
"""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
RESULT = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # NVIDIA's verifier prints on standard output.

from nv_attestation_sdk.utils import local_utils
from verifier.attestation.spdm_msrt_resp_msg import OpaqueData
from verifier.config import GPU_ARCHITECTURE_MAP, BaseSettings
from verifier.rim import RIM

HOPPER = GPU_ARCHITECTURE_MAP[9]
# The policy of NVIDIA's own example, down to its verdicts.
POLICY = {
    "version": "4.0",
    "authorization-rules": {
        "type": "JWT",
        "overall-claims": {"x-nvidia-overall-att-result": True},
        "detached-claims": {"measres": "success"},
    },
}


def rim(text):
    document = RIM(rim_name="driver", settings=HOPPER, content=text)
    document.verify(version=document.colloquialVersion, settings=HOPPER)
    return True, "its schema, chain and signature pass"


def opaque(text):
    version = OpaqueData(bytes.fromhex(text)).get_data("OPAQUE_FIELD_ID_DRIVER_VERSION")
    return True, f"driver version {version.decode().rstrip(chr(0))}"


def token(text):
    [claims] = json.loads(text)[1].values()
    valid = local_utils.validate_token(None, claims, json.dumps(POLICY))
    return valid is True, "under the published key 'secret'"


def main():
    given = json.load(sys.stdin)
    BaseSettings.OCSP_NONCE_DISABLED = True
    try:
        valid, said = {"rim": rim, "opaque": opaque, "token": token}[given["kind"]](given["document"])
    except Exception as error:
        valid, said = False, f"{type(error).__name__}: {error}"
    RESULT.write(json.dumps({"valid": valid, "said": " ".join(said.split())}) + "\n")
    RESULT.flush()


main()
