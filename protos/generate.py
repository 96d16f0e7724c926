"""Generates the gRPC stubs and their mypy stubs into shared/drover/api.

Also creates the ``__init__.py`` of each package: protoc does not, and import-linter and mypy need
them.
"""

import os
import shutil
import sys
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

PROTO_ROOT = Path(__file__).resolve().parent
PYTHON_ROOT = PROTO_ROOT.parent / "shared"
API_ROOT = PYTHON_ROOT / "drover" / "api"


def main() -> int:
    """Regenerate all stubs.

    Returns:
        protoc's exit code.
    """
    # protoc searches PATH for its mypy plugin, which is installed beside this Python
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    for folder in API_ROOT.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    protos = sorted(str(path) for path in PROTO_ROOT.rglob("*.proto"))
    well_known = str(resources.files("grpc_tools") / "_proto")
    code = protoc.main(
        [
            "protoc",
            f"-I{PROTO_ROOT}",
            f"-I{well_known}",
            f"--python_out={PYTHON_ROOT}",
            f"--grpc_python_out={PYTHON_ROOT}",
            f"--mypy_out=quiet:{PYTHON_ROOT}",
            f"--mypy_grpc_out=quiet:{PYTHON_ROOT}",
            *protos,
        ]
    )
    if code == 0:
        for folder in {path.parent for path in API_ROOT.rglob("*.py")} - {API_ROOT}:
            for package in (folder, folder.parent):
                if package != API_ROOT:
                    (package / "__init__.py").touch()
        print(f"{len(protos)} proto files -> {API_ROOT.relative_to(PROTO_ROOT.parent)}")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
