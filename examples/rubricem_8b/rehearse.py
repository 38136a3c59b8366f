"""Every script of this folder with tiny models on this machine.

    python examples/rubricem_8b/rehearse.py [--quick]

A scripted server samples, teaches, judges and is the search behind the cache. What needs GPUs is
not run: of the judge's server and of the launch of Ray the command line is looked at. Where
VERL_PYTHON names a Python with verl, its configuration has to know every key of that line, and a
step is made as far as verl goes without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]
GPU_KEYS = 15


@contextmanager
def served(*command: str) -> Iterator[str]:
    """A server in a process of its own; gives the first line that it prints."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def write_model(folder: Path) -> None:
    """A Qwen3 of random weights, with a tokenizer and a chat template."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.support.tiny import write_tokenizer

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"num_key_value_heads": 2, "intermediate_size": 48, "head_dim": 8, "vocab_size": 132}
    config = AutoConfig.for_model("qwen3", max_position_embeddings=32768, **sizes, **more)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    write_tokenizer(folder)


class Rehearsal:
    def __init__(self, work: Path, address: str, search: str) -> None:
        """`address`: of the scripted server, ends in /v1; `search`: of the cache."""
        self.work, self.failed = work, False
        own = {
            "MODEL": work / "Qwen3-tiny", "WORK": work, "HEAD": "127.0.0.1", "JUDGE": address,
            "TEACHER": address, "TEACHER_MODEL": "policy", "JUDGE_MODEL": "policy",
            "SEARCH": search, "POLICY": address, "POLICY_MODEL": "policy",
            "QUESTIONS": work / "questions.jsonl", "PYTHON": sys.executable, "RUN": "echo",
            "HELD_OUT": work / "questions.held_out.jsonl",
            "RUBRICEM": Path(sys.executable).with_name("rubricem"), "LIMIT": "2", "GROUP": "2",
            "MIN_RETURN": "0", "STEP": "2", "MIN_SUPPORT": "0", "RUBRICEM_CONCURRENCY": "2",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }  # fmt: skip
        self.environment = {**os.environ, **{name: str(value) for name, value in own.items()}}

    def step(self, name: str, how: str, work: Callable[[], str]) -> None:
        began = time.monotonic()
        try:
            told = work()
        except (AssertionError, subprocess.CalledProcessError) as error:
            self.failed, how = True, "FAILED"
            said = [getattr(error, name, "") or "" for name in ("stdout", "stderr")]
            told = "\n".join((str(error), *(part[-2000:] for part in said)))
        print(f"{name:14} {how:10} {time.monotonic() - began:6.1f} s  {told}", flush=True)

    def run(self, *command: object, **more: str) -> str:
        done = subprocess.run(
            [str(part) for part in command], env={**self.environment, **more}, cwd=self.work,
            capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
        return done.stdout

    def questions(self) -> str:
        rows = [
            {"query": f"Which rule is number {n}?",
             "rubrics": [{"title": "Rule", "description": "Names the rule.", "weight": 3}]}
            for n in range(6)
        ]  # fmt: skip
        (self.work / "dr_tulu.jsonl").write_text("\n".join(map(json.dumps, rows)))
        out = self.environment["QUESTIONS"]
        self.run(
            sys.executable,
            HERE / "questions.py",
            "dr-tulu",
            "dr_tulu.jsonl",
            out,
            "--held-out",
            2,
            "--step",
            2,
        )
        kept = [json.loads(line) for line in Path(out).read_text().splitlines()]
        assert len(kept) == 4 and kept[0]["criteria"][0]["points"] == 3, kept
        return "4 questions with their criteria, 2 held out"

    def teach(self) -> str:
        self.run("bash", HERE / "teach.sh")
        rows = (self.work / "sft.jsonl").read_text().splitlines()
        assert rows, "no trace was accepted"
        return f"{len(rows)} accepted traces, the best of each group"

    def imitate(self) -> str:
        tiny = ("parallel=ddp", "epochs=1", "batch=2", "dtype=float32",
                "gradient_checkpointing=false", "max_row_tokens=20000")  # fmt: skip
        plan = self.run("bash", HERE / "sft.sh", *tiny)
        assert "memory of each device" in plan and "torchrun --standalone" in plan, plan
        (self.work / "torchrun").write_text(
            "#!/bin/sh\nexport CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1\n"
            f'exec "{sys.executable}" -m torch.distributed.run "$@"\n'
        )
        (self.work / "torchrun").chmod(0o700)
        path = f"{self.work}{os.pathsep}{os.environ['PATH']}"
        self.run("bash", HERE / "sft.sh", *tiny, RUN="", SFT_GPUS="1", PATH=path)
        lines = (self.work / "sft" / "metrics.jsonl").read_text().splitlines()
        assert (self.work / "sft-model" / "model.safetensors").is_file()
        assert (self.work / "sft-model" / "tokenizer.json").is_file()
        return f"{len(lines)} steps by torchrun, a model of its own with its tokenizer"

    def judge(self) -> str:
        told = self.run("bash", HERE / "judge.sh")
        assert told.startswith("exec vllm serve") and "--served-model-name policy" in told, told
        return "the command line; vLLM's own flags are not checked"

    def rl(self) -> str:
        told = self.run("bash", HERE / "rl.sh")
        words = told.splitlines()[-1].split()
        assert words[:2] == ["exec", "bash"] and Path(words[2]).is_file(), told
        keys = [word for word in words[3:] if "=" in word]
        assert len(keys) >= GPU_KEYS and (self.work / "questions.parquet").is_file(), told
        return f"the questions as verl reads them, and a command line of {len(keys)} keys"

    def verl(self) -> str:
        tests, told = ROOT / "tests" / "training" / "verl", list[str]()
        for name in ("test_plugin.py", "test_worker.py"):  # apart: the second one starts a Ray
            done = self.run(
                os.environ["VERL_PYTHON"], "-m", "pytest", "-q", "-p", "no:unraisableexception",
                "--rootdir", ROOT, tests / name,
            )  # fmt: skip
            told += [line for line in done.splitlines() if "passed" in line or "skipped" in line]
        assert len(told) == 2 and not any("skipped" in line for line in told), told
        return f"every key, and a step without the engine: {'; '.join(told)}"

    def evaluate(self) -> str:
        rows = [
            {
                "question": "Which rule is number 1?",
                "rubric": [{"criterion": "names it", "points": 3}],
            }
        ]
        (self.work / "small.jsonl").write_text("\n".join(map(json.dumps, rows)))
        self.run("bash", HERE / "evaluate.sh", self.work / "small.jsonl", ARMS="stages")
        assert (self.work / "evaluation" / "small" / "evaluation.json").is_file()
        return "one question, graded by the judge"

    def cost(self) -> str:
        told = self.run(sys.executable, HERE / "cost.py", "steps=1")
        assert "searches" in told and "2,560" in told, told
        return "2,560 searches a step; all else is assumed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only what takes seconds")
    quick = parser.parse_args().quick
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rubricem-8b-")))
        model = [sys.executable, "-m", "benchmarks.rounds_server", "--delay", "0"]
        address = f"http://127.0.0.1:{stack.enter_context(served(*model))}"
        cache = [sys.executable, str(HERE / "search.py"), str(work / "cache.db"), "--port", "0"]
        search = stack.enter_context(served(*cache, "--upstream", address))
        write_model(work / "Qwen3-tiny")
        told = Rehearsal(work, f"{address}/v1", search)
        told.step("questions.py", "ran", told.questions)
        told.step("judge.sh", "checked", told.judge)
        told.step("rl.sh", "checked", told.rl)
        told.step("cost.py", "ran", told.cost)
        if not quick:
            told.step("teach.sh", "ran", told.teach)
            told.step("sft.sh", "ran", told.imitate)
            told.step("evaluate.sh", "ran", told.evaluate)

            def replay() -> str:
                with urllib.request.urlopen(f"{search}/healthz") as reply:
                    counted = json.load(reply)
                assert counted["misses"], counted
                with (
                    served(*cache, "--replay") as again,
                    urllib.request.urlopen(f"{again}/search?q=nobody+asked+this") as reply,
                ):
                    assert json.load(reply)["results"] == []
                asked = counted["hits"] + counted["misses"]
                return f"{counted['hits']} of {asked} searches from the cache"

            told.step("search.py", "ran", replay)
            if os.environ.get("VERL_PYTHON"):
                told.step("verl", "ran", told.verl)
            else:
                print("verl           not run: no VERL_PYTHON names a Python with verl 0.9.1")
        return int(told.failed)


if __name__ == "__main__":
    sys.exit(main())
