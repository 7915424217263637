"""
The compose file of a measured launch: the JSON of `docker compose config`, held against lists of what it may have. What
passes starts the named images with their own programs, gives the backend no way out, and has it load weights from
mounts of /run/weights only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..strict_json import JsonTextError, duplicate_member, ordered_names, parse, stringify

Json = Any
# Takes a value and its path, for the message. @raises JsonTextError
Rule = Callable[[Json, str], None]


@dataclass(frozen=True)
class Composed:
    images: Mapping[str, str]
    """By service, each `name@sha256:<64 hex>`; in the order of their names."""
    roots: Sequence[str]
    """Verity roots of the weights that the backend's container sees."""
    model: str | None
    """The root of those that the backend's command loads; None where no weights are mounted."""
    backend_url: str
    """The address by which the gateway asks the backend."""


MAX_DEPTH = 16
_PART = r"/[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_WEIGHTS = re.compile(rf"bind /run/weights/([0-9a-f]{{64}}) (/(?:models|weights)(?:{_PART}){{0,8}}) ro")
_MODEL_PATH = re.compile(rf"(?:{_PART}){{1,16}}")


def _bad(reason: str) -> JsonTextError:
    return JsonTextError(f"the compose file {reason}")


def _other_value(at: str) -> JsonTextError:
    return _bad(f"has another value in {at} than it may have")


# Rules. A member that is None is not set.


def _free(value: Json, at: str) -> None:
    pass


def _unset(value: Json, at: str) -> None:
    raise _other_value(at)


def _matching(pattern: str | re.Pattern[str]) -> Rule:
    compiled = re.compile(pattern)

    def rule(value: Json, at: str) -> None:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            raise _other_value(at)

    return rule


def _exactly(*values: Json) -> Rule:
    texts = {stringify(value) for value in values}

    def rule(value: Json, at: str) -> None:
        if stringify(value) not in texts:
            raise _other_value(at)

    return rule


def _list_of(item: Rule) -> Rule:
    def rule(value: Json, at: str) -> None:
        if not isinstance(value, list):
            raise _other_value(at)
        for index, one in enumerate(value):
            item(one, f"{at}[{index}]")

    return rule


def _members(rules: Mapping[str, Rule]) -> Rule:
    def rule(value: Json, at: str) -> None:
        if not isinstance(value, dict):
            raise _other_value(at)
        for name in ordered_names(value):
            path = f"{at}.{name}" if at else name
            if name not in rules:
                raise _bad(f"may not have {path}")
            if value[name] is not None:
                rules[name](value[name], path)

    return rule


def _variables(patterns: Mapping[str, str], unset: str = r"(?!)") -> Rule:
    """
    Variables that are set, by name. One without a value is not set: the guest's own environment has none of these.
    `unset`: names of others that may stand there without a value. Of no other, because that takes away what an image
    sets.
    """

    def rule(value: Json, at: str) -> None:
        if not isinstance(value, dict):
            raise _other_value(at)
        for name in ordered_names(value):
            is_set = value[name] is not None and value[name] != ""
            if name not in patterns and (is_set or re.fullmatch(unset, name) is None):
                raise _bad(f"may not have {at}.{name}")
            if not is_set:
                continue
            _matching(patterns[name])(value[name], f"{at}.{name}")

    return rule


_TEXT = _matching(r".+")
_MOUNT = _members(
    {
        "type": _TEXT,
        "source": _TEXT,
        "target": _TEXT,
        "read_only": _free,
        "bind": _members({"create_host_path": _free}),
        "volume": _members({}),
    }
)


def _mount_line(mount: Mapping[str, Json]) -> str:
    """A mount in one line: `bind SOURCE TARGET ro`."""
    read_only = " ro" if mount.get("read_only") is True else ""
    return f"{mount.get('type')} {mount.get('source')} {mount.get('target')}{read_only}"


def _mounts(is_known: Callable[[str], bool]) -> Rule:
    def rule(value: Json, at: str) -> None:
        _MOUNT(value, at)
        if not is_known(_mount_line(value)):
            raise _other_value(at)

    return _list_of(rule)


def _known(*lines: str) -> Rule:
    return _mounts(lambda line: line in lines)


# Lists.

_NUMBER = r"[0-9]{1,20}"
_WORD = r"[A-Za-z0-9_.,:*-]{1,256}"
_URL = r"https?://[A-Za-z0-9._:/-]{1,256}"
_LINE = r"[\x20-\x23\x25-\x7e]{1,1024}"
_OFF = "1"

_GATEWAY_VARIABLES = {
    "BACKEND_URL": r"http://backend:[0-9]{1,5}(/[a-z0-9]{1,16})?",
    "SECRETS": r"files|sealed",
    "LOG_LEVEL": _WORD,
    "RIM_URL": _URL,
    "OCSP_URL": _URL,
    "CORS_ORIGINS": _LINE,
    "CLIENT_ADDRESS_HEADER": _WORD,
    "AUDIT_LOG": r"/var/log/countersign/[A-Za-z0-9._-]{1,64}",
    "CANARY_EXPECT": _LINE,
    "CANARY_STOPS": _WORD,
    "SEALED": _WORD,
    "METRICS_HOST": _WORD,
    "TLS_CERT_FILE": _MODEL_PATH.pattern,
    "TLS_KEY_FILE": _MODEL_PATH.pattern,
    "BATCH": _WORD,
    **dict.fromkeys(
        (
            *("CANARY_INTERVAL_MS", "DRAIN_GRACE_MS", "METRICS_PORT", "ATTESTATION_STORE_BYTES", "ATTESTATION_TTL_MS"),
            *("ATTEST_TIMEOUT_MS", "BACKEND_TIMEOUT_MS", "MAX_ANSWER_BYTES", "MAX_BODY_BYTES", "MAX_HELD_BYTES"),
            "MAX_CONCURRENT_REQUESTS",
        ),
        _NUMBER,
    ),
}
_GATEWAY_UNSET = r"OTEL_[A-Z_]{1,64}|API_KEYS_FILE|BACKENDS_FILE|BACKEND_API_KEY_FILE|ATTESTATION_STORE_URL|REUSE_PORT"
_SIDECAR_VARIABLES = {
    "ATTESTER": r"auto|nvtrust|nvattest|native|nras",
    "LOG_LEVEL": _WORD,
    "SIGNERS": _WORD,
    "CPU_EVIDENCE": _WORD,
    "TSM_ENTRY": r"/run/tsm/countersign",
    "LAUNCH_FILE": r"/run/countersign/launch\.json",
    **dict.fromkeys(("KDS_URL", "PCS_URL", "RIM_URL", "OCSP_URL", "NRAS_URL", "https_proxy"), _URL),
    "no_proxy": _WORD,
}
_SIDECAR_UNSET = r"SELF_CHECK|NRAS_SERVICE_KEY_FILE|NVIDIA_ATTESTATION_SERVICE_KEY|READY_WITHOUT_ATTESTATION"
_BACKEND_VARIABLES = {
    "HF_HOME": r"/(models|tmp(/[a-z]{1,32})?)",
    "HF_MODULES_CACHE": r"/tmp/[a-z]{1,32}",
    "HF_HUB_OFFLINE": _OFF,
    "TRANSFORMERS_OFFLINE": _OFF,
    "HF_HUB_DISABLE_TELEMETRY": _OFF,
    "VLLM_NO_USAGE_STATS": _OFF,
    "DO_NOT_TRACK": _OFF,
    "VLLM_USE_V2_MODEL_RUNNER": r"[01]",
    "VLLM_LOGGING_LEVEL": _WORD,
    "OMP_NUM_THREADS": _NUMBER,
}


def _flags(names: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in names.split())


# Flags of vLLM and llama-server that load no code and no other weights, and send nothing elsewhere. These have one value,
_FLAGS = _flags("""host port model served-model-name max-model-len max-num-seqs max-num-batched-tokens dtype seed
    gpu-memory-utilization tensor-parallel-size pipeline-parallel-size quantization kv-cache-dtype max-logprobs
    uvicorn-log-level tool-call-parser reasoning-parser
    alias ctx-size parallel threads threads-batch batch-size n-predict""")
# and these have none.
_SWITCHES = _flags("""enable-expert-parallel enforce-eager enable-prefix-caching no-enable-prefix-caching
    enable-chunked-prefill no-enable-chunked-prefill no-enable-log-requests disable-uvicorn-access-log disable-log-stats
    enable-auto-tool-choice jinja no-webui no-warmup""")

_COMMON: Mapping[str, Rule] = {
    "image": _matching(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}"),
    "cap_drop": _exactly(["ALL"]),
    "security_opt": _exactly(["no-new-privileges:true"]),
    "logging": _members({"driver": _exactly("json-file"), "options": _members({"max-size": _free, "max-file": _free})}),
    "tmpfs": _list_of(_matching(r"/(tmp|home/vllm)(:[a-z0-9=,]{1,64})?")),
    "entrypoint": _unset,
    "command": _unset,
    **dict.fromkeys(("init", "read_only"), _exactly(True, False)),
    "restart": _matching(r"no|always|unless-stopped|on-failure(:[0-9]{1,4})?"),
    **dict.fromkeys(("ulimits", "pids_limit", "mem_limit", "memswap_limit", "stop_grace_period", "depends_on"), _free),
}


def _healthcheck(*test: str) -> Rule:
    times = dict.fromkeys(("interval", "timeout", "retries", "start_period", "disable"), _free)
    return _members({"test": _exactly(list(test)), **times})


def _networks(*names: str) -> Rule:
    return _members(dict.fromkeys(names, _members({})))


_CAPABILITIES = _list_of(_exactly("gpu", "compute", "utility"))
_DEVICE_IDS = _list_of(_matching(r"[A-Za-z0-9-]{1,64}"))
_DEVICE = {"driver": _exactly("nvidia"), "count": _free, "device_ids": _DEVICE_IDS, "capabilities": _CAPABILITIES}
_RESERVATIONS = _members({"devices": _list_of(_members(_DEVICE))})
_GPU = _members({"resources": _members({"reservations": _RESERVATIONS}), "placement": _members({})})
_TMPFS_OPTIONS = r"(,?((size|nr_inodes|mode|uid|gid)=[0-9]{1,12}[kmg]?|noexec|nosuid|nodev)(?=,|$)){1,16}"
_SWITCH = _matching(r"/dev/nvidia-nvswitch(ctl|[0-9])")
_REPORTS = "/sys/kernel/config/tsm/report"

# What each service may have. `ready` and `tsm` run programs of the sidecar's image.
_SERVICES: Mapping[str, Rule] = {
    "gateway": _members(
        {
            **_COMMON,
            "environment": _variables(_GATEWAY_VARIABLES, _GATEWAY_UNSET),
            "healthcheck": _healthcheck("CMD", "node", "gateway/healthcheck.ts", "tee,canary"),
            "networks": _networks("inside", "outside"),
            "ports": _free,
            "volumes": _known(
                "volume socket /run/countersign ro",
                "volume audit /var/log/countersign",
            ),
        }
    ),
    "sidecar": _members(
        {
            **_COMMON,
            "environment": _variables(_SIDECAR_VARIABLES, _SIDECAR_UNSET),
            "networks": _networks("attestation"),
            "deploy": _GPU,
            "devices": _list_of(_members({"source": _SWITCH, "target": _SWITCH, "permissions": _exactly("rwm")})),
            "volumes": _known(
                "volume socket /run/countersign",
                "volume sidecar-state /var/lib/countersign",
                f"bind {_REPORTS}/countersign /run/tsm/countersign",
                "bind /run/countersign/launch.json /run/countersign/launch.json ro",
            ),
        }
    ),
    "backend": _members(
        {
            **_COMMON,
            "environment": _variables(_BACKEND_VARIABLES),
            "entrypoint": _exactly(["vllm", "serve"]),
            "command": _list_of(_TEXT),
            "healthcheck": _healthcheck(
                "CMD",
                "python3",
                "-c",
                "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)",
            ),
            "networks": _networks("inside"),
            "deploy": _GPU,
            "shm_size": _free,
            "user": _matching(r"[0-9]{1,10}(:[0-9]{1,10})?"),
            "volumes": _mounts(lambda line: _WEIGHTS.fullmatch(line) is not None),
        }
    ),
    "ready": _members(
        {
            **_COMMON,
            "user": _exactly("0"),
            "cap_add": _exactly(["SYS_ADMIN", "SETUID", "SETGID"]),
            "entrypoint": _exactly(["sh", "deploy/ready/ready.sh", "--keep"]),
            "environment": _variables(
                {**_SIDECAR_VARIABLES, "READY_USER": r"10001:10000", "READY_WAIT_S": _NUMBER}, _SIDECAR_UNSET
            ),
            "healthcheck": _healthcheck("CMD-SHELL", "nvidia-smi conf-compute -grs | grep -Eiq ': *ready *$$'"),
            "networks": _networks("attestation"),
            "deploy": _GPU,
            "volumes": _known("volume socket /run/countersign ro"),
        }
    ),
    "tsm": _members(
        {
            **_COMMON,
            "user": _exactly("0"),
            "cap_add": _exactly(["CHOWN", "FOWNER", "DAC_OVERRIDE"]),
            "entrypoint": _exactly(["sh", "-c", "sh sidecar/cpu/tsm-entry.sh 10000 && exec sleep infinity"]),
            "environment": _variables(_SIDECAR_VARIABLES, _SIDECAR_UNSET),
            "healthcheck": _healthcheck("CMD-SHELL", 'test "$$(stat -c %g /run/tsm/countersign/outblob)" = 10000'),
            "network_mode": _exactly("none"),
            "volumes": _known(f"bind {_REPORTS} /run/tsm"),
        }
    ),
}
_NEEDED = ("gateway", "sidecar", "backend")


def _file_rules(project: str) -> Rule:
    """`project`: the name that Compose puts before those of networks and volumes."""

    def network(name: str, internal: Rule) -> Rule:
        return _members({"name": _exactly(f"{project}_{name}"), "ipam": _members({}), "internal": internal})

    options = _members({"type": _exactly("tmpfs"), "device": _exactly("tmpfs"), "o": _matching(_TMPFS_OPTIONS)})

    def volume(name: str) -> Rule:
        named = _exactly(f"{project}_{name}")
        return _members({"name": named, "driver": _exactly("local"), "driver_opts": options})

    return _members(
        {
            "name": _matching(r"[a-z0-9][a-z0-9_-]{0,63}"),
            "services": _members(_SERVICES),
            "networks": _members(
                {
                    "inside": network("inside", _exactly(True)),
                    "outside": network("outside", _free),
                    "attestation": network("attestation", _free),
                }
            ),
            "volumes": _members({name: volume(name) for name in ("socket", "audit", "sidecar-state")}),
        }
    )


def read_compose(text: str) -> Composed:
    """@raises JsonTextError naming what cannot be vouched for."""
    if re.fullmatch(r"[\x20-\x7e\n]*", text) is None:
        raise _bad("has characters other than printable ASCII")
    file = _parsed(text)
    _check_texts(file, "", 0)
    own = {name: file[name] for name in file if not name.startswith("x-")}
    if not isinstance(own.get("name"), str):
        raise _bad("has no name")
    _file_rules(own["name"])(own, "")
    services = _service_table(own)
    networks = own.get("networks")
    inside = networks.get("inside") if isinstance(networks, dict) else None
    if not isinstance(inside, dict) or inside.get("internal") is not True:
        raise _bad("lets the backend out: its network inside is not internal")
    for name in ("ready", "tsm"):
        if name in services and services[name]["image"] != services["sidecar"]["image"]:
            raise _bad(f"gives {name} another image than the sidecar")
    # Elsewhere the name `backend` would be asked of the network's DNS, which is the host's.
    if "inside" not in services["gateway"]["networks"]:
        raise _bad("has the gateway outside of the network of the backend")
    url = (services["gateway"].get("environment") or {}).get("BACKEND_URL")
    if not isinstance(url, str) or url == "":
        raise _bad("has no services.gateway.environment.BACKEND_URL")
    backend = services["backend"]
    targets = _targets_of(backend.get("volumes") or [])
    return Composed(
        images={name: services[name]["image"] for name in sorted(services)},
        roots=tuple(targets),
        model=_loaded(_model_of(backend.get("command") or []), targets),
        backend_url=url,
    )


def _parsed(text: str) -> Mapping[str, Json]:
    try:
        value = parse(text)
    except JsonTextError as cause:
        raise _bad("is not JSON") from cause
    if duplicate_member(text) is not None:
        raise _bad("is refused: a member appears twice")
    if not isinstance(value, dict):
        raise _bad("is not an object")
    return value


def _check_texts(value: Json, at: str, depth: int) -> None:
    """Compose takes `$` for a variable, unless it stands twice."""
    if depth > MAX_DEPTH:
        raise _bad(f"is nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        if re.fullmatch(r"[\x20-\x7e]*", value) is None:
            raise _bad(f"has other characters than printable ASCII in {at}")
        if "$" in value.replace("$$", ""):
            raise _bad(f"has a variable in {at}")
    if isinstance(value, dict):
        items = [(name, value[name]) for name in ordered_names(value)]
    else:
        items = [(str(index), one) for index, one in enumerate(value)] if isinstance(value, list) else []
    for name, one in items:
        if re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) is None:
            raise _bad(f"has a name that it may not have in {at or 'its text'}")
        _check_texts(one, f"{at}.{name}" if at else name, depth + 1)


def _service_table(own: Mapping[str, Json]) -> Mapping[str, Mapping[str, Json]]:
    """Without an image Compose would build one; without networks it would join one that has a way out."""
    table = own.get("services") or {}
    for name in _NEEDED:
        if not isinstance(table.get(name), dict):
            raise _bad(f"has no service {name}")
    for name, service in table.items():
        if not isinstance(service, dict) or service.get("image") is None:
            raise _bad(f"has no services.{name}.image")
        networks = service.get("networks")
        if service.get("network_mode") != "none" and not (isinstance(networks, dict) and networks):
            raise _bad(f"has no services.{name}.networks")
    services: Mapping[str, Mapping[str, Json]] = table
    return services


def _targets_of(volumes: Sequence[Mapping[str, Json]]) -> Mapping[str, str]:
    """The targets of the weights, by root."""
    targets: dict[str, str] = {}
    for volume in volumes:
        match = _WEIGHTS.fullmatch(_mount_line(volume))
        root, target = ("", "") if match is None else match.groups()
        is_nested = any(
            f"{other}/".startswith(f"{target}/") or f"{target}/".startswith(f"{other}/") for other in targets.values()
        )
        if is_nested or root in targets:
            raise _bad("mounts weights twice, or one above another")
        targets[root] = target
    return targets


def _model_of(words: Sequence[str]) -> str | None:
    """The model that the backend's command names: its first word, or the value of `--model`. None: it names none."""
    models: list[str] = []
    flag = "--model" if words and not words[0].startswith("-") else None
    for index, word in enumerate(words):
        other = _other_value(f"services.backend.command[{index}]")
        if flag is None:
            if word in _SWITCHES:
                continue
            if word not in _FLAGS:
                raise other
            flag = word
            continue
        if re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._:/@+-]{0,255}", word) is None:
            raise other
        if flag == "--model":
            models.append(word)
        flag = None
    if flag is not None or len(models) > 1:
        raise _other_value("services.backend.command")
    return models[0] if models else None


def _loaded(model: str | None, targets: Mapping[str, str]) -> str | None:
    """The root of the weights in which the model lies."""
    if not targets:
        return None
    is_path = model is not None and _MODEL_PATH.fullmatch(model) is not None
    for root, target in targets.items():
        if is_path and f"{model}/".startswith(f"{target}/"):
            return root
    raise _bad("has the backend load another model than the weights that are mounted")
