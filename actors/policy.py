"""The policy: one engine that samples rollouts, takes new weights, and proves that it answers with them.

The engine is vLLM; every call into it is in `actors.engine`. This is not the trainer: weights come as a folder on disk,
a Hugging Face model or a PEFT adapter over the model that the engine holds. It reads and writes token ids only; prompts
and tokenizers live in the library. One engine uses one device; for more, place more actors.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from actors.engine import Engine, build_engine, sampling_params, scoring_params
from actors.engine_weights import (
    base_of,
    check_adapter,
    check_same_shapes,
    first_different_tensor,
    has_tensors,
    read_pointer,
    read_weight_shapes,
    write_pointer,
)
from actors.telemetry import RayListener, was_restarted
from plansmith.config.generation import SamplingConfig
from plansmith.config.training import PolicyConfig
from plansmith.errors import BadInputError, PlansmithError, StalePolicyError
from plansmith.generation import Generation
from plansmith.live import LiveFile, LiveProgress, report, report_to

UNKNOWN = "unknown"
"""Version of weights that are being replaced, or could not be."""
TELLING_INTERVAL_S = 1.0
"""How often it is told how many tokens are written while no completion is finished."""


class PolicyActor:
    """Samples from the current weights. A plain class; ``ray.remote`` is applied where the pipeline places it.

    Building the engine changes its process for good (thread count, a process group, `torch.set_num_threads` does
    nothing any more), so give it a process of its own, as Ray does.

    Args:
        weights_folder: model or adapter to start from; the base of an adapter is loaded first.
        policy_version: name of those weights.
        settings: how the engine is built.
        seed: of the engine; every completion has one of its own.
        lora_rank: largest rank of an adapter; None builds an engine that takes whole models only, and is faster.
        has_sleep_mode: let `sleep` give the GPU's memory away. No effect on a CPU.
        pointer: JSON file that names the current weights. `load_weights` writes it, and an actor that Ray restarts
            starts from it; a first start ignores what it says, so that a leftover of an older run is harmless.
        run_folder: where it says what it is doing (`plansmith.live`).
        number: of this engine among several.
        devices: the GPUs that it uses where Ray gives it none, being a rank's; None leaves the choice to Ray.

    Raises:
        BadInputError: the folder is no usable model or adapter; found before the engine starts.
    """

    def __init__(
        self,
        weights_folder: str,
        policy_version: str,
        *,
        settings: PolicyConfig | None = None,
        seed: int = 0,
        lora_rank: int | None = None,
        has_sleep_mode: bool = False,
        pointer: str | None = None,
        run_folder: str | None = None,
        number: int = 0,
        devices: Sequence[str] | None = None,
    ) -> None:
        if devices is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
        self._settings, self._lora_rank = settings or PolicyConfig(), lora_rank
        self._seed, self._wants_sleep = seed, has_sleep_mode
        if run_folder is not None:
            source = f"policy-{number}"
            report_to(LiveFile(Path(run_folder), source), RayListener(Path(run_folder).name, source))
        report("starting the engine")
        self._pointer = Path(pointer) if pointer else None
        if self._pointer and self._pointer.exists() and was_restarted():
            weights_folder, policy_version = read_pointer(self._pointer)
        folder = str(Path(weights_folder).resolve())
        self._base_folder = base_of(folder)
        self._shapes = read_weight_shapes(self._base_folder)
        self._check(folder)
        self._policy_version, self._incarnation = UNKNOWN, uuid.uuid4().hex
        self._sleep_level: int | None = None
        self._engine = Engine(self._build_engine())
        if folder != self._base_folder:
            self._load_adapter(folder, policy_version)
        self._remember(folder, policy_version)

    def policy_version(self) -> str:
        """Return the name of the weights that the engine holds."""
        return self._policy_version

    def incarnation(self) -> str:
        """Return a name that this actor has for itself; one that Ray starts in its place has another."""
        return self._incarnation

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingConfig,
        *,
        seeds: Sequence[int],
        description: str | None,
    ) -> Iterator[list[Generation]]:
        """Yield `n` completions for each prompt, in the order of the prompts, as soon as those before are there.

        A completion depends on its prompt, its seed and the weights. The engine adds one caveat: rounding in the matrix
        products depends on how many rollouts are decoded together, which at a near tie can turn a token. That the order
        is the prompts' lets Ray begin again, in an actor that died and came back, with what is still to come.

        Args:
            prompts: token ids.
            sampling: shared by all prompts.
            seeds: (prompts * n,); seed ``i * n + k`` belongs to completion k of prompt i.
            description: what it says it is doing; None says nothing.

        Raises:
            BadInputError: a prompt that is empty, too long or outside the vocabulary; wrong number of seeds.
            PlansmithError: the engine sleeps, works on requests of someone else, or lost a prompt.
        """
        self._check_idle()
        requests = self.add_requests(prompts, sampling, seeds=seeds)
        progress = LiveProgress(description, len(requests), unit="rollout") if description is not None else None
        with closing(self._outputs(requests, progress)) as outputs:
            while group := [self._generation(output) for output in islice(outputs, sampling.n)]:
                yield group

    def add_requests(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingConfig, *, seeds: Sequence[int]
    ) -> list[int]:
        """Queue `n` completions for each prompt and return their numbers; they join those under way at the next step.

        Whoever uses this and `step` drives the engine: until nothing is under way, `generate`, `prompt_logprobs` and
        `load_weights` refuse to work.

        Args:
            prompts: token ids.
            sampling: shared by all prompts.
            seeds: (prompts * n,); seed ``i * n + k`` belongs to completion k of prompt i.

        Raises:
            BadInputError: a prompt that is empty, too long or outside the vocabulary; wrong number of seeds.
            PlansmithError: the engine sleeps.
        """
        self._check_request(prompts)
        if len(seeds) != len(prompts) * sampling.n:
            raise BadInputError(
                "every completion needs its own seed",
                where="PolicyActor",
                got=f"{len(seeds)} seeds",
                expected=f"{len(prompts)} prompts * {sampling.n} = {len(prompts) * sampling.n}",
            )
        repeated = [prompt for prompt in prompts for _ in range(sampling.n)]
        loops = self._settings.max_loop_tokens
        params = [sampling_params(sampling, seed, max_loop_tokens=loops) for seed in seeds]
        return self._engine.add(repeated, params)

    def step(self) -> dict[int, Generation]:
        """Decode one token of everything under way; return the completions that this finished, by their numbers."""
        return {number: self._generation(output) for number, output in self._engine.step().items()}

    def abort_requests(self, requests: Collection[int]) -> None:
        """Stop completions that nobody wants any more; one that has finished, or is unknown, is left alone."""
        self._engine.abort(requests)

    def has_unfinished_requests(self) -> bool:
        """Return whether anything is under way."""
        return self._engine.has_unfinished

    def prompt_logprobs(self, token_ids: Sequence[int], *, of_base: bool = False) -> list[float]:
        """Return log p(token | tokens before it) for every token but the first: ``len(token_ids) - 1`` numbers.

        Args:
            token_ids: (T,)
            of_base: as if there were no adapter.
        """
        self._check_request([token_ids])
        self._check_idle()
        [output] = self._outputs(self._engine.add([token_ids], [scoring_params()], of_base=of_base), None)
        rows = output.prompt_logprobs[1:]
        return [row[token].logprob for row, token in zip(rows, token_ids[1:], strict=True)]

    def load_weights(self, weights_folder: str, policy_version: str) -> None:
        """Take other weights, forget every cached prefix, and point restarts at the new folder.

        A model replaces the weights in place, and its tensors are compared with the folder's afterwards. On a CPU the
        matrices of linear layers are repacked for the hardware and cannot be compared, embeddings and norms can. An
        adapter goes beside the base, which the engine already holds; the base itself again means no adapter. `prove` is
        what covers all of them. An engine that sleeps wakes up.

        Raises:
            BadInputError: no usable model or adapter, another shape, or an adapter over another base; the old weights
                stay.
            StalePolicyError: the engine did not take the weights over.
        """
        folder = str(Path(weights_folder).resolve())
        self._check(folder)
        self._check_idle()
        self._wake()
        if base_of(folder) != folder:
            self._load_adapter(folder, policy_version)
        else:
            self._load_model(folder, policy_version)
        self._keep(folder, policy_version)

    def _keep(self, folder: str, policy_version: str) -> None:
        if not self._engine.clear_prefix_cache():
            raise StalePolicyError("the prefix cache of the old weights could not be cleared", where=folder)
        self._remember(folder, policy_version)

    def receive(self, call: str, *arguments: Any) -> None:
        """Do what the trainer's sender asks while it hands weights over (`actors.weight_transfer`).

        From its start until `keep_received` nobody knows which weights the engine holds.
        """
        if call == "start_weight_update":
            self._check_idle()
            self._policy_version = UNKNOWN
        self._engine.receive(call, *arguments)

    def keep_received(self, weights_folder: str, policy_version: str) -> None:
        """Name the weights that were received, and the folder from which a restart begins; without them that fails.

        Raises:
            BadInputError: a model of other shapes there.
            StalePolicyError: the prefix cache of the old weights could not be cleared.
        """
        folder = str(Path(weights_folder).resolve())
        if has_tensors(folder):
            self._check(folder)
        self._keep(folder, policy_version)
        self._base_folder = folder

    def _build_engine(self) -> Any:
        """Return what `actors.engine.Engine` works with."""
        return build_engine(
            self._base_folder,
            self._settings,
            seed=self._seed,
            lora_rank=self._lora_rank,
            has_sleep_mode=self._wants_sleep,
        )

    def _check(self, weights_folder: str) -> None:
        """Refuse a folder that the engine cannot take, before anything changes."""
        base = base_of(weights_folder)
        if base == weights_folder:
            check_same_shapes(weights_folder, read_weight_shapes(weights_folder), self._shapes)
            return
        if self._lora_rank is None:
            raise BadInputError("the engine was built without adapters", where=weights_folder,
                                expected="a whole model", cure="set lora_rank to the adapter's rank")  # fmt: skip
        if base != self._base_folder:
            raise BadInputError("an adapter over another base", where=weights_folder, got=base,
                                expected=self._base_folder)  # fmt: skip
        check_adapter(weights_folder, self._shapes, max_rank=self._lora_rank)

    def _load_adapter(self, folder: str, policy_version: str) -> None:
        """Put an adapter beside the base.

        Raises:
            BadInputError: vLLM refuses it; the old weights stay.
            StalePolicyError: the engine holds no adapter, or also another.
        """
        before = self._policy_version
        self._policy_version = UNKNOWN  # until the engine has said that it holds the adapter
        try:
            self._engine.add_adapter(folder, policy_version)
        except BadInputError:
            self._policy_version = before
            raise

    def _load_model(self, folder: str, policy_version: str) -> None:
        """Drop the adapter; replace the weights unless the engine holds exactly these beneath it.

        Raises:
            StalePolicyError: the engine holds other values than the folder.
        """
        self._policy_version = UNKNOWN  # until the check below has passed
        self._engine.drop_adapter()
        if self._lora_rank is None or folder != self._base_folder:
            self._engine.reload(folder)
            self._base_folder = folder
        answers = self._engine.ask_model(partial(first_different_tensor, folder=folder))
        if different := next(filter(None, answers), None):
            raise StalePolicyError(
                f"the engine does not hold the weights of {policy_version}",
                where=folder,
                got=f"other values in {different}",
                expected="the values in the folder",
            )

    def sleep(self) -> None:
        """Give the memory of weights and cache back to the GPU until `wake_up` or `load_weights`.

        With adapters the base outlives every update: vLLM's level 1 keeps it in the host's memory. Without, the next
        weights come from a folder anyway: level 2 drops them, and `wake_up` reads the folder again. vLLM 0.32.0 has no
        sleep mode on a CPU, where the two share the host's memory and nothing could be given back: no effect there.
        """
        if self._sleep_level is None and self._engine.has_sleep_mode:
            level = 2 if self._lora_rank is None else 1
            self._engine.sleep(level)
            self._sleep_level = level

    def wake_up(self) -> None:
        """Come back with the weights and the version of before; a call while awake changes nothing."""
        if self._wake() == 2:
            version = self._policy_version
            self._load_model(self._base_folder, version)
            self._policy_version = version

    def _wake(self) -> int | None:
        """Take the memory again and return the level of the sleep; after level 2 the weights are still to be read."""
        level, self._sleep_level = self._sleep_level, None
        if level is not None:
            self._engine.wake_up()
        return level

    def prove(self, probe_token_ids: Sequence[int], trainer_logprobs: Sequence[float], *, tolerance: float) -> float:
        """Return the largest absolute difference between the engine's log-probabilities and the trainer's.

        Args:
            probe_token_ids: (T,)
            trainer_logprobs: (T - 1,), of tokens 1 to T-1.
            tolerance: largest difference to accept.

        Raises:
            StalePolicyError: above the tolerance, or not a number. The message has both numbers.
        """
        engine_logprobs = self.prompt_logprobs(probe_token_ids)
        pairs = list(zip(engine_logprobs, trainer_logprobs, strict=True))
        if not pairs:
            raise ValueError("a probe needs at least two tokens")
        differences = [_difference(engine, trainer) for engine, trainer in pairs]
        worst = max(range(len(pairs)), key=differences.__getitem__)
        if differences[worst] > tolerance:
            raise StalePolicyError(
                f"the engine disagrees with the trainer about {self._policy_version}",
                where=f"probe token {worst + 1}",
                got=f"log-probability {pairs[worst][0]:.6f} from the engine",
                expected=f"{pairs[worst][1]:.6f} from the trainer, within {tolerance:g}",
                cure="the weights that were saved are not those of the trainer, or the engine did not load them",
            )
        return differences[worst]

    def adapter_effect(self, probe_token_ids: Sequence[int]) -> float | None:
        """Return the largest difference that the adapter makes to a log-probability of a probe; None without one.

        Where it is within the tolerance of `prove`, an engine that had lost the adapter would pass as well.
        """
        if not self._engine.has_adapter:
            return None
        adapted, plain = (self.prompt_logprobs(probe_token_ids, of_base=of_base) for of_base in (False, True))
        return max(_difference(*pair) for pair in zip(adapted, plain, strict=True))

    def _remember(self, weights_folder: str, policy_version: str) -> None:
        self._policy_version = policy_version
        if self._pointer:
            write_pointer(self._pointer, weights_folder, policy_version)

    def _check_request(self, prompts: Sequence[Sequence[int]]) -> None:
        if self._sleep_level is not None:
            raise PlansmithError("the engine sleeps", where="PolicyActor", cure="call wake_up or load_weights first")
        _check_prompts(prompts, self._settings.max_model_len, self._engine.vocab_size)

    def _check_idle(self) -> None:
        if self._engine.has_unfinished:
            raise PlansmithError("the engine works on requests of someone else", where="PolicyActor",
                                 cure="let them finish, or abort them")  # fmt: skip

    def _generation(self, output: Any) -> Generation:
        completion = output.outputs[0]
        return Generation(
            token_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs.logprobs),
            finish_reason=completion.finish_reason,
            policy_version=self._policy_version,
        )

    def _outputs(self, requests: Sequence[int], progress: LiveProgress | None) -> Generator[Any, None, None]:
        """Yield vLLM's outputs in the order of the requests, each as soon as those before are there.

        Without a progress nobody is told. Closed before the end, it leaves nothing in the engine.

        Raises:
            PlansmithError: the engine is idle and some request has no output.
        """
        outputs: dict[int, Any] = {}
        waiting, lengths = list(reversed(requests)), dict[int, int]()
        start_s = told_s = time.perf_counter()
        try:
            while waiting:
                if not self._engine.has_unfinished:
                    raise PlansmithError("the engine lost prompts", where="PolicyActor", got=f"{len(waiting)} left",
                                         expected="none", cure="give the command again")  # fmt: skip
                finished = self._engine.step()
                outputs |= finished
                lengths |= {number: len(output.outputs[0].token_ids) for number, output in finished.items()}
                now_s = time.perf_counter()
                if progress is not None and (finished or now_s - told_s > TELLING_INTERVAL_S):
                    told_s, written = now_s, [*lengths.values(), *self._engine.written()]
                    speed, longest = sum(written) / (now_s - start_s), float(max(written, default=0))
                    values = {"rollout/tokens_per_s": speed, "rollout/longest_tokens": longest}
                    progress.advance(len(finished), values)
                while waiting and waiting[-1] in outputs:
                    yield outputs.pop(waiting.pop())
        finally:  # after an interrupt nothing may stay in the engine, or the next call would decode it too
            if waiting:
                self._engine.abort(requests)


def _check_prompts(prompts: Sequence[Sequence[int]], max_model_len: int, vocab_size: int) -> None:
    for index, prompt in enumerate(prompts):
        where = f"prompt {index}"
        if not 0 < len(prompt) < max_model_len:
            expected = f"1 to {max_model_len - 1} (max_model_len is {max_model_len}, one token must be left to write)"
            raise BadInputError("prompt length", where=where, got=f"{len(prompt)} tokens", expected=expected)
        if min(prompt) < 0 or max(prompt) >= vocab_size:
            got, expected = f"tokens {min(prompt)} to {max(prompt)}", f"0 to {vocab_size - 1}"
            raise BadInputError("token outside the vocabulary", where=where, got=got, expected=expected)


def _difference(engine: float, trainer: float) -> float:
    difference = abs(engine - trainer)
    return difference if difference == difference else float("inf")  # NaN compares false with every tolerance
