"""The repository keeps its own house: what must not be in it, and what to write instead."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.support.prose import Count, count, hits_in, package_of
from tests.support.repository import REPOSITORY, python_files, text_of, tracked_files

PYTHON_MAX_LINES = 600
FILE_MAX_BYTES = 1 << 20
#: Fixtures and golden files are kept as they are.
DATA = ("tests/data/", "tests/golden/", "tests/contract/golden/")
THIS = Path("tests/contract/test_tidy.py")
#: For each package the most hits per 1,000 words that its prose may have; lower it, never raise it.
PROSE_LIMITS = Path("tests/contract/prose_limits.txt")
#: A limit this far above what a package has must be lowered.
PROSE_LIMIT_SLACK = 0.5
PROSE_LIMIT_MAX = 4.0
#: It states the rule about open work.
STATES_THE_RULES = Path("CONTRIBUTING.md")

#: A call that must not be made, in which files, and what to write instead.
BANNED_CALLS = [
    (r"\btime\.sleep\(", "wait for a condition: tests/support/waiting.py, or a timer of the loop"),
    (r"\bassert True\b", "assert something that can be false"),
    (r"\bget_event_loop\(", "asyncio.get_running_loop()"),
    (r"\bos\.system\(", "subprocess.run([...])"),
    (r"\bshell=True\b", "a list of arguments"),
    (r"\btempfile\.mktemp\(", "tempfile.mkstemp or TemporaryDirectory"),
    (r"\byaml\.load\(", "yaml.safe_load"),
    (r"\bdatetime\.(utcnow|utcfromtimestamp)\(", "datetime.now(UTC)"),
    (r"\bpytest\.mark\.skip\b(?!if)", "skipif with a reason that can be false"),
    (r"\bpytest\.mark\.xfail\b", "a test of what is so, or none"),
    (r"^\s*except:\s*$", "except with the errors that are meant"),
]

#: As above, in what we ship; a test's child may do it.
BANNED_IN_THE_PRODUCT = [
    (r"\bos\.fork\(", "subprocess.Popen: gRPC and Spark do not survive a fork"),
    (r"\bmultiprocessing\b", "subprocess.Popen: gRPC and Spark do not survive a fork"),
]

_ENGINE = Path("services/worker/drover_worker/engine")
#: One forks before it has threads, gRPC channels or a JVM; the other handles forks of plugins.
FORKS = {_ENGINE / "plugins/validation_process.py", _ENGINE / "forked_processes.py"}

#: As above, in tests; a loop of the helpers has its own pause.
BANNED_IN_TESTS = [
    (
        r"\basyncio\.sleep\((?!0\))",
        "wait for a condition: wait_until_async, or pause in a loop (tests/support/waiting.py)",
    ),
]
WAITS = Path("tests/support/waiting.py")

OPEN_WORK = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
HOME_PATH = re.compile(r"(?<![\w.~$}-])/(?:home|Users)/[A-Za-z]|(?<![\w.])/root/")
REGISTRY_HOST = re.compile(
    r"--(?:extra-)?index-url|\bpypi\.org|\bpythonhosted\.org|\bdocker\.io/|\bghcr\.io/|\bquay\.io/"
    r"|\bproxy\.golang\.org|\bartifactory\b|\bregistry\.[\w.-]+\.(?:com|org|io|net|dev|cloud)\b",
    re.IGNORECASE,
)


def none_of(faults: Iterable[str]) -> None:
    found = sorted(faults)
    assert not found, "\n" + "\n".join(found)


@cache
def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked_files():
        if not str(path).startswith(DATA) and path != THIS:
            text = text_of(path)
            if text is not None:
                found.append((path, text))
    return found


def matches(pattern: re.Pattern[str], files: Iterable[tuple[Path, str]]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:100]}"
        for path, text in files
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_there_is_a_repository_to_check() -> None:
    names = {str(path) for path in tracked_files()}
    assert {"pyproject.toml", "Makefile", "shared/drover/errors.py"} <= names
    assert len(python_files("shared", "services")) > 40


def test_no_work_is_left_open() -> None:
    files = [(path, text) for path, text in texts() if path != STATES_THE_RULES]
    none_of(matches(OPEN_WORK, files))


@pytest.mark.parametrize(("pattern", "instead"), BANNED_CALLS, ids=[b[0] for b in BANNED_CALLS])
def test_banned_calls(pattern: str, instead: str) -> None:
    files = [(path, text_of(path) or "") for path in python_files() if path != THIS]
    none_of(f"{place}  -> {instead}" for place in matches(re.compile(pattern, re.M), files))


@pytest.mark.parametrize(
    ("pattern", "instead"), BANNED_IN_THE_PRODUCT, ids=[b[0] for b in BANNED_IN_THE_PRODUCT]
)
def test_banned_in_the_product(pattern: str, instead: str) -> None:
    paths = (path for path in python_files("shared", "services") if path not in FORKS)
    files = [(path, text_of(path) or "") for path in paths]
    none_of(f"{place}  -> {instead}" for place in matches(re.compile(pattern, re.M), files))


@pytest.mark.parametrize(
    ("pattern", "instead"), BANNED_IN_TESTS, ids=[b[0] for b in BANNED_IN_TESTS]
)
def test_banned_in_tests(pattern: str, instead: str) -> None:
    files = [
        (path, text_of(path) or "") for path in python_files("tests") if path not in {THIS, WAITS}
    ]
    none_of(f"{place}  -> {instead}" for place in matches(re.compile(pattern, re.M), files))


def test_python_files_are_small_enough_to_read() -> None:
    none_of(
        f"{path} has {lines} lines: split it (at most {PYTHON_MAX_LINES})"
        for path in python_files()
        if (lines := len((text_of(path) or "").splitlines())) > PYTHON_MAX_LINES
    )


def test_no_file_is_large() -> None:
    none_of(
        f"{path} has {size} bytes"
        for path in tracked_files()
        if (size := (REPOSITORY / path).stat().st_size) > FILE_MAX_BYTES
    )


def test_no_path_of_one_machine() -> None:
    none_of(matches(HOME_PATH, texts()))


def test_no_registry_hosts() -> None:
    """The environment, not the repository, selects package and image registries."""
    none_of(matches(REGISTRY_HOST, texts()))


def test_text_files_are_clean() -> None:
    faults = []
    for path, text in texts():
        if "\r" in text:
            faults.append(f"{path} has carriage returns")
        if text and not text.endswith("\n"):
            faults.append(f"{path} lacks its last newline")
        if re.search(r"[ \t]+$", text, re.MULTILINE) and path.suffix not in {".txt", ".md"}:
            faults.append(f"{path} has trailing white space")
        if "\t" in text and path.suffix in {".py", ".proto", ".toml", ".yml", ".yaml", ".json"}:
            faults.append(f"{path} has tabs")
    none_of(faults)


def test_no_stubs_are_committed() -> None:
    none_of(str(path) for path in tracked_files() if "_pb2" in path.name)


def prose_limits() -> dict[str, float]:
    lines = (text_of(PROSE_LIMITS) or "").splitlines()
    pairs = (line.split() for line in lines if line and not line.startswith("#"))
    return {package: float(limit) for limit, package in pairs}


def prose_counts() -> dict[str, Count]:
    """Words and hits of each package."""
    totals: dict[str, Count] = {}
    for path, text in texts():
        if (package := package_of(path)) is not None:
            words, hits = totals.get(package, (0, 0))
            more = count(path, text)
            totals[package] = Count(words + more.words, hits + more.hits)
    return totals


def test_prose_names_actor_and_object() -> None:
    """Comments, docstrings, messages and pages; the limits only go down."""
    limits = prose_limits()
    faults = []
    for package, found in prose_counts().items():
        limit = limits.get(package, 0.0)
        if found.per_thousand > limit:
            places = [
                hit
                for path, text in texts()
                if package_of(path) == package
                for hit in hits_in(path, text)
            ]
            faults.append(
                f"{package} has {found.per_thousand:.1f} phrases per 1,000 words that hide who "
                f"does what, its limit is {limit:.1f}; reword some of: {'; '.join(places[:10])}"
            )
        elif limit > found.per_thousand + PROSE_LIMIT_SLACK:
            lower = f"{found.per_thousand + 0.05:.1f}"
            faults.append(f"{PROSE_LIMITS}: lower the limit of {package} from {limit} to {lower}")
    none_of(faults)


def test_limits_of_prose_belong_to_packages_and_are_low() -> None:
    counts = prose_counts()
    limits = prose_limits()
    assert limits.keys() == counts.keys(), "one line for each package"
    none_of(f"{name}: {limit}" for name, limit in limits.items() if limit > PROSE_LIMIT_MAX)


def test_phrases_are_found_in_comments_docstrings_messages_and_pages() -> None:
    program = (
        '"""What a caller is told."""\n'
        'log("the worker goes on anyway")  # somebody\n'
        'short = "told"\n'
    )
    assert [hit.split(": ")[1] for hit in hits_in(Path("a.py"), program)] == [
        *("somebody", "told", "goes on"),
    ]
    page = "Nobody [told](told.md) `somebody`.\n```\ntold\n```\n"
    assert count(Path("a.md"), page) == Count(words=2, hits=2)
