"""What may be claimed of a source: words, and names and numbers whole."""

from rubricem.agent.research.words import adds, claim_grammar, holds, touches
from rubricem.memory.schema import Source


def source(text: str) -> Source:
    return Source(id="S1", title="m.f", location="m.py", text=text, tool="python", query="q")


def test_a_number_must_stand_whole_in_the_source():
    passage = source("It returns 128 items at most.")
    assert holds(passage, "It returns 128 items.")
    assert not holds(passage, "It returns 12 items.")


def test_a_name_must_stand_whole_in_the_source():
    passage = source("Use my_cache_all for the cache.")
    assert holds(passage, "Use my_cache_all for the cache.")
    assert not holds(passage, "Use cache_a for the cache.")


def test_half_of_the_words_must_be_the_sources():
    passage = source("The cache can grow without bound.")
    assert holds(passage, "The cache grows.")
    assert not holds(passage, "Zebras gallop across grassland.")


def test_a_claim_without_a_new_word_adds_nothing():
    assert adds("It is sorted.", [])
    assert not adds("the cache is growing", ["The cache can grow."])


def test_a_claim_about_something_else_does_not_touch_the_question():
    assert touches("The cache grows.", "How does the cache grow?")
    assert not touches("ttl is a time.", "How does the cache grow?")


def test_the_end_is_offered_only_when_something_was_said():
    assert "</answer>" in claim_grammar(["S1"], may_end=True)
    assert "</answer>" not in claim_grammar(["S1"], may_end=False)


def test_the_words_a_claim_opens_with_are_quoted_for_the_grammar():
    grammar = claim_grammar(["S1"], 'What "x" is: ', may_end=False)
    assert r'id "\">What \"x\" is: " [^<\n]+' in grammar
