"""The local engine: training by torch, of adapters or all weights, on one process or several."""
