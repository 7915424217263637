"""Prints, as JSON, every route that openai-python's resources ask, each with the least answer that its types allow."""

import ast
import importlib
import json
import pkgutil
import typing
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

import openai.resources
from openai._legacy_response import HttpxBinaryResponseContent
from openai.types.audio import Transcription, Translation
from pydantic import BaseModel

METHODS = {"_get": "GET", "_post": "POST", "_put": "PUT", "_patch": "PATCH", "_delete": "DELETE", "_get_api_list": "GET"}
SIMPLE = {str: "text", bool: True, int: 0, float: 0.5, datetime: "2026-01-01T00:00:00Z", date: "2026-01-01"}
MAX_DEPTH = 20
TOO_DEEP = object()
# Their type depends on the request's response_format.
BY_FORMAT = {"/audio/transcriptions": Transcription, "/audio/translations": Translation}


def example(kind, depth=0):
    """The least value of a type; TOO_DEEP where it holds itself."""
    origin, args = get_origin(kind), get_args(kind)
    if depth > MAX_DEPTH:
        return TOO_DEEP
    if type(kind).__name__ == "TypeAliasType":
        return example(kind.__value__, depth)
    if origin is Annotated:
        return example(args[0], depth)
    if origin is Literal:
        return args[0]
    if origin is Union or type(kind).__name__ == "UnionType":
        if type(None) in args:
            return None
        return next((one for one in (example(arg, depth + 1) for arg in args) if one is not TOO_DEEP), TOO_DEEP)
    if origin is list:
        item = example(args[0], depth + 1)
        return [] if item is TOO_DEEP else [item]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields.items()
        needed = {field.alias or name: field for name, field in fields if field.is_required() or field.default_factory}
        members = {name: example(field.annotation, depth + 1) for name, field in needed.items()}
        return TOO_DEEP if TOO_DEEP in members.values() else members
    return SIMPLE.get(kind, {})


def routes():
    for info in pkgutil.walk_packages(openai.resources.__path__, "openai.resources."):
        module = importlib.import_module(info.name)
        names = vars(typing) | vars(module)
        for call in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr not in METHODS:
                continue
            words = {word.arg: word.value for word in call.keywords}
            path = call.args[0] if isinstance(call.args[0], ast.Constant) else call.args[0].args[0]
            method = ast.literal_eval(words["method"]).upper() if "method" in words else METHODS[call.func.attr]
            yield {"method": method, "path": path.value, **answer(path.value, words, names)}


def answer(path, words, names):
    evaluate = lambda node: eval(ast.unparse(node), dict(names))  # noqa: E731, S307 - openai's own source
    if "page" in words:
        return {"kind": "json", "body": {"object": "list", "data": [example(evaluate(words["model"]))], "has_more": False}}
    kind = BY_FORMAT.get(path) or evaluate(words["cast_to"])
    if kind is type(None):
        return {"kind": "nothing"}
    if kind is HttpxBinaryResponseContent:
        return {"kind": "bytes"}
    return {"kind": "json", "body": example(kind)}


if __name__ == "__main__":
    print(json.dumps(list(routes())))
