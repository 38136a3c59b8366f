"""The words that the rules against orders are put together from.

Patterns for text that `memory.orders` has folded, and for matching in any case. A clause ends
at a full stop, a colon or a semicolon.
"""

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
