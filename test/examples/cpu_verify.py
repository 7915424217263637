"""A second verifier of a processor's evidence and of sessions: docs/attestation.md §1, §2, §6 to §8, and the standards that it names.

It shares no code with verify/, and gives the same checks in the same order. It is for tests: nothing here is fast or constant in time.

python cpu_verify.py ROOTS.pem... < QUESTIONS > VERDICTS, one JSON text a line; see `answer` at the end. Of the files only the roots whose
fingerprints are in PINNED are trusted.
"""

import json
import re
import sys
from base64 import b64decode, urlsafe_b64decode
from datetime import datetime, timezone
from hashlib import sha256, sha384

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key

PINNED = {
    "AMD": {
        "69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd",  # ARK-Milan
        "4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1",  # ARK-Genoa
        "1f084161a44bb6d93778a904877d4819cafa5d05ef4193b2ded9dd9c73dd3f6a",  # ARK-Turin
    },
    "Intel": {"44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3"},  # Intel SGX Root CA
}
HEX_64 = re.compile(r"[0-9a-f]{64}")


class Fault(Exception):
    """A check failed, with this code."""

    def __init__(self, code, why=""):
        super().__init__(f"{code}: {why}")
        self.code = code


class NotMade(Exception):
    """A check is a skip for a reason of its own."""


def require(condition, code, why=""):
    if not condition:
        raise Fault(code, why)


class Checks:
    """§7.12: what was checked, in order. A ground holds where its check passed, or was a skip for a reason of its own."""

    def __init__(self):
        self.done = []
        self.holds = {}

    def run(self, name, grounds, check):
        status, code, value = "skip", None, None
        self.holds[name] = all(self.holds.get(one, False) for one in grounds)
        if self.holds[name]:
            try:
                value = check()
                status = "pass"
            except NotMade:
                pass
            except Fault as fault:
                status, code = "fail", fault.code
                self.holds[name] = False
        self.done.append((name, status, code))
        return value

    def skip(self, name):
        self.done.append((name, "skip", None))
        self.holds[name] = True


# ---- reading ---------------------------------------------------------------------------------------------------------


class Reader:
    """Bytes from the first to the last, numbers in one order; what breaks off is refused with one code."""

    def __init__(self, data, code="cpu_malformed", order="little"):
        self.data, self.at, self.code, self.order = data, 0, code, order

    def take(self, count):
        require(self.at + count <= len(self.data), self.code, "breaks off")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count):
        return int.from_bytes(self.take(count), self.order)

    def sized(self, count):
        return self.take(self.number(count))

    def left(self):
        return len(self.data) - self.at

    def end(self):
        require(self.left() == 0, self.code, "bytes behind the end")


def le(data):
    return int.from_bytes(data, "little")


def u32(number):
    return number.to_bytes(4, "big")


def base64(value, longest, code="cpu_malformed"):
    require(isinstance(value, str) and len(value) <= longest, code, "not a string, or too long")
    require(re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", value), code, "not base64")
    return b64decode(value)


def hexadecimal(value, size, code):
    """Of so many bytes, or of any number of them where `size` is None."""
    require(isinstance(value, str) and re.fullmatch(r"(?:[0-9a-fA-F]{2})*", value), code, "not hex")
    require(size is None or len(value) == 2 * size, code, "another size")
    return bytes.fromhex(value)


def characters(text):
    """How many, as UTF-16 counts them."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def whole(text):
    """JSON's numbers are of any length, Python reads integers of up to 4,300 digits."""
    return int(text) if len(text) < 20 else float(text)


def once(pairs):
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a member stands twice")
    return dict(pairs)


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def parse_json(text, code, hook=once):
    try:
        return json.loads(text, object_pairs_hook=hook, parse_int=whole, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Fault(code, str(error)) from error


def utf8(text, code):
    try:
        return text.encode() if isinstance(text, str) else text.decode()
    except UnicodeError as error:
        raise Fault(code, "not UTF-8") from error


def seconds(text, code):
    """Unix time of YYYY-MM-DDThh:mm:ssZ."""
    try:
        require(isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text, re.ASCII), code, "no time")
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise Fault(code, "no time") from error


# ---- certificates and lists (X.690, RFC 5280) ------------------------------------------------------------------------

INTEGER, BIT_STRING, OCTET_STRING, OID, IA5_STRING, SEQUENCE, SET = 0x02, 0x03, 0x04, 0x06, 0x16, 0x30, 0x31
ECDSA_SHA256, ECDSA_SHA384, RSA_PSS = "1.2.840.10045.4.3.2", "1.2.840.10045.4.3.3", "1.2.840.113549.1.1.10"
SHA_384, MGF1 = "2.16.840.1.101.3.4.2.2", "1.2.840.113549.1.1.8"
SUBJECT_KEY_ID, KEY_USAGE, BASIC_CONSTRAINTS, AUTHORITY_KEY_ID = "2.5.29.14", "2.5.29.15", "2.5.29.19", "2.5.29.35"
KNOWN = {SUBJECT_KEY_ID, KEY_USAGE, "2.5.29.17", BASIC_CONSTRAINTS, AUTHORITY_KEY_ID, "2.5.29.37", "2.23.133.5.4.1", "2.23.133.5.4.1.1"}
CERT_SIGN, CRL_SIGN = 5, 6


class Malformed(ValueError):
    """Not strict DER, or not what was expected in it."""


def well(condition, why):
    if not condition:
        raise Malformed(why)


class Item:
    """One element of DER: its tag, its content, and both with the length between."""

    def __init__(self, data, at=0):
        well(at + 2 <= len(data) and data[at] & 31 != 31, "no element")
        self.tag, length, start = data[at], data[at + 1], at + 2
        if length >= 128:
            start += length - 128
            octets = data[at + 2 : start]
            well(0 < len(octets) == length - 128 <= 4 and octets[0] != 0, "no shortest length")
            length = int.from_bytes(octets, "big")
            well(length >= 128, "no shortest length")
        self.end = start + length
        well(self.end <= len(data), "an element breaks off")
        self.content, self.whole = data[start : self.end], data[at : self.end]

    def of(self, tag):
        well(self.tag == tag, f"another type than {tag:#x}")
        return self.content

    def items(self, tag=SEQUENCE):
        content, found, at = self.of(tag), [], 0
        while at < len(content):
            found.append(Item(content, at))
            at = found[-1].end
        return found

    def serial(self):
        """An integer that is compared, however it is written."""
        well(len(self.of(INTEGER)) > 0, "an integer without bytes")
        return int.from_bytes(self.content, "big", signed=True)

    def number(self):
        value, content = self.serial(), self.content
        well(len(content) == 1 or content[0] not in (0, 255) or (content[0] ^ content[1]) >= 128, "no shortest integer")
        return value

    def oid(self):
        parts, value, content = [], 0, self.of(OID)
        well(content and content[-1] < 128, "an identifier breaks off")
        for byte in content:
            well(value > 0 or byte != 0x80, "no shortest identifier")
            value = value << 7 | byte & 127
            if byte < 128:
                parts.append(value)
                value = 0
        first = min(parts[0] // 40, 2)
        return ".".join(map(str, [first, parts[0] - 40 * first, *parts[1:]]))

    def boolean(self):
        well(self.of(0x01) in (b"\0", b"\xff"), "no boolean")
        return self.content == b"\xff"

    def time(self):
        digits = {0x17: r"\d{12}Z", 0x18: r"\d{14}Z"}.get(self.tag, "")
        well(digits and re.fullmatch(digits.encode(), self.content), "no time")
        text = self.content.decode()
        if self.tag == 0x17:
            text = ("20" if text < "5" else "19") + text
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc).timestamp()

    def bits(self):
        content = self.of(BIT_STRING)
        well(content and content[0] < 8, "no bit string")
        return {8 * i + bit for i, byte in enumerate(content[1:]) for bit in range(8) if byte & 0x80 >> bit}


def only(data):
    found = Item(data)
    well(found.end == len(data), "bytes behind the end")
    return found


def extensions(item):
    found = {}
    for one in item.items():
        fields = one.items()
        well(2 <= len(fields) <= 3, "no extension")
        oid = fields[0].oid()
        well(oid not in found, "an extension stands twice")
        found[oid] = (len(fields) == 3 and fields[1].boolean(), fields[-1].of(OCTET_STRING))
    return found


def algorithm(item):
    """Its identifier, one of three of §7.2."""
    oid, *parameters = item.items()
    name = oid.oid()
    if name == RSA_PSS:
        well(len(parameters) == 1, "PSS without parameters")
        fields = {one.tag: one.items(one.tag)[0] for one in parameters[0].items()}
        mgf = fields[0xA1].items() if 0xA1 in fields else []
        well(0xA0 in fields and fields[0xA0].items()[0].oid() == SHA_384, "PSS with another hash")
        well(len(mgf) == 2 and mgf[0].oid() == MGF1 and mgf[1].items()[0].oid() == SHA_384, "PSS with another mask")
        well(0xA2 in fields and fields[0xA2].number() == 48, "PSS with another salt")
        well(0xA3 not in fields or fields[0xA3].number() == 1, "PSS with another trailer")
        well(fields.keys() <= {0xA0, 0xA1, 0xA2, 0xA3}, "PSS with more")
    else:
        well(name in (ECDSA_SHA256, ECDSA_SHA384) and not parameters, "an algorithm that is not known")
    return name


def first_common_name(name):
    """What stands behind it in a name is not read, and an issuer is compared, not read."""
    for part in name.items():
        for pair in part.items(SET):
            oid, value = pair.items()
            if oid.oid() == "2.5.4.3":
                return value.content.decode(errors="replace")
    return None


class Signed:
    """What a certificate and a list have in common: the bytes that are signed, and a signature."""

    def __init__(self, der, longest):
        well(len(der) <= longest, "too long")
        body, outer, signature = only(der).items()
        self.der, self.body, self.fields = der, body.whole, body.items()
        self.algorithm = algorithm(outer)
        self.outer = outer.whole
        well(signature.of(BIT_STRING)[:1] == b"\0", "a signature of no whole bytes")
        self.signature = signature.content[1:]

    def signed_by(self, key):
        try:
            if self.algorithm == RSA_PSS:
                if isinstance(key, rsa.RSAPublicKey):
                    key.verify(self.signature, self.body, padding.PSS(padding.MGF1(SHA384()), 48), SHA384())
                    return True
            elif isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(self.signature, self.body, ec.ECDSA(SHA256() if self.algorithm == ECDSA_SHA256 else SHA384()))
                return True
        except InvalidSignature:
            pass
        return False


def key_of(spki):
    """Of one of the three kinds of §7.2, else None."""
    try:
        key = load_der_public_key(spki)
    except (ValueError, UnsupportedAlgorithm):
        return None
    if isinstance(key, rsa.RSAPublicKey):
        return key if key.key_size <= 4096 else None
    return key if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in ("secp256r1", "secp384r1") else None


class Certificate(Signed):
    def __init__(self, der):
        super().__init__(der, 16 * 1024)
        fields = self.fields
        version = fields.pop(0).items(0xA0)[0].number() if fields[0].tag == 0xA0 else 0
        well(len(fields) >= 6, "no certificate")
        serial, inner, issuer, validity, subject, key, *rest = fields
        well(inner.whole == self.outer, "two algorithms")
        self.serial = serial.serial()
        self.issuer, self.subject, self.spki = issuer.whole, subject.whole, key.whole
        well(issuer.tag == SEQUENCE, "no issuer")
        self.name = first_common_name(subject)
        kind, bits = key.items()
        _ = [one.oid() for i, one in enumerate(kind.items()) if i == 0 or one.tag == OID]
        well(bits.of(BIT_STRING)[:1] == b"\0", "no key")
        self.not_before, self.not_after = (one.time() for one in validity.items())
        well(len(rest) <= 3 and [one.tag for one in rest] == sorted({one.tag for one in rest}), "more fields")
        last = rest.pop() if rest and rest[-1].tag == 0xA3 else None
        well({one.tag for one in rest} <= {0x81, 0x82}, "more fields")
        well(last is None or version == 2, "extensions in another version than 3")
        self.extensions = extensions(only(last.content)) if last is not None else {}
        self.usage = self.value(KEY_USAGE).bits() if KEY_USAGE in self.extensions else None
        self.authority, self.length = False, None
        for one in self.value(BASIC_CONSTRAINTS).items() if BASIC_CONSTRAINTS in self.extensions else []:
            if one.tag == INTEGER:
                self.length = one.number()
            else:
                self.authority = one.boolean()
        self.key_id = self.value(SUBJECT_KEY_ID).of(OCTET_STRING) if SUBJECT_KEY_ID in self.extensions else None
        parts = self.value(AUTHORITY_KEY_ID).items() if AUTHORITY_KEY_ID in self.extensions else []
        self.issuer_key_id = next((one.content for one in parts if one.tag == 0x80), None)

    def value(self, oid):
        return only(self.extensions[oid][1])

    @property
    def key(self):
        return key_of(self.spki)

    def holds_at(self, at):
        return self.not_before <= at <= self.not_after

    def common_name(self):
        well(self.name is not None, "no common name")
        return self.name


class RevocationList(Signed):
    def __init__(self, der):
        super().__init__(der, 1024 * 1024)
        fields = self.fields
        well(len(fields) >= 5 and fields[0].number() == 1 and fields[1].whole == self.outer, "no list of version 2")
        self.issuer = fields[2].whole
        well(fields[2].tag == SEQUENCE, "no issuer")
        self.this_update, self.next_update = fields[3].time(), fields[4].time()
        rest = fields[5:]
        entries = rest.pop(0).items() if rest and rest[0].tag == SEQUENCE else []
        self.serials = {Item(one.of(SEQUENCE)).serial() for one in entries}  # what else an entry says is not read
        found = extensions(only(rest.pop(0).of(0xA0))) if rest else {}
        well(not rest, "more behind the list")
        well(all(oid == "2.5.29.20" or not critical for oid, (critical, _) in found.items()), "a critical extension")

    def holds_at(self, at):
        return self.this_update <= at <= self.next_update

    def is_of(self, authority):
        may = authority.usage is None or CRL_SIGN in authority.usage
        return self.issuer == authority.subject and may and self.signed_by(authority.key)


def read_pem(text, code):
    """Certificates of PEM (RFC 7468), leaf first."""
    require(len(text) <= 262_144, code, "PEM too long")
    blocks = re.findall(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----", text)
    require(1 <= len(blocks) <= 16 and text.count("-----BEGIN ") == len(blocks), code, "no certificates in PEM, too many, or more")
    found = []
    for block in blocks:
        der = base64("".join(block.split()), 65_536, code)
        try:
            found.append(Certificate(der))
        except ValueError as error:
            raise Fault(code, f"a certificate: {error}") from error
    return found


def load_roots(paths):
    """The pinned roots among the certificates of these files."""
    found = [one for path in paths for one in read_pem(open(path, encoding="ascii").read(), "roots")]
    return {who: [one for one in found if sha256(one.der).hexdigest() in pins] for who, pins in PINNED.items()}


def trusted_path(chain, roots, simulated, at, names=None):
    """§7.2: the path from the leaf to a trusted root. `at` None: times are not looked at. `names` are the rules of step 5."""
    below = chain[:-1] if chain[-1].issuer == chain[-1].subject else chain
    require(below, "chain_invalid", "one self-issued certificate")

    def above(trusted):
        along = chain[-1].spki if len(below) < len(chain) else None
        return next((one for one in trusted if one.subject == below[-1].issuer and along in (None, one.spki)), None)

    root = above(roots) or above(simulated)
    if root is None:
        shown = any(b"SIMULATED" in one.subject for one in chain) and not simulated
        raise Fault("simulated_root_refused" if shown else "untrusted_root")
    path = [*below, root]
    try:
        well(len(path) <= 8, "too long")
        for depth, one in enumerate(path):
            well(all(oid in KNOWN or not critical for oid, (critical, _) in one.extensions.items()), "a critical extension")
            if depth > 0:
                well(one.authority and (one.usage is None or CERT_SIGN in one.usage), "no authority")
                well(one.length is None or one.length >= depth - 1, "the path is longer than allowed")
        for one, issuer in zip(path, path[1:]):
            ids = (issuer.key_id, one.issuer_key_id)
            well(one.issuer == issuer.subject and (None in ids or ids[0] == ids[1]), "another issuer")
            well(one.signed_by(issuer.key), "not signed by its issuer")
        if at is not None:
            require(all(one.holds_at(at) for one in path), "certificate_expired")
        if names is not None:
            names(path)
    except ValueError as error:
        raise Fault("chain_invalid", str(error)) from error
    return path


def ecdsa(key, curve, halves, data, digest):
    """Whether r ‖ s, most significant byte first, is the signature under a key of this curve."""
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != curve:
        return False
    r, s = (int.from_bytes(half, "big") for half in (halves[: len(halves) // 2], halves[len(halves) // 2 :]))
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(digest))
        return True
    except InvalidSignature:
        return False


# ---- SEV-SNP (§7.3, §7.4) --------------------------------------------------------------------------------------------

TCB_PARTS = {"Milan": ["bl", "tee", "", "", "", "", "snp", "ucode"], "Turin": ["fmc", "bl", "tee", "snp", "", "", "", "ucode"]}
TCB_PARTS["Genoa"] = TCB_PARTS["Milan"]
AMD_EXTENSION = "1.3.6.1.4.1.3704.1"
PART_OF_EXTENSION = {".3.1": "bl", ".3.2": "tee", ".3.3": "snp", ".3.8": "ucode", ".3.9": "fmc"}


class SnpReport:
    def __init__(self, data):
        require(len(data) == 1184, "cpu_malformed", "not of 1184 bytes")
        self.data = data
        self.version = le(data[0:4])
        require(self.version in (2, 3, 4, 5), "cpu_unsupported", "version")
        require(le(data[0x34:0x38]) == 1, "cpu_unsupported", "signature algorithm")
        self.policy, flags = le(data[8:16]), le(data[0x48:0x4C])
        require(self.policy >> 17 & 1, "cpu_malformed", "POLICY bit 17")
        zero = [(0x4C, 0x50), (0x188 if self.version == 2 else 0x18B, 0x1A0), (0x1EB, 0x1EC), (0x1EF, 0x1F0)]
        zero += [(0x208 if self.version == 5 else 0x1F8, 0x2A0), (0x2D0, 0x2E8), (0x318, 0x4A0)]
        require(not any(any(data[start:end]) for start, end in zero) and flags >> 5 == 0, "cpu_malformed", "reserved bytes")
        require(flags >> 2 & 7 in (0, 1), "cpu_unsupported", "signing key")
        self.signing_key = "SEV-VLEK" if flags >> 2 & 7 else "SEV-VCEK"
        self.masked = flags >> 1 & 1
        self.product = None
        if self.version > 2:
            family, model = data[0x188], data[0x189]
            if family == 0x19:
                self.product = "Milan" if model < 0x10 else "Genoa" if model < 0x20 or 0xA0 <= model < 0xB0 else None
            if family == 0x1A:
                self.product = "Turin" if model < 0x20 else None
            require(self.product is not None, "cpu_unsupported", "product")
        self.vmpl = le(data[0x30:0x34])
        self.platform = data[0x40]
        self.report_data, self.measurement, self.host_data = data[0x50:0x90], data[0x90:0xC0], data[0xC0:0xE0]
        self.id_key_digest, self.chip_id = data[0xE0:0x110], data[0x1A0:0x1E0]
        self.tcbs = {at: data[at : at + 8] for at in (0x38, 0x180, 0x1E0, 0x1F0)}

    def signed_by(self, leaf):
        r, s = (self.data[at : at + 48][::-1] for at in (0x2A0, 0x2E8))
        return ecdsa(leaf.key, "secp384r1", r + s, self.data[:0x2A0], SHA384())


def tcb_of(version, product):
    """Its parts by name; "" has whatever is set where no part is."""
    found = {"": 0}
    for name, value in zip(TCB_PARTS[product], version):
        found[name] = found[""] | value if name == "" else value
    return found


def amd_names(path):
    well(len(path) == 3, "not leaf, authority and root")
    well(not path[0].authority, "the leaf is an authority")
    leaf, authority, root = (one.common_name() for one in path)
    product = root.removeprefix("ARK-")
    well(root.startswith("ARK-") and product in TCB_PARTS, "not AMD's root")
    right = {"SEV-VCEK": f"SEV-{product}", "SEV-VLEK": f"SEV-VLEK-{product}"}
    well(leaf in right and authority == right[leaf], "other names")


def snp_identity(report, path, csp_ids):
    leaf, product = path[0], path[2].common_name().removeprefix("ARK-")
    kind = leaf.common_name()
    try:

        def content(suffix):
            well(AMD_EXTENSION + suffix in leaf.extensions, f"no extension {suffix}")
            return leaf.extensions[AMD_EXTENSION + suffix][1]

        def text(suffix):
            value = only(content(suffix)).of(IA5_STRING)
            well(len(value) <= 256 and value.isascii(), "no text")
            return value.decode()

        well(text(".2") == product or text(".2").startswith(f"{product}-"), "another product")
        well(report.signing_key == kind and report.product in (None, product), "another kind of leaf, or another product")
        parts = tcb_of(report.tcbs[0x180], product)
        for suffix, name in PART_OF_EXTENSION.items():
            well(name not in parts or only(content(suffix)).number() == parts[name], f"another {name}")
        well(parts[""] == 0, "REPORTED_TCB has more set")
        if kind == "SEV-VCEK":
            value, size = content(".4"), 8 if product == "Turin" else 64
            value = value if len(value) == size else only(value).of(OCTET_STRING)
            well(len(value) == size and report.chip_id == value.ljust(64, b"\0"), "another chip")
        elif csp_ids is not None:
            well(text(".5") in csp_ids, "another CSP")
    except ValueError as error:
        raise Fault("cpu_identity_mismatch", str(error)) from error


def snp_revocation(given, path, at):
    lists = []
    for der in given:
        try:
            lists.append(RevocationList(der))
        except ValueError as error:
            raise Fault("revocation_invalid", str(error)) from error
    require(lists, "revocation_unavailable")
    one = next((one for one in lists if one.holds_at(at)), lists[0])
    require(one.is_of(path[2]), "revocation_invalid")
    require(path[1].serial not in one.serials, "certificate_revoked")
    require(one.holds_at(at), "revocation_unavailable")


def snp_mode(report, product, policy):
    require(not report.policy >> 19 & 1, "debug_enabled")
    require(report.policy < 1 << 26, "cpu_policy_refused", "unknown bits")
    require(not report.policy >> 18 & 1 and report.vmpl <= 3 and not report.masked, "cpu_policy_refused")
    require(product in policy.get("products", ["Genoa", "Turin"]), "cpu_policy_refused", product)
    chip_ids = policy.get("chips", [report.chip_id.hex()])
    require(report.chip_id.hex() in chip_ids and ("chips" not in policy or any(report.chip_id)), "cpu_policy_refused", "chip")
    alias, hiding, smt = (report.platform >> bit & 1 for bit in (5, 4, 0))
    require(alias or not policy.get("requireAliasCheck"), "cpu_policy_refused")
    require(not (smt or report.policy >> 16 & 1) or not policy.get("requireSmtOff"), "cpu_policy_refused")
    require((hiding and report.policy >> 24 & 1) or not policy.get("requireCiphertextHiding"), "cpu_policy_refused")


def snp_tcb(report, product, policy):
    least = {"Genoa": {"snp": 27}, "Turin": {"snp": 4}, **policy.get("minTcb", {})}.get(product)
    if not least:
        raise NotMade
    for version in report.tcbs.values():
        parts = tcb_of(version, product)
        require(all(parts.get(name, -1) >= value for name, value in least.items()), "tcb_not_accepted")
        require(parts[""] == 0, "tcb_not_accepted")


# ---- TDX (§7.5) ------------------------------------------------------------------------------------------------------

INTEL_QE = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
SGX_EXTENSION = "1.2.840.113741.1.13.1"
DEMANDS = ("requireAliasCheck", "requireSmtOff", "requireCiphertextHiding")


class TdxQuote:
    def __init__(self, data):
        head = Reader(data)
        version = head.number(2)
        require(version in (4, 5), "cpu_unsupported", "version")
        require(head.number(2) == 2 and head.number(4) == 0x81, "cpu_unsupported", "key or TEE type")
        require(head.number(4) == 0, "cpu_malformed", "reserved bytes")
        require(head.take(16) == INTEL_QE, "cpu_unsupported", "quoting enclave")
        head.take(20)
        self.type, size = 2, 584
        if version == 5:
            self.type, size = head.number(2), head.number(4)
            require(self.type in (2, 3), "cpu_unsupported", "body type")
            require(size == (648 if self.type == 3 else 584), "cpu_malformed", "body size")
        body = head.take(size)
        self.signed = data[: head.at]
        rest = Reader(head.sized(4))
        self.signature, self.key = rest.take(64), rest.take(64)
        require(rest.number(2) == 6, "cpu_unsupported", "certification data")
        inner = Reader(rest.sized(4))
        rest.end()
        self.qe_report, self.qe_signature = inner.take(384), inner.take(64)
        self.qe_data = inner.sized(2)
        require(inner.number(2) == 5, "cpu_unsupported", "certification data")
        pem = inner.sized(4)
        inner.end()
        self.chain = read_pem(utf8(pem.removesuffix(b"\0"), "cpu_malformed"), "cpu_malformed")

        self.svn, self.mrsignerseam, self.seamattributes = body[0:16], body[64:112], body[112:120]
        self.tdattributes, self.mrtd, self.mrconfigid, self.report_data = le(body[120:128]), body[136:184], body[184:232], body[520:584]
        self.xfam = le(body[128:136])
        self.rtmrs = [body[at : at + 48] for at in (328, 376, 424, 472)]
        self.svn2, self.mrservicetd = body[584:600], body[600:648]

    def signed_by(self, leaf):
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + self.key)
        except ValueError:
            return False
        return (
            ecdsa(key, "secp256r1", self.signature, self.signed, SHA256())
            and ecdsa(leaf.key, "secp256r1", self.qe_signature, self.qe_report, SHA256())
            and self.qe_report[320:384] == sha256(self.key + self.qe_data).digest() + bytes(32)
        )


def pairs_of(item):
    found = {}
    for one in item.items():
        oid, value = one.items()
        well(oid.oid() not in found, "an identifier stands twice")
        found[oid.oid()] = value
    return found


class Pck:
    """What Intel's extension of a PCK certificate says."""

    def __init__(self, certificate):
        well(SGX_EXTENSION in certificate.extensions, "no extension of Intel")
        found = pairs_of(only(certificate.extensions[SGX_EXTENSION][1]))
        well({SGX_EXTENSION + one for one in (".2", ".3", ".4")} <= found.keys(), "not all of the extension")
        tcb = pairs_of(found[SGX_EXTENSION + ".2"])
        names = [f"{SGX_EXTENSION}.2.{i}" for i in range(1, 18)]
        well(tcb.keys() >= set(names), "not all of the TCB")
        *self.components, self.pcesvn = (tcb[name].number() for name in names)
        well(all(0 <= one <= 65535 for one in (*self.components, self.pcesvn)), "a component out of range")
        self.ppid = found[SGX_EXTENSION + ".1"].of(OCTET_STRING).hex() if SGX_EXTENSION + ".1" in found else None
        well(self.ppid is None or len(self.ppid) == 32, "PPID")
        self.pceid, self.fmspc = (found[SGX_EXTENSION + one].of(OCTET_STRING) for one in (".3", ".4"))
        well((len(self.pceid), len(self.fmspc)) == (2, 6), "PCEID or FMSPC")


def intel_names(path):
    well(len(path) == 3, "not PCK, authority and root")
    well(not path[0].authority, "the leaf is an authority")
    well("Intel SGX PCK Certificate" in path[0].common_name(), "not a PCK certificate")
    well(path[1].common_name().endswith(("Intel SGX PCK Platform CA", "Intel SGX PCK Processor CA")), "not the PCK's authority")
    Pck(path[0])


def tdx_mode(quote, kind, ppid, policy):
    require(quote.tdattributes & 0xFF == 0, "debug_enabled")
    require(not quote.tdattributes & ~0xC0000000F80100FF, "cpu_policy_refused", "unknown attributes")
    require(not quote.xfam & ~0xEDBE7, "cpu_policy_refused", "unknown states")
    require(not quote.tdattributes >> 29 & 1, "cpu_policy_refused", "MIGRATABLE")
    require(kind != "TDX" or quote.tdattributes >> 28 & 1, "cpu_policy_refused", "SEPT_VE_DISABLE")
    require(not any(quote.mrservicetd), "cpu_policy_refused", "MRSERVICETD")
    require("chips" not in policy or ppid in policy["chips"], "cpu_policy_refused", "platform")
    require(not any(policy.get(name) for name in DEMANDS), "cpu_policy_refused", "what no quote states")


# ---- Intel's collateral (§7.6, §7.7) ---------------------------------------------------------------------------------

TEXTS = ("tcb_info", "qe_identity")
STRINGS = {one + end for one in TEXTS for end in ("", "_signature", "_issuer_chain")} | {"pck_crl", "pck_crl_issuer_chain", "root_ca_crl"}
HARDEN, CONFIGURE, BOTH = "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded"
OLD, OLD_CONFIGURE = "OutOfDate", "OutOfDateConfigurationNeeded"
RELAUNCH, RELAUNCH_CONFIGURE = "TDRelaunchAdvised", "TDRelaunchAdvisedConfigurationNeeded"
STATUSES = ("UpToDate", HARDEN, CONFIGURE, BOTH, OLD, OLD_CONFIGURE, RELAUNCH, RELAUNCH_CONFIGURE, "Revoked", "NotSupported")
INVALID = "collateral_invalid"


class Member:
    """A value of Intel's JSON; what is not of the wanted type is refused."""

    def __init__(self, value):
        self.value = value

    def __getitem__(self, name):
        require(isinstance(self.value, dict) and name in self.value, INVALID, f"no {name}")
        return Member(self.value[name])

    def get(self, name):
        return self[name] if isinstance(self.value, dict) and name in self.value else None

    def list(self):
        require(isinstance(self.value, list) and len(self.value) <= 256, INVALID, "no list")
        return [Member(one) for one in self.value]

    def text(self):
        require(isinstance(self.value, str) and len(self.value) <= 256, INVALID, "no string")
        return self.value

    def number(self):
        require(type(self.value) in (int, float) and self.value >= 0 and self.value % 1 == 0, INVALID, "no number")
        return self.value

    def bytes(self, size):
        return hexadecimal(self.text(), size, INVALID)

    def status(self):
        require(self.value in STATUSES, INVALID, "no status")
        return self.value

    def levels(self, part):
        found = []
        for one in self["tcbLevels"].list():
            advisories = one.get("advisoryIDs")
            _ = [advisory.text() for advisory in advisories.list()] if advisories is not None else []
            found.append((part(one["tcb"]), one["tcbStatus"].status()))
        return found

    def components(self, name):
        found = [one["svn"].number() for one in self[name].list()]
        require(len(found) == 16, INVALID, "not 16 components")
        return found


def module_of(member):
    return member["mrsigner"].bytes(48), member["attributes"].bytes(8), member["attributesMask"].bytes(8)


def isvsvn(tcb):
    return tcb["isvsvn"].number()


class Collateral:
    """§7.6: nine strings that verify under the root of the quote's path."""

    def __init__(self, strings, root, at):
        require(isinstance(strings, dict) and strings.keys() - {"pck_certificate_chain"} == STRINGS, INVALID, "not the nine strings")
        require(all(isinstance(one, str) for one in strings.values()), INVALID, "not a string")
        self.signers, windows, members = [], [], []
        for name in TEXTS:
            path = trusted_path_of_texts(read_pem(strings[f"{name}_issuer_chain"], INVALID), root)
            signature = hexadecimal(strings[f"{name}_signature"], 64, INVALID)
            text = utf8(strings[name], INVALID)
            require(ecdsa(path[0].key, "secp256r1", signature, text, SHA256()), INVALID, f"{name} is not signed")
            self.signers.append(path[0])
            windows += [(one.not_before, one.not_after) for one in path]
            members.append(Member(parse_json(strings[name], INVALID, dict)))
        try:
            self.pck_crl, self.root_crl = (RevocationList(hexadecimal(strings[one], None, INVALID)) for one in ("pck_crl", "root_ca_crl"))
        except ValueError as error:
            raise Fault(INVALID, f"a list: {error}") from error
        for one, name, version in zip(members, ("TDX", "TD_QE"), (3, 2)):
            require(one["id"].text() == name and one["version"].number() == version, INVALID, "another text")
            windows.append(tuple(seconds(one[end].text(), INVALID) for end in ("issueDate", "nextUpdate")))
        self.outdated = not all(start <= at <= end for start, end in windows)
        self.outdated |= not (self.pck_crl.holds_at(at) and self.root_crl.holds_at(at))
        self.evaluation = min(one["tcbEvaluationDataNumber"].number() for one in members)

        tcb, qe = members
        self.fmspc, self.pceid = tcb["fmspc"].text(), tcb["pceId"].text()
        self.levels = tcb.levels(lambda it: (it.components("sgxtcbcomponents"), it.components("tdxtcbcomponents"), it["pcesvn"].number()))
        self.module = module_of(tcb["tdxModule"])
        identities = tcb.get("tdxModuleIdentities")
        self.identities = [(it["id"].text().upper(), module_of(it), it.levels(isvsvn)) for it in (identities.list() if identities else [])]
        self.qe_levels = qe.levels(isvsvn)
        self.qe = [qe[one].bytes(4)[::-1] for one in ("miscselect", "miscselectMask")]
        self.qe += [qe["attributes"].bytes(16), qe["attributesMask"].bytes(16), qe["mrsigner"].bytes(32), qe["isvprodid"].number()]

    def identity(self, svn):
        """The module identity of a TEE_TCB_SVN: its module and its levels, None without one."""
        return next((rest for name, *rest in self.identities if name == f"TDX_{svn[1]:02X}"), None)


def trusted_path_of_texts(chain, root):
    def names(path):
        well(len(path) == 2, "not directly under the root")
        well(not path[0].authority, "the signer is an authority")
        well("Intel SGX TCB Signing" in path[0].common_name(), "not Intel's signer")

    try:
        return trusted_path(chain, [root], [], None, names)
    except Fault as fault:
        raise Fault(INVALID, str(fault)) from fault


def choose_collateral(given, root, at):
    """The one that is taken, None without any. @raises Fault: collateral_invalid"""
    first = None
    for strings in given:
        one = Collateral(strings, root, at)
        if not one.outdated:
            return one
        first = first or one
    return first


def masked(value, mask):
    return bytes(a & b for a, b in zip(value, mask))


def tdx_identity(quote, collateral):
    qe, code = quote.qe_report, "cpu_identity_mismatch"
    misc, misc_mask, attributes, attributes_mask, signer, product = collateral.qe
    require(masked(qe[16:20], misc_mask) == misc and masked(qe[48:64], attributes_mask) == attributes, code, "quoting enclave")
    require(qe[128:160] == signer and le(qe[256:258]) == product, code, "quoting enclave")
    identity = collateral.identity(quote.svn) if quote.svn[1] > 0 else None
    signer, attributes, mask = identity[0] if identity is not None else collateral.module
    require(quote.mrsignerseam == signer and masked(quote.seamattributes, mask) == attributes, code, "module")
    require(not any(quote.seamattributes), code, "SEAMATTRIBUTES")


def tdx_revocation(collateral, path):
    pck, authority, root = path
    require(collateral.root_crl.is_of(root) and collateral.pck_crl.is_of(authority), "revocation_invalid")
    require(pck.serial not in collateral.pck_crl.serials, "certificate_revoked")
    require(not {one.serial for one in (authority, *collateral.signers)} & collateral.root_crl.serials, "certificate_revoked")
    if collateral.outdated:
        raise NotMade


def lowered(status, part):
    for worst in ("NotSupported", "Revoked"):
        if worst in (status, part):
            return worst
    if part == "UpToDate":
        return status
    return {"UpToDate": OLD, HARDEN: OLD, CONFIGURE: OLD_CONFIGURE, BOTH: OLD_CONFIGURE}.get(status, status)


def first_met(levels, svn):
    return next((status for least, status in levels if least <= svn), "NotSupported")


def tcb_status(quote, collateral, pck):
    """§7.7, its seven steps. None where the collateral is another platform's."""
    if (collateral.fmspc.lower(), collateral.pceid.lower()) != (pck.fmspc.hex(), pck.pceid.hex()):
        return None
    s, s2 = quote.svn, quote.svn2
    met = [
        (tdx, status)
        for (sgx, tdx, pcesvn), status in collateral.levels
        if all(a <= b for a, b in zip(sgx, pck.components)) and pcesvn <= pck.pcesvn
    ]
    g = met[0][1] if met else "NotSupported"
    first = 2 if s[1] > 0 else 0
    level = next((status for tdx, status in met if all(a <= b for a, b in zip(tdx[first:], s[first:]))), "NotSupported")
    identity = collateral.identity(s)
    m = "UpToDate" if s[1] == 0 else "NotSupported" if identity is None else first_met(identity[1], s[0])
    q = first_met(collateral.qe_levels, le(quote.qe_report[258:260]))
    p = lowered(level, m)
    if quote.type == 3 and p in (OLD, OLD_CONFIGURE) and m == OLD and q == "UpToDate" and g in ("UpToDate", HARDEN, CONFIGURE, BOTH):
        components = collateral.levels[0][0][1]
        if s2[1] > 0:
            identity = collateral.identity(s2)
            least = identity[1][0][0] if identity is not None and identity[1] else None
        else:
            least = components[0]
        if least is None:
            p = "NotSupported"
        elif s2[0] >= least and s2[2] >= components[2]:
            p = RELAUNCH if p == OLD and not g.startswith("Configuration") else RELAUNCH_CONFIGURE
    return lowered(p, q)


def tdx_tcb(taken, status, policy):
    if isinstance(taken, Fault):
        raise taken
    require(taken is not None, "collateral_unavailable")
    require(status is not None, INVALID, "another platform's")
    require(not taken.outdated, "collateral_expired")
    require(taken.evaluation >= policy.get("minTcbEvaluation", 0), "tcb_not_accepted", "evaluation number")
    require(status in policy.get("tcb", ["UpToDate"]) and status not in ("Revoked", "NotSupported"), "tcb_not_accepted", status)


# ---- Azure (§7.8) ----------------------------------------------------------------------------------------------------


class HclReport:
    def __init__(self, data, kind):
        require(data[:4] == b"HCLA" and le(data[12:16]) == 2 and len(data) >= 1236, "cpu_malformed", "no HCL report")
        named, digest = le(data[1224:1228]), le(data[1228:1232])
        require(named in (2, 4), "cpu_unsupported", "another processor")
        require(named == (2 if kind == "AZURE_SEV_SNP" else 4), "cpu_malformed", "another type")
        require(digest == 1, "cpu_unsupported", "another hash")
        self.report = data[32:1216]
        rest = Reader(data[1232:])
        self.runtime = rest.sized(4)


class TpmQuote:
    def __init__(self, member):
        fits = isinstance(member, dict) and member.keys() == {"message", "signature", "pcrs"}
        require(fits and isinstance(member["pcrs"], list) and len(member["pcrs"]) == 24, "cpu_malformed", "tpm")
        require(all(isinstance(one, str) and HEX_64.fullmatch(one) for one in member["pcrs"]), "cpu_malformed", "pcrs")
        self.pcrs = b"".join(map(bytes.fromhex, member["pcrs"]))
        self.message, self.signature = (base64(member[one], 16_384) for one in ("message", "signature"))
        attest = Reader(self.message, order="big")
        require(attest.take(6).hex() == "ff5443478018", "cpu_malformed", "not a TPM's quote")
        attest.sized(2)
        self.extra_data = attest.sized(2)
        attest.take(25)
        require(attest.take(10).hex() == "00000001000b03ffffff", "cpu_malformed", "other PCRs")
        self.pcr_digest = attest.sized(2)
        attest.end()


def check_vtpm(report_data, hcl, tpm):
    code = "cpu_vtpm_invalid"
    require(report_data == sha256(hcl.runtime).digest() + bytes(32), code, "other runtime data")
    runtime = parse_json(utf8(hcl.runtime, code), code, dict)
    require(isinstance(runtime, dict) and isinstance(runtime.get("keys"), list), code, "no keys")
    keys = [one for one in runtime["keys"] if isinstance(one, dict) and one.get("kid") == "HCLAkPub"]
    require(len(keys) == 1 and keys[0].get("kty") == "RSA" and keys[0].get("e") == "AQAB", code, "no key of the TPM")
    n = keys[0].get("n")
    require(isinstance(n, str) and re.fullmatch(r"[A-Za-z0-9_-]{342}", n), code, "no modulus of 256 bytes")
    try:
        key = rsa.RSAPublicNumbers(65537, int.from_bytes(urlsafe_b64decode(n + "=="), "big")).public_key()
        key.verify(tpm.signature, tpm.message, padding.PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError) as error:
        raise Fault(code, "not signed by the TPM") from error
    require(tpm.pcr_digest == sha256(tpm.pcrs).digest(), code, "other PCRs")


# ---- event logs (§7.9) -----------------------------------------------------------------------------------------------

LOG = "event_log_mismatch"


def ccel_events(data):
    """(register, digest) of each event that counts."""
    log = Reader(data, LOG)
    log.take(4)
    require(log.number(4) == 3, LOG, "no head")
    log.take(20)
    head = Reader(log.sized(4), LOG)
    require(head.take(16) == b"Spec ID Event03\0", LOG, "no head")
    head.take(8)
    count = head.number(4)
    require(count <= 16, LOG, "too many algorithms")
    sizes = dict((head.number(2), head.number(2)) for _ in range(count))
    require(sizes.get(0x000C) == 48, LOG, "no SHA-384")
    found, events = [], 0
    while log.left() >= 4:
        register = log.number(4)
        if register == 0xFFFFFFFF:
            break
        events += 1
        kind, count = log.number(4), log.number(4)
        require(events <= 8192 and count <= 16, LOG, "too many")
        digests = []
        for _ in range(count):
            algorithm_id = log.number(2)
            require(algorithm_id in sizes, LOG, "an algorithm that the head does not name")
            digests += [(algorithm_id, log.take(sizes[algorithm_id]))]
        log.sized(4)
        counted = [digest for one, digest in digests if one == 0x000C]
        require(counted, LOG, "no digest of SHA-384")
        if kind != 3:
            require(1 <= register <= 4, LOG, "another register")
            found.append((register - 1, counted[0]))
    return found


def dstack_events(data):
    """(register, digest, name, payload) of each event. Of a member that stands twice the last counts."""
    log, found = parse_json(utf8(data, LOG), LOG, dict), []
    require(isinstance(log, list) and len(log) <= 8192, LOG, "no list, or too long")
    for one in log:
        require(isinstance(one, dict), LOG, "no event")
        register, kind, name = (one.get(member) for member in ("imr", "event_type", "event"))
        require(type(register) in (int, float) and register in (0, 1, 2, 3), LOG, "imr")
        require(type(kind) in (int, float) and isinstance(name, str), LOG, "event")
        payload = hexadecimal(one.get("event_payload"), None, LOG)
        empty = register == 3 and one.get("digest") == ""
        digest = b"" if empty else hexadecimal(one.get("digest"), 48, LOG)
        if register == 3:
            require(0 <= kind < 2**32 and kind == int(kind), LOG, "event_type")
            require(":" not in name, LOG, "a name with a colon")
            text = int(kind).to_bytes(4, "little") + b":" + utf8(name, LOG) + b":" + payload
            require(empty or sha384(text).digest() == digest, LOG, "another digest")
            digest = sha384(text).digest()
        if kind != 3:
            found.append((int(register), digest, name, payload))
    return found


def check_log(log, rtmrs):
    """The payload of the event that names a launch file, in a list; else an empty one."""
    require(len(log) <= 1024 * 1024, LOG, "too long")
    dstack = log[:1] == b"["
    events = dstack_events(log) if dstack else ccel_events(log)
    registers = [bytes(48)] * 4
    for register, digest, *_ in events:
        registers[register] = sha384(registers[register] + digest).digest()
    at_run_time = [one for one in events if one[0] == 3]
    known = 4 if at_run_time else 3
    require(registers[:known] == rtmrs[:known], LOG, "other registers")
    named = [one for one in at_run_time if dstack and one[2] == "countersign-launch"]
    return [named[0][3]] if len(named) == 1 and at_run_time[0] is named[0] else []


# ---- reference values (§7.13) ----------------------------------------------------------------------------------------

# Of each type: the lists that an entry has, those that it may have, and what its launch_in may be.
OF_AZURE = ({"measurement", "pcrs"}, {"vmpl"}, {"measurement"})
ENTRIES = {
    "SEV_SNP": ({"measurement"}, {"vmpl", "id_key_digest"}, {"host_data", "measurement"}),
    "TDX": ({"mrtd", "rtmr0", "rtmr1", "rtmr2"}, {"rtmr3"}, {"mrconfigid", "rtmr3", "measurement"}),
    "AZURE_SEV_SNP": OF_AZURE,
    "AZURE_TDX": OF_AZURE,
}
PCR = re.compile("[0-9]|1[0-9]|2[0-3]")


class Unusable(ValueError):
    """The caller's list cannot be used: no check fails by that."""


def usable(condition, why):
    if not condition:
        raise Unusable(why)


def read_reference(given):
    """The list, of JSON text or parsed. @raises Unusable"""
    if isinstance(given, str):
        usable(characters(given) <= 1_048_576, "too long")
        try:
            given = parse_json(given, "reference")
        except Fault as fault:
            raise Unusable(str(fault)) from fault
    read_members(given, {"version", "cpu", "launch"}, set())
    usable(type(given["version"]) in (int, float) and given["version"] == 1, "version")
    for one in read_list(given["cpu"], "cpu"):
        read_entry(one)
    read_digests(given["launch"], 32, "launch")
    return given


def read_members(value, needed, optional):
    usable(isinstance(value, dict) and needed <= value.keys() <= needed | optional, "a member is missing, or not known")


def read_list(value, name):
    usable(isinstance(value, list) and 1 <= len(value) <= 1024, f"{name} is no list of 1 to 1,024 values")
    return value


def read_digests(value, size, name):
    for one in read_list(value, name):
        usable(isinstance(one, str) and len(one) == 2 * size and re.fullmatch("[0-9a-f]*", one), f"{name} is not of {size} bytes")


def read_entry(entry):
    kind = entry.get("type") if isinstance(entry, dict) else None
    usable(isinstance(kind, str) and kind in ENTRIES, "type")
    needed, optional, places = ENTRIES[kind]
    read_members(entry, needed | {"type", "launch_in"}, optional)
    usable(isinstance(entry["launch_in"], str) and entry["launch_in"] in places, "launch_in")
    for name, value in entry.items():
        if name == "vmpl":
            for one in read_list(value, name):
                usable(type(one) in (int, float) and one in (0, 1, 2, 3), name)
        elif name == "pcrs":
            usable(isinstance(value, dict) and value, "no register")
            for register, digests in value.items():
                usable(PCR.fullmatch(register), "a register's number")
                read_digests(digests, 32, name)
        elif name not in ("type", "launch_in") and not (name == "rtmr0" and value is None):
            read_digests(value, 48, name)


def measured(evidence):
    """What the processor measured, by the names that an entry has for it."""
    snp, quote = evidence.snp, evidence.quote
    if snp is not None:
        return {"measurement": snp.measurement.hex(), "vmpl": snp.vmpl, "id_key_digest": snp.id_key_digest.hex()}
    if evidence.azure:
        return {"measurement": quote.mrtd.hex()}
    return {"mrtd": quote.mrtd.hex(), **{f"rtmr{i}": one.hex() for i, one in enumerate(quote.rtmrs)}}


def fits(entry, evidence):
    if entry["type"] != evidence.type:
        return False
    lists = {"vmpl": [0], **entry}
    right = all(value in lists[name] for name, value in measured(evidence).items() if lists.get(name) is not None)
    for register, digests in entry.get("pcrs", {}).items():
        at = 32 * int(register)
        right = right and evidence.tpm.pcrs[at : at + 32].hex() in digests
    if entry["type"] == "TDX" and "rtmr3" not in entry:
        right = right and (evidence.event_log is not None or not any(evidence.quote.rtmrs[3]))
    return right


def check_measurement(evidence, reference):
    """The entry: the first that fits."""
    if reference is None:
        raise NotMade
    entry = next((one for one in reference["cpu"] if fits(one, evidence)), None)
    require(entry is not None, "measurement_mismatch")
    return entry


def launch_digest(evidence, place, named, stated):
    """The launch file's digest in hex, from this place. None where there is none."""
    if place == "host_data":
        return evidence.snp.host_data.hex()
    if place == "mrconfigid":
        digest, rest = evidence.quote.mrconfigid[:32], evidence.quote.mrconfigid[32:]
        return None if any(rest) else digest.hex()
    if place == "rtmr3":
        return named[0].hex() if len(named) == 1 else None
    return stated


def check_software(evidence, reference, entry, stated):
    """`stated`: the launch file that the session's statement names, if any."""
    log, named = evidence.event_log, []
    if log is None and reference is None:
        raise NotMade
    if log is not None:
        named = check_log(log, evidence.quote.rtmrs)
    if reference is not None:
        digest = launch_digest(evidence, entry["launch_in"], named, stated)
        require(digest is not None and digest in reference["launch"], "software_mismatch", "not on the list")
        require(stated in (None, digest), "software_mismatch", "the statement names another")


# ---- a member, whole (§7.1, §7.12) -----------------------------------------------------------------------------------

MEMBERS = {
    "SEV_SNP": ({"report", "certificates"}, {"collateral"}),
    "TDX": ({"report"}, {"collateral", "event_log"}),
    "AZURE_SEV_SNP": ({"report", "certificates", "tpm"}, {"collateral"}),
    "AZURE_TDX": ({"report", "quote", "tpm"}, {"collateral", "event_log"}),
}
OF_SESSION = {"statement", "gpu_sha256", "gpu", "launch", "signature"}


class Evidence:
    """What a member says, read and not judged."""

    def __init__(self, member):
        if isinstance(member, str):
            require(characters(member) <= 8_388_608, "cpu_malformed", "too long")
            member = parse_json(member, "cpu_malformed")
        require(isinstance(member, dict) and isinstance(member.get("type"), str), "cpu_malformed", "no type")
        self.type = kind = member["type"]
        require(kind in MEMBERS, "cpu_unsupported", "type")
        needed, optional = MEMBERS[kind]
        there = member.keys() - OF_SESSION - {"type"}
        require(needed <= there <= needed | optional, "cpu_malformed", "a member is missing, or not known")

        self.azure, amd = kind.startswith("AZURE"), "SNP" in kind
        self.snp = self.quote = self.hcl = self.tpm = self.event_log = None
        self.collateral = member.get("collateral")
        if "collateral" in member:
            require(isinstance(self.collateral, dict), "cpu_malformed", "collateral")
            if not amd and self.collateral.get("pck_certificate_chain", "") is None:
                self.collateral = {name: value for name, value in self.collateral.items() if name != "pck_certificate_chain"}
            names, more = ({"crl"}, set()) if amd else (STRINGS, {"pck_certificate_chain"})
            require(self.collateral.keys() - more == names, "cpu_malformed", "collateral")
            for name, value in self.collateral.items():
                longest = 2_097_152 if name.endswith("crl") else 524_288
                require(isinstance(value, str) and len(value) <= longest, "cpu_malformed", "collateral")
            if amd:
                self.collateral = base64(self.collateral["crl"], 2_097_152)
        if "event_log" in member:
            self.event_log = base64(member["event_log"], 2_097_152)
        report = base64(member["report"], 65_536)
        if self.azure:
            self.tpm, self.hcl = TpmQuote(member["tpm"]), HclReport(report, kind)
        if amd:
            self.chain = read_pem(utf8(base64(member["certificates"], 65_536), "cpu_malformed"), "cpu_malformed")
            self.snp = SnpReport(self.hcl.report if self.azure else report)
        else:
            self.quote = TdxQuote(base64(member["quote"], 65_536) if self.azure else report)
            self.chain = self.quote.chain
        self.signed = self.snp or self.quote

    def reports(self, data):
        """Whether these bytes were given to be signed."""
        if self.azure:
            return self.tpm.extra_data == data
        return self.signed.report_data == data.ljust(64, b"\0")


class Caller:
    """What the caller says (§7.11)."""

    def __init__(self, at, policy, collateral, reference, without_revocation, extra_roots, roots):
        self.at = at.timestamp()
        self.policy, self.collateral = policy or {}, collateral or {}
        self.reference = None if reference is None else read_reference(reference)
        self.without_revocation = without_revocation
        self.roots, self.simulated = roots, list(extra_roots)


def check_evidence(checks, evidence, caller, of_session, seen, stated=None):
    """All checks behind cpu_form, in their order. `of_session` makes those of §6 where they stand."""
    at, policy = caller.at, caller.policy
    snp, quote = (evidence.snp, evidence.quote) if evidence else (None, None)
    signed = ["cpu_signature", "cpu_chain"]
    amd = snp is not None
    own = caller.collateral.get("amd_crl" if amd else "tdx")
    given = [one for one in (own, evidence.collateral if evidence else None) if one is not None]

    def trusted():
        roots = caller.roots["AMD" if amd else "Intel"]
        return trusted_path(evidence.chain, roots, caller.simulated, at, amd_names if amd else intel_names)

    checks.run("cpu_signature", ["cpu_form"], lambda: require(evidence.signed.signed_by(evidence.chain[0]), "cpu_signature_invalid"))
    path = checks.run("cpu_chain", ["cpu_form"], trusted)
    product = path[2].common_name().removeprefix("ARK-") if path and amd else None
    taken = status = None
    if path and not amd:
        try:
            taken = choose_collateral(given, path[2], at)
            status = seen["tcb_status"] = tcb_status(quote, taken, Pck(path[0])) if taken else None
        except Fault as fault:
            taken = fault

    def verifying():
        if taken is None or isinstance(taken, Fault):
            raise NotMade
        return taken

    def identity():
        return snp_identity(snp, path, policy.get("cspIds")) if amd else tdx_identity(quote, verifying())

    def revocation():
        if caller.without_revocation:
            raise NotMade
        if not amd:
            return tdx_revocation(verifying(), path)
        return snp_revocation(given, path, at)

    checks.run("cpu_identity", signed, identity)
    checks.run("cpu_revocation", signed, revocation)
    vtpm = ["cpu_vtpm"] if evidence and evidence.azure else []
    if vtpm:
        checks.run("cpu_vtpm", ["cpu_form"], lambda: check_vtpm(evidence.signed.report_data, evidence.hcl, evidence.tpm))
    of_session(["cpu_form", *vtpm])

    def mode():
        if amd:
            return snp_mode(snp, product, policy)
        return tdx_mode(quote, evidence.type, Pck(path[0]).ppid, policy)

    checks.run("cpu_mode", signed, mode)
    checks.run("cpu_tcb", signed, lambda: snp_tcb(snp, product, policy) if amd else tdx_tcb(taken, status, policy))
    entry = checks.run("cpu_measurement", [*signed, *vtpm], lambda: check_measurement(evidence, caller.reference))
    checks.run("cpu_software", [*signed, "cpu_measurement"], lambda: check_software(evidence, caller.reference, entry, stated))


def verify_cpu(
    member,
    at,
    policy=None,
    collateral=None,
    expected_report_data=None,
    reference=None,
    without_revocation=False,
    extra_roots=(),
    *,
    roots,
    seen=None,
):
    """The bare form: (check, pass | fail | skip, code | None) of each check, in order. `member` is its JSON text, or its value.

    collateral: {"tdx": the nine strings, "amd_crl": DER}, each optional. expected_report_data: bytes. reference: §7.13's list, JSON text
    or parsed. extra_roots: simulated roots, beside `roots` of load_roots. `seen` gets the TCB status. @raises Unusable: the list
    """
    caller = Caller(at, policy, collateral, reference, without_revocation, extra_roots, roots)
    checks = Checks()
    evidence = checks.run("cpu_form", [], lambda: Evidence(member))

    def binding(grounds):
        def check():
            if expected_report_data is None:
                raise NotMade
            require(evidence.reports(expected_report_data), "cpu_binding_mismatch")

        checks.run("cpu_binding", grounds, check)

    check_evidence(checks, evidence, caller, binding, {} if seen is None else seen)
    return checks.done


# ---- sessions (§1, §2, §6) -------------------------------------------------------------------------------------------

IMAGE = re.compile(r"[!-?A-~]{1,512}@sha256:[0-9a-f]{64}")


def is_launch_file(text):
    """Whether the text is exactly as §7.13 has it."""
    value = parse_json(text, "cpu_malformed")
    if not isinstance(value, dict) or not all(isinstance(value.get(one), dict) for one in ("images", "model")):
        return False
    digest = lambda one: isinstance(one, str) and HEX_64.fullmatch(one) is not None  # noqa: E731
    images, name, root = value["images"], value["model"].get("name"), value["model"].get("verity_root")
    services = all(re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", one) for one in images)
    pinned = all(isinstance(one, str) and IMAGE.fullmatch(one) for one in images.values())
    required = {"backend", "gateway", "sidecar"} <= images.keys() and len(images) <= 32
    model = isinstance(name, str) and re.fullmatch("[ -~]{1,256}", name) and (root is None or digest(root))
    operator = value.get("operator")
    others = value.get("egress") in ("none", "models") and (operator is None or digest(operator))
    if not (services and pinned and required and model and others and digest(value.get("compose_sha256"))):
        return False
    numbers = sorted((one for one in images if re.fullmatch("0|[1-9][0-9]{0,9}", one) and int(one) < 2**32 - 1), key=int)
    order = numbers + sorted(images.keys() - set(numbers))
    exact = {"version": 1, "images": {one: images[one] for one in order}, "compose_sha256": value["compose_sha256"]}
    exact |= {"model": {"name": name, "verity_root": root}, "egress": value["egress"], "login": False, "operator": operator}
    return json.dumps(exact, separators=(",", ":")) == text


STATEMENT = ("purpose", "challenge", "key", "devices", "tls", "hpke", "launch", "not_before", "not_after")
WHOLE = re.compile("0|[1-9][0-9]{0,14}")


class Number(str):
    """A number as it is written."""


class Statement:
    def __init__(self, text):
        code = "cpu_malformed"
        require(isinstance(text, str) and len(text) <= 16_384, code, "no statement")
        self.text, self.sha256 = text, sha256(utf8(text, code)).digest()
        found = parse_json(text, code)
        require(isinstance(found, dict) and tuple(found) == STATEMENT, code, "other members")
        require(json.dumps(found, separators=(",", ":"), ensure_ascii=False) == text, code, "another text of these members")

        def digests(name, least, most):
            value = found[name]
            require(isinstance(value, list) and least <= len(value) <= most, code, name)
            require(all(isinstance(one, str) and HEX_64.fullmatch(one) for one in value), code, name)
            return value

        require(found["purpose"] == "countersign.session.v1", code, "purpose")
        for name in ("challenge", "launch"):
            require(found[name] is None or isinstance(found[name], str) and HEX_64.fullmatch(found[name]), code, name)
        self.challenge, self.launch = found["challenge"], found["launch"]
        self.devices = digests("devices", 1, 64)
        digests("tls", 0, 16)
        if found["hpke"] is not None:
            base64(found["hpke"], 4096)
        self.not_before, self.not_after = found["not_before"], found["not_after"]
        require(all(type(one) is int and 0 <= one < 2**53 for one in (self.not_before, self.not_after)), code, "times")
        require(0 < self.not_after - self.not_before <= 3600, code, "times")
        self.spki = base64(found["key"], 256)
        require(self.spki and found["hpke"] != "", code, "an empty key")

    def digest(self, gpu_sha256):
        """D: what the processor is given."""
        return sha256(b"countersign/session/v1\0" + self.sha256 + gpu_sha256).digest()


def decoded(evidence):
    """Report and PEM of each device, as bytes."""
    code = "not_an_attestation"
    require(isinstance(evidence, list) and 0 < len(evidence) <= 64, code, "no evidence, or of too many devices")
    for one in evidence:
        require(isinstance(one, dict) and isinstance(one.get("arch"), str), code, "no evidence")
    return [tuple(base64(one.get(name), 1024 * 1024, code) for name in ("report", "certificate_chain")) for one in evidence]


def read_devices(evidence):
    """The keys of each device's first two certificates, as a statement has them: SPDM as examples/python/verify.py reads it."""
    code, found = "evidence_malformed", []
    for report, pem in evidence:
        chain = read_pem(utf8(pem, code), code)
        require(len(chain) > 1, code, "no second certificate")
        head = report[:2] == b"\x11\xe0" and report[37:39] == b"\x11\x60"
        opaque = 45 + le(report[42:45]) + 32 + 2
        require(head and opaque + le(report[opaque - 2 : opaque]) + 96 == len(report), "report_malformed")
        found.append([sha256(one.spki).hexdigest() for one in chain[:2]])
    require(all(len({one[i] for one in found}) == len(found) for i in (0, 1)), code, "a device stands twice")
    return found


def evidence_digest(evidence):
    """E: over reports and certificates of devices."""
    parts = [part for one in evidence for bytes_ in one for part in (u32(len(bytes_)), bytes_)]
    return sha256(b"".join([b"countersign/evidence/v1\0", u32(len(evidence)), *parts])).digest()


def read_raw(raw):
    """The timestamp of §2's text."""
    try:
        pairs = json.loads(raw, object_pairs_hook=tuple, parse_int=Number, parse_float=Number, parse_constant=refuse)
        found = once(pairs) if isinstance(pairs, tuple) else {}
    except (ValueError, RecursionError) as error:
        raise Fault("raw_malformed", str(error)) from error
    stream = found.pop("stream", (("events", Number(0)), ("sha256", "0" * 64)))
    right = isinstance(stream, tuple) and [name for name, _ in stream] == ["events", "sha256"]
    right = right and isinstance(stream[0][1], Number) and WHOLE.fullmatch(stream[0][1])
    right = right and type(stream[1][1]) is str and HEX_64.fullmatch(stream[1][1])
    require(right and found.keys() == {"request", "response", "timestamp"}, "raw_malformed")
    require(all(isinstance(found[one], tuple) for one in ("request", "response")), "raw_malformed")
    require(isinstance(found["timestamp"], Number) and WHOLE.fullmatch(found["timestamp"]), "raw_malformed")
    return int(found["timestamp"])


def batch_nonce(raw_hash, batch):
    """§8: the nonce that commits to the raw of this hash."""
    code = "batch_malformed"
    require(isinstance(batch, dict) and batch.keys() == {"salt", "leaf_index", "tree_size", "path"}, code, "members")
    index, size = batch["leaf_index"], batch["tree_size"]
    require(all(type(one) in (int, float) for one in (index, size)), code, "numbers")
    require(0 <= index < size <= 4096 and index % 1 == size % 1 == 0, code, "range")
    require(isinstance(batch["path"], list), code, "path")
    hashes = [batch["salt"], *batch["path"]]
    require(all(isinstance(one, str) and HEX_64.fullmatch(one) for one in hashes), code, "hashes")
    salt, *path = map(bytes.fromhex, hashes)

    def root(index, size, path):
        """§2.1.1 from above: the last hash of the path is the root of the half that the leaf is not in."""
        if size == 1:
            require(not path, code, "too long")
            return sha256(b"\0countersign/batch-leaf/v1\0" + salt + raw_hash).digest()
        require(path, code, "too short")
        half = 1 << (size - 1).bit_length() - 1
        if index < half:
            return sha256(b"\1" + root(index, half, path[:-1]) + path[-1]).digest()
        return sha256(b"\1" + path[-1] + root(index - half, size - half, path[:-1])).digest()

    top = root(int(index), int(size), path)
    return sha256(b"countersign/batch-nonce/v1\0" + int(size).to_bytes(8, "big") + top).digest()


def verify_session_checks(
    attestation,
    at,
    policy=None,
    collateral=None,
    reference=None,
    without_revocation=False,
    extra_roots=(),
    *,
    roots,
    session=None,
    expected_challenge=None,
    alone=False,
):
    """The checks of §6 and §7 of an attestation (its JSON text), or with `alone` of a session by itself.

    session: the statement of a session that was verified before. The result is that of verify_cpu, with form, raw_hash, raw_members and
    report_form before it: what §6 names as grounds. @raises Unusable: the reference
    """
    caller = Caller(at, policy, collateral, reference, without_revocation, extra_roots, roots)
    checks, seen = Checks(), {}

    def form():
        document = parse_json(attestation, "cpu_malformed" if alone else "not_json")
        require(isinstance(document, dict), "not_an_attestation")
        if alone:
            document = {"cpu": document, "evidence": document.get("gpu")}
        else:
            require(all(isinstance(document.get(one), str) for one in ("raw", "nonce", "token")), "not_an_attestation")
            require(HEX_64.fullmatch(document["nonce"]), "not_an_attestation")
            utf8(document["raw"], "not_an_attestation")
        document["evidence"] = decoded(document.get("evidence"))
        require(isinstance(document.get("cpu", {}), dict), "not_an_attestation")
        return document

    def raw_hash():
        digest, nonce = sha256(document["raw"].encode()).digest(), bytes.fromhex(document["nonce"])
        if "batch" not in document:
            return require(digest == nonce, "raw_hash_mismatch")
        require(batch_nonce(digest, document["batch"]) == nonce, "batch_proof_invalid")

    document = checks.run("form", [], form) or {}
    timestamp = int(at.timestamp()) if alone else None
    if not alone:
        checks.run("raw_hash", ["form"], raw_hash)
        timestamp = checks.run("raw_members", ["form"], lambda: read_raw(document["raw"]))
    devices = checks.run("report_form", ["form"], lambda: read_devices(document["evidence"]))
    member = document.get("cpu")
    if member is None and not alone:
        return checks.done
    short = not alone and "statement_sha256" in member and "type" not in member

    def read_signature():
        found = base64(member.get("signature"), 88)
        require(len(found) == 64, "cpu_malformed", "signature")
        return found

    def cpu_form():
        if short:
            require(member.keys() <= {"statement_sha256", "signature"}, "cpu_malformed", "more than the short form")
            held = Statement(session) if session is not None else None
            require(held is not None and held.sha256.hex() == member["statement_sha256"], "cpu_missing")
            return None, held, None, read_signature()
        evidence = Evidence(member)
        wanted = {"statement", "gpu"} if alone else {"statement", "gpu_sha256", "signature"}
        refused = {"signature"} if alone else {"gpu"}
        require(wanted <= member.keys() and not refused & member.keys(), "cpu_malformed", "members of a session")
        statement = Statement(member["statement"])
        if "launch" in member:
            right = sha256(utf8(member["launch"], "cpu_malformed")).hexdigest() if isinstance(member["launch"], str) else ""
            require(right == statement.launch, "cpu_malformed", "another launch file")
            require(is_launch_file(member["launch"]), "cpu_malformed", "no launch file")
        digest = None
        if "gpu_sha256" in member:
            digest = member["gpu_sha256"]
            require(isinstance(digest, str) and HEX_64.fullmatch(digest), "cpu_malformed", "gpu_sha256")
        if alone:
            computed = evidence_digest(document["evidence"]).hex()
            require(digest in (None, computed), "cpu_malformed", "another gpu_sha256")
            require(len(statement.devices) <= len(document["evidence"]), "cpu_devices_mismatch", "a device did not sign")
            digest = computed
        return evidence, statement, bytes.fromhex(digest), None if alone else read_signature()

    parts = checks.run("cpu_form", ["form"], cpu_form)
    evidence, statement, gpu_sha256, signature = parts or (None, None, None, None)

    def of_session(grounds):
        def binding():
            if evidence is not None:
                require(evidence.reports(statement.digest(gpu_sha256)), "cpu_binding_mismatch", "report data")
            if expected_challenge is not None:
                require(statement.challenge == expected_challenge, "cpu_binding_mismatch", "challenge")
            require(timestamp is None or statement.not_before <= timestamp <= statement.not_after, "session_expired")

        def answer():
            raw = sha256(document["raw"].encode()).digest()
            parts = [statement.sha256, raw, evidence_digest(document["evidence"])]
            data = b"countersign/answer/v1\0" + b"".join(parts)
            require(ecdsa(key_of(statement.spki), "secp256r1", signature, data, SHA256()), "answer_signature_invalid")

        def known():
            require(all(name in statement.devices for _, name in devices), "cpu_devices_mismatch")

        checks.run("cpu_binding", grounds, binding)
        checks.run("cpu_devices", ["cpu_binding", "report_form"], known)
        if not alone:
            checks.run("cpu_answer", ["cpu_binding", "report_form", "raw_hash"], answer)

    if short:
        for name in ("cpu_signature", "cpu_chain", "cpu_identity", "cpu_revocation"):
            checks.skip(name)
        of_session(["cpu_form"])
        for name in ("cpu_mode", "cpu_tcb", "cpu_measurement", "cpu_software"):
            checks.skip(name)
    else:
        check_evidence(checks, evidence, caller, of_session, seen, statement.launch if statement else None)
    return checks.done


# ---- questions and answers -------------------------------------------------------------------------------------------


def answer(question, roots):
    """{"member" | "attestation" | "session_alone": JSON text, "at": time, …: as the functions above, bytes in hex or base64}

    Without a list of checks, but with "unusable", where the reference cannot be used.
    """
    given = {
        "at": datetime.fromisoformat(question["at"]),
        "policy": question.get("policy"),
        "collateral": question.get("collateral"),
        "reference": question.get("reference"),
        "without_revocation": question.get("without_revocation", False),
        "extra_roots": read_pem(question["extra_roots"], "roots") if question.get("extra_roots") else [],
        "roots": roots,
    }
    if given["collateral"] and "amd_crl" in given["collateral"]:
        given["collateral"]["amd_crl"] = b64decode(given["collateral"]["amd_crl"])
    if "member" in question:
        data = question.get("expected_report_data")
        data, seen = None if data is None else bytes.fromhex(data), {}
        checks = verify_cpu(question["member"], expected_report_data=data, seen=seen, **given)
        return {"checks": checks, "tcb_status": seen.get("tcb_status")}
    alone = "session_alone" in question
    text, challenge = question["session_alone" if alone else "attestation"], question.get("challenge")
    checks = verify_session_checks(text, session=question.get("session"), expected_challenge=challenge, alone=alone, **given)
    return {"checks": checks}


def main():
    roots = load_roots(sys.argv[1:])
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        try:
            verdict = answer(json.loads(line), roots)
        except Unusable as error:
            verdict = {"unusable": str(error)}
        print(json.dumps(verdict), flush=True)


if __name__ == "__main__":
    main()
