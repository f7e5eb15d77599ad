"""`avlab bias audit` and `avlab bias text`: the engine's step, continuation by continuation, and the text it writes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from avlab.bias.grammar import CaseError
from avlab.bias.process import (
    PROMPT,
    PUBLISHED_AUC,
    PUBLISHED_IN,
    SOUND_RULES,
    TEXT_POSITIONS,
    TEXT_RULES,
    TEXT_SEED,
    AskedProcess,
    AuditFailed,
    AuditProcess,
    TextProcess,
)
from avlab.bias.text_measures import MEASURES, known, within_noise
from avlab.commands import terminal
from avlab.commands.options import Json
from avlab.config import RunConfig
from avlab.speculation.sampling import MODELS_OWN

NOTICEABLE = 0.02  # exact total variation from which on an audit must reject
UNFINISHED, UNEXPECTED = 3, 4  # exit codes: the duration was over; a verdict is not what the rule deserves
RULES = (
    "adaptive[:head|raw], fixed:k, verify:k, none, maximum:t, entropy:t, margin:t, head:t, budget:earlier, or UNSOUND: "
    "drawn:t, budget:same-step, noise:correction; may be given again."
)
Target = Annotated[str | None, typer.Option("--target", help="As in a run.")]
Drafter = Annotated[
    str | None, typer.Option("--drafter", help="As in a run; a block drafter, ngram or suffix.")
]
Temperature = Annotated[
    float, typer.Option("--temperature", help="Sampling temperature of target and drafter, above 0.")
]


def audit(
    rule: Annotated[
        list[str] | None, typer.Option("--rule", help=f"{RULES} Default: some sound ones.")
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", help="What the user says; the answer's first tokens are audited.")
    ] = PROMPT,
    continuations: Annotated[
        int, typer.Option("--continuations", min=100, help="Continuations for each rule and seed.")
    ] = 20_000,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Audits of each rule, with seeds 0, 1 and so on.")
    ] = 1,
    temperature: Temperature = 1.0,
    target: Target = None,
    drafter: Drafter = None,
    K: Annotated[int, typer.Option("--K", min=2, max=7, help="Draft positions.")] = 2,
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            help="A file of JSON lines that keeps finished audits; those in it are not made again.",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            "--duration", min=0, help="Stop after so many seconds; with --results the same command goes on."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Audit the engine's step: fresh continuations of a prompt against the target's exact distribution, by a G-test.

    One and two tokens, float32. Exit code 4: a sound rule is rejected, or an unsound one is not though its exact total
    variation is 0.02 or more or it uses noise twice. Exit code 3: the duration was over before the audits were.
    """
    if not prompt.strip():
        raise CaseError("--prompt is empty: say something that the model can answer.")
    config = _config(temperature=temperature, target=target, drafter=drafter)
    rules = rule or list(SOUND_RULES)
    process = AuditProcess(rules, range(seeds), continuations, prompt, config, K, results)
    finished = _wait(process, duration)
    rows = [row for row in process.rows.values() if row["done"]]
    if as_json:
        terminal.print_json(
            {"prompt": prompt, "temperature": temperature, "finished": finished, "audits": rows}
        )
    elif rows:
        _show_audits(rows)
    if not finished:
        kept = "the same command goes on" if results else "give --results FILE to go on from there"
        terminal.errors().print(
            f"The {duration:g} seconds are over, {len(rows)} audits were finished: {kept}."
        )
    if any(unexpected(row) for row in rows):
        raise typer.Exit(UNEXPECTED)
    if not finished:
        raise typer.Exit(UNFINISHED)


def text(
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            help=f"{RULES} The first is what the others are compared with. Default: {' and '.join(TEXT_RULES)}.",
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option("--requests", min=2, help="Requests answered under each rule.")
    ] = 64,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", min=1, help="Most tokens of an answer.")
    ] = 96,
    workload: Annotated[str, typer.Option("--workload", help="As in a run.")] = "mixed",
    temperature: Temperature = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of prompts and sampling.")] = TEXT_SEED,
    target: Target = None,
    drafter: Drafter = None,
    K: Annotated[int, typer.Option("--K", min=1, max=7, help="Draft positions.")] = TEXT_POSITIONS,
    as_json: Json = False,
) -> None:
    """What a rule does to text: log-probability under the target, entropy and repetition of whole answers.

    Every rule answers the same requests with the same seeds. Intervals are 95 % bootstraps over requests; differences
    are paired by request.
    """
    config = _config(temperature=temperature, target=target, drafter=drafter, workload=workload, seed=seed)
    process = TextProcess(rule or TEXT_RULES, requests, max_new_tokens, config, K)
    _wait(process, None)
    rows = list(process.rows.values())
    if as_json:
        terminal.print_json({"workload": workload, "temperature": temperature, "texts": rows})
    else:
        _show_texts(rows)


def _config(**given: Any) -> RunConfig:
    """At the temperature given; an audit cuts nothing."""
    values = MODELS_OWN._asdict() | {name: value for name, value in given.items() if value is not None}
    return RunConfig.make(values)


def _wait(process: AskedProcess, seconds: float | None) -> bool:
    """Show progress until the process is done; False if its seconds were over first. Raises AuditFailed."""
    end = None if seconds is None else time.monotonic() + seconds
    try:
        with terminal.bar() as progress:
            while not process.done.wait(0.2):
                progress(*process.progress)
                if end is not None and time.monotonic() > end:
                    return False
    finally:
        process.close()
    if process.error:
        raise AuditFailed(process.error)
    return True


def unexpected(row: Mapping[str, Any]) -> bool:
    """Whether an audit's verdict is not what the rule deserves."""
    if row["sound"]:
        return row["rejected"]
    noticeable = row["rule"].startswith("noise") or (row["exact_total_variation"] or 0.0) >= NOTICEABLE
    return noticeable and not row["rejected"]


def _table(*names: str, left: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=name == "rule")
    return table


def _label(row: Mapping[str, Any]) -> str:
    return row["label"] if row["sound"] else f"[red]{row['label']}[/red]"


def _show_audits(rows: list[dict[str, Any]]) -> None:
    table = _table(
        "rule", "seed", "continuations", "a second", "AUC", "exact TV", "TV 1 token", "floor", "p, 1 token",
        "p, 2 tokens", "verdict", left=("rule", "verdict"),
    )  # fmt: skip
    for row in rows:
        one, two, exact, auc = row["one"], row["two"], row["exact_total_variation"], row["auc"]
        verdict = ("[red]rejected[/red]" if row["rejected"] else "not rejected") + (
            " (!)" if unexpected(row) else ""
        )
        table.add_row(
            _label(row), str(row["seed"]), f"{row['continuations']:,}", f"{row['per_second']:,.0f}",
            "–" if auc is None else f"{auc:.3f}", "–" if exact is None else f"{exact:.4f}",
            f"{one['total_variation']:.4f}", f"{one['noise_floor']:.4f}", f"{one['p_value']:.3g}",
            f"{two['p_value']:.3g}", verdict,
        )  # fmt: skip
    out = terminal.answers()
    out.print(table)
    said = f"Rejected: p < 0.01 after correction for {rows[0]['tests']} tests."
    if rows[0]["ranking"]:
        said += (
            f" AUC: how well the rule's score ranks acceptance, over {rows[0]['labelled']:,} first drafts behind "
            f"sixteen prompts. All scores: {ranking(rows[0]['ranking'])}. Published: {published()}."
        )
    else:
        said += " No AUC: this drafter has no draft rows to score."
    out.print(said, soft_wrap=True)


def ranking(auc: Mapping[str, float]) -> str:
    """AUCs by score, the best first."""
    return ", ".join(f"{name} {auc[name]:.3f}" for name in sorted(auc, key=lambda name: -auc[name]))


def published() -> str:
    """The published AUCs with their source."""
    values = ", ".join(f"{name} {value:.3f}" for name, value in PUBLISHED_AUC.items())
    return f"{values} ({PUBLISHED_IN})"


def _show_texts(rows: list[dict[str, Any]]) -> None:
    table = _table(
        "measure",
        *(row["label"] for row in rows),
        *(f"{row['label']} less" for row in rows[1:]),
        left=("measure",),
    )
    for name, title in MEASURES.items():
        cells = [_interval(row["measures"][name]) for row in rows]
        for row in rows[1:]:
            change = row["difference"][name]
            cells.append(_interval(change) + (" (noise)" if within_noise(known(change)) else ""))
        table.add_row(title, *cells)
    out, tokens = terminal.answers(), ", ".join(f"{row['tokens']:,}" for row in rows)
    out.print(table)
    out.print(
        f"{rows[0]['requests']} requests, {tokens} tokens. 95 % bootstrap intervals "
        f"over requests; less: minus {rows[0]['label']}, paired by request. (noise): the interval holds 0.",
        soft_wrap=True,
    )


def _interval(values: list[float | None]) -> str:
    interval = known(values)
    if interval is None:
        return "–"
    estimate, low, high = interval
    return f"{estimate:.3f} [{low:.3f}, {high:.3f}]"
