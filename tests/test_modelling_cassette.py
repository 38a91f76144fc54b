"""Cassettes: what is recorded is given again, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plansmith.config.generation import SamplingConfig
from plansmith.errors import BadInputError
from plansmith.generation import Answers, Completion, Message
from plansmith.modelling.cassette import Cassette, Playing, Recording, is_played

GREEDY = SamplingConfig()
ASKED = (Message("user", "Which types?\nSay all."), Message("assistant", "cat"), Message("user", "More."))


class Echo:
    """Answers with the last message and the seed, and fails where that says so."""

    def complete(self, conversations: object, sampling: SamplingConfig, *, seeds: object, description: object = None
                 ) -> Answers:  # fmt: skip
        """Yield the answers; see `plansmith.generation.Generator`."""
        for number, (messages, seed) in enumerate(zip(conversations, seeds, strict=True)):  # type: ignore[call-overload]
            text = messages[-1].text
            fault = "no answer" if text == "Fail." else None
            said = None if fault else f"{text} {seed}"
            yield number, [Completion(said, "stop", "echo", seed, prompt_tokens=3, fault=fault)]


def recorded(path: Path) -> Cassette:
    """Return a cassette with one request on it."""
    cassette = Cassette.begin(path, "echo")
    assert len(list(Recording(Echo(), cassette).complete([ASKED], GREEDY, seeds=[7]))) == 1
    return cassette


def test_cassette_gives_what_was_recorded_and_says_where_it_is_from(tmp_path: Path) -> None:
    recorded(tmp_path / "c")
    [(number, [answer])] = Playing(Cassette.read(tmp_path / "c")).complete([ASKED], GREEDY, seeds=[7])
    assert (number, answer.text, answer.prompt_tokens, answer.seed) == (0, "More. 7", 3, 7)
    assert answer.policy_version.startswith("echo (cassette, recorded 20")
    assert is_played(answer.policy_version)
    assert not is_played("echo")


def test_recording_asks_for_nothing_that_is_on_the_cassette_and_gives_what_is(tmp_path: Path) -> None:
    cassette, fresh = recorded(tmp_path / "c"), [Message("user", "Other.")]
    asked: list[int] = []

    class Counting(Echo):
        def complete(self, conversations: Any, sampling: Any, **options: Any) -> Answers:
            asked.append(len(conversations))
            return super().complete(conversations, sampling, **options)

    found = dict(Recording(Counting(), cassette).complete([ASKED, fresh, ASKED], GREEDY, seeds=[7, 3, 7]))
    assert {number: answers[0].text for number, answers in found.items()} == {0: "More. 7", 1: "Other. 3", 2: "More. 7"}
    assert asked == [1]
    assert dict(Recording(Counting(), cassette).complete([ASKED], GREEDY, seeds=[7])).keys() == {0}
    assert asked == [1]


def test_recording_asks_for_what_comes_later_and_finds_it_where_it_is(tmp_path: Path) -> None:
    cassette, seeds, found = recorded(tmp_path / "c"), [3], list[str]()
    asked: list[Any] = [[Message("user", "Other.")]]
    for number, [answer] in Recording(Echo(), cassette).complete(asked, GREEDY, seeds=seeds):
        found.append(str(answer.text))
        if number == 0:
            asked += [ASKED, [Message("user", "Last.")]]
            seeds += [7, 7]
    assert found == ["Other. 3", "More. 7", "Last. 7"]
    assert len(cassette.requests) == 3


def test_cassette_gone_on_with_after_a_crash_has_each_answer_once_and_no_failure(tmp_path: Path) -> None:
    digest = recorded(tmp_path / "c").digest
    with (tmp_path / "c").open("ab") as file:
        file.write(b'{"request": {"mess')
    again = recorded(tmp_path / "c")
    assert len((tmp_path / "c").read_text().splitlines()) == 2
    assert again.digest == digest
    list(Recording(Echo(), again).complete([[Message("user", "Fail.")]], GREEDY, seeds=[0]))
    assert len((tmp_path / "c").read_text().splitlines()) == 2
    with pytest.raises(BadInputError, match="another model"):
        Cassette.begin(tmp_path / "c", "other")
    assert Cassette.begin(tmp_path / "c", "echo", n_answered=2).digest == digest
    with pytest.raises(BadInputError, match="2 answers that would not be on it"):
        Cassette.begin(tmp_path / "new", "echo", n_answered=2)


@pytest.mark.parametrize(
    ("messages", "sampling", "seed", "place", "got", "expected"),
    [
        ((Message("user", "Which types?\nTwo."), *ASKED[1:]), GREEDY, 7, "message 1, line 2", "Two.", "Say all."),
        ((*ASKED[:2], Message("system", "More.")), GREEDY, 7, "message 3", "system", "user"),
        (ASKED[:1], GREEDY, 7, "how many messages", "1", "message 2: assistant"),
        (ASKED, SamplingConfig(temperature=0.5), 7, "temperature", "0.5", "0.0"),
        (ASKED, GREEDY, 8, "seed", "8", "7"),
    ],
    ids=["text", "role", "fewer messages", "sampling", "seed"],
)  # fmt: skip
def test_cassette_another_request_ends_with_the_first_difference(
    messages: tuple[Message, ...], sampling: SamplingConfig, seed: int, place: str, got: str, expected: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    cassette = recorded(tmp_path / "c")
    with pytest.raises(BadInputError) as raised:
        list(Playing(cassette).complete([messages], sampling, seeds=[seed]))
    assert raised.value.where == f"{tmp_path / 'c'}, request 1, {place}"
    assert (raised.value.got, raised.value.expected) == (got, expected)
