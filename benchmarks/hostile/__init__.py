"""What others may send, and what it costs: bytes that hurt readers, and texts that give orders."""
