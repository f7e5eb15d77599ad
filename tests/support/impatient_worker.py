"""The stand-in worker with limits of about a second, so that a test of them need not take half a minute."""

import sys

from stand_in_worker import serve

from avlab.workers import entry, outbox

outbox.CONTACT_SECONDS, outbox.STUCK_SECONDS, outbox.STANDSTILL_SECONDS = 1.0, 1.0, 1.5

if __name__ == "__main__":
    sys.exit(entry.work(serve))
