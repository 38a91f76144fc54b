"""The model folder that a run gives to the world: weights, tokenizer, generation settings, and a model card.

Hugging Face layout, so that transformers and vLLM load it without Plansmith. Not here: the folders in which a run keeps
its policies, which may be adapters and have no card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import EvalResult, ModelCardData
from jinja2 import Environment, StrictUndefined

from plansmith.errors import BadInputError
from plansmith.learning.adapters import copy_tokenizer, is_adapter_folder, merge_adapter, written_whole
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import end_token_ids
from plansmith.learning.weight_files import SAFE_LOADING, check_weight_files

if TYPE_CHECKING:
    from transformers import GenerationConfig, PreTrainedTokenizerBase

CARD = "README.md"
EXAMPLE_PROMPT = "example_prompt.txt"
LICENSE_FROM_NOTHING = "apache-2.0"
EPS = 1e-9
"""The end of an interval may miss 0 of n or n of n by rounding."""
HUB_NAME = re.compile(r"(?:\w[\w.-]*/)?\w[\w.-]*")


@dataclass(frozen=True, slots=True)
class Skill:
    """What a model was trained to do, in the words of its card.

    Attributes:
        about: what it does, a sentence that goes on after "A language model that".
        heading: over its figures.
        warning: what may be wrong with its answers, and how they are checked; Markdown.
        right: what an answer must be to be counted, in the plural.
        task: its name on the Hub.
        command: of Plansmith, which lets it work on what a user has.
        tags: on the Hub.
    """

    about: str
    heading: str
    warning: str
    right: str
    task: str
    command: str
    tags: tuple[str, ...]


PLANNING = Skill(
    about="plans: given a PDDL domain and problem it writes a chain of thought, a plan and its own verdict on it",
    heading="How well it plans",
    warning="**Its plans can be wrong, and so can its verdicts.** Check every plan with a validator before anything is "
    "done with it\n(`plansmith validate domain.pddl problem.pddl plan.txt`); every figure below is the validator's "
    "judgement, not the model's.",
    right="valid plans",
    task="PDDL planning",
    command="plansmith evaluate --policy . --domain domain.pddl --problems FOLDER",
    tags=("plansmith", "planning", "pddl", "chain-of-thought"),
)
FORMALISING = Skill(
    about="formalises: given a planning problem in words it writes the PDDL problem",
    heading="How often it means what the text says",
    warning="**Its problems can mean another thing than the text, and have a plan all the same.** No planner tells:\n"
    "read every problem before anything is done with its plan. Every figure below is a comparison with a reference\n"
    "(`plansmith compare`), which a text of your own does not have.",
    right="problems of the right meaning",
    task="PDDL formalisation",
    command="plansmith formalise --policy . --domain domain.pddl task.txt",
    tags=("plansmith", "planning", "pddl", "formalisation"),
)


@dataclass(frozen=True, slots=True)
class MeasuredAccuracy:
    """How many problems of a domain and level the policy answered right, as the validator judged.

    Attributes:
        low: lower end of the interval of the accuracy, in [0, 1]; `high` is the upper.
        n_right_before: problems that the untrained policy answered right; None where that was not measured.
    """

    domain: str
    level: str
    n_problems: int
    n_right: int
    low: float
    high: float
    n_right_before: int | None = None

    def __post_init__(self) -> None:
        is_share = self.n_problems >= 1 and 0 <= self.n_right <= self.n_problems
        if not is_share or not (0 <= self.low <= self.accuracy + EPS and self.accuracy - EPS <= self.high <= 1):
            raise ValueError(f"no accuracy with its interval: {self}")

    @property
    def accuracy(self) -> float:
        """Return the share of right answers."""
        return self.n_right / self.n_problems


@dataclass(frozen=True, slots=True)
class TrainedOn:
    """Problems of one domain and level that the policy was trained on."""

    domain: str
    level: str
    n_problems: int


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the world is told about a model, in plain values.

    Attributes:
        skill: what it was trained to do.
        name: of the model.
        base_model: its name on the Hub, ``owner/name``; None for a model trained from nothing.
        method: one or two sentences on how it was trained, with the paper.
        rendering: of prompts and answers, ``compact`` or ``full``.
        example_prompt: a whole prompt.
        max_new_tokens: the longest answer, in tokens.
        accuracies: by domain and level.
        training: by domain and level.
        config: the settings of the run. Absolute paths in it are shortened to their last part.
        n_test_forms: canonical forms of the test problems.
        n_trained_forms: those of them that are forms of training problems, too.
        examples: kind of training example with its number.
        limits: what else it was not trained on or cannot do, a sentence each.
        datasets: names on the Hub of the datasets it was trained on.
        interval: what `low` and `high` of the accuracies are.
    """

    skill: Skill
    name: str
    base_model: str | None
    method: str
    rendering: str
    example_prompt: str
    max_new_tokens: int
    accuracies: tuple[MeasuredAccuracy, ...]
    training: tuple[TrainedOn, ...]
    config: Mapping[str, Any]
    n_test_forms: int
    n_trained_forms: int
    examples: tuple[tuple[str, int], ...] = ()
    limits: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    interval: str = "95% Wilson interval"

    def __post_init__(self) -> None:
        for name in (*([] if self.base_model is None else [self.base_model]), *self.datasets):
            if not HUB_NAME.fullmatch(name):
                raise BadInputError(
                    "no name of the Hub", where="model card", got=repr(name), expected="owner/name",
                    cure="give the name under which it was published, not a path",
                )  # fmt: skip


def export_model(source_folder: str | Path, target: str | Path, card: ModelCard) -> None:
    """Write a model with its card; the folder is complete or not there.

    An adapter is merged into its base. Generation is greedy, ends at every end token of the model and after
    `card.max_new_tokens`, whatever the source's settings for sampling were.

    Args:
        source_folder: a model or adapter folder.
        target: is replaced if it exists.
        card: what its README says.

    Raises:
        BadInputError: no model in the source, or an adapter whose base is gone.
    """
    source, target = Path(source_folder), Path(target)
    tokenizer = load_tokenizer(str(source))
    with written_whole(target) as partial:
        if is_adapter_folder(source):
            merge_adapter(source, partial)
        else:
            _copy_model(source, partial)
        stop_token_ids = end_token_ids(tokenizer, source)
        _generation_config(tokenizer, stop_token_ids, card.max_new_tokens).save_pretrained(partial)
        (partial / EXAMPLE_PROMPT).write_text(card.example_prompt, encoding="utf-8")
        readme = render_model_card(card, is_chat=bool(tokenizer.chat_template), stop_token_ids=stop_token_ids)
        (partial / CARD).write_text(readme, encoding="utf-8")


def render_model_card(card: ModelCard, *, is_chat: bool, stop_token_ids: tuple[int, ...]) -> str:
    """Return the model card, README.md with the metadata that Hugging Face's hub reads."""
    text = files("plansmith.learning").joinpath("templates", "model_card.md.j2").read_text(encoding="utf-8")
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False).from_string(text)
    return template.render(
        card=card,
        metadata=_metadata(card).to_yaml(),
        is_chat=is_chat,
        stop_token_ids=list(stop_token_ids),
        trained_domains={row.domain for row in card.training},
        has_before=any(row.n_right_before is not None for row in card.accuracies),
        settings=json.dumps(_without_places(card.config), indent=2, default=str),
        percent=lambda share: f"{100 * share:.1f}%",
    )


def _copy_model(source: Path, target: Path) -> None:
    """Write weights, tokenizer and licence; what else lies in the folder stays behind.

    The weights get the precision that config.json names: a run keeps those of a model in bfloat16 in float32.
    """
    from transformers import AutoModelForCausalLM

    check_weight_files(source)
    AutoModelForCausalLM.from_pretrained(source, dtype="auto", **SAFE_LOADING).save_pretrained(target)
    copy_tokenizer(source, target)


def _generation_config(
    tokenizer: PreTrainedTokenizerBase, stop_token_ids: tuple[int, ...], max_new_tokens: int
) -> GenerationConfig:
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(stop_token_ids),
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def _metadata(card: ModelCard) -> ModelCardData:
    """Return the card's metadata; the licence of a tuned model is its base's, which is not ours to state."""
    is_tuned = card.base_model is not None
    licence_or_base: dict[str, Any] = (
        {"base_model_relation": "finetune"} if is_tuned else {"license": LICENSE_FROM_NOTHING}
    )
    return ModelCardData(
        model_name=card.name,
        base_model=card.base_model,
        datasets=list(card.datasets) or None,
        eval_results=[_eval_result(row, card.skill) for row in card.accuracies] or None,
        language="en",
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=list(card.skill.tags),
        **licence_or_base,
    )


def _eval_result(row: MeasuredAccuracy, skill: Skill) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        task_name=skill.task,
        dataset_type="pddl",
        dataset_name=f"{row.domain}, {row.level}",
        dataset_config=f"{row.domain}-{row.level}",
        dataset_split="test",
        metric_type="accuracy",
        metric_name=f"{skill.right}, share of {row.n_problems} problems",
        metric_value=round(row.accuracy, 4),
    )


def _without_places(value: Any) -> Any:
    """Return settings with absolute paths shortened to their last part: where a run lay is no one's business."""
    if isinstance(value, Mapping):
        return {key: _without_places(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(item) for item in value]
    if isinstance(value, Path) or (isinstance(value, str) and Path(value).is_absolute()):
        return Path(value).name
    return value
