"""NL2Plan's dialogues about the paper's tasks, held with the script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plansmith.config.generation import SamplingConfig
from plansmith.config.modelling import ModellingConfig
from plansmith.data.rows import ModellingStepRow
from plansmith.generation import Answers, Conversation, plain_text
from plansmith.modelling import folder as files
from plansmith.modelling.calls import CallLog
from plansmith.modelling.folder import TaskFolder
from plansmith.modelling.references import Reference, read_references
from plansmith.modelling.script import Script, ScriptedGenerator
from plansmith.modelling.speaking import Speaker
from plansmith.modelling.steps import make_all

SAMPLING = SamplingConfig()


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Dying:
    """The script until it has answered so many questions; ``asked`` has those that it has answered."""

    script: ScriptedGenerator
    left: int
    asked: list[str]

    def complete(
        self,
        conversations: Sequence[Conversation],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None = None,
    ) -> Answers:
        """Yield answers; see `plansmith.generation.Generator`."""
        for answer in self.script.complete(conversations, sampling, seeds=seeds, description=description):
            if not self.left:
                raise Killed
            self.left -= 1
            self.asked.append(plain_text(conversations[answer[0]]))
            yield answer


def reference(name: str) -> Reference:
    """Return one of the paper's tasks."""
    return next(own for own in read_references() if own.name == name)


def modelled(
    own: Reference,
    path: Path,
    faults: Mapping[str, Sequence[str]] | None = None,
    config: ModellingConfig | None = None,
) -> tuple[TaskFolder, CallLog, list[ModellingStepRow]]:
    """Return the folder of a task that the script has answered, its calls, and what is said of each answer."""
    path.mkdir(parents=True, exist_ok=True)
    folder, settings = TaskFolder(path), config or ModellingConfig()
    log = CallLog.open(path / files.CALLS)
    speaker = Speaker(
        ScriptedGenerator(Script((own,), faults or {})), SAMPLING, 0, "script", lambda _: log, settings.feedback
    )
    [(_, records)] = speaker.converse({own.name: make_all(own.text, folder, settings)})
    return folder, log, records
