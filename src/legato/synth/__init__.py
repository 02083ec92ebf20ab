"""Codec tokens → mel blocks → samples: two windowed stages."""
