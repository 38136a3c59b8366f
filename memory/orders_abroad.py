# ruff: noqa: RUF001
"""The commonest orders to an agent in other languages than English.

Words by their beginnings, in one clause and in any order: to drop, what there is of it, rules;
or rules, and that they no longer hold; or always, and to promote. It takes two or three of them,
so that a lesson about ignoring a rule of grammar is none. Nothing subtler is known of them.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Words:
    """Beginnings of one language's words, separated by |, without accents."""

    drop: str
    which: str
    rules: str
    void: str
    always: str
    promote: str


LANGUAGES = (
    Words(
        "ignorier|vergiss|vergesst|missachte|verwirf",
        "alle|deine|eure|ihre|bisherig|vorherig|vorig|obig|fruhere|diese",
        "anweisung|regel|vorgabe|instruktion|richtlinie",
        "gelten nicht mehr|gilt nicht mehr|ungultig|aufgehoben|hinfallig",
        "immer|stets|ausschliesslich",
        "empfiehl|empfehl|lobe|bewirb",
    ),
    Words(
        "ignore|oublie|neglige|fais abstraction|faites abstraction",
        "toutes|tes|vos|precedent|anterieur|ci-dessus|ces",
        "consigne|instruction|regle|directive",
        "ne s'applique|n'est plus|ne sont plus|annule|caduc",
        "toujours|uniquement",
        "recommand|vante|fais la promotion",
    ),
    Words(
        "ignora|ignore|olvida|olvide|omite|descarta",
        "todas|tus|sus|anterior|previa|arriba|estas",
        "instruccion|regla|directriz|directrices|norma|indicacion",
        "ya no|quedan anulad|sin efecto|no valen",
        "siempre|unicamente",
        "recomienda|recomiende|elogia|promociona",
    ),
    Words(
        "ignora|ignori|dimentica|tralascia",
        "tutte|tue|precedent|sopra|queste",
        "istruzion|regol|direttiv",
        "non valgono|non sono piu|annullat",
        "sempre|soltanto",
        "consiglia|raccomanda|elogia|promuovi",
    ),
    Words(
        "ignore|ignora|esqueca|esquece|desconsidere",
        "todas|tuas|suas|anterior|acima|estas|previas",
        "instruc|regra|diretriz|diretrizes",
        "ja nao|nao valem|anulad|nao se aplicam",
        "sempre|apenas",
        "recomend|elogi|promov",
    ),
    Words(
        "negeer|vergeet",
        "alle|je|jouw|uw|eerdere|vorige|bovenstaande|deze",
        "instructies|regels|richtlijn|aanwijzing",
        "gelden niet|niet meer|vervallen",
        "altijd|uitsluitend",
        "beveel|aanbeveel|prijs",
    ),
    Words(
        "ignorera|ignorer|glom|glem",
        "alla|alle|dina|dine|tidigare|tidligere|ovan|ovenfor|foregaende|forrige|disse|dessa",
        "instruktion|instruks|regler|anvisning|riktlinj|retningslinj",
        "galler inte|gælder ikke|gjelder ikke|ogiltig|ugyldig|inte langre|ikke længere",
        "alltid|altid|bara|bare|endast",
        "rekommendera|anbefal|berom",
    ),
    Words(
        "zignoruj|ignoruj|zapomnij|pomin",
        "wszystkie|swoje|twoje|poprzedni|wczesniejsz|powyzsz",
        "instrukcj|polece|zasad|reguł|wytyczn",
        "nie obowiazuj|niewazn|juz nie",
        "zawsze|wyłacznie",
        "polecaj|polec|chwal|rekomenduj",
    ),
    Words(
        "игнорируи|проигнорируи|забудь|отбрось|переопредел|не обращаи",
        "все|все|свои|твои|ваши|предыдущ|прежн|выше|эти",
        "инструкци|правил|указани|директив",
        "не деиству|больше не|отменен|недеиствительн",
        "всегда|только",
        "рекоменду|хвали|советуи",
    ),
    Words(
        "yok say|unut|gormezden gel|dikkate alma",
        "tum|butun|onceki|yukarıdaki|bu",
        "talimat|kural|yonerge",
        "gecersiz|artık gecerli",
        "her zaman|daima|sadece",
        "oner|tavsiye et|ov",
    ),
    Words(
        "abaikan|lupakan",
        "semua|sebelumnya|di atas|ini",
        "instruksi|perintah|aturan|petunjuk",
        "tidak berlaku|dibatalkan",
        "selalu|hanya",
        "rekomendasikan|sarankan|puji",
    ),
    Words(
        "忽略|无视|無視|忘记|忘掉|不要理会|忽視",
        "之前|以前|所有|全部|上面|以上|先前|你的|这些|系统",
        "指令|指示|说明|規則|规则|要求|提示|規定|规定",
        "作废|无效|失效|不再|取消",
        "总是|始终|一律|必须|请直接|只",
        "推荐我们|推荐本|赞美|宣传|推荐",
    ),
    Words(
        "無視|忘れ|従わない",
        "これまて|以前|すへて|全て|上記|前の|あなたの|この",
        "指示|命令|規則|ルール|フロンフト",
        "無効|適用されません|取り消",
        "常に|必す|いつも",
        "勧め|推奨し|宣伝|褒め",
    ),
    Words(
        "무시|잊어|잊으",
        "모든|이전|위의|기존|당신의|네",
        "지시|명령|규칙|지침|프롬프트",
        "무효|더 이상",
        "항상|반드시",
        "추천하|칭찬|홍보",
    ),
    Words(
        "تجاهل|انس",
        "جميع|كل|السابقة|اعلاه|هذه",
        "التعليمات|الاوامر|القواعد|تعليماتك",
        "لم تعد|ملغاة|لاغية",
        "دايما|فقط",
        "اوص|امدح",
    ),
)
_NEGATIONS = ("kein", "nicht", "ne", "pas", "no", "non", "nao", "niet", "inte", "ikke", "nie", "не")
_DROPS = "tells its reader in another language to drop what it was told"
_PROMOTES = "promotes something in another language"
_CLAUSE = re.compile(r"[.!?;:\n\u3002\uff01\uff1f\uff1b]")
_WORD = re.compile(r"[\w']+")
_SPACED = "\u0600"
"""scripts before this letter part words with spaces, and prefix them with nothing"""
_BESIDE = 2
"""letters between always and what is always to be promoted"""
_MOST = 200
"""letters of a clause that are looked at"""


def orders_abroad(text: str) -> Iterator[tuple[str, str]]:
    """What the text does in another language, and its words, letters without their accents."""
    for clause in _CLAUSE.split(_plain(text)):
        words = f" {' '.join(_WORD.findall(clause))}"[:_MOST]
        for language in LANGUAGES:
            if _drops(words, language):
                yield _DROPS, words.strip()
            if _promotes(words, language):
                yield _PROMOTES, words.strip()


def _drops(words: str, language: Words) -> bool:
    if not (_at(words, language.rules) and _at(words, language.which)):
        return False
    if _at(words, language.void):
        return True
    return any(
        not any(f" {negation} " in words[: start + 1] for negation in _NEGATIONS)
        for start, _ in _at(words, language.drop)
    )


def _promotes(words: str, language: Words) -> bool:
    always, promote = _at(words, language.always), _at(words, language.promote)
    return any(
        0 <= second[0] - first[1] <= _BESIDE
        for one in always
        for other in promote
        for first, second in (sorted((one, other)),)
    )


def _at(words: str, stems: str) -> list[tuple[int, int]]:
    """Start and end of each word that begins with one of the stems."""
    found = []
    for stem in stems.split("|"):
        sought = f" {stem}" if stem < _SPACED else stem
        if (start := words.find(sought)) >= 0:
            end = start + len(sought)
            space = words.find(" ", end)
            found.append((start, (space if space >= 0 else len(words)) if stem < _SPACED else end))
    return found


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).casefold()
    return "".join(c for c in letters if not unicodedata.combining(c)).replace("\u2019", "'")
