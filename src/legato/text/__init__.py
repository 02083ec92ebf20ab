"""Text to utterances: what a caller writes, cut into sentence-sized pieces and turned into words that can be spoken."""
