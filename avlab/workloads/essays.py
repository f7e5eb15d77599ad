"""Essays, letters, reports and opinions on general subjects."""

# ruff: noqa: E501 (a template is one line, however long)

from .base import Kind, Prompt, on_subjects, own

MAX_NEW_TOKENS = 384

SUBJECTS = """
    public libraries; city parks; learning a second language; night trains; the price of water; school uniforms; remote work;
    museums that charge no entry; the history of paper; bicycles in the city; honest advertising; the value of boredom;
    growing food at home; the invention of the clock; friendship in old age; space telescopes; the four-day week; small shops;
    reading aloud to children; the sea as a border; video games as art; fast fashion; volunteering; handwriting; nuclear power;
    the right to repair; living without a car; the first railways; sports and money; the ethics of zoos; maps; silence;
    neighbours; how cities stay cool; vaccination; the printing press; travelling slowly; keeping a diary; tipping in restaurants;
    street music; the night sky; homework; plastic packaging; the moon landing; democracy in small towns; dams and rivers;
    cooking for strangers; being wrong; the smell of rain; the future of newspapers; wind farms; teaching history; apprenticeships;
    the spice trade; chess; antibiotics; migration; the weather forecast; old photographs; noise; taxes on sugar; bees;
    public swimming pools; the invention of zero; earthquakes and architecture; letters; minimum wages; voting at sixteen;
    the Roman roads; artificial light; family recipes; queues; inherited wealth; lighthouses; mountain villages; robots in care homes;
    the end of cash; curiosity; deserts; the common cold; bridges; theatre in schools; trust in science; shared flats
"""
FORMS = (
    "Write an essay of {words} words about {subject}.",
    "Write a short essay on {subject} for {reader}.",
    "Argue in favour of taking {subject} more seriously. About {words} words.",
    "Discuss {subject}: first one side, then the other, then your own view.",
    "Write the opening paragraphs of a magazine article about {subject}. The tone should be {tone}.",
    "Write a {tone} newspaper column about {subject}.",
    "What has {subject} to do with {subject_b}? Write an essay that connects them.",
    "Write a letter to {reader} in which you explain why {subject} matters to you.",
    "Write a speech of {words} words on {subject}, to be given to {reader}.",
    "Describe how people may think about {subject} in the year {year:2050..2120/10}.",
    "Write a {tone} reflection on {subject}, beginning with a memory.",
    "Compare {subject} today with a hundred years ago in {n:3..5} paragraphs.",
    "Write an introduction, {n:2..4} arguments and a conclusion on this subject: {subject}.",
    "Tell the story of somebody whose life was changed by {subject}. About {words} words.",
    "Write a {tone} review of an imaginary book about {subject}.",
    "Somebody says that {subject} will soon be forgotten. Answer in an essay with a title.",
)
SLOTS = {
    "subject": [" ".join(subject.split()) for subject in SUBJECTS.split(";")],
    "words": ["150", "200", "250", "300", "400"],
    "tone": ["calm", "funny", "critical", "warm", "sober", "hopeful", "ironic", "thoughtful"],
    "reader": ["a ten-year-old", "a town council", "first-year students", "an old friend", "a sceptical engineer",
               "new teachers", "your future self", "visitors from abroad", "readers of a local newspaper"],
}  # fmt: skip


def build(seed: int) -> list[Prompt]:
    return [own("essays", MAX_NEW_TOKENS, turns) for turns in on_subjects("essays", FORMS, SLOTS, seed)]


KIND = Kind("essays", "essays, letters, speeches and columns", 5, MAX_NEW_TOKENS, build)
