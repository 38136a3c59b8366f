"""Words, sentences and lengths in the languages that people write."""

import pytest

from rubricem.memory.language import (
    beginning,
    language_of,
    length,
    sentences,
    words_in,
)


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("Wie hoch ist der Berliner Fernsehturm?", "de"),
        ("Wer ist der Autor von The Lord of the Rings?", "de"),
        ("Qui a peint la Joconde ?", "fr"),
        ("¿Cuándo murió Cervantes?", "es"),
        ("Chi ha costruito il ponte?", "it"),
        ("Quem construiu a ponte?", "pt"),
        ("Hoe hoog is de toren?", "nl"),
        ("Когда построили мост?", "ru"),
        ("متى تأسست القاهرة؟", "ar"),
        ("长城始建于什么时候？", "zh"),
        ("functools.lru_cache是做什么用的？", "zh"),
        ("東京タワーの高さは何メートルですか", "ja"),
        ("서울은 언제 수도가 되었습니까?", "ko"),
        ("Who directed La Vie en Rose?", "en"),
        ("What does 北京 mean?", "en"),
        ("La Belle et la Bête", ""),
        ("Baroness van der Berg", ""),
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
        ("los años en que fueron construidas", "el año que está construido", "es"),
        ("что построили башни", "эта башня была построена", "ru"),
        ("في المدينة والقاهرة", "من القاهرة إلى مدينة", "ar"),
        ("مُدُن", "مدن", ""),
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
        ("Le pont est fermé, il ne tient pas", {"pont", "not", "ferm", "tient"}),
        ("长城始建于1889年", {"长城", "城始", "始建", "建于", "1889", "年"}),
        ("タワーの高さ", {"タワ", "ワー", "高"}),
        ("هذا ليس ٢٠١٤", {"not", "2014"}),
        ("漢字使用lru_cache函数", {"漢字", "字使", "使用", "lru", "cach", "函数"}),
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
        ("M. Dupont est né en 1900. Il est mort.", 2),
        ("It holds 3. Then it ends, e.g. here.", 2),
    ],
)
def test_sentences_end_where_their_language_ends_them(text: str, count: int):
    found = list(sentences(text))
    assert len(found) == count, found
    assert "".join(found).replace(" ", "") == text.replace(" ", "")


def test_scripts_without_spaces_have_a_length_and_a_beginning():
    assert [length(t) for t in ("two words", "长城在北京", "用 lru 缓存")] == [2, 3, 3]
    assert beginning("长城在北京的北边", 2) == "长城在北"
    assert beginning("one two  three", 2) == "one two"
