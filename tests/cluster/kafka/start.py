"""Starts as Apache Kafka's image does: KAFKA_LOG_DIRS of the environment becomes log.dirs."""

import os
import subprocess
from pathlib import Path

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
PROPERTIES = Path("/tmp/server.properties")
JAVA = ("java", "-Xmx512m", "-cp", "/opt/kafka/libs/*")

settings = {
    name.removeprefix("KAFKA_").lower().replace("_", "."): value
    for name, value in os.environ.items()
    if name.startswith("KAFKA_")
}
PROPERTIES.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
tool = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", CLUSTER_ID, "-c")
subprocess.run([*JAVA, *tool, str(PROPERTIES)], check=True)
os.execvp(JAVA[0], [*JAVA, "kafka.Kafka", str(PROPERTIES)])
