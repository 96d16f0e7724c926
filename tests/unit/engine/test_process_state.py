"""Whatever plugin code changes of the process, other connectors find it as it was."""

import subprocess
import sys
import textwrap

import pytest

#: Runs the change between two checks of the process, in a separate process.
_SCRIPT = """
import builtins, ctypes, decimal, gc, locale, logging, os, resource, shutil, socket, sys
import tempfile, threading, time, warnings
from decimal import Decimal
from drover_worker.engine.process_state import ProcessState

sock, _ = socket.socketpair()
logging.basicConfig()
state = ProcessState((sock.fileno(),))
assert not state.restore()

def change():
{change}

change()
changes = state.restore()
print(*changes.restored, sep=",")
print(*changes.lost, sep=",")
assert not state.restore() or changes.lost
{check}
"""


def restored(change: str, check: str = "") -> tuple[str, str]:
    """What was restored and what is lost after a change; ``check`` runs then."""
    script = _SCRIPT.format(change=textwrap.indent(textwrap.dedent(change), "    "), check=check)
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    restored, lost, *_ = ended.stdout.split("\n")
    return restored, lost


@pytest.mark.parametrize(
    ("change", "name", "check"),
    [
        ("sys.path.clear()", "sys.path", "import colorsys"),
        ("sys.path = []", "sys.path", "import colorsys"),
        ("sys.meta_path.clear()", "sys.meta_path", "import colorsys"),
        ("sys.path_hooks[:] = []", "sys.path_hooks", ""),
        ("sys.modules.clear()", "sys.modules", "import logging as l; assert l is logging"),
        ("sys.modules = {}", "sys.modules", "import logging as l; assert l is logging"),
        ("del sys.modules['logging']", "sys.modules", "import logging as l; assert l is logging"),
        ("os.environ.clear()", "os.environ", "assert os.environ['PATH']"),
        ("del os.environ['HOME']", "os.environ", "assert os.environ['HOME']"),
        ("os.environ['PYTHONPATH'] = '/'", "os.environ", "assert os.environ['PYTHONPATH'] != '/'"),
        ("builtins.open = None", "builtins", "open('/dev/null').close()"),
        ("del builtins.print", "builtins", "print()"),
        ("os.chdir('/')", "the working directory", "assert os.getcwd() != '/'"),
        (
            "d = tempfile.mkdtemp(); os.chdir(d); shutil.rmtree(d)",
            "the working directory",
            "os.getcwd()",
        ),
        ("os.umask(0o777)", "the umask", ""),
        ("sys.setrecursionlimit(50)", "the recursion limit", ""),
        ("sys.setswitchinterval(10)", "the switch interval", ""),
        ("sys.set_int_max_str_digits(1000)", "the limit of digits", "str(10**4000)"),
        (
            "locale.setlocale(locale.LC_ALL, 'C.UTF-8' if locale.setlocale(locale.LC_ALL) == 'C'"
            " else 'C')",
            "the locale",
            "",
        ),
        (
            "socket.setdefaulttimeout(0.001)",
            "the default time-out of sockets",
            "assert socket.socket().gettimeout() is None",
        ),
        ("threading.stack_size(1 << 40)", "the stack size of threads", ""),
        ("gc.disable()", "garbage collection", "assert gc.isenabled()"),
        ("logging.disable()", "logging.disable", "assert logging.root.isEnabledFor(40)"),
        ("logging.root.handlers.clear()", "the handlers of logging", ""),
        ("logging.basicConfig(force=True, handlers=[])", "the handlers of logging", ""),
        ("warnings.simplefilter('error')", "warnings.filters", "warnings.warn('only a warning')"),
        ("threading.excepthook = None", "threading.excepthook", ""),
        ("sys.excepthook = sys.unraisablehook = None", "sys.excepthook,sys.unraisablehook", ""),
        ("sys.stdout = None", "sys.stdout", "print()"),
        ("decimal.getcontext().prec = 3", "the decimal context", "assert len(str(Decimal(1)/3))>9"),
        (
            "os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()",
            "the time zone",
            "assert time.timezone != -9 * 3600",
        ),
        (
            "resource.setrlimit(resource.RLIMIT_NOFILE, (9,"
            " resource.getrlimit(resource.RLIMIT_NOFILE)[1]))",
            "RLIMIT_NOFILE",
            "[os.dup(1) for _ in range(20)]",
        ),
    ],
)
def test_a_change_of_the_process_is_restored(change: str, name: str, check: str) -> None:
    assert restored(change, check) == (name, "")


def test_the_lowest_possible_recursion_limit_is_restored() -> None:
    lowest = """
    for limit in range(1, 1000):
        try:
            sys.setrecursionlimit(limit)
        except RecursionError:
            continue
        return
    """
    assert restored(lowest) == ("the recursion limit", "")


@pytest.mark.parametrize(
    "change",
    [
        "os.environ['MINE'] = 'x'; os.environ['HTTP_PROXY'] = 'x'",
        "sys.path.insert(0, '/mine')",
        "import colorsys, json.tool",
        "sys.setrecursionlimit(10_000)",
        "builtins._ = str",
        "logging.root.addHandler(logging.NullHandler())",
        "warnings.simplefilter('ignore')",
        "os.environ['LANG'] = 'de_DE.UTF-8'",
        "decimal.getcontext().flags[decimal.Inexact] = True",
    ],
)
def test_what_code_adds_stays(change: str) -> None:
    assert restored(change) == ("", "")


def test_several_changes_are_restored_together() -> None:
    change = "sys.path.clear(); os.environ.clear(); sys.modules.clear(); os.chdir('/')"
    check = "import colorsys; assert os.environ['PATH'] and os.getcwd() != '/'"
    names, lost = restored(change, check)
    assert set(names.split(",")) == {
        "sys.path",
        "os.environ",
        "sys.modules",
        "the working directory",
    }
    assert not lost


@pytest.mark.parametrize(
    "change",
    [
        "os.close(sock.fileno())",
        "os.closerange(3, 4096)",
        "n = sock.fileno(); os.close(n); assert os.open('/dev/null', 0) == n",
        "os.dup2(0, sock.fileno())",
    ],
)
def test_a_process_without_the_engines_connections_is_lost(change: str) -> None:
    assert restored(change) == ("", "the descriptors of the engine's connections")


def test_a_hard_limit_that_cannot_be_raised_again_is_lost() -> None:
    change = """
    ctypes.CDLL(None).setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (100, 100))
    """
    assert restored(change)[1] == "RLIMIT_NPROC"


def test_what_the_engine_itself_changes_is_kept() -> None:
    change = "os.environ['MINE'] = 'x'; state.adopt(); del os.environ['MINE']"
    assert restored(change, "assert os.environ['MINE'] == 'x'") == ("os.environ", "")
