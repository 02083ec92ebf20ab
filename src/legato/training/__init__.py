"""The nets of piccolo, learned: corpora, losses, schedules and one trainer per net. `recipes/piccolo` runs it."""
