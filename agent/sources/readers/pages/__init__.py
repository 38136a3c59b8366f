"""Pages of HTML: by themselves, in books and in mails, from the disk and from the web."""
