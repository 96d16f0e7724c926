"""Runs the real converters: ``python -m tests.support.converter_corpus.generate``."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.support.converter_corpus.cases import cases
from tests.support.kafka.jars import KafkaJars, find_jars
from tests.support.repository import REPOSITORY

GOLDEN = REPOSITORY / "tests" / "golden" / "converters.json"
_PROGRAM = Path(__file__).with_name("Corpus.java")


def results(jars: KafkaJars) -> dict[str, Any]:
    """The version of Kafka Connect, and each case with its result."""
    asked = cases()
    done = subprocess.run(
        [str(jars.java), "-Duser.timezone=UTC", "-cp", f"{jars.directory}/*", str(_PROGRAM)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{_PROGRAM.name} failed: {done.stderr[-2000:]}")
    answers = json.loads(done.stdout)
    found = [{"case": case, "result": answer} for case, answer in zip(asked, answers, strict=True)]
    return {"kafka": jars.version, "cases": found}


def golden_text(found: dict[str, Any]) -> str:
    """One line per case, which makes diffs readable."""
    lines = ",\n".join(json.dumps(each, sort_keys=True) for each in found["cases"])
    return f'{{"kafka": {json.dumps(found["kafka"])}, "cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    GOLDEN.write_text(golden_text(results(find_jars())))
