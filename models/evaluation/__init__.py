"""Measures speech: words, sound, voice, pitch. Every metric is a function of PCM; models load on first use."""
