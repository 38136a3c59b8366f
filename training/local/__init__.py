"""The local engine: training by torch, of adapters or all weights, in one process or several."""
