"""Models behind the policy interface: llama.cpp in this process, chat servers, token servers."""
