"""Word problems and calculations to be worked step by step, with numbers drawn by the seed."""

# ruff: noqa: E501 (a template is one line, however long)

from .base import Kind, Prompt, Turns, distinct, fill, generator, in_turn, own

MAX_NEW_TOKENS = 200

PROBLEMS = (
    "{name} buys {a:3..9} boxes of {thing}, each with {b:6..24} in it, and gives {c:4..15} away. How many {thing} are left?",
    "A train travels {a:60..140/10} kilometres an hour for {b:2..6} hours and then {c:40..90/10} kilometres an hour for {d:1..4} hours. How far does it go?",
    "{name} earns {a:12..35} dollars an hour and works {b:4..9} hours a day, {c:3..6} days a week. How much does {name} earn in {d:2..8} weeks?",
    "A baker makes {a:80..240/10} rolls. {b:10..60/5} percent are sold before noon and {c:10..25} more in the afternoon. How many rolls remain?",
    "A rectangular garden is {a:6..30} metres long and {b:4..20} metres wide. A fence costs {c:8..25} dollars a metre. What does it cost to fence the garden?",
    "{name} has {a:24..60/6} {thing} and {name_b} has twice as many. They put them together and share them equally with {b:1..4} more children. How many does each child get?",
    "A tank holds {a:200..900/50} litres. A pump fills {b:10..40/5} litres a minute while {c:2..8} litres a minute leak out. How many minutes until it is full?",
    "{name} reads {a:12..40} pages a day. A book has {b:240..600/20} pages, and {name} has already read {c:30..120/10}. How many days are needed to finish?",
    "Tickets cost {a:8..25} dollars for adults and {b:4..7} dollars for children. A group of {c:3..12} adults and {d:5..20} children goes in. What do they pay in total?",
    "{name} saves {a:15..90/5} dollars a week. After {b:8..26} weeks {name} spends {c:40..110/10} dollars on {item}. How much is left?",
    "A recipe for {a:2..6} people needs {b:150..600/50} grams of flour. How much flour is needed for {c:8..20} people?",
    "A shop lowers the price of {item} from {a:40..400/20} dollars by {b:5..45/5} percent, and then by another {c:5..20/5} percent. What is the final price?",
    "{name} runs {a:3..9} laps of {b:300..800/50} metres each on {c:3..6} days of the week. How many kilometres is that in {d:2..6} weeks?",
    "In a class of {a:26..36} pupils, {b:6..12} play an instrument, {c:7..15} play a sport and {d:2..5} do both. How many do neither?",
    "{name} fills {a:4..12} shelves with {b:15..45} books each and has {c:7..30} books left over. How many books are there in all?",
    "A farmer collects {a:120..480/12} eggs and packs them by the dozen. Each dozen sells for {b:3..7} dollars. How much money does the farmer take?",
    "A car uses {a:5..9} litres for 100 kilometres. Petrol costs {b:2..3} dollars a litre. What does a journey of {c:200..900/100} kilometres cost?",
    "{name} is {a:4..15} years older than {name_b}. In {b:3..10} years, {name_b} will be {c:18..30}. How old is {name} now?",
    "A cinema has {a:12..28} rows of {b:14..30} seats. For one film, {c:60..95/5} percent of the seats are taken. About how many people are watching?",
    "{name} plants {a:5..14} rows of {b:8..20} {plant}. {c:5..30} of them do not grow. How many {plant} grow?",
    "Three friends share a bill of {a:60..300/6} dollars. They add a tip of {b:10..20/5} percent first. How much does each of them pay?",
    "A printer prints {a:12..45} pages a minute. How long does it take to print {b:3..9} copies of a report of {c:30..120/10} pages?",
    "{name} walks to work in {a:12..40} minutes and cycles back in half that time, {b:4..6} days a week. How many minutes a week is {name} under way?",
    "A lorry can carry {a:900..3000/100} kilograms. How many crates of {b:15..60/5} kilograms fit if the driver and tools weigh {c:90..180/10} kilograms?",
    "A phone plan costs {a:10..30} dollars a month and {b:2..9} cents for each message. What is the bill after {c:3..12} months with {d:50..200/10} messages a month?",
    "{name} cuts a ribbon of {a:3..12} metres into pieces of {b:15..60/5} centimetres. How many whole pieces are there and how long is the rest?",
    "A school orders {a:20..60} desks at {b:45..120/5} dollars and twice as many chairs at {c:15..45/5} dollars. What is the total?",
    "The temperature is {a:12..28} degrees at noon. It falls {b:2..4} degrees every hour for {c:3..8} hours. What is it then?",
    "{name} bakes {a:36..144/12} biscuits, keeps a third of them, and puts the rest in bags of {b:4..8}. How many bags are full?",
    "A swimming pool is {a:15..50/5} metres long. {name} swims {b:10..40/2} lengths a day for {c:5..14} days. How many metres is that?",
    "A bag has {a:4..12} red, {b:5..15} blue and {c:3..9} green marbles. What is the chance of drawing a blue one?",
    "The mean of {a:4..8} numbers is {b:12..40}. All but one of them add up to {c:30..60}. What is the last number?",
)
CALCULATIONS = (
    "Calculate {a:23..98} × {b:12..89}. Show the partial products.",
    "Work out {a:1200..9800/7} ÷ {b:6..24} by long division and give the remainder.",
    "Add {a:1234..9876}, {b:345..4567} and {c:89..987} column by column.",
    "Subtract {a:1111..4999} from {b:5000..9999} and check the result by adding.",
    "Solve {a:2..9}x + {b:3..40} = {c:45..120} for x, one step a line.",
    "Solve {a:3..9}(x - {b:2..12}) = {c:12..90/3} and show every step.",
    "What is {a:1..5}/{b:6..9} + {c:1..4}/{d:5..11}? Use a common denominator and simplify.",
    "Evaluate ({a:12..60} + {b:5..40}) × {c:3..12} - {d:10..99} in the right order.",
    "Find the greatest common divisor of {a:84..960/12} and {b:90..900/18} with Euclid's algorithm.",
    "Write {a:60..990/6} as a product of prime numbers, one division a line.",
    "Convert {a:17..250} to binary by repeated division by two.",
    "What is {a:5..95/5}% of {b:120..2400/40}? Explain each step.",
    "List the first {a:6..12} terms of the sequence that starts at {b:2..30} and grows by {c:3..17}.",
    "Make the multiplication table of {a:6..19}, from 1 to {b:8..12}.",
    "Sum the whole numbers from {a:1..20} to {b:30..90}. Use the formula and show the numbers you put in.",
    "Round {a:1000..99999}.{b:101..989} to the nearest hundred, ten, whole number and tenth.",
)
ENDINGS = (
    "Show your work step by step.", "Think step by step and end with 'Answer:' and the number.", "Explain each step briefly.",
    "Write the calculation line by line.", "", "First list what is given, then solve.", "Give the reasoning and the result.",
)  # fmt: skip
SLOTS = {
    "name": [
        "Anna",
        "Ben",
        "Carla",
        "Daniel",
        "Eva",
        "Farid",
        "Grace",
        "Henry",
        "Iris",
        "Jack",
        "Kavya",
        "Leo",
        "Maria",
        "Nico",
        "Olga",
        "Peter",
        "Rania",
        "Sofia",
        "Theo",
        "Wei",
        "Zara",
    ],
    "thing": [
        "pencils",
        "marbles",
        "stickers",
        "apples",
        "cards",
        "buttons",
        "shells",
        "candles",
        "stamps",
        "lemons",
    ],
    "item": [
        "a bicycle",
        "a coat",
        "a telescope",
        "a tent",
        "a guitar",
        "a chair",
        "a camera",
        "a watch",
        "a printer",
    ],
    "plant": ["tomatoes", "beans", "tulips", "carrots", "sunflowers", "cabbages", "onions"],
}


def build(seed: int) -> list[Prompt]:
    draw = generator("arithmetic", seed)
    next_problem = in_turn([*PROBLEMS, *CALCULATIONS], draw)

    def make(attempt: int) -> Turns:
        template = next_problem(attempt)
        question = fill(template, SLOTS, draw)
        if template in PROBLEMS:
            question = f"{question} {draw.choice(ENDINGS)}".strip()
        return (("user", question),)

    return [own("arithmetic", MAX_NEW_TOKENS, turns) for turns in distinct(make)]


KIND = Kind("arithmetic", "sums and word problems, worked step by step", 3, MAX_NEW_TOKENS, build)
