"""What a training needs besides its weights to go on as if it had not stopped.

The optimizer's moments are written whole, so that a run may go on with other ranks than it had.
"""

from typing import Any

import torch
from torch import Tensor

from training.local.learner import Learner
from training.local.ranks import put, whole


def trainer_state(learner: Learner) -> dict[str, Any]:
    """The optimizer's state and the random generators', in the processor's memory."""
    optimizer, keep = learner.optimizer.state_dict(), learner.ranks.first
    moments = {
        number: {name: whole(value, keep) for name, value in state.items()}
        for number, state in optimizer["state"].items()
    }
    random = {"cpu": torch.get_rng_state()}
    if learner.ranks.device.type == "cuda":
        random["cuda"] = torch.cuda.get_rng_state(learner.ranks.device)
    return {"optimizer": {**optimizer, "state": moments}, "random": random}


def restore_trainer(learner: Learner, state: dict[str, Any]) -> None:
    """Take over what `trainer_state` gave, on these ranks."""
    optimizer, parameters = state["optimizer"], learner.weights.parameters()
    moments = {
        number: {name: _like(parameters[number], value) for name, value in held.items()}
        for number, held in optimizer["state"].items()
    }
    learner.optimizer.load_state_dict({**optimizer, "state": moments})
    torch.set_rng_state(state["random"]["cpu"])
    if learner.ranks.device.type == "cuda" and "cuda" in state["random"]:
        torch.cuda.set_rng_state(state["random"]["cuda"], learner.ranks.device)


def _like(parameter: Tensor, value: Tensor) -> Tensor:
    """A moment, divided as its parameter is; the number of steps is a scalar and stays."""
    if value.shape != parameter.shape:
        return value
    moment = torch.zeros_like(parameter)
    put(moment, value)
    return moment
