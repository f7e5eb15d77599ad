"""Text that is on every machine that can run the lab: the source of Python's library, and Python's reference.

Read when prompts are built; none of it is copied into the project. It differs between versions of Python.
"""

import ast
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .base import WorkloadError

PYTHON_LICENCE = "PSF-2.0"
EMPHASIS = re.compile(r"(?<![\w`\"*])\*{1,2}(\w[\w .-]*\w)\*{1,2}(?![\w*])")
MODULES = """
    argparse ast base64 bdb bisect calendar code codecs codeop collections/__init__ colorsys compileall
    concurrent/futures/_base configparser contextlib copy copyreg csv dataclasses datetime _pydatetime
    _pydecimal difflib dis email/utils email/message enum filecmp fileinput fnmatch fractions ftplib
    functools genericpath getopt getpass gettext glob graphlib gzip hashlib heapq hmac html/__init__
    http/client http/cookies http/cookiejar http/server imaplib importlib/util inspect io ipaddress
    json/__init__ json/decoder json/encoder keyword linecache locale logging/__init__ logging/handlers
    mailbox mimetypes modulefinder multiprocessing/pool netrc ntpath numbers operator optparse os pathlib
    pathlib/__init__ pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats
    pyclbr pydoc queue quopri random re/__init__ reprlib rlcompleter sched secrets selectors shelve shlex
    shutil smtplib socket socketserver statistics stat string string/__init__ subprocess symtable sysconfig
    tabnanny tarfile tempfile textwrap threading timeit token tokenize trace traceback types typing
    unittest/case unittest/mock urllib/parse urllib/request urllib/robotparser uuid warnings wave weakref
    webbrowser wsgiref/util xml/dom/minidom xml/etree/ElementTree xml/sax/saxutils xmlrpc/client zipapp
    zipfile zipfile/__init__
"""


class Function(NamedTuple):
    """A documented function of the standard library, without outer indentation.

    `signature` is the line with `def`; `body` is the source below the docstring.
    """

    module: str
    name: str
    signature: str
    docstring: str
    body: str

    @property
    def header(self) -> str:
        """Signature and docstring: what a model is asked to complete."""
        end = "\n    " if "\n" in self.docstring else ""
        return f'{self.signature}\n    """{textwrap.indent(self.docstring, "    ").strip()}{end}"""'

    @property
    def source(self) -> str:
        return f"{self.header}\n{textwrap.indent(self.body, '    ')}"


@lru_cache(maxsize=1)
def functions() -> tuple[Function, ...]:
    """The library's public functions with a docstring of 1 to 12 lines and a body of 2 to 30 lines.

    Raises WorkloadError when this Python came without its library's source.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found: dict[tuple[str, str], Function] = {}
    for module in MODULES.split():
        path = root / f"{module}.py"
        if path.is_file():
            for function in _functions_of(module, path.read_text(encoding="utf-8")):
                found.setdefault((function.name, function.docstring), function)
    if len(found) < 200:
        raise WorkloadError(
            f"the kind code needs the source of Python's standard library, and {root} has too little of it; "
            "use another kind, or a Python that was installed with its source."
        )
    return tuple(found.values())


def _functions_of(module: str, source: str) -> Iterator[Function]:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or len(node.body) < 2:
            continue
        docstring = ast.get_docstring(node) or ""
        first, last = node.body[0].end_lineno or 0, node.end_lineno or 0
        if not (40 <= len(docstring) <= 600 and docstring.count("\n") < 12 and 2 <= last - first <= 30):
            continue
        body = "\n".join(_shifted(line, node.body[1].col_offset) for line in lines[first:last]).strip("\n")
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        name = module.removesuffix("/__init__").replace("/", ".").replace("_pydatetime", "datetime")
        name = name.replace("_pydecimal", "decimal")
        yield Function(
            name, node.name, f"def {node.name}({ast.unparse(node.args)}){returns}:", docstring, body
        )


def _shifted(line: str, indent: int) -> str:
    """A line moved to the left; a comment that stands further left than the code goes to the margin."""
    return line[indent:] if line[:indent].isspace() and line.strip() else line.strip()


@lru_cache(maxsize=1)
def reference_passages(shortest: int = 260, longest: int = 1000) -> tuple[tuple[str, str], ...]:
    """(topic, passage) pairs from the Python reference, a passage of `shortest` to `longest` characters."""
    from pydoc_data.topics import topics

    passages: dict[str, str] = {}
    for topic, text in sorted(topics.items()):
        for passage in _passages_of(text, shortest, longest):
            passages.setdefault(passage, _heading(topic, text))
    return tuple((topic, passage) for passage, topic in passages.items())


def _heading(topic: str, text: str) -> str:
    """The title above the text, such as "Comparisons", or else the topic's name."""
    title, _, rest = text.partition("\n")
    return title.replace('"', "`") if rest.startswith(("***", "===")) else topic


def _passages_of(text: str, shortest: int, longest: int) -> Iterator[str]:
    """Neighbouring paragraphs of prose, joined until long enough; tables, grammars and headings part them."""
    gathered = ""
    for paragraph in re.split(r"\n\s*\n", text):
        flat = " ".join(paragraph.split())
        prose = (
            bool(re.match(r"[A-Z\"]", flat))
            and len(flat) > 60
            and not re.search(r"::=|\*{4}|={4}|-{4}|>>>", flat)
        )
        if prose:
            gathered = f"{gathered}\n\n{flat}".strip()
        if gathered and (not prose or len(gathered) >= shortest):
            if shortest <= len(gathered) <= longest and not gathered.endswith(":"):
                yield EMPHASIS.sub(r"\1", gathered).replace('"', "`")
            gathered = ""
