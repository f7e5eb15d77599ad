"""Programming: documented functions of the standard library to complete or edit, and small tasks of our own."""

# ruff: noqa: E501 (a template is one line, however long)

from .base import PROMPTS_A_KIND, Kind, Prompt, Turns, distinct, fill, generator, in_turn, own
from .installed_text import PYTHON_LICENCE, Function, functions

MAX_NEW_TOKENS = 256

COMPLETE = (
    "Complete this Python {what}.\n\n```python\n{header}\n```",
    "Write the body of the {what} below. Answer with code only.\n\n```python\n{header}\n```",
    "Implement `{name}` in Python, with this signature and docstring:\n\n```python\n{header}\n```",
    "Here is the start of a {what} from a module called {module}. Finish it.\n\n```python\n{header}\n```",
    "Write a Python {what} `{signature}` for this description: {summary}",
    "I need a {what} named `{name}`. What it should do: {summary} Write it in Python, with a short docstring.",
)
EDIT = (
    "Add a comment above each step of this {what} and change nothing else.\n\n```python\n{source}\n```",
    "Add type hints to this {what}. Return the whole {what}.\n\n```python\n{source}\n```",
    "Rename the variables of this {what} so that they say what they hold. Return the whole code.\n\n```python\n{source}\n```",
    "Write two unit tests, with the unittest module, for this {what}.\n\n```python\n{source}\n```",
    "Translate this Python {what} to {language}.\n\n```python\n{source}\n```",
    "Review this {what}: quote each line that could fail and give a corrected version.\n\n```python\n{source}\n```",
)
TASKS = """
    checks whether a word is a palindrome, ignoring case and spaces
    returns the {n:2..9} most frequent words of a text
    merges two sorted lists without calling a sort function
    computes the n-th Fibonacci number with a loop
    finds all prime numbers below {n:50..900/50}
    reverses the words of a sentence but not their letters
    flattens a list of lists of any depth
    counts the vowels in a string
    converts a Roman numeral to an integer
    converts an integer below {n:1000..4000/500} to a Roman numeral
    finds the longest common prefix of a list of strings
    removes duplicates from a list and keeps the order
    rotates a list by {n:2..7} places to the right
    checks whether the brackets (), [] and {{}} of a string are balanced
    performs a binary search and returns -1 if the value is missing
    sorts a list with insertion sort
    sorts a list with merge sort
    computes the greatest common divisor of two numbers
    groups a list of words by their first letter
    groups words that are anagrams of each other
    validates an e-mail address with simple rules
    parses a line of the form key=value;key=value into a dictionary
    formats a number of seconds as hours, minutes and seconds
    computes the running mean of the last {n:3..12} values of a stream
    implements a stack with push, pop and minimum
    implements a queue with two stacks
    implements a bounded cache that drops the entry used longest ago, with room for {n:8..128/8} entries
    counts the words, lines and characters of a text file
    reads a CSV file and prints the sum of the column '{column}'
    reads a JSON file and returns the entries whose '{column}' is above {n:5..90/5}
    finds the second largest number in a list
    computes the transpose of a matrix
    multiplies two matrices given as lists of lists
    prints a triangle of stars with {n:4..15} rows
    prints the multiplication table of {n:3..19}
    checks whether a year is a leap year
    finds the shortest path in a grid with breadth-first search
    lists all permutations of a string
    lists all subsets of a list with at most {n:2..5} elements
    splits a list into chunks of {n:2..10} elements
    computes the edit distance of two strings
    encrypts a text with a Caesar cipher shifted by {n:2..23}
    generates a random password of {n:8..24} characters
    computes the area of a polygon from its corners
    finds the missing number in a list of 1 to {n:10..100/10}
    converts a temperature between Celsius and Fahrenheit
    retries a failing call {n:2..6} times, waiting longer each time
    measures how long another function takes
    inserts a value into a binary search tree
    computes the depth of a binary tree
    detects a cycle in a linked list
    reverses a linked list
    draws a histogram of a list of numbers with '#' characters
    evaluates an expression in reverse Polish notation
    compresses a string by counting repeated characters
    finds the first character that does not repeat
    replaces every tab of a text by {n:2..8} spaces
    writes a list of dictionaries with the fields 'name' and '{column}' to a CSV file
""".strip().splitlines()
QUERIES = """
    that lists the {n:3..20} customers who spent the most in {month}
    that counts orders by '{column}' and shows only groups with more than {n:5..50/5} orders
    that finds employees who earn more than the mean of their department
    that deletes sessions older than {n:7..90} days
    that joins products with their suppliers and sorts by '{column}'
    that creates a table for library loans with a book, a reader and a due date
    that finds e-mail addresses used by more than one account
    that computes the monthly total of '{column}' for the year {n:2015..2024}
    that lists rooms not booked in {month}
    that raises every price below {n:10..80/5} by {m:2..15} percent
""".strip().splitlines()
SLOTS = {
    "language": ["Python", "JavaScript", "Java", "C", "C++", "Go", "Rust", "TypeScript", "Ruby"],
    "column": ["price", "age", "score", "weight", "duration", "rating", "quantity", "temperature"],
    "month": ["January", "March", "May", "July", "August", "October", "December"],
}
FORMS = (
    "Write {task}.", "Write {task}. Code only, no explanation.", "Write {task}, with an example of its use.",
    "Please write {task} and explain each line in a comment.", "How would you write {task}?",
)  # fmt: skip
QUERY_FORMS = (
    "Write an SQL statement {query}.",
    "Give me SQL {query}. Use clear aliases.",
    "I need a PostgreSQL query {query}.",
)


def _from_library(template: str, function: Function, language: str) -> Turns:
    what = "method" if function.signature.partition("(")[2].startswith(("self", "cls")) else "function"
    text = template.format(
        what=what, name=function.name, module=function.module, header=function.header, source=function.source,
        signature=function.signature.removesuffix(":"), summary=_summary(function.docstring), language=language,
    )  # fmt: skip
    return (("user", text),)


def _summary(docstring: str) -> str:
    """The first paragraph of a docstring, ended by a full stop."""
    return " ".join(docstring.partition("\n\n")[0].split()).rstrip(".:") + "."


def build(seed: int) -> list[Prompt]:
    draw = generator("code", seed)
    collection = []
    next_completion, next_edit = in_turn(COMPLETE, draw), in_turn(EDIT, draw)
    chosen = draw.sample(functions(), min(len(functions()), PROMPTS_A_KIND * 2 // 3))
    for attempt, function in enumerate(chosen):
        short = len(function.source) < 900
        template = (next_edit if attempt % 3 == 2 and short else next_completion)(
            attempt // 3 if short else attempt
        )
        turns = _from_library(template, function, draw.choice(SLOTS["language"][1:]))
        collection.append(
            Prompt("code", turns, f"standard library, {function.module}", PYTHON_LICENCE, MAX_NEW_TOKENS)
        )
    next_task = in_turn([*TASKS, *QUERIES], draw)

    def make(attempt: int) -> Turns:
        task = next_task(attempt)
        if task in QUERIES:
            template = draw.choice(QUERY_FORMS).replace("{query}", task.strip())
        else:
            template = draw.choice(FORMS).replace("{task}", f"a {{language}} function that {task.strip()}")
        return (("user", fill(template, SLOTS, draw).replace("{{}}", "{}")),)

    written = distinct(make, PROMPTS_A_KIND - len(collection))
    return collection + [own("code", MAX_NEW_TOKENS, turns) for turns in written]


KIND = Kind("code", "functions to write, complete or edit", 2, MAX_NEW_TOKENS, build)
