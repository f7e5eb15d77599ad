"""Everyday talk with an assistant: advice, plans, explanations, small talk, and talks already under way."""

# ruff: noqa: E501 (a template is one line, however long)

from .base import Kind, Prompt, Turns, distinct, fill, generator, in_turn, own

MAX_NEW_TOKENS = 256

OPENINGS = (
    "Hi! I want to {skill} but I have only {n:10..45/5} minutes a day. How should I start?",
    "Can you explain {concept} to me as if I were {age:8..14} years old?",
    "What is the difference between {concept} and {concept_b}?",
    "I have {food}, {food_b} and {food_c} in the fridge. What can I cook tonight?",
    "Plan {n:2..5} days in {place} for {people}.",
    "My {person} and I disagree about {issue}. How do I bring it up without a fight?",
    "Give me {n:4..10} ideas for {occasion}.",
    "I can't sleep before {event}. Any advice?",
    "What should I pack for {n:3..10} days in {place} in {month}?",
    "Recommend {n:3..6} books for someone who likes {interest}.",
    "I just moved to {place} and know nobody. How do I make friends?",
    "How do I remove {stain} from {thing}?",
    "Write a short message to my {person} to say that {news}.",
    "Pretend to be {character} and tell me about your day.",
    "What are the pros and cons of {choice}?",
    "Help me prepare for {event}. What will people ask me?",
    "Why do {animals} {habit}?",
    "I'm thinking of {choice}. I'm {age:19..64}, and I like {interest}. What do you think?",
    "Tell me something surprising about {concept}.",
    "How can I tell whether {food} has gone bad?",
    "Make a weekly plan for someone who wants to {skill}.",
    "I feel {feeling} because {trouble}. What can I do?",
    "Suggest a name for {named} and explain your choice.",
    "What would happen if {animals} could talk? Tell me in a few sentences.",
    'Please make this message more polite: "{rude}"',
    "What questions should I ask before {choice}?",
    "Play a guessing game with me. The theme is {interest}. You begin.",
    "Teach me {n:3..8} useful words for {event} and use each in a sentence.",
    "What's a good gift for my {person}, who likes {interest}? My budget is {n:10..90/10} dollars.",
    "How does {concept} work? Keep it to {n:3..6} sentences.",
    "Explain step by step how to {chore}.",
    "I tried to {chore} and it went wrong. What are the usual mistakes?",
    "Tell me a bedtime story about {character} and {character_b}.",
    "Which is better for {people}: {place} or {place_b}?",
)
FOLLOW_UPS = (
    ("How do I {chore}?", "Start by reading the instructions and laying out everything you need. Then go slowly, one step at a time.",
     "Thanks. What do I need exactly, and how long will it take?"),
    ("I'd like to {skill}.", "That is a great plan! What draws you to it, and have you tried it before?",
     "I tried once {n:2..9} years ago and gave up after {m:2..6} weeks. I have no patience."),
    ("Tell me about {place}.", "It is a fine place to visit, known for its old streets, good food and friendly people.",
     "Nice. When is the best time to go, and what should {people} do there?"),
    ("What is {concept}?", "In short, it is an idea that helps to explain many things we see every day.",
     "That's too vague. Give me a real example, please."),
    ("My {person} has a birthday soon.", "How nice! Are you planning a party or looking for a present?",
     "A present. It has to do with {interest} and cost less than {n:20..80/10} dollars."),
    ("I feel {feeling} today.", "I am sorry to hear that. Do you want to tell me what happened?",
     "Well, {trouble}. And tomorrow is {event}."),
    ("Can we talk about {issue}?", "Of course. What would you like to know?", "Just give me your honest opinion in a few sentences."),
)  # fmt: skip
PERSONAS = (
    "You are a cheerful assistant who keeps answers short.", "You are a patient teacher.", "You are a helpful assistant.",
    "You are an experienced travel guide and cook.", "You answer like a good friend: warm, direct and honest.",
)  # fmt: skip
SLOTS = {
    "skill": ["learn the guitar", "run five kilometres", "speak Italian", "draw faces", "eat less sugar", "write a novel",
              "learn to swim", "meditate", "grow tomatoes", "play chess", "code a small game", "read more", "bake bread"],
    "concept": ["inflation", "gravity", "photosynthesis", "compound interest", "an algorithm", "the immune system", "a black hole",
                "evolution", "electricity", "a mortgage", "the water cycle", "radio", "yeast", "jet lag", "an eclipse", "a vaccine"],
    "food": ["eggs", "rice", "leftover chicken", "spinach", "mushrooms", "yoghurt", "potatoes", "chickpeas", "carrots", "feta",
             "cabbage", "tofu", "salmon", "courgettes", "lentils"],
    "place": ["Lisbon", "Kyoto", "Edinburgh", "Morocco", "Vancouver", "Naples", "Iceland", "Mexico City", "Copenhagen", "Vietnam",
              "Buenos Aires", "the Alps"],
    "people": ["a family with two small children", "a couple", "three students", "my parents", "somebody who hates crowds",
               "a group of cyclists", "a solo traveller"],
    "person": ["brother", "boss", "flatmate", "best friend", "mother", "neighbour", "colleague", "daughter", "uncle"],
    "issue": ["housework", "money", "noise at night", "the dog", "holiday plans", "screen time", "who does the cooking", "politics"],
    "occasion": ["a rainy Sunday", "a birthday party for a six-year-old", "a first date", "a team lunch", "a farewell party",
                 "a school project about energy", "a picnic", "a small balcony", "a costume made of cardboard"],
    "event": ["a job interview", "my driving test", "a wedding speech", "a maths exam", "a long flight", "a visit to the dentist",
              "my first day at work", "a piano concert", "a half marathon"],
    "month": ["January", "April", "June", "August", "October", "December"],
    "interest": ["gardening", "old films", "space", "detective stories", "hiking", "board games", "history", "football", "cats",
                 "coffee", "sewing", "birds", "puzzles", "science fiction"],
    "stain": ["red wine", "candle wax", "coffee", "ink", "grass stains", "olive oil", "chewing gum"],
    "thing": ["a white shirt", "a wool carpet", "jeans", "a wooden table", "a sofa", "trainers"],
    "news": ["I got the job", "I will be late on Friday", "I broke a favourite cup", "I have to cancel our trip", "I am moving away",
             "I lost the keys", "we won the match", "my best friend forgot my birthday", "I failed a test"],
    "character": ["a retired pirate", "a shy robot", "a baker in ancient Rome", "a lighthouse keeper", "a talking tree", "a tired wizard",
                  "a mouse in a library", "an astronaut", "a very polite dragon", "a snowman in July"],
    "choice": ["buying an electric car", "adopting a dog", "going back to university", "moving to the countryside", "quitting my job",
               "sharing a flat", "becoming a vegetarian", "working nights", "buying a used laptop", "starting a small shop"],
    "animals": ["cats", "crows", "bees", "whales", "dogs", "owls", "ants", "penguins"],
    "habit": ["sleep so much", "live in groups", "make so much noise", "travel so far", "recognise each other", "hide their food"],
    "trouble": ["I broke a favourite cup", "I have to cancel a trip", "my sister is moving away", "I lost my keys", "our team lost again",
                "my best friend forgot my birthday", "I failed a test", "I said something stupid", "nobody answers my messages"],
    "feeling": ["tired", "nervous", "sad", "lonely", "guilty", "restless", "stuck"],
    "named": ["a grey kitten", "a bakery", "a podcast about trees", "a sailing boat", "a quiz team", "a small robot", "a folk band"],
    "rude": ["Send me the file now.", "You forgot again.", "That makes no sense.", "I don't have time for this.", "Be quiet.",
             "Your music is terrible.", "Pay me back.", "This is wrong, do it again."],
    "chore": ["change a bicycle tyre", "boil an egg", "back up my phone", "paint a wall", "descale a kettle", "sew on a button",
              "write a CV", "clean an oven", "repot a plant", "fold a fitted sheet", "sharpen a knife", "set up a tent"],
}  # fmt: skip


def build(seed: int) -> list[Prompt]:
    draw = generator("chat", seed)
    next_talk = in_turn([*((opening,) for opening in OPENINGS), *FOLLOW_UPS], draw)

    def make(attempt: int) -> Turns:
        filled = fill("\0".join(next_talk(attempt)), SLOTS, draw).split("\0")
        turns = tuple(zip(("user", "assistant", "user"), filled, strict=False))
        return (("system", draw.choice(PERSONAS)), *turns) if draw.random() < 0.25 else turns

    return [own("chat", MAX_NEW_TOKENS, turns) for turns in distinct(make)]


KIND = Kind("chat", "questions, advice and small talk, some with earlier turns", 7, MAX_NEW_TOKENS, build)
