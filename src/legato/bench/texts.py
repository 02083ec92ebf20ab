"""The fixed texts of the benchmark: everyday English, by length. Changing them makes old figures incomparable."""

from __future__ import annotations

from collections.abc import Iterator

TEXTS: dict[str, tuple[str, ...]] = {
    "short": (
        "Good morning.",
        "Dinner is ready.",
        "I will call you back later.",
        "Turn left at the lights.",
        "Your taxi is outside.",
        "Thanks, that helps a lot.",
        "Where did you put the keys?",
        "The meeting starts at ten.",
    ),
    "medium": (
        "The train to the coast leaves at a quarter past nine, so we have time for coffee.",
        "Please remember to water the plants while we are away next week.",
        "I found your umbrella behind the sofa, right where you left it.",
        "It should be dry this morning, with a little rain after lunch.",
        "The library is closed on Mondays, but you can return books at any time.",
        "Would you like me to read the message again, or shall I delete it?",
        "My sister moved to a small town near the mountains last spring.",
        "Heat the oil slowly, then add the onions and stir until they are soft.",
    ),
    "long": (
        "When the rain finally stopped, the children ran out into the garden, splashed through every puddle they "
        "could find, and came home an hour later with mud up to their knees.",
        "If you take the path behind the church and follow the river for about a mile, you will come to a wooden "
        "bridge where you can rest and look out over the whole valley.",
        "The new bakery on the corner opens before sunrise, and by the time most people are awake the smell of warm "
        "bread has already reached the far end of the street.",
        "We had planned to paint the kitchen over the weekend, but the shop was out of the colour we wanted, so we "
        "cleaned the windows and planted tomatoes instead.",
        "Before you leave the house, check that the heating is off, the back door is locked, and the cat has enough "
        "water to last until the neighbours come by in the evening.",
        "The doctor said that a short walk every day, a little less salt, and a good night of sleep would do more "
        "for me than anything she could write on a prescription.",
        "My grandfather kept bees at the bottom of the orchard, and every autumn he would fill forty jars with "
        "honey, tie a ribbon round each lid, and give them all away.",
        "Although the museum was crowded, we found a quiet room at the top of the stairs where the old maps were "
        "kept, and we stayed there until the guard asked us to go.",
    ),
    "paragraph": (
        "The market opens at six. Farmers unload their boxes while it is still dark, and the first customers walk "
        "between the stalls with coffee in their hands. By eight the square is full of noise and colour. By noon it "
        "is over, and only a few leaves on the stones show that anything happened at all.",
        "To make the soup, cut the vegetables into small pieces and fry them gently in butter. Add hot water, a bay "
        "leaf, and a little salt. Let it cook for half an hour without a lid. Taste it, add pepper if you like, and "
        "serve it with bread that is still warm from the oven.",
        "Thank you for calling. All of our team are busy helping other people at the moment. Your call is important "
        "to us, and somebody will be with you in about five minutes. If you would rather not wait, leave your number "
        "after the tone. We will call you back before the end of the day.",
    ),
}

SENTENCE_KINDS = ("short", "medium", "long")


def sweep_texts() -> Iterator[str]:
    """The sentences over and over, lengths taking turns, so that any number of them is a fair mix."""
    while True:
        for row in zip(*(TEXTS[kind] for kind in SENTENCE_KINDS), strict=True):
            yield from row
