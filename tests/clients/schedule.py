"""Schedules come when croniter says that they do, over two changes of daylight saving in two zones, and on days without one.

They differ in two things. Of a wall clock time that comes twice, as the clock is put back, a schedule of one time a day comes the first time
alone, where croniter has it come both times. What a schedule of several times has within the hour that is left out, as the clock is put
forward, does not come, where croniter has it come at the end of that hour. It needs no server but the example `schedule` of the crate `schedule`
(`cargo build -p millrace-schedule --example schedule`), or the program that SCHEDULE_EXAMPLE names, and runs by itself where
the package of requirements-schedule.txt is installed. SCHEDULE_CASES says how many schedules are compared (400), SCHEDULE_SEED
which ones.
"""

import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import zoneinfo

from croniter import croniter

EXAMPLE = pathlib.Path(
    os.environ.get("SCHEDULE_EXAMPLE") or pathlib.Path(__file__).resolve().parents[2] / "target/debug/examples/schedule"
)
CASES = int(os.environ.get("SCHEDULE_CASES", "400"))
SEED = int(os.environ.get("SCHEDULE_SEED", "1"))
UTC = datetime.timezone.utc
ZONES = ["Europe/Warsaw", "America/New_York", "UTC", "Asia/Kolkata"]
# The changes of 2026 there, and a day without one.
DAYS = ["2026-03-07", "2026-03-28", "2026-10-24", "2026-10-31", "2026-06-15"]


def field(rng, low, high):
    kind = rng.randrange(5)
    if kind == 0:
        return "*"
    if kind == 1:
        return f"*/{rng.choice([2, 3, 5, 7, 20])}"
    if kind == 2:
        first = rng.randint(low, high - 1)
        return f"{first}-{rng.randint(first + 1, high)}"
    if kind == 3:
        return ",".join(str(one) for one in sorted(rng.sample(range(low, high + 1), 3)))
    return str(rng.randint(low, high))


def schedule_of(rng):
    # Mostly around the hours in which clocks change.
    hour = field(rng, 0, 4) if rng.random() < 0.7 else field(rng, 0, 23)
    weekday = "*" if rng.random() < 0.8 else field(rng, 0, 6)
    return f"{field(rng, 0, 59)} {hour} * * {weekday}"


def expected(text, zone, begin, end):
    is_one = all(part.isdigit() for part in text.split()[:2])
    times = []
    schedule = croniter(text, begin.astimezone(zone) - datetime.timedelta(seconds=1))
    while (time := schedule.get_next(datetime.datetime)).astimezone(UTC) < end:
        comes_again = time.fold == 1 and time.utcoffset() != time.replace(fold=0).utcoffset()
        is_left_out = not is_one and not croniter.match(text, time.replace(tzinfo=None))
        if not (is_one and comes_again) and not is_left_out and time.astimezone(UTC) > begin:
            times.append(int(time.timestamp()))
    return times


if not EXAMPLE.exists():
    print(f"missing: {EXAMPLE}")
    sys.exit(77)
rng = random.Random(SEED)
cases = [("30 2 * * *", "Europe/Warsaw", day) for day in DAYS] + [("0 * * * *", "America/New_York", day) for day in DAYS]
cases += [(schedule_of(rng), rng.choice(ZONES), rng.choice(DAYS)) for _ in range(CASES)]
requests, wanted = [], []
for text, name, day in cases:
    begin = datetime.datetime.fromisoformat(day).replace(tzinfo=UTC)
    end = begin + datetime.timedelta(days=3)
    # UTC is what there is without a name.
    schedule = text if name == "UTC" else f"{text} {name}"
    requests.append({"schedule": schedule, "from": int(begin.timestamp()), "to": int(end.timestamp())})
    wanted.append(expected(text, zoneinfo.ZoneInfo(name), begin, end))
lines = "".join(json.dumps(request) + "\n" for request in requests)
answer = subprocess.run([EXAMPLE], input=lines, capture_output=True, text=True, check=True).stdout.splitlines()
assert len(answer) == len(requests), f"{len(answer)} answers to {len(requests)} schedules"


def shown(times):
    return [datetime.datetime.fromtimestamp(time, UTC).isoformat() for time in times]


wrong = 0
for request, times, line in zip(requests, wanted, answer):
    found = json.loads(line)
    if found != times:
        wrong += 1
        if wrong <= 5:
            missing, extra = sorted(set(times) - set(found)), sorted(set(found) - set(times))
            print(f"{request['schedule']}: croniter has {shown(missing)[:5]} more, and {shown(extra)[:5]} less", file=sys.stderr)
print(f"{len(requests)} schedules, {sum(map(len, wanted))} times, {wrong} schedules differ")
sys.exit(1 if wrong else 0)
