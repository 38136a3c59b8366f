"""Words, sentences and lengths in the languages that people write."""

import pytest

from rubricem.memory.language import (
    compared,
    hyphenless,
    language_of,
    plain_letters,
    sentences,
    words_in,
)


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie hoch ist der Berliner Fernsehturm?", "de"),
        ("Qui a peint la Joconde ?", "fr"),
        ("¿Cuándo murió Cervantes?", "es"),
        ("Когда построили мост?", "ru"),
        ("متى تأسست القاهرة؟", "ar"),
        ("长城始建于什么时候？", "zh"),
        ("東京タワーの高さは何メートルですか", "ja"),
        ("서울은 언제 수도가 되었습니까?", "ko"),
        ("Who directed La Vie en Rose?", "en"),
        ("What does 北京 mean?", "en"),
        ("La Belle et la Bête", ""),
        ("git reset --soft", ""),
    ],
)
def test_a_language_is_told_by_script_and_by_the_words_that_bind(question: str, language: str):
    assert language_of(question) == language


@pytest.mark.parametrize(
    ("one", "other", "language"),
    [
        ("die höchsten Brücken", "der Brücke, hoch und höchste", "de"),
        ("les chevaux de l'église construite", "un cheval, des églises construites", "fr"),
        ("что построили башни", "эта башня была построена", "ru"),
        ("في المدينة والقاهرة", "من القاهرة إلى مدينة", "ar"),
        ("长城的", "长城是", "zh"),
        ("東京の", "東京では", "ja"),
    ],
)
def test_forms_of_a_word_meet(one: str, other: str, language: str):
    assert words_in(one, language) and words_in(one, language) <= words_in(other, language)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The caches weren't evicted in 1,024 tries", {"cach", "not", "evict", "1024", "try"}),
        ("Die Brücke ist nicht gesperrt", {"bruck", "not", "gesperrt"}),
        ("长城始建于1889年", {"长城", "城始", "始建", "建于", "1889", "年"}),
        ("タワーの高さ", {"タワ", "ワー", "高"}),
        ("هذا ليس ٢٠١٤", {"not", "2014"}),
    ],
)
def test_what_a_text_is_about_is_read_in_its_language(text: str, words: set[str]):
    assert words_in(text) == words


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Es begann am 3. Oktober 1990 in Bonn. Danach war z. B. der Umzug.", 2),
        ("Он родился в 1889 г. в Москве. Потом А. С. Пушкин жил там.", 2),
        ("它很长。「它很高。」它在北京！", 3),
        ("أين هو؟ إنه هنا. نعم.", 3),
        ("It holds 3. Then it ends, e.g. here.", 2),
    ],
)
def test_sentences_end_where_their_language_ends_them(text: str, count: int):
    found = list(sentences(text))
    assert len(found) == count, found
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_a_row_of_a_table_stands_for_itself():
    rows = ["part: rotor | hours: 900", "part: seal | hours: 41 | site: Kiel"]
    assert list(sentences("\n".join(["What lasted how long.", *rows]))) == [
        "What lasted how long.", *rows,
    ]  # fmt: skip
    assert list(sentences("It ran, as was\nsaid before")) == ["It ran, as was\nsaid before"]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("eﬃciency of the oﬃce", "efficiency of the office"),
        ("ＡＢＣ－７ ４２％", "ABC-7 42%"),
        ("ｶﾀｶﾅ", "カタカナ"),
        ("10⁵ Pa, 10⁻³ m, 42² l", "10^5 Pa, 10^−3 m, 42^2 l"),
        ("2½ hours", "2 1/2 hours"),
        ("H₂O", "H2O"),
        ("Rotor™ of 5 ㎏", "Rotor TM of 5 kg"),
        ("sub\u00admer\u00adsible im\u00adpeller", "submersible impeller"),
        ("well\u2011known", "well-known"),
        ("Du\u0308se", "Düse"),
        ("plain", "plain"),
    ],
)
def test_letters_are_plain_however_they_are_drawn_and_no_sign_is_glued(written: str, plain: str):
    assert plain_letters(written) == plain == plain_letters(plain)


def test_a_number_with_a_raised_sign_is_no_longer_number():
    assert words_in("42¹ litres") == {"42", "1", "litr"}
    assert words_in("10⁵") == words_in("10^5") != words_in("105")


def test_words_broken_at_the_end_of_a_line_have_both_forms():
    broken = "the investi-\n  gation of a well-\nknown seal in the North-\nRhine works"
    assert compared(broken) == ("the investigation of a wellknown seal in the North-\nRhine works")
    assert words_in("investigation") | words_in("well-known seal") <= words_in(broken)
    assert hyphenless(broken) == ["investigation", "wellknown"]
    assert hyphenless("A well-known, Self-Contained P-101 - a pump, and 3-4 more") == [
        "wellknown",
        "selfcontained",
    ]


def test_the_language_of_half_wide_letters_is_that_of_wide_ones():
    assert language_of("ｼｰﾙﾉﾚｯｶ") == "ja"
