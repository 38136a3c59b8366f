"""Any OpenAI-compatible server as a model: requests, streams, retries, limits, prices."""
