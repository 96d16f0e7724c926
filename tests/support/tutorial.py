"""The package of docs/tutorial.md, built by following the page."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.repository import REPOSITORY

PAGE = REPOSITORY / "docs" / "tutorial.md"
NAME = "my-weather"


def write_package(into: Path) -> Path:
    """Create the package with the command, and add the page's files; returns its folder."""
    subprocess.run(
        [sys.executable, "-m", "drover.cli.main", "connector", "new", NAME, "--into", str(into)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    folder = into / NAME
    page = PAGE.read_text(encoding="utf-8")
    for name, behind, text in re.findall(
        r"<!-- added to (\S+)(?: behind (.*?))? -->\n```\w+\n(.*?)```", page, re.S
    ):
        path = folder / name
        found = path.read_text()
        if behind:
            assert behind in found
            path.write_text(found.replace(behind, f"{behind}\n{text.rstrip()}"))
        else:
            path.write_text(f"{found}\n\n{text}")
    (imports,) = re.findall(r"<!-- imported by my_weather.py -->\n```\w+\n(.*?)```", page, re.S)
    module = folder / "my_weather.py"
    own = "import json\nimport os\nimport sqlite3\nfrom contextlib import closing\n"
    module.write_text(module.read_text().replace("import json\n", own + imports, 1))
    for name, text in re.findall(r"<!-- the file (\S+) -->\n```\w+\n(.*?)```", page, re.S):
        (folder / name).write_text(text)
    tests = folder / "test_my_weather.py"
    tests.write_text(
        tests.read_text().replace(
            "import json\n",
            "import json\nimport sqlite3\nfrom contextlib import closing\n\nimport my_weather\n",
            1,
        )
    )
    return folder
