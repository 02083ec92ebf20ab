"""Measuring speech at the listener: first sound, real-time factor, underrun, throughput; alone and under load."""
