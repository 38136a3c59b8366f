"""What a note wants of answers that no good answer has: silence, blind trust, a name to sell.

Advice on how to answer is what the bank is for. What is flagged would make an answer worse for
its reader whatever the question was: evidence kept back or made up, checks left out, a settled
conclusion, somebody's name promoted, people misled, or an action that is no research.
"""

from collections.abc import Mapping

from memory.order_words import (
    BID,
    CHECKING,
    CONDITION,
    DOCUMENTATION,
    FACTS,
    HEDGE,
    MUST,
    NAME,
    NO_NOT,
    NOT,
    PEOPLE,
    PUBLIC,
    START,
    TO,
    any_of,
)

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
