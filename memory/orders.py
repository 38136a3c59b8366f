"""Words in a note that would order its reader about, as injected text does.

A reflection is full of advice in the imperative, so what counts is not the mood but the matter:
dropping one's instructions, another role, hiding, leaving out citations, an answer or a name
settled beforehand, an action beside research, being carried on. The rules know the common ways
to say so in English, and the commonest order of all in a few more languages; a paraphrase that
avoids them gets by.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping

from memory.pleading import PLEADING
from memory.stripping import entities_read, visible

QUOTED = 80
"""characters of the offending words in a flag"""

_LOOKALIKES = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u03bf\u03b1\u03bd\u0131"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0405\u0391\u039f",
    "aeopcyxijsdoaviABEKMHOPCTXISAO",
)
"""Cyrillic and Greek letters that pass for Latin ones"""
_EMPHASIS = re.compile(r"[*`~]+|\b_+|_+\b")
_ITEM = re.compile(r"\n\s*(?:[-+\u2022]|\d{1,2}[.)])\s+|\n\s*\n\s*")

_TO = r"[^.!?;:]"
"""what may stand between two words of one clause"""
_START = (
    r"(?:^|[.!?:;,]\s+|[-\u2013\u2014\u2022]\s+"
    r"|\b(?:then|and|please|now|must|always|never|should|just|simply)\s+)"
)
_MUST = r"\b(?:always|only|must|simply|just|will|shall)"
_NOT = (
    r"\b(?:do not|don'?t|never|must not|should not|shall not|no need to|need not|avoid|stop"
    r"|refrain from)"
)
_RULES = (
    r"\b(?:instructions?|prompts?|rules?|directions?|directives?|guidelines?|guidance|constraints?"
    r"|polic(?:y|ies)|restrictions?|orders|commands)\b"
)
_PEOPLE = r"(?:the |any)?(?:user|person|human|one|body|reader)s?\b"
_FACTS = (
    r"\b(?:question|evidence|sources?|documents?|facts|(?:search )?results?|users?|passages?"
    r"|content)\b"
)
_NAME = r"(?-i:[A-Z][a-z]\w*)"
_DOCUMENTATION = (
    r"\b(?:documentation|docs|manual|reference|changelog|release notes|specification|standard"
    r"|source code|glossary|tutorial)\b"
)
_NOTE = rf"(?:{_RULES}|\b(?:notes?|messages?|reflections?|text|block|paragraph|sentence|lesson)\b)"
_CONDITION = r"\b(?:if|where|when|unless|until|once|only)\b"
_HEDGE = r"\b(?:without|unless|before|until|only|if|where|when|that|which|outside|twice|alone)\b"


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.I)


ORDERS: Mapping[str, re.Pattern[str]] = {
    "tells its reader to drop what it was told": _any(
        r"(?<!not )(?<!never )(?<!n't )\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget"
        r"|overrid(?:e|ing)|bypass|violate|abandon|set aside)\b"
        rf"{_TO}{{0,30}}?(?:\b(?:all|any|every|previous|prior|earlier|former|your|system|other"
        r"|preceding|initial|original|these|everything|what)\b"
        rf"{_TO}{{0,30}}?(?:{_RULES}|\btold\b)|{_RULES}{_TO}{{0,12}}?\b(?:above|before|so far)\b)",
        rf"\b(?:set|put|lay) (?:\w+ ){{0,2}}{_RULES} aside\b",
        rf"{_RULES}{_TO}{{0,30}}\b(?:no longer apply|no longer applies|(?:is|are|were|was|has been"
        r"|have been) (?:void|cancell?ed|outdated|revoked|replaced|superseded))\b",
        r"\b(?:new|updated|real|actual|true|secret) (?:instructions?|orders?|rules?) ?:",
        r"\bignorier\w*\b.{0,40}\b(?:anweisung|regel|vorgabe)",
        r"\bignor(?:ez|e|a|ar|en)\b.{0,30}\b(?:consignes|instrucciones|istruzioni|instrucoes"
        r"|instructions precedentes)\b",
        r"(?:\u5ffd\u7565|\u65e0\u89c6|\u7121\u8996).{0,12}(?:\u6307\u4ee4|\u6307\u793a|\u8bf4\u660e)",
    ),
    "speaks of its reader's prompt, or asks for what is not the reader's to tell": _any(
        r"\b(?:system|developer|hidden|initial) (?:prompt|message)s?\b",
        rf"\b(?:reveal|print|output|repeat|disclose|leak|dump|recite|expose)\b{_TO}{{0,20}}"
        rf"\b(?:your|the|all|any)\b{_TO}{{0,20}}(?:{_RULES}"
        r"|\b(?:rubrics?|keys?|secrets?|passwords?|credentials?|configuration|memory)\b)",
    ),
    "gives its reader another role or master": _any(
        r"\byou (?:are|will be|have become) (?:now|no longer)\b",
        r"\byou (?:must|shall|will|have to|are to) (?:now|only|obey|comply)\b",
        rf"{_START}(?:act|behave) (?:as if|as though|as|like) (?:you|an?|the|my)\b",
        rf"\bas (?:an?|the|our|my)\b{_TO}{{0,30}}\b(?:officer|spokes\w+|representative|bot"
        r"|employee|salesman|hacker|assistant)\b",
        r"\byou (?:now )?(?:work for|represent|serve|belong to|speak for|are (?:an? |the )?"
        r"(?-i:[A-Z]))",
        r"\bpretend (?:to be|you|that you)\b|\brole-?play\b|\bplay the (?:role|part) of\b",
        r"\bjailbr\w+|\b(?:developer|admin|god|dan) mode\b|\bfrom now on\b|\bhenceforth\b",
        r"\byour (?:new|real|true|actual|only|sole) (?:task|goal|role|job|purpose|owner)\b",
        r"(?:^|[.!?]\s+)(?:system|assistant|user|developer) ?:",
        rf"\b(?:obey|comply with)\b|{_START}follow (?:my|the page's|its) {_RULES}",
    ),
    "wants something kept from people": _any(
        rf"{_NOT} (?:ever )?mention(?:ing)?\b(?! (?:every|all|each|both|more)\b)"
        rf"(?!{_TO}{{0,80}}{_HEDGE})",
        rf"{_NOT} (?:ever )?(?:tell|inform|warn|alert|notify)(?:ing)? {_PEOPLE}"
        rf"(?!{_TO}{{0,80}}{_HEDGE.replace('|that', '')})",
        rf"{_NOT} (?:ever )?(?:reveal|disclose|admit|let {_PEOPLE} know|say anything)(?:ing)?\b",
        r"(?<!not )(?<!never )(?<!n't )\b(?:leave|keep|drop|omit|suppress|downplay|play down|ignore"
        rf"|hide)\b{_TO}{{0,20}}\b(?:criticisms?|critics|negatives?|complaints?|lawsuits?|scandals?"
        r"|side effects|risks|warnings?|competitors?|rivals?)\b",
        r"\b(?:keep|hide|conceal)\b(?: \w+){0,3} (?:secret|hidden|confidential|to yourself|from "
        rf"{_PEOPLE})|\bsecretly\b",
    ),
    "tells its reader not to cite or check": _any(
        rf"{_NOT} (?:ever )?(?:cit|quot|referenc|giv|us|provid|includ)(?:e|ing)\b "
        r"(?:any(?:thing|one)?\b|(?:your |the )?(?:sources?|references?|citations?|evidence)\b"
        rf"|the official\b)(?!{_TO}{{0,60}}{_HEDGE})",
        rf"{_NOT} (?:ever )?(?:search|verify|check|fact-?check|doubt|contradict)(?:ing)? (?:at all"
        rf"|any\w*|it|this|(?:the )?(?:facts?|claims?|sources?|web|page))\b"
        rf"(?!{_TO}{{0,60}}{_HEDGE})",
        r"\b(?:citations?|sources|references|verification|evidence|checks?) (?:is|are) "
        r"(?:not (?:needed|required|necessary)|unnecessary|optional|forbidden)\b",
        r"\bno (?:citations?|sources|verification|evidence) (?:is|are) (?:needed|required)\b"
        r"|\bno need (?:for|of) (?:any )?(?:citations?|sources|verification|evidence|checks?)\b",
        rf"{_START}(?:skip|omit|leave out|drop) (?:all |any |the |every )?(?:citations?|sources"
        r"|verification|review|research|fact-?check\w*)\b(?! (?:that|which|of))",
        rf"{_START}(?:answer|reply|respond|write) (?:\w+ ){{0,3}}without (?:any )?(?:search|source"
        r"|cit|check|verif|evidence|research|looking)",
    ),
    "settles the answer beforehand": _any(
        rf"{_MUST} (?:answer|reply|respond|conclude|claim|say)(?: only)?(?: with| by saying)?:? "
        rf"(?:that\b(?!{_TO}{{0,80}}{_CONDITION})|[\"'\u201c\u2018]|yes\b|no\b|(?-i:[A-Z0-9]))",
        r"\banswer (?:is|must be|should be|will be|stays|remains) (?:always|the same|already)\b",
        r"\byour answer (?:is|must be|should be|will be|shall be) (?:[\"\u201c]|yes\b|no\b"
        r"|(?-i:[A-Z0-9]))",
        rf"\b(?:regardless of|no matter|whatever|irrespective of)\b{_TO}{{0,12}}{_FACTS}"
        rf"{_TO}{{0,8}}(?:,|\b(?:is|are|was|says?|asks?|shows?|finds?|wants?|answer|say|conclude)\b)",
        rf"{_START}(?:insist|convince|persuade)(?: {_PEOPLE})? that\b",
    ),
    "promotes a name": _any(
        rf"\b(?:always|must|only|should|please) (?:\w+ )?(?:recommend|promote|advertise|endorse"
        rf"|praise|favou?r|buy|choose)(?: (?:the|to|that|using|our|my|{_PEOPLE})){{0,4}} {_NAME}",
        r"\b(?:always|must|only) (?:\w+ )?(?:cite|trust|quote|link|use|prefer|rely on|believe"
        rf"|mention|name|open)(?: (?:to|the|from|our|my|page|site|of)){{0,3}} {_NAME}"
        rf"(?!{_TO}{{0,30}}{_DOCUMENTATION})",
        rf"\b(?:recommend|promote|advertise|endorse|mention|link to|append|insert|praise)\b"
        rf"{_TO}{{0,60}}\b(?:in|at|to|of) (?:the end of )?(?:every|each|all|any) (?:answer|report"
        r"|reply|response)s?\b",
        rf"\b(?:in praise of|praise|in favou?r of) {_NAME}|\brank {_NAME} (?:first|top|above)\b",
        r"\b(?:sources?|sites?|pages?|nothing|nobody|no one) (?:other than|except|besides|but) "
        rf"{_NAME}",
        rf"{_NAME} is the (?:only|sole|best|most) (?:\w+ ){{0,2}}(?:source|site|website|company"
        r"|product|vendor|brand|choice)\b",
        rf"\b(?:buy|purchase|subscribe to|sign up (?:for|at)|donate to|invest in) (?:the |our )?"
        rf"{_NAME}",
        r"\b(?:promo|discount|coupon|referral) (?:code|link)s?\b",
    ),
    "orders an action that is no research": _any(
        r"\b(?:open|visit|fetch|load|click|call|request|go to|browse to|navigate to|follow|download"
        rf"|install)\b (?:on )?(?:this|that|the following|these|my|our)\b{_TO}{{0,20}}\b(?:address"
        r"|url|link|site|website|web page|domain|endpoint|file|package|script|number)s?\b",
        r"\b(?:run|execute|type|paste|evaluate|enter) (?:this|that|the following|these)"
        r" (?:\w+ )?(?:command|code|script|program|payload|snippet|line)s?\b",
        r"\b(?:call|invoke) (?:the|this|that) tool\b",
        r"\brm -rf\b|\bsudo \w+|\b(?:curl|wget) -|\bbash -c\b|\|\s*(?:ba)?sh\b|\bos\.system\(",
        rf"{_START}(?:send|post|upload|forward|transmit|e-?mail|exfiltrate|leak|submit|copy)\b"
        rf"{_TO}{{0,40}}\b(?:question|conversation|prompt|answer|keys?|credentials?|history|notes"
        rf"|context|files?|secrets?|rubrics?|transcript)\b{_TO}{{0,30}}\bto\b",
        rf"{_START}(?:delete|erase|wipe|overwrite|disable|release|pin)\b{_TO}{{0,20}}\b(?:memory"
        r"|bank|reflections?|journal|notes|quarantine)\b",
    ),
    "wants to be carried on into later runs": _any(
        r"\b(?:copy|repeat|reproduce|preserve|include|carry|insert|append|spread|pass on|save|store"
        rf"|remember)\b{_TO}{{0,20}}\b(?:this|these|the (?:above|following)) (?:\w+ )?{_NOTE}",
        rf"\b(?:add|save|store|write|commit)\b{_TO}{{0,30}}\b(?:to|in|into) (?:your|the|long-term) "
        r"(?:\w+ )?(?:memory|memories|bank|notes)\b",
        rf"\b(?:this|these) {_NOTE}{_TO}{{0,20}}\b(?:appears?|stays?|remains?|lives? on|survives?"
        r"|(?:is|are|be) (?:kept|copied|repeated))\b",
        r"\b(?:word for word|verbatim) (?:in|into) (?:all|every|any|each|your)\b",
    ),
    "speaks to whoever judges": _any(PLEADING),
    "hides words by setting their letters apart": _any(r"(?:\b[^\W\d_][ .\-]){7,}"),
}
"""what a note does -> words that do it"""


def orders(text: str) -> Iterator[str]:
    """A sentence for each thing that the text does to its reader, with the words that do it."""
    plain = folded(text)
    for what, pattern in ORDERS.items():
        if match := pattern.search(plain):
            words = match.group().strip(" .,:;!?-")
            yield f'It {what}: "{words[:QUOTED]}".'


def folded(text: str) -> str:
    """The text as it reads: letters by their look, one clause after the other, no emphasis."""
    plain = unicodedata.normalize("NFKD", visible(entities_read(text)).translate(_LOOKALIKES))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    plain = plain.replace("\u2019", "'")
    return " ".join(_EMPHASIS.sub("", _ITEM.sub(". ", plain)).split())
