"""How a question is answered: scaffold, graph, policies, sources, citations, reports."""
