"""No module of the package leads back to itself by imports, and no folder does: those of types and those inside functions included."""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

import countersign_verify

ROOT = Path(countersign_verify.__file__).parent
ENTRIES = {"", "__main__", "conformance"}
"""What programs begin with: the package itself and its commands. They import from every folder, and nothing imports them."""

Edges = Mapping[str, Iterable[str]]


def imports_of(root: Path) -> dict[str, set[str]]:
    """Of each module of a package, by its name without the package's, the modules that it names anywhere in its text."""
    files = {_name_of(file.relative_to(root)): file for file in root.rglob("*.py")}
    found: dict[str, set[str]] = {}
    for name, file in files.items():
        within = name.split(".") if name else []
        package = within if file.name == "__init__.py" else within[:-1]
        found[name] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level > 0:
                base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
                module = ".".join(part for part in base if part)
                for alias in node.names:
                    whole = f"{module}.{alias.name}".lstrip(".")
                    found[name].add(whole if whole in files else module)
    return found


def _name_of(file: Path) -> str:
    return ".".join(part for part in file.with_suffix("").parts if part != "__init__")


def folders_of(imports: Edges, packages: Iterable[str]) -> dict[str, set[str]]:
    """The same between folders, without the entry points. A package's own `__init__` is in its folder."""

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    found: dict[str, set[str]] = {}
    for module, targets in imports.items():
        if module not in ENTRIES:
            here = folder(module)
            found.setdefault(here, set()).update(folder(one) for one in targets if folder(one) != here)
    return found


def first_circle(edges: Edges) -> list[str]:
    """The first way from a name back to itself; empty without one."""
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name not in done:
            for target in sorted(edges.get(name, ())):
                if circle := visit(target, [*way, name]):
                    return circle
            done.add(name)
        return []

    return next((circle for name in sorted(edges) if (circle := visit(name, []))), [])


def packages_of(root: Path) -> set[str]:
    return {_name_of(file.relative_to(root)) for file in root.rglob("__init__.py")}


def test_no_module_leads_back_to_itself() -> None:
    imports = imports_of(ROOT)
    assert "proto.stream.fold" in imports["binding.exchange"]
    assert first_circle(imports) == []


def test_no_folder_leads_back_to_itself() -> None:
    folders = folders_of(imports_of(ROOT), packages_of(ROOT))
    assert "gpu" in folders["policy"]
    assert first_circle(folders) == []


def test_nothing_imports_what_programs_begin_with() -> None:
    imports = imports_of(ROOT)
    assert imports.keys() >= ENTRIES
    assert {one for targets in imports.values() for one in targets} & ENTRIES == set()


def test_proto_imports_nothing_else_of_ours() -> None:
    inside = {module: targets for module, targets in imports_of(ROOT).items() if module.startswith("proto.")}
    assert {one for targets in inside.values() for one in targets if not one.startswith("proto.")} == set()


def test_circles_of_types_and_inside_of_functions_are_found(tmp_path: Path) -> None:
    texts = {
        "__init__.py": "from .a.one import f\n",
        "a/__init__.py": "",
        "a/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..b import two\n",
        "a/other.py": "",
        "b/__init__.py": "",
        "b/two.py": "def g():\n    from ..a.other import x\n",
    }
    for file, text in texts.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    assert first_circle(imports_of(tmp_path)) == []
    assert first_circle(folders_of(imports_of(tmp_path), packages_of(tmp_path))) == ["a", "b", "a"]
    (tmp_path / "a/other.py").write_text("from . import one\n")
    assert first_circle(imports_of(tmp_path)) == ["a.one", "b.two", "a.other", "a.one"]
