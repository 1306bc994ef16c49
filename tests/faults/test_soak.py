"""Random kills under load. `make soak` runs it for ten minutes, the suite for a quarter of one."""

import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

import pytest

from tests.support.cluster import Cluster, Member, Web
from tests.support.story import Story, assert_told_once

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.redis,
    pytest.mark.timeout(1200),
]

SECONDS = float(os.environ.get("SAYSO_TEST_SOAK_SECONDS", "15"))
TELLERS = 4


@dataclass
class Crew:
    """Two of everything, so that something always answers."""

    site: Cluster
    webs: list[Web] = field(default_factory=list)
    workers: list[Member] = field(default_factory=list)
    sweepers: list[Member] = field(default_factory=list)
    beats: list[Member] = field(default_factory=list)
    kills: int = 0

    def start(self) -> None:
        self.webs = [self.site.web(), self.site.web()]
        self.workers = [self.site.worker(), self.site.worker()]
        self.sweepers = [self.site.worker("sweeps"), self.site.worker("sweeps")]
        self.beats = [self.site.beat(), self.site.beat()]

    def strike(self, chance: random.Random) -> None:
        """Kill, freeze or stop one member, put a new one in its place; now and then the broker."""
        self.kills += 1
        kind = chance.choice(["webs", "workers", "workers", "sweepers", "beats", "redis"])
        if kind == "redis":
            self.site.redis.kill()
            time.sleep(chance.random())
            self.site.redis.start()
            return
        members = getattr(self, kind)
        victim = members.pop(chance.randrange(2))
        victim.process.send_signal(chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP]))
        makers = {"webs": self.site.web, "workers": self.site.worker, "beats": self.site.beat}
        members.append(
            self.site.worker("sweeps") if kind == "sweepers" else makers[kind]()  # type: ignore[operator]
        )
        victim.process.send_signal(signal.SIGCONT)


def test_random_kills_lose_nothing_and_double_nothing(site: Cluster) -> None:
    seed = random.SystemRandom().randrange(10**9)
    chance = random.Random(seed)
    crew = Crew(site)
    crew.start()
    stories: list[Story] = []
    end = time.monotonic() + SECONDS

    def tell(number: int) -> None:
        own = random.Random(seed + number)
        while time.monotonic() < end:
            story = Story(lambda: own.choice(crew.webs).url, site.facts, prompt="SLOWASK 0.2")
            stories.append(story)
            story.tell()

    tellers = [threading.Thread(target=tell, args=(number,)) for number in range(TELLERS)]
    for teller in tellers:
        teller.start()
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.5, 2))
        crew.strike(chance)
    for teller in tellers:
        teller.join(timeout=240)
    assert not any(teller.is_alive() for teller in tellers), f"seed {seed}\n{site.logs()}"
    for story in stories:
        assert story.task_id, f"seed {seed}: never told to its end"
        assert_told_once(site.query, story.run_id)
    sys.stdout.write(f"{len(stories)} stories, {crew.kills} strikes, seed {seed}\n")
