"""Bundles: what is kept of them, what is computed once, and that no other bundle, time or policy makes a compact attestation valid."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from datetime import timedelta
from hashlib import sha256
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import pytest

from compact import compact_of, name_of
from countersign_verify import (
    Bundle,
    Bundles,
    CheckFailure,
    Policy,
    VerificationError,
    appraise_attestation,
    create_collateral,
    verify_attestation,
    verify_many,
)
from countersign_verify.gpu import device_evidence
from countersign_verify.gpu.spdm import report
from countersign_verify.token import token
from recorded import AT, case, options, text


def sent(name: str = "chat-whole") -> dict[str, Any]:
    attestation: dict[str, Any] = json.loads(text(case(f"expected_exchange.pass.{name}")["attestation_file"]))
    return attestation


def batched() -> tuple[dict[str, Any], str]:
    """The compact attestation of a batch, and its bundle."""
    vector = case("bundle.pass.batch")
    [file] = vector["options"]["bundle_files"].values()
    return vector["attestation"], text(file)


def code_of(attestation: object, bundles: Bundles | None, **given: Any) -> str | None:
    """The code of the first check that failed; None: it is valid."""
    found = appraise_attestation(attestation, **{**options(), "bundles": bundles, **given})
    return next((check.code for check in found.checks if check.status == "fail"), None)


# What is kept.


def test_a_bundle_is_found_by_its_hash_as_one_object() -> None:
    bundles = Bundles()
    name = bundles.add("{}\n")
    assert name == sha256(b"{}\n").hexdigest()
    found = bundles.find(name)
    assert isinstance(found, Bundle)
    assert found.text == "{}\n"
    assert bundles.add("{}\n") == name
    assert bundles.find(name) is found
    assert bundles.find("00" * 32) is None


def test_what_is_served_under_another_hash_is_not_kept() -> None:
    served = {"right": "forged"}
    bundles = Bundles(lambda _: served["right"])
    name = name_of("right")
    for _ in range(2):
        with pytest.raises(CheckFailure) as failure:
            bundles.find(name)
        assert failure.value.code == "bundle_mismatch"
    assert bundles.find(bundles.add("forged")) is not None
    served["right"] = "right"
    found = bundles.find(name)
    assert found is not None
    served["right"] = "forged"
    assert bundles.find(name) is found


@pytest.mark.parametrize("failing", [lambda _: None, lambda _: 1 / 0, lambda _: {}["away"]])
def test_a_bundle_that_cannot_be_loaded_is_unavailable_and_asked_for_again(failing: Callable[[str], Any]) -> None:
    bundles = Bundles(failing)
    name = name_of("text")
    assert bundles.find(name) is None
    assert bundles.find(name) is None
    assert bundles.loading(lambda _: "text").find(name) is not None
    assert bundles.find(name) is not None


def test_a_text_that_is_too_long_is_malformed() -> None:
    long = "\U0001f600" * (1024 * 1024)
    bundles = Bundles(lambda _: long + "a")
    assert bundles.add(long)
    for find in (lambda: bundles.add(long + "a"), lambda: bundles.find(name_of(long + "a"))):
        with pytest.raises(CheckFailure) as failure:
            find()
        assert failure.value.code == "bundle_malformed"


def test_of_ten_thousand_bundles_the_last_are_kept() -> None:
    loads: list[str] = []
    texts = {name_of(str(i)): str(i) for i in range(10_000)}

    def load(name: str) -> str:
        loads.append(name)
        return texts[name]

    bundles = Bundles(load)
    alive: WeakSet[Bundle] = WeakSet()
    first, *others = texts
    for name in others:
        for one in (bundles.find(first), bundles.find(name)):
            assert one is not None
            alive.add(one)
        assert len(alive) <= 65
    del one
    assert len(alive) == 64
    assert loads == [first, *others]


def test_of_large_bundles_sixteen_million_characters_are_kept() -> None:
    bundles = Bundles()
    names = [bundles.add(f"{i:02}" + " " * (1024 * 1024 - 2)) for i in range(40)]
    assert [bundles.find(name) is not None for name in names] == [False] * 24 + [True] * 16


def test_threads_that_need_the_same_bundle_load_it_once() -> None:
    name = name_of("text")
    all_ask, loads = threading.Barrier(8), []
    found: list[Bundle | None] = []

    def load(name: str) -> str:
        loads.append(name)
        all_ask.wait(10)
        return "text"

    bundles = Bundles(load)

    def find(first: bool) -> None:
        if not first:
            all_ask.wait(10)
        found.append(bundles.find(name))

    threads = [threading.Thread(target=find, args=(i == 0,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert loads == [name]
    assert len(found) == 8
    assert len({id(one) for one in found}) == 1


def test_who_waits_for_a_load_that_is_interrupted_loads_it_then() -> None:
    name = name_of("text")
    waits, interrupted = threading.Event(), []
    loads: list[str] = []
    found: list[Bundle | None] = []

    def load(name: str) -> str:
        loads.append(name)
        if len(loads) == 1:
            waits.wait(10)
            raise CancelledError
        return "text"

    bundles = Bundles(load)

    def first() -> None:
        try:
            bundles.find(name)
        except CancelledError as error:
            interrupted.append(error)

    threads = [threading.Thread(target=first), threading.Thread(target=lambda: found.append(bundles.find(name)))]
    threads[0].start()
    while not loads:
        pass
    threads[1].start()
    waits.set()
    for thread in threads:
        thread.join(10)
    assert len(interrupted) == 1
    assert [one is not None for one in found] == [True]
    assert len(loads) == 2


# What is verified.


def test_a_compact_attestation_is_the_whole_one_with_its_bundle() -> None:
    whole = sent()
    compact, bundle = compact_of(whole)
    bundles = Bundles()
    bundles.add(bundle)
    for given in (compact, json.dumps(compact), json.dumps(json.dumps(compact))):
        verified = verify_attestation(given, **options(), bundles=bundles)
        assert verified.attestation.to_dict() == whole
        assert verify_attestation(json.dumps(verified.attestation.to_dict()), **options()).level == verified.level
        assert [check.name for check in verified.checks][:3] == ["form", "bundle", "raw_hash"]
    assert "bundle" not in [check.name for check in verify_attestation(whole, **options()).checks]


def test_without_its_bundle_it_is_incomplete() -> None:
    compact, bundle = compact_of(sent())
    for bundles in (None, Bundles(), Bundles(lambda _: None)):
        found = appraise_attestation(compact, **options(), bundles=bundles)
        assert (found.valid, found.incomplete, found.level) == (False, True, "none")
        assert [(one.name, one.code) for one in found.checks if one.status == "fail"] == [
            ("bundle", "bundle_unavailable")
        ]
        assert found.claims.devices == ()
    wrong = compact | {"raw": compact["raw"].replace("Hello", "Hullo")}
    assert not appraise_attestation(wrong, **options()).incomplete
    assert code_of(compact, Bundles(lambda _: bundle)) is None


def changed(change: Callable[[dict[str, Any]], object]) -> str:
    members = {name: sent()[name] for name in ("token", "evidence")}
    return json.dumps(change(members))


@pytest.mark.parametrize(
    ("bundle", "code"),
    [
        (changed(lambda of: of), None),
        (changed(lambda of: of).replace(": ", " :  "), None),
        (changed(lambda of: of)[:-1], "bundle_malformed"),
        (changed(lambda of: [of]), "bundle_malformed"),
        (changed(lambda of: {}), "bundle_malformed"),
        (changed(lambda of: of | {"nonce": "00"}), "bundle_malformed"),
        (changed(lambda of: of | {"token": ""}), "bundle_malformed"),
        (changed(lambda of: of | {"token": None}), "bundle_malformed"),
        (changed(lambda of: of | {"evidence": []}), "bundle_malformed"),
        (changed(lambda of: of | {"evidence": [of["evidence"][0] | {"arch": ""}]}), "bundle_malformed"),
        (changed(lambda of: {"token": of["token"]}), "bundle_malformed"),
        (changed(lambda of: {"evidence": of["evidence"]}), "bundle_malformed"),
        (changed(lambda of: of | {"cpu": {"statement": "{}"}}), "bundle_malformed"),
        (changed(lambda of: of | {"cpu": None}), "bundle_malformed"),
        (changed(lambda of: of).replace('{"token"', '{"evidence": [], "token"'), "bundle_malformed"),
        (changed(lambda of: of | {"token": "[]"}), "token_malformed"),
        (changed(lambda of: of | {"evidence": sent("responses-whole")["evidence"]}), "report_nonce_mismatch"),
        (changed(lambda of: of | {"token": sent("responses-whole")["token"]}), "token_nonce_mismatch"),
    ],
)
def test_what_a_bundle_must_be(bundle: str, code: str | None) -> None:
    compact, good = compact_of(sent())
    named, _ = compact_of(sent(), bundle)
    bundles = Bundles()
    bundles.add(bundle)
    assert code_of(named, bundles) == code
    assert code_of(compact, Bundles(lambda _: good)) is None


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"token": sent()["token"]}, "bundle_malformed"),
        ({"evidence": sent()["evidence"]}, "bundle_malformed"),
        ({"token": sent()["token"], "evidence": sent()["evidence"]}, "bundle_malformed"),
        ({"cpu": {"statement_sha256": "00" * 32, "signature": "AAAA"}}, "bundle_malformed"),
        ({"token": ""}, "not_an_attestation"),
        ({"bundle": "AB" * 32}, "not_an_attestation"),
        ({"bundle": 1}, "not_an_attestation"),
        ({"bundle": None}, "not_an_attestation"),
        ({"bundles": "00" * 32}, "unsigned_member"),
    ],
)
def test_each_member_is_in_one_of_the_two_places(change: dict[str, Any], code: str) -> None:
    compact, bundle = compact_of(sent())
    assert code_of(compact | change, Bundles(lambda _: bundle)) == code
    assert code_of(compact, Bundles(lambda _: bundle)) is None


SESSION = {"type": "SEV_SNP", "report": "AAAA", "statement": '{"version":1}'}
SHORT = {"statement_sha256": name_of(SESSION["statement"]), "signature": "AAAA"}


@pytest.mark.parametrize(
    ("cpu", "short", "code"),
    [
        (SESSION, SHORT, "cpu_malformed"),
        (SESSION, SHORT | {"statement_sha256": name_of('{"version":2}')}, "bundle_mismatch"),
        (SESSION, SHORT | {"statement_sha256": 1}, "bundle_malformed"),
        (SESSION, SHORT | {"signature": None}, "bundle_malformed"),
        (SESSION, SHORT | SESSION, "bundle_malformed"),
        (SESSION, None, "bundle_malformed"),
        (SESSION | {"signature": "AAAA"}, SHORT, "bundle_malformed"),
        (SESSION | {"statement": 1}, SHORT, "bundle_malformed"),
    ],
)
def test_a_session_of_its_own_bundle_is_the_one_that_is_named(cpu: object, short: object, code: str) -> None:
    bundle = json.dumps({"cpu": cpu})
    attestation = sent() | {"bundle": name_of(bundle)} | ({} if short is None else {"cpu": short})
    assert code_of(attestation, Bundles(lambda _: bundle)) == code
    assert code_of(sent(), None) is None


def test_leaves_of_one_batch_may_name_different_bundles() -> None:
    compact, bundle = batched()
    same = json.dumps(json.loads(bundle), indent=1)
    other = json.dumps(json.loads(compact_of(sent())[1]))
    bundles = Bundles()
    names = [bundles.add(text) for text in (bundle, same, other)]
    assert len(set(names)) == 3
    codes = [code_of(compact | {"bundle": name}, bundles) for name in (*names, names[0])]
    assert codes == [None, None, "token_nonce_mismatch", None]


def test_a_known_bundle_expires_and_each_policy_is_asked_anew() -> None:
    compact, bundle = batched()
    bundles = Bundles()
    bundles.add(bundle)
    assert code_of(compact, bundles) is None
    assert code_of(compact, bundles, at=AT + timedelta(days=30)) == "revocation_invalid"
    assert code_of(compact, bundles, simulated_root=None) == "simulated_root_refused"
    assert code_of(compact, bundles, policy=Policy(max_batch=1)) == "policy_refused"
    assert code_of(compact, bundles, policy=Policy(min_level="gpu")) == "policy_refused"
    assert code_of(compact, bundles, collateral=create_collateral()) == "revocation_unavailable"
    assert code_of(compact, bundles) is None


def test_what_depends_on_the_bundle_only_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict.fromkeys(("parse_report", "ecdsa_verify_raw", "_read_shape"), 0)

    def counted(module: ModuleType, name: str) -> Callable[..., Any]:
        before = getattr(module, name)

        def call(*given: Any) -> Any:
            counts[name] += 1
            return before(*given)

        return call

    for module, name in ((device_evidence, "parse_report"), (report, "ecdsa_verify_raw"), (token, "_read_shape")):
        monkeypatch.setattr(module, name, counted(module, name))
    for name in ("_inputs", "_parsed"):
        monkeypatch.setattr(device_evidence, name, WeakKeyDictionary())
    compact, bundle = batched()
    bundles = Bundles()
    bundles.add(bundle)
    assert [code_of(compact, bundles) for _ in range(5)] == [None] * 5
    assert counts == {"parse_report": 1, "ecdsa_verify_raw": 1, "_read_shape": 1}


def test_many_are_appraised_as_the_caller_asks_for_them() -> None:
    taken: list[object] = []

    def inputs() -> Iterator[object]:
        for value in (sent(), batched()[0], "no JSON", batched()[0]):
            taken.append(value)
            yield value

    bundles = Bundles()
    bundles.add(batched()[1])
    many = verify_many(inputs(), **options(), bundles=bundles)
    assert next(many).report.valid
    assert len(taken) == 1
    assert [(one.index, one.report.valid) for one in many] == [(1, True), (2, False), (3, True)]


def test_a_signature_that_does_not_verify_is_never_known() -> None:
    vector = case("report_signature.fail.bit-turned")
    compact, bundle = compact_of(vector["attestation"])
    bundles = Bundles()
    bundles.add(bundle)
    assert [code_of(compact, bundles) for _ in range(3)] == ["report_signature_invalid"] * 3


def test_an_option_that_is_no_bundles_is_the_callers_error() -> None:
    with pytest.raises(TypeError, match="bundles"):
        appraise_attestation(sent(), bundles={})  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="bundle"):
        verify_attestation(compact_of(sent())[0], **options())
