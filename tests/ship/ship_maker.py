"""Small seas for the tests: reports, tracks and scenarios that are known exactly."""

import numpy as np

from bcrl.ship import Box, Reports, Rule, Scenarios

BOX = Box(10.0, 0.0, 10.05, 0.05)  # about 5.6 km by 5.6 km, at the equator
START = 1_600_000_000  # a whole ten seconds
RULE = Rule(min_steps=12, min_metres=300.0)


def random_reports(seed: int, ships: int = 8, hours: float = 1.0) -> Reports:
    """Ships that sail straight legs at their own speed, one report every minute or so, some silences."""
    random = np.random.default_rng(seed)
    rows = []
    for ship in range(ships):
        time, place = START + int(random.integers(0, 600)), random.uniform(-500, 6000, 2)
        while time < START + hours * 3600:
            speed, course = random.choice([0.0, 2.1, 6.3, 11.7]), random.uniform(0, 2 * np.pi)
            for _ in range(random.integers(3, 12)):
                seconds = int(random.integers(20, 90))
                time += seconds
                place = place + speed * seconds * np.array([np.cos(course), np.sin(course)])
                rows.append((200_000_000 + ship, time, *place))
            # Back towards the middle, so that the box does not run empty.
            place = np.clip(place, -1000, 6500)
            time += int(random.choice([60, 60, 60, 400]))
    ship, time, x, y = np.array(rows).T
    lon, lat = BOX.to_degrees(x, y)
    order = random.permutation(len(ship))
    return Reports.of_positions(
        ship[order].astype(np.int64), time[order].astype(np.int64), lon[order], lat[order]
    )


def straight(start: tuple[float, float], velocity: tuple[float, float], steps: int) -> np.ndarray:
    """(steps + 1, 4) samples of a ship that sails a straight line."""
    samples = np.empty((steps + 1, 4), np.float32)
    samples[:, :2] = np.array(start) + 10.0 * np.arange(steps + 1)[:, None] * np.array(velocity)
    samples[:, 2] = np.hypot(*velocity)
    samples[:, 3] = np.arctan2(velocity[1], velocity[0]) % (2 * np.pi)
    return samples


def sea(*tracks: tuple[int, int, np.ndarray], scenarios: tuple[int, ...] = (0, 1)) -> Scenarios:
    """Scenarios of tracks (ship, first moment, samples) in order of time; the last of them is the test."""
    count = len(scenarios)
    return Scenarios(
        box=BOX,
        samples=np.concatenate([samples for _, _, samples in tracks]).astype(np.float32),
        offsets=np.cumsum([0, *(len(samples) for _, _, samples in tracks)]).astype(np.int64),
        first=np.array([first for _, first, _ in tracks], np.int64),
        ship=np.array([ship for ship, _, _ in tracks], np.int32),
        ships=np.arange(1 + max(ship for ship, _, _ in tracks), dtype=np.uint64),
        kinds=np.zeros(1 + max(ship for ship, _, _ in tracks), np.int8),
        track=np.array(scenarios, np.int32),
        congestion=np.zeros(count, np.float32),
        close_quarters=np.zeros(count, np.float32),
        expert_cost=np.zeros(count, np.int32),
        test=np.arange(count) == count - 1,
        about={"source": "made for a test"},
    )
