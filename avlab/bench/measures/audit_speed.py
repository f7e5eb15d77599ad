"""How many continuations a second an audit makes."""

from avlab.bench.base import Bar, Context, Measure, Result, Table

SLOWEST = Bar("audit-speed", "audited continuations a second after the prefill, slowest rule", "1/s", 2000)


def measure(context: Context) -> Result:
    """The rules of `make audit`, one after the other, in the process that audits."""
    from avlab.bias.process import SOUND_RULES, UNSOUND_RULES, AuditFailed, AuditProcess

    rules, count = (*SOUND_RULES, *UNSOUND_RULES), context.pick(2048, 20_480)
    process = AuditProcess(rules, [0], count, config=context.config)
    try:
        while not process.done.wait(0.5):
            context.progress(*process.progress)
    finally:
        process.close()
    if process.error:
        raise AuditFailed(process.error)
    found = sorted(process.rows.values(), key=lambda row: row["per_second"])
    rows = [[row["label"], round(row["per_second"]), row["prefixes"]] for row in found]
    columns = ["rule", "continuations a second", "target rows computed"]
    return Result(
        {SLOWEST.name: found[0]["per_second"]},
        [Table(f"Audits of {count:,} continuations of one prompt", columns, rows)],
    )


MEASURES = (Measure("audit", "the audit's speed", (SLOWEST,), measure, 150, alone=True),)
