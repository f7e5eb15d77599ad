"""Poems and songs: rhymed, free, short and long."""

# ruff: noqa: E501 (a template is one line, however long)

from .base import Kind, Prompt, on_subjects, own

MAX_NEW_TOKENS = 200

SUBJECTS = """
    an empty railway station; the first snow; a kettle; two crows on a wire; a lighthouse in fog; my grandmother's hands; a lost glove;
    the last bus home; a garden after rain; a sleeping city; a fox at the bins; an unread letter; the moon over a car park;
    a broken umbrella; the smell of bread; a clock that runs backwards; a walk on the ice; an old map; bees in lavender;
    a whale under the ferry; the sound of a neighbour's piano; a stone in a shoe; the month of March; a robot that learns to dance;
    a shadow that stays behind; the colour blue; a cat who owns the sofa; a bridge at dawn; the inside of a shell; a library at night;
    falling asleep on a train; a kite; the sea in winter; an apple tree in the wrong place; a dragon who is afraid of the dark;
    the silence after an argument; a marathon runner's last mile; the dust in a sunbeam; a paper boat; a market on Saturday;
    the day the internet stopped; an astronaut's breakfast; a scarecrow; a rusty bicycle; the wind between tall houses;
    an unfinished jigsaw; a candle and a storm; a river that remembers; the oldest turtle; a mirror in an attic; moving house;
    a spider's web; a comet; the waiting room; a pair of red shoes; northern lights; a bell under water; a forgotten password;
    the baker's night; a summer without rain; the first day of school; a frozen lake; a carousel horse; an echo
"""
FORMS = (
    "Write a sonnet about {subject}.",
    "Write a haiku about {subject}, and then another about {subject_b}.",
    "Write {n:3..6} haiku about {subject}.",
    "Write a limerick about {subject}.",
    "Write a ballad of {n:4..7} stanzas about {subject}. Every second line should rhyme.",
    "Write a poem in free verse about {subject}. Make it {mood}.",
    "Write a {mood} poem about {subject} in which every line begins with a different letter.",
    "Write rhyming couplets about {subject}, {n:6..14/2} lines in all.",
    "Write a lullaby about {subject}.",
    "Write the lyrics of a {style} song about {subject}, with a chorus.",
    "Write an ode to {subject}.",
    "Write a {mood} poem of {n:8..20/2} lines that begins with the words '{opening}' and is about {subject}.",
    "Write a poem in which {subject} speaks to {subject_b}.",
    "Write a nursery rhyme about {subject}.",
    "Describe {subject} in a prose poem of one paragraph.",
    "Write an acrostic poem on the word {word} about {subject}.",
    "Write a poem about {subject} in the manner of an old sea shanty.",
    "Write a {mood} elegy for {subject}.",
    "Write a dialogue in verse between {subject} and {subject_b}.",
    "Write a villanelle about {subject}. Repeat its first and third line as the form asks.",
)
SLOTS = {
    "subject": [" ".join(subject.split()) for subject in SUBJECTS.split(";")],
    "mood": ["quiet", "angry", "joyful", "strange", "tender", "gloomy", "playful", "solemn", "dreamy", "proud"],
    "style": ["folk", "country", "blues", "rap", "rock", "gospel", "jazz"],
    "opening": ["Nobody told me", "Once the rain had gone", "I kept a window open", "All night the road", "Before you wake",
                "There is a door", "We were never lost", "If I were smaller"],
    "word": ["RIVER", "LIGHT", "WINTER", "HOME", "STONE", "GARDEN", "MUSIC", "SHADOW", "BREAD", "CLOUD"],
}  # fmt: skip


def build(seed: int) -> list[Prompt]:
    return [own("verse", MAX_NEW_TOKENS, turns) for turns in on_subjects("verse", FORMS, SLOTS, seed)]


KIND = Kind("verse", "poems and songs in many forms", 6, MAX_NEW_TOKENS, build)
