"""Models behind the policy seam: llama.cpp in this process, chat servers, token servers."""
