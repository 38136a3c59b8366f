"""Questions as a data set that verl reads.

python -m training.verl_engine.questions QUESTIONS OUT.parquet
"""

import sys
from pathlib import Path

from training.extra_packages import needed
from training.questions import question_of, read_rows

AGENT = "rubricem"
"""the agent loop's name in launch/agent_loop.yaml"""


def write_parquet(questions: Path, out: Path) -> int:
    """Write a file of questions for verl; returns how many there are."""
    pyarrow, parquet = needed("pyarrow"), needed("pyarrow.parquet")
    rows = [
        {
            "prompt": [{"role": "user", "content": question.question}],
            "data_source": AGENT,
            "agent_name": AGENT,
            "reward_model": {"style": "model", "ground_truth": ""},
            "extra_info": {"index": number},
        }
        for number, question in enumerate(map(question_of, read_rows(str(questions))))
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return len(rows)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    print(f"{write_parquet(source, target)} questions: {target}")
