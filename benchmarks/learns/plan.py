"""What the benchmark does and how large, committed with its seeds: a run can be repeated."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.embedded import QUESTIONS as HELD_OUT
from rubricem.memory.runs import write_atomically
from rubricem.training.collect.questions import Question
from rubricem.training.local.checkpoints import TrainingFolder

ROOT = Path(__file__).parent
QUESTIONS = ROOT.parent / "learns_questions.jsonl"
TRACE_TOOL_CALLS, TRACE_TOKENS = 2, 700


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    traces: int = 60
    """accepted ones that imitation needs"""
    questions: int = 100
    rounds: int = 3
    per_round: int = 8
    group: int = 4
    held_out: int = 24


QUICK = Sizes(traces=1, questions=2, rounds=1, per_round=1, group=2, held_out=1)


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the benchmark, in a folder that it goes on with."""

    keep: Path
    sizes: Sizes = Sizes()
    teacher: str = "1.5b"
    model: str = "0.5b"
    judge_model: str | None = "1.5b"
    judge_base_url: str | None = None
    source: tuple[str, ...] = ("python",)

    def training(self) -> tuple[Question, ...]:
        """Spread over the whole file, so that few of them are of different modules too."""
        return _spread(QUESTIONS, self.sizes.questions)

    def held_out(self) -> tuple[Question, ...]:
        return _spread(HELD_OUT, self.sizes.held_out)

    def tracing(self) -> dict[str, Any]:
        """The settings that the teacher's forced traces are collected under."""
        return {
            "model": self.teacher, "source": self.source, "decoding": "forced", "memory": "off",
            "tool_calls": TRACE_TOOL_CALLS, "max_tokens": TRACE_TOKENS,
            "data_dir": self.keep / "data",
        }  # fmt: skip

    def shape(self) -> dict[str, Any]:
        """How the traces differ in what the policy is shown."""
        return {}

    def sft(self) -> dict[str, Any]:
        """The configuration of `rubricem train sft`."""
        return {
            **_toml("sft.toml"),
            "out": str(self.keep / "sft"),
            "rows": [str(self.keep / "traces")],
            "model": self.model,
        }

    def rounds(self) -> dict[str, Any]:
        """The configuration of `rubricem train ss-grpo`; its files of questions are written."""
        values, sizes = _toml("rounds.toml"), self.sizes
        table = {
            **values.pop("rounds"),
            "questions": str(self._written("questions.jsonl", self.training())),
            "held_out": str(self._written("held_out.jsonl", self.held_out())),
            "rounds": sizes.rounds,
            "questions_per_round": sizes.per_round,
            "group_size": sizes.group,
            "judge_model": self.judge_model,
            "judge_base_url": self.judge_base_url,
            "source": list(self.source),
        }
        return {
            **values,
            "out": str(self.keep / "rounds"),
            "start_adapter": str(TrainingFolder(self.keep / "sft").newest),
            "model": self.model,
            "rounds": table,
        }

    def _written(self, name: str, questions: tuple[Question, ...]) -> Path:
        path = self.keep / name
        write_atomically(path, "".join(q.model_dump_json() + "\n" for q in questions))
        return path


def facts() -> dict[str, str]:
    """The pattern of each held-out question's fact."""
    rows = map(json.loads, HELD_OUT.read_text(encoding="utf-8").splitlines())
    return {row["question"]: row["fact"] for row in rows}


def _spread(path: Path, count: int) -> tuple[Question, ...]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    step = max(len(rows) // count, 1)
    return tuple(
        Question(id=str(n), question=row["question"]) for n, row in enumerate(rows[::step][:count])
    )


def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))
