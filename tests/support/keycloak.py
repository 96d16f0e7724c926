"""Keycloak on loopback, in memory: an issuer with a login form, sessions and keys that rotate."""

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from drover.security.certificates import TlsFiles
from tests.support.addresses import HOST, free_ports
from tests.support.child_process import ChildProcess
from tests.support.java_command import java_command
from tests.support.maven import Wanted, java_and_jars, version_in
from tests.support.oidc_issuer import CLIENT_ID
from tests.support.repository import REPOSITORY
from tests.support.waiting import wait_until

CACHE = REPOSITORY / ".keycloak"
SECRET = "secret-of-the-console"
#: The users, each with a password and a group.
USERS = {
    "ann": ("password-of-ann", "admins"),
    "cat": ("password-of-cat", "viewers"),
    "dan": ("password-of-dan", "guests"),
}
#: Of tokens, in seconds.
LIFETIME_S = 300
_POM = Path(__file__).with_name("keycloak_pom.xml")
_ADMIN = ("root", "password-of-root")
_BUILD_TIMEOUT_S = 500
_START_TIMEOUT_S = 400
_FORM = re.compile(r'<form id="kc-form-login"[^>]* action="([^"]+)"')


@dataclass(frozen=True)
class Keycloak:
    """A running Keycloak with the realm ``main``.

    Attributes:
        process: Its process.
        issuer: The issuer of its tokens, an https URL.
        url: Its address without TLS.
        ca: The authority of its certificate.
        gateway_url: Of the gateway that is its client.
    """

    process: ChildProcess
    issuer: str
    url: str
    ca: str
    gateway_url: str

    @property
    def keys_url(self) -> str:
        """Its keys, without TLS: the workers trust the authorities of the system only."""
        return f"{self.url}/realms/main/protocol/openid-connect/certs"

    def start(self) -> None:
        """Start it; what an earlier process of it had in memory is gone."""
        self.process.start(ready=lambda: True)
        wait_until(
            lambda: self.answers() or not self.process.is_alive,
            timeout_s=_START_TIMEOUT_S,
            describe=self.process.shown_log,
        )
        assert self.process.is_alive, self.process.shown_log()

    def answers(self) -> bool:
        with suppress(requests.RequestException):
            return requests.get(self.keys_url, timeout=10).ok
        return False

    def rotate_keys(self) -> None:
        """Make a new key, which signs from now on."""
        component = {
            "name": "rsa-new",
            "providerId": "rsa-generated",
            "providerType": "org.keycloak.keys.KeyProvider",
            "config": {"priority": ["500"], "algorithm": ["RS256"]},
        }
        self._admin("POST", "/admin/realms/main/components", component)

    def set_token_lifetime(self, seconds: int) -> None:
        """Change how long tokens are valid that are made from now on."""
        self._admin("PUT", "/admin/realms/main", {"accessTokenLifespan": seconds})

    def end_sessions(self) -> None:
        """Sign all users out, as an administrator does."""
        self._admin("POST", "/admin/realms/main/logout-all")

    def _admin(self, method: str, path: str, body: Any = None) -> None:
        fields = {"grant_type": "password", "client_id": "admin-cli"}
        asked = {**fields, "username": _ADMIN[0], "password": _ADMIN[1]}
        place = f"{self.url}/realms/master/protocol/openid-connect/token"
        token = requests.post(place, asked, timeout=60).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        found = requests.request(method, self.url + path, json=body, headers=headers, timeout=60)
        assert found.ok, found.text


class KeycloakBrowser:
    """A browser's cookies at Keycloak."""

    def __init__(self, keycloak: Keycloak) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = keycloak.ca

    def sign_in(self, url: str, user: str) -> str:
        """Fill the login form; returns where the browser is sent."""
        shown = self.get(url)
        form = _FORM.search(shown.text)
        assert form is not None, shown.text[:2_000]
        fields = {"username": user, "password": USERS[user][0]}
        action = html.unescape(form[1])
        return sent_to(self._session.post(action, fields, timeout=60, allow_redirects=False))

    def get(self, url: str) -> requests.Response:
        """Open a page, without its redirect."""
        return self._session.get(url, timeout=60, allow_redirects=False)


def sent_to(response: requests.Response) -> str:
    """Where a response of Keycloak sends the browser."""
    assert response.is_redirect, response.text[:2_000]
    return str(response.headers["location"])


def _realm(gateway_url: str) -> dict[str, Any]:
    def mapper(name: str, kind: str, **config: str) -> dict[str, Any]:
        return {
            "name": name,
            "protocol": "openid-connect",
            "protocolMapper": kind,
            "config": {"access.token.claim": "true", **config},
        }

    groups = {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"}
    audience = {"included.client.audience": CLIENT_ID}
    client = {
        "clientId": CLIENT_ID,
        "secret": SECRET,
        "redirectUris": [f"{gateway_url}/ui/sign-in/callback"],
        "attributes": {
            "pkce.code.challenge.method": "S256",
            "post.logout.redirect.uris": f"{gateway_url}/ui/sign-in",
        },
        "protocolMappers": [
            mapper("groups", "oidc-group-membership-mapper", **groups),
            mapper("audience", "oidc-audience-mapper", **audience),
        ],
    }
    users = [
        {
            "username": name,
            "enabled": True,
            "email": f"{name}@example.com",
            "emailVerified": True,
            "firstName": name,
            "lastName": name,
            "credentials": [{"type": "password", "value": password}],
            "groups": [group],
        }
        for name, (password, group) in USERS.items()
    ]
    return {
        "realm": "main",
        "enabled": True,
        "accessTokenLifespan": LIFETIME_S,
        # each refresh token counts once
        "revokeRefreshToken": True,
        "refreshTokenMaxReuse": 0,
        "groups": [{"name": group} for _, group in USERS.values()],
        "users": users,
        "clients": [client],
    }


@contextmanager
def running_keycloak(
    installed: tuple[Path, Path], tls: TlsFiles, gateway_url: str
) -> Iterator[Keycloak]:
    """Keycloak until the context ends, with a client for a gateway.

    Args:
        installed: See ``installed_keycloak``.
        tls: Its certificate.
        gateway_url: Of the gateway.
    """
    java, built = installed
    with tempfile.TemporaryDirectory(
        prefix="drover-keycloak-", ignore_cleanup_errors=True
    ) as folder:
        # it writes into its own folder
        home = Path(folder) / "home"
        shutil.copytree(built, home)
        realms = home / "data" / "import"
        realms.mkdir(parents=True)
        (realms / "main.json").write_text(json.dumps(_realm(gateway_url)))
        port, tls_port, management = free_ports(3)
        command = [
            *_command(java, home, "start"),
            *(
                "--optimized",
                "--import-realm",
                "--cache=local",
                "--http-enabled=true",
                "--hostname-strict=false",
            ),
            *(f"--http-host={HOST}", f"--http-port={port}", f"--https-port={tls_port}"),
            *(f"--https-certificate-file={tls.cert}", f"--https-certificate-key-file={tls.key}"),
            f"--http-management-port={management}",
        ]
        environment = {
            "KC_BOOTSTRAP_ADMIN_USERNAME": _ADMIN[0],
            "KC_BOOTSTRAP_ADMIN_PASSWORD": _ADMIN[1],
        }
        process = ChildProcess(
            "Keycloak", command, log_path=Path(folder) / "log", environment=environment
        )
        issuer = f"https://{HOST}:{tls_port}/realms/main"
        keycloak = Keycloak(process, issuer, f"http://{HOST}:{port}", tls.ca, gateway_url)
        keycloak.start()
        try:
            yield keycloak
        finally:
            process.kill()


def installed_keycloak(environ: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """A Java, and Keycloak's files for a database in memory, built once after they are fetched.

    Raises:
        JarsMissingError: There is no Java, or the files cannot be fetched.
    """
    version = version_in(_POM, "keycloak.version")
    wanted = Wanted("Keycloak", "unpack", _POM, "keycloak-*")
    java, files = java_and_jars(wanted, version, environ, cache=CACHE)
    built = files.with_name(f"{files.name}-built")
    if not built.is_dir():
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".building-") as folder:
            home = Path(folder) / "home"
            shutil.copytree(files / f"keycloak-{version}", home)
            command = [*_command(java, home, "build"), "--db=dev-mem"]
            subprocess.run(command, env=dict(environ), check=True, timeout=_BUILD_TIMEOUT_S)
            with suppress(OSError):  # another process has built it as well
                home.rename(built)
    return java, built


def _command(java: Path, home: Path, command: str) -> list[str]:
    """As bin/kc.sh, without a shell that stays beside the process."""
    opened = ("java.base/java.util", "java.base/java.util.concurrent", "java.base/java.security")
    return [
        *java_command(java, heap_mib=512),
        *(f"--add-opens={each}=ALL-UNNAMED" for each in opened),
        f"-Dkc.home.dir={home}",
        f"-Djboss.server.config.dir={home / 'conf'}",
        "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
        "-Dpicocli.disable.closures=true",
        *("-cp", str(home / "lib" / "quarkus-run.jar")),
        *("io.quarkus.bootstrap.runner.QuarkusEntryPoint", command),
    ]
