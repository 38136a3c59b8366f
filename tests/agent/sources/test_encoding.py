# ruff: noqa: E501, RUF001
"""Texts in the encodings that are met, short and long: read as they were written, or refused."""

from collections.abc import Iterator

import pytest

from rubricem.agent.sources.readers.encoding import decode, encoding_of
from rubricem.memory.errors import SourceError

WRITTEN = {
    "Chinese": (
        "gbk gb18030 utf-16 utf-16-le utf-16-be utf-32",
        "水泵在春天停了下来，因为密封圈已经老化，漏掉了四十二升油。修好以后，机器一直运行到冬天。",
    ),
    "traditional Chinese": (
        "big5 utf-16 utf-16-le",
        "水泵在春天停了下來，因為密封圈已經老化，漏掉了四十二公升油。修好以後，機器一直運轉到冬天。",
    ),
    "Japanese": (
        "shift_jis euc_jp iso2022_jp utf-16",
        "ポンプは五月に止まった。シールが劣化し、42リットルの油が漏れたためである。修理の後は冬まで動いた。",
    ),
    "Korean": (
        "euc_kr cp949 utf-16",
        "펌프는 오월에 멈추었다. 씰이 낡아서 42리터의 기름이 새었기 때문이다. 수리한 뒤에는 겨울까지 움직였다.",
    ),
    "Russian": (
        "cp1251 koi8_r iso8859_5 cp866 utf-16-le",
        "Насос остановился весной: износ уплотнения, вытекло 42 литра масла. После ремонта он работал.",
    ),
    "Ukrainian": (
        "cp1251 koi8_u",
        "Насос зупинився навесні: зношене ущільнення, витекло 42 літри оливи. Після ремонту він працює.",
    ),
    "Polish": (
        "cp1250 iso8859_2",
        "Pompa stanęła wiosną: zużyła się uszczelka i wyciekły 42 litry oleju. Później działała dłużej.",
    ),
    "Czech": (
        "cp1250 iso8859_2",
        "Čerpadlo se zjara zastavilo: opotřebené těsnění, vyteklo 42 litrů oleje. Pak běželo až do zimy.",
    ),
    "Hungarian": (
        "cp1250 iso8859_2",
        "Tavasszal megállt a szivattyú: elkopott a tömítés, és 42 liter olaj folyt ki belőle egy éjjel.",
    ),
    "French": (
        "cp1252 mac_roman latin-1",
        "La pompe s'est arrêtée au printemps : joint usé, débit trop faible, 42 litres d'huile perdus là.",
    ),
    "German": (
        "cp1252 mac_roman cp850 latin-1",
        "Im Frühjahr blieb die Pumpe stehen: Die Dichtung war zerstört, 42 Liter Öl flossen über Straßen.",
    ),
    "Spanish": (
        "cp1252 latin-1",
        "La bomba se paró en mayo: la junta se gastó y se perdió más aceite; ¿qué pasó después del año?",
    ),
    "Portuguese": (
        "cp1252 latin-1",
        "A bomba parou em março: a vedação não estava boa e perderam-se 42 litros de óleo até à reparação.",
    ),
    "Swedish": (
        "cp1252 mac_roman",
        "Pumpen stannade på våren: tätningen var utsliten och 42 liter olja gick förlorade före påsk.",
    ),
    "Turkish": (
        "cp1254 iso8859_9",
        "Pompa ilkbaharda durdu: conta aşınmış ve 42 litre yağ akmıştı. Onarımdan sonra kışa dek çalıştı.",
    ),
    "Greek": (
        "cp1253 iso8859_7",
        "Η αντλία σταμάτησε την άνοιξη: το παρέμβυσμα είχε φθαρεί και χάθηκαν 42 λίτρα λάδι.",
    ),
    "Hebrew": ("cp1255", "המשאבה נעצרה באביב: האטם נשחק ואבדו 42 ליטר שמן. לאחר התיקון היא פעלה עד החורף."),
    "Arabic": ("cp1256", "توقفت المضخة في الربيع: تلفت الحشية وفقد 42 لترا من الزيت. بعد الإصلاح عملت مرة أخرى."),
    "English": (
        "cp1252 utf-16 utf-16-le utf-16-be utf-32-le utf-32-be utf-8-sig",
        "The pump’s “seal” had worn out – 42 litres of oil were lost. It has been running since spring.",
    ),
}  # fmt: skip


def pairs() -> Iterator[tuple[str, str, int, str]]:
    for language, (encodings, text) in WRITTEN.items():
        for encoding in encodings.split():
            for repeated in (1, 10):
                yield language, encoding, repeated, "\n".join([text] * repeated) + "\n"


def read(content: bytes) -> str | None:
    try:
        return decode(content)[0]
    except SourceError:
        return None


def test_texts_of_many_languages_are_read_as_written_and_none_is_read_wrong() -> None:
    right, wrong, count = 0, [], 0
    for language, encoding, repeated, text in pairs():
        told = read(text.encode(encoding))
        count += 1
        right += told == text
        if told not in (text, None):
            wrong.append((language, encoding, repeated, told[:60]))
    assert wrong == []
    assert count > 100
    assert right / count >= 0.97


def test_short_pieces_of_the_texts_are_seldom_read_wrong() -> None:
    right = wrong = count = 0
    for _, encoding, repeated, text in pairs():
        if repeated > 1 or encoding.startswith(("utf", "iso2022")):
            continue
        words = text.split(" ")
        pieces = [" ".join(words[at : at + 6]) for at in (0, 3)] if len(words) > 8 else [text[:20]]
        for piece in pieces:
            if not piece.isascii():
                told = read(piece.encode(encoding))
                count += 1
                right += told == piece
                wrong += told not in (piece, None)
    assert count >= 60
    assert right / count >= 0.9
    assert wrong / count <= 0.02


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("café", "café"),
        ("Müller", "Müller"),
        ("42 °C", "42 °C"),
        ("5\xa0km", "5\xa0km"),
        ("42 µm wide", "42 µm wide"),
        ("© 2023", "© 2023"),
        ("price 5 €", "price 5 €"),
        ("Die Königin schlüpft früh.", "Die Königin schlüpft früh."),
        ("Name;Ort\nMüller;Köln\nJosé;Málaga\n", "Name;Ort\nMüller;Köln\nJosé;Málaga\n"),
    ],
)
def test_a_few_western_characters_are_windows_1252(text: str, said: str) -> None:
    told, note = decode(text.encode("cp1252"))
    assert told == said
    assert note.startswith("not UTF-8")


@pytest.mark.parametrize(
    ("text", "encoding", "declared"),
    [
        ('<?xml version="1.0" encoding="windows-1250"?><a>zużyła</a>', "cp1250", ""),
        ("<html><meta charset=shift_jis><p>シール", "shift_jis", ""),
        ('<meta http-equiv="Content-Type" content="text/html; charset=gb2312">试验', "gbk", ""),
        ("<meta charset=hz-gb-2312><p>水泵停了", "hz", ""),
        ("Größe 42 £", "utf-7", "text/plain; charset=utf-7"),
        ("펌프는 오월에 멈추었다.", "iso2022_kr", ""),
        ("zużyła się", "cp1250", "text/html; charset=windows-1250"),
        ("zużyła się", "iso8859_2", "iso-8859-2"),
        ('# -*- coding: koi8-r -*-\nname = "Насос"', "koi8_r", ""),
        ("\\documentclass{article}\n\\usepackage[latin2]{inputenc}\nzużyła", "iso8859_2", ""),
    ],
)
def test_what_is_declared_is_taken_without_a_note(text: str, encoding: str, declared: str) -> None:
    assert decode(text.encode(encoding), declared) == (text, "")


@pytest.mark.parametrize(
    ("text", "encoding", "declared"),
    [
        ("<meta charset=iso-8859-1><p>密封圈老化了，设备因此停机。", "gbk", ""),
        ("<meta charset=shift_jis><p>密封圈老化了，设备因此停机。", "utf-8", ""),
        ('<meta charset="utf-16"><p>grün', "utf-8", ""),
        ("Насос остановился весной, износ уплотнения", "koi8_r", "text/plain; charset=utf-8"),
        ("シールが劣化し、油が漏れた。", "shift_jis", "text/plain; charset=euc-jp"),
        ("Die Königin schlüpft früh.", "cp1252", "charset=nonsense-77"),
    ],
)
def test_a_wrong_declaration_is_passed_over(text: str, encoding: str, declared: str) -> None:
    assert decode(text.encode(encoding), declared)[0] == text


def test_lines_of_another_encoding_among_utf8_are_read_and_told() -> None:
    lines = ["Grün ist schön.", "日本語の文です。"] * 10
    content = "\n".join(lines).encode() + "\nGröße über alles\n".encode("cp1252")
    text, note = decode(content)
    assert text.splitlines() == [*lines, "Größe über alles"]
    assert note.startswith("in mixed encodings: 1 of its 21 lines")


@pytest.mark.parametrize(
    "content",
    [
        ("日本語の文章です。\n" * 5).encode("cp932")
        + ("日本語の文章です。\n" * 5).encode("euc_jp"),
        ("Насос остановился, износ уплотнения.\n" * 3).encode("cp1251")
        + ("Насос остановился, износ уплотнения.\n" * 3).encode("koi8_r"),
        bytes(range(256)) * 4,
        b"\x89PNG\r\n\x1a\n" + bytes(range(200)) * 9,
        b"\xff\xfe" + bytes([0, 0xD8]) * 40,
    ],
    ids=["two Japanese", "two Russian", "all bytes", "picture", "UTF-16 of halves"],
)
def test_what_cannot_be_decided_is_refused(content: bytes) -> None:
    with pytest.raises(SourceError) as refused:
        decode(content)
    assert refused.value.remedy


@pytest.mark.parametrize("text", ["日本語の文章", "насос остановился весной " * 9])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_text_without_a_mark_and_with_few_zeros_is_recognised(
    encoding: str, text: str
) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_the_end_of_a_file_that_was_cut_is_no_other_encoding() -> None:
    assert decode("日本語の文".encode()[:-1]) == ("日本語の", "")
    assert encoding_of("日本語の文".encode()[:-1]) == "utf-8"


def test_one_broken_line_of_many_is_left_out_and_told() -> None:
    lines = [f"第{n}行：密封圈老化了，设备停机。".encode("gbk") for n in range(100)]
    lines[50] = lines[50][:-1] + b"\xff"
    text, note = decode(b"\n".join(lines))
    assert len(text.splitlines()) == 99
    assert "1 of its 100 lines" in note


def test_the_beginning_of_a_file_tells_the_encoding_of_all() -> None:
    assert encoding_of(b"a;b\nplain\n") == "utf-8"
    assert encoding_of("Größe;Länge;Höhe\nKöln;Düsseldorf;Füße\n".encode("cp1252")) == "cp1252"
    assert encoding_of("a\tb\n1\t2\n".encode("utf-16")) == "utf-16"
    assert encoding_of("试验,流量\n三,十二\n密封圈老化,设备停机\n".encode("gbk")) == "gb18030"
