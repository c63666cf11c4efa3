"""Slots: placement groups of one bundle each, for one more worker of an elastic trial."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Mapping

from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from raymx.cluster.nodes import Condition, Nodes, condition

SLOT_NAME = "raymx-slot-"


class Slots:
    """Placement groups for one more worker each. Pending ones are what an autoscaler sees.

    Ray removes them when the job ends, but not when this process does: `remove_slots` is for that. One that was on a
    lost node is to be given back: as long as Ray (2.60) places a group anew for which there is no room, its GCS and an
    agent turn without a pause.
    """

    def __init__(self, owner: str, bundle: Mapping[str, float], count: int) -> None:
        """``owner``: the name of the trial, for `remove_slots`."""
        self.count, self._owner = count, owner
        self._bundle = dict(bundle)
        self._groups: list[PlacementGroup] = []
        self._others_since = 0.0

    @property
    def groups(self) -> tuple[PlacementGroup, ...]:
        """All that were asked for, placed or not."""
        return tuple(self._groups)

    def request(self) -> None:
        """Ask for those that are missing."""
        while len(self._groups) < self.count:
            name = f"{SLOT_NAME}{self._owner}/{uuid.uuid4().hex}"  # Ray wants each to have its own
            self._groups.append(placement_group([self._bundle], strategy="PACK", name=name))

    def conditions(self, nodes: Nodes) -> dict[PlacementGroup, Condition]:
        return {group: condition(group, nodes) for group in self._groups}

    def release(self, groups: Iterable[PlacementGroup] | None = None) -> None:
        """Give these back to the cluster, or all."""
        for group in list(self._groups if groups is None else groups):
            with contextlib.suppress(RayError):
                remove_placement_group(group)
            self._groups.remove(group)

    def others_wait_s(self, own: PlacementGroup, nodes: Nodes) -> float:
        """For how long anybody's placement group that is no slot has been waiting for room, which there could be."""
        waiting = any(
            table["state"] in ("PENDING", "RESCHEDULING")
            and not table["name"].startswith(SLOT_NAME)
            and table["placement_group_id"] != own.id.hex()
            and all(map(nodes.could_hold, table["bundles"].values()))
            for table in placement_group_table().values()
        )
        now = time.monotonic()
        self._others_since = (self._others_since or now) if waiting else 0.0
        return now - self._others_since if waiting else 0.0


def remove_slots(owner: str) -> None:
    """Give back what a trial's process left when it died: the trial itself may need the room."""
    for table in placement_group_table().values():
        if table["name"].startswith(f"{SLOT_NAME}{owner}/") and table["state"] != "REMOVED":
            with contextlib.suppress(RayError, ValueError):  # gone already
                remove_placement_group(get_placement_group(table["name"]))
