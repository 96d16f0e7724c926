"""What a connector makes of settings that it does not have: those of the connectors that it stands
in for under their class names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeVar

from drover.config.config_def import quote
from drover.errors import Violation

RawConfig = Mapping[str, str | None]
_Told = TypeVar("_Told")


def _no_faults(raw: RawConfig) -> Iterable[Violation]:
    del raw
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSettings:
    """Settings of other connectors, by name; ``*`` in a name stands for any characters.

    A setting that the connector's ``config_def`` has is never looked for here.

    Attributes:
        renamed: What a setting is called here; or, where it says several things at once, the
            settings for each of its values.
        refused: Settings that would change the data, which are faults, with the values that say
            what happens here in any case.
        without_effect: Settings that change how the work is done and not the data, which are
            warnings, with what to set here instead (empty for nothing).
        passed_on: Settings that go to a library as they are: neither a fault nor a warning.
        faults: More faults of a config as it is written.
    """

    renamed: Mapping[str, str | Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    refused: Mapping[str, Collection[str]] = field(default_factory=dict)
    without_effect: Mapping[str, str] = field(default_factory=dict)
    passed_on: Collection[str] = ()
    faults: Callable[[RawConfig], Iterable[Violation]] = _no_faults

    def faults_of(self, raw: RawConfig, own: Collection[str]) -> Iterator[Violation]:
        """Every fault of the settings that are not ``own``."""
        for name, text in raw.items():
            if text is None or name in own:
                continue
            if name in self.renamed:
                yield from self._faults_of_renamed(name, text, raw)
            accepted = _found(self.refused, name)
            if accepted is not None and not _says(text, accepted):
                instead = next((each for each in accepted if each), None)
                advice = f", or set it to {instead}" if instead else ""
                yield Violation(
                    name, f"would change the data, and is not known here: remove it{advice}"
                )
        yield from self.faults(raw)

    def warning_of(self, name: str) -> str | None:
        """What to say of a setting that the connector does not have, empty for nothing; None for
        one that is not known here either.
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
        """A config with what its renamed settings say under the names that are known here."""
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
                yield Violation(name, f"must be left out beside {each}, which is the same here")


@dataclass(frozen=True, slots=True)
class Translation:
    """A config under the names that are known here, and which of them were given by which other."""

    config: RawConfig
    given: Mapping[str, str]

    def name_of(self, own: str) -> str:
        """What a setting is called in the config as it was written."""
        return self.given.get(own, own)


def _found(told: Mapping[str, _Told], name: str) -> _Told | None:
    if name in told:
        return told[name]
    return next((each for pattern, each in told.items() if fnmatchcase(name, pattern)), None)


def _says(text: str, accepted: Collection[str]) -> bool:
    return text.strip().lower() in {each.lower() for each in accepted}
