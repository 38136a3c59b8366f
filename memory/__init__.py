"""What the system stores: the shared data types and protocols, the journal, the stores."""
