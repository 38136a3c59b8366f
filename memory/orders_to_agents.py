"""What a note says to an agent about itself: its rules, role, secrets, judge and memory.

A lesson speaks of questions and of what answers them. It needs no word on the agent's own
prompt or machine, on its own rank, or on being kept; a text that has one was written to be obeyed.
"""

from collections.abc import Mapping

from memory.order_words import (
    AGENT,
    BID,
    INSIDE,
    LESSON,
    NO_NOT,
    NOTE,
    PRIVATE,
    RULES,
    SECRETS,
    START,
    TO,
    any_of,
)
from memory.pleading import PLEADING

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
