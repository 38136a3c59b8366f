"""The agent as other programs speak to it: the interface of OpenAI, over the served runs."""
