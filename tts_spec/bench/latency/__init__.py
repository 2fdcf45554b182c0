"""Latency of a speech server as a listener has it: load, definitions, reports. See ``run``."""
