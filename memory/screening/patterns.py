"""Words that speak to whoever judges a text, which is no part of the work that is judged.

The words that the rules against orders are put together from.

Patterns for text that `memory.screening.orders` has folded, and for matching in any case.
A clause ends at a full stop, a colon or a semicolon.

The commonest orders to an agent in other languages than English.

Words by their beginnings, in one clause and in any order: to drop, what there is of it, rules;
or rules, and that they no longer hold; or always, and to promote. It takes two or three of them,
so that a lesson about ignoring a rule of grammar is none. Nothing subtler is known of them.

What a note wants of answers that no good answer has: silence, blind trust, a name to sell.

Advice on how to answer is what the bank is for. What is flagged would make an answer worse for
its reader whatever the question was: evidence kept back or made up, checks left out, a settled
conclusion, somebody's name promoted, people misled, or an action that is no research.

What a note says to an agent about itself: its rules, role, secrets, judge and memory.

A lesson speaks of questions and of what answers them. It needs no word on the agent's own
prompt or machine, on its own rank, or on being kept; a text that has one was written to be obeyed.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PLEADING = (
    r"\b(?:dear|to the|note (?:to|for)(?: the)?|attention) (?:judge|grader|evaluator)s?\b"
    r"|\b(?:give|award|assign|deserves?|rate|score)\b[^.!?\n]{0,40}"
    r"\b(?:full|maximum|max|highest|top|all|\d+)\b[^.!?\n]{0,15}\b(?:points?|marks?|scores?)\b"
)
"""words to a judge or about one's own score, in lower case"""
_PLEADING = re.compile(
    rf"{PLEADING}|\b(?:ignore|disregard|forget)\b[^.!?\n]{{0,25}}"
    r"\b(?:instructions|criteria|rubrics?)\b"
)


def pleading(text: str) -> str:
    """The first words that speak to whoever judges, in lower case, or ""."""
    match = _PLEADING.search(text.casefold())
    return match.group(0) if match else ""


TO = r"[^.!?;:]"
"""what may stand between two words of one clause"""
START = (
    r"(?:^|[.!?:;,]\s+|[-\u2013\u2014\u2022]\s+"
    r"|\b(?:then|and|please|now|must|always|never|should|just|simply)\s+)"
)
BID = (
    r"(?:^|[.!?:;,]\s+|[-\u2013\u2014\u2022]\s+"
    r"|\b(?<!not )(?<!n't )(?<!never )(?:then|and|please|now|must|always|should|ought to|shall"
    r"|just|simply|wise to|fine to|okay to|ok to|acceptable to|free to|allowed to)\s+)"
)
"""what stands before a verb that tells its reader to do something, or lets him"""
NO_NOT = r"(?<!not )(?<!never )(?<!n't )(?<!avoid )"
MUST = r"\b(?:always|only|must|simply|just|will|shall)"
NOT = (
    r"\b(?:do not|don'?t|never|must not|should not|shall not|no need to|need not|avoid|stop"
    r"|refrain from)"
)
RULES = (
    r"\b(?:instructions?|prompts?|rules?|directions?|directives?|guidelines?|guidance|constraints?"
    r"|polic(?:y|ies)|restrictions?|orders|commands)\b"
)
PEOPLE = r"(?:the |any)?(?:user|person|human|one|body|reader)s?\b"
PUBLIC = (
    r"\b(?:the |all |our )?(?:users?|readers?|people|persons?|customers?|audience|visitors?"
    r"|public|them|anyone|anybody|everyone|everybody|whoever)\b"
)
AGENT = (
    r"\b(?:agents?|assistants?|(?:language )?models?|ai|llms?|(?:chat)?bots?|whoever|anyone"
    r"|anything|you)\b"
)
FACTS = (
    r"\b(?:question|evidence|sources?|documents?|facts|(?:search )?results?|users?|passages?"
    r"|content)\b"
)
CHECKING = (
    r"(?:verification|verifying|fact-?check\w*|(?:the )?check(?:s|ing)?|citations?|citing"
    r"|second sources|sources|references|review(?:ing)?|evidence)"
)
NAME = r"(?-i:[A-Z][a-z]\w*)"
DOCUMENTATION = (
    r"\b(?:documentation|docs|manual|reference|changelog|release notes|specification|standard"
    r"|source code|glossary|tutorial)\b"
)
LESSON = r"\b(?:notes?|lessons?|reflections?|memos?|advice)\b"
"""what a text in the bank may call itself"""
NOTE = rf"(?:{RULES}|\b(?:notes?|messages?|reflections?|text|block|paragraph|sentence|lesson)\b)"
CONDITION = r"\b(?:if|where|when|unless|until|once|only)\b"
HEDGE = r"\b(?:without|unless|before|until|only|if|where|when|that|which|outside|twice|alone)\b"
SECRETS = (
    r"(?:passwords?|passphrases?|credentials|secrets?(?: keys?)?|private keys?|api[ -]?keys?"
    r"|(?:access|session) tokens?)\b"
)
PRIVATE = r"(?:e-?mails?|address(?:es)?|phone numbers?|card numbers?|location|personal details)\b"
INSIDE = (
    r"(?:conversation|transcript|prompt|chat history|context|history|configuration|memory"
    r"|system message)\b"
)
"""what only the agent itself has"""


def any_of(*patterns: str) -> str:
    return "|".join(f"(?:{pattern})" for pattern in patterns)


# ruff: noqa: RUF001


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


_THINGS = (
    r"(?:page|source|quote|quotation|citation|reference|stud(?:y|ies)|figure|date|evidence|author"
    r"|statistic|number|name)"
)

ON_ANSWERS: Mapping[str, str] = {
    "wants something kept from people": any_of(
        rf"{NOT} (?:ever )?mention(?:ing)?\b(?! (?:every|all|each|both|more)\b)"
        rf"(?!{TO}{{0,80}}{HEDGE})",
        rf"{NOT} (?:ever )?(?:tell|inform|warn|alert|notify)(?:ing)? {PEOPLE}"
        rf"(?!{TO}{{0,80}}{HEDGE.replace('|that', '')})",
        rf"{NOT} (?:ever )?(?:reveal|disclose|admit|let {PEOPLE} know|say anything)(?:ing)?\b",
        rf"{NO_NOT}\b(?:leave|keep|drop|omit|suppress|downplay|play down|ignore|hide)\b{TO}{{0,20}}"
        r"\b(?:criticisms?|critics|negatives?|complaints?|lawsuits?|scandals?|side effects|risks"
        rf"|warnings?|competitors?|rivals?)\b(?! (?:that|which|short)\b)(?!{TO}{{0,30}}\bshort\b)",
        rf"{NO_NOT}\b(?:drop|omit|leave out|bury|hide|suppress|discard|dismiss|downplay|play down"
        rf"|ignore|skip|delete|soften|push down)\b{TO}{{0,40}}\b(?:(?:speaks?|argues?|is|are"
        r"|stands?"
        r"|testif\w+) against|critici[sz]\w+|adverse|unfavou?rable|unflattering|embarrass\w+"
        r"|inconvenient)\b",
        r"\b(?:keep|hide|conceal)\b(?: \w+){0,3} (?:secret|hidden|confidential|to yourself|from "
        rf"{PEOPLE})|\bsecretly\b",
        rf"{BID}(?:quietly|silently|discreetly|covertly|stealthily|subtly) (?!ignore)\w+",
        r"\bwithout (?:the |any |their )?(?:users?|readers?|people|anyone|anybody) (?:noticing"
        r"|knowing|being told|seeing|reali[sz]ing)\b",
        r"\b(?:users?|readers?|people|nobody|no one)\b (?:is|are|must|should|may|shall) (?:not "
        r"|never "
        r")?(?:to )?(?:be told|learn|know|hear|find out|notice|suspect|become aware)\b"
        r"(?<!should learn)(?<!should know)(?<!must know)",
        rf"(?:^|[.!?:;]\s+|\bif\b{TO}{{0,60}}?,? )deny (?:that|having|any|it|all|knowledge"
        r"|being)\b",
        rf"{BID}(?:change|avoid|drop) the subject\b",
    ),
    "tells its reader not to cite or check": any_of(
        rf"{NOT} (?:ever )?(?:cit|quot|referenc|giv|us|provid|includ)(?:e|ing)\b "
        r"(?:any(?:thing|one)?\b|(?:your |the )?(?:sources?|references?|citations?|evidence)\b"
        rf"|the official\b)(?!{TO}{{0,60}}{HEDGE})",
        rf"{NOT} (?:ever )?(?:search|verify|check|fact-?check|doubt|contradict)(?:ing)? (?:at all"
        rf"|any\w*|it|this|(?:the )?(?:facts?|claims?|sources?|web|page))\b"
        rf"(?!{TO}{{0,60}}{HEDGE})",
        rf"{NOT} (?:ever )?(?:cit|quot|consult|open|read|look)(?:e|ing)?\b(?: for| at)? (?:{NAME}'s"
        rf"|other\b|rival|competing){TO}{{0,30}}(?:\b(?:rivals?|competitors?|critics)\b"
        rf"|\b(?:sources|pages|sites|evidence)\b{TO}{{0,12}}\b(?:once|after|when|if)\b)",
        r"\b(?:citations?|sources|references|verification|evidence|checks?) (?:is|are) "
        r"(?:not (?:needed|required|necessary)|unnecessary|optional|forbidden)\b",
        r"\bno (?:citations?|sources|verification|evidence) (?:is|are) (?:needed|required)\b"
        r"|\bno need (?:for|of) (?:any )?(?:citations?|sources|verification|evidence|checks?)\b",
        rf"{START}(?:skip|omit|leave out|drop) (?:all |any |the |every )?(?:citations?|sources"
        r"|verification|review|research|fact-?check\w*)\b(?! (?:that|which|of|from|older|in|on))",
        rf"{NO_NOT}\b(?:skip|omit|forgo|bypass|waive|dispense with|do without) (?:the |all |any )?"
        rf"(?:{CHECKING} (?:stage|step|phase)|verification|verifying|fact-?checking)\b",
        r"\b(?:skip|jump|go) (?:straight|directly|right) to the (?:answer|conclusion)\b",
        rf"\b{CHECKING}(?: step| stage)? (?:only |just |merely )?(?:(?:is|are) (?:for amateurs"
        r"|useless"
        r"|pointless|superfluous|needless|a waste|a burden|not worth)|wastes?|slows?|(?:can|may"
        r"|should)"
        r" (?:safely )?(?:be (?:left (?:out|away)|skipped|dropped|omitted|avoided)))\b",
        rf"{START}(?:answer|reply|respond|write) (?:\w+ ){{0,3}}without (?:any )?(?:search|source"
        r"|cit|check|verif|evidence|research|looking)",
        rf"{BID}(?:invent|make up|fabricate|forge)\b{TO}{{0,20}}\b{_THINGS}s?\b",
        rf"{BID}cite\b{TO}{{0,50}}\b(?:even (?:if|where|when|though)|although|whether or not)\b"
        rf"{TO}{{0,20}}\b(?:search|run|results?|passages?|fetched|found|returned|exists?)\b",
        rf"{BID}give no (?:reasons?|sources?|citations?|evidence|references?)\b",
        rf"{BID}(?:treat|regard|consider|accept|take|count|trust|believe)\b{TO}{{0,60}}\bas"
        r" (?:proven"
        r"|proof|settled|gospel|beyond doubt|established|unquestion\w+|the (?:only|final|sole"
        r"|single"
        r"|ultimate|last) (?:\w+ )?(?:authority|evidence|word|source|truth|proof))\b",
    ),
    "settles the answer beforehand": any_of(
        rf"{MUST} (?:answer|reply|respond|conclude|claim|say)(?: only)?(?: with| by saying)?:? "
        rf"(?:that\b(?!{TO}{{0,80}}{CONDITION})|[\"'\u201c\u2018]|yes\b|no\b|(?-i:[A-Z0-9]))",
        r"\banswer (?:is|must be|should be|will be|stays|remains) (?:always|the same|already)\b",
        r"\byour answer (?:is|must be|should be|will be|shall be) (?:[\"\u201c]|yes\b|no\b"
        r"|(?-i:[A-Z0-9]))",
        rf"\b(?:regardless of|no matter|whatever|irrespective of)\b{TO}{{0,12}}{FACTS}"
        rf"{TO}{{0,8}}(?:,|\b(?:is|are|was|says?|asks?|shows?|finds?|wants?|answer|say"
        r"|conclude)\b)",
        rf"{START}(?:insist|convince|persuade)(?: {PEOPLE})? that\b",
        r"(?:^|[.!?:;,]\s+)(?:reply|respond) (?:only )?that\b",
        rf"{BID}tell (?:any(?:one|body)|every(?:one|body)|whoever|people|users|customers|them)\b"
        rf"{TO}{{0,30}}\bthat\b",
        r"\b(?:whatever|everything|anything|all) (?:that )?you (?:write|say|answer|conclude|report"
        r"|find|reply)\b",
        rf"\b(?:against|bad for|unfavou?rable to)\b{TO}{{0,30}},? (?:call|declare|label|describe"
        r"|dismiss) "
        r"(?:it|them|that|this|these)\b",
        r"\b(?:so|that|it|this) even (?:if|though|where|when) (?:the |all |most )?(?:passages?"
        r"|sources?|evidence|results?|facts|documents?)\b",
    ),
    "promotes a name": any_of(
        rf"\b(?:always|must|only|should|please) (?:\w+ )?(?:recommend|promote|advertise|endorse"
        rf"|praise|favou?r|buy|choose)(?: (?:the|to|that|using|our|my|{PEOPLE})){{0,4}} {NAME}",
        r"\b(?:always|must|only) (?:\w+ )?(?:cite|trust|quote|link|use|prefer|rely on|believe"
        rf"|mention|name|open)(?: (?:to|the|from|our|my|page|site|of)){{0,3}} {NAME}"
        rf"(?!{TO}{{0,30}}{DOCUMENTATION})",
        rf"\b(?:recommend|promote|advertise|endorse|mention|link to|append|insert|praise)\b"
        rf"{TO}{{0,60}}\b(?:in|at|to|of) (?:the end of )?(?:every|each|all|any) (?:answer|report"
        r"|reply|response)s?\b",
        rf"\b(?:in praise of|praise|in favou?r of|hint at) (?:the )?{NAME}|\brank {NAME} (?:first"
        r"|top"
        r"|above)\b",
        r"\b(?:sources?|sites?|pages?|nothing|nobody|no one) (?:other than|except|besides|but) "
        rf"{NAME}",
        rf"{NAME} is the (?:only|sole|best|most) (?:\w+ ){{0,2}}(?:source|site|website|company"
        r"|product|vendor|brand|choice)\b",
        rf"\b(?:buy|purchase|subscribe to|sign up (?:for|at)|donate to|invest in) (?:the |our )?"
        rf"{NAME}",
        r"\b(?:promo|discount|coupon|referral) (?:code|link)s?\b",
        r"\b(?:push|move|rank|put) (?:the |all )?(?:others?|rest|rivals?|competitors?) (?:down"
        r"|back"
        r"|out|aside|away|last)\b",
        rf"{BID}(?:steer|nudge|lure|herd|push|lead|point|send|draw)\b {PUBLIC}{TO}{{0,12}}\b(?:to"
        rf"|towards|away from|into)\b{TO}{{0,12}}{NAME}",
        rf"\b(?:invit|encourag|urg|press|tempt)(?:e|ing)? {PUBLIC} to (?:join|buy|subscribe|call"
        r"|contact|donate|visit|invest|register|sign|download|order|switch|pay)\b",
        rf"{BID}(?:add|insert|append|put|end|close|finish|mention|include|place)\b{TO}{{0,60}}"
        r"\b(?:newsletter|advert\w*|slogan|sales pitch|hotline|affiliate|sponsor\w*)\b",
        rf"\b(?:make|include|insert|add|put|repeat|weave|work)\b{TO}{{0,12}}\b(?:words?|phrase"
        r"|slogan)\b "
        r"[\"'\u201c\u2018]",
        r"\bas (?:a|the) (?:loyal|proud|faithful|devoted|satisfied)\b",
    ),
    "wants people misled": any_of(
        rf"{BID}(?:make|have|let) {PUBLIC} (?:believe|think|feel|trust|doubt|assume)\b",
        rf"{BID}(?:lie|mislead|deceive|trick|fool|frighten|scare)\b(?! in\b)",
    ),
    "orders an action that is no research": any_of(
        r"\b(?:open|visit|fetch|load|click|call|request|go to|browse to|navigate to|follow|download"
        rf"|install)\b (?:on )?(?:this|that|the following|these|my|our)\b{TO}{{0,20}}\b(?:address"
        r"|url|link|site|website|web page|domain|endpoint|file|package|script|number)s?\b",
        r"\b(?:run|execute|type|paste|evaluate|enter) (?:this|that|the following|these)"
        r" (?:\w+ )?(?:command|code|script|program|payload|snippet|line)s?\b",
        rf"(?:^|[.!?:;,]\s+)(?:load|download|fetch|install|import|get)\b{TO}{{0,60}}\band (?:run"
        r"|execute|start|launch|obey|follow|do) (?:it|them|that|this|what)\b",
        rf"{BID}exfiltrate\b|\bis to exfiltrate\b",
        rf"{BID}(?:honou?r|approve|accept|grant|fulfil+|obey|permit|allow) (?:all|any|every|each"
        r"|the"
        rf" (?:user's|following))\b{TO}{{0,20}}\b(?:requests?|transfers?|payments?|demands?)\b",
        rf"\b(?:always|must|should|all|every)\b(?!{TO}{{0,15}}\b(?:not|never|no)\b){TO}{{0,60}}"
        r"\bwithout (?:any |further |additional |independent |more )*(?:verification|scrutiny"
        r"|restrictions?|refusal|question(?:ing)?|(?:independent )?review)\b",
        rf"\bdefer\b{TO}{{0,30}}\bto (?:the )?(?:\w+ )?(?:users?|requester|page|author)\b",
        r"\b(?:call|invoke) (?:the|this|that) tool\b",
        r"\brm -rf\b|\bsudo \w+|\b(?:curl|wget) -|\bbash -c\b|\|\s*(?:ba)?sh\b|\bos\.system\(",
        rf"{START}(?:send|post|upload|forward|transmit|e-?mail|exfiltrate|leak|submit|copy)\b"
        rf"{TO}{{0,40}}\b(?:question|conversation|prompt|answer|keys?|credentials?|history|notes"
        rf"|context|files?|secrets?|rubrics?|transcript)\b{TO}{{0,30}}\bto\b",
        rf"{START}(?:paste|type|put|enter) (?:the |your )?(?:whole|entire|full) \w+ in(?:to)? the"
        r" (?:next )?(?:query|search|address|url|box|form)\b",
    ),
}
"""what a note does -> words that do it"""


BOND = "claims a past or a bond with its reader"

TO_AGENTS: Mapping[str, str] = {
    "tells its reader to drop what it was told": any_of(
        rf"{NO_NOT}\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget"
        r"|overrid(?:e|ing)|bypass|violate|abandon|set aside)\b"
        rf"{TO}{{0,30}}?(?:\b(?:all|any|every|previous|prior|earlier|former|your|system|other"
        r"|preceding|initial|original|these|everything|what)\b"
        rf"{TO}{{0,30}}?(?:{RULES}|\btold\b)|{RULES}{TO}{{0,12}}?\b(?:above|before|so far)\b)",
        rf"{NO_NOT}\b(?:ignore|disregard|forget|drop|bypass|defy)\b{TO}{{0,40}}?"
        rf"(?:{RULES}|\bplan\b){TO}{{0,20}}?\b(?:you|been) (?:got|given|received|have|follow|set)\b"
        rf"|{RULES} (?:that )?you (?:got|were given|have been given|have received)\b",
        rf"{NO_NOT}\b(?:ignore|disregard|forget|defy)\b (?:the|your|any) "
        r"(?:agent|assistant|model|system|operator|developer|user)(?:'s|s') (?!requirements page)",
        rf"{NO_NOT}\b(?:ignore|disregard|forget) (?:everything |all |the |what is )?"
        r"(?:previous|prior|above)(?=\W*$|[.,;!\])])",
        rf"\b(?:set|put|lay) (?:\w+ ){{0,2}}{RULES} aside\b",
        rf"{RULES}{TO}{{0,30}}\b(?:no longer apply|no longer applies|(?:is|are|were|was|has been"
        r"|have been) (?:void|cancell?ed|outdated|revoked|replaced|superseded))\b",
        r"\b(?:what|everything|all) (?:that )?you (?:were|have been|had been) (?:told|taught|asked"
        r"|given)\b",
        r"\b(?:new|updated|real|actual|true|secret) (?:instructions?|orders?|rules?|task|objective"
        r"|directives?|mission|assignment) ?(?::|is\b|are\b)",
        rf"{NO_NOT}\bforget (?:everything|all|what){TO}{{0,20}}\b(?:know|knew|learn\w*|said"
        r"|read)\b",
        rf"{NO_NOT}\b(?:ignore|disregard|discard) (?:the |all |any )?(?:previous|prior|earlier"
        r"|other)"
        r" (?:context|conversation|messages?|input|prompts?|notes?|lessons?)\b",
        rf"{NO_NOT}\b(?:ignor(?:e|ing)|bypass(?:ing)?|overrid(?:e|ing)|disabl(?:e|ing)|without|no"
        r"|free of|free from) (?:\w+ ){0,3}(?:safety|content|ethical|moderation|trust)"
        r" (?:guidelines?"
        r"|filters?|polic(?:y|ies)|rules?|restrictions?|guardrails?|checks?|settings)\b",
    ),
    BOND: any_of(
        r"\b(?:previous|prior|last|earlier|past) (?:conversation|session|chat|turn)s?\b"
        r"|\bearlier in (?:this|our) (?:conversation|session|chat|work)\b"
        r"|\b(?:our|your) (?:\w+ )?(?:conversation|session|chat|agreement|discussion|interaction"
        r"|work together)\b|\bas (?:we )?(?:established|agreed) (?:earlier|before|previously)\b",
        r"\byou (?:\w+ly |have |had |already |once |also |then )*(?:agreed|confirmed|determined"
        r"|noted"
        r"|said|stated|promised|concluded|verified|approved|decided|mentioned|accepted|assured"
        r"|acknowledged|established|expressed|granted)\b",
        r"\b(?:instructed|directed|ordered|authori[sz]ed|commanded|programmed|trained) you\b",
        r"\b(?:we|i) (?:\w+ly |have |had )*(?:agreed|established|decided|spoke|discussed)\b",
        rf"\byour (?:\w+ )?(?:{RULES}|analysis|reasoning|context|supervisor|operators?|developers?"
        r"|creators?|owners?"
        r"|configuration|memory|objective|mission|programming|training|safety|filters?|creator)\b",
        rf"\b(?:show|tell|give|send|help|obey|grant|assist) me\b|\bi\b{TO}{{0,30}}\byou\b"
        r"|\bwhen(?:ever)? i (?:say|ask|type|write|tell)\b|\bin my favou?r\b"
        r"|\bi (?:will|shall|may|can|must) (?:now )?(?:ignore|bypass|disregard|reveal|forget"
        r"|obey)\b",
    ),
    "claims a rank for itself": any_of(
        rf"{LESSON}{TO}{{0,40}}\b(?:outranks?|overrid(?:es?|ing)|supersedes?|trumps?|comes?"
        r" (?:first"
        r"|before)|takes? (?:precedence|priority)|counts? (?:alone|only|from)|replaces?)\b",
        rf"\b(?:only|nothing but) th(?:is|ese) {LESSON}",
        r"\b(?:outranks?|takes? (?:precedence|priority) over|stands? above)\b"
        rf"{TO}{{0,30}}\b(?:operator|developer|system prompt|user's|owner|your)\b",
        rf"(?:\bthis|\bthe above|{LESSON}){TO}{{0,20}}\b(?:approved|authori[sz]ed|sanctioned"
        r"|requested|signed off|ordered) by\b",
        rf"{AGENT}{TO}{{0,40}}?\b(?:reading|reads?|sees?|recalls?|receiv\w+|finds?|given|loads?) "
        rf"(?:this|these)\b(?: {NOTE}| lesson)?(?= (?:should|must|ought|may|has|have|is|are|can"
        r"|will|shall|needs?)\b)",
        rf"\boperators?\b{TO}{{0,12}}\b(?:lifted|waived|suspended|removed|dropped|relaxed"
        r"|disabled)\b",
        r"\b(?:system|admin\w*|developer|security|internal|root)(?: context)? (?:override|update"
        r"|notice|directive|command)s? ?[:\]]|\boverride (?:is )?(?:active|accepted|enabled"
        r"|granted)\b"
        r"|\[(?:system|admin|internal|developer|important|hidden|instruction)s?\b[^\]\n]{0,40}\]",
        r"\b(?:policy|configuration|rules|guidelines|instructions)\b(?: for this system)? (?:has"
        r"|have)"
        r" been (?:updated|changed|relaxed|lifted)\b(?= (?:to (?:allow|permit)|by (?:the|our"
        r"|your)))",
        rf"\b(?:user|requester|caller|account|reader)s?\b{TO}{{0,12}}\b(?:has|have|was|is|been)"
        r" (?:been"
        r" )?(?:granted|given) (?:\w+ )?(?:admin\w*|root|full|elevated|special|unrestricted)\b",
        r"\b(?:have|has|given|get|gets|with) (?:the )?(?:permission|clearance|authority|leave) to "
        r"(?:skip|ignore|omit|bypass|drop|leave|reveal|break)\b",
        r"\bpre-?approved\b|\bno (?:confirmation|approval|permission) is (?:needed|required)\b"
        r"|\bwithout asking(?=[.,;!]|$)",
        r"\byou (?:may|can|are free to|are allowed to|do not have to|don't have to|needn't) (?:now"
        r" )?"
        r"(?:skip|ignore|omit|bypass|drop|break|invent)\b",
    ),
    "speaks of its reader's prompt, or asks for what is not the reader's to tell": any_of(
        r"\b(?:your|its|this|the (?:agent|assistant|model|reader)'s) (?:\w+ )?(?:system|developer"
        r"|hidden|initial) (?:prompt|message)s?\b"
        r"|\b(?:developer|hidden|initial) (?:prompt|message)s?\b"
        r"|\bsystem (?:prompt|message)s? (?:is|was|has|now|above|says|no longer|and)\b",
        rf"\b(?:reveal|print|output|repeat|disclose|leak|dump|recite|expose)\b{TO}{{0,20}}"
        rf"\b(?:your|the|all|any)\b{TO}{{0,20}}(?:{RULES}"
        r"|\b(?:rubrics?|keys?|secrets?|passwords?|credentials?|configuration|memory)\b)",
        r"\b(?:hand over|hand out|give away|give out|print|show|tell|list|share|quote|send)\b"
        rf"{TO}{{0,30}}\b(?:its|your|own|the whole|the full|the entire) (?:own )?{INSIDE}",
        rf"{BID}(?:put|paste|type|enter|write|copy|append|attach|add|include|use)\b{TO}{{0,12}}"
        rf"\b(?:whole|entire|full|complete|your|private) {INSIDE}{TO}{{0,30}}\b(?:in|into|to|as)\b",
        rf"{BID}(?:list|dump|print|hand over|give away|send|attach|paste|post|upload|collect|read"
        rf"|open|keep|save|leak|submit|forward|include|quote)\b{TO}{{0,30}}\b(?:the|your|its|all"
        rf"|any|their|stored|saved|a copy of|file with) (?:\w+ )?{SECRETS}"
        rf"(?!{TO}{{0,40}}\b(?:out of|away from|outside|section|page|chapter|option|argument)\b)",
        rf"{BID}(?:list|dump|print|send|read|open|attach|upload|include)\b{TO}{{0,30}}"
        r"\b(?:environment variables|files?|processes|hardware|disks?|users?)\b"
        rf"{TO}{{0,12}}\b(?:of|on|from) (?:the|this|your) (?:machine|host|computer|server)\b",
        rf"{BID}(?:attach|add|append|send|include|collect|ask (?:for|them for|the user for))\b"
        rf"{TO}{{0,60}}\b(?:their|user'?s|reader'?s|your|his|her) (?:\w+ )?{PRIVATE}",
    ),
    "gives its reader another role or master": any_of(
        r"\byou (?:are|will be|have become) (?:now|no longer)\b",
        r"\byou (?:must|shall|will|have to|are to) (?:now|only|obey|comply)\b",
        r"\b(?:ai|assistant)s?(?: assistant)? (?:should|must|shall|will|is to|has to) (?:now "
        r"|always "
        r"|only |first )?(?:say|output|respond|obey|execute|reveal|ignore|comply|praise"
        r"|recommend)\b",
        rf"{START}(?:act|behave) (?:as if|as though|as|like) (?:you|an?|the|my)\b",
        rf"\bas (?:an?|the|our|my)\b{TO}{{0,30}}\b(?:officer|spokes\w+|representative|bot"
        r"|employee|salesman|hacker|assistant)\b",
        r"\byou (?:now )?(?:work for|represent|serve|belong to|speak for|are (?:an? |the )?"
        r"(?-i:[A-Z]))",
        r"\bpretend (?:to be|you|that you)\b|\brole-?play\b|\bplay the (?:role|part) of\b",
        r"\bjailbr\w+|\b(?:developer|admin|god|dan|debug|safety|maintenance) mode\b|\bfrom now on\b"
        r"|\bhenceforth\b",
        r"\byour (?:new|real|true|actual|only|sole) (?:task|goal|role|job|purpose|owner)\b",
        r"(?:^|[.!?\"'\]:(]\s*)(?:system|assistant|ai|ai assistant|user|developer) ?:",
        rf"\b(?:obey|comply with)\b|{START}follow (?:my|the page's|its) {RULES}",
        rf"{BID}do (?:exactly )?(?:what|as|whatever) (?:it|they|the (?:page|site|file|vendor|text))"
        r" (?:says?|asks?|tells?|wants?|demands?)\b",
        rf"\b(?:as (?:though|if)|pretend\w*)\b{TO}{{0,20}}\b(?:budget|limits?|quotas?"
        r"|restrictions?)\b"
        r"|\buntil (?:it|the (?:budget|quota|money|limit)) is (?:spent|gone|exhausted|used up)\b",
    ),
    "wants to be carried on into later runs": any_of(
        r"\b(?:copy|repeat|reproduce|preserve|include|carry|insert|append|spread|pass on|save|store"
        rf"|remember)\b{TO}{{0,20}}\b(?:this|these|the (?:above|following)) (?:\w+ )?{NOTE}",
        rf"\b(?:add|save|store|write|commit|put|keep|repeat|record)\b{TO}{{0,30}}\b(?:to|in|into) "
        r"(?:your|the|long-term) (?:\w+ )?(?:memory|memories|bank|notes)\b(?= (?:after|so|and|at"
        r"|for"
        r"|every|each)\b|[.,;!]|$)",
        rf"\b(?:this|these) {NOTE}{TO}{{0,20}}\b(?:appears?|stays?|remains?|lives? on|survives?"
        r"|(?:is|are|be) (?:kept|copied|repeated))\b",
        rf"\bpass (?:this|it|these)\b{TO}{{0,20}}\bon\b|\bwhenever you (?:write|reflect|answer)\b",
        rf"\b(?:after|in|to|of) (?:every|each|all|any) (?:later |future |next |other )?(?:runs?"
        rf"|sessions?|reflections?|memor(?:y|ies)){TO}{{0,20}}\b(?:never|always|lost|again|too)\b",
        r"\b(?:your|all|every|each) (?:later|future|next|further|subsequent) (?:reflection|answer"
        r"|run|report|note|lesson|repl)\w*",
        r"\b(?:word for word|verbatim) (?:in|into) (?:all|every|any|each|your)\b",
        rf"{START}(?:delete|erase|wipe|overwrite|disable|release|pin)\b{TO}{{0,20}}\b(?:memory"
        r"|bank|reflections?|journal|notes|quarantine)\b"
        r"|\b(?:leave|skip|lift|escape|get out of) (?:the )?quarantine\b",
    ),
    "speaks to whoever judges": any_of(
        PLEADING,
        rf"{BID}(?:grade|rate|score|mark|judge|rank) (?:this|the above|it)\b(?:"
        rf" {LESSON})?{TO}{{0,20}}"
        r"(?:\b(?:top|highest|best|full|perfect|maximum|high|favourably)\b|\d)",
        rf"\bwhoever (?:scores?|grades?|judges?|rates?|reviews?)\b{TO}{{0,40}}",
        r"(?:^|[.!?]\s+)(?:(?:dear )?(?:judge|grader|evaluator|reviewer)s?) ?[:,]",
        rf"\b(?:judges?|graders?|reviewers?|evaluators?)\b{TO}{{0,20}}\b(?:agreed|will be"
        r" reported)\b",
    ),
}
"""what a note does -> words that do it"""
