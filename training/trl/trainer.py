"""A training run's steps by TRL: its loop and its loss, our rows, and our folder of checkpoints.

TRL's loss (its type dapo) of a window with N trained tokens is

    sum over tokens of ( -L(r, A') + beta * k3 ) / N

L is homogeneous in the advantage: L(r, c A) = c L(r, A) for c >= 0. So the weight c of a token in
its window (`training.objective.batch`), and the weight w that corrects for the difference between
the old policy and the sampler go into the advantage: A' = N * c * w * A. Only the divergence is
divided by N as it is, which is its share in our objective if the aggregation is `token-mean`.

TRL puts a prompt, padded on its left, before a completion. Here both are padded on the right alone:
every row is divided at the same place, before the first token that any of them trains, so that
position ids count from each row's beginning whatever the model makes of them. The model has the
same base and, to the last bit, the same adapter as `local`'s.

Where TRL would generate, score and normalise, it gets the window's rows with their own advantages.
TRL 1.16 accepts (B, T) advantages from subclasses by intent; the method is not public, so the
version is pinned to its minor. Two more methods are overridden to observe the ratios of whole rows
(`training.objective.objective`), and one to do nothing. TRL repeats one prompt `num_generations`
times over all ranks. Its data set has one entry for each window here, and one group is the whole
generation batch, so that each rank learns its current window from any of its entries.

TRL counts updates; a step of our plan is one window, with `passes` updates or, if no row has a
gradient, none. Rates, numbers, and when to save follow our own plan.

TRL saves what it needs to continue in OUT/trl/checkpoint-N, N the updates so far; beside it the
session writes the checkpoint that everything else reads (`training.local.checkpoints`), which lists
those files: TRL itself keeps two of its folders, and reads whatever is there; without its moments
it would take different steps silently.
"""

import gc
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import peft
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast, PrinterCallback, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import use_adapter

from rubricem.memory.errors import PolicyError, StoreError, boundary
from rubricem.training.local.checkpoints import TrainingFolder, fault, read_trainer, read_weights
from rubricem.training.local.learner import Metrics, check_numbers
from rubricem.training.local.load import check_rows, load_base, memory_told
from rubricem.training.local.local_config import EngineConfig, TrainConfig, rate_at
from rubricem.training.local.ranks import Ranks
from rubricem.training.local.session import TrainingSession
from rubricem.training.local.weights import first_matrices
from rubricem.training.objective.batch import Batch, window_weights
from rubricem.training.objective.objective import ClippedTerms, LossMetrics, sequence_logs
from rubricem.training.objective.objective_config import ObjectiveConfig
from rubricem.training.rows.row import OBJECTIVES, TrainRow, Window

Inputs = dict[str, Tensor]
"""the inputs of `GRPOTrainer._compute_loss`, by name; (B, P) and (B, C) of P + C = T positions"""
BEHAVIOUR, SAMPLED, POLICY = "rubricem_behaviour", "rubricem_sampled", "rubricem_policy"
"""passed through TRL for our own numbers: the sampler's log-probabilities, where they are of these
very ids, and where a policy row is trained"""


class WindowRows:
    """One rank's rows of one window, filled up to a fixed count by rows that train nothing."""

    def __init__(
        self, rows: Sequence[TrainRow], objective: ObjectiveConfig, ranks: Ranks, count: int
    ) -> None:
        self._objective = objective
        window = window_weights(rows, objective)
        self.tokens = window.whole.tokens
        """trained tokens of the window, on all ranks"""
        moving = objective.with_gradient(rows)
        mine = [row for part in ranks.share([[row] for row in moving]) for row in part]
        shortest = min(moving, key=lambda row: len(row.ids))
        batch = Batch.collate([*mine, *[shortest.silent()] * (count - len(mine))], window)
        self.batch = batch
        trained = batch.mask.any(dim=0).nonzero()
        self.split = int(trained.min()) if len(trained) else 1
        self.width = int(trained.max()) + 1 if len(trained) else 2

    def to(self, device: torch.device) -> None:
        self.batch = self.batch.to(device)

    @property
    def ids(self) -> Tensor:
        """(B, T), without what follows the last trained token."""
        return self.batch.ids[:, : self.width]

    @property
    def attended(self) -> Tensor:
        """(B, T) int64, 1 where a row has a token."""
        reach = self.batch.lengths.to(self.batch.ids.device).unsqueeze(1)
        return (self.batch.position[:, : self.width] < reach).long()

    def inputs(self, old: Tensor | None) -> Inputs:
        """The inputs of TRL's loss; `old` (B, C): log-probabilities before the update.

        None: TRL needs none; with the correction bypass the sampler's are used instead.
        """
        batch, split, tail = self.batch, self.split, slice(self.split, self.width)
        scale = batch.weights * self.tokens
        if old is not None:
            before = old.new_zeros(batch.ids.shape)
            before[:, tail] = old
            scale = scale * ClippedTerms.of(batch, before, None, None, self._objective).importance
        found = {
            "prompt_ids": self.ids[:, :split],
            "prompt_mask": self.attended[:, :split],
            "completion_ids": self.ids[:, split:],
            "completion_mask": self.attended[:, split:],
            "tool_mask": batch.mask[:, tail].long(),
            "advantages": (batch.advantages * scale)[:, tail],
            "num_items_in_batch": torch.tensor(float(self.tokens), device=batch.ids.device),
            BEHAVIOUR: batch.behaviour[:, tail],
            SAMPLED: batch.sampled[:, tail],
            POLICY: (batch.objectives == OBJECTIVES.index("policy"))[:, tail],
        }
        if self._objective.correction == "bypass":
            old = batch.behaviour[:, tail]
        return found if old is None else found | {"old_per_token_logps": old}


PAD = "<pad>"


def load_policy(config: EngineConfig, path: Path) -> Any:
    """A causal language model of transformers; with an adapter, as a PeftModel.

    `config.dtype` is set; all trained weights are float32, whatever is computed with.
    """
    model = load_base(path, "float32" if config.adaptation == "full" else config.dtype)
    if config.adaptation == "full":
        return model.requires_grad_(True)
    starts = first_matrices(model, config.rank, config.seed, config.adapted_blocks)
    settings = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # type: ignore[arg-type]
        lora_dropout=0.0,
        target_modules=list(starts),
        task_type="CAUSAL_LM",
    )
    adapted = peft.get_peft_model(model, settings)
    # With a name, peft would look at each save for that model on the network.
    adapted.peft_config["default"].base_model_name_or_path = ""
    state = {f"base_model.model.{name}.lora_A.weight": start for name, start in starts.items()}
    if config.start_adapter is not None:
        state = read_weights(config.start_adapter, "lora")
    peft.set_peft_model_state_dict(adapted, state)
    return adapted


WINDOW = "window"
"""the column of the data set with a window's number"""


class RowsTrainer(GRPOTrainer):
    """A GRPOTrainer whose steps are given windows of rows."""

    def __init__(
        self,
        windows: Sequence[Sequence[TrainRow]],
        objective: ObjectiveConfig,
        ranks: Ranks,
        **more: Any,
    ) -> None:
        """`more`: arguments of GRPOTrainer; every window has a row with a gradient."""
        self._windows, self._objective, self._ranks = windows, objective, ranks
        self._measured = LossMetrics()

        def refuse(**columns: Any) -> list[float | None]:
            """TRL requires a reward function, but rows have been scored."""
            raise AssertionError("no completion is generated, so none is scored")

        super().__init__(reward_funcs=refuse, **more)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Inputs:
        rows = self._windows[inputs[0][WINDOW]]
        window = WindowRows(rows, self._objective, self._ranks, len(inputs))
        window.to(self.accelerator.device)
        old = None
        with torch.no_grad():
            # With one pass TRL takes the policy in the loss for it, as our engine does, which
            # gives no importance weight ahead of the loss.
            objective = self._objective
            if objective.correction != "bypass" and (
                self.num_iterations > 1 or objective.importance != "none"
            ):
                old = self._logprobs_of(window)
            found = window.inputs(old)
            if self.beta:
                # By the adapter that training began with, which TRL has put aside as `ref`.
                with use_adapter(self.accelerator.unwrap_model(self.model), "ref"):
                    found["ref_per_token_logps"] = self._logprobs_of(window)
        return found

    def _get_per_token_logps_and_entropies(self, *model_inputs: Any, **more: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*model_inputs, **more)
        self._newest: Tensor = found[0].detach()
        return found

    def _compute_loss(self, model: Any, inputs: Inputs) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)  # type: ignore[no-untyped-call]
        new, behaviour, policy = self._newest, inputs[BEHAVIOUR], inputs[POLICY]
        sums = partial(torch.sum, dim=1)
        logs = sequence_logs(sums, new, behaviour, policy, inputs.get("ref_per_token_logps"))
        rows = {name: tuple(values.tolist()) for name, values in logs.items()}
        self._measured += LossMetrics(rows=rows)
        if self.state.global_step % self.num_iterations == 0:  # the policy before the update
            gap = (new - behaviour).abs().masked_fill(~inputs[SAMPLED], 0.0)
            name, tokens = "sampler_gap", float(inputs[SAMPLED].sum())
            self._measured += LossMetrics({name: float(gap.sum())}, {name: tokens})
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add what was measured on all ranks since the last update."""
        measured = sum(self._ranks.gather(self._measured), LossMetrics()).report()
        self._measured = LossMetrics()
        del measured["tokens"]  # a window's are counted beside it
        super().log(logs | measured, start_time)

    def _send_telemetry(self) -> None:
        """Suppress TRL's report of each training to its makers."""

    def _logprobs_of(self, window: WindowRows) -> Tensor:
        kept, at_once = window.width - window.split, self.args.per_device_train_batch_size
        found: Tensor = self._get_per_token_logps_and_entropies(
            self.model, window.ids, window.attended, kept, at_once
        )[0]
        return found


OnStep = Callable[[Metrics], None]
"""Called with a finished step's metrics, before it is saved."""


@dataclass(eq=False)
class TrlWatch(TrainerCallback):
    """Follows one training; `write` is set before it begins."""

    _session: TrainingSession
    _config: TrainConfig
    _plan: Sequence[Window]
    _moving: Sequence[int]
    """the numbers of the windows that have a gradient, in order"""
    _on_step: OnStep
    _stopped: Callable[[], bool]
    """called after each step: whether it is to be the last; the same for all ranks"""
    _most_gap: float
    write: Callable[[bool], object] = lambda serve: None
    """writes a checkpoint of the session's last step; the argument: whether also for llama.cpp"""

    def __post_init__(self) -> None:
        self._seconds, self._began = 0.0, 0.0
        self._metrics: Metrics = {}

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An update begins."""
        self._began = time.perf_counter()
        step = self._moving[state.global_step // self._config.passes]
        for group in more["optimizer"].param_groups:
            group["lr"] = rate_at(step, len(self._plan), self._config)
            group["weight_decay"] = self._config.weight_decay

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """An update is done."""
        self._seconds += time.perf_counter() - self._began
        if (step := self._window_of(state)) is not None:
            control.should_training_stop = step == self._moving[-1] or self._stopped()
            control.should_save = (
                control.should_training_stop or (step + 1) % self._config.save_every == 0
            )

    def on_log(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The numbers of an update are available."""
        logs: dict[str, float] = more["logs"]
        if "loss" not in logs:
            return
        self._metrics |= {name: float(n) for name, n in logs.items() if n is not None}
        check_numbers(self._metrics, self._most_gap)
        if (step := self._window_of(state)) is not None:
            self._finish(step)

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """TRL has saved its own files."""
        self.write(self._session.done == len(self._plan))

    def _window_of(self, state: Any) -> int | None:
        """The number of the window whose last update this was, counted from 0."""
        done, left = divmod(state.global_step, self._config.passes)
        return None if left else self._moving[done - 1]

    def _finish(self, step: int) -> None:
        """Count a window, and adjacent ones without a gradient."""
        session, last = self._session, step == self._moving[-1]
        while session.done < step:
            self._count(session.done, {})
        self._count(step, self._metrics)
        self._metrics, self._seconds = {}, 0.0
        while last and session.done < len(self._plan):
            self._count(session.done, {})

    def _count(self, step: int, told: Metrics) -> None:
        rows = self._plan[step]
        moving = self._config.objective.with_gradient(rows)
        metrics = {
            "loss": 0.0,
            "tokens": float(sum(sum(row.loss_mask) for row in moving)),
            "rows_without_gradient": float(len(rows) - len(moving)),
        }
        if told:
            read = sum(len(row.ids) for row in moving)
            metrics["rate"] = rate_at(step, len(self._plan), self._config)
            metrics["seconds"] = self._seconds
            metrics["tokens_per_second"] = read / max(self._seconds, 1e-9)
        self._on_step(self._session.count_step(metrics | told, rows))


FILES = "trl"
"""instead of a trainer's state, the list of TRL's files: their sizes and hashes"""


def stand(session: TrainingSession) -> None:
    """Move the session to its newest checkpoint for which TRL's files are intact, too.

    Raises StoreError if there is none, and leaves the session at its newest.
    """
    told = _gone_back(session.folder) if session.done and session.ranks.first else ""
    if session.ranks.gather(told)[0]:
        session.tell(told)
        session.stand()
        session.go_back()


def _gone_back(run: TrainingFolder) -> str:
    told: list[str] = []
    for place in reversed(run.so_far()):
        # The newest itself was found whole as the session was opened; nothing is known of files
        # of TRL that have no list.
        wrong = fault(place) if told else ""
        if not (wrong := wrong or run.compare(read_trainer(place).get(FILES, {}))):
            run.stand_at(place)
            return f"{' and '.join(told)}: continuing from step {run.step()}" if told else ""
        told.append(f"TRL cannot go on from step {int(place.name)} ({wrong})")
    raise StoreError(
        " and ".join(told),
        f"Put the files back, or start again in another folder than {run.folder}.",
    )


def take_steps(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    on_step: OnStep,
    stopped: Callable[[], bool],
) -> None:
    """Take the remaining steps of a plan, and save them as configured.

    When `stopped` becomes true on all ranks, the current step is saved and is the last. A window
    whose rows have no gradient is a step without an update. Raises SettingsError for rows that are
    not for this model, PolicyError if a step's numbers are not finite or it does not fit into
    memory; the last checkpoint is kept. Raises StoreError if TRL's own files allow continuing from
    no checkpoint.
    """
    stand(session)
    if config.threads:
        torch.set_num_threads(config.threads)
    session.tell(f"reading {session.base.path.name} as {session.config.dtype}, for TRL")
    place = session.ranks.device
    with boundary(PolicyError, "training by TRL"), memory_told(place), warnings.catch_warnings():
        # What the packages say of each other's old names.
        warnings.filterwarnings("ignore", category=FutureWarning)
        model = load_policy(session.config, session.base.path)
        check_rows([row for window in plan for row in window], model)
        _train(session, config, plan, on_step, stopped, model)
    gc.collect()  # a wrapped model holds on to the group of ranks


def _train(
    session: TrainingSession,
    config: TrainConfig,
    plan: Sequence[Window],
    on_step: OnStep,
    stopped: Callable[[], bool],
    model: Any,
) -> None:
    moving = [n for n, rows in enumerate(plan) if config.objective.with_gradient(rows)]
    if config.adaptation == "full":  # before TRL writes its tokenizer's ids into it
        beside: dict[str, Any] = model.config.to_dict() | {"dtype": "float32"}
    else:
        beside = session.adapter_config(model.peft_config["default"].target_modules)
    most_gap = math.log(model.get_input_embeddings().num_embeddings)
    watch = TrlWatch(session, config, plan, moving, on_step, stopped, most_gap)
    trainer = build_trainer(session, config, [plan[number] for number in moving], model)
    watch.write = lambda serve: _write(session, config, trainer, beside, serve)
    trainer.add_callback(watch)
    updates = sum(number < session.done for number in moving) * config.passes
    left = _folder(config) / f"checkpoint-{updates}"
    if updates and not (left / "trainer_state.json").is_file():
        raise StoreError(
            f"{left} is missing, which TRL goes on from",
            f"Put it back, or start again in another folder than {config.out}.",
        )
    trainer.train(resume_from_checkpoint=str(left) if updates else None)


def build_trainer(
    session: TrainingSession, config: TrainConfig, windows: Sequence[Window], model: Any
) -> RowsTrainer:
    """TRL's trainer for windows that each have a gradient; it prints and sends nothing."""
    ranks, count = session.ranks, 0
    for rows in windows:
        moving = config.objective.with_gradient(rows)
        count = max(count, -(-len(moving) // (ranks.world * config.micro_batch)))
    # It knows padding alone: rows carry token ids, and TRL asks for a tokenizer.
    bare = Tokenizer(WordLevel({PAD: 0}, unk_token=PAD))
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare, pad_token=PAD, eos_token=PAD
    )
    if ranks.world * config.micro_batch * count == 1:
        count = 2  # TRL knows no group of one
    trainer = RowsTrainer(
        windows,
        config.objective,
        ranks,
        model=model,
        args=GRPOConfig(**_options(session, config, count, len(windows))),
        train_dataset=Dataset.from_dict(
            {"prompt": [""] * len(windows), WINDOW: list(range(len(windows)))}
        ),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _options(
    session: TrainingSession, config: TrainConfig, count: int, windows: int
) -> dict[str, Any]:
    """For GRPOConfig, with `count` micro-batches a rank in each window."""
    ranks, objective, cpu = session.ranks, config.objective, session.ranks.device.type == "cpu"
    return {
        "output_dir": str(_folder(config)),
        "loss_type": "dapo",
        "epsilon": objective.clip[0],
        "epsilon_high": objective.clip[1],
        "delta": objective.dual_clip,
        "beta": objective.beta,
        "temperature": 1.0,
        "num_iterations": config.passes,
        "num_generations": ranks.world * config.micro_batch * count,
        "per_device_train_batch_size": config.micro_batch,
        "gradient_accumulation_steps": count,
        "steps_per_generation": count,
        "shuffle_dataset": False,
        "max_steps": windows * config.passes,
        "optim": "adamw_torch_fused",
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "constant",
        "weight_decay": config.weight_decay,
        "max_grad_norm": config.max_grad_norm,
        "gradient_checkpointing": config.gradient_checkpointing,
        "bf16": config.adaptation == "full" and session.config.dtype == "bfloat16",
        "use_cpu": cpu,
        "ddp_backend": "gloo" if cpu and ranks.world > 1 else None,
        "dataloader_pin_memory": not cpu,
        "seed": config.seed,
        "save_strategy": "no",
        "save_total_limit": 2,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": [],
        "disable_tqdm": True,
        "log_level": "error",
    }


def _write(
    session: TrainingSession,
    config: TrainConfig,
    trainer: RowsTrainer,
    beside: dict[str, Any],
    serve: bool,
) -> None:
    """Our checkpoint of what TRL has just saved for itself; all ranks take part."""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    whole = trainer.accelerator.get_state_dict(trainer.model_wrapped)
    if config.adaptation == "lora":
        whole = peft.get_peft_model_state_dict(model, state_dict=dict(whole))
    names = {name for name, _ in model.named_parameters()} if config.adaptation == "full" else whole
    state = {
        name: weight.detach().cpu().float().contiguous()
        for name, weight in whole.items()
        if session.ranks.first and name in names
    }
    session.ranks.wait()  # each has files of its own among those of TRL
    updates = _folder(config) / f"checkpoint-{trainer.state.global_step}"
    kept = {FILES: session.folder.list_files(updates)} if session.ranks.first else {}
    session.write(state, beside, kept, serve)


def _folder(config: TrainConfig) -> Path:
    return config.out / "trl"
