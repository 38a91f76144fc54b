"""Compact texts that tell the domain: written, read back and judged in every domain that they can tell."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from conftest import random_walk
from hypothesis import given
from hypothesis import strategies as st

from plansmith.config.dataset import SymbolPoolConfig
from plansmith.data.rows import CompletionRow, JudgedRow, JudgingRow
from plansmith.errors import BadInputError
from plansmith.judging.chains import judge_completion
from plansmith.judging.judge import PlanJudge
from plansmith.learning.tokenizer import UNKNOWN, encode, word_tokenizer
from plansmith.pddl.grounding import PlanningTask
from plansmith.pddl.model import (
    ActionSchema,
    ConditionalEffect,
    CostIncrease,
    Domain,
    Effect,
    Literal,
    PlanStep,
    UniversalEffect,
    literals_of,
)
from plansmith.pddl.parser import parse_plan
from plansmith.pddl.printer import print_domain, print_problem
from plansmith.problems.library import domain_names, load_domain
from plansmith.text.anonymisation import anonymise
from plansmith.text.chains import Part, chain_of_plan
from plansmith.text.rendering import prompting_of
from plansmith.text.told import TOLD_MARKERS, domain_words, read_told_chain, told_chain, told_prompt

UNTELLABLE = {"assembly", "household", "independent-set", "openstacks", "power-network"}
TOLD = [name for name in domain_names() if name not in UNTELLABLE]
POOL = SymbolPoolConfig(objects=64)


def task_of(name: str, seed: int = 0) -> PlanningTask:
    """Return a problem of a domain's first level."""
    loaded = load_domain(name)
    return PlanningTask(loaded.domain, loaded.sample(loaded.levels[0], random.Random(seed)))


def briefcase() -> PlanningTask:
    problem = """(define (problem p) (:domain briefcase) (:objects o - portable l m - location)
      (:init (is-at l) (at o l)) (:goal (and (at o m))))"""
    return PlanningTask.from_text(print_domain(load_domain("briefcase").domain), problem)


TWO_PORTABLES = """(define (problem p) (:domain briefcase) (:objects o r - portable l m - location)
  (:init (is-at l) (at o l) (in o) (at r l) (in r)) (:goal (and (at o m))))"""


def judged(task: PlanningTask, completion: str) -> JudgedRow:
    row = JudgingRow("p", print_domain(task.domain), print_problem(task.problem),
                     (CompletionRow("r", 0, "version", completion),))  # fmt: skip
    return PlanJudge("chain_told").judge(row)


def test_told_prompt_of_a_small_problem_is_as_written_by_hand() -> None:
    assert told_prompt(briefcase()) == (
        "types: portable location "
        "with: ?m location ?l location action: move since: is-at ?m add: is-at? ?l move delete: is-at ?m "
        "each: ?x portable when: in ?x add: at? ?x ?l move delete: at ?x ?m "
        "with: ?x portable action: take-out since: in ?x delete: in ?x "
        "with: ?x portable ?l location action: put-in since: is-at ?l at ?x ?l not: in ?x add: in? ?x put-in "
        "objects: o portable l location m location always: goal: at? o m now: is-at l at o l plan:"
    )


def test_told_chain_names_parameters_and_leaves_out_what_no_action_changes() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    assert "aim: at? ?x o ?l m move since: is-at ?m l met: need: in? ?x o put-in since: is-at ?l l met:" in text
    assert "since: is-at ?l l met: at ?x o ?l l met: not: in ?x o met: do: put-in" in text
    assert (
        "do: put-in ?x o ?l l check: is-at l at o l not: in o ok: add: in ?x o delete: now: is-at l at o l in o aim:"
        in text
    )
    assert "ok: add: is-at ?l m at ?x o ?l m delete: is-at ?m l at ?x o ?m l now: in o is-at m at o m goals:" in text
    assert text.endswith("goals: at? o m met: verdict: VALID")
    task = task_of("miconic")
    (step,) = random_walk(task, 1, random.Random(1))
    static = {atom.predicate for atom in task.problem.init if task.is_static(atom.predicate)}
    now = told_chain(task, [step]).partition(" now: ")[2].partition(" goals: ")[0]
    assert static and not static & set(now.split())
    assert static <= set(told_prompt(task).partition(" always: ")[2].split())


@pytest.mark.parametrize("name", TOLD)
def test_a_chain_of_every_domain_that_can_be_told_is_read_back_and_judged_right(name: str) -> None:
    for seed in range(2):
        task = task_of(name, seed)
        plan = random_walk(task, 4, random.Random(seed))
        text = told_chain(task, plan)
        read = read_told_chain(text, task.domain)
        assert read.fault is None and read.chain.final_plan == tuple(plan)
        for told, true in zip(read.chain.steps, chain_of_plan(task, plan).steps, strict=True):
            assert (told.purpose, told.servants) == (true.purpose, true.servants)
        (verdict,), steps = judged(task, text).verdicts, judged(task, text).steps
        assert verdict.plan == tuple(map(str, plan)) and verdict.error_class != "unreadable"
        assert all(step.state_distance == 0 and step.s_claimed == step.s_expected for step in steps)
        assert len(steps) == len(plan) and not any(step.false_words for step in steps)


@pytest.mark.parametrize("name", TOLD)
def test_a_told_prompt_has_every_schema_of_its_domain(name: str) -> None:
    domain = load_domain(name).domain
    words = domain_words(domain).split()
    places = [place for place, word in enumerate(words) if word == "action:"]
    starts = [max((i for i in range(place) if words[i] == "with:"), default=place) for place in places]
    starts = [place if "action:" in words[start:place] else start for start, place in zip(starts, places, strict=True)]
    told = [words[start:end] for start, end in zip(starts, [*starts[1:], len(words)], strict=True)]
    for action, found in zip(domain.actions, told, strict=True):
        assert _read_schema(found, domain) == _schema(action)


Told = tuple[str, tuple[tuple[str, tuple[str, ...]], ...], frozenset[str], frozenset[tuple[str, ...]]]
"""Name, parameters, preconditions, and effects, each with what it stands under."""


def _schema(action: ActionSchema) -> Told:
    parameters = tuple((typed.name, typed.types) for typed in action.parameters)
    conditions = frozenset(map(_text, literals_of(action.precondition)))
    return action.name, parameters, conditions, frozenset(_effects(action.effects, ()))


def _effects(effects: tuple[Effect, ...], under: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for effect in effects:
        match effect:
            case Literal():
                yield (*under, _text(effect))
            case UniversalEffect():
                each = [f"each {typed.name} {' '.join(typed.types)}" for typed in effect.parameters]
                yield from _effects(effect.effects, (*under, *each))
            case ConditionalEffect():
                when = sorted(f"when {_text(one)}" for one in literals_of(effect.condition))
                yield from _effects(effect.effects, (*under, *when))
            case CostIncrease():
                pass


def _text(literal: Literal) -> str:
    words = [literal.atom.predicate, *literal.atom.arguments]
    return " ".join(words if literal.is_positive else ["not", *words])


def _read_schema(words: list[str], domain: Domain) -> Told:
    """Return what the words of an action say; the domain tells arities alone."""
    arity = {schema.name: len(schema.parameters) for schema in domain.predicates} | {"=": 2}
    sections: list[tuple[str, list[str]]] = []
    for word in words:
        if word.endswith(":") and word != "not:":
            sections.append((word, []))
        else:
            sections[-1][1].append(word)
    parameters = tuple(_variables(sections.pop(0)[1])) if sections[0][0] == "with:" else ()
    assert sections[0][0] == "action:"
    (name,) = sections[0][1]
    conditions: list[str] = []
    effects: list[tuple[str, ...]] = []
    under: list[str] = []
    for number, (marker, told) in enumerate(sections[1:], 1):
        if marker == "each:":
            under = [f"each {variable} {' '.join(types)}" for variable, types in _variables(told)]
        elif marker == "since:":
            conditions = list(_read_literals(told, arity))
        elif marker == "when:":
            is_within = sections[number - 1][0] == "each:"
            under = [*(under if is_within else ()), *sorted(f"when {one}" for one in _read_literals(told, arity))]
        elif marker == "add:":
            effects += [(*under, one) for one in _read_literals(_unserved(told, name), arity)]
        else:
            assert marker == "delete:"
            effects += [(*under, f"not {one}") for one in _read_literals(told, arity)]
    return name, parameters, frozenset(conditions), frozenset(effects)


def _variables(words: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    starts = [place for place, word in enumerate(words) if word.startswith("?")]
    for number, start in enumerate(starts, 1):
        yield words[start], tuple(words[start + 1 : [*starts, len(words)][number]])


def _unserved(words: list[str], action: str) -> list[str]:
    """Return add effects without mark and action; each ends in this."""
    starts = [place for place, word in enumerate(words) if word.endswith("?")]
    ends = [end - 1 for end in (*starts[1:], len(words))]
    assert starts and all(words[end] == action for end in ends)
    return [word.removesuffix("?") for place, word in enumerate(words) if place not in ends]


def _read_literals(words: list[str], arity: dict[str, int]) -> Iterator[str]:
    place = 0
    while place < len(words):
        is_negative = words[place] == "not:"
        place += is_negative
        end = place + 1 + arity[words[place]]
        yield " ".join([*(["not"] if is_negative else []), *words[place:end]])
        place = end


@pytest.mark.parametrize("name", sorted(UNTELLABLE))
def test_a_domain_that_cannot_be_told_is_refused_with_a_cure(name: str) -> None:
    with pytest.raises(BadInputError) as caught:
        told_prompt(task_of(name))
    assert caught.value.cure


def test_a_false_fluent_is_a_fault_and_a_static_atom_left_out_is_none() -> None:
    task = task_of("miconic")
    text = told_chain(task, random_walk(task, 1, random.Random(1)))
    here = text.partition(" now: ")[2].partition("lift-at ")[2].split()[0]
    floor = next(typed.name for typed in task.problem.objects if "floor" in typed.types and typed.name != here)
    before, after = text.split(" now: ")
    wrong = f"{before} now: {after.replace(f'lift-at {here}', f'lift-at {floor}')}"
    (right_step,), (wrong_step,) = judged(task, text).steps, judged(task, wrong).steps
    assert (right_step.feedback_code, right_step.state_distance) == ("goal", 0)
    assert (wrong_step.feedback_code, wrong_step.state_distance) == ("effect", 2)


def test_an_aim_without_arguments_names_its_action() -> None:
    task = PlanningTask.from_text(
        "(define (domain d) (:predicates (dark) (lit) (at ?x)) (:action go :parameters (?x) "
        ":precondition (and (at ?x) (dark)) :effect (and (lit) (not (dark)))))",
        "(define (problem p) (:domain d) (:objects s) (:init (dark) (at s)) (:goal (lit)))",
    )
    assert "aim: lit? go since: at ?x s met: dark met: do: go ?x s" in told_chain(task, parse_plan("(go s)"))


def test_a_precondition_said_to_be_lacking_that_holds_is_a_false_claim() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    wrong = text.replace("at ?x o ?l l met:", "at ?x o ?l l unmet:", 1)
    assert not any(step.false_words for step in judged(briefcase(), text).steps)
    (found,) = judge_completion(briefcase(), wrong, prompting_of("chain_told")).steps[0].false_claims
    assert (found.reason, wrong[found.span.start : found.span.end]) == ("(at o l) holds", "unmet:")


def test_a_mark_on_what_the_problem_does_not_have_is_no_wrong_mark_but_wrong_words() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    wrong = text.replace("since: is-at ?m l met:", "since: is-at ?m nowhere met:", 1)
    (found,) = judge_completion(briefcase(), wrong, prompting_of("chain_told")).steps[0].false_claims
    assert wrong[found.span.start : found.span.end] == "is-at ?m nowhere"


def test_a_false_list_of_what_is_deleted_is_found() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    assert text.count("delete: is-at ?m l at ?x o ?m l now:") == 1
    wrong = text.replace("delete: is-at ?m l at ?x o ?m l now:", "delete: is-at ?m l now:")
    (found,) = judge_completion(briefcase(), wrong, prompting_of("chain_told")).steps[1].false_claims
    assert found.reason == "leaves out (at o l)"


def test_a_change_said_of_another_object_than_the_action_has_cannot_be_read() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    wrong = text.replace("ok: add: is-at ?l m at ?x o", "ok: add: is-at ?l l at ?x o")
    read = read_told_chain(wrong, briefcase().domain)
    assert read.fault is not None and read.fault.endswith("got 'l', expected 'm'") and len(read.chain.steps) == 1


def test_a_change_told_as_a_negation_cannot_be_read() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    read = read_told_chain(text.replace("ok: add: in ?x o", "ok: add: not: in ?x o"), briefcase().domain)
    assert read.fault is not None and read.fault.endswith("a state lists true atoms only") and not read.chain.steps


def test_every_object_of_an_effect_for_all_of_a_type_is_read_and_changes_without_variables_too() -> None:
    task = PlanningTask.from_text(print_domain(load_domain("briefcase").domain), TWO_PORTABLES)
    text = told_chain(task, parse_plan("(move l m)"))
    told = "add: is-at ?l m at ?x o ?l m at ?x r ?l m delete: is-at ?m l at ?x o ?m l at ?x r ?m l now:"
    assert told in text
    bare = text.replace(told, "add: is-at m at o m at r m delete: is-at l at o l at r l now:")
    first, second = (read_told_chain(one, task.domain) for one in (text, bare))
    assert first.fault is None and first.chain == second.chain


def test_a_variable_that_stands_for_two_objects_is_a_reason_that_cannot_be_read() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    wrong = text.replace("at ?x o ?l l met:", "at ?x o ?l m met:", 1)
    read = read_told_chain(wrong, briefcase().domain)
    assert read.fault is None and len(read.chain.steps) == 2
    faults = [claim.fault for claim in read.spans[0].claims if claim.part is Part.UNREAD]
    assert len(faults) == 1 and faults[0].endswith("got 'm', expected 'l'")


def test_preconditions_that_nothing_changes_come_first_and_objects_that_none_names_stand_in_the_aim() -> None:
    task = PlanningTask.from_text(
        "(define (domain d) (:predicates (at ?x) (road ?x ?y) (seen ?x ?y)) (:action go :parameters (?a ?b ?c) "
        ":precondition (and (at ?a) (road ?a ?b)) :effect (and (at ?b) (not (at ?a)) (forall (?z) (seen ?z ?z)))))",
        "(define (problem p) (:domain d) (:objects s t) (:init (at s) (road s t)) (:goal (seen t t)))",
    )
    assert "since: road ?a ?b at ?a add: at? ?b go" in told_prompt(task)
    text = told_chain(task, parse_plan("(go s t s)"))
    assert "aim: seen? ?z t ?z t ?c s go since: road ?a s ?b t met: at ?a s met: do: go ?a s ?b t ?c s" in text
    assert read_told_chain(text, task.domain).chain.steps[0].servants == (PlanStep("go", ("s", "t", "s")),)


def test_an_aim_is_told_as_the_effect_that_serves_it_and_not_as_another_of_its_predicate() -> None:
    task = PlanningTask.from_text(
        "(define (domain d) (:predicates (off ?x) (on ?x)) (:action go :parameters (?a ?b) "
        ":precondition (and (off ?a) (off ?b)) :effect (and (on ?a) (on ?b))))",
        "(define (problem p) (:domain d) (:objects s t) (:init (off s) (off t)) (:goal (on t)))",
    )
    assert "aim: on? ?b t go since: off ?a s met: off ?b t met: do: go" in told_chain(task, parse_plan("(go s t)"))


def test_an_aim_of_an_action_that_the_domain_does_not_have_cannot_be_read() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l) (move l m)"))
    read = read_told_chain(text.replace("?l m move since:", "?l m fly since:", 1), briefcase().domain)
    faults = [claim.fault for claim in read.spans[0].claims if claim.part is Part.UNREAD]
    assert read.fault is None and len(faults) == 1 and faults[0].endswith("got 'fly', expected an action")


def test_an_aim_whose_action_lacks_an_object_is_passed_over_and_one_without_an_action_is_read() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l)"))
    assert "aim:" not in text  # it serves no goal
    aimed = text.replace("do:", "aim: in? ?x o put-in since: is-at l met: do:", 1)
    plain = text.replace("do:", "aim: in? o since: is-at l do:", 1)
    lacking, bare = (read_told_chain(one, briefcase().domain) for one in (aimed, plain))
    assert lacking.fault is None and lacking.chain.steps[0].purpose == ()
    assert [claim.fault for claim in lacking.spans[0].claims if claim.part is Part.UNREAD] == [
        "word 20: got 'do:', expected '?l'"
    ]
    assert [str(one) for one in bare.chain.steps[0].purpose] == ["(in o)"] and bare.chain.steps[0].servants == (None,)


def test_a_step_whose_parameters_are_out_of_order_is_unreadable() -> None:
    text = told_chain(briefcase(), parse_plan("(put-in o l)")).replace("do: put-in ?x o ?l l", "do: put-in ?l o ?x l")
    read = read_told_chain(text, briefcase().domain)
    assert read.fault is not None and "expected '?x'" in read.fault
    assert read.broken_action is not None and read.broken_action.arguments == ("o", "l")


@pytest.mark.parametrize("name", [name for name in TOLD if name not in ("woodworking", "spider")])
def test_a_domain_under_symbols_of_the_pool_has_only_words_of_a_fixed_vocabulary(name: str) -> None:
    task = task_of(name)
    plan = random_walk(task, 3, random.Random(0))
    hidden = anonymise(task.domain, task.problem, plan, random.Random(3), POOL)
    asked = PlanningTask(hidden.domain, hidden.problem)
    tokenizer = word_tokenizer([], [*TOLD_MARKERS, *POOL.words])
    unknown = tokenizer.convert_tokens_to_ids(UNKNOWN)
    assert unknown not in encode(tokenizer, f"{told_prompt(asked)} {told_chain(asked, hidden.plan)}")


def test_symbols_of_a_pool_are_drawn_from_all_of_it() -> None:
    task, seen = briefcase(), set[str]()
    for seed in range(60):
        seen |= set(anonymise(task.domain, task.problem, (), random.Random(seed), POOL).names.predicates.values())
    assert seen == {"=", *(f"p_{number}" for number in range(32))}


def test_more_names_than_symbols_are_refused_with_both_numbers() -> None:
    task = briefcase()
    with pytest.raises(BadInputError, match="more predicates than the pool") as caught:
        anonymise(task.domain, task.problem, (), random.Random(0), SymbolPoolConfig(predicates=2))
    assert (caught.value.got, caught.value.expected) == ("3", "2 at most")


def test_direct_plans_can_be_asked_for_in_few_words() -> None:
    prompting = prompting_of("plan_compact_told")
    assert prompting.plan_prompt(briefcase()) == told_prompt(briefcase())
    assert prompting.read("put-in o l\n", briefcase().domain).chain.final_plan == tuple(parse_plan("(put-in o l)"))


def test_with_a_pool_no_two_actions_share_a_variable_and_too_many_are_refused() -> None:
    task, seen = task_of("rovers"), set[str]()
    for seed in range(20):
        hidden = anonymise(task.domain, task.problem, (), random.Random(seed), POOL).domain
        names = [typed.name for action in hidden.actions for typed in action.parameters]
        assert len(set(names)) == len(names) == sum(len(action.parameters) for action in task.domain.actions)
        seen |= set(names)
    assert seen == {f"?x{number}" for number in range(POOL.variables)}
    with pytest.raises(BadInputError, match="more variables than the pool") as caught:
        anonymise(task.domain, task.problem, (), random.Random(0), POOL.model_copy(update={"variables": 30}))
    assert caught.value.where == "domain rovers" and "symbols.variables" in str(caught.value.cure)


LOGISTICS = task_of("logistics")
CHAIN = told_chain(LOGISTICS, random_walk(LOGISTICS, 3, random.Random(0))).split()
WORDS = sorted(
    {*told_prompt(LOGISTICS).split(), *CHAIN, "VALID", "INVALID", "need:", "unmet:", "final:", UNKNOWN, "?z"}
)


@given(st.lists(st.sampled_from(WORDS), max_size=20), st.integers(0, len(CHAIN)))
def test_read_garbage_after_a_good_beginning_never_raises(garbage: list[str], n_kept: int) -> None:
    text = " ".join([*CHAIN[:n_kept], *garbage])
    read = read_told_chain(text, LOGISTICS.domain)
    assert len(read.spans) == len(read.chain.steps)
    assert (read.fault is None) <= (read.chain.verdict in ("VALID", "INVALID"))


def test_an_action_of_which_there_are_parameters_alone_is_none() -> None:
    read = read_told_chain("goals: do: ?c ?s check:", LOGISTICS.domain)
    assert read.fault is not None and read.broken_action is None
