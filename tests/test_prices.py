import pytest

from agent.servers.prices import Price, Prices, cost
from memory.schema import Usage

USAGE = Usage(prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=200_000, calls=1)


def test_cached_tokens_cost_their_own_price() -> None:
    # 0.6 million at 2, 0.4 million at 0.5, 0.2 million at 8
    assert cost(USAGE, Price(2.0, 0.5, 8.0)) == pytest.approx(1.2 + 0.2 + 1.6)


def test_no_price_is_no_cost_rather_than_zero() -> None:
    assert cost(USAGE, None) is None


def test_a_published_price_holds_at_its_own_host_alone() -> None:
    assert Prices().of("gpt-4.1", "api.openai.com") == Price(2.0, 0.5, 8.0)
    assert Prices().of("gpt-4.1", "localhost:8080") is None


def test_a_dated_model_costs_what_the_undated_does() -> None:
    prices = Prices()
    dated = prices.of("gpt-4o-mini-2024-07-18", "api.openai.com")
    assert dated == prices.of("gpt-4o-mini", "api.openai.com") == Price(0.15, 0.075, 0.6)


def test_an_unknown_model_has_no_price() -> None:
    assert Prices().of("gpt-unheard-of", "api.openai.com") is None


def test_the_users_price_goes_first_and_holds_everywhere() -> None:
    prices = Prices({"gpt-4.1": (1.0, 1.0, 1.0), "my-model": (0.0, 0.0, 0.0)})
    assert prices.of("gpt-4.1", "api.openai.com") == Price(1.0, 1.0, 1.0)
    assert prices.of("gpt-4.1-mini", "api.openai.com") == Price(0.4, 0.1, 1.6)
    free = prices.of("my-model", "localhost:8080")
    assert free == Price(0.0, 0.0, 0.0)
    assert cost(USAGE, free) == 0.0
