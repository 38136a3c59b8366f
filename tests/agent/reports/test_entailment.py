"""Classifiers as checkers: tiny random ones of each published form, from folders and from a hub."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem.agent.reports.entailment import EntailmentChecker, EntailmentChoice
from rubricem.agent.reports.rules import Pair
from rubricem.memory.errors import WeightsError
from tests.conftest import rubricem
from tests.support.sites import serving
from tests.support.tiny import as_repository
from tests.support.values import GROWS, claim_source

CLAIM = "The cache grows"
NLI = {0: "entailment", 1: "neutral", 2: "contradiction"}


def write_classifier(folder: Path, labels: dict[int, str] | int = 2, t5: bool = False) -> Path:
    """A classifier of random weights, which are the same at every call; words are its tokens."""
    import tokenizers
    import torch
    import transformers

    words = ["<pad>", "<s>", "</s>", "<unk>", "0", "1", *sorted(set(f"{GROWS} {CLAIM}".split()))]
    whole = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    whole.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=whole, model_max_length=80, **special
    ).save_pretrained(folder)
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": len(words), "pad_token_id": 0, "eos_token_id": 2}
    if t5:
        small = transformers.T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2,
                                      decoder_start_token_id=0, **size)  # fmt: skip
        transformers.T5ForConditionalGeneration(small).save_pretrained(folder)
        return folder
    named: dict[str, Any] = (
        {"num_labels": labels} if isinstance(labels, int) else {"id2label": labels}
    )
    roberta = transformers.RobertaConfig(hidden_size=16, num_hidden_layers=1, intermediate_size=16,
        num_attention_heads=2, max_position_embeddings=82, **size, **named)  # fmt: skip
    transformers.RobertaForSequenceClassification(roberta).save_pretrained(folder)
    return folder


def pair(text: str = GROWS) -> Pair:
    return Pair(CLAIM, claim_source(text).model_copy(update={"title": ""}))


def said(folder: Path, text: str = GROWS) -> float:
    return EntailmentChecker(folder, "tiny").probability(pair(text))


def logits(folder: Path, *given: str) -> Any:
    import torch
    import transformers

    model = transformers.RobertaForSequenceClassification.from_pretrained(folder).eval()
    read = transformers.AutoTokenizer.from_pretrained(folder)(*given, return_tensors="pt")
    with torch.inference_mode():
        return model(**read).logits[0]


def test_each_form_is_read_as_it_was_trained(tmp_path: Path):
    import torch

    joined = write_classifier(tmp_path / "joined")
    shares = torch.softmax(logits(joined, f"{GROWS}</s>{CLAIM}"), -1)
    assert said(joined) == pytest.approx(float(shares[1]))
    single = write_classifier(tmp_path / "single", 1)
    assert said(single) == pytest.approx(float(torch.sigmoid(logits(single, GROWS, CLAIM))[0]))
    named = write_classifier(tmp_path / "named", NLI)
    shares = torch.softmax(logits(named, GROWS, CLAIM), -1)
    assert said(named) == pytest.approx(float(shares[0]))
    assert 0.0 < said(write_classifier(tmp_path / "t5", t5=True)) < 1.0


def test_of_a_long_text_the_piece_that_supports_the_claim_best_counts(tmp_path: Path):
    checker = EntailmentChecker(write_classifier(tmp_path / "model"), "tiny")
    text = "\n\n".join(f"Otherwise it {'holds ' * n}{'cache ' * (30 - n)}calls." for n in range(9))
    pieces = list(checker.pieces(text, CLAIM))
    assert len(pieces) > 3 and " ".join(pieces) == " ".join(text.split())
    each = [checker.probability(pair(piece)) for piece in pieces]
    assert len(set(each)) > 1 and checker.probability(pair(text)) == max(each)


def test_a_sentence_longer_than_the_window_does_not_push_the_claim_out_of_it(tmp_path: Path):
    checker = EntailmentChecker(write_classifier(tmp_path / "model"), "tiny")
    table = " ".join(["holds", "cache"] * 60)
    pieces = list(checker.pieces(f"{table}.\n\n{GROWS}", CLAIM))
    assert len(pieces) > 1 and all(len(piece.split()) <= 80 - 3 - 8 for piece in pieces)
    other = Pair("holds holds", pair().source.model_copy(update={"text": table}))
    assert checker.probability(pair(table)) != checker.probability(other)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda config: config | {"auto_map": {"AutoModel": "own.Code"}}, "code of its own"),
        (lambda config: config | {"id2label": dict(enumerate("ABC"))}, "of A, B, C means"),
        (lambda config: config | {"num_hidden_layers": 2}, "it has no weights for"),
        (lambda config: config | {"model_type": "HHEMv2"}, "No checker can be read from"),
    ],
    ids=["foreign code", "labels that say nothing", "half of the weights", "an unknown kind"],
)
def test_what_is_no_classifier_is_refused_in_a_sentence(tmp_path: Path, change: Any, fault: str):
    config = write_classifier(tmp_path / "model", NLI) / "config.json"
    config.write_text(json.dumps(change(json.loads(config.read_text()))))
    with pytest.raises(WeightsError, match=fault) as refused:
        EntailmentChecker(config.parent, "tiny")
    assert "MiniCheck" in refused.value.remedy


async def test_a_classifier_of_the_hub_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files, listing = as_repository(write_classifier(tmp_path / "model"))
    choice = EntailmentChoice.from_name("org/tiny", tmp_path / "weights")
    assert choice
    with serving(monkeypatch) as site:
        site.files["/hub/api/models/org/tiny"] = listing
        site.files |= {f"/hub/org/tiny/resolve/abc/{name}": held for name, held in files.items()}
        async with choice.open() as checker:
            first = await checker.check([pair()])
    async with choice.open() as checker:
        assert await checker.check([pair()]) == first


def test_labelled_claims_are_checked_by_a_classifier_in_a_folder(tmp_path: Path):
    folder = write_classifier(tmp_path / "model")
    rows = [{"claim": CLAIM, "evidence": GROWS, "label": True},
            {"claim": "It holds", "evidence": GROWS, "label": False}]  # fmt: skip
    claims = tmp_path / "claims.jsonl"
    claims.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = rubricem("eval", "--claims", claims, "--checker", folder, "--json", "--out", tmp_path)
    assert json.loads(told.stdout)["claims"] == 2
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert all(0 < row["score"] < 1 for row in kept) and len(kept) == 2
