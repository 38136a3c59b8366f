"""One question: the graph, its stages, both ways of decoding, and what a run writes down."""
