"""Configs as plugins receive them: with the worker's default converters, placeholders resolved."""

from collections.abc import Callable, Mapping
from typing import TextIO

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from drover.api.engine.v1 import engine_pb2
from drover.config.resolution import ConfigResolver, Resolution
from drover.config.secret_texts import SecretTexts
from drover.connector import Connector
from drover.connector.record_settings import with_worker_converters
from drover.connector.settings import undefined_settings
from drover.errors import InvalidArgumentError, Violation
from drover.rpc.status import from_rpc_status, to_rpc_status

Send = Callable[[engine_pb2.EngineReport], None]


class EngineConfigs:
    """Resolves configs, and masks the providers' values in all text that leaves the engine.

    Args:
        converters: The worker's defaults, for connectors that set none.
        providers: The settings of each config provider, by name.
    """

    def __init__(
        self,
        converters: Mapping[str, str] | None = None,
        providers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._converters = converters or {}
        self._resolver = ConfigResolver(providers or {})
        self._secrets = SecretTexts()

    def resolve(self, config: Mapping[str, str], connector: str) -> Resolution:
        """Resolve a connector's or task's config as far as possible. Runs plugin code."""
        resolution = self._resolver.resolve(config, connector)
        self._secrets.add(resolution.secrets)
        return resolution

    def resolve_connector(self, config: Mapping[str, str]) -> Resolution:
        """As ``resolve``, with the worker's converters where the connector sets none."""
        return self.resolve(
            with_worker_converters(config, self._converters), config.get("name", "").strip()
        )

    def whole(
        self, connector_class: type[Connector], config: Mapping[str, str], resolution: Resolution
    ) -> Resolution:
        """A resolution of a connector's ``config``, or of a config of its tasks, if all settings
        that a plugin reads were resolved.

        Raises:
            InvalidArgumentError: INVALID_CONFIG with every violation.
        """
        if not resolution.faults:
            return resolution
        return resolution.require_whole(undefined_settings(connector_class, config))

    def hidden(self, text: str) -> str:
        """The text with provider values replaced by their placeholders."""
        return self._secrets.hidden(text)

    def hiding(self, send: Send) -> Send:
        """A ``send`` that masks provider values in failures, retries, validations and previews."""

        def send_hidden(report: engine_pb2.EngineReport) -> None:
            self._hide(report)
            send(report)

        return send_hidden

    def _hide(self, report: engine_pb2.EngineReport) -> None:
        match report.WhichOneof("report"):
            case "failure":
                report.failure.message = self.hidden(report.failure.message)
                report.failure.trace = self.hidden(report.failure.trace)
                if report.failure.status:  # provider values can only be in its texts
                    self._hide_in_status(report.failure)
            case "connector_failed":
                report.connector_failed.trace = self.hidden(report.connector_failed.trace)
            case "task_failed":
                report.task_failed.trace = self.hidden(report.task_failed.trace)
            case "validation":
                for value in report.validation.values:
                    for texts in (value.errors, value.warnings, value.recommended_values):
                        texts[:] = [self.hidden(each) for each in texts]
            case "preview":
                self._hide_in_texts(report.preview)
            case "task_progress":
                for entry in report.task_progress.entries:
                    if entry.activity.HasField("retry"):
                        retry = entry.activity.retry
                        retry.message = self.hidden(retry.message)

    def _hide_in_texts(self, message: Message) -> None:
        """Mask all texts of a message; it has no maps."""
        for field, value in message.ListFields():
            if field.type == FieldDescriptor.TYPE_STRING:
                if field.is_repeated:
                    value[:] = [self.hidden(each) for each in value]
                else:
                    setattr(message, field.name, self.hidden(value))
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                for each in value if field.is_repeated else (value,):
                    self._hide_in_texts(each)

    def _hide_in_status(self, failure: engine_pb2.Failure) -> None:
        error = from_rpc_status(failure.status)
        error.message = self.hidden(error.message)
        if isinstance(error, InvalidArgumentError):
            error.violations = tuple(
                Violation(each.field, self.hidden(each.description)) for each in error.violations
            )
        failure.status = to_rpc_status(error, "connect.drover").SerializeToString()


class HidingStream:
    """A text stream that masks provider values in what this process writes."""

    def __init__(self, stream: TextIO, hide: Callable[[str], str]) -> None:
        self._stream = stream
        self._hide = hide

    def write(self, text: str) -> int:
        """See ``TextIO``."""
        self._stream.write(self._hide(text))
        return len(text)

    def close(self) -> None:
        """Do nothing: the log and all plugins of this process write to the stream."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)
