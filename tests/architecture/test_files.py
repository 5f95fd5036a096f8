"""Rules for the files: size, what may be imported where, what tests may not do, what the text may not hold."""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.architecture.repository import ROOT, python_files, text_files

STANDARD_LIBRARY_ONLY = ("ring_mesh", "sparkd/core", "runtime")
SOURCE = {".py", ".sh", ""}
# How functions are called that fail a test.
ASSERTIONS = ("raises", "warns", "fail", "assert_", "check_", "expect_", "until", "wait_", "eventually")
Rule = Callable[[Path, str], Iterator[str]]


def too_long(file: Path, text: str) -> Iterator[str]:
    """More lines than one can take in: 250 in the core, 400 anywhere else."""
    limit = 250 if file.is_relative_to("sparkd/core") else 400
    lines = len(text.splitlines())
    if lines > limit:
        yield f"{lines} lines, of at most {limit}"


def imports(text: str) -> Iterator[str]:
    """Full names of the modules that are imported, and of what is imported from them."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def beyond_the_standard_library(file: Path, text: str) -> Iterator[str]:
    """Pure packages and what runs in the engine's environment cannot count on any package being installed."""
    if not any(file.is_relative_to(package) for package in STANDARD_LIBRARY_ONLY):
        return
    own = {"ring_mesh", "sparkd"} if file.is_relative_to("sparkd") else {file.parts[0]}
    for name in imports(text):
        root = name.partition(".")[0]
        if root not in sys.stdlib_module_names and root not in own:
            yield f"imports {name}, which is not of the standard library"


def second_http_client(file: Path, text: str) -> Iterator[str]:
    """Requests leave the daemon by one door, where deadlines and certificates are."""
    doors = ("sparkd/peers/client.py", "sparkd/cli")
    if not file.is_relative_to("sparkd") or any(file.is_relative_to(door) for door in doors):
        return
    for name in imports(text):
        if name.startswith(("http.client", "urllib.request")):
            yield f"imports {name} outside of {' and '.join(doors)}"


def mocks(file: Path, text: str) -> Iterator[str]:
    """A mock agrees with whatever it is told; fakes hold state and refuse what the real thing refuses."""
    for node in ast.walk(ast.parse(text)):
        words = []
        if isinstance(node, ast.Attribute):
            words = [node.attr, node.value.id if isinstance(node.value, ast.Name) else ""]
        elif isinstance(node, ast.Name):
            words = [node.id]
        elif isinstance(node, ast.ImportFrom):
            words = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            words = [alias.name for alias in node.names]
        if {"unittest.mock", "mock", "MagicMock", "AsyncMock", "mocker"} & set(words):
            yield f"line {getattr(node, 'lineno', 0)}: a mock"


def asserts_nothing(file: Path, text: str) -> Iterator[str]:
    """A test without an assertion passes whatever the code does; a wait that fails at its deadline is one too."""
    if not file.is_relative_to("tests"):
        return
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # A helper in the same file may do it for the test.
    helpers = {function.name for function in functions if asserts(function, set())}
    for function in functions:
        if function.name.startswith("test_") and not asserts(function, helpers):
            yield f"line {function.lineno}: {function.name} asserts nothing"


def asserts(function: ast.FunctionDef | ast.AsyncFunctionDef, helpers: set[str]) -> bool:
    """Whether there is an assertion in the function, or a call of something that is one."""
    for node in ast.walk(function):
        name = ""
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node, ast.Assert) or name.startswith(ASSERTIONS) or name in helpers:
            return True
    return False


def place_of_the_checkout(file: Path, text: str, root: Path = ROOT) -> Iterator[str]:
    """The repository's place on one machine means nothing on another."""
    pattern = re.compile(rf"(?<![\w./-]){re.escape(str(root))}(?![\w.-])")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line):
            yield f"line {number}: a path of this machine"


PYTHON_RULES: tuple[Rule, ...] = (beyond_the_standard_library, second_http_client, mocks, asserts_nothing)


@pytest.mark.parametrize("rule", PYTHON_RULES, ids=lambda rule: rule.__name__)
def test_python_files_keep_the_rule(rule: Rule) -> None:
    assert [f"{file}: {fault}" for file, text in python_files() for fault in rule(file, text)] == []


def test_source_files_are_short() -> None:
    sources = [(file, text) for file, text in text_files() if file.suffix in SOURCE and file.name != "LICENSE"]

    assert [f"{file}: {fault}" for file, text in sources for fault in too_long(file, text)] == []
    assert len(sources) > 20


def test_no_file_names_the_place_of_the_checkout() -> None:
    assert [f"{file}: {fault}" for file, text in text_files() for fault in place_of_the_checkout(file, text)] == []


@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        (too_long, "sparkd/core/x.py", "x = 1\n" * 251),
        (too_long, "sparkd/host/x.py", "x = 1\n" * 401),
        (beyond_the_standard_library, "sparkd/core/x.py", "import numpy"),
        (beyond_the_standard_library, "runtime/probe/x.py", "from ring_mesh import plan"),
        (beyond_the_standard_library, "ring_mesh/x.py", "def f():\n    import sparkd.core"),
        (second_http_client, "sparkd/host/x.py", "import http.client"),
        (second_http_client, "sparkd/reconcile/x.py", "from urllib import request"),
        (mocks, "tests/x.py", "from unittest import mock"),
        (mocks, "tests/x.py", "import unittest.mock"),
        (mocks, "tests/x.py", "def test_x(mocker): mocker.patch('x')"),
        (asserts_nothing, "tests/x.py", "def test_x(): print(1)"),
        (asserts_nothing, "tests/x.py", "async def test_x():\n    await run()"),
        (place_of_the_checkout, "units/x", f"cd {ROOT}/sparkd"),
        (place_of_the_checkout, "units/x", f'at = "{ROOT}"'),
    ],
)
def test_a_rule_sees_its_violation(rule: Rule, file: str, text: str) -> None:
    assert list(rule(Path(file), text)) != []


@pytest.mark.parametrize(
    ("rule", "file", "text"),
    [
        (too_long, "sparkd/core/x.py", "x = 1\n" * 250),
        (too_long, "sparkd/host/x.py", "x = 1\n" * 400),
        (beyond_the_standard_library, "sparkd/core/x.py", "import re\nfrom ring_mesh import plan\nimport sparkd.core"),
        (beyond_the_standard_library, "sparkd/host/x.py", "import gi"),
        (second_http_client, "sparkd/peers/client.py", "import http.client"),
        (second_http_client, "sparkd/api/x.py", "from http import HTTPStatus"),
        (mocks, "tests/x.py", "def test_x(monkeypatch): monkeypatch.chdir('/')"),
        (asserts_nothing, "tests/x.py", "def test_x():\n    with pytest.raises(OSError): run()"),
        (asserts_nothing, "tests/x.py", "def test_x(): assert_kept(1)"),
        (asserts_nothing, "tests/x.py", "def kept(x):\n    assert x\n\ndef test_x(): kept(1)"),
        (place_of_the_checkout, "units/x", f"/usr/lib{ROOT} {ROOT}-other"),
    ],
)
def test_a_rule_lets_the_rest_pass(rule: Rule, file: str, text: str) -> None:
    assert list(rule(Path(file), text)) == []
