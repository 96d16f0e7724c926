"""Small Java plugins for tests, compiled with javac, and the host that runs plugins."""

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from drover.java_plugins.describe import JavaHost
from drover.local.java_check import JavaUnusableError, find_java
from tests.support.repository import REPOSITORY

_HOST_JARS = REPOSITORY / "services" / "worker" / "drover_worker" / "java_host"
_COMPILE_TIMEOUT_S = 120
#: A source connector named NAME, with a constructor and a config() that run the given statements.
_SOURCE = """
package org.acme;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.source.*;
public class NAME extends SourceConnector {
    static { STATIC }
    public NAME() { CONSTRUCTOR }
    public String version() { return "VERSION"; }
    public ConfigDef config() {
        ConfigDef definition = new ConfigDef().define("url", ConfigDef.Type.STRING,
            ConfigDef.Importance.HIGH, "The address of the shop");
        CONFIG
        return definition;
    }
    public void start(Map<String, String> settings) {}
    public void stop() {}
    public Class<? extends Task> taskClass() { return null; }
    public List<Map<String, String>> taskConfigs(int count) { return List.of(); }
}
"""


def java_host(**limits: float) -> JavaHost:
    """The host with other limits; skips the test where it is not built, except in CI."""
    try:
        java = find_java().path
    except JavaUnusableError as error:
        _missing(str(error))
    if not (_HOST_JARS / "drover-java-host.jar").is_file():
        _missing("the host of Java plugins is not built: run `make java-host` with mvn and a JDK")
    return JavaHost(java, _HOST_JARS, **limits)  # type: ignore[arg-type]


def source_code(
    name: str,
    *,
    version: str = "1.0",
    static: str = "",
    constructor: str = "",
    config: str = "",
) -> str:
    """A source connector of the package org.acme."""
    parts = {"STATIC": static, "CONSTRUCTOR": constructor, "CONFIG": config, "VERSION": version}
    code = _SOURCE.replace("NAME", name)
    for part, text in parts.items():
        code = code.replace(part, text)
    return code


def compiled(folder: Path, sources: Mapping[str, str], *, classpath: Path | None = None) -> Path:
    """Compile classes.

    Args:
        folder: Where to write; must not exist.
        sources: The source code by full class name.
        classpath: A further jar to compile against.

    Returns:
        The folder with the class files.
    """
    host = java_host()
    code, classes = folder / "code", folder / "classes"
    for name, text in sources.items():
        file = code / f"{name.replace('.', '/')}.java"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    paths = [str(host.jars / "*"), *([str(classpath)] if classpath else [])]
    javac = host.java.resolve().with_name("javac")
    subprocess.run(
        [
            *(str(javac if javac.exists() else "javac"), "-nowarn", "-d", str(classes)),
            *("-cp", os.pathsep.join(paths), *map(str, code.rglob("*.java"))),
        ],
        check=True,
        timeout=_COMPILE_TIMEOUT_S,
    )
    return classes


def jar(path: Path, classes: Path, *, without: str = "", **texts: str) -> Path:
    """Put class files into a jar.

    Args:
        path: The jar.
        classes: The folder with the class files.
        without: Leave out the classes with this in their path.
        texts: Further entries: the text by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(classes.rglob("*.class")):
            name = str(each.relative_to(classes))
            if not without or without not in name:
                archive.write(each, name)
        for name, text in texts.items():
            archive.writestr(name, text)
    return path


def require_mvn() -> None:
    """Skip the test where Maven is missing, except in CI."""
    if shutil.which("mvn") is None:
        _missing("no mvn in PATH to fetch a plugin with")


def _missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
