"""The commands in messages: a name is one word for a shell, and never an option."""

import shlex

import pytest

from drover.model.command_lines import drover_command

HOSTILE = ["orders", "a b", "$(reboot)", "it's", "a;b", "*", "-x", "--address=attacker:1", "é", ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shell_gets_a_name_as_one_word(name: str) -> None:
    words = shlex.split(drover_command("connector offsets", name, options=["--reset"]))
    assert words[:3] == ["drover", "connector", "offsets"]
    assert words.count(name) == 1
    assert sorted(words[3:]) == sorted([name, "--reset", *(["--"] if name[:1] == "-" else [])])


@pytest.mark.parametrize("name", ["-x", "--address=attacker:1"])
def test_a_name_like_an_option_is_behind_the_dashes(name: str) -> None:
    command = drover_command("connector restart", "a", name, options=["--only-failed"])
    assert shlex.split(command)[3:] == ["--only-failed", "--", "a", name]


def test_a_plain_name_is_not_quoted() -> None:
    assert (
        drover_command("connector restart", "orders-2.a") == "drover connector restart orders-2.a"
    )
