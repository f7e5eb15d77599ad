"""Kills, stops and full disks at random moments of real runs; after each, every acknowledged row must be there.

`make torture` runs ROUNDS of them (100) into FOLDER; what is done stays done, so the same command goes on after a stop.
Each line of FOLDER/rounds.jsonl is one round: what was done to whom, after how many seconds, and what was found.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from avlab.store import queries
from avlab.store.database import Database

HERE = Path(__file__).parent
DEEDS = ("kill the owner", "kill the worker", "kill both", "stop the owner", "end the owner", "fill the disk")
# seconds: until something is done to a run that is served; for that to begin; for processes to be gone
LONGEST, PREPARING, SETTLE = 8.0, 90.0, 30.0
SERVE = (
    "run",
    "--duration",
    "60",
    "--max-num-seqs",
    "4",
    "--arrival",
    "closed:4",
    "--threads",
    "1",
    "--json",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path("build/torture"))
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    record = asked.folder / "rounds.jsonl"
    done = len(record.read_text().splitlines()) if record.exists() else 0
    lost = 0
    for number in range(done, asked.rounds):
        found = one_round(asked.folder, random.Random(f"{asked.seed}/{number}"), number)
        lost += bool(found["wrong"])
        with record.open("a") as file:
            file.write(json.dumps(found) + "\n")
        print(json.dumps(found), flush=True)
    rounds = [json.loads(line) for line in record.read_text().splitlines()]
    wrong = [each for each in rounds if each["wrong"]]
    print(
        f"{len(rounds)} rounds, {sum(each['rows'] for each in rounds):,} acknowledged frames, {len(wrong)} wrong."
    )
    return 1 if wrong else 0


def one_round(folder: Path, chance: random.Random, number: int) -> dict:
    """Serve, do something to it at a random moment, and look; what was found."""
    database, promised = folder / "lab.duckdb", folder / "acknowledged.txt"
    deed, seconds = chance.choice(DEEDS), chance.uniform(0.5, LONGEST)
    environment = {**os.environ, "AVLAB_ACKNOWLEDGED": str(promised), "OMP_NUM_THREADS": "1"}
    if deed == "fill the disk":
        size = database.stat().st_size if database.exists() else 1 << 20
        environment["AVLAB_LARGEST_FILE"] = str(size + chance.randrange(1 << 10, 4 << 20))
    log = folder / "owner.log"
    with log.open("wb") as said:
        command = [sys.executable, str(HERE / "owner.py"), *SERVE, "--database", str(database)]
        owner = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        if chance.random() < 0.75:  # else while it starts
            until_acknowledged(promised, owner)
        time.sleep(seconds)
        do(deed, owner, chance)
        leave(owner)
    wrong = check(database, promised)
    if "Traceback" in log.read_text(errors="replace"):
        wrong.append("the owner printed a traceback")
    lines = promised.read_text().splitlines() if promised.exists() else []
    return {"round": number, "deed": deed, "seconds": round(seconds, 2), "rows": len(lines), "wrong": wrong}


def until_acknowledged(promised: Path, owner: subprocess.Popen) -> None:
    """Wait until more is acknowledged than there was: the run is served."""
    before, end = size_of(promised), time.monotonic() + PREPARING
    while size_of(promised) == before and owner.poll() is None and time.monotonic() < end:
        time.sleep(0.1)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def do(deed: str, owner: subprocess.Popen, chance: random.Random) -> None:
    """The deed; where it leaves the owner alive, the run goes on for a moment."""
    if owner.poll() is not None:
        return
    workers = psutil.Process(owner.pid).children(recursive=True)
    if deed in ("kill the worker", "kill both") and workers:
        chance.choice(workers).kill()
    if deed in ("kill the owner", "kill both"):
        owner.kill()
    elif deed == "end the owner":
        owner.terminate()
    elif deed == "stop the owner":
        owner.send_signal(signal.SIGSTOP)
        time.sleep(chance.uniform(1, 16))
        owner.send_signal(signal.SIGCONT)
        time.sleep(2)
        owner.terminate()
    else:
        time.sleep(3)


def leave(owner: subprocess.Popen) -> None:
    """Nobody is left of the round."""
    if owner.poll() is None:
        owner.terminate()
        try:
            owner.wait(SETTLE)
        except subprocess.TimeoutExpired:
            owner.kill()
    owner.wait()


def check(database: Path, promised: Path) -> list[str]:
    """What is wrong: acknowledged frames that are missing, steps with gaps, runs without an end, notes of damage."""
    if not database.exists():
        return []
    last: dict[str, int] = {}
    for line in promised.read_text().splitlines() if promised.exists() else []:
        run, sequence = line.split()
        last[run] = max(last.get(run, -1), int(sequence))
    wrong = []
    with Database(database) as owned, owned.reading() as con:
        wrong += owned.notes
        sql = "SELECT run::VARCHAR, max(sequence) FROM commits GROUP BY run"
        kept = dict(con.execute(sql).fetchall())
        wrong += [
            f"{run}: acknowledged to {sequence}, kept to {kept.get(run)}"
            for run, sequence in last.items()
            if kept.get(run, -1) < sequence
        ]
        sql = (
            "SELECT run::VARCHAR FROM steps GROUP BY run "
            "HAVING count(*) <> max(step) + 1 OR count(DISTINCT step) <> count(*)"
        )
        wrong += [f"{run}: steps are missing or doubled" for (run,) in con.execute(sql).fetchall()]
        wrong += [
            f"{run['run_id']} is {run['state']}" for run in queries.runs(con) if run["state"] == "running"
        ]
    return wrong


if __name__ == "__main__":
    sys.exit(main())
