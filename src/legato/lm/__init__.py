"""Prompts → codec tokens: pages, scheduler, runner, sampler behind one stage."""
