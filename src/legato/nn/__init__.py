"""Nets shared by the families: tensors in, tensors out. No requests, no pages owned, no text."""
