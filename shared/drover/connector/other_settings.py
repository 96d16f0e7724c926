"""How a connector handles settings of other connectors, for which it is a replacement under their
class names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from drover.config.config_def import quote
from drover.errors import Violation

RawConfig = Mapping[str, str | None]
_ValueT = TypeVar("_ValueT")


def _no_faults(raw: RawConfig) -> Iterable[Violation]:
    del raw
    return ()


class Refused(tuple[str, ...]):
    """The values of a refused setting that match Drover's behaviour, with the ``remedy`` for other
    values.
    """

    remedy: str

    def __new__(cls, *accepted: str, remedy: str) -> "Refused":
        """Accept these values."""
        made = super().__new__(cls, accepted)
        made.remedy = remedy
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSettings:
    """Settings of other connectors, by name; ``*`` in a name matches any characters.

    Settings of the connector's own ``config_def`` take precedence.

    Attributes:
        renamed: The name of a setting in Drover; or, if the setting combines several, the settings
            for each of its values.
        refused: Settings that would change the data and are not supported, with the values that
            match Drover's behaviour. Any other value is an error.
        without_effect: Settings that change how the work is done but not the data, with the
            replacement (empty for none). They cause a warning.
        passed_on: Settings that are passed to a library unchanged: neither an error nor a warning.
        faults: Returns further violations of a raw config.
        defaults: The other connector's defaults that decide values, by its class name, where they
            differ from Drover's.
    """

    renamed: Mapping[str, str | Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)
    without_effect: Mapping[str, str] = field(default_factory=dict)
    passed_on: Collection[str] = ()
    faults: Callable[[RawConfig], Iterable[Violation]] = _no_faults
    defaults: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def faults_of(self, raw: RawConfig, own: Collection[str]) -> Iterator[Violation]:
        """All violations of settings that are not in ``own``."""
        for name, text in raw.items():
            if text is None or name in own:
                continue
            if name in self.renamed:
                yield from self._faults_of_renamed(name, text, raw)
            accepted = _found(self.refused, name)
            if accepted is not None and not _says(text, accepted):
                instead = next((each for each in accepted if each), None)
                advice = f", or set it to {instead}" if instead else ""
                reason = f"; {accepted.remedy}" if isinstance(accepted, Refused) else ""
                yield Violation(
                    name, f"is not supported and would change the data: remove it{advice}{reason}"
                )
        yield from self.faults(raw)

    def warning_of(self, name: str) -> str | None:
        """The warning about a setting that the connector does not have.

        Returns:
            The warning; empty for a setting that needs none; None for an unknown setting.
        """
        if name in self.renamed or _found(self.refused, name) is not None:
            return ""
        instead = self.without_effect.get(name)
        if instead is None and any(fnmatchcase(name, each) for each in self.passed_on):
            return ""
        instead = _found(self.without_effect, name)
        if instead is None:
            return None
        return f"has no effect here{f': {instead}' if instead else ''}"

    def translated(self, raw: RawConfig, own: Collection[str]) -> "Translation":
        """A config in which renamed settings are replaced by their names in Drover."""
        config = dict(raw)
        given: dict[str, str] = {}
        for name, meant in self.renamed.items():
            text = raw.get(name)
            if text is None or name in own:
                continue
            found = {meant: text} if isinstance(meant, str) else meant.get(text.strip(), {})
            for each, value in found.items():
                if raw.get(each) is None:
                    config[each] = value
                    given[each] = name
        class_name = (raw.get("connector.class") or "").strip()
        for name, value in self.defaults.get(class_name, {}).items():
            if config.get(name) is None:
                config[name] = value
        return Translation(config, given)

    def _faults_of_renamed(self, name: str, text: str, raw: RawConfig) -> Iterator[Violation]:
        meant = self.renamed[name]
        if isinstance(meant, str):
            names: Collection[str] = (meant,)
        elif text.strip() in meant:
            names = meant[text.strip()]
        else:
            yield Violation(name, f"must be one of {', '.join(meant)}, not {quote(text)}")
            return
        for each in names:
            if raw.get(each) is not None:
                yield Violation(name, f"must not be set together with {each}, its name in Drover")


@dataclass(frozen=True, slots=True)
class Translation:
    """A config with Drover's names of settings.

    Attributes:
        config: The translated config.
        given: For each translated setting the name under which it was given.
        prefix: Before the names of settings that a config may have without it; empty for none.
    """

    config: RawConfig
    given: Mapping[str, str]
    prefix: str = ""

    def name_of(self, own: str) -> str:
        """The name of a setting in the original config."""
        return self.given.get(own) or own.removeprefix(self.prefix)


def _found(settings: Mapping[str, _ValueT], name: str) -> _ValueT | None:
    if name in settings:
        return settings[name]
    return next((each for pattern, each in settings.items() if fnmatchcase(name, pattern)), None)


def _says(text: str, accepted: Collection[str]) -> bool:
    return text.strip().lower() in {each.lower() for each in accepted}
