"""Row types of every table; one frozen dataclass a table, nothing else crosses a stage or a Ray call.

Not here: how rows are stored (`plansmith.data.tables`) and what stages make them (`pipelines`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NewType

from plansmith.pddl.equivalence import Outcome
from plansmith.pddl.model import Atom
from plansmith.pddl.validation import Verdict
from plansmith.planners.result import PlannerStatus
from plansmith.text.chains import VALID, Span
from plansmith.text.explanations import FeedbackKind

Int32 = NewType("Int32", int)
Float32 = NewType("Float32", float)


class Split(StrEnum):
    """Where a problem may be used: phase 1, phase 2, telling whether an iteration gained, or evaluation only."""

    PHASE1 = "d1"
    PHASE2 = "d2"
    PROBE = "probe"
    TEST = "test"


class ExampleKind(StrEnum):
    """What a supervised example teaches (DESIGN, table `examples`)."""

    EXPLAIN_VALID = "explain_valid"
    EXPLAIN_INVALID = "explain_invalid"
    PLAN_CHAIN = "plan_chain"
    PLAN_OPENING = "plan_opening"
    CHAIN_WITH_MISTAKE = "chain_with_mistake"
    CORRECT_WITH_FEEDBACK = "correct_with_feedback"
    CONFIRM_WITH_FEEDBACK = "confirm_with_feedback"
    CONTINUE_PLAN = "continue_plan"
    PLAN = "plan"
    FORMALISE = "formalise"
    REPAIR = "repair"
    PLAN_FROM_TEXT = "plan_from_text"
    WRITE_DOMAIN = "write_domain"
    MODELLING = "modelling"
    DRILL = "drill"


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """One planning problem; ``problem_id`` hashes the domain and the problem text."""

    problem_id: str
    canonical_form: str
    domain: str
    level: str
    split: str
    n_objects: int
    domain_pddl: str
    problem_pddl: str
    source: str


@dataclass(frozen=True, slots=True)
class LengthRow:
    """How long the training texts of a domain are, in tokens; ``n_beyond`` are longer than what is trained on."""

    domain: str
    n: int
    n_beyond: int
    longest: int


@dataclass(frozen=True, slots=True)
class LeakRow:
    """What a split of texts would have leaked at one level: test texts that are a training text under other names."""

    level: str
    domain: str
    n_texts: int
    n_forms: int
    n_test: int
    n_leaked: int


@dataclass(frozen=True, slots=True)
class AlternativePlan:
    """A further valid plan of a problem, with other actions than those before it."""

    plan: tuple[str, ...]
    cost: float | None


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One problem and what the planner found; ``plan`` is empty unless ``status`` is ``solved``.

    Further plans are there where they were asked for (`PlannerConfig.n_plans`); all else is of the first.
    """

    problem_id: str
    planner: str
    status: str
    plan: tuple[str, ...]
    cost: float | None
    wall_time_s: float
    is_optimal: bool
    alternatives: tuple[AlternativePlan, ...] = ()
    held_out_after: int | None = None
    """So many steps of a plan to learn from, and what is left is a problem that only measures; None: never."""


@dataclass(frozen=True, slots=True)
class SolvedProblemRow:
    """A problem with its plan, joined for the stages that write texts."""

    problem_id: str
    level: str
    domain_pddl: str
    problem_pddl: str
    plan: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DrawJobRow:
    """Candidates to draw: so many of one domain and level, from number `first` on."""

    job_id: str
    domain: str
    level: str
    first: int
    count: int
    seed: int


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A drawn problem, before anybody knows whether it is taken."""

    job_id: str
    number: int
    canonical_form: str
    n_objects: int
    problem_pddl: str


@dataclass(frozen=True, slots=True)
class InventedDomainRow:
    """An invented domain that a run has, and what it has in common with the domains that are only tested.

    ``split`` is `Split.TEST` where it is held out. ``n_shared`` counts the action schemas, names apart, that it shares
    with ``nearest``: the tested domain of which it has most.
    """

    domain: str
    folder: str
    split: str
    form: str
    n_actions: int
    n_predicates: int
    n_parameters: int
    n_types: int
    nearest: str
    n_shared: int


@dataclass(frozen=True, slots=True)
class InventedJobRow:
    """A domain in which problems are to be drawn: the first forms for ``split``, and then some for D2."""

    domain: str
    folder: str
    split: str
    n_problems: int
    n_fresh: int
    n_draws: int
    seed: int


@dataclass(frozen=True, slots=True)
class PartJobRow:
    """Work on the rows of one part file; what it makes lies in part files of its own."""

    job_id: str
    domain: str
    level: str
    problems: str
    """Path of a part file of `ProblemRow`."""
    rows: tuple[int, ...]
    """Which of its rows."""
    plans: tuple[str, ...]
    """Paths of part files of `PlanRow`: where the plans go, or where they are."""
    output: str
    """Folder that the written part files go to, if any."""


@dataclass(frozen=True, slots=True)
class PartTimeRow:
    """Seconds that one job spent on one kind of work."""

    job_id: str
    work: str
    seconds: float


@dataclass(frozen=True, slots=True)
class CountRow:
    """A number of problems or rows of one domain, level and split, and what became of them."""

    domain: str
    level: str
    split: str
    what: str
    count: int


@dataclass(frozen=True, slots=True)
class DatasetPlanRow:
    """A solved problem of a dataset; ``problem_text`` says it in words where the domain has phrases."""

    problem_id: str
    canonical_form: str
    domain: str
    level: str
    n_objects: int
    domain_pddl: str
    problem_pddl: str
    problem_text: str | None
    plan: tuple[str, ...]
    plan_length: int
    cost: float
    is_optimal: bool
    planner: str


@dataclass(frozen=True, slots=True)
class DatasetExampleRow:
    """A training example of a dataset; sort by ``position`` for the order of the paper's curriculum."""

    example_id: str
    problem_id: str
    domain: str
    level: str
    kind: str
    corruption: str | None
    is_anonymised: bool
    position: float
    prompt: str
    response: str


@dataclass(frozen=True, slots=True)
class CorruptedPlanRow:
    """A plan shown wrong; ``claims`` has one text of atoms for each step, or none where no states are shown."""

    corrupted_id: str
    problem_id: str
    corruption: str
    domain_pddl: str
    problem_pddl: str
    plan: tuple[str, ...]
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TextRow:
    """A problem in words with the PDDL that it is to be answered with, and the plan of that once it is sorted.

    ``domain`` is what the domain is loaded by, its name or its folder, or its file; ``prompt`` asks for the PDDL of the
    ``text``.
    """

    problem_id: str
    domain: str
    level: str
    split: str
    prompt: str
    problem_pddl: str
    plan: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class PerturbedRow:
    """A problem with one mistake, and what the mistake is proved to amount to; ``fault`` is None where nothing is."""

    perturbed_id: str
    problem_id: str
    perturbation: str
    fault: str | None
    problem_pddl: str
    feedback: str
    """What validator and planner say of it, empty where it has a plan."""


@dataclass(frozen=True, slots=True)
class PairRow:
    """A preference pair: of two answers to a prompt the one that is right, and one with a proved fault."""

    pair_id: str
    problem_id: str
    fault: str
    prompt: str
    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True)
class PairReadingRow:
    """What a policy and its reference give to both answers of a held-out pair: logarithms of probabilities."""

    pair_id: str
    fault: str
    chosen: float
    rejected: float
    reference_chosen: float
    reference_rejected: float

    @property
    def delta(self) -> float:
        """Return Delta of equation 5 of NL-PDDL-Bench."""
        return (self.chosen - self.reference_chosen) - (self.rejected - self.reference_rejected)


OPPONENTS = "opponents"
"""Table of `WrittenDomainRow` beside the domain that counts: one of the same demonstrations that no model wrote."""
FIRST = "first"
"""Table of `WrittenDomainRow` beside the domain that counts: the best of the first answers."""


@dataclass(frozen=True, slots=True)
class WrittenDomainRow:
    """A domain as it was written or pruned, and what is said of it; shares are None where nothing could be tried."""

    domain: str
    turn: int
    """0 the first answer, the others were asked for with faults of the best before."""
    candidate: int
    completion: str
    domain_pddl: str
    n_literals: int
    transitions: float | None
    """Of the demonstrated attempts that worked, those that the domain explains."""
    refusals: float | None
    """Of the refused attempts, those that it forbids."""
    solved: float | None
    """Of the scenes, those for which a planner finds a plan."""
    true_plans: float | None
    """Of the scenes, those whose plan runs in the simulator and reaches the goal."""
    faults: tuple[str, ...]
    is_best: bool
    """It is the one that counts of its table."""
    dropped: tuple[str, ...] = ()
    """What pruning took."""
    applicable_precision: float | None = None
    """Of the actions that it allows in states of the simulator, those that are possible; None where not compared."""
    applicable_recall: float | None = None
    """Of the possible ones, those that it allows."""
    effect_precision: float | None = None
    """Of the changes that it foretells, those that come about."""
    effect_recall: float | None = None
    """Of those that come about, those that it foretells."""
    reference_plans: float | None = None
    """Of plans in the reference, those that are valid in it."""
    held_out: float | None = None
    """Of attempts on walks that neither prompts nor checks have seen, those that worked and that it explains; None
    where there is no such walk."""


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """One supervised example: the loss falls on ``response`` only.

    ``beginning`` is how the answer begins before ``response``: given, not learnt. In a chat it is the assistant's.
    """

    example_id: str
    problem_id: str
    kind: str
    corruption: str | None
    prompt: str
    response: str
    beginning: str = ""


class FinishReason(StrEnum):
    """Why a completion ended: by itself, at its limit, in circles, by a filter; or there was no room for one."""

    STOP = "stop"
    LENGTH = "length"
    REPETITION = "repetition"
    NO_ROOM = "no_room"
    FILTERED = "content_filter"


CUT = frozenset({FinishReason.LENGTH, FinishReason.REPETITION, FinishReason.FILTERED})
"""Of completions that the policy did not end."""


@dataclass(frozen=True, slots=True)
class OfRollout:
    """The first columns of every table with rows of a rollout."""

    rollout_id: str
    problem_id: str
    iteration: int
    policy_version: str


@dataclass(frozen=True, slots=True)
class RolloutRow(OfRollout):
    """One sampled completion with its tokens; ``rollout_logprobs`` are the engine's, one per completion token."""

    prompt: str
    completion: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]
    finish_reason: str
    seed: int


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Of what kind a failed attempt is, a `plansmith.judging.failure_kinds.FailureKind`."""

    problem_id: str
    kind: str


USAGE, FAILURES = "usage", "failures"
"""Tables of `UsageRow` and `FailedRequestRow` beside the rollouts of an endpoint."""


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a server counted of a rollout whose tokens only it knows; None where it does not count."""

    rollout_id: str
    problem_id: str
    prompt_tokens: int | None
    completion_tokens: int | None


@dataclass(frozen=True, slots=True)
class FailedRequestRow:
    """A problem without a rollout, because a request failed."""

    problem_id: str
    fault: str


@dataclass(frozen=True, slots=True)
class CompletionRow:
    """What a judge reads of a rollout."""

    rollout_id: str
    iteration: int
    policy_version: str
    completion: str
    is_cut: bool = False
    """The policy did not end it: a plan in it is none."""


@dataclass(frozen=True, slots=True)
class JudgingRow:
    """A problem with the completions to be judged of it.

    They stay together: what a judgement says first depends on the atoms that the task has met before.
    """

    problem_id: str
    domain_pddl: str
    problem_pddl: str
    completions: tuple[CompletionRow, ...]


@dataclass(frozen=True, slots=True)
class AnsweredTextRow:
    """A text with its problem and its plan, and the answers to be judged beside it; ``domain`` as in `TextRow`."""

    problem_id: str
    domain: str
    text: str
    problem_pddl: str
    plan: tuple[str, ...]
    completions: tuple[CompletionRow, ...]


@dataclass(frozen=True, slots=True)
class VerdictRow(OfRollout):
    """The judgement of one rollout, whole: of its plan, of the chain's steps taken together, of how it could be read.

    Steps count from 1; spans are of the completion. Everything that later stages ask about a rollout stands here or in
    `JudgedStepRow`: nothing is judged twice.
    """

    verdict: str
    """A `plansmith.pddl.validation.Verdict` on the plan."""
    reason: str
    """The verdict in a sentence."""
    error_class: str | None
    failed_step: int | None
    """Step of the plan whose precondition does not hold."""
    unsatisfied: tuple[str, ...]
    plan: tuple[str, ...]
    report: str
    """The validator's text, with the first wrong state of the chain, which it cannot see."""
    reading_fault: str | None = None
    """What is wrong with the text as a chain with a plan; None where it is well formed to its end."""
    claimed_verdict: str | None = None
    n_steps: int = 0
    """Steps of the chain."""
    first_fault: int | None = None
    """The first step of the chain that is wrong, or says something false of the state before it."""
    unread_reasons: int = 0
    """Reasons of the chain that cannot be read, though its actions can."""
    sound_steps: int = 0
    """How many steps of the chain a better continuation can keep."""
    final_plan_span: Span | None = None
    """Where the plan stands that is told after the chain."""
    verdict_span: Span | None = None
    """Where the policy states its own verdict."""
    expected_words: str | None = None
    """What a faithful writer tells at the first fault (`plansmith.judging.expected`); None where nobody knows."""
    expected_at: int | None = None
    """The character of the completion from which on they take the place of what it holds."""
    binary_feedback: str | None = None
    """A failed attempt with its marks, as the rendering hands it back; None where it has no words for that."""
    detailed_feedback: str | None = None
    """The same with the validator's feedback."""
    plan_cost: float | None = None
    """Of a valid plan: the value of the problem's metric, or the number of its actions."""
    progress: float | None = None

    @property
    def is_valid(self) -> bool:
        """Return whether the plan reaches the goal."""
        return self.verdict == Verdict.VALID

    @property
    def is_flawless(self) -> bool:
        """Return whether the plan is valid and no word of its chain is false or withdrawn, the verdict included."""
        told = 0 < self.n_steps <= len(self.plan)
        return self.is_valid and told and self.first_fault is None and self.claimed_verdict == VALID

    def handed_back(self, feedback: FeedbackKind) -> str | None:
        """Return the failed attempt as the rendering hands it back with feedback of a kind."""
        return self.binary_feedback if feedback is FeedbackKind.BINARY else self.detailed_feedback


@dataclass(frozen=True, slots=True)
class CriticismRow(OfRollout):
    """What a domain says of a plan by equations 10, 11 and 13 of Self-CriTeach; None where nobody could judge."""

    reward: float | None
    cost: float | None
    progress_printed: float | None
    """The state before the first wrong action against the goal, all atoms of both, as printed: below 1 for a valid plan
    whose goal names some atoms only."""


@dataclass(frozen=True, slots=True)
class FalseWords:
    """Words of a completion that claim something false, a literal or a mark long, and why it is."""

    span: Span
    reason: str


@dataclass(frozen=True, slots=True)
class FormalisedRow(OfRollout):
    """The judgement of one answer to a text: can it be read, has it a plan, does it mean what the text says.

    See `plansmith.judging.formalisation.Judgement`. ``iteration`` is the turn of the repair, 0 the first answer.
    """

    readability: str
    """A `plansmith.judging.formalisation.Readability`."""
    keeps_contract: bool
    """The answer is one problem and nothing else."""
    problem_pddl: str
    """The problem in the answer; where there is none, the answer."""
    codes: tuple[str, ...]
    """Of the errors in it, each once."""
    feedback: str
    """What the policy is told of it, empty where nothing is to be mended, as far as the judge was told to look; the
    reference is not looked at for that."""
    status: str | None
    """A `plansmith.planners.PlannerStatus`, None where the problem cannot be read."""
    plan: tuple[str, ...]
    reference_plan: tuple[str, ...]
    atom_similarity: float
    """Of its facts and goals with the reference's (equation 8), 0 where it cannot be read."""
    is_consistent: bool
    """It has a plan much like the reference's (equation 9)."""
    outcome: str | None
    """A `plansmith.pddl.equivalence.Outcome`, None where the problem cannot be read."""
    reason: str
    """Of the outcome, in words."""
    differences: tuple[str, ...]
    """From the reference, in words."""
    has_task_success: bool
    """Its plan solves the reference too, with objects renamed where a map between the two is known."""
    fault: str | None
    """A proved `plansmith.judging.formalisation.Fault`."""

    @property
    def is_parsed(self) -> bool:
        """Return whether the problem can be read."""
        return self.status is not None

    @property
    def is_solved(self) -> bool:
        """Return whether a plan was found for what was written."""
        return self.status == PlannerStatus.SOLVED

    @property
    def is_same(self) -> bool:
        """Return whether the problem is known to mean what the reference does."""
        return self.outcome is not None and Outcome(self.outcome).is_same

    @property
    def is_flattered(self) -> bool:
        """Return whether there is a plan, and the problem is not known to mean what the reference does."""
        return self.is_solved and not self.is_same


@dataclass(frozen=True, slots=True)
class JudgedStepRow(OfRollout):
    """One step of a chain with its judgement: a triplet of D_reasoning (equation 10), and where it stands.

    States are atoms in the order of the text; ``s_expected`` of a right step is what it claims. ``state_distance`` is
    equation 6; ``choice`` and ``outcome`` are those of `plansmith.text.chains.StepSpans`.
    """

    step: int
    action: str
    feedback_code: str
    """A `plansmith.pddl.validation.FeedbackCode`."""
    state_distance: int
    reason: str
    false_words: tuple[FalseWords, ...]
    """What the step says wrongly of ``s_prev``; of the last that is not withdrawn also what the closing check does."""
    fault_span: Span | None
    """The first false words of the step, action and next state included; None where nothing is wrong, and where a chain
    that misses the goal says so."""
    s_prev: tuple[str, ...]
    s_claimed: tuple[str, ...]
    s_expected: tuple[str, ...]
    choice: Span
    outcome: Span

    @property
    def claimed_atoms(self) -> tuple[Atom, ...]:
        """Return the state that the step claims to lead to; empty brackets are an atom without name, which is false."""
        words = (text[1:-1].split() or [""] for text in self.s_claimed)
        return tuple(Atom(predicate, tuple(arguments)) for predicate, *arguments in words)


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """What a judge says of the completions of one problem, on its way to the tables of verdicts and of steps."""

    problem_id: str
    verdicts: tuple[VerdictRow, ...]
    steps: tuple[JudgedStepRow, ...]


@dataclass(frozen=True, slots=True)
class StepLossRow:
    """The loss of one judged step as printed (equations 5 to 7), under the weights and the feedback of the run."""

    rollout_id: str
    problem_id: str
    step: int
    step_loss: float


@dataclass(frozen=True, slots=True)
class FinalPlanRow(OfRollout):
    """One row of D_final (equation 11): the plan, the validator's v, the policy's v_hat, equation 9 as printed."""

    plan: tuple[str, ...]
    v: int
    v_hat: float | None
    plan_loss: float


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """One plan whose validity a policy stated: its own, or a given one that may be corrupted.

    ``v`` is the validator's label; ``v_hat`` is None where it was not computed, or no verdict was stated.
    """

    example_id: str
    problem_id: str
    corruption: str | None
    v: int
    stated_verdict: str | None
    v_hat: float | None
    completion: str


@dataclass(frozen=True, slots=True)
class SequenceRow:
    """One training sequence (`plansmith.learning.sequences.TrainingSequence`).

    ``numbers`` holds one number per token for the first of ``columns``, then for the next.
    """

    ROWS_PER_GROUP: ClassVar[int] = 128
    """Few, as what is trained on is drawn from a file in random order (`plansmith.data.tables`)."""

    sequence_id: str
    unit: str
    token_ids: tuple[Int32, ...]
    columns: tuple[str, ...]
    numbers: tuple[Float32, ...]


@dataclass(frozen=True, slots=True)
class EncodingJobRow:
    """Examples to encode: so many rows of one table, from number `first` on."""

    job_id: str
    examples: str
    """Path of a file of `ExampleRow`."""
    first: int
    count: int
    output: str
    """Path of the part file of `SequenceRow` that is written."""


@dataclass(frozen=True, slots=True)
class ContinuationRow:
    """How an attempt goes on better: so many of its steps are kept, and a plan leads from there to the goal.

    ``needed_steps``: an optimal plan can begin with so many of them; 0 where no optimum is proved.
    """

    rollout_id: str
    problem_id: str
    kept_steps: int
    needed_steps: int
    plan: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt that may go on better.

    ``n_sound`` steps of its chain are sound; ``plan`` are their actions, without those that the chain withdraws.
    ``is_whole``: they solve the problem.
    ``optimum``: cost of an optimal plan for the problem, if it is known.
    """

    rollout_id: str
    problem: ProblemRow
    n_sound: int
    plan: tuple[str, ...]
    is_whole: bool
    optimum: float | None


@dataclass(frozen=True, slots=True)
class ReplannedRow:
    """How an attempt goes on better, and the plans that were made to find it."""

    rollout_id: str
    plans: tuple[PlanRow, ...]
    continuations: tuple[ContinuationRow, ...]


@dataclass(frozen=True, slots=True)
class LearningRow:
    """What an iteration knows about one problem, joined for the writer of what is learnt from it.

    ``step_losses`` has one number for each of ``steps``: L_step over the standard deviation of the iteration's.
    ``baselines`` has one for each rollout, the mean failure of the others.
    """

    problem_id: str
    problem: SolvedProblemRow
    rollouts: tuple[RolloutRow, ...]
    verdicts: tuple[VerdictRow, ...]
    steps: tuple[JudgedStepRow, ...]
    step_losses: tuple[float, ...]
    baselines: tuple[float, ...]
    continuations: tuple[ContinuationRow, ...]


@dataclass(frozen=True, slots=True)
class LessonRow:
    """What is learnt from the rollouts of one problem: sequences of both stages, corrected and continued chains."""

    problem_id: str
    reasoning: tuple[SequenceRow, ...]
    final: tuple[SequenceRow, ...]
    corrections: tuple[ExampleRow, ...]
    continuations: tuple[ExampleRow, ...]


@dataclass(frozen=True, slots=True)
class OptimisationStepRow:
    """One optimiser step of one optimisation, for the training curves."""

    step: int
    loss: float
    learning_rate: float
    gradient_norm: float


@dataclass(frozen=True, slots=True)
class ObjectiveFigureRow:
    """What an objective measures beside its loss at one optimiser step, such as the margin of preference pairs."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One number of a run, named like ``rollout/valid_plan_rate``."""

    stage: str
    iteration: int
    domain: str
    level: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ModellingTaskRow:
    """A text of NL2Plan with its reference; ``optimum`` is the length of a shortest plan of it, None where unknown."""

    task: str
    domain: str
    level: str
    text: str
    domain_pddl: str
    problem_pddl: str
    optimum: int | None


@dataclass(frozen=True, slots=True)
class ProductRow:
    """A file that a step has made of a text; ``file`` is its name in the folder of a task."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One draft of a task of NL2Plan; ``agreement`` is the share of the other drafts in which its plan is one too."""

    task: str
    domain: str
    draft: int
    has_plan: bool
    is_right: bool
    agreement: float


@dataclass(frozen=True, slots=True)
class ActionAgreementRow:
    """Whether an action that a model has written is the reference's; ``domain`` is the text's, phrasing included."""

    task: str
    domain: str
    action: str
    is_equal: bool


@dataclass(frozen=True, slots=True)
class ModellingStepRow:
    """What is to be said about an answer that was accepted.

    Attributes:
        step: a `DialogueStep`, or `plansmith.modelling.steps.PLANNING`.
        subject: the pass and the action, of step 4.
        n_messages: error messages about it.
        faults: the checks whose faults it was accepted with.
        advice: that was given; empty where none was.
        before: the product before the advice, empty without any.
        after: the product.
    """

    step: str
    subject: str
    n_messages: int
    faults: tuple[str, ...]
    advice: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ModelledTaskRow:
    """What a step has made of a text."""

    task: str
    products: tuple[ProductRow, ...]
    steps: tuple[ModellingStepRow, ...]


@dataclass(frozen=True, slots=True)
class ModellingCallRow:
    """One question about a text with its answer, ``number`` of its dialogue; ``messages`` are JSON, role and text.

    The ``key`` is that of all on which the answer depends: an answer that was there already has the key that it had.
    """

    task: str
    number: int
    key: str
    step: str
    subject: str
    kind: str
    messages: str
    checks: tuple[str, ...]
    answer: str
    finish_reason: str
    model: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelledPlanRow:
    """What planning came to in a modelled domain; ``status`` is a `PlannerStatus` or ``refused``."""

    task: str
    status: str
    plan: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class ModelledVerdictRow:
    """Whether a plan from a text is right: valid on the reference, under an interpretation that counts.

    ``arm`` is ``nl2plan``, ``unchecked``, ``unadvised``, ``one_call``, ``zero_shot`` or ``rules``. ``confirmed`` says
    by what the interpretation counts: ``names``, where the plan speaks as the reference does, ``person``, or empty
    where none does; ``proposal`` is one that a search has found, as JSON, empty where there is none.
    """

    task: str
    arm: str
    status: str
    is_right: bool
    confirmed: str
    plan: tuple[str, ...]
    proposal: str


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """What advice on an answer did, held against the reference.

    ``effect`` is ``helped``, ``no effect``, ``harmful`` or ``unclassed``.
    """

    task: str
    step: str
    subject: str
    effect: str
