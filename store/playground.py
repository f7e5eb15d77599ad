"""What the playground's prompts were given, of runs that keep text."""

import duckdb
import msgspec

from avlab.store.plain import plain
from avlab.store.runs import rows
from avlab.wire.frames import Tokens


def generations(con: duckdb.DuckDBPyConnection, run: str) -> list[dict]:
    """The playground's generations of which the steps are stored, in order: request, arm, step (the first), prompt,
    temperature, top_k, top_p, seed, finish, output_tokens. All but the first three are None while it is served.
    """
    return plain(
        rows(
            con,
            """
            WITH shown AS (SELECT request, min(step) AS step FROM tokens WHERE run = $run::UUID GROUP BY request),
                begun AS (SELECT step AS since, arm FROM blocks WHERE run = $run::UUID AND kind = 'playground'),
                ended AS (SELECT * EXCLUDE (steps) FROM requests WHERE run = $run::UUID)
            SELECT shown.request, arm, step, prompt, temperature, top_k, top_p, seed, finish, output_tokens
            FROM shown ASOF LEFT JOIN begun ON shown.step >= begun.since LEFT JOIN ended USING (request)
            ORDER BY step
            """,
            {"run": run},
        )
    )


def generation_steps(con: duckdb.DuckDBPyConnection, run: str, request: int) -> list[Tokens]:
    """The steps of one generation, in order."""
    sql = "SELECT detail FROM tokens WHERE run = ?::UUID AND request = ? ORDER BY step"
    return [
        msgspec.json.decode(detail, type=Tokens) for (detail,) in con.execute(sql, [run, request]).fetchall()
    ]
