"""Text made safe to show, as reports and terminals need it; the memory room does the work."""

from memory.printable import one_line as one_line
from memory.printable import printable as printable
