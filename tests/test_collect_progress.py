import time

from agent.events import SourceProgress
from memory.schema import Usage
from training.meter import Meter
from training.opening import preparing
from training.progress import Progress


def begun(seconds_ago: float, rollouts: int, done: int, meter: Meter) -> Progress:
    return Progress(rollouts, done, meter, _began=time.monotonic() - seconds_ago)


def test_rates_are_of_this_process_and_counts_of_the_whole_run():
    meter = Meter()
    meter.hear({"usage": {"calls": 4, "completion_tokens": 9000, "cost": 1.0}})
    progress = begun(120, rollouts=100, done=40, meter=meter)
    for _ in range(6):
        progress.ended()
        meter.count(Usage(calls=1, completion_tokens=100, cost=0.04))
    assert progress.line() == (
        "46 of 100 rollouts, 3.0 a minute, 5 tokens/s, 1.24 US dollars so far, about 18 min left"
    )


def test_rollouts_that_have_all_ended_leave_no_time_to_be_told():
    progress = begun(60, rollouts=2, done=1, meter=Meter())
    progress.ended()
    assert progress.line().endswith("0 tokens/s, the last are being judged")


def test_long_waits_are_told_in_hours_and_no_rate_gives_none():
    progress = begun(60, rollouts=500, done=0, meter=Meter())
    assert progress.line() == "0 of 500 rollouts, 0.0 a minute, 0 tokens/s"
    progress.ended()
    assert progress.line().endswith("about 8 h 19 min left")


def test_long_preparations_are_told_once_and_then_each_minute():
    told: list[str] = []
    now = iter([0.0, 1.0, 59.0, 60.0, 61.0, 121.0, 122.0])
    listen = preparing(told.append, lambda: next(now))
    for message in ("embedding 1 of 90", "embedding 2 of 90", "embedding 40 of 90",
                    "embedding 41 of 90", "reading documents", "embedding 80 of 90",
                    "embedding 81 of 90"):  # fmt: skip
        listen(SourceProgress(message))
    assert told == ["embedding", "embedding 41 of 90", "reading documents", "embedding 80 of 90"]


def test_replies_without_usage_and_models_without_a_price_cost_nothing():
    meter = Meter()
    meter.hear({"passages": []})
    meter.hear({"usage": {"calls": 2, "completion_tokens": 7, "cost": None}})
    assert (meter.calls, meter.written, meter.cost, meter.priced) == (2, 7, 0.0, 0)
