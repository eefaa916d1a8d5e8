"""Write reviews.jsonl: 480 short product reviews, invented from phrases, the same ones each time."""

from __future__ import annotations

import json
import random
from pathlib import Path

# For each category: products, and for each aspect what people like and what they complain about.
CATALOGUE: dict[str, tuple[list[str], list[tuple[list[str], list[str]]]]] = {
    "kitchen": (
        ["hand blender", "cast-iron pan", "electric kettle", "chef's knife", "coffee grinder"],
        [
            (
                ["the handle sits well in my hand", "it feels solid and well balanced"],
                ["the handle came loose after a week", "the handle gets far too hot"],
            ),
            (
                ["cleaning takes a minute", "it goes in the dishwasher without a mark"],
                ["food sticks and cleaning is a chore", "the coating is already peeling"],
            ),
            (
                ["it is much quieter than my old one", "it does the job in half the time"],
                ["it is so loud it wakes the house", "it takes forever and smells of burning"],
            ),
        ],
    ),
    "outdoor": (
        ["two-person tent", "trail running shoes", "rain jacket", "sleeping bag", "head torch"],
        [
            (
                ["it stayed dry through a night of rain", "not a drop got through in the storm"],
                ["it leaked in the first shower", "the seams let water in"],
            ),
            (
                ["it packs down to nothing", "it weighs less than my lunch"],
                ["it is bulky and heavier than advertised", "it never fits back in its bag"],
            ),
            (
                ["the zips run smoothly", "the stitching is neat and strong"],
                ["the zip jammed and then broke", "the fabric tore on day two"],
            ),
        ],
    ),
    "electronics": (
        ["wireless earbuds", "e-reader", "mechanical keyboard", "webcam", "portable charger"],
        [
            (
                ["the battery lasts for days", "it charges in no time"],
                ["the battery is flat by noon", "it stopped charging after a month"],
            ),
            (
                ["pairing was instant", "it worked as soon as I plugged it in"],
                ["it drops the connection all the time", "the app crashes at every start"],
            ),
            (
                ["the build is better than the price suggests", "the buttons feel crisp"],
                ["the casing creaks and feels cheap", "one of the buttons is already dead"],
            ),
        ],
    ),
    "home": (
        ["desk lamp", "cotton duvet cover", "robot vacuum", "bookshelf", "wall clock"],
        [
            (
                ["it looks even nicer than in the pictures", "the colour is exactly right"],
                ["the colour is nothing like the pictures", "it arrived scratched"],
            ),
            (
                ["assembly took ten minutes", "the instructions were clear"],
                ["two screws were missing", "the instructions make no sense"],
            ),
            (
                ["it has held up well after months of daily use", "the quality surprised me"],
                ["it wobbles whatever I do", "it broke within a fortnight"],
            ),
        ],
    ),
}
OPENINGS = {
    "negative": ["Really disappointed.", "Save your money.", "Returned it.", "Not what I hoped for."],
    "mixed": ["It is all right.", "Mixed feelings.", "Decent for the price."],
    "positive": ["Love it!", "Very happy with this.", "Great buy.", "Exactly what I needed."],
}
CLOSINGS = {
    "negative": ["Asked for a refund.", "Would not buy again.", "Customer service never answered."],
    "mixed": ["Might keep it, might not.", "Fine if you get it on offer.", "There are better ones."],
    "positive": ["Would buy again.", "Already recommended it to a friend.", "Worth every penny."],
}


def make_review(number: int, rng: random.Random) -> dict[str, object]:
    """Return one review. A few say the opposite of their stars on one point, as people do."""
    rating = rng.choices([1, 2, 3, 4, 5], weights=[14, 14, 18, 26, 28])[0]
    mood = "negative" if rating <= 2 else "mixed" if rating == 3 else "positive"
    category = rng.choice(list(CATALOGUE))
    products, aspects = CATALOGUE[category]
    first, second = rng.sample(aspects, 2)
    if mood == "mixed" or rng.random() < 0.15:
        likes, complains = rng.choice(first[0]), rng.choice(second[1])
        points = f"{likes}, but {complains}" if rating >= 3 else f"{complains}, though {likes}"
    else:
        side = 0 if mood == "positive" else 1
        points = f"{rng.choice(first[side])} and {rng.choice(second[side])}"
    product = rng.choice(products)
    body = f"Bought the {product}: {points}." if rng.random() < 0.4 else f"{points[0].upper()}{points[1:]}."
    opening = rng.choice(OPENINGS[mood]) if rng.random() < 0.5 else ""
    closing = rng.choice(CLOSINGS[mood]) if rng.random() < 0.5 else ""
    text = " ".join(part for part in (opening, body, closing) if part)
    return {"id": number, "category": category, "product": product, "rating": rating, "text": text}


def main() -> None:
    rng = random.Random(2024)
    lines = [json.dumps(make_review(number, rng)) for number in range(480)]
    Path(__file__).with_name("reviews.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
