"""What each judge has a server write that holds to a schema: reasons before what rests on them.

The server is llama.cpp's own with random weights: what it writes is chance, its form is not. The
pairwise judge is held to no schema: it ends its text with the verdict.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from rubricem.agent.models.opening import ServerChoice
from rubricem.agent.reports.verifier import GivenClaimVerdict
from rubricem.judge.checklist import GivenMark, MadeChecklist
from rubricem.judge.reflection import GivenReviews
from rubricem.judge.relative import GivenScores
from rubricem.judge.stage_readers import GivenVerdict, Proposal
from rubricem.memory.asking import Verdicts, unbounded_schema
from rubricem.memory.schema import Message, Sampling


@pytest.fixture(scope="module")
def llama(tiny: Path) -> Iterator[str]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.port = str(tiny), 2048, 0
    params.verbosity, params.warmup = -1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"


@pytest.mark.parametrize(
    ("form", "reason", "verdict"),
    [
        (Verdicts[GivenVerdict], "justification", "points"),
        (GivenScores, "explanation", "score"),
        (Verdicts[GivenMark], "explanation", "criteria_met"),
        (GivenReviews, "justification", "diagnostic_accuracy"),
        (Verdicts[GivenClaimVerdict], "reason", "verdict"),
        (Proposal, "description", "weight"),
        (MadeChecklist, "criterion", "points"),
    ],
)
async def test_a_server_that_holds_to_a_schema_writes_the_reason_first(
    llama: str, form: type[BaseModel], reason: str, verdict: str
):
    async with ServerChoice("tiny", llama).open_chat() as chat:
        for seed in range(40):
            sampling = Sampling(400, 1.0, seed=seed, json_schema=unbounded_schema(form))
            text = (await chat.chat([Message("user", "?")], sampling)).text
            if verdict in (keys := re.findall(r'"(\w+)"\s*:', text)):
                assert keys.index(reason) < keys.index(verdict), text
                return
    pytest.fail("chance wrote no verdict")
