"""The programs of README.md, as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import countersign_verify
from recorded import recorded

README = Path(__file__).parents[1] / "README.md"


def test_the_lines_that_verify_run_and_say_what_failed(tmp_path: Path) -> None:
    program = re.search(r"```python\n(.*?)```", README.read_text(), re.S)
    assert program is not None
    assert len(program.group(1).splitlines()) == 8
    answer = tmp_path / "answer.json"
    answer.write_bytes(recorded("chat-whole").answer)
    source = str(Path(countersign_verify.__file__).parents[1])
    ran = subprocess.run(
        [sys.executable, "-c", program.group(1), answer], env={"PYTHONPATH": source}, capture_output=True, check=False
    )
    assert ran.stdout.startswith(b"simulated_root_refused report_chain: ")
    assert ran.returncode == 0


def test_every_name_that_is_imported_is_exported() -> None:
    for line in re.findall(r"^from countersign_verify import (.*)$", README.read_text(), re.M):
        for name in line.split(", "):
            assert hasattr(countersign_verify, name)
