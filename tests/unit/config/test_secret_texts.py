import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from drover.config.secret_texts import SecretTexts

PASSWORD = "Tr0ub'4dor&3/é\"x\\"
LOGIN = "CANARY-DB-PASSWORD-77"
LIST = "(alpha-secret-1,beta-2"
KEY = "-----BEGIN-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END-----"
PLACEHOLDERS = {PASSWORD: "${f:a}", LOGIN: "${f:b}", LIST: "${f:c}", KEY: "${f:d}"}


@pytest.fixture
def secrets() -> SecretTexts:
    secrets = SecretTexts()
    secrets.add(PLACEHOLDERS)
    return secrets


@pytest.mark.parametrize("value", [PASSWORD, LOGIN, LIST, KEY])
@pytest.mark.parametrize(
    "form",
    [
        str,
        str.lower,
        str.upper,
        str.casefold,
        str.swapcase,
        repr,
        json.dumps,
        lambda text: json.dumps(text, ensure_ascii=False),
        lambda text: json.dumps(json.dumps(text)),
        lambda text: repr(text.encode()),
        html.escape,
        quote,
        quote_plus,
        lambda text: quote(text, safe=""),
        lambda text: text.replace("'", "''"),
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
    ],
)
def test_a_value_is_found_in_every_form(secrets: SecretTexts, value: str, form: object) -> None:
    assert callable(form)
    text = form(value)
    shown = secrets.hidden(f"cannot log in with {text}: refused")
    assert PLACEHOLDERS[value] in shown
    plain = shown.replace(PLACEHOLDERS[value], "")
    assert plain.replace('"', "").replace("'", "").replace("b", "") in (
        "cannot log in with : refused",
        "cannot log in with \\\\: refused",  # the quotes of text in JSON in JSON
    )


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "Basic "])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_value_is_found_in_base64(secrets: SecretTexts, before: str, encode: object) -> None:
    assert callable(encode)
    text = encode(f"{before}{LOGIN}@host".encode()).decode()
    assert "${f:b}" in secrets.hidden(f"authorization: Basic {text}")
    assert text[8:] not in secrets.hidden(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("'(alpha-secret-1' is no regular expression", "'${f:c}' is no regular expression"),
        ("no topic beta-2", "no topic ${f:c}"),
        ("host 'canary-db-password-77' is unknown", "host '${f:b}' is unknown"),
        ("'CANARY-DB-PASSW'…", "'${f:b}'…"),
        ("x-password-77-y", "x${f:b}-y"),
        ("Basic Q0FOQVJZLURCLVBBU1N…", "Basic ${f:b}…"),
        ("Basic dXNlcjpDQU5BUlktREItUEFT…", "Basic dXNlcjp${f:b}…"),
        ("bytes 43414e4152592d44422d…", "bytes ${f:b}…"),
        ("line 2: kqhkiG9w0B", "line 2: ${f:d}"),
        ("a password of a db", "a password of a db"),
        ("İstanbul: CANARY-DB-PASSWORD-77", "İstanbul: ${f:b}"),
        ("", ""),
        ("abc", "abc"),
    ],
)
def test_items_and_parts_are_found(secrets: SecretTexts, text: str, shown: str) -> None:
    assert secrets.hidden(text) == shown


def test_the_longest_value_wins_and_short_values_stay() -> None:
    secrets = SecretTexts()
    secrets.add({"hunter": "${a:b}", "hunter22": "${a:c}", "ann": "${a:d}", "": "${a:e}"})
    assert secrets.hidden("ann: hunter22, hunter") == "ann: ${a:c}, ${a:b}"
    assert SecretTexts().hidden("hunter22") == "hunter22"


def test_placeholders_and_the_scheme_of_a_url_stay() -> None:
    secrets = SecretTexts()
    secrets.add(
        {"secrets": "${env:A}", "jdbc:postgresql://db.internal/x": "${file:/run/secrets:b}"}
    )
    text = "${file:/run/secrets:b} is no URL: postgresql://other"
    assert secrets.hidden(text) == text
    assert secrets.hidden("no host db.internal") == "no host ${file:/run/secrets:b}"
