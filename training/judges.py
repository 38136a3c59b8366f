"""The judge of a collecting run, by the name that `--judge` gives it.

`stage` scores every stage, `relative-stages` holds a group's against one another stage by stage;
`relative`, `pairwise` and `checklist` score whole answers, whose score stands at the last stage.
`rubric:MODULE:NAME` is code of one's own: a `Rubric`, something that makes one, or a mapping from
stages to either. A rubric is given a stage's text as action and its `StageView` as observation; a
stage that a mapping leaves out is the stage judge's.
"""

import copy
import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from judge.building import JudgeModel, Kind, Wanted, group_judge, stage_judge
from judge.composed_judge import ComposedJudge, Compositions, GroupJudge
from judge.pairwise_forms import ChainForm
from judge.rubrics import Rubric
from memory.errors import SettingsError
from memory.schema import Stage

KINDS: tuple[Kind, ...] = get_args(Kind)
NONE = "none"
RUBRIC = "rubric:"
_FORM = "Name it as rubric:MODULE:NAME; MODULE is a file MODULE.py in the working directory."


def collecting_judge(
    name: str, model: JudgeModel, seed: int = 0, chain: ChainForm | None = None
) -> GroupJudge:
    """The judge of that name, one that `known_judge` knows, over an open model.

    `chain`: the form in which a local model was trained to compare pairs.
    """
    if name.startswith(RUBRIC):
        return ComposedJudge(stage_judge(model), compositions_of(name))
    kind = next(kind for kind in KINDS if kind == name)
    return group_judge(model, Wanted(kind, seed=seed, chain=chain))


def known_judge(name: str) -> str:
    """The name, with a hash of the code behind a rubric: a run goes on under the same alone.

    Raises SettingsError if there is no such judge, or its rubric is none.
    """
    if name.startswith(RUBRIC):
        compositions_of(name)
        file = _module(name).__file__
        code = Path(file).read_bytes() if file else b""
        return f"{name} {hashlib.sha256(code).hexdigest()[:8]}"
    if name not in (*KINDS, NONE):
        raise SettingsError(
            f"There is no judge {name!r}.",
            f"Use {', '.join(KINDS)}, rubric:MODULE:NAME or {NONE}.",
        )
    return name


def compositions_of(name: str) -> Compositions:
    """What `rubric:MODULE:NAME` names, as a new rubric for each stage of each run.

    Raises SettingsError where it cannot be imported or made, or is neither rubric nor mapping.
    """
    found = _found(name)
    made = _made(found, name) if _makes(found) else found
    if isinstance(made, Mapping):
        return {_stage(key, name): _factory(value, name) for key, value in made.items()}
    return dict.fromkeys(Stage, _factory(found, name))


def _found(name: str) -> Any:
    module, attribute = _module(name), name.rpartition(":")[2]
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise SettingsError(f"{module.__name__} has no {attribute!r}.", _FORM) from None


def _module(name: str) -> ModuleType:
    module, _, attribute = name.removeprefix(RUBRIC).partition(":")
    if not module or not attribute or ":" in attribute:
        raise SettingsError(f"{name!r} does not name a rubric.", _FORM)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except Exception as cause:  # somebody's own code may fail in any way while it is imported
        raise SettingsError(
            f"{module!r} cannot be imported: {type(cause).__name__}: {cause}.", _FORM
        ) from cause


def _makes(found: Any) -> bool:
    return callable(found) and not isinstance(found, Rubric)


def _made(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except Exception as cause:  # somebody's own code may fail in any way
        raise SettingsError(
            f"{name} gives no rubric: {type(cause).__name__}: {cause}.",
            "Name a function that makes one and takes no arguments.",
        ) from cause


def _factory(found: Any, name: str) -> Callable[[], Rubric]:
    """A maker is called for each stage, a rubric copied: rubrics keep state."""
    factory = found if _makes(found) else lambda: copy.deepcopy(found)
    made = _made(factory, name)
    if not isinstance(made, Rubric):
        raise SettingsError(
            f"{name} gives a {type(made).__name__}, which is no judge.rubrics.Rubric.",
            "Derive it from Rubric, or give a mapping from stages to such rubrics.",
        )
    return factory


def _stage(key: Any, name: str) -> Stage:
    try:
        return Stage(key)
    except ValueError:
        raise SettingsError(
            f"{name} names a stage {key!r}.", f"The stages are {', '.join(Stage)}."
        ) from None
