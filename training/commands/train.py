"""`rubricem train`: a LoRA adapter by imitation, or by the stage-wise policy gradient."""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from training.local.config import Method
    from training.local.training_run import Trained


@click.group()
def train() -> None:
    """Train the embedded policy on rows; CONFIG is a TOML file that names them."""


@train.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def sft(config: Path, as_json: bool) -> None:
    """Imitate the accepted runs of CONFIG's rows, until all steps are done."""
    _run(config, "sft", as_json)


@train.command("ss-grpo")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def ss_grpo(config: Path, as_json: bool) -> None:
    """Follow the stage-wise policy gradient of CONFIG's judged groups."""
    _run(config, "ss-grpo", as_json)


def _run(path: Path, method: "Method", as_json: bool) -> None:
    from agent.settings import load_settings
    from training.local.config import read_config
    from training.local.training_run import train as train_by

    def tell(line: str) -> None:
        click.echo(line, err=True)

    trained = asyncio.run(train_by(read_config(path), method, tell, load_settings().weights_dir))
    click.echo(json.dumps(as_dict(trained)) if as_json else _told(trained))


def as_dict(trained: "Trained") -> dict[str, object]:
    """A finished training run as one JSON object."""
    return {
        "checkpoint": str(trained.checkpoint),
        "steps": list(trained.steps),
        "dropped": trained.dropped,
        "canary": trained.canary.as_dict(),
    }


def _told(trained: "Trained") -> str:
    canary = trained.canary
    lines = [
        f"{len(trained.steps)} steps done",
        *(f"{count} rows left out: {reason}" for reason, count in trained.dropped.items()),
        f"canary row: sampler and trainer differ by {canary.mean:.4f} nats a token "
        f"(largest {canary.max:.4f}); the adapter moved them by {canary.moved:.4f}",
        f'answer with it: rubricem ask --model {trained.checkpoint} "..."',
    ]
    return "\n".join(lines)
