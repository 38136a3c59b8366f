"""What the system keeps: the values every room speaks, the seams, the journal, the stores."""
