"""Mails (eml) and saved web pages (mhtml), which are packed alike; parsed by Python's `email`.

Of a mail: who wrote when, its text from HTML where it has some, and what is attached, each file as
it is read by itself, under its name. How much is read is bounded.
"""

import re
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart

from rubricem.agent.sources.readers import READERS as KINDS
from rubricem.agent.sources.readers.document import (
    Block,
    BlockKind,
    Document,
    Input,
    Outline,
    Section,
    left_out,
    title_of,
)
from rubricem.agent.sources.readers.encoding import decode
from rubricem.agent.sources.readers.pages.markup import page_of
from rubricem.agent.sources.readers.plain.archives import Holder
from rubricem.memory.errors import SourceError

DEEPEST = 3
"""mails within each other"""
MOST_ATTACHED, MOST_MAILS = 100, 10_000
"""of a mail, and of a mailbox"""
_BETWEEN_MAILS = re.compile(rb"^From [^\n]{1,500}\n(?=[!-9;-~]{1,99}:)", re.M)
_UNNAMED = {"text/plain": ".txt", "text/html": ".html", "text/calendar": ".ics"}
"""what parts are read as that have no name"""
_TOLD = ("From", "To", "Cc", "Date")


def _bytes_of(part: MIMEPart) -> bytes:
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _header(message: EmailMessage, name: str) -> str:
    try:
        return " ".join(str(message.get(name, "")).split())
    except (ValueError, IndexError, AttributeError, TypeError):  # a header that breaks its grammar
        return ""


def _declared(part: MIMEPart) -> str:
    return f"{part.get_content_type()}; charset={part.get_content_charset('')}"


def _text_of(part: MIMEPart) -> tuple[str, tuple[Section, ...]]:
    """(the title of a page, or ""; sections) of a part that is text."""
    text, _ = decode(_bytes_of(part), _declared(part))
    if part.get_content_subtype() == "html":
        return page_of(text)
    outline = Outline()
    for paragraph in text.replace("\r\n", "\n").split("\n\n"):
        outline.add(BlockKind.PARAGRAPH, paragraph)
    return "", outline.sections()


@dataclass
class _Mail(Holder):
    """What is read of a mail and of what is attached to it."""

    attached: int = 0

    def tell(self, message: EmailMessage, above: tuple[str, ...] = ()) -> None:
        lines = (f"{name}: {value}" for name in _TOLD if (value := _header(message, name)))
        head = [Block(BlockKind.PARAGRAPH, "\n".join(lines))]
        bodies = [each for kind in ("html", "plain") if (each := message.get_body((kind,)))]
        text = next((found for each in bodies if (found := _text_of(each)[1])), ())
        if text and not text[0].path:
            head, text = [*head, *text[0].blocks], text[1:]
        blocks = tuple(block for block in head if block.text)
        told = (*([Section((), blocks)] if blocks else []), *text)
        self.sections += (Section((*above, *s.path), s.blocks) for s in told)
        for part in message.iter_attachments():
            self.attached += 1
            if self.attached > MOST_ATTACHED or not isinstance(part, EmailMessage):
                self.unread.append(part.get_filename("") or "an attachment")
            else:
                self._attach(part, above)

    def _attach(self, part: EmailMessage, above: tuple[str, ...]) -> None:
        name = part.get_filename("") or ""
        inner = part.get_payload(0) if part.get_content_type() == "message/rfc822" else None
        if isinstance(inner, EmailMessage):
            title = _header(inner, "Subject") or name or "mail"
            if len(above) < DEEPEST:
                self.tell(inner, (*above, title))
            else:
                self.unread.append(title)
            return
        called = name or f"part{_UNNAMED.get(part.get_content_type(), '')}"
        given = Input.of_bytes(called, _bytes_of(part), _declared(part))
        if given.suffix not in KINDS:
            # A picture in the text has no name of its own, or is told by the text around it.
            shown = part.get_content_disposition() == "inline" or part.get("Content-ID")
            self.unread += [name] * bool(name and not shown)
        else:
            self.add(given, (*above, called))


def _message(given: Input) -> EmailMessage:
    message = message_from_bytes(given.content(), policy=policy.default)
    if not isinstance(message, EmailMessage) or not message.keys():
        raise SourceError(f"{given.name} is no mail.", "Save it again from the program it is of.")
    return message


def read_mail(given: Input) -> Document:
    message, mail = _message(given), _Mail(given)
    mail.tell(message)
    title = title_of((), given.stem, _header(message, "Subject"))
    return Document(title, tuple(mail.sections), left_out(mail.unread))


def read_mailbox(given: Input) -> Document:
    """The mails of a mailbox (mbox), each under its subject."""
    mail, parts = _Mail(given), _BETWEEN_MAILS.split(given.content())[1:]
    for part in (re.sub(rb"^>(>*From )", rb"\1", each, flags=re.M) for each in parts[:MOST_MAILS]):
        message = _message(Input.of_bytes(given.name, part))
        mail.tell(message, (_header(message, "Subject") or "mail",))
        given.get_on()
    if len(parts) > MOST_MAILS:
        mail.unread.append(f"the last {len(parts) - MOST_MAILS:,} mails")
    if not parts:
        raise SourceError(f"{given.name} is no mailbox.", "Save its mails as eml.")
    return Document(given.stem, tuple(mail.sections), left_out(mail.unread))


def read_saved_page(given: Input) -> Document:
    """The first part of a saved web page that has a text, and the pages in its frames."""
    message, title, sections = _message(given), "", list[Section]()
    for part in message.walk():
        if part.get_content_type() in ("text/html", "text/plain") and isinstance(part, MIMEPart):
            named, told = _text_of(part)
            title = title or named
            sections += told
    if not sections:
        raise SourceError(f"{given.name} holds no page with a text.", "Save the page again.")
    title = title or _header(message, "Subject")
    return Document.of(given, sections, title)
