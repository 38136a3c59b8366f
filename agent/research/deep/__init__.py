"""Deep research: a lead, the investigations that it asks for, and the sections of its report."""
