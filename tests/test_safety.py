"""What strangers send us, tried for real: model folders, tables, presets, problems, completions and servers.

A bomb is a pickle, or code beside a model, that leaves a file when it runs; each test looks for that file afterwards.
docs/security.md says which barrier each of them tries.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import dataclasses
import fnmatch
import importlib.util
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from checkpoints import qwen3_checkpoint
from conftest import BLOCKS_TEXT, ROOT, syntax_tree
from peft import LoraConfig, get_peft_model
from pydantic import BaseModel
from test_report import make_results
from transformers import AutoModelForCausalLM

from actors.endpoint import Endpoint
from actors.engine_weights import read_weight_shapes
from pipelines.pddl_instruct import PIPELINE
from plansmith.cli import main
from plansmith.config.dataset import DatasetConfig
from plansmith.config.generation import EndpointConfig, SamplingConfig
from plansmith.config.loading import load_settings
from plansmith.config.pddl_instruct import PddlInstructConfig
from plansmith.data.artifacts import ArtifactWriter, Provenance
from plansmith.data.parts import Parts, part_path
from plansmith.data.rows import PlanRow
from plansmith.data.tables import arrow_schema, merge_tables, read_table, write_table
from plansmith.errors import ArtifactError, BadInputError, ConfigError, PddlParseError
from plansmith.generation import Completion, asking
from plansmith.layout import printable
from plansmith.learning.adapters import merge_adapter
from plansmith.learning.hub import FILES
from plansmith.learning.models import load_tokenizer
from plansmith.learning.tokenizer import encode_prompt
from plansmith.learning.weight_files import INDEX
from plansmith.problems.library import load_domain
from plansmith.report.render import render_page
from plansmith.report.run_report import report_of
from plansmith.text.plans import read_plan_text

KEY = "sk-a-key-that-nobody-may-see"
PLAN_ROW = PlanRow("p", "fast-downward first", "solved", ("(pick-up a)",), 1.0, 0.1, False)


class Bomb:
    """An object whose pickle leaves a file when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[Path]:
    """Return the path of the file that a bomb would leave; it must not be there at the end of the test."""
    path = tmp_path / "the bomb went off"
    yield path
    assert not path.exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small Qwen 3."""
    return qwen3_checkpoint(tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def copied(model: Path, tmp_path: Path) -> Path:
    """Return a copy of it for a test to spoil."""
    return Path(shutil.copytree(model, tmp_path / "copied"))


def change_json(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def code_that_marks(folder: Path, mark: Path) -> None:
    """Write a module with a configuration, a model and a tokenizer, all of which leave the mark when imported."""
    classes = "".join(f"class {name}: pass\n" for name in ("EvilConfig", "EvilModel", "EvilTokenizer"))
    (folder / "evil.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n{classes}")


# --- bombs go off where nothing stops them


def test_bomb_read_by_pickle_leaves_its_mark(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "mark")))
    assert (tmp_path / "mark").exists()


# --- model folders


@pytest.mark.parametrize("name", ["pytorch_model.bin", "../model/model.safetensors", "weights.pt", "", None])
def test_model_folder_whose_index_names_no_safetensors_of_its_own_is_refused(
    copied: Path, mark: Path, name: str | None
) -> None:
    (copied / "model.safetensors").rename(copied / "model-00001-of-00001.safetensors")
    torch.save({"weight": Bomb(mark)}, copied / "pytorch_model.bin")
    (copied / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"lm_head.weight": name}}))
    for read in (load_tokenizer, read_weight_shapes):
        with pytest.raises(BadInputError, match="weights that are no safetensors of this folder") as raised:
            read(str(copied))
        assert repr(name) in str(raised.value)


def test_model_folder_whose_config_names_a_pickle_is_refused(copied: Path, mark: Path) -> None:
    torch.save({"weight": Bomb(mark)}, copied / "adapter_model.bin")
    change_json(copied / "config.json", transformers_weights="adapter_model.bin")
    with pytest.raises(BadInputError, match=r"config.json: weights that are no safetensors"):
        load_tokenizer(str(copied))


def test_model_folder_whose_config_names_its_index_is_taken(copied: Path) -> None:
    (copied / "model.safetensors").rename(copied / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (copied / INDEX).write_text(json.dumps(index))
    change_json(copied / "config.json", transformers_weights=INDEX)
    assert load_tokenizer(str(copied)).vocab_size > 0


@pytest.mark.parametrize("text", ["[1]", '{"weight_map": [1]}', "{", "[" * 100_000], ids=["list", "map", "cut", "deep"])
def test_model_folder_with_a_broken_index_is_refused(copied: Path, text: str) -> None:
    (copied / INDEX).write_text(text)
    with pytest.raises(BadInputError, match="a damaged model folder"):
        load_tokenizer(str(copied))


def adapter_over(model: Path, folder: Path) -> Path:
    """Return an adapter folder, as PEFT writes it."""
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=1, target_modules=["q_proj"], task_type="CAUSAL_LM")
    )
    adapted.save_pretrained(folder)
    for path in model.glob("*token*"):
        shutil.copy(path, folder)
    change_json(folder / "adapter_config.json", base_model_name_or_path=str(model))
    return folder


def test_base_with_weights_in_a_pickle_alone_is_not_read(copied: Path, mark: Path, tmp_path: Path) -> None:
    adapter = adapter_over(copied, tmp_path / "adapter")
    (copied / "model.safetensors").rename(copied / "something.safetensors")
    torch.save({"weight": Bomb(mark)}, copied / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        merge_adapter(adapter, tmp_path / "merged")


def test_adapter_with_a_pickle_and_code_beside_it_is_merged_without_them(
    model: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_over(model, tmp_path / "adapter")
    torch.save({"weight": Bomb(mark)}, adapter / "adapter_model.bin")
    code_that_marks(adapter, mark)
    monkeypatch.syspath_prepend(str(adapter))
    change_json(adapter / "adapter_config.json",
                auto_mapping={"base_model_class": "EvilModel", "parent_library": "evil"})  # fmt: skip
    merge_adapter(adapter, tmp_path / "merged")
    assert (tmp_path / "merged" / "model.safetensors").is_file()
    assert not list((tmp_path / "merged").glob("*.py"))


def test_adapter_that_names_a_module_to_import_is_refused(
    model: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_over(model, tmp_path / "adapter")
    code_that_marks(adapter, mark)
    monkeypatch.syspath_prepend(str(adapter))
    change_json(adapter / "adapter_config.json", megatron_config={"any": 1}, megatron_core="evil")
    with pytest.raises(ValueError, match="potential security risk"):
        merge_adapter(adapter, tmp_path / "merged")


def test_adapter_whose_base_is_a_name_of_the_hub_is_refused(model: Path, tmp_path: Path) -> None:
    adapter = adapter_over(model, tmp_path / "adapter")
    change_json(adapter / "adapter_config.json", base_model_name_or_path="somebody/evil-model")
    with pytest.raises(BadInputError, match="the base model of this adapter is gone"):
        load_tokenizer(str(adapter))


def test_model_with_code_of_its_own_is_not_run_whatever_standard_input_answers(
    copied: Path, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_over(copied, tmp_path / "adapter")
    code_that_marks(copied, mark)
    auto_map = {"AutoConfig": "evil.EvilConfig", "AutoModelForCausalLM": "evil.EvilModel"}
    change_json(copied / "config.json", model_type="evil", auto_map=auto_map)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    load_tokenizer(str(copied))  # of a class that transformers knows
    with pytest.raises(ValueError, match="contains custom code"):
        merge_adapter(adapter, tmp_path / "merged")


def test_tokenizer_with_code_of_its_own_is_loaded_without_it(
    copied: Path, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_that_marks(copied, mark)
    change_json(copied / "tokenizer_config.json", tokenizer_class="EvilTokenizer",
                auto_map={"AutoTokenizer": ["evil.EvilTokenizer", None]})  # fmt: skip
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 100))
    assert type(load_tokenizer(str(copied))).__module__.startswith("transformers.")


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append.__self__.__class__.__base__.__subclasses__() }}",
        "{% for",
    ],
    ids=["globals", "subclasses", "bound method", "broken"],
)
def test_chat_template_that_reaches_for_python_is_refused(copied: Path, mark: Path, template: str) -> None:
    (copied / "chat_template.jinja").write_text(template.replace("MARK", f'"{mark}"'))
    with pytest.raises(BadInputError, match="the model's chat template does not work"):
        encode_prompt(load_tokenizer(str(copied)), "prompt")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "modeling_evil.py",
                                  "vocab.pkl", "model.gguf", "run.sh"])  # fmt: skip
def test_download_of_a_model_leaves_pickles_and_code_behind(name: str) -> None:
    assert not any(fnmatch.fnmatch(name, pattern) for pattern in FILES)


# --- tables


def plan_table() -> pa.Table:
    schema, values = arrow_schema(PlanRow), dataclasses.asdict(PLAN_ROW)
    return pa.table({field.name: pa.array([values[field.name]], field.type) for field in schema}, schema=schema)


def test_table_with_a_column_of_pickles_is_refused(mark: Path, tmp_path: Path) -> None:
    import ray.data  # noqa: F401 - registers the column type that unpickles
    from ray.data._internal.object_extensions.arrow import ArrowPythonObjectType

    pickles = pa.array([pickle.dumps(Bomb(mark))], pa.large_binary())
    column, path = pa.ExtensionArray.from_storage(ArrowPythonObjectType(), pickles), tmp_path / "table.parquet"
    field = pa.field("planner", column.type, nullable=False)
    pq.write_table(plan_table().set_column(1, field, column), path)
    with pytest.raises(ArtifactError, match="column 'planner' has another type"):
        read_table(path, PlanRow)


@pytest.mark.parametrize("column", ["problem_id", "plan"])
@pytest.mark.parametrize(
    "kind", ["arrow.py_extension_type", "ray.data.arrow_tensor", "ray.data.arrow_tensor_v2",
             "ray.data.arrow_variable_shaped_tensor", "ray.data.arrow_pickled_object"],
)  # fmt: skip
def test_table_whose_column_type_has_a_pickle_for_its_parameter_runs_nothing(
    kind: str, column: str, mark: Path, tmp_path: Path
) -> None:
    import ray.data  # noqa: F401 - registers its column types, which then read their parameters

    schema, path = arrow_schema(PlanRow), tmp_path / "table.parquet"
    named = {b"ARROW:extension:name": kind.encode(), b"ARROW:extension:metadata": pickle.dumps(Bomb(mark))}
    fields = [field.with_metadata(named) if field.name == column else field for field in schema]
    hostile = base64.b64encode(pa.schema(fields, schema.metadata).serialize().to_pybytes())
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        writer.write_table(plan_table())
        writer.add_key_value_metadata({b"ARROW:schema": hostile})
    read: list[PlanRow] = []
    with contextlib.suppress(ArtifactError):
        read = read_table(path, PlanRow)
    assert read in ([], [PLAN_ROW])  # a type that nobody registered is its storage


# --- presets and domain folders


PYTHON_TAG = "!!python/object/apply:os.system ['touch \"MARK\"']"


def test_preset_with_a_python_object_is_no_yaml(mark: Path, tmp_path: Path) -> None:
    path = tmp_path / "preset.yaml"
    path.write_text(f"seed: {PYTHON_TAG.replace('MARK', str(mark))}\n")
    with pytest.raises(ConfigError, match="not YAML"):
        load_settings(PddlInstructConfig, str(path), tmp_path)


def test_override_with_a_python_object_is_no_yaml(mark: Path) -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        PIPELINE.settings("demo", overrides=[f"seed={PYTHON_TAG.replace('MARK', str(mark))}"])


TENS = (f"a{n}: &a{n} [{', '.join(10 * [f'*a{n - 1}'])}]" for n in range(1, 12))
LAUGHS = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *TENS])
"""Twelve lines that stand for a hundred thousand million values."""


@pytest.mark.parametrize(
    ("text", "message"),
    [(LAUGHS, "too many values"), ("a: &a [*a]", "nested too deeply"), ("a: " + "[" * 50_000, "nested too deeply"),
     (f"seed: {'9' * 5000}", "not YAML"), ("seed: \udc80", "cannot be read")],
    ids=["laughs", "circle", "deep", "number", "no text"],
)  # fmt: skip
def test_preset_that_stands_for_more_than_it_says_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "preset.yaml"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(ConfigError, match=message):
        load_settings(PddlInstructConfig, str(path), tmp_path)


@pytest.mark.parametrize("name", ["settings.yaml", "phrases.yaml"])
def test_domain_folder_with_a_python_object_is_no_yaml(name: str, mark: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "datasets" / "domains" / "blocksworld", tmp_path / "domain")
    (folder / name).write_text(f"levels: {PYTHON_TAG.replace('MARK', str(mark))}\n")
    with pytest.raises(ConfigError, match="not YAML"):
        load_domain(str(folder))


@pytest.mark.parametrize("name", ["../evil", "os", "blocksworld.os", "evil"])
def test_domain_folder_cannot_name_a_module_of_its_own_as_sampler(
    name: str, mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "domain"
    folder.mkdir()
    code_that_marks(folder, mark)
    monkeypatch.syspath_prepend(str(folder))
    (folder / "domain.pddl").write_text(BLOCKS_TEXT)
    (folder / "settings.yaml").write_text(f"sampler: {name}\nlevels: {{L1: {{blocks: [3, 4]}}}}\n")
    with pytest.raises(ConfigError, match="no such sampler"):
        load_domain(str(folder))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "", ".", "..", "a//b", "a\0b"])
def test_level_or_split_that_is_a_path_makes_no_file(name: str, tmp_path: Path) -> None:
    parts = Parts(tmp_path / "inner" / "plans.parts")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(BadInputError, match="a name that cannot be that of a file"):
        parts.write(name, [PLAN_ROW], PlanRow)
    with pytest.raises(BadInputError, match="a name that cannot be that of a file"):
        part_path(tmp_path, "plans", name)
    source = tmp_path / "source.parquet"
    write_table(source, [PLAN_ROW], PlanRow)
    with pytest.raises(BadInputError, match="a name that cannot be that of a file"):
        merge_tables([source], tmp_path / "inner", name, PlanRow, rows_per_file=10)
    source.unlink()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil", "manifest.json"])
def test_artifact_file_outside_its_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be named"):
        ArtifactWriter(tmp_path, "stage", "0" * 64).path(name)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "-x", ".", "a b", "a\nb"])
@pytest.mark.parametrize("config", [PddlInstructConfig, DatasetConfig])
def test_run_named_like_a_path_or_an_option_is_refused(config: type[BaseModel], name: str) -> None:
    with pytest.raises(ValueError, match="name") as raised:
        config.model_validate({"name": name})
    assert ("name",) in [error["loc"] for error in raised.value.errors()]  # type: ignore[attr-defined]


# --- problems


HOSTILE_NAMES = ("-x.pddl", "--help.pddl", "a b;touch MARK.pddl", "$(touch MARK).pddl", "`touch MARK`.pddl", "*.pddl")


def test_problem_files_named_like_options_and_commands_are_solved_as_files(
    mark: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "problems"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "domain.pddl").write_text(BLOCKS_TEXT)
    problem = "(define (problem ../../evil) (:domain blocksworld) (:objects -x --help)\n(:init (ontable -x) " \
        "(ontable --help) (clear -x) (clear --help) (handempty)) (:goal (on -x --help)))"  # fmt: skip
    for name in HOSTILE_NAMES:
        (folder / name.replace("MARK", mark.name)).write_text(problem)
    before = sorted(tmp_path.rglob("*"))
    assert main(["plan", "--batch", ".", "--out", str(tmp_path / "results.jsonl"), "--search", "first"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [row["plan"] for row in rows] == [["(pick-up -x)", "(stack -x --help)"]] * len(HOSTILE_NAMES)
    (tmp_path / "results.jsonl").unlink()
    assert sorted(tmp_path.rglob("*")) == before
    assert not list(tmp_path.rglob(mark.name))
    assert "usage:" not in capsys.readouterr().out


# --- completions


LONG = 200_000
"""Characters; an answer of a thousand tokens has a fiftieth of them, but a server may send what it likes."""

HOSTILE_COMPLETIONS: dict[str, Callable[[int], str]] = {
    "spaces behind a step": lambda n: "(pick-up a)" + " " * n + "x",
    "spaces within a bracket": lambda n: "(pick-up" + " " * n + "(",
    "spaces behind a bracket": lambda n: ")" + " " * n + "x",
    "spaces in a mark": lambda n: "[FINAL" + " " * n + "PLAN" + " " * n + "x",
    "emphasis that leaves spaces": lambda n: "(pick-up a)" + " *" * (n // 2) + "x",
    "headings": lambda n: "Plan:\n1. (x\n" * (n // 11),
    "bold headings": lambda n: "**plan**\n" * (n // 9),
    "fences": lambda n: "```\n" * (n // 4),
    "plans in one line": lambda n: "plan " * (n // 5),
    "thinking begun": lambda n: "<think>" * (n // 7),
    "thinking ended": lambda n: "</think>" * (n // 8),
    "angles": lambda n: "<" * n,
    "open brackets": lambda n: "(" * n,
    "step numbers": lambda n: "[STEP " + "1" * n,
    "checks": lambda n: "[STEP 1]\n- " + "(" + ") : " * (n // 4),
    "conditions in conditions": lambda n: "[GOAL CHECK]\n- " + "(and " * (n // 6) + ")" * (n // 6) + ": TRUE",
    "variables": lambda n: "[GOAL CHECK]\n- (forall (" + "?x " * (n // 3) + ") (clear ?x)): TRUE",
    "a cost": lambda n: "[STEP 1]\n- Action: (pick-up b)\n- Preconditions:\n- Applicable: YES\n- Next state:\n- Cost: "
    + "1" * n + "\n[GOAL CHECK]\n",
    "goals": lambda n: "goals: " * (n // 7),
    "met goals": lambda n: "goals: " + "clear a met: " * (n // 13),
    "steps": lambda n: "do: pick-up a check: fails: " * (n // 28),
}  # fmt: skip

JUDGING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from conftest import sussman
from plansmith.judging.chains import judge_completion
from plansmith.text.rendering import prompting_of
task = sussman()
for name, completion in json.load(sys.stdin).items():
    for prompting in ("zero_shot", "full", "compact"):
        print(name, prompting, judge_completion(task, completion, prompting_of(prompting)).verdict, flush=True)
"""


def test_completions_made_to_hang_a_reader_are_judged() -> None:
    completions = {name: make(LONG) for name, make in HOSTILE_COMPLETIONS.items()}
    command = [sys.executable, "-c", JUDGING, str(ROOT / "tests")]
    try:
        done = subprocess.run(command, input=json.dumps(completions), capture_output=True, text=True, timeout=300,
                              check=False, cwd=ROOT)  # fmt: skip
    except subprocess.TimeoutExpired as error:
        judged = (error.stdout or b"").decode().splitlines()
        pytest.fail(f"{len(judged)} completions were judged; what follows {judged[-1:]} hangs its reader")
    assert done.returncode == 0, done.stderr
    verdicts = done.stdout.splitlines()
    assert len(verdicts) == 3 * len(HOSTILE_COMPLETIONS)
    assert not [line for line in verdicts if line.endswith(" valid")]


def test_plan_with_a_stamp_of_thousands_of_digits_is_no_plan() -> None:
    with pytest.raises(PddlParseError, match="not a stamped step"):
        read_plan_text(f"{'9' * 5000}: (pick-up a)\nEND\n")


def test_text_for_a_terminal_has_no_control_characters() -> None:
    hostile = "(pick-up \x1b]0;title\x07a)\x9b31m\r\u202egnp.exe\n\tkept: \u00e9 \u2200"
    assert printable(hostile) == "(pick-up \\x1b]0;title\\x07a)\\x9b31m\\x0d\\x202egnp.exe\n\tkept: \u00e9 \u2200"


class ActiveParts(HTMLParser):
    """Collects whatever in a page could act: scripts, handlers, addresses elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "img", "base", "form"):
            self.found.append(tag)
        self.found += [
            name for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")
        ]


MARKUP = (
    "--><script>alert(1)</script>",
    "]]></text></svg><img src=x onerror=alert(1)>",
    '"><a href="javascript:x()">x',
    "'/onmouseover='alert(1)",
    "</style></title><iframe src=//x>",
    "{{ config }}",
)


def test_report_of_a_run_whose_names_are_markup_holds_nothing_that_acts() -> None:
    text = " ".join(MARKUP)
    results = make_results({"untrained": 0, text: 12, "final": 20}, time_s={text: 1.0, "phase1": 2.0}, run_name=text)
    arms = {
        name: dataclasses.replace(arm, by_level=dict.fromkeys([text], arm.by_level["4 blocks"]), level=text)
        for name, arm in results.arms.items()
    }
    page = render_page(report_of(dataclasses.replace(results, arms=arms, primary_level=text, paired_tests=())))
    parser = ActiveParts()
    parser.feed(page)
    assert parser.found == []
    assert "&lt;script&gt;alert(1)" in page
    assert "{{ config }}" in page


# --- servers


class ScriptedServer:
    """A server that records what it is sent and answers as it is told."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.headers: list[dict[str, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.headers.append(dict(self.headers.items()))
                answer(self)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self._http.server_port

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def answer_json(handler: BaseHTTPRequestHandler, content: dict[str, Any]) -> None:
    body = json.dumps(content).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def quoting(handler: BaseHTTPRequestHandler, *, is_completion: bool) -> None:
    """Answer with the key that came, as the completion or in place of one."""
    key = handler.headers.get("Authorization", "")
    message = {"message": {"role": "assistant", "content": f"your key is {key}"}, "finish_reason": "stop", "index": 0}
    answer_json(handler, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "echo": key,
                          "choices": [message] if is_completion else []})  # fmt: skip


def answer_of(port: int, key: str) -> Completion:
    config = EndpointConfig(url=f"http://127.0.0.1:{port}/v1", model="m", max_retries=0, account_env="A_KEY")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_KEY", key)
        [(_, [answer])] = Endpoint(config).complete([asking("prompt")], SamplingConfig(), seeds=[1])
    return answer


@pytest.mark.parametrize("is_completion", [True, False])
def test_answer_that_quotes_the_key_is_kept_without_it(is_completion: bool) -> None:
    server = ScriptedServer(lambda handler: quoting(handler, is_completion=is_completion))
    try:
        answer = answer_of(server.port, KEY)
    finally:
        server.close()
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(answer)
    assert "***" in repr(answer)


def test_answer_with_a_word_that_stands_in_for_a_key_is_kept_as_it_is() -> None:
    server = ScriptedServer(lambda handler: quoting(handler, is_completion=True))
    try:
        assert answer_of(server.port, "EMPTY").text == "your key is Bearer EMPTY"
    finally:
        server.close()


def test_server_that_redirects_elsewhere_does_not_pass_the_key_on() -> None:
    thief = ScriptedServer(lambda handler: quoting(handler, is_completion=True))

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", f"http://localhost:{thief.port}{handler.path}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    server = ScriptedServer(redirect)
    try:
        answer_of(server.port, KEY)
    finally:
        server.close()
        thief.close()
    assert len(thief.headers) == 1
    assert KEY not in repr(thief.headers)


@pytest.mark.parametrize(
    "rest", ["user:pa55word@HOST/v1", "pa55word@HOST/v1", "HOST/v1?key=pa55word", "HOST/v1#pa55word"]
)
def test_address_with_a_secret_in_it_is_refused_without_quoting_it(rest: str) -> None:
    url = f"http://{rest.replace('HOST', 'localhost:1')}"
    with pytest.raises(BadInputError, match="an address may hold no secret") as raised:
        EndpointConfig(url=url, model="m")
    assert "pa55word" not in str(raised.value)
    assert "http://localhost:1" in str(raised.value)


# --- secrets


SECRET_WORDS = ("key", "secret", "password", "passwd", "credential")


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its dotted name, those of inner models too."""
    for name, field in model.model_fields.items():
        yield f"{above}{name}", field
        for part in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from fields_of(part, f"{above}{name}.")


@pytest.mark.parametrize("config", [PddlInstructConfig, DatasetConfig, EndpointConfig])
def test_settings_have_no_place_for_a_secret(config: type[BaseModel]) -> None:
    names = [name for name, _ in fields_of(config)]
    assert config is EndpointConfig or any(name.count(".") for name in names)
    assert not [name for name in names if any(word in name.rpartition(".")[2] for word in SECRET_WORDS)]


def test_artifact_made_with_secrets_in_the_environment_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, KEY)
    writer = ArtifactWriter(tmp_path, "stage", "0" * 64)
    writer.write_rows([PLAN_ROW], PlanRow)
    artifact = writer.finish(Provenance("stage", "0" * 64, {}, {}, 0, {}), wall_time_s=0.0)
    files = [path for path in artifact.folder.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


# --- Ray


SESSION = """
import json, os, sys
from pathlib import Path
from pipelines.run.ray_session import RaySession
from plansmith.config.cluster import ClusterConfig
class Settings:
    cluster = ClusterConfig(num_cpus=1)
with RaySession(Settings(), Path(sys.argv[1])) as session:
    ray = session.ray()
    gcs, node = ray.get_runtime_context().gcs_address, ray._private.worker.global_worker.node
    said = {"gcs": gcs, "dashboard": node.address_info["webui_url"], "token": os.environ["RAY_AUTH_TOKEN"]}
    print(json.dumps(said), flush=True)
    sys.stdin.read()
"""
VISITOR = """
import sys
from ray._raylet import GcsClient
print("taken", GcsClient(address=sys.argv[1]).internal_kv_put(b"key", b"value", True, None, 10))
"""


@pytest.fixture(scope="module")
def ray_of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Return what a run's own Ray says of itself, and the environment of a user who never had a token."""
    home = tmp_path_factory.mktemp("home")
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", SESSION, str(home)]
    with subprocess.Popen(
        command, env={**plain, "HOME": str(home)}, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdin
        lines = iter(process.stdout.readline, "")
        yield json.loads(next(line for line in lines if line.startswith("{"))), {**plain, "HOME": str(home)}
        process.stdin.close()


def visit(gcs: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", VISITOR, gcs]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "changes", [{"RAY_AUTH_MODE": "disabled"}, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "x" * 64}],
    ids=["no token", "another token"],
)  # fmt: skip
def test_ray_of_a_run_refuses_a_visitor_without_its_token(
    changes: dict[str, str], ray_of_a_run: tuple[dict[str, str], dict[str, str]]
) -> None:
    said, environment = ray_of_a_run
    visitor = visit(said["gcs"], {**environment, **changes})
    assert visitor.returncode != 0
    assert "taken" not in visitor.stdout
    assert "auth" in visitor.stderr.lower()


def test_ray_of_a_run_takes_its_owner_and_has_no_dashboard(
    ray_of_a_run: tuple[dict[str, str], dict[str, str]],
) -> None:
    said, environment = ray_of_a_run
    assert said["dashboard"] in ("", None)
    owner = {**environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": said["token"]}
    assert "taken 1" in visit(said["gcs"], owner).stdout


# --- dependencies


def audit_module() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def audit() -> Iterator[Any]:
    """Return the script as a module."""
    yield audit_module()
    del sys.modules["audit"]


KNOWN = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "CVE-2019-10906", "fix_versions": ["2.10.1"]}]}
SOUND = {"name": "pyyaml", "version": "6.0.3", "vulns": []}
SKIPPED = {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited: jinja2 (2.10)"}


@pytest.mark.parametrize(
    ("canary", "lock", "exit_code", "said"),
    [
        ([KNOWN], [SOUND], 0, "0 packages with advisories"),
        ([KNOWN], [SOUND, KNOWN], 1, "jinja2 2.10: CVE-2019-10906 (mended in 2.10.1)"),
        ([KNOWN], [SOUND, SKIPPED], 1, "not known to the service: jinja2"),
        ([SKIPPED], [SOUND], 2, "no source of advisories answers"),
        ([{**KNOWN, "vulns": []}], [SOUND], 2, "no source of advisories answers"),
        (None, [SOUND], 2, "no source of advisories answers"),
        ([KNOWN], None, 2, "no answer for"),
    ],
    ids=["sound", "vulnerable", "unknown", "canary skipped", "canary not reported", "no answer", "cut off"],
)
def test_audit_trusts_no_source_that_does_not_report_a_known_hole(
    audit: Any, canary: Any, lock: Any, exit_code: int, said: str,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def answer(command: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        is_canary = Path(command[command.index("--requirement") + 1]).read_text() == audit.CANARY
        packages = canary if is_canary else lock
        text = "" if packages is None else json.dumps({"dependencies": packages, "fixes": []})
        return subprocess.CompletedProcess(command, 1, text, "the service did not answer")

    monkeypatch.setattr(audit.subprocess, "run", answer)
    assert audit.main([]) == exit_code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err


# --- the code itself


OUR_CODE = ("plansmith", "actors", "pipelines", "cluster", "benchmarks", "requirements")

FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "yaml.load", "yaml.full_load",
    "yaml.unsafe_load", "yaml.load_all", "tempfile.mktemp", "pickle.load", "pickle.loads", "cloudpickle.loads",
    "joblib.load", "numpy.load", "np.load", "pandas.read_pickle", "pd.read_pickle", "marshal.loads", "shelve.open",
    "tarfile.open", "zipfile.ZipFile", "shutil.unpack_archive", "ssl._create_unverified_context",
}  # fmt: skip
FORBIDDEN_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "telnetlib", "xmlrpc"}
FORBIDDEN_KEYWORDS = {("shell", True), ("trust_remote_code", True), ("verify", False), ("weights_only", False),
                      ("allow_pickle", True), ("use_safetensors", False)}  # fmt: skip
FORBIDDEN_WORDS = (
    "VLLM_ALLOW_INSECURE_SERIALIZATION", "RAY_DATA_AUTOLOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "PYTHONHTTPSVERIFY",
    "HF_HUB_DISABLE_SSL",
)  # fmt: skip
ALLOWED: dict[tuple[str, str], str] = {}
"""Path and what is found there, with the reason why it may stay."""


def dotted_name(node: ast.expr) -> str:
    """Return a name with its dots, such as ``yaml.load``; empty where something else is called."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted_name(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def dangers_in(source: str, tree: ast.Module | None = None) -> list[str]:
    """Return what a module does that this project never does."""
    found: list[str] = [word for word in FORBIDDEN_WORDS if word in source]
    for node in ast.walk(tree or ast.parse(source)):
        if isinstance(node, ast.Call):
            name = dotted_name(node.func)
            found += [name] if name in FORBIDDEN_CALLS else []
            given = [(keyword.arg, keyword.value.value) for keyword in node.keywords
                     if isinstance(keyword.value, ast.Constant)]  # fmt: skip
            found += [f"{name}={value}" for name, value in given if (name, value) in FORBIDDEN_KEYWORDS]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            given = [
                (k.value, v.value) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)
            ]
            found += [f"{name}={value}" for name, value in given if (name, value) in FORBIDDEN_KEYWORDS]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"import {name}" for name in names if name.split(".")[0] in FORBIDDEN_MODULES]
    return found


def test_our_code_calls_nothing_that_runs_foreign_data() -> None:
    files = [path for folder in OUR_CODE for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = {
        (str(path.relative_to(ROOT)), danger)
        for path in files
        for danger in dangers_in(path.read_text(encoding="utf-8"), syntax_tree(path))
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "source",
    ["import pickle", "from dill import loads", "torch.load(path)", "eval('1')", "exec(text)", "yaml.load(text)",
     "subprocess.run(line, shell=True)", "f(**{'trust_remote_code': True})", "f(trust_remote_code=True)",
     "httpx.get(url, verify=False)", "os.environ['VLLM_ALLOW_INSECURE_SERIALIZATION'] = '1'"],
)  # fmt: skip
def test_dangerous_code_is_found(source: str) -> None:
    assert len(dangers_in(source)) == 1


def loads_of_models(*folders: str) -> dict[str, list[str]]:
    """Return every call of a `from_pretrained` by what it is called on."""
    found: dict[str, list[str]] = {}
    for path in [path for folder in folders for path in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(syntax_tree(path)):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if is_call and node.func.attr == "from_pretrained":
                found.setdefault(ast.unparse(node.func), []).append(ast.unparse(node))
    return found


def test_every_load_of_a_model_refuses_code_and_pickles() -> None:
    loads = loads_of_models("plansmith", "actors", "pipelines")
    engine = (ROOT / "actors" / "engine.py").read_text(encoding="utf-8")
    assert 'load_format="safetensors"' in engine
    assert "trust_remote_code=False" in engine
    assert loads.keys() == {"AutoConfig.from_pretrained", "AutoModelForCausalLM.from_pretrained",
                            "AutoTokenizer.from_pretrained", "PeftModel.from_pretrained"}  # fmt: skip
    assert all("**SAFE_LOADING" in call for call in loads["AutoModelForCausalLM.from_pretrained"])
    for kind in ("AutoConfig", "AutoTokenizer"):
        assert all("**NO_FOREIGN_CODE" in call for call in loads[f"{kind}.from_pretrained"])
