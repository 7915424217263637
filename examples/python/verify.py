"""Checks an attestation with hashlib and `cryptography` alone: no package of Countersign, no server, no network.

    pip install cryptography==50.0.2
    python verify.py answer.json                                    # a saved answer, attestation, or stream (curl -N)
    python verify.py answer.json --simulated-root run/simulated-root/root.pem      # from the demo's simulated GPU
    python verify.py answer.json --request request.json             # and it answers what you sent, byte for byte
    python verify.py answer.json --endpoint /v1/responses           # to this endpoint: one request may be valid for two

It prints one line a check and exits 0 (valid), 1 (invalid) or 2 (usage). docs/attestation.md is the format. It does not
check what `npm run verify` checks beyond that: the token, the firmware's id and reference values, revocation, the GPU's
mode, and that the events of a stream, which it compares byte for byte, fold into the response in raw.
"""

import argparse
import hashlib
import json
import re
import sys
from base64 import b64decode
from contextlib import contextmanager
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

# SHA-256 10:2B:F6:59:D5:41:96:14:…: above every NVIDIA GPU. A root that comes along with evidence is never trusted.
NVIDIA_ROOT = x509.load_pem_x509_certificate(b"""-----BEGIN CERTIFICATE-----
MIICCzCCAZCgAwIBAgIQLTZwscoQBBHB/sDoKgZbVDAKBggqhkjOPQQDAzA1MSIw
IAYDVQQDDBlOVklESUEgRGV2aWNlIElkZW50aXR5IENBMQ8wDQYDVQQKDAZOVklE
SUEwIBcNMjExMTA1MDAwMDAwWhgPOTk5OTEyMzEyMzU5NTlaMDUxIjAgBgNVBAMM
GU5WSURJQSBEZXZpY2UgSWRlbnRpdHkgQ0ExDzANBgNVBAoMBk5WSURJQTB2MBAG
ByqGSM49AgEGBSuBBAAiA2IABA5MFKM7+KViZljbQSlgfky/RRnEQScW9NDZF8SX
gAW96r6u/Ve8ZggtcYpPi2BS4VFu6KfEIrhN6FcHG7WP05W+oM+hxj7nyA1r1jkB
2Ry70YfThX3Ba1zOryOP+MJ9vaNjMGEwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwHQYDVR0OBBYEFFeF/4PyY8xlfWi3Olv0jUrL+0lfMB8GA1UdIwQY
MBaAFFeF/4PyY8xlfWi3Olv0jUrL+0lfMAoGCCqGSM49BAMDA2kAMGYCMQCPeFM3
TASsKQVaT+8S0sO9u97PVGCpE9d/I42IT7k3UUOLSR/qvJynVOD1vQKVXf0CMQC+
EY55WYoDBvs2wPAH1Gw4LbcwUN8QCff8bFmV4ZxjCRr4WXTLFHBKjbfneGSBWwA=
-----END CERTIFICATE-----
""")
MAX_BYTES = 64 * 1024 * 1024
SPLICED = ',"attestation":'  # as the gateway writes it, before the last } of the backend's bytes


class Invalid(Exception):
    """A check failed. `check` is its name, the same as in verify/common/checks.ts."""

    def __init__(self, check, why):
        super().__init__(f"{check}: {why}")
        self.check = check


@contextmanager
def checking(name, what):
    """Whatever goes wrong inside is a failed check, an error that nobody thought of too."""
    try:
        yield
    except Exception as error:
        raise Invalid(name, str(error) or type(error).__name__) from error
    print(f"pass  {name:18} {what}")


def require(condition, why):
    if not condition:
        raise ValueError(why)


def verify(text, roots, at, request=None, endpoint=None):
    """Raises Invalid unless a device under one of `roots` signed exactly this. Returns the path of each device's certificates."""
    with checking("form", "an attestation: raw, nonce, token, evidence"):
        document, exchange = read(text)
        raw, nonce = document["raw"], document["nonce"]
        require(isinstance(raw, str) and isinstance(document["token"], str), "raw and token must be strings")
        require(re.fullmatch("[0-9a-f]{64}", nonce), "nonce must be 64 lowercase hex digits")

    batched = "batch" in document
    with checking("raw_hash", "nonce commits to raw among other answers" if batched else "nonce is the SHA-256 of raw"):
        digest = sha256(raw.encode())
        leads_to = batch_nonce(digest, document["batch"]) if batched else digest
        require(leads_to.hex() == nonce, "the path leads to another nonce" if batched else "nonce is not the SHA-256 of raw")

    with checking("raw_members", "endpoint, request, response and timestamp, each once"):
        signed = members(raw)

    with checking("expected_exchange", f"what is in raw, of {signed['endpoint']}, is what you hold"):
        right_endpoint(signed, endpoint)
        start = raw[: raw.index('"request":')]  # endpoint and session, which have no quotes within
        end = signed["stream"] + ',"timestamp":%s}' % signed["timestamp"]
        if request is not None:
            require(raw.startswith(start + '"request":' + request + ',"response":'), "raw holds another request")
        if isinstance(exchange, str):
            held = (exchange, exchange.strip())  # a body may end in a line feed, and so may a file
            require(raw.endswith(tuple(f',"response":{one}{end}' for one in held)), "another response")
        if isinstance(exchange, dict):
            require(signed["endpoint"] == "/v1/messages" and signed["stream"] != "", "another response")
            message = json.loads(raw)["response"]
            require(all(name in message and message[name] == value for name, value in exchange.items()), "another message")
        if isinstance(exchange, list):
            require(stream_of(exchange, signed["endpoint"]) == signed["stream"] and raw.endswith(end), "another stream")

    with checking("report_form", "SPDM 1.1 measurements and certificates, of each device"):
        devices = [parts(one) for one in document["evidence"]]
        require(0 < len(devices) <= 64, "no evidence, or of too many devices")
        # A device's own keys: that of its firmware, and the boot ROM's, which certifies another for other firmware.
        for keys in ([chain[:2][i].public_key().public_numbers() for _, chain, _ in devices] for i in (0, -1)):
            require(len(set(keys)) == len(keys), "one device stands twice")

    if "cpu" in document:
        print("skip  cpu                CPU evidence not checked: this file knows the GPU's alone")
    return [check_device(*device, nonce, roots, at) for device in devices]


# By what a response says of itself, in `object` or `type`, which endpoint it is of.
SAYS = {
    "chat.completion": "/v1/chat/completions",
    "text_completion": "/v1/completions",
    "response": "/v1/responses",
    "message": "/v1/messages",
}
NAMED = ("/v1/responses", "/v1/messages")  # endpoints whose events have names


def right_endpoint(signed, asked):
    """What was signed for one endpoint is no answer of another, though a request may be valid for both."""
    endpoint = signed["endpoint"]
    require(asked is None or asked == endpoint, f"raw is about {endpoint}")
    says = [SAYS.get(value) for name, value in signed["response"] if name in ("object", "type") and type(value) is str]
    require(endpoint not in SAYS.values() or not {*says} - {endpoint, None}, "the response is of another endpoint")


def stream_of(events, endpoint):
    """docs/attestation.md §2: the number of events, and the hash of what they are."""
    for name, _ in events:
        require((name is not None) == (endpoint in NAMED), "an event has a name, or none, unlike its endpoint's events")
    hashed = "".join(f"{payload}\n" if name is None else f"{name}\n{payload}\n" for name, payload in events)
    return ',"stream":{"events":%d,"sha256":"%s"}' % (len(events), sha256(hashed.encode()).hex())


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def batch_nonce(raw_hash, batch):
    """docs/attestation.md §8: from a leaf of a Merkle tree up its path to the root (RFC 9162 §2.1.3.2), and the nonce over that."""
    require(type(batch) is dict and batch.keys() == {"salt", "leaf_index", "tree_size", "path"}, "another batch")
    index, size, path = batch["leaf_index"], batch["tree_size"], batch["path"]
    require(all(type(one) in (int, float) and one == int(one) for one in (index, size)), "no whole number")
    index, size = int(index), int(size)
    require(0 <= index < size <= 4096, "leaf_index or tree_size is out of range")
    require(type(path) is list and all(type(one) is str for one in [batch["salt"], *path]), "the path is no list of texts")
    require(all(re.fullmatch("[0-9a-f]{64}", one) for one in [batch["salt"], *path]), "salt or path is no hash")
    here = sha256(b"\0countersign/batch-leaf/v1\0", bytes.fromhex(batch["salt"]), raw_hash)
    last = size - 1
    for sibling in map(bytes.fromhex, path):
        require(last > 0, "the path is too long")
        if index % 2 == 1 or index == last:
            here = sha256(b"\1", sibling, here)
            while index % 2 == 0 and index > 0:
                index, last = index >> 1, last >> 1
        else:
            here = sha256(b"\1", here, sibling)
        index, last = index >> 1, last >> 1
    require(last == 0, "the path is too short")
    return sha256(b"countersign/batch-nonce/v1\0", size.to_bytes(8, "big"), here)


def check_device(report, chain, arch, nonce, roots, at):
    """The report holds the nonce, the leaf's key signed the report, the leaf is a device's and under a root."""
    with checking("report_nonce", "the device signed this nonce"):
        require(report[4:36].hex() == nonce, "the device signed another nonce")

    with checking("report_signature", "ECDSA P-384 over the whole report, by the leaf's key"):
        r, s = (int.from_bytes(half, "big") for half in (report[-96:-48], report[-48:]))
        chain[0].public_key().verify(encode_dss_signature(r, s), report[:-96], ECDSA(SHA384()))

    with checking("report_chain", "certificates of a device, up to a root that is trusted"):
        path = trusted_path(chain, roots, at)
        leaf_is_of_device(path[0], arch)
    return path


# ---- reading -------------------------------------------------------------------------------------------------------


# Members by which clients know an answer: beside an attestation's own they would be read, and nothing signed them.
OF_AN_ANSWER = {"choices", "output", "content", "message", "text", "data", "error"}


def once(pairs):
    require(len(dict(pairs)) == len(pairs), "a member stands twice")
    return dict(pairs)


def read(text):
    """The attestation, and what it came in: None, the response's own text, what a message_delta sets, or the stream's events."""
    require(len(text) <= MAX_BYTES, "too large")
    if re.match(r"\ufeff?\s*(data|event|id|retry)?:", text):
        found = events(text)
        if found[-1:] == [DONE]:
            found.pop()
        require(DONE not in found, "events come after [DONE]")
        carrying = next((i for i, (_, payload) in enumerate(found) if SPLICED in payload), None)
        require(carrying is not None, "no event of the stream carries an attestation")
        name, payload = found[carrying]
        document, _, payload = cut(payload)
        found[carrying] = (name, payload)
        return document, found
    document, carrier, without = cut(text.removeprefix("\ufeff"))
    if carrier is None:
        require(not OF_AN_ANSWER & document.keys(), "beside an attestation's own members stands an answer's")
        return document, None
    if carrier.get("type") == "message_delta":  # the other events of its stream may change its usage alone
        beside = {name: carrier[name] for name in carrier.keys() - {"type", "delta", "usage", "attestation"}}
        return document, beside | carrier["delta"]
    if is_final(carrier):
        require(not (OF_AN_ANSWER | {"attestation"}) & carrier.keys(), "beside the response of an event stands an answer's")
        start = re.search(r'"response"\s*:\s*', without).end()
        response, end = json.JSONDecoder().raw_decode(without, start)
        require(response == json.loads(without)["response"], "the response of the event is not where it seems to be")
        return document, without[start:end]
    return document, without


DONE = (None, "[DONE]")


def is_final(event):
    """The event of /v1/responses that has the whole response, and in it the attestation."""
    return event.get("type") in ("response.completed", "response.incomplete") and type(event.get("response")) is dict


def cut(text):
    """The attestation, the object that carries it (None: it came alone), and the text of that without it."""
    carrier = json.loads(text, object_pairs_hook=once)
    inside = carrier["response"] if is_final(carrier) else carrier
    if "attestation" not in inside:
        require(inside is carrier, "no attestation in the response of the event")
        return carrier, None, text
    start = text.rindex(SPLICED)
    end = json.JSONDecoder().raw_decode(text, start + len(SPLICED))[1]
    return inside["attestation"], carrier, text[:start] + text[end:]


def events(text):
    """Name (or None) and payload of each event: what its `event:` line and its `data:` lines say. A stream has these, comments in ASCII
    and empty lines, and nothing else: whatever else it could have is read by some clients in one way, by others in another, and is
    in no hash."""
    found, data, name = [], [], None
    for line in [*text.split("\n"), ""]:
        line = line.removesuffix("\r")
        require("\r" not in line, "a line of the stream ends in CR alone")
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif line.startswith("event:"):
            named = re.fullmatch("event: ?([A-Za-z0-9_.-]{1,128})", line)
            require(named and name is None, "an event has two names, or one of other characters")
            name = named[1]
        elif line == "":
            require(data or name is None, "an event has a name and no data")
            found += [(name, "\n".join(data))] if data else []
            data, name = [], None
        else:
            require(re.fullmatch(r":[\t -~]*", line), "a line of the stream is neither data nor a comment")
    return found


class Number(str):
    """A number of raw, as it is written: raw may hold 1.0 and integers of any length."""


CHAT = "/v1/chat/completions"  # the endpoint that raw does not name
ENDPOINT = r"/v1/[A-Za-z0-9_.~!$&'()*+,;=:@%/-]{1,250}"
WHOLE = "0|[1-9][0-9]{0,14}"


def members(raw):
    """Exactly request, response, timestamp, perhaps stream, and first perhaps endpoint and session. Inside of request and response
    anything may stand. What is returned has endpoint and session in any case, and of the stream the text that stands in raw."""
    pairs = json.loads(raw, object_pairs_hook=tuple, parse_int=Number, parse_float=Number, parse_constant=refuse)
    found = once(pairs)
    stream, endpoint, start = "", CHAT, "{"
    if "endpoint" in found:
        endpoint = found.pop("endpoint")
        require(type(endpoint) is str and re.fullmatch(ENDPOINT, endpoint), "endpoint must be a path")
        require(raw.startswith('{"endpoint":"' + endpoint + '",'), "endpoint must be the first member, without escapes")
        require(endpoint != CHAT, f"{CHAT} has no name in raw")
        start += f'"endpoint":"{endpoint}",'
    session = found.pop("session", None)
    if session is not None:
        require(type(session) is str and re.fullmatch("[0-9a-f]{64}", session), "session must be 64 lowercase hex digits")
        require(raw.startswith(f'{start}"session":"{session}",'), "session must stand before request, without escapes")
    if "stream" in found:
        (first, count), (second, sha256) = pairs = found.pop("stream")
        require(type(pairs) is tuple and (first, second) == ("events", "sha256"), "stream must be events and sha256")
        require(type(count) is Number and re.fullmatch(WHOLE, count), "events must be a number")
        require(re.fullmatch("[0-9a-f]{64}", sha256), "sha256 must be 64 lowercase hex digits")
        stream = ',"stream":{"events":%s,"sha256":"%s"}' % (count, sha256)
    require(found.keys() == {"request", "response", "timestamp"}, "a member is missing, or not known")
    require(all(type(found[one]) is tuple for one in ("request", "response")), "request and response must be objects")
    require(type(found["timestamp"]) is Number, "timestamp must be a number")
    require(re.fullmatch(WHOLE, found["timestamp"]), "timestamp must be in whole seconds")
    return found | {"endpoint": endpoint, "session": session, "stream": stream}


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def parts(evidence):
    """Report, certificates (leaf first), architecture. The report ends with its signature: the lengths inside say where."""
    report = b64decode(evidence["report"], validate=True)
    pem = b64decode(evidence["certificate_chain"], validate=True)
    chain = x509.load_pem_x509_certificates(pem)
    require(pem.count(b"-----BEGIN ") == len(chain), "the chain holds something else than certificates")
    require(report[0:2] == b"\x11\xe0" and report[37:39] == b"\x11\x60", "not a signed SPDM 1.1 measurement report")
    opaque = 45 + int.from_bytes(report[42:45], "little") + 32 + 2
    end = opaque + int.from_bytes(report[opaque - 2 : opaque], "little") + 96
    require(end == len(report), "the lengths in the report do not add up")
    return report, chain, evidence["arch"]


# ---- certificates ---------------------------------------------------------------------------------------------------

FIRMWARE_IDS = ("2.23.133.5.4.1", "2.23.133.5.4.1.1")  # TCG DICE: may be critical, and are not checked here
RESPONDER_AUTH = x509.ObjectIdentifier("1.3.6.1.4.1.412.274.3")  # DSP0274: the key of a device
CHIPS = {"HOPPER": r"\bGH1\d+\b", "BLACKWELL": r"\bGB[12]\d+\b", "LS10": r"\bLS_?1\d+\b"}


def trusted_path(chain, roots, at):
    """Leaf first, the trusted root last: by names, signatures, times and what each certificate may do (RFC 5280 §6.1)."""
    below = chain[:-1] if chain[-1].issuer == chain[-1].subject else chain
    root = next((root for root in roots if below and root.subject == below[-1].issuer), None)
    require(root is not None, "the chain ends under no root that is trusted")
    path = [*below, root]
    require(len(path) <= 8, "the chain is too long")
    for certificate, issuer in zip(path, path[1:]):
        certificate.verify_directly_issued_by(issuer)
    for depth, certificate in enumerate(path):
        name = certificate.subject.rfc4514_string()
        require(certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc, f"{name}: not valid at {at}")
        for one in certificate.extensions:
            known = not isinstance(one.value, x509.UnrecognizedExtension) or one.oid.dotted_string in FIRMWARE_IDS
            require(known or not one.critical, f"{name}: a critical extension is not understood")
        constraints, usage = extension(certificate, x509.BasicConstraints), extension(certificate, x509.KeyUsage)
        if depth > 0:
            require(constraints is not None and constraints.ca, f"{name}: not a certificate authority")
            require(usage is None or usage.key_cert_sign, f"{name}: may not sign certificates")
            require(constraints.path_length is None or constraints.path_length >= depth - 1, f"{name}: the path is too long")
    return path


def leaf_is_of_device(leaf, arch):
    """NVIDIA's authorities certify other things too: a name and a signature right up to the root make no device."""
    constraints, usage = extension(leaf, x509.BasicConstraints), extension(leaf, x509.KeyUsage)
    purposes = extension(leaf, x509.ExtendedKeyUsage)
    require(constraints is None or not constraints.ca, "the leaf is an authority")
    require(usage is None or usage.digital_signature, "the leaf does not sign")
    require(purposes is None or RESPONDER_AUTH in purposes, "the leaf is not a device's")
    require(re.search(CHIPS[arch], leaf.subject.rfc4514_string()), f"the certificates are not of {arch}")


def common_name(certificate):
    return certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value


def extension(certificate, kind):
    return next((one.value for one in certificate.extensions if isinstance(one.value, kind)), None)


# ---- the command line -----------------------------------------------------------------------------------------------


def shown(text):
    """What others wrote must not clear the screen, nor write lines of this report."""
    return "".join(one if one.isprintable() else "?" for one in str(text))


def instant(text):
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=timezone.utc)


def main():
    options = argparse.ArgumentParser(description="Checks an attestation of Countersign.")
    options.add_argument("file")
    options.add_argument("--request", help="the body that you sent: must be the one that was signed, byte for byte")
    options.add_argument("--endpoint", help="the path that you asked, such as /v1/responses: must be the one that was signed")
    options.add_argument("--simulated-root", help="PEM: accept the demo's simulated GPU under this root")
    options.add_argument("--at", type=instant, default=datetime.now(timezone.utc), help="check as of then; UTC without a zone")
    given = options.parse_args()
    roots = [NVIDIA_ROOT]
    try:
        text = open(given.file, encoding="utf-8", newline="").read()
        request = open(given.request, encoding="utf-8", newline="").read() if given.request else None
        if given.simulated_root:
            roots += x509.load_pem_x509_certificates(open(given.simulated_root, "rb").read())
    except (OSError, ValueError) as error:
        options.error(str(error))
    try:
        paths = verify(text, roots, given.at, request, given.endpoint)
    except Invalid as error:
        print(f"FAIL  {shown(error)}\n\nINVALID")
        return 1
    for path in paths:
        print("\n" + shown(f"signed by a {common_name(path[1])}, under '{common_name(path[-1])}'"))
    if any(path[-1] != NVIDIA_ROOT for path in paths):
        print("SIMULATED: this proves nothing about hardware.")
    print("VALID as far as it was checked: not the token, the firmware, revocation, the GPU's mode.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
