"""The characters of a file, from its bytes."""


def decode(content: bytes) -> tuple[str, str]:
    """(text, note): UTF-8 with or without a mark, else Windows-1252, else Latin-1."""
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        return text, "" if encoding == "utf-8-sig" else "not UTF-8: read as Windows-1252"
    return content.decode("latin-1"), "not UTF-8: read as Latin-1"
