"""The local engine: LoRA training of a llama.cpp model by torch, on one machine without a GPU."""
