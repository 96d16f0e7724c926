"""The commands of a move, as scripts: to Drover and back, over the same topics or one by one."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from drover.migrate.checks import Finished, Report
from drover.migrate.files import connector_id

#: The scripts' names, in the order of the report.
TO_DROVER, BACK = "to-drover.sh", "back.sh"
SAME_TOPICS, SAME_TOPICS_BACK = "same-topics.sh", "same-topics-back.sh"
DEFINITIONS = "connectors"
#: The directories of what was moved, in part or whole.
MOVED = ("created", "done", "returned")

_HEAD = """#!/usr/bin/env bash
# {title}
# {more}
set -euo pipefail
cd "$(dirname "$0")"

connect() {{  # a request to Kafka Connect; 409 (a rebalance) and 5xx are repeated
  curl --fail --silent --show-error --globoff --path-as-is --max-time 60 \\
    --retry 10 --retry-delay 1 --retry-all-errors {options}"$@"
}}
"""

_STEPS = """CONNECT={url}
mkdir -p offsets created copied done returned

until_stopped() {{  # name, path: the tasks in Kafka Connect have ended, and committed their offsets
  local status
  for _ in $(seq 120); do
    status=$(connect "$CONNECT/connectors/$2/status")
    case $status in *'"tasks":[]'*) return ;; esac
    sleep 1
  done
  echo "$1 does not stop in Kafka Connect: $CONNECT/connectors/$2/status" >&2
  return 1
}}

is_here() {{  # name: whether Drover has the connector
  local answer
  if answer=$(drover connector status -- "$1" 2>&1); then return; fi
  case $answer in *CONNECTOR_NOT_FOUND*) return 1 ;; esac
  echo "$answer" >&2
  exit 1
}}

until_stopped_here() {{  # name: the same in Drover
  local status
  for _ in $(seq 120); do
    status=$(drover connector status -o json -- "$1" | tr -d ' \\n')
    case $status in *'"tasks":[]'*) return ;; esac
    sleep 1
  done
  echo "$1 does not stop in Drover: drover connector status -- $1" >&2
  return 1
}}

has_offsets() {{  # a file: whether it has any; an error if it has another form
  if ! grep -q '"offsets"' "$1"; then
    echo "$PWD/$1 has no offsets of a connector: see what it has instead" >&2
    exit 1
  fi
  grep -q '"partition"' "$1"
}}
"""

_MOVE = """
copy_offsets() {  # name, file, path
  connect "$CONNECT/connectors/$3/offsets" > "offsets/$2.json"
  if has_offsets "offsets/$2.json"; then
    drover connector offsets -f "offsets/$2.json" -- "$1"
  fi
}

move() {  # name, file, path, kind, state
  local name=$1 file=$2 path=$3 kind=$4 state=$5
  if [ -e "done/$file" ]; then echo "$name: moved before"; return; fi
  rm -f "returned/$file"
  if [ ! -e "created/$file" ]; then
    drover connector create -f "connectors/$file.yaml"
    touch "created/$file"
  fi
  connect -X PUT "$CONNECT/connectors/$path/stop"
  until_stopped "$name" "$path"
  # the offsets of a sink are in its consumer group, which Drover uses too
  if [ "$kind" = source ] && [ ! -e "copied/$file" ]; then
    copy_offsets "$name" "$file" "$path"
  fi
  # from here on Drover may have newer offsets
  touch "copied/$file"
  case $state in
    STOPPED) ;;
    PAUSED) drover connector pause -- "$name" ;;
    *) drover connector resume -- "$name" ;;
  esac
  touch "done/$file"
}

"""

_RETURN = """
return_offsets() {  # name, file, path
  drover connector offsets -o json -- "$1" > "offsets/$2.json"
  if has_offsets "offsets/$2.json"; then
    connect -X PATCH -H 'Content-Type: application/json' --data-binary "@offsets/$2.json" \\
      "$CONNECT/connectors/$3/offsets"
    echo
  fi
}

give_back() {  # name, file, path, kind, state
  local name=$1 file=$2 path=$3 kind=$4 state=$5
  if [ ! -e "created/$file" ] && [ ! -e "returned/$file" ]; then
    echo "$name: not moved"
    return
  fi
  rm -f "done/$file"
  if [ ! -e "returned/$file" ]; then
    drover connector stop -- "$name"
    until_stopped_here "$name"
    # before they are copied, Drover has no offsets
    if [ "$kind" = source ] && [ -e "copied/$file" ]; then
      return_offsets "$name" "$file" "$path"
    fi
    touch "returned/$file"
  fi
  rm -f "copied/$file"
  if [ -e "created/$file" ] && is_here "$name"; then
    drover connector delete --yes -- "$name"
  fi
  rm -f "created/$file"
  case $state in
    STOPPED) ;;
    PAUSED) connect -X PUT "$CONNECT/connectors/$path/pause" ;;
    *) connect -X PUT "$CONNECT/connectors/$path/resume" ;;
  esac
  rm "returned/$file"
}

"""


@dataclass(frozen=True, slots=True)
class Access:
    """How the scripts call Kafka Connect; files are absolute paths.

    Attributes:
        user: The user's name; empty for none.
        password_file: The file with the password.
        token_file: The file with a bearer token; empty for none.
        ca_file: The file with the authorities to trust; empty for the authorities of the system.
        properties_file: The properties of Kafka Connect's workers; empty if not known.
    """

    user: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""
    properties_file: str = ""


def scripts_of(report: Report, access: Access) -> Mapping[str, str]:
    """The text of each script, by its name."""
    found = {TO_DROVER: _to_drover(report, access), BACK: _back(report, access)}
    if report.worker is not None:
        found[SAME_TOPICS] = _same_topics(report, access)
        found[SAME_TOPICS_BACK] = _same_topics_back(access)
    return found


def _to_drover(report: Report, access: Access) -> str:
    head = _HEAD.format(
        title="Moves connectors from Kafka Connect to Drover, one after the other.",
        more="Drover must use the same Kafka cluster. To repeat after an error: run it again.",
        options=_curl_options(access),
    )
    return head + _STEPS.format(url=_url(report)) + _MOVE + _calls("move", report)


def _back(report: Report, access: Access) -> str:
    head = _HEAD.format(
        title="Gives the moved connectors back to Kafka Connect, one after the other.",
        more="Kafka Connect still has their configs. To repeat after an error: run it again.",
        options=_curl_options(access),
    )
    return head + _STEPS.format(url=_url(report)) + _RETURN + _calls("give_back", report)


def _same_topics(report: Report, access: Access) -> str:
    assert report.worker is not None
    head = _HEAD.format(
        title="Runs Drover on the topics of Kafka Connect, with its connectors and offsets.",
        more="Stop every worker of Kafka Connect before, with SIGTERM, and wait for their end.",
        options=_curl_options(access),
    )
    lines = [
        f"if connect --retry 0 {_url(report)}/ > /dev/null 2>&1; then",
        '  echo "Kafka Connect still answers: stop every worker first, with SIGTERM" >&2',
        "  exit 1",
        "fi",
        *(f"# {_one_line(each)}" for each in report.worker.by_hand()),
        *(
            f"export {name}={shlex.quote(value)}"
            for name, value in report.worker.environment().items()
        ),
        'exec drover up "$@"',
    ]
    return head + "\n".join(lines) + "\n"


def _same_topics_back(access: Access) -> str:
    properties = shlex.quote(_one_line(access.properties_file))
    return (
        "#!/usr/bin/env bash\n"
        "# Stops Drover, so that Kafka Connect can resume on the same topics.\n"
        "set -euo pipefail\n"
        'drover down "$@"\n'
        f"echo start every worker of Kafka Connect again: connect-distributed.sh {properties}\n"
    )


def _calls(function: str, report: Report) -> str:
    return "\n".join(_call(function, each) for each in report.connectors) + "\n"


def _call(function: str, each: Finished) -> str:
    file = connector_id(each.old.name)
    words = (each.old.name, file, _path(each.old.name), each.old.kind, each.old.state)
    call = f"{function} {' '.join(shlex.quote(word) for word in words)}"
    if each.can_move and _is_one_line(each.old.name):
        return call
    # a reason is a comment: its text is from servers
    reasons = [_one_line(each.text) for each in each.differences]
    return "\n".join(
        [f"# not moved: {_one_line(each.old.name)}", *(f"#   {reason}" for reason in reasons[:5])]
    )


def _path(name: str) -> str:
    return quote(name, safe="")


def _url(report: Report) -> str:
    return shlex.quote(report.cluster.url.rstrip("/"))


def _curl_options(access: Access) -> str:
    """Credentials are read from their files, and are in no argument that other users could see."""
    options = list(_credentials(access))
    if access.ca_file:
        options.append(f"--cacert {shlex.quote(access.ca_file)}")
    return "".join(f"{each} " for each in options)


def _credentials(access: Access) -> Iterator[str]:
    if access.user:
        user = shlex.quote(json.dumps(access.user)[1:-1])
        file = shlex.quote(access.password_file)
        yield f'--config <(printf \'user = "%s:%s"\\n\' {user} "$(cat {file})")'
    elif access.token_file:
        file = shlex.quote(access.token_file)
        yield f'--config <(printf \'header = "Authorization: Bearer %s"\\n\' "$(cat {file})")'


def _is_one_line(text: str) -> bool:
    return text.isprintable()


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)
